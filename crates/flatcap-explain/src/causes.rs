//! Analyzes the kernel's events in a window: the threads that ran, the threads that waited for a
//! CPU and those that ran instead, the code that ran, and the lines that the kernel logged.

use std::collections::HashMap;
use std::ops::Range;

use flatcap_format::replay::{Notice, ReplayFilter};
use flatcap_format::schema::text_of;
use flatcap_format::segment::SampleView;
use flatcap_query::{KernelItem, KernelReader, KernelSource, Recording, RunInfo};
use flatcap_tasks::{
    Blocker, CpuHistory, HoleCause, Interval, KnownCode, LogBatch, ProcessTimes, ProfileBatch,
    RecordingFaults, RecordingHole, RecordingHoles, SchedBatch, StackTotals, TaskName, TaskTimes,
    ThreadTimes, Timeline, TimelineObserver,
};

use super::reading::{ExplainError, RecordingChoice};

/// Time before the window that is not compared with it.
// This time may be the beginning of what the window shows.
const GUARD_NS: u64 = 2_000_000_000;
/// Additional time that is read around these times, in addition to two periods of the sources.
// The events of a sample precede its time, and a wait that ends later shows which threads ran
// during it.
const AROUND_NS: u64 = 1_200_000_000;
/// Maximum time before the window that is compared with it.
const BEFORE_NS_MAX: u64 = 60_000_000_000;
/// Maximum number of lines of the kernel log that are kept; further ones are counted.
const LINES_MAX: usize = 1_000;
/// Maximum number of listed processes that waited, and of threads that slept longer than usual.
const WAITING_MAX: usize = 100;
/// A thread slept longer than usual if its sleep was at least this many times its longest one in
/// the time before.
const LONGER_SLEEP_FACTOR: u64 = 2;
/// Shorter sleeps count as usual.
// Timers and the scheduler delay threads by a few milliseconds.
const LONGER_SLEEP_NS_MIN: u64 = 10_000_000;
/// With fewer sleeps before, the usual sleep of a thread is not known.
const USUAL_SLEEPS_MIN: u64 = 10;
/// Maximum number of processes listed for each waiting process.
const BLOCKERS_MAX: usize = 8;

/// The kernel's events in a window. A part is absent if the recording has no such source.
#[derive(Debug, Default)]
pub struct KernelCauses {
    /// The threads that ran and waited.
    pub tasks: Option<TaskCauses>,
    /// The code that ran.
    pub stacks: Option<StackTotals>,
    /// The boot of the host in which that code ran, if it is known.
    pub stacks_boot_id: Option<String>,
    /// The lines that the kernel logged.
    pub log: Option<LoggedLines>,
    /// There was damage, a file that cannot be read, or events that cannot be read.
    pub has_findings: bool,
}

/// The threads that ran, waited and slept in a window.
#[derive(Debug)]
pub struct TaskCauses {
    /// Length of the window, in nanoseconds.
    pub window_ns: u64,
    /// The recorded part of the window, as the mean over all CPUs, in nanoseconds.
    pub recorded_ns: u64,
    /// The processes that ran, longest time first.
    pub running: Vec<RunningProcess>,
    /// The hundred processes that waited longest, longest first.
    pub waiting: Vec<WaitingProcess>,
    /// The threads that slept longer than usual: the hundred longest, longest first. `None` if the
    /// recorded time before is shorter than the window.
    pub sleeping: Option<Vec<SleepingThread>>,
    /// Times in the window in which not all switches were recorded, in the order of their begins.
    pub unrecorded: Vec<UnrecordedTime>,
    /// Number of further such times, above the limit.
    pub further_unrecorded: u64,
    /// The parts that the recording lacks, from before the window on.
    pub faults: RecordingFaults,
}

/// A time in which not all switches were recorded. The range ends in the window, and may begin
/// before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnrecordedTime {
    /// Wall time of the begin in nanoseconds; it may be before the window.
    pub begin_wall_ns: i64,
    /// Wall time of the end in nanoseconds.
    pub end_wall_ns: i64,
    /// The reason why the switches were not recorded.
    pub cause: HoleCause,
}

