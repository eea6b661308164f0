//! Replaces the query API of Prometheus in a program that was built without the feature `promql`.

use std::io;
use std::thread::JoinHandle;

use hyper::{Method, StatusCode};
use serde_json::json;

use super::api_error::ApiError;
use super::shown_paths::ShownPaths;
use super::work_budget::WorkBudget;
use super::worker::ApiAnswer;

const REMEDY: &str = "this flatcap was built without the query API of Prometheus; install a package, or build it with \
     cargo build --release --features promql";

/// Refuses the requests of Prometheus data sources, such as Grafana's.
#[derive(Debug)]
pub(super) struct PromqlService;

impl PromqlService {
    /// Returns the service, which has no thread.
    #[allow(clippy::unnecessary_wraps, reason = "as with the feature")]
    pub(super) fn start(_: ShownPaths, _: WorkBudget) -> io::Result<(Self, Option<JoinHandle<()>>)> {
        Ok((Self, None))
    }

    /// Answers each request with an error in the format of Prometheus.
    ///
    /// # Errors
    /// The answer cannot be written as JSON.
    #[allow(clippy::unused_async, reason = "as with the feature")]
    pub(super) async fn answer(
        &self,
        _: (&Method, &str),
        _: &str,
        _: Result<String, ApiError>,
    ) -> Result<(StatusCode, ApiAnswer), ApiError> {
        let error = json!({ "status": "error", "errorType": "unavailable", "error": REMEDY });
        Ok((StatusCode::NOT_IMPLEMENTED, ApiAnswer::json(&error)?))
    }
}
