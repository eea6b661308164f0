//! Analyzes the kernel's events in a window: the threads that ran, the threads that waited for a
//! CPU and the threads that ran instead, the code that ran, and the lines that the kernel logged.

use std::collections::HashMap;
use std::ops::Range;

use flatcap_format::replay::ReplayFilter;
use flatcap_format::schema::text_of;
use flatcap_format::segment::SampleView;
use flatcap_query::{KernelItem, KernelReader, KernelSource, Recording, RunInfo};
use flatcap_tasks::{
    Blocker, CodeObjectInfo, CpuHistory, Interval, KnownCode, LogBatch, ProcessTimes, ProfileBatch,
    RecordingFaults, RecordingHole, RecordingHoles, SchedBatch, StackTotals, TaskName, TaskTimes,
    ThreadTimes, Timeline, TimelineObserver,
};

use super::answers::{ExplainedWindow, Explanation};
use super::kernel_causes::{
    BlockingProcess, KernelCauses, LoggedLine, LoggedLines, RunningProcess, SleepingThread, StackCauses,
    TaskCauses, UnrecordedTime, WaitingProcess,
};
use super::reading::{ExplainError, RecordingChoice};

/// Length of the time directly before the window, in nanoseconds. This time belongs neither to the
/// window nor to the baseline.
// An incident in the window may begin in this time.
const GUARD_NS: u64 = 2_000_000_000;
/// This time, plus two periods of the sources, is also read before the baseline and after the
/// window.
// The events of a sample precede its time, and a wait that ends later shows which threads ran
// during it.
const AROUND_NS: u64 = 1_200_000_000;
/// Maximum length of the baseline, which is compared with the window.
const BEFORE_NS_MAX: u64 = 60_000_000_000;
/// Maximum number of lines of the kernel log that are kept. Further lines are only counted.
const LINES_MAX: usize = 100;
/// Maximum number of listed processes that waited, and of threads that slept longer than usual.
const WAITING_MAX: usize = 100;
/// A sleep counts as longer than usual if its length is at least this multiple of the thread's
/// longest sleep in the baseline.
const LONGER_SLEEP_FACTOR: u64 = 2;
/// Minimum length of a sleep that counts as longer than usual. Shorter sleeps count as usual.
// Timers and the scheduler delay threads by a few milliseconds.
const LONGER_SLEEP_NS_MIN: u64 = 10_000_000;
/// Minimum number of sleeps of a thread in the baseline. With fewer sleeps, the usual length of the
/// thread's sleeps is not known.
const USUAL_SLEEPS_MIN: u64 = 10;
/// Maximum number of processes listed for each waiting process.
const BLOCKERS_MAX: usize = 8;

impl Explanation {
    /// Adds the causes that the kernel's events show in the window, in comparison with the
    /// baseline. `names` receives the stacks, and the boot id of their host if the boot id is
    /// known. `names` returns a closure that returns the name of the function at an offset in an
    /// object file. Adds nothing if the recording has no such events.
    ///
    /// # Errors
    /// Fails if the recording cannot be read.
    pub fn add_causes<N>(
        &mut self,
        choice: &RecordingChoice,
        names: impl FnOnce(&StackTotals, Option<&str>) -> N,
    ) -> Result<(), ExplainError>
    where
        N: Fn(&CodeObjectInfo, u64) -> Option<String>,
    {
        let ExplainedWindow { first_wall_ns, last_wall_ns } = self.window;
        let window = (first_wall_ns, last_wall_ns);
        let (causes, stacks) = find_causes(choice, window, self.before_ns)?;
        self.causes = causes;
        self.causes.stacks = stacks.map(|stacks| {
            let function = names(&stacks.totals, stacks.boot_id.as_deref());
            StackCauses::new(&stacks.totals, function)
        });
        self.has_findings |= self.causes.has_findings;
        Ok(())
    }
}

