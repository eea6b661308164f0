//! Sums the times for which threads ran, waited for a CPU and slept in a window. Also sums the
//! times for which threads ran while other threads waited.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use super::cpu_history::CpuHistory;
use super::interval::{Interval, IntervalEnd, TaskState, TimelineObserver};
use super::recording_faults::{HoleCause, RecordingHole};
use super::timeline::Timeline;
use crate::task::{Task, TaskName, ThreadInfo};

/// Maximum number of threads. Further threads are left out.
const THREADS_MAX: usize = 1 << 17;
/// Maximum number of pairs of a waiting and a running thread. The part of a wait that belongs to a
/// pair beyond the limit has no known cause.
const PAIRS_MAX: usize = 1 << 18;

/// Times of threads in a window. Only the part of an interval within the window is counted, so the
/// times are exact if the recording is complete.
#[derive(Debug, Default)]
pub struct TaskTimes {
    window: Range<u64>,
    /// Time up to which all intervals were counted.
    counted_until_ns: u64,
    /// Time up to which records were lost. Before this time, a thread that appears to sleep may
    /// have run.
    lost_until_ns: u64,
    threads: HashMap<u64, ThreadCount>,
    /// The running threads and their run times, by the task ids of the waiting thread and the
    /// running thread.
    pairs: HashMap<(u64, u64), (Task, u64)>,
    cpus: BTreeMap<u16, CpuTimes>,
}

#[derive(Debug)]
struct ThreadCount {
    times: ThreadTimes,
    last_cpu: Option<u16>,
}

/// Times of a thread in the window, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ThreadTimes {
    /// The thread, with the most recent name of the thread.
    pub task: Task,
    /// Time in which the thread ran on a CPU.
    pub on_cpu_ns: u64,
    /// Time in which the thread was ready and waited for a CPU.
    pub ready_ns: u64,
    /// Time in which the thread waited for an event other than a free CPU.
    pub sleeping_ns: u64,
    /// Longest uninterrupted time in the window in which the thread was ready.
    pub longest_ready_ns: u64,
    /// Longest uninterrupted sleep of the thread in the window. Times with lost records are
    /// excluded.
    pub longest_sleeping_ns: u64,
    /// Number of times that the thread stopped running.
    pub switches: u64,
    /// Number of times that the thread stopped running although it was still runnable.
    pub preemptions: u64,
    /// Number of times that the thread ran on a different CPU than before.
    pub migrations: u64,
}

/// Times of a process in the window, in nanoseconds, summed over its threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ProcessTimes {
    /// Process id.
    pub process: u32,
    /// Name of the process's main thread, or of the thread that ran longest if the main thread was
    /// not active.
    pub name: TaskName,
    /// Number of the process's threads that are known in the window.
    pub threads: usize,
    /// Time in which threads ran on CPUs.
    pub on_cpu_ns: u64,
    /// Time in which threads were ready and waited for a CPU.
    pub ready_ns: u64,
    /// Longest uninterrupted time in the window in which one thread was ready.
    pub longest_ready_ns: u64,
    /// Number of times that a thread stopped running.
    pub switches: u64,
    /// Number of times that a thread ran on a different CPU than before.
    pub migrations: u64,
}

/// A thread or process that ran while other threads waited for its CPU, and its run time during
/// these waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Blocker {
    /// The thread that ran while other threads waited. This is the idle loop if the CPU did not
    /// immediately switch to the waiting thread.
    pub info: ThreadInfo,
    /// Time in nanoseconds, summed over the waiting threads.
    pub ns: u64,
}

/// Times of a CPU in the window, in nanoseconds. For the rest of the window, the state of the CPU
/// is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CpuTimes {
    /// Time in which the CPU ran a thread.
    pub busy_ns: u64,
    /// Time in which the CPU was idle.
    pub idle_ns: u64,
}

impl TaskTimes {
    /// Creates empty sums for a time window in monotonic nanoseconds.
    pub fn new(window: Range<u64>) -> Self {
        Self { window, ..Self::default() }
    }

    /// Counts the open intervals of a timeline, up to the end of the last payload. The rest of
    /// these intervals is counted later, so this function may be called between payloads. The
    /// caller must call this function after the last payload.
    pub fn reach(&mut self, timeline: &Timeline) {
        for interval in timeline.active().chain(timeline.sleeping()) {
            self.interval(&interval, timeline.history());
        }
        self.counted_until_ns = self.counted_until_ns.max(timeline.now_ns());
    }

    /// Returns the window.
    pub fn window(&self) -> &Range<u64> {
        &self.window
    }

    /// Returns the threads that are known in the window, sorted by run time, longest first.
    pub fn threads(&self) -> Vec<ThreadTimes> {
        let is_known =
            |times: &ThreadTimes| times.on_cpu_ns + times.ready_ns + times.sleeping_ns + times.switches > 0;
        let mut threads: Vec<ThreadTimes> =
            self.threads.values().map(|count| count.times).filter(is_known).collect();
        threads.sort_unstable_by_key(|times| (std::cmp::Reverse(times.on_cpu_ns), times.task.number));
        threads
    }

    /// Returns the processes of the threads that are known in the window, sorted by run time,
    /// longest first.
    pub fn processes(&self) -> Vec<ProcessTimes> {
        let mut processes = BTreeMap::<u32, ProcessTimes>::new();
        for times in self.threads() {
            let ThreadInfo { thread, process, name } = times.task.info;
            let new = ProcessTimes { process, name, ..ProcessTimes::default() };
            let own = processes.entry(process).or_insert(new);
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

    /// Returns the threads that ran while the selected threads were ready. The method
    /// [`blocking_processes`](Self::blocking_processes) does the same for processes.
    pub(crate) fn blockers(&self, is_waiting: impl Fn(&ThreadInfo) -> bool) -> Vec<Blocker> {
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

    /// Returns the processes that ran while the selected threads were ready. For each wait, only
    /// the CPU on which the selected thread ran next is considered. The processes are sorted by run
    /// time, longest first. The name of a process is the name of its thread that ran longest. If a
    /// thread is still ready at the end of the recording, the cause of that wait is unknown.
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

    /// Returns the times of each CPU.
    pub fn cpus(&self) -> &BTreeMap<u16, CpuTimes> {
        &self.cpus
    }

    /// Counts the threads that ran during a wait that has ended.
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
            return;
        }
        let count = self.threads.entry(interval.task.number).or_insert_with(|| ThreadCount {
            times: ThreadTimes { task: interval.task, ..ThreadTimes::default() },
            last_cpu: None,
        });
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
