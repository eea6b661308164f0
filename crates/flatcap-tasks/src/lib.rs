//! Reconstructs which threads ran, which threads waited for a CPU or slept, which code ran, and
//! which lines the kernel logged.
//!
//! | to | use |
//! |---|---|
//! | read the events of the scheduler | [`SchedBatch`] |
//! | get the states of each thread and CPU | [`Timeline`], which calls a [`TimelineObserver`] |
//! | sum times in a window | [`TaskTimes`] |
//! | find the unrecorded parts of a window | [`RecordingHoles`] |
//! | sample the counters of threads and processes at equal steps | [`TaskSteps`] |
//! | read sampled stacks | [`ProfileBatch`] |
//! | add them up | [`StackTotals`] |
//! | know what identifies files that were recorded without | [`KnownCode`] |
//! | read lines of the kernel log | [`LogBatch`] |
//!
//! The caller passes payloads of the sources `sched`, `profile` and `kmsg` in the order of their
//! sequence numbers. [`schema`] contains their schemas.
//!
//! The crate never reads a file or a clock, and never trusts a payload.

mod code;
mod error;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod generated;
mod log;
mod sched;
mod task;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use code::{
    CodeFrame, CodeObjectInfo, CodeObjectView, CodePlace, FileVersion, FrameTotal, KnownCode, ProfileBatch,
    STACK_DEPTH_MAX, SampledProcess, StackSampleView, StackTotal, StackTotals,
};
pub use error::{PAYLOAD_NS_MAX, PayloadError};
pub use log::{LogBatch, LogLineView};
pub use sched::{
    Blocker, CpuHistory, CpuSlice, CpuTimes, HoleCause, Interval, IntervalEnd, ProcessTimes, RecordingFaults,
    RecordingHole, RecordingHoles, STEP_NS_MIN, SchedBatch, SchedEvent, SchedEventKind, SchedEvents,
    TaskSample, TaskState, TaskSteps, TaskTimes, TaskWakeup, ThreadTimes, Timeline, TimelineObserver,
};
pub use task::{Task, TaskName, ThreadInfo};

/// Accessors and binary schemas of the payloads of the kernel's sources (schemas/).
pub mod schema {
    pub use super::generated::kernel::*;

    /// Binary schema of the source `sched`.
    pub const SCHED: &[u8] = include_bytes!("../generated/sched.bfbs");
    /// Full name of the root table of `sched`.
    pub const SCHED_ROOT: &str = "flatcap.kernel.Sched";
    /// Binary schema of the source `profile`.
    pub const PROFILE: &[u8] = include_bytes!("../generated/profile.bfbs");
    /// Full name of the root table of `profile`.
    pub const PROFILE_ROOT: &str = "flatcap.kernel.Profile";
    /// Binary schema of the source `kmsg`.
    pub const KMSG: &[u8] = include_bytes!("../generated/kmsg.bfbs");
    /// Full name of the root table of `kmsg`.
    pub const KMSG_ROOT: &str = "flatcap.kernel.Kmsg";
    /// Binary schema of the samples of [`TaskSteps`](super::TaskSteps).
    pub const TASKS: &[u8] = include_bytes!("../generated/tasks.bfbs");
    /// Name of the source of the samples of [`TaskSteps`](super::TaskSteps). This source is derived
    /// from the source `sched`, so no segment contains it.
    pub const TASKS_NAME: &str = "tasks";
    /// Full name of the root table of `tasks`.
    pub const TASKS_ROOT: &str = "flatcap.kernel.Tasks";
}
