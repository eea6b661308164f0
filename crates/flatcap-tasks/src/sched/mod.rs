//! Derives thread states from payloads of the source `sched`. The states show which threads ran,
//! which threads waited for a CPU (run queue latency), and which threads slept (off-CPU time).

mod batch;
mod cpu_history;
mod ended_threads;
mod interval;
mod recording_faults;
mod recording_holes;
mod task_record;
mod task_steps;
mod task_times;
mod timeline;

#[cfg(test)]
mod model_tests;
#[cfg(test)]
mod tests;

pub use batch::{SchedBatch, SchedEvent, SchedEventKind, SchedEvents};
pub use cpu_history::{CpuHistory, CpuSlice};
pub use interval::{Interval, IntervalEnd, TaskState, TaskWakeup, TimelineObserver};
pub use recording_faults::{HoleCause, RecordingFaults, RecordingHole};
pub use recording_holes::RecordingHoles;
pub use task_steps::{STEP_NS_MIN, TaskSample, TaskSteps};
pub use task_times::{Blocker, CpuTimes, ProcessTimes, TaskTimes, ThreadTimes};
pub use timeline::Timeline;
