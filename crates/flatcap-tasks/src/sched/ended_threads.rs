//! Stores ended threads while they may still have events.

use std::collections::VecDeque;

/// Time for which a thread is stored after the recorded end of the thread. A thread may still run
/// and wait after its recorded end, while the kernel frees the thread's memory.
const KEPT_NS: u64 = 10_000_000_000;

/// Ended threads with the ids of their tasks, sorted by the times at which the threads ended.
#[derive(Debug, Default)]
pub(super) struct EndedThreads(VecDeque<(u64, u32, u64)>);

impl EndedThreads {
    /// Adds a thread that ends now.
    pub(super) fn add(&mut self, now_ns: u64, thread: u32, task: u64) {
        self.0.push_back((now_ns, thread, task));
    }

    /// Removes one thread that ended more than [`KEPT_NS`] ago, and returns its thread id and task
    /// id.
    pub(super) fn take_old(&mut self, now_ns: u64) -> Option<(u32, u64)> {
        let (_, thread, task) =
            self.0.front().copied().filter(|(ended_ns, ..)| ended_ns.saturating_add(KEPT_NS) < now_ns)?;
        self.0.pop_front();
        Some((thread, task))
    }
}
