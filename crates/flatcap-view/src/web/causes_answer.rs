//! The causes that the kernel's events show for a selection, as JSON in the answer of /explain.

use flatcap_explain::{
    KernelCauses, LoggedLines, RunningProcess, SleepingThread, TaskCauses, UnrecordedTime, WaitingProcess,
};
use flatcap_format::schema::text_of;
use flatcap_tasks::{Blocker, HoleCause, StackTotals};
use flatcap_text::stack_names::StackNames;
use serde::Serialize;

/// Maximum number of processes, functions and lines that the page lists.
const LISTED_MAX: usize = 20;
/// Maximum length of a line of the kernel log in the answer, in characters.
const LINE_MAX: usize = 500;

/// The causes that the kernel's events show. A part is absent if the recording has no such source.
/// Durations are in nanoseconds; the durations of several threads add up.
#[derive(Debug, Serialize)]
pub(super) struct CausesAnswer {
    #[serde(skip_serializing_if = "Option::is_none")]
    tasks: Option<TasksPart>,
    #[serde(skip_serializing_if = "Option::is_none")]
    waits: Option<Vec<WaitPart>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sleeps: Option<Vec<SleepPart>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stacks: Option<StacksPart>,
    #[serde(skip_serializing_if = "Option::is_none")]
    log: Option<LogPart>,
}

#[derive(Debug, Serialize)]
struct TasksPart {
    recorded_ns: u64,
    lost: u64,
    gaps: u64,
    stopped_ns: u64,
    has_wakeups: bool,
    /// Whether the whole selection was recorded.
    is_complete: bool,
    unrecorded: Vec<UnrecordedPart>,
    processes: Vec<ProcessPart>,
}

/// A range in which not all switches were recorded.
#[derive(Debug, Serialize)]
struct UnrecordedPart {
    /// Begin and end, in wall nanoseconds.
    // Strings, because a JavaScript number has only 53 bits of integer precision.
    from_ns: String,
    to_ns: String,
    cause: &'static str,
    /// Number of lost records.
    records: u64,
}

#[derive(Debug, Serialize)]
struct ProcessPart {
    pid: u32,
    name: String,
    on_cpu_ns: u64,
    usual_ns: Option<u64>,
    switches: u64,
}

#[derive(Debug, Serialize)]
struct WaitPart {
    pid: u32,
    name: String,
    run_delay_ns: u64,
    longest_ns: u64,
    usual_ns: Option<u64>,
    /// The processes that ran on the CPU during the wait; process 0 is the idle loop.
    meanwhile: Vec<RanPart>,
}

#[derive(Debug, Serialize)]
struct RanPart {
    pid: u32,
    name: String,
    ns: u64,
}

/// A thread that slept longer than usual.
#[derive(Debug, Serialize)]
struct SleepPart {
    pid: u32,
    name: String,
    tid: u32,
    thread: String,
    longest_ns: u64,
    usual_longest_ns: u64,
}

#[derive(Debug, Serialize)]
struct StacksPart {
    samples: u64,
    total_ns: u64,
    lost: u64,
    functions: Vec<FunctionPart>,
}

#[derive(Debug, Serialize)]
struct FunctionPart {
    pid: u32,
    name: String,
    function: Option<String>,
    object: String,
    /// Offset in the object, in bytes.
    // A string, because a JavaScript number has only 53 bits of integer precision.
    offset: String,
    self_ns: u64,
    total_ns: u64,
}

#[derive(Debug, Serialize)]
struct LogPart {
    lines: Vec<LinePart>,
    /// Number of lines that are not listed.
    further: u64,
    lost: u64,
}

#[derive(Debug, Serialize)]
struct LinePart {
    wall_ns: String,
    priority: u8,
    text: String,
}

impl CausesAnswer {
    pub(super) fn new(causes: &KernelCauses, names: &StackNames) -> Self {
        let waiting =
            |tasks: &TaskCauses| tasks.waiting.iter().take(LISTED_MAX).map(WaitPart::from).collect();
        let sleeping =
            |sleeping: &Vec<SleepingThread>| sleeping.iter().take(LISTED_MAX).map(SleepPart::from).collect();
        Self {
            tasks: causes.tasks.as_ref().map(TasksPart::from),
            waits: causes.tasks.as_ref().map(waiting),
            sleeps: causes.tasks.as_ref().and_then(|tasks| tasks.sleeping.as_ref()).map(sleeping),
            stacks: causes.stacks.as_ref().map(|stacks| StacksPart::new(stacks, names)),
            log: causes.log.as_ref().map(LogPart::from),
        }
    }
}

