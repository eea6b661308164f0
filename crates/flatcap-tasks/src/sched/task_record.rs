//! The state of CPUs and threads at a point in time.

use super::interval::TaskState;
use crate::task::Task;

/// The thread that runs on a CPU. Thread 0 is the idle loop.
#[derive(Debug, Clone, Copy)]
pub(super) struct RunningOn {
    pub(super) thread: u32,
    pub(super) since_ns: u64,
}

/// The state of a thread.
#[derive(Debug, Clone, Copy)]
pub(super) struct TaskRecord {
    pub(super) task: Task,
    /// The state of the thread, and the time at which this state began. `None` if the state is
    /// unknown.
    pub(super) state: Option<(TaskState, u64)>,
    /// The CPU on which the thread runs, if it is running.
    pub(super) cpu: u16,
    /// The task that woke the thread, if the thread is ready.
    pub(super) waker: Option<Task>,
    pub(super) is_exiting: bool,
}
