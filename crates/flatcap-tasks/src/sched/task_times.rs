//! How long threads ran, waited for a CPU and slept in a window, and who ran while they waited.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use super::cpu_history::CpuHistory;
use super::interval::{Interval, IntervalEnd, TaskState, TimelineObserver};
use super::recording_faults::{HoleCause, RecordingHole};
use super::timeline::Timeline;
use crate::task::{Task, TaskName, ThreadInfo};

/// Most threads that are counted; further ones are left out.
const THREADS_MAX: usize = 1 << 17;
/// Most pairs of a thread that waited and one that ran meanwhile; time of further ones has no
/// known cause.
const PAIRS_MAX: usize = 1 << 18;

/// Times of threads in a window. Exact, as far as the recording is: an interval counts with its
/// part in the window.
#[derive(Debug)]
pub struct TaskTimes {
    window: Range<u64>,
    /// What is before was counted.
    counted_until_ns: u64,
    /// Until then records were lost: a thread that seems to sleep may have run.
    lost_until_ns: u64,
    threads: HashMap<u64, ThreadCount>,
    /// By the numbers of who waited and who ran.
    pairs: HashMap<(u64, u64), (Task, u64)>,
    cpus: BTreeMap<u16, CpuTimes>,
    left_out: u64,
}

#[derive(Debug)]
struct ThreadCount {
    times: ThreadTimes,
    last_cpu: Option<u16>,
}

/// What a thread did in the window. Times are in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ThreadTimes {
    /// The thread, with its last name.
    pub task: Task,
    /// Time on a CPU.
    pub on_cpu_ns: u64,
    /// Time ready, waiting for a CPU.
    pub ready_ns: u64,
    /// Time waiting for something else.
    pub sleeping_ns: u64,
    /// The longest part of the window in which it was ready without a break.
    pub longest_ready_ns: u64,
    /// The longest part of the window in which it waited for something else without a break, of
    /// times in which no record was lost.
    pub longest_sleeping_ns: u64,
    /// How often it stopped running.
    pub switches: u64,
    /// How often it stopped running although it could have run on.
    pub preemptions: u64,
    /// How often it ran on another CPU than before.
    pub migrations: u64,
}

/// What the threads of a process did in the window. Times are in nanoseconds, and those of several
/// threads add up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessTimes {
    /// Process id.
    pub process: u32,
    /// Name of its main thread; of the thread that ran longest, if the main thread did nothing.
    pub name: TaskName,
    /// Threads that are known in the window.
    pub threads: usize,
    /// Time on CPUs.
    pub on_cpu_ns: u64,
    /// Time ready, waiting for a CPU.
    pub ready_ns: u64,
    /// The longest part of the window in which one thread was ready without a break.
    pub longest_ready_ns: u64,
    /// How often threads stopped running.
    pub switches: u64,
    /// How often threads ran on another CPU than before.
    pub migrations: u64,
}

/// Who ran while others waited, and how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Blocker {
    /// The thread that ran; the idle loop if the CPU was not given to the waiting thread at once.
    pub info: ThreadInfo,
    /// How long, in nanoseconds; for each thread that waited.
    pub ns: u64,
}

/// What a CPU did in the window, in nanoseconds. The rest is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CpuTimes {
    /// Time in which a thread ran.
    pub busy_ns: u64,
    /// Time in which it was idle.
    pub idle_ns: u64,
}

impl TaskTimes {
    /// Counts within a window of monotonic nanoseconds.
    pub fn new(window: Range<u64>) -> Self {
        Self {
            window,
            counted_until_ns: 0,
            lost_until_ns: 0,
            threads: HashMap::new(),
            pairs: HashMap::new(),
            cpus: BTreeMap::new(),
            left_out: 0,
        }
    }

    /// Counts what is open in a timeline up to now. Its later intervals count from now on, so this
    /// may be called between payloads; it must be called after the last one.
    pub fn reach(&mut self, timeline: &Timeline) {
        for interval in timeline.active().chain(timeline.sleeping()) {
            self.interval(&interval, timeline.history());
        }
        self.counted_until_ns = self.counted_until_ns.max(timeline.now_ns());
    }

    /// The window.
    pub fn window(&self) -> &Range<u64> {
        &self.window
    }

    /// The threads of which something is known in the window: those that ran longest first.
    pub fn threads(&self) -> Vec<ThreadTimes> {
        let is_known =
            |times: &ThreadTimes| times.on_cpu_ns + times.ready_ns + times.sleeping_ns + times.switches > 0;
        let mut threads: Vec<ThreadTimes> =
            self.threads.values().map(|count| count.times).filter(is_known).collect();
        threads.sort_unstable_by_key(|times| (std::cmp::Reverse(times.on_cpu_ns), times.task.number));
        threads
    }

    /// The processes of these threads: those that ran longest first.
    pub fn processes(&self) -> Vec<ProcessTimes> {
        let mut processes = BTreeMap::<u32, ProcessTimes>::new();
        for times in self.threads() {
            let ThreadInfo { thread, process, name } = times.task.info;
            let own = processes.entry(process).or_insert(ProcessTimes {
                process,
                name,
                threads: 0,
                on_cpu_ns: 0,
                ready_ns: 0,
                longest_ready_ns: 0,
                switches: 0,
                migrations: 0,
            });
            if thread == process || own.name.is_empty() {
                own.name = name;
            }
            own.threads += 1;
            own.on_cpu_ns += times.on_cpu_ns;
            own.ready_ns += times.ready_ns;
            own.longest_ready_ns = own.longest_ready_ns.max(times.longest_ready_ns);
            own.switches += times.switches;
            own.migrations += times.migrations;
        }
        let mut processes: Vec<ProcessTimes> = processes.into_values().collect();
        processes.sort_by_key(|times| std::cmp::Reverse(times.on_cpu_ns));
        processes
    }