impl TaskCauses {
    /// Returns whether the whole window was recorded. Only then, a process that is not listed did
    /// not run.
    pub fn is_complete(&self) -> bool {
        self.unrecorded.is_empty() && self.further_unrecorded == 0 && self.recorded_ns >= self.window_ns
    }
}

/// A process that ran. Times are in nanoseconds, summed over its threads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunningProcess {
    /// Process id.
    pub process: u32,
    /// The process's name.
    pub name: String,
    /// Time on CPUs.
    pub on_cpu_ns: u64,
    /// The usual value for a time of this length in the baseline, or `None` if the baseline was not
    /// recorded.
    pub usual_ns: Option<u64>,
    /// Number of times that its threads stopped running.
    pub switches: u64,
}

/// A process that waited for a CPU. Times are in nanoseconds, summed over its threads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitingProcess {
    /// Process id.
    pub process: u32,
    /// The process's name.
    pub name: String,
    /// Time ready to run, waiting for a CPU.
    pub run_delay_ns: u64,
    /// The longest wait of one thread.
    pub longest_ns: u64,
    /// The usual value for a time of this length in the baseline, or `None` if the baseline was not
    /// recorded.
    pub usual_ns: Option<u64>,
    /// The threads that ran during the wait on the CPU on which the thread ran afterwards, longest
    /// time first. Thread 0 is the idle loop.
    pub blockers: Vec<Blocker>,
}

/// A thread that waited for something other than a CPU, such as a disk, a lock or a timer, for much
/// longer than usual. If wakeups were not recorded, the time that it waited for a CPU afterwards is
/// included.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SleepingThread {
    /// Process id.
    pub process: u32,
    /// Name of the process.
    pub name: String,
    /// Thread id.
    pub thread: u32,
    /// Name of the thread.
    pub thread_name: String,
    /// The longest part of the window in which it slept without a break, in nanoseconds.
    pub longest_ns: u64,
    /// The longest time that it slept before, in nanoseconds.
    pub usual_longest_ns: u64,
}

/// Lines of the kernel log.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct LoggedLines {
    /// The first lines in the window.
    pub lines: Vec<LoggedLine>,
    /// Further lines in the window.
    pub further: u64,
    /// Lines that were overwritten before they were read, in the time that was read.
    pub lost: u64,
}

/// A line of the kernel log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoggedLine {
    /// The wall time of the line, in nanoseconds.
    pub wall_ns: i64,
    /// Severity: 0 is an emergency, 7 is for debugging.
    pub priority: u8,
    /// The text.
    pub text: String,
}

/// Reads the kernel's events of a window of wall time, and compares them with the time before it.
///
/// # Errors
/// Returns the errors of reading the recording. A recording without such events has no causes,
/// which is not an error.
pub fn find_causes(
    choice: &RecordingChoice,
    window: (i64, i64),
    before_ns: u64,
    report: &mut dyn FnMut(&Notice),
) -> Result<KernelCauses, ExplainError> {
    let recording = Recording::open_with_added_sources(&choice.paths)?;
    let before_ns = before_ns.min(BEFORE_NS_MAX);
    let mut causes = KernelCauses::default();
    for kind in [KernelSource::Scheduler, KernelSource::Stacks, KernelSource::Log] {
        let own = recording.kernel_sources().filter(|(own, ..)| *own == kind);
        // After a reload a source may have another period; the longest one reads enough.
        let Some(period_ns) = own.map(|(.., period_ns)| period_ns).max() else { continue };
        let around_ns = period_ns.saturating_mul(2).saturating_add(AROUND_NS);
        // Only the times of tasks are compared with the time before.
        let compared_ns =
            if kind == KernelSource::Scheduler { before_ns.saturating_add(GUARD_NS) } else { 0 };
        let filter = ReplayFilter {
            since_ns: Some(window.0.saturating_sub_unsigned(compared_ns.saturating_add(around_ns))),
            until_ns: Some(window.1.saturating_add_unsigned(around_ns)),
            host: choice.host.clone(),
            ..ReplayFilter::default()
        };
        let Some(reader) = recording.kernel_events(&filter, |own| own == kind)? else { continue };
        let mut events = EventReading { reader, report, has_findings: false };
        match kind {
            KernelSource::Scheduler => causes.tasks = read_tasks(&mut events, window, before_ns)?,
            KernelSource::Stacks => {
                if let Some(RunStacks { totals, boot_id, .. }) = read_stacks(&mut events, window)? {
                    (causes.stacks, causes.stacks_boot_id) = (Some(totals), boot_id);
                }
            }
            KernelSource::Log => causes.log = Some(read_log(&mut events, window)?),
        }
        causes.has_findings |= events.has_findings;
    }
    Ok(causes)
}