impl From<&TaskCauses> for TasksPart {
    fn from(tasks: &TaskCauses) -> Self {
        let process = |process: &RunningProcess| ProcessPart {
            pid: process.process,
            name: process.name.clone(),
            on_cpu_ns: process.on_cpu_ns,
            usual_ns: process.usual_ns,
            switches: process.switches,
        };
        Self {
            recorded_ns: tasks.recorded_ns,
            lost: tasks.faults.lost,
            gaps: tasks.faults.gaps,
            stopped_ns: tasks.faults.stopped_ns,
            has_wakeups: !tasks.faults.lacks_wakeups,
            is_complete: tasks.is_complete(),
            unrecorded: tasks.unrecorded.iter().take(LISTED_MAX).map(UnrecordedPart::from).collect(),
            processes: tasks.running.iter().take(LISTED_MAX).map(process).collect(),
        }
    }
}

impl From<&UnrecordedTime> for UnrecordedPart {
    fn from(unrecorded: &UnrecordedTime) -> Self {
        let (cause, records) = match unrecorded.cause {
            HoleCause::Stopped => ("stopped", 0),
            HoleCause::LostRecords(records) => ("lost_records", records),
            HoleCause::MissingSamples => ("missing_samples", 0),
        };
        Self {
            from_ns: unrecorded.begin_wall_ns.to_string(),
            to_ns: unrecorded.end_wall_ns.to_string(),
            cause,
            records,
        }
    }
}

impl From<&WaitingProcess> for WaitPart {
    fn from(process: &WaitingProcess) -> Self {
        let ran = |blocker: &Blocker| RanPart {
            pid: blocker.info.process,
            name: text_of(blocker.info.name.as_bytes()).into_owned(),
            ns: blocker.ns,
        };
        Self {
            pid: process.process,
            name: process.name.clone(),
            run_delay_ns: process.run_delay_ns,
            longest_ns: process.longest_ns,
            usual_ns: process.usual_ns,
            meanwhile: process.blockers.iter().map(ran).collect(),
        }
    }
}

impl From<&SleepingThread> for SleepPart {
    fn from(slept: &SleepingThread) -> Self {
        Self {
            pid: slept.process,
            name: slept.name.clone(),
            tid: slept.thread,
            thread: slept.thread_name.clone(),
            longest_ns: slept.longest_ns,
            usual_longest_ns: slept.usual_longest_ns,
        }
    }
}

impl StacksPart {
    fn new(stacks: &StackTotals, names: &StackNames) -> Self {
        let places = stacks.functions(|object, offset| names.function(object, offset)).into_iter();
        let places = places.filter(|place| place.self_ns > 0);
        let functions = places.take(LISTED_MAX).map(|place| {
            let frame = stacks.frame(place.frame);
            let object = frame.and_then(|frame| stacks.object(frame));
            FunctionPart {
                pid: place.process,
                name: text_of(place.name.as_bytes()).into_owned(),
                function: place.function,
                object: object.map(|object| object.path.to_string()).unwrap_or_default(),
                offset: frame.map_or(0, |frame| frame.offset).to_string(),
                self_ns: place.self_ns,
                total_ns: place.total_ns,
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

impl From<&LoggedLines> for LogPart {
    fn from(log: &LoggedLines) -> Self {
        let lines: Vec<LinePart> = log
            .lines
            .iter()
            .take(LISTED_MAX)
            .map(|line| LinePart {
                wall_ns: line.wall_ns.to_string(),
                priority: line.priority,
                text: line.text.chars().take(LINE_MAX).collect(),
            })
            .collect();
        let left_out = log.lines.len() - lines.len();
        let further = log.further.saturating_add(u64::try_from(left_out).unwrap_or(u64::MAX));
        Self { lines, further, lost: log.lost }
    }
}
