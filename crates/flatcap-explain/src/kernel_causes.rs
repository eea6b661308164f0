//! The kernel's events in a window: the threads that ran, the threads that waited, and the code
//! that ran. As in [`answers`](super::answers), the fields are the JSON of all programs. Times of
//! several threads are summed.

use flatcap_format::schema::text_of;
use flatcap_tasks::{CodeObjectInfo, HoleCause, StackTotals};
use serde::Serialize;

/// The kernel's events in a window. A part is absent if the recording has no source for it.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct KernelCauses {
    /// The threads that ran.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tasks: Option<TaskCauses>,
    /// The processes that waited longest for a CPU, at most a hundred, longest first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waits: Option<Vec<WaitingProcess>>,
    /// Of the threads that slept longer than usual, the hundred with the longest sleeps, longest
    /// first. The list is also absent if the recorded time before the window is shorter than the
    /// window.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sleeps: Option<Vec<SleepingThread>>,
    /// The code that ran.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stacks: Option<StackCauses>,
    /// The lines that the kernel logged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log: Option<LoggedLines>,
    /// Whether the recording has damage, a file that cannot be read, or events that cannot be read.
    // The exit status of the commands depends on this field. In JSON, absent or incomplete parts
    // show such problems.
    #[serde(skip)]
    pub(super) has_findings: bool,
}

/// The threads that ran in a window.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TaskCauses {
    /// The recorded part of the window, as the mean over all CPUs, in nanoseconds.
    pub recorded_ns: u64,
    /// Number of records that the kernel lost. The count includes times before and after the window
    /// that were read.
    pub lost: u64,
    /// Number of gaps at which samples are missing, in the whole time that was read.
    pub gaps: u64,
    /// Length of the time in which the switches exceeded the CPU budget, in the whole time that was
    /// read.
    pub stopped_ns: u64,
    /// Whether wakeups were recorded. Without wakeups, waits are lower bounds, and sleeps include
    /// waits.
    pub has_wakeups: bool,
    /// Whether the whole window was recorded. Only then is it certain that a process that is not
    /// listed did not run.
    pub is_complete: bool,
    /// Time ranges of the window in which not all switches were recorded, earliest first.
    pub unrecorded: Vec<UnrecordedTime>,
    /// The processes that ran, longest time first.
    #[serde(rename = "processes")]
    pub running: Vec<RunningProcess>,
    /// Number of further time ranges in which not all switches were recorded. They are not in the
    /// list, because the length of the list is limited.
    pub further_unrecorded: u64,
    /// Length of the window, in nanoseconds.
    pub window_ns: u64,
}

/// A time range in which not all switches were recorded. The range ends in the window and may begin
/// before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct UnrecordedTime {
    /// The reason why the switches were not recorded.
    pub cause: UnrecordedCause,
    /// Wall time at the start of the range in nanoseconds, which may be before the window.
    pub begin_wall_ns: i64,
    /// Wall time at the end of the range in nanoseconds.
    pub end_wall_ns: i64,
    /// Number of lost records.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub records: Option<u64>,
}

/// The reason why switches were not recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum UnrecordedCause {
    /// The switches exceeded the CPU budget of the source.
    Stopped,
    /// The kernel lost records, at unknown times in the range.
    LostRecords,
    /// Samples of the source are missing.
    MissingSamples,
}

/// A process that ran. Times are in nanoseconds, summed over the threads of the process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RunningProcess {
    /// Process id.
    pub pid: u32,
    /// The process's name.
    pub name: String,
    /// Time on CPUs.
    pub on_cpu_ns: u64,
    /// The usual CPU time: the time in the baseline, scaled to the recorded length of the window.
    /// `None` if the baseline was not recorded.
    // `None` differs from 0, because a process that never ran before differs from a process about
    // which nothing is known.
    pub usual_ns: Option<u64>,
    /// Number of times that threads of the process stopped running.
    pub switches: u64,
}

/// A process that waited for a CPU. Times are in nanoseconds, summed over the threads of the
/// process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct WaitingProcess {
    /// Process id.
    pub pid: u32,
    /// The process's name.
    pub name: String,
    /// Time in which threads were ready to run and waited for a CPU.
    pub run_delay_ns: u64,
    /// The longest wait of one thread.
    pub longest_ns: u64,
    /// The usual waiting time: the time in the baseline, scaled to the recorded length of the
    /// window. `None` if the baseline was not recorded.
    pub usual_ns: Option<u64>,
    /// The processes that ran during the wait, longest time first. They ran on the CPU on which the
    /// waiting thread ran afterwards.
    pub meanwhile: Vec<BlockingProcess>,
}

