//! Threads that answer requests, one after the other, within a budget of CPU time.

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded};
use hyper::StatusCode;
use tokio::sync::oneshot;

use super::api_error::ApiError;
use super::api_request::ApiRequest;
use crate::os::clock::{monotonic_ns, thread_cpu_ns};
use crate::os::thread;
use crate::os::throttle::Throttle;

/// Requests that may wait; further ones are refused.
const QUEUED_MAX: usize = 64;
/// Most bytes of an answer.
pub(super) const ANSWER_BYTES_MAX: usize = 1 << 20;

/// The body of an answer.
#[derive(Debug)]
pub(super) struct ApiAnswer {
    pub(super) media_type: &'static str,
    pub(super) body: Vec<u8>,
}

impl ApiAnswer {
    /// Returns an answer as JSON.
    pub(super) fn json(answer: &impl serde::Serialize) -> Result<Self, ApiError> {
        let body = serde_json::to_vec(answer)
            .map_err(|error| ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
        Ok(Self { media_type: "application/json", body })
    }
}

type ApiResult = Result<ApiAnswer, ApiError>;

/// A request that waits for its answer.
#[derive(Debug)]
struct Job {
    request: ApiRequest,
    reply: oneshot::Sender<ApiResult>,
}

/// Sends requests to a worker, which ends when this is dropped.
#[derive(Debug)]
pub(super) struct Worker {
    jobs: Sender<Job>,
}

impl Worker {
    /// Starts a thread that answers with `answer`, and waits while `throttle`, of CPU time, says
    /// so.
    ///
    /// # Errors
    /// The kernel refuses a thread.
    pub(super) fn start(
        name: &str,
        throttle: Arc<Throttle>,
        mut answer: impl FnMut(&ApiRequest) -> ApiResult + Send + 'static,
    ) -> io::Result<(Self, JoinHandle<()>)> {
        let (jobs, waiting) = bounded(QUEUED_MAX);
        let thread = thread::spawn(name, move || {
            yield_to_samplers();
            serve(&waiting, &throttle, &mut answer);
        })?;
        Ok((Self { jobs }, thread))
    }

    /// Sends a request and waits for the answer.
    pub(super) async fn ask(&self, request: ApiRequest) -> ApiResult {
        let (reply, answer) = oneshot::channel();
        self.jobs.try_send(Job { request, reply }).map_err(|_| ApiError::busy())?;
        answer.await.unwrap_or_else(|_| {
            Err(ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "the answer failed; the log says why"))
        })
    }
}

fn serve(waiting: &Receiver<Job>, throttle: &Throttle, answer: &mut impl FnMut(&ApiRequest) -> ApiResult) {
    while let Ok(job) = waiting.recv() {
        // Nobody waits any more: the page has zoomed on.
        if job.reply.is_closed() {
            continue;
        }
        wait_for_budget(throttle);
        let (began_ns, before_ns) = (monotonic_ns(), thread_cpu_ns());
        let result = answer(&job.request).and_then(|answer| {
            if answer.body.len() <= ANSWER_BYTES_MAX {
                return Ok(answer);
            }
            let bytes = answer.body.len();
            Err(ApiError::new(
                StatusCode::UNPROCESSABLE_ENTITY,
                format!("the answer has {bytes} bytes, the limit is {ANSWER_BYTES_MAX}; ask for less"),
            ))
        });
        throttle.charge(began_ns, thread_cpu_ns().saturating_sub(before_ns));
        // The client may be gone.
        let _gone = job.reply.send(result);
    }
}

/// Waits until the budget allows more work.
pub(super) fn wait_for_budget(throttle: &Throttle) {
    loop {
        let wait_ns = throttle.wait_ns(monotonic_ns());
        if wait_ns == 0 {
            return;
        }
        std::thread::sleep(Duration::from_nanos(wait_ns));
    }
}

/// Lets threads that wake up, such as samplers of a recorder on this host, run first.
pub(super) fn yield_to_samplers() {
    // Refused in some containers; the budget still holds.
    let _refused = thread::set_batch_priority();
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that an answer above the limit is refused with its size, and that one within it
    // arrives.
    #[test]
    fn answers_are_bounded() {
        let throttle = Arc::new(Throttle::new(1_000_000_000));
        let answer = |request: &ApiRequest| {
            let bytes = ANSWER_BYTES_MAX + usize::from(*request == ApiRequest::Fields);
            Ok(ApiAnswer { media_type: "text/plain", body: vec![0; bytes] })
        };
        let (worker, thread) = Worker::start("answers", throttle, answer).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let whole = runtime.block_on(worker.ask(ApiRequest::Marks)).unwrap();
        assert_eq!(whole.body.len(), ANSWER_BYTES_MAX);
        let error = runtime.block_on(worker.ask(ApiRequest::Fields)).unwrap_err();
        assert!(error.text.contains("1048577 bytes, the limit is 1048576"), "{}", error.text);
        drop(worker);
        thread.join().unwrap();
    }
}
