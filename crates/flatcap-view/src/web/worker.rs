//! Threads that each answer requests one after the other, within a budget of CPU time.

use std::io;
use std::thread::JoinHandle;

use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};
use flatcap_os::thread;
use hyper::StatusCode;
use tokio::sync::oneshot;

use super::api_error::ApiError;
use super::work_budget::WorkBudget;

/// Maximum number of queued requests; further requests are refused.
const QUEUED_MAX: usize = 64;
/// Maximum size of an answer to the page, in bytes.
pub(super) const PAGE_ANSWER_BYTES_MAX: usize = 1 << 20;

/// The body of an answer, and its content type.
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
struct Job<R> {
    request: R,
    reply: oneshot::Sender<ApiResult>,
}

/// A handle that sends requests to a worker thread. The worker thread ends when the handle is
/// dropped.
#[derive(Debug)]
pub(super) struct Worker<R> {
    jobs: Sender<Job<R>>,
}

impl<R: Send + 'static> Worker<R> {
    /// Starts a thread that answers requests by calling `answer`, within a CPU budget. An answer
    /// has at most `bytes_max` bytes.
    ///
    /// # Errors
    /// The kernel refuses a thread.
    pub(super) fn start(
        name: &str,
        (budget, bytes_max): (WorkBudget, usize),
        mut answer: impl FnMut(&R) -> ApiResult + Send + 'static,
    ) -> io::Result<(Self, JoinHandle<()>)> {
        let (jobs, waiting) = bounded(QUEUED_MAX);
        let thread = thread::spawn(name, move || {
            WorkBudget::yield_to_samplers();
            serve(&waiting, (&budget, bytes_max), &mut answer);
        })?;
        Ok((Self { jobs }, thread))
    }

    /// Sends a request and waits for the answer.
    pub(super) async fn ask(&self, request: R) -> ApiResult {
        let (reply, answer) = oneshot::channel();
        // If the queue is full, the request is refused immediately. Otherwise the connections would
        // become a second queue.
        self.jobs.try_send(Job { request, reply }).map_err(|error| match error {
            TrySendError::Full(_) => ApiError::busy(),
            TrySendError::Disconnected(_) => ApiError::new(
                StatusCode::INTERNAL_SERVER_ERROR,
                "this part of the page has failed; the log says why",
            ),
        })?;
        answer.await.unwrap_or_else(|_| {
            Err(ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "the answer failed; the log says why"))
        })
    }
}

fn serve<R>(
    waiting: &Receiver<Job<R>>,
    (budget, bytes_max): (&WorkBudget, usize),
    answer: &mut impl FnMut(&R) -> ApiResult,
) {
    while let Ok(job) = waiting.recv() {
        // The client no longer waits for the answer, for example because the page has zoomed
        // further.
        if job.reply.is_closed() {
            continue;
        }
        let result = budget.run(|| answer(&job.request)).and_then(|answer| {
            if answer.body.len() <= bytes_max {
                return Ok(answer);
            }
            let bytes = answer.body.len();
            Err(ApiError::new(
                StatusCode::UNPROCESSABLE_ENTITY,
                format!("the answer has {bytes} bytes, the limit is {bytes_max}; ask for less"),
            ))
        });
        // The client may have disconnected.
        let _gone = job.reply.send(result);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use flatcap_os::throttle::Throttle;
    use flatcap_os::wake_event::WakeEvent;

    use super::*;

    // Proves that an answer above the limit is refused and the error names its size, and that an
    // answer within the limit is delivered.
    #[test]
    fn answers_are_bounded() {
        let throttle = Arc::new(Throttle::new(1_000_000_000));
        let budget = WorkBudget::new(throttle, Arc::new(WakeEvent::new()));
        let answer = |bytes: &usize| Ok(ApiAnswer { media_type: "text/plain", body: vec![0; *bytes] });
        let (worker, thread) = Worker::start("answers", (budget, PAGE_ANSWER_BYTES_MAX), answer).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let whole = runtime.block_on(worker.ask(PAGE_ANSWER_BYTES_MAX)).unwrap();
        assert_eq!(whole.body.len(), PAGE_ANSWER_BYTES_MAX);
        let error = runtime.block_on(worker.ask(PAGE_ANSWER_BYTES_MAX + 1)).unwrap_err();
        assert!(error.text.contains("1048577 bytes, the limit is 1048576"), "{}", error.text);
        drop(worker);
        thread.join().unwrap();
    }
}
