//! The part of `explain` that comes from the kernel's events, in JSON.

use flatcap_explain::{
    KernelCauses, LoggedLines, SleepingThread, TaskCauses, UnrecordedTime, WaitingProcess,
};
use flatcap_format::schema::text_of;
use flatcap_tasks::{HoleCause, StackTotals};
use serde::Serialize;

use super::causes::{FunctionNames, blocker_name, top_functions};

/// Maximum number of lines of the kernel log in JSON.
const LINES_WRITTEN: usize = 100;

/// The part of `explain` that comes from the kernel's events, in JSON. A list is absent if the
/// recording has no such source, and `sleeps` also if the time before says too little of what is
/// usual.
#[derive(Debug, Serialize)]
pub(super) struct CausesObject {
    #[serde(skip_serializing_if = "Option::is_none")]
    tasks: Option<TasksObject>,
    #[serde(skip_serializing_if = "Option::is_none")]
    waits: Option<Vec<WaitObject>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sleeps: Option<Vec<SleepObject>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stacks: Option<StacksObject>,
    #[serde(skip_serializing_if = "Option::is_none")]
    log: Option<LogObject>,
}

#[derive(Debug, Serialize)]
struct TasksObject {
    recorded_ns: u64,
    lost: u64,
    gaps: u64,
    stopped_ns: u64,
    has_wakeups: bool,
    is_complete: bool,
    unrecorded: Vec<UnrecordedObject>,
    processes: Vec<TaskObject>,
}

#[derive(Debug, Serialize)]
struct UnrecordedObject {
    cause: &'static str,
    begin_wall_ns: i64,
    end_wall_ns: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    records: Option<u64>,
}

#[derive(Debug, Serialize)]
struct TaskObject {
    pid: u32,
    name: String,
    on_cpu_ns: u64,
    usual_ns: Option<u64>,
    switches: u64,
}

#[derive(Debug, Serialize)]
struct WaitObject {
    pid: u32,
    name: String,
    run_delay_ns: u64,
    longest_ns: u64,
    usual_ns: Option<u64>,
    meanwhile: Vec<BlockerObject>,
}

#[derive(Debug, Serialize)]
struct SleepObject {
    pid: u32,
    name: String,
    tid: u32,
    thread: String,
    longest_ns: u64,
    usual_longest_ns: u64,
}

#[derive(Debug, Serialize)]
struct BlockerObject {
    pid: u32,
    name: String,
    ns: u64,
}

#[derive(Debug, Serialize)]
struct StacksObject {
    samples: u64,
    total_ns: u64,
    lost: u64,
    functions: Vec<FunctionObject>,
}

#[derive(Debug, Serialize)]
struct FunctionObject {
    pid: u32,
    name: String,
    function: Option<String>,
    object: String,
    build_id: String,
    offset: u64,
    self_ns: u64,
    total_ns: u64,
}

#[derive(Debug, Serialize)]
struct LogObject {
    lines: Vec<LineObject>,
    further: u64,
    lost: u64,
}

#[derive(Debug, Serialize)]
struct LineObject {
    wall_ns: i64,
    priority: u8,
    text: String,
}

impl CausesObject {
    /// Returns at most `limit` elements of each list.
    pub(super) fn new(causes: &KernelCauses, limit: usize, names: FunctionNames<'_>) -> Self {
        Self {
            tasks: causes.tasks.as_ref().map(|tasks| TasksObject::new(tasks, limit)),
            waits: causes
                .tasks
                .as_ref()
                .map(|tasks| tasks.waiting.iter().take(limit).map(WaitObject::new).collect()),
            sleeps: causes
                .tasks
                .as_ref()
                .and_then(|tasks| tasks.sleeping.as_ref())
                .map(|sleeping| sleeping.iter().take(limit).map(SleepObject::new).collect()),
            stacks: causes.stacks.as_ref().map(|stacks| StacksObject::new(stacks, limit, names)),
            log: causes.log.as_ref().map(LogObject::new),
        }
    }
}

impl TasksObject {
    fn new(tasks: &TaskCauses, limit: usize) -> Self {
        let processes = tasks.running.iter().take(limit).map(|process| TaskObject {
            pid: process.process,
            name: process.name.clone(),
            on_cpu_ns: process.on_cpu_ns,
            usual_ns: process.usual_ns,
            switches: process.switches,
        });
        Self {
            recorded_ns: tasks.recorded_ns,
            lost: tasks.faults.lost,
            gaps: tasks.faults.gaps,
            stopped_ns: tasks.faults.stopped_ns,
            has_wakeups: !tasks.faults.lacks_wakeups,
            is_complete: tasks.is_complete(),
            unrecorded: tasks.unrecorded.iter().map(UnrecordedObject::new).collect(),
            processes: processes.collect(),
        }
    }
}

impl UnrecordedObject {
    fn new(unrecorded: &UnrecordedTime) -> Self {
        let (cause, records) = match unrecorded.cause {
            HoleCause::Stopped => ("stopped", None),
            HoleCause::LostRecords(records) => ("lost_records", Some(records)),
            HoleCause::MissingSamples => ("missing_samples", None),
        };
        let UnrecordedTime { begin_wall_ns, end_wall_ns, .. } = *unrecorded;
        Self { cause, begin_wall_ns, end_wall_ns, records }
    }
}

impl WaitObject {
    fn new(process: &WaitingProcess) -> Self {
        let meanwhile = process.blockers.iter().map(|blocker| BlockerObject {
            pid: blocker.info.process,
            name: blocker_name(blocker),
            ns: blocker.ns,
        });
        Self {
            pid: process.process,
            name: process.name.clone(),
            run_delay_ns: process.run_delay_ns,
            longest_ns: process.longest_ns,
            usual_ns: process.usual_ns,
            meanwhile: meanwhile.collect(),
        }
    }
}

impl SleepObject {
    fn new(slept: &SleepingThread) -> Self {
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

impl StacksObject {
    fn new(stacks: &StackTotals, limit: usize, names: FunctionNames<'_>) -> Self {
        let functions = top_functions(stacks, names).into_iter().take(limit).map(|total| {
            let frame = stacks.frame(total.frame);
            let object = frame.and_then(|frame| stacks.object(frame));
            FunctionObject {
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

impl LogObject {
    fn new(log: &LoggedLines) -> Self {
        let lines = log.lines.iter().take(LINES_WRITTEN).map(|line| LineObject {
            wall_ns: line.wall_ns,
            priority: line.priority,
            text: line.text.clone(),
        });
        let left_out = log.lines.len().saturating_sub(LINES_WRITTEN);
        let further = log.further + u64::try_from(left_out).unwrap_or(u64::MAX);
        Self { lines: lines.collect(), further, lost: log.lost }
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 0xF]);
    digits.filter_map(|digit| char::from_digit(digit.into(), 16)).collect()
}