/// A part of the events.
enum EventPart<'e> {
    /// A run begins.
    Run(&'e RunInfo),
    Sample(&'e SampleView<'e>),
}

/// Events being read.
struct EventReading<'r> {
    reader: KernelReader,
    report: &'r mut dyn FnMut(&Notice),
    has_findings: bool,
}

impl EventReading<'_> {
    /// Calls `take` for each run that begins and each sample. `take` returns whether the payload
    /// could be read.
    fn read(&mut self, mut take: impl FnMut(EventPart<'_>) -> bool) -> Result<(), ExplainError> {
        while let Some(item) = self.reader.next()? {
            match item {
                KernelItem::Run(run) => {
                    take(EventPart::Run(&run));
                }
                KernelItem::Payload(_, sample) => self.has_findings |= !take(EventPart::Sample(&sample)),
                KernelItem::Notice(notice) => {
                    self.has_findings = true;
                    (self.report)(&notice);
                }
                KernelItem::Gap(..) | KernelItem::Other => {}
            }
        }
        Ok(())
    }
}

/// Returns the offset from monotonic time to wall time at a sample, which has both.
fn wall_offset_ns(sample: &SampleView<'_>) -> i64 {
    sample.wall_ns.wrapping_sub_unsigned(sample.mono_ns)
}

/// Converts a window of wall time to the monotonic clock.
fn mono_window(sample: &SampleView<'_>, window: (i64, i64)) -> Range<u64> {
    let offset_ns = wall_offset_ns(sample);
    let mono_ns = |wall_ns: i64| u64::try_from(wall_ns.saturating_sub(offset_ns)).unwrap_or_default();
    mono_ns(window.0)..mono_ns(window.1)
}

/// The task times of the window and of the time before it, and the unrecorded parts of the window.
struct ComparedTimes {
    offset_ns: i64,
    window: TaskTimes,
    before: TaskTimes,
    holes: RecordingHoles,
}

impl ComparedTimes {
    /// Returns whether anything is known of the window.
    fn are_of_window(&self) -> bool {
        !self.window.cpus().is_empty() || self.holes.holes().next().is_some()
    }

    fn unrecorded(&self) -> Vec<UnrecordedTime> {
        let wall_ns = |mono_ns: u64| self.offset_ns.saturating_add_unsigned(mono_ns);
        let unrecorded = self.holes.holes().map(|hole| UnrecordedTime {
            begin_wall_ns: wall_ns(hole.begin_ns),
            end_wall_ns: wall_ns(hole.end_ns),
            cause: hole.cause,
        });
        unrecorded.collect()
    }
}

impl TimelineObserver for ComparedTimes {
    fn interval(&mut self, interval: &Interval, history: &CpuHistory) {
        self.window.interval(interval, history);
        self.before.interval(interval, history);
    }

    fn hole(&mut self, hole: &RecordingHole) {
        self.holes.hole(hole);
        self.window.hole(hole);
        self.before.hole(hole);
    }
}