/// Reads the kernel's events of a window of wall time. Stacks are returned separately.
fn find_causes(
    choice: &RecordingChoice,
    window: (i64, i64),
    before_ns: u64,
) -> Result<(KernelCauses, Option<RunStacks>), ExplainError> {
    let recording = Recording::open_with_added_sources(&choice.paths)?;
    let before_ns = before_ns.min(BEFORE_NS_MAX);
    let (mut causes, mut stacks) = (KernelCauses::default(), None);
    for kind in [KernelSource::Scheduler, KernelSource::Stacks, KernelSource::Log] {
        let own = recording.kernel_sources().filter(|(own, ..)| *own == kind);
        // After a reload a source may have another period. The longest period makes sure that
        // enough is read.
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
        let mut events = EventReading { reader, has_findings: false };
        match kind {
            KernelSource::Scheduler => read_tasks(&mut events, window, before_ns, &mut causes)?,
            KernelSource::Stacks => stacks = read_stacks(&mut events, window)?,
            KernelSource::Log => causes.log = Some(read_log(&mut events, window)?),
        }
        causes.has_findings |= events.has_findings;
    }
    Ok((causes, stacks))
}

/// One item of the kernel's events: the start of a run, or a sample.
enum EventPart<'e> {
    /// A run begins.
    Run(&'e RunInfo),
    Sample(&'e SampleView<'e>),
}

/// The events that are being read.
struct EventReading {
    reader: KernelReader,
    has_findings: bool,
}

impl EventReading {
    /// Calls `take` for each run that begins and each sample. `take` returns whether the payload
    /// could be read.
    fn read(&mut self, mut take: impl FnMut(EventPart<'_>) -> bool) -> Result<(), ExplainError> {
        while let Some(item) = self.reader.next()? {
            match item {
                KernelItem::Run(run) => {
                    take(EventPart::Run(&run));
                }
                KernelItem::Payload(_, sample) => self.has_findings |= !take(EventPart::Sample(&sample)),
                // The same files were read before, and their problems were reported then.
                KernelItem::Notice(_) => self.has_findings = true,
                KernelItem::Gap(..) | KernelItem::Other => {}
            }
        }
        Ok(())
    }
}

/// Returns the offset from monotonic time to wall time, computed from the two times of a sample.
fn wall_offset_ns(sample: &SampleView<'_>) -> i64 {
    sample.wall_ns.wrapping_sub_unsigned(sample.mono_ns)
}

/// Converts a window of wall time to the monotonic clock.
fn mono_window(sample: &SampleView<'_>, window: (i64, i64)) -> Range<u64> {
    let offset_ns = wall_offset_ns(sample);
    let mono_ns = |wall_ns: i64| u64::try_from(wall_ns.saturating_sub(offset_ns)).unwrap_or_default();
    mono_ns(window.0)..mono_ns(window.1)
}

/// The task times of the window and of the baseline, and the unrecorded parts of the window.
struct ComparedTimes {
    offset_ns: i64,
    window: TaskTimes,
    before: TaskTimes,
    holes: RecordingHoles,
}

impl ComparedTimes {
    /// Returns whether the times contain any information about the window.
    fn are_of_window(&self) -> bool {
        !self.window.cpus().is_empty() || self.holes.holes().next().is_some()
    }

