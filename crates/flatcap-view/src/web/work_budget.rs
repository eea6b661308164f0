//! The CPU budget shared by all threads of a page.

use std::sync::Arc;

use flatcap_os::clock::{monotonic_ns, thread_cpu_ns};
use flatcap_os::thread;
use flatcap_os::throttle::Throttle;
use flatcap_os::wake_event::WakeEvent;

/// Keeps the work of a thread within the shared CPU budget.
#[derive(Debug, Clone)]
pub(super) struct WorkBudget {
    throttle: Arc<Throttle>,
    stop: Arc<WakeEvent>,
}

impl WorkBudget {
    /// Creates a budget that uses a shared throttle of CPU time. When `stop` is set, all waits end.
    pub(super) fn new(throttle: Arc<Throttle>, stop: Arc<WakeEvent>) -> Self {
        Self { throttle, stop }
    }

    /// Lets other threads that wake up, such as samplers of a recorder on this host, run before the
    /// calling thread.
    pub(super) fn yield_to_samplers() {
        // Some containers refuse batch priority. The budget holds even without it.
        let _refused = thread::set_batch_priority();
    }

    /// Waits until the budget allows more work. After the wait, this function runs `work` and
    /// charges its CPU time.
    pub(super) fn run<T>(&self, work: impl FnOnce() -> T) -> T {
        loop {
            let now_ns = monotonic_ns();
            let wait_ns = self.throttle.wait_ns(now_ns);
            // After a stop, no wait may delay the exit of the program.
            if wait_ns == 0 || self.stop.is_set() {
                break;
            }
            self.stop.wait_until(now_ns.saturating_add(wait_ns));
        }
        let (began_ns, before_ns) = (monotonic_ns(), thread_cpu_ns());
        let output = work();
        self.throttle.charge(began_ns, thread_cpu_ns().saturating_sub(before_ns));
        output
    }
}