fn read_tasks(
    events: &mut EventReading<'_>,
    window: (i64, i64),
    before_ns: u64,
) -> Result<Option<TaskCauses>, ExplainError> {
    let mut timeline = Timeline::new();
    let mut times: Option<ComparedTimes> = None;
    events.read(|part| {
        let EventPart::Sample(sample) = part else {
            if let Some(times) = &mut times {
                timeline.begin_run(times);
            }
            // The window is in one run, the run of the samples in it.
            times = times.take().filter(ComparedTimes::are_of_window);
            return true;
        };
        let Ok(batch) = SchedBatch::read(sample.payload) else { return false };
        let times = times.get_or_insert_with(|| {
            let window = mono_window(sample, window);
            let end_ns = window.start.saturating_sub(GUARD_NS);
            ComparedTimes {
                offset_ns: wall_offset_ns(sample),
                before: TaskTimes::new(end_ns.saturating_sub(before_ns)..end_ns),
                holes: RecordingHoles::new(window.clone()),
                window: TaskTimes::new(window),
            }
        });
        timeline.add(sample.seq, &batch, times);
        true
    })?;
    let Some(mut times) = times else { return Ok(None) };
    times.window.reach(&timeline);
    times.before.reach(&timeline);
    Ok(Some(task_causes(&times, timeline.faults())))
}

fn task_causes(times: &ComparedTimes, faults: RecordingFaults) -> TaskCauses {
    let window_ns = times.window.window().end - times.window.window().start;
    let recorded_ns = self::recorded_ns(&times.window);
    let before_ns = self::recorded_ns(&times.before);
    let before = times.before.processes();
    // The usual value for the recorded length of the window.
    let usual = |process: u32, ns_of: fn(&ProcessTimes) -> u64| {
        // A process that did not run in the recorded time before has a usual time of 0.
        let known = before.iter().find(|times| times.process == process).map_or(0, ns_of);
        // The product of two times in nanoseconds can exceed 64 bits.
        let scaled = u128::from(known) * u128::from(recorded_ns) / u128::from(before_ns.max(1));
        (before_ns > 0).then(|| u64::try_from(scaled).unwrap_or(u64::MAX))
    };
    let processes = times.window.processes();
    let running = processes.iter().filter(|process| process.on_cpu_ns > 0).map(|process| RunningProcess {
        process: process.process,
        name: printed(process.name),
        on_cpu_ns: process.on_cpu_ns,
        usual_ns: usual(process.process, |times| times.on_cpu_ns),
        switches: process.switches,
    });
    let mut waiting: Vec<&ProcessTimes> = processes.iter().filter(|process| process.ready_ns > 0).collect();
    waiting.sort_by_key(|process| std::cmp::Reverse(process.ready_ns));
    let waiting = waiting.into_iter().take(WAITING_MAX).map(|process| {
        let mut blockers = times.window.blocking_processes(|waiting| waiting.process == process.process);
        blockers.truncate(BLOCKERS_MAX);
        WaitingProcess {
            process: process.process,
            name: printed(process.name),
            run_delay_ns: process.ready_ns,
            longest_ns: process.longest_ready_ns,
            usual_ns: usual(process.process, |times| times.ready_ns),
            blockers,
        }
    });
    TaskCauses {
        window_ns,
        recorded_ns,
        running: running.collect(),
        waiting: waiting.collect(),
        sleeping: (before_ns >= window_ns).then(|| long_sleeps(times, &processes)),
        unrecorded: times.unrecorded(),
        further_unrecorded: times.holes.further(),
        faults,
    }
}

/// Returns the threads whose longest sleep in the window is much longer than any sleep in the time
/// before. That time is at least as long as the window, since a shorter one could not show that
/// such a sleep is usual.
fn long_sleeps(times: &ComparedTimes, processes: &[ProcessTimes]) -> Vec<SleepingThread> {
    let before: HashMap<u64, ThreadTimes> =
        times.before.threads().into_iter().map(|times| (times.task.number, times)).collect();
    let mut sleeping: Vec<SleepingThread> = Vec::new();
    for own in times.window.threads() {
        let Some(before) = before.get(&own.task.number) else { continue };
        let longest_ns = own.longest_sleeping_ns;
        let least_ns = before.longest_sleeping_ns.saturating_mul(LONGER_SLEEP_FACTOR);
        // A preempted thread stays ready, so only its other switches begin a sleep.
        if before.switches - before.preemptions < USUAL_SLEEPS_MIN
            || longest_ns < least_ns.max(LONGER_SLEEP_NS_MIN)
        {
            continue;
        }
        let info = own.task.info;
        let process = processes.iter().find(|process| process.process == info.process);
        sleeping.push(SleepingThread {
            process: info.process,
            name: printed(process.map_or(info.name, |process| process.name)),
            thread: info.thread,
            thread_name: printed(info.name),
            longest_ns,
            usual_longest_ns: before.longest_sleeping_ns,
        });
    }
    sleeping.sort_by_key(|thread| (std::cmp::Reverse(thread.longest_ns), thread.thread));
    sleeping.truncate(WAITING_MAX);
    sleeping
}