    fn unrecorded(&self) -> Vec<UnrecordedTime> {
        let wall_ns = |mono_ns: u64| self.offset_ns.saturating_add_unsigned(mono_ns);
        let holes = self.holes.holes();
        holes
            .map(|hole| UnrecordedTime::new((wall_ns(hole.begin_ns), wall_ns(hole.end_ns)), hole.cause))
            .collect()
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
    events: &mut EventReading,
    window: (i64, i64),
    before_ns: u64,
    causes: &mut KernelCauses,
) -> Result<(), ExplainError> {
    let mut timeline = Timeline::new();
    let mut times: Option<ComparedTimes> = None;
    events.read(|part| {
        let EventPart::Sample(sample) = part else {
            if let Some(times) = &mut times {
                timeline.begin_run(times);
            }
            // The window belongs to one run, which is the run of the samples in it.
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
    let Some(mut times) = times else { return Ok(()) };
    times.window.reach(&timeline);
    times.before.reach(&timeline);
    add_tasks(&times, timeline.faults(), causes);
    Ok(())
}

fn add_tasks(times: &ComparedTimes, faults: RecordingFaults, causes: &mut KernelCauses) {
    let window_ns = times.window.window().end - times.window.window().start;
    let recorded_ns = self::recorded_ns(&times.window);
    let before_ns = self::recorded_ns(&times.before);
    let before = times.before.processes();
    // The usual value is the value in the baseline, scaled to the recorded length of the window.
    let usual = |process: u32, ns_of: fn(&ProcessTimes) -> u64| {
        // A process that did not run in the recorded part of the baseline has a usual time of 0.
        let known = before.iter().find(|times| times.process == process).map_or(0, ns_of);
        // The product of two times in nanoseconds can exceed 64 bits.
        let scaled = u128::from(known) * u128::from(recorded_ns) / u128::from(before_ns.max(1));
        (before_ns > 0).then(|| u64::try_from(scaled).unwrap_or(u64::MAX))
    };
    let processes = times.window.processes();
    let running = processes.iter().filter(|process| process.on_cpu_ns > 0).map(|process| RunningProcess {
        pid: process.process,
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
            pid: process.process,
            name: printed(process.name),
            run_delay_ns: process.ready_ns,
            longest_ns: process.longest_ready_ns,
            usual_ns: usual(process.process, |times| times.ready_ns),
            meanwhile: blockers.iter().map(blocking_process).collect(),
        }
    });
    let (unrecorded, further_unrecorded) = (times.unrecorded(), times.holes.further());
    causes.tasks = Some(TaskCauses {
        recorded_ns,
        lost: faults.lost,
        gaps: faults.gaps,
        stopped_ns: faults.stopped_ns,
        has_wakeups: !faults.lacks_wakeups,
        is_complete: unrecorded.is_empty() && further_unrecorded == 0 && recorded_ns >= window_ns,
        unrecorded,
        running: running.collect(),
        further_unrecorded,
        window_ns,
    });
    causes.waits = Some(waiting.collect());
    causes.sleeps = (before_ns >= window_ns).then(|| long_sleeps(times, &processes));
}

fn blocking_process(blocker: &Blocker) -> BlockingProcess {
    let info = blocker.info;
    let name = if info.is_idle() { "idle".to_owned() } else { printed(info.name) };
    BlockingProcess { pid: info.process, name, ns: blocker.ns }
}

/// Returns the threads whose longest sleep in the window is much longer than any of their sleeps in
/// the baseline. The baseline is at least as long as the window. In a shorter baseline, a usual
/// sleep of this length could be missing.
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
            pid: info.process,
            name: printed(process.map_or(info.name, |process| process.name)),
            tid: info.thread,
            thread: printed(info.name),
            longest_ns,
            usual_longest_ns: before.longest_sleeping_ns,
        });
    }
    sleeping.sort_by_key(|thread| (std::cmp::Reverse(thread.longest_ns), thread.tid));
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

fn read_stacks(events: &mut EventReading, window: (i64, i64)) -> Result<Option<RunStacks>, ExplainError> {
    let mut stacks: Option<RunStacks> = None;
    let mut boot_id = None;
    events.read(|part| {
        let sample = match part {
            EventPart::Sample(sample) => sample,
            EventPart::Run(run) => {
                // The window belongs to one run, which is the run of the samples in it. Build ids
                // also belong to a run.
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

fn read_log(events: &mut EventReading, window: (i64, i64)) -> Result<LoggedLines, ExplainError> {
    let mut log = LoggedLines::default();
    let mut lost = None;
    let mut before_ns = None;
    events.read(|part| {
        let EventPart::Sample(sample) = part else {
            (lost, before_ns) = (None, None);
            return true;
        };
        let Ok(batch) = LogBatch::read(sample.payload) else { return false };
        // The count is a total since the start of the run, so the first sample alone says nothing
        // about this window.
        let before = lost.replace(batch.lost()).unwrap_or(batch.lost());
        log.lost = log.lost.saturating_add(batch.lost().saturating_sub(before));
        for line in batch.lines() {
            // The clock of the log deviates from the monotonic clock. However, each line was
            // written between two samples, whose times are known.
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
