//! What is known of CPUs and threads at a moment.

use super::interval::TaskState;
use crate::task::Task;

/// Who runs on a CPU. Thread 0 is the idle loop.
#[derive(Debug, Clone, Copy)]
pub(super) struct RunningOn {
    pub(super) thread: u32,
    pub(super) since_ns: u64,
}

/// What is known of a thread.
#[derive(Debug, Clone, Copy)]
pub(super) struct TaskRecord {
    pub(super) task: Task,
    /// What it does, and since when; none if that is not known.
    pub(super) state: Option<(TaskState, u64)>,
    /// The CPU on which it runs, if it does.
    pub(super) cpu: u16,
    /// Who made it ready, if it is.
    pub(super) waker: Option<Task>,
    pub(super) is_exiting: bool,
}