/// Returns the recorded length of a window, as the mean over the CPUs.
fn recorded_ns(times: &TaskTimes) -> u64 {
    let cpus = times.cpus();
    let total: u64 = cpus.values().map(|cpu| cpu.busy_ns + cpu.idle_ns).sum();
    total / u64::try_from(cpus.len().max(1)).unwrap_or(1)
}

/// The call chains of a run in the window.
struct RunStacks {
    totals: StackTotals,
    build_ids: KnownCode,
    boot_id: Option<String>,
}

impl RunStacks {
    fn are_of_window(&self) -> bool {
        self.totals.samples() > 0
    }
}

fn read_stacks(events: &mut EventReading<'_>, window: (i64, i64)) -> Result<Option<RunStacks>, ExplainError> {
    let mut stacks: Option<RunStacks> = None;
    let mut boot_id = None;
    events.read(|part| {
        let sample = match part {
            EventPart::Sample(sample) => sample,
            EventPart::Run(run) => {
                // The window is in one run, the run of the samples in it. Build ids belong to a
                // run, too.
                stacks = stacks.take().filter(RunStacks::are_of_window);
                boot_id.clone_from(&run.host.boot_id);
                return true;
            }
        };
        let Ok(batch) = ProfileBatch::read(sample.payload) else { return false };
        let stacks = stacks.get_or_insert_with(|| RunStacks {
            totals: StackTotals::new(mono_window(sample, window)),
            build_ids: KnownCode::default(),
            boot_id: boot_id.clone(),
        });
        stacks.totals.add(&batch);
        stacks.build_ids.add(&batch);
        true
    })?;
    if let Some(stacks) = &mut stacks {
        stacks.totals.complete_objects(&stacks.build_ids);
    }
    Ok(stacks)
}

fn read_log(events: &mut EventReading<'_>, window: (i64, i64)) -> Result<LoggedLines, ExplainError> {
    let mut log = LoggedLines::default();
    let mut lost = None;
    let mut before_ns = None;
    events.read(|part| {
        let EventPart::Sample(sample) = part else {
            (lost, before_ns) = (None, None);
            return true;
        };
        let Ok(batch) = LogBatch::read(sample.payload) else { return false };
        // The count is a total of the run, so the first sample says nothing about this window.
        let before = lost.replace(batch.lost()).unwrap_or(batch.lost());
        log.lost = log.lost.saturating_add(batch.lost().saturating_sub(before));
        for line in batch.lines() {
            // The clock of the log deviates, but each line was written between two samples.
            let first_ns = before_ns.unwrap_or_default();
            let mono_ns = line.time_ns.clamp(first_ns, sample.mono_ns.max(first_ns));
            let wall_ns = wall_offset_ns(sample).wrapping_add_unsigned(mono_ns);
            if !(window.0..window.1).contains(&wall_ns) {
                continue;
            }
            if log.lines.len() < LINES_MAX {
                log.lines.push(LoggedLine { wall_ns, priority: line.priority, text: line.text.to_owned() });
            } else {
                log.further += 1;
            }
        }
        before_ns = Some(sample.mono_ns);
        true
    })?;
    Ok(log)
}

/// Returns the name of a thread as all outputs print it.
fn printed(name: TaskName) -> String {
    text_of(name.as_bytes()).into_owned()
}