    /// Which threads ran while the chosen ones were ready, on the CPUs on which these ran
    /// afterwards: those that ran longest first. What ran while a thread is still ready at the end
    /// of the recording is not known.
    pub fn blockers(&self, is_waiting: impl Fn(&ThreadInfo) -> bool) -> Vec<Blocker> {
        let mut found = BTreeMap::<u64, Blocker>::new();
        for ((waiting, running), (task, ns)) in &self.pairs {
            let waiting = self.threads.get(waiting).map(|count| count.times.task.info);
            if waiting.is_some_and(|info| is_waiting(&info)) {
                let own = found.entry(*running).or_insert(Blocker { info: task.info, ns: 0 });
                own.ns += ns;
            }
        }
        let mut found: Vec<Blocker> = found.into_values().collect();
        found.sort_by_key(|blocker| (std::cmp::Reverse(blocker.ns), blocker.info));
        found
    }

    /// As [`blockers`](Self::blockers), with the threads of one process as one: its id, and the
    /// name of the thread of it that ran longest.
    pub fn blocking_processes(&self, is_waiting: impl Fn(&ThreadInfo) -> bool) -> Vec<Blocker> {
        let mut found: Vec<Blocker> = Vec::new();
        for blocker in self.blockers(is_waiting) {
            match found.iter_mut().find(|known| known.info.process == blocker.info.process) {
                Some(known) => known.ns += blocker.ns,
                None => found.push(blocker),
            }
        }
        found.sort_by_key(|blocker| (std::cmp::Reverse(blocker.ns), blocker.info));
        found
    }

    /// What each CPU did.
    pub fn cpus(&self) -> &BTreeMap<u16, CpuTimes> {
        &self.cpus
    }

    /// How many intervals of threads beyond the limit were left out.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Counts who ran while a thread waited, when its wait has ended.
    fn add_blockers(&mut self, interval: &Interval, history: &CpuHistory) {
        let Some(cpu) = interval.cpu else { return };
        let within = interval.begin_ns.max(self.window.start)..interval.end_ns.min(self.window.end);
        if within.is_empty() {
            return;
        }
        for slice in history.who_ran(cpu, within) {
            let is_full = self.pairs.len() >= PAIRS_MAX;
            let key = (interval.task.number, slice.task.number);
            let ns = slice.end_ns - slice.begin_ns;
            match self.pairs.get_mut(&key) {
                Some((_, known_ns)) => *known_ns += ns,
                None if is_full => {}
                None => {
                    self.pairs.insert(key, (slice.task, ns));
                }
            }
        }
    }
}

impl TimelineObserver for TaskTimes {
    fn hole(&mut self, hole: &RecordingHole) {
        if matches!(hole.cause, HoleCause::LostRecords(_)) {
            self.lost_until_ns = self.lost_until_ns.max(hole.end_ns);
        }
    }

    fn interval(&mut self, interval: &Interval, history: &CpuHistory) {
        let first_ns = self.window.start.max(self.counted_until_ns);
        let within = interval.begin_ns.max(first_ns)..interval.end_ns.min(self.window.end);
        let ns = within.end.saturating_sub(within.start);
        let is_running = interval.state == TaskState::Running;
        if let Some(cpu) = interval.cpu.filter(|_| is_running && ns > 0) {
            let times = self.cpus.entry(cpu).or_default();
            let own = if interval.task.is_idle() { &mut times.idle_ns } else { &mut times.busy_ns };
            *own += ns;
        }
        if interval.task.is_idle() {
            return;
        }
        let is_full = self.threads.len() >= THREADS_MAX;
        if is_full && !self.threads.contains_key(&interval.task.number) {
            self.left_out += 1;
            return;
        }
        let count = self
            .threads
            .entry(interval.task.number)
            .or_insert_with(|| ThreadCount { times: ThreadTimes::new(interval.task), last_cpu: None });
        let times = &mut count.times;
        times.task = interval.task;
        match interval.state {
            TaskState::Running => {
                times.on_cpu_ns += ns;
                let is_counted = |at_ns: u64| at_ns >= first_ns && self.window.contains(&at_ns);
                let has_moved = count.last_cpu.is_some() && count.last_cpu != interval.cpu;
                times.migrations += u64::from(has_moved && is_counted(interval.begin_ns));
                count.last_cpu = interval.cpu;
                let has_stopped =
                    matches!(interval.end, IntervalEnd::Preempted | IntervalEnd::Slept | IntervalEnd::Exited);
                if has_stopped && is_counted(interval.end_ns) {
                    times.switches += 1;
                    times.preemptions += u64::from(interval.end == IntervalEnd::Preempted);
                }
            }
            TaskState::Ready => {
                times.ready_ns += ns;
                let whole = interval.overlap_ns(&self.window);
                times.longest_ready_ns = times.longest_ready_ns.max(whole);
                self.add_blockers(interval, history);
            }
            TaskState::Sleeping => {
                times.sleeping_ns += ns;
                if interval.begin_ns >= self.lost_until_ns {
                    let whole = interval.overlap_ns(&self.window);
                    times.longest_sleeping_ns = times.longest_sleeping_ns.max(whole);
                }
            }
        }
    }
}

impl ThreadTimes {
    fn new(task: Task) -> Self {
        Self {
            task,
            on_cpu_ns: 0,
            ready_ns: 0,
            sleeping_ns: 0,
            longest_ready_ns: 0,
            longest_sleeping_ns: 0,
            switches: 0,
            preemptions: 0,
            migrations: 0,
        }
    }
}
