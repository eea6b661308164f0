//! Intervals of threads, and the trait that receives them.

use std::ops::Range;

use super::cpu_history::CpuHistory;
use super::recording_faults::RecordingHole;
use crate::task::Task;

/// State of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TaskState {
    /// The thread runs on a CPU.
    Running,
    /// The thread is runnable, and waits for a CPU.
    Ready,
    /// The thread waits for an event other than a free CPU.
    Sleeping,
}

/// The reason why an interval ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum IntervalEnd {
    /// The thread got a CPU.
    Ran,
    /// The thread was still runnable, but another thread ran.
    Preempted,
    /// The thread started to wait for something.
    Slept,
    /// The thread became ready to run.
    Woken,
    /// The thread ended.
    Exited,
    /// The events after the interval were not recorded.
    Lost,
    /// The interval was still open at the end of the recorded time.
    Open,
}

/// An interval in which a thread had one state. An interval in which the thread ran is a slice of a
/// CPU. A slice of the idle loop means that the CPU was idle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interval {
    /// The thread.
    pub task: Task,
    /// The thread's state.
    pub state: TaskState,
    /// The CPU on which the thread ran. For a ready or sleeping thread, this is the CPU on which
    /// the thread ran next, if it ran again.
    pub cpu: Option<u16>,
    /// Start of the interval in monotonic nanoseconds.
    pub begin_ns: u64,
    /// End of the interval in monotonic nanoseconds, which is not before `begin_ns`.
    pub end_ns: u64,
    /// The reason why the interval ended.
    pub end: IntervalEnd,
    /// The task that woke a ready thread. `None` if the thread was preempted or is new, or if the
    /// waker is unknown.
    pub waker: Option<Task>,
}

/// A wakeup, in which one thread made another thread ready to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TaskWakeup {
    /// Time in monotonic nanoseconds.
    pub time_ns: u64,
    /// The thread that became ready.
    pub task: Task,
    /// The thread that woke `task`. If an interrupt woke `task`, this is the thread that the
    /// interrupt stopped.
    pub waker: Task,
    /// The CPU on which the waker ran.
    pub cpu: u16,
}

/// Receives the intervals, wakeups and holes of a [`Timeline`](super::Timeline).
pub trait TimelineObserver {
    /// Receives an interval that has ended. Intervals are ordered by their end times, and the
    /// intervals of one thread are consecutive. `history` has the slices of each CPU up to the end
    /// of the interval.
    fn interval(&mut self, interval: &Interval, history: &CpuHistory);

    /// Receives a wakeup, which made a thread ready to run.
    fn wakeup(&mut self, wakeup: &TaskWakeup) {
        let _ = wakeup;
    }

    /// Receives a time range in which some switches were not recorded. Holes are ordered by their
    /// start times. Holes with different causes may overlap.
    fn hole(&mut self, hole: &RecordingHole) {
        let _ = hole;
    }
}

impl Interval {
    /// Creates a slice of a CPU.
    pub(super) fn slice(task: Task, cpu: u16, times: Range<u64>, end: IntervalEnd) -> Self {
        let (begin_ns, end_ns) = (times.start, times.end);
        Self { task, state: TaskState::Running, cpu: Some(cpu), begin_ns, end_ns, end, waker: None }
    }

    /// Returns the length of the interval in nanoseconds.
    #[cfg(test)]
    pub(crate) fn length_ns(&self) -> u64 {
        self.end_ns.saturating_sub(self.begin_ns)
    }

    /// Returns the length of the interval's overlap with a time range, in nanoseconds.
    pub(crate) fn overlap_ns(&self, range: &Range<u64>) -> u64 {
        self.end_ns.min(range.end).saturating_sub(self.begin_ns.max(range.start))
    }
}
