//! Serves the query API of Prometheus, for data sources such as Grafana's.

mod answers;
mod reader;
mod request;
#[cfg(test)]
mod tests;

use std::io;
use std::thread::JoinHandle;

use hyper::{Method, StatusCode};

use answers::PromqlAnswer;
use reader::PromqlReader;
use request::PromqlRequest;

use super::api_error::ApiError;
use super::shown_paths::ShownPaths;
use super::work_budget::WorkBudget;
use super::worker::{ApiAnswer, Worker};

/// Maximum size of an answer, in bytes.
// A data source requests all series of a panel at once.
const ANSWER_BYTES_MAX: usize = 16 << 20;

/// Answers data sources. One thread owns a reader of the recording and answers the requests. This
/// thread ends when the service is dropped.
#[derive(Debug)]
pub(super) struct PromqlService {
    worker: Worker<PromqlRequest>,
}

impl PromqlService {
    /// Starts the thread, which works within a CPU budget.
    ///
    /// # Errors
    /// The kernel refuses a thread.
    pub(super) fn start(shown: ShownPaths, budget: WorkBudget) -> io::Result<(Self, Option<JoinHandle<()>>)> {
        let mut reader = PromqlReader::new(shown);
        let answer = move |request: &PromqlRequest| reader.answer(request);
        let (worker, thread) = Worker::start("page-promql", (budget, ANSWER_BYTES_MAX), answer)?;
        Ok((Self { worker }, Some(thread)))
    }

    /// Answers a request with a path below /api/v1, and with parameters in its query and body.
    /// Errors have the format of Prometheus.
    ///
    /// # Errors
    /// The answer cannot be written as JSON.
    pub(super) async fn answer(
        &self,
        (method, path): (&Method, &str),
        query: &str,
        body: Result<String, ApiError>,
    ) -> Result<(StatusCode, ApiAnswer), ApiError> {
        let answer = async { self.worker.ask(PromqlRequest::parse(method, path, (query, &body?))?).await };
        match answer.await {
            Ok(answer) => Ok((StatusCode::OK, answer)),
            Err(error) => Ok((error.status, ApiAnswer::json(&PromqlAnswer::error(error))?)),
        }
    }
}
