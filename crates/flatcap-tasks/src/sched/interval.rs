//! What one thread did for some time, and who receives it.

use std::ops::Range;

use super::cpu_history::CpuHistory;
use super::recording_faults::RecordingHole;
use crate::task::Task;

/// What a thread does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TaskState {
    /// It runs on a CPU.
    Running,
    /// It could run, and waits for a CPU.
    Ready,
    /// It waits for something else.
    Sleeping,
}

/// Why an interval ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum IntervalEnd {
    /// The thread was given a CPU.
    Ran,
    /// The thread could have run on, and another one ran.
    Preempted,
    /// The thread waits for something.
    Slept,
    /// The thread was made ready to run.
    Woken,
    /// The thread ended.
    Exited,
    /// What followed was not recorded.
    Lost,
    /// It has not ended: what is known ends here.
    Open,
}

/// What a thread did for some time. A running one is a slice of a CPU; that of the idle loop says
/// that the CPU had nothing to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interval {
    /// The thread.
    pub task: Task,
    /// What it did.
    pub state: TaskState,
    /// The CPU on which it ran; of one that waited or slept, on which it ran afterwards, if it did.
    pub cpu: Option<u16>,
    /// When it began, in monotonic nanoseconds.
    pub begin_ns: u64,
    /// When it ended, in monotonic nanoseconds; not before `begin_ns`.
    pub end_ns: u64,
    /// Why it ended.
    pub end: IntervalEnd,
    /// Who made a ready thread ready; none if it was preempted, is new, or that is not known.
    pub waker: Option<Task>,
}

/// A thread made another one ready to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TaskWakeup {
    /// When, in monotonic nanoseconds.
    pub time_ns: u64,
    /// The thread that was made ready.
    pub task: Task,
    /// The thread that did it, or that an interrupt had stopped.
    pub waker: Task,
    /// The CPU on which the waker ran.
    pub cpu: u16,
}

/// Receives what a [`Timeline`](super::Timeline) finds out.
pub trait TimelineObserver {
    /// An interval ended. Intervals come in the order of their ends, and those of one thread follow
    /// each other; `history` says who ran on each CPU until then.
    fn interval(&mut self, interval: &Interval, history: &CpuHistory);

    /// A thread was made ready to run.
    fn wakeup(&mut self, wakeup: &TaskWakeup) {
        let _ = wakeup;
    }

    /// Not all switches of a time were recorded. Holes come in the order of their begins; those
    /// with different causes may overlap.
    fn hole(&mut self, hole: &RecordingHole) {
        let _ = hole;
    }
}

impl Interval {
    /// Time on a CPU.
    pub(super) fn slice(task: Task, cpu: u16, times: Range<u64>, end: IntervalEnd) -> Self {
        let (begin_ns, end_ns) = (times.start, times.end);
        Self { task, state: TaskState::Running, cpu: Some(cpu), begin_ns, end_ns, end, waker: None }
    }

    /// Its length in nanoseconds.
    pub fn length_ns(&self) -> u64 {
        self.end_ns.saturating_sub(self.begin_ns)
    }

    /// Returns how much of it is within a range of time, in nanoseconds.
    pub fn overlap_ns(&self, range: &Range<u64>) -> u64 {
        self.end_ns.min(range.end).saturating_sub(self.begin_ns.max(range.start))
    }
}