/// A process that ran while another one waited.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BlockingProcess {
    /// Process id; 0 if the CPU was idle.
    pub pid: u32,
    /// The process's name; `idle` if the CPU was idle.
    pub name: String,
    /// Time for which the process ran, in nanoseconds, summed over the waiting threads.
    pub ns: u64,
}

/// A thread that slept for much longer than usual. It waited for something other than a CPU, such
/// as a disk, a lock or a timer. If wakeups were not recorded, the sleep includes the time for
/// which the thread waited for a CPU afterwards.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SleepingThread {
    /// Process id.
    pub pid: u32,
    /// Name of the process.
    pub name: String,
    /// Thread id.
    pub tid: u32,
    /// Name of the thread.
    pub thread: String,
    /// The longest part of the window in which the thread slept without interruption, in
    /// nanoseconds.
    pub longest_ns: u64,
    /// The longest time for which the thread slept before the window, in nanoseconds.
    pub usual_longest_ns: u64,
}

/// The code that ran.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StackCauses {
    /// Number of samples of stacks.
    pub samples: u64,
    /// The time that these samples represent, in nanoseconds.
    pub total_ns: u64,
    /// Number of samples that the kernel lost.
    pub lost: u64,
    /// The functions that were at the top of the stack in at least one sample. They are in
    /// descending order of the time in the function itself.
    pub functions: Vec<FunctionTime>,
}

/// A function, or another code location, in a process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FunctionTime {
    /// Process id.
    pub pid: u32,
    /// The process's name.
    pub name: String,
    /// The function, if its name is known.
    pub function: Option<String>,
    /// Path of the file with the code; empty for memory without a file.
    pub object: String,
    /// Build id of the file in hexadecimal digits; empty if it is not known.
    pub build_id: String,
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// Time in the function itself, in nanoseconds.
    pub self_ns: u64,
    /// Time in the function and in the functions that it called, in nanoseconds.
    pub total_ns: u64,
}

/// Lines of the kernel log.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct LoggedLines {
    /// The first hundred lines in the window.
    pub lines: Vec<LoggedLine>,
    /// Number of further lines in the window.
    pub further: u64,
    /// Number of lines that were overwritten before the recorder read them. The count includes
    /// lines shortly before and after the window.
    pub lost: u64,
}

/// A line of the kernel log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LoggedLine {
    /// The wall time of the line, in nanoseconds.
    pub wall_ns: i64,
    /// Severity: 0 is an emergency, 7 is for debugging.
    pub priority: u8,
    /// The text.
    pub text: String,
}

impl KernelCauses {
    /// Keeps at most `limit` processes, threads and functions in each list.
    pub(super) fn truncate(&mut self, limit: usize) {
        if let Some(tasks) = &mut self.tasks {
            tasks.running.truncate(limit);
        }
        if let Some(waits) = &mut self.waits {
            waits.truncate(limit);
        }
        if let Some(sleeps) = &mut self.sleeps {
            sleeps.truncate(limit);
        }
        if let Some(stacks) = &mut self.stacks {
            stacks.functions.truncate(limit);
        }
    }
}

impl UnrecordedTime {
    pub(super) fn new((begin_wall_ns, end_wall_ns): (i64, i64), cause: HoleCause) -> Self {
        let (cause, records) = match cause {
            HoleCause::Stopped => (UnrecordedCause::Stopped, None),
            HoleCause::LostRecords(records) => (UnrecordedCause::LostRecords, Some(records)),
            HoleCause::MissingSamples => (UnrecordedCause::MissingSamples, None),
        };
        Self { cause, begin_wall_ns, end_wall_ns, records }
    }
}

impl StackCauses {
    /// Returns the totals of stacks. `name` returns the name of the function at an offset in an
    /// object file.
    pub(super) fn new(
        stacks: &StackTotals,
        name: impl FnMut(&CodeObjectInfo, u64) -> Option<String>,
    ) -> Self {
        let functions = stacks.functions(name).into_iter().filter(|total| total.self_ns > 0).map(|total| {
            let frame = stacks.frame(total.frame);
            let object = frame.and_then(|frame| stacks.object(frame));
            FunctionTime {
                pid: total.process,
                name: text_of(total.name.as_bytes()).into_owned(),
                function: total.function,
                object: object.map(|object| object.path.to_string()).unwrap_or_default(),
                build_id: object.map(|object| hexadecimal(&object.build_id)).unwrap_or_default(),
                offset: frame.map_or(0, |frame| frame.offset),
                self_ns: total.self_ns,
                total_ns: total.total_ns,
            }
        });
        Self {
            samples: stacks.samples(),
            total_ns: stacks.total_ns(),
            lost: stacks.lost(),
            functions: functions.collect(),
        }
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 0xF]);
    digits.filter_map(|digit| char::from_digit(digit.into(), 16)).collect()
}
