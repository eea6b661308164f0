//! Converts the intervals of a timeline to wall time.

use flatcap_tasks::{CpuHistory, Interval, IntervalEnd, Task, TaskState, TimelineObserver};

use super::stretches::Stretch;

/// An interval in which a thread had one state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WallInterval {
    pub(super) task: Task,
    pub(super) state: TaskState,
    /// The CPU on which the thread ran.
    pub(super) cpu: Option<u16>,
    /// The start, in wall nanoseconds.
    pub(super) begin_ns: i64,
    /// The end in wall nanoseconds, which is not before `begin_ns`.
    pub(super) end_ns: i64,
    pub(super) end: IntervalEnd,
    /// The thread that woke this thread, if this thread is ready.
    pub(super) waker: Option<Task>,
}

/// Receives intervals of threads, sorted by their end times.
pub(crate) trait TrackObserver {
    fn interval(&mut self, interval: &WallInterval);

    fn stretch(&mut self, stretch: Stretch);
}

/// Passes intervals to `observer`, shifted by the offset of the wall clock. An interval that began
/// before the clock was set keeps its length.
pub(super) struct OnWallClock<'o, O> {
    pub(super) offset_ns: i64,
    pub(super) observer: &'o mut O,
}

impl<O: TrackObserver> OnWallClock<'_, O> {
    pub(super) fn pass(&mut self, interval: &Interval) {
        let begin_ns = self.offset_ns.saturating_add_unsigned(interval.begin_ns);
        self.observer.interval(&WallInterval {
            task: interval.task,
            state: interval.state,
            cpu: interval.cpu,
            begin_ns,
            end_ns: self.offset_ns.saturating_add_unsigned(interval.end_ns).max(begin_ns),
            end: interval.end,
            waker: interval.waker,
        });
    }
}

impl<O: TrackObserver> TimelineObserver for OnWallClock<'_, O> {
    fn interval(&mut self, interval: &Interval, _history: &CpuHistory) {
        self.pass(interval);
    }
}
