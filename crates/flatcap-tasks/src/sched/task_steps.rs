//! Counters of threads and processes, as samples at equal time steps.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;

use flatbuffers::FlatBufferBuilder;

use super::cpu_history::CpuHistory;
use super::interval::{Interval, IntervalEnd, TaskState, TimelineObserver};
use super::timeline::Timeline;
use crate::generated::kernel::{ProcessWork, Tasks, TasksArgs, ThreadWork};
use crate::task::{Task, TaskName};

/// Minimum length of a step, in nanoseconds.
pub const STEP_NS_MIN: u64 = 100_000;
/// Interval between samples that contain all threads.
const ALL_NS: u64 = 1_000_000_000;
/// Maximum number of step parts that are stored. A part is the activity of one thread in one step.
/// Activity in parts beyond the limit is not counted for any thread. For example, with the shortest
/// step, a thread that is always active takes a thousand parts in a payload of 100 ms.
const PARTS_MAX: usize = 1 << 20;
/// Maximum number of known threads, in addition to the active threads.
const THREADS_MAX: usize = 1 << 17;

/// An observer that makes samples from a timeline. A sample has the counters of threads and
/// processes at a multiple of the step. An interval that extends over several steps is split at the
/// step boundaries, so the counters are exact.
#[derive(Debug)]
pub struct TaskSteps {
    step_ns: u64,
    /// Offset that is added to monotonic time before the division by the step.
    phase_ns: u64,
    /// The time range for which samples are being made.
    stretch: Range<u64>,
    /// Time up to which all intervals were counted.
    counted_until_ns: u64,
    /// The activity of threads in each step, indexed by step and by task id.
    steps: BTreeMap<u64, BTreeMap<u64, ThreadPart>>,
    parts: usize,
    /// The limit on stored parts and the limit on stored threads.
    limits: (usize, usize),
    /// Samples before this sample number lack time or threads, because a limit was exceeded.
    cut_until: u64,
    /// Whether the sample at the start of the range was made.
    has_begun: bool,
    /// The number of the sample at the end of the next step.
    next_sample: u64,
    last_sample: Option<u64>,
    threads: HashMap<u64, ThreadState>,
    processes: BTreeMap<u32, ProcessCount>,
}

/// A sample of the source `tasks`.
#[derive(Debug)]
pub struct TaskSample<'s> {
    /// The number of the sample, which is its time divided by the step. This time is monotonic time
    /// plus an offset, so that the samples are at multiples of the step.
    pub number: u64,
    /// The sample's time, in monotonic nanoseconds.
    pub time_ns: u64,
    /// Whether the sample is at the start of the known range and not at the end of a step.
    pub is_begin: bool,
    /// Whether the sample lacks time or threads, because there were too many parts or threads.
    pub is_cut: bool,
    /// The sample's payload, in the schema [`TASKS`](crate::schema::TASKS).
    pub payload: &'s [u8],
}

/// Counters of a thread, or the increase of these counters.
#[derive(Debug, Clone, Copy, Default)]
struct Work {
    on_cpu_ns: u64,
    ready_ns: u64,
    switches: u64,
    migrations: u64,
}

/// The activity of a thread in a step.
#[derive(Debug, Clone, Copy)]
struct ThreadPart {
    task: Task,
    work: Work,
    has_ended: bool,
}

#[derive(Debug, Clone, Copy)]
struct ThreadState {
    task: Task,
    work: Work,
    last_cpu: Option<u16>,
}

#[derive(Debug, Clone, Default)]
struct ProcessCount {
    name: TaskName,
    work: Work,
    /// The task ids of the process's threads that have not ended.
    threads: BTreeSet<u64>,
}

impl TaskSteps {
    /// Creates an observer that makes a sample every `step_ns` nanoseconds. A step below
    /// [`STEP_NS_MIN`] is raised to this minimum.
    pub fn new(step_ns: u64) -> Self {
        Self {
            step_ns: step_ns.max(STEP_NS_MIN),
            phase_ns: 0,
            stretch: 0..0,
            counted_until_ns: 0,
            steps: BTreeMap::new(),
            parts: 0,
            limits: (PARTS_MAX, THREADS_MAX),
            cut_until: 0,
            has_begun: true,
            next_sample: 0,
            last_sample: None,
            threads: HashMap::new(),
            processes: BTreeMap::new(),
        }
    }

    /// Sets the limits on the parts and threads that are stored.
    #[cfg(test)]
    pub(super) fn set_limits(&mut self, parts: usize, threads: usize) {
        self.limits = (parts, threads);
    }

    /// Makes samples at multiples of the step on a clock that is ahead of the monotonic clock by
    /// `offset_ns`. Must be called before the first payload.
    pub fn set_offset(&mut self, offset_ns: i64) {
        let step_ns = i64::try_from(self.step_ns).unwrap_or(i64::MAX);
        self.phase_ns = offset_ns.rem_euclid(step_ns).unsigned_abs();
    }

    /// Passes to `take` the samples that became complete with the last payload of the timeline.
    /// Must be called after each payload, once this observer has received the payload's intervals.
    pub fn reach(&mut self, timeline: &Timeline, mut take: impl FnMut(&TaskSample<'_>)) {
        let stretch = timeline.stretch();
        if stretch.start != self.stretch.start || self.stretch.is_empty() {
            self.finish(&mut take);
            self.count_rest();
        }
        if self.stretch.is_empty() && !stretch.is_empty() {
            self.has_begun = false;
            self.next_sample = self.number(stretch.start) + 1;
        }
        self.stretch = stretch;
        // Intervals that were open when the recording stopped were reported as lost.
        for interval in timeline.active() {
            self.interval(&interval, timeline.history());
        }
        self.counted_until_ns = self.counted_until_ns.max(timeline.now_ns());
        if self.is_within(self.next_sample) {
            self.begin(&mut take);
        }
        // A sample also lists the threads that are active in the following step, so that step must
        // be known.
        while self.is_within(self.next_sample.saturating_add(1)) {
            self.make_next(&mut take);
        }
    }

    /// Passes the last sample to `take`, although the activity after this sample is not known yet.
    /// Samples of further payloads may follow.
    pub fn finish(&mut self, mut take: impl FnMut(&TaskSample<'_>)) {
        if !self.stretch.is_empty() {
            self.begin(&mut take);
        }
        while self.is_within(self.next_sample) {
            self.make_next(&mut take);
        }
    }

    /// Returns whether the time of a sample is within the known range.
    fn is_within(&self, number: u64) -> bool {
        let is_possible = number.checked_mul(self.step_ns).is_some();
        is_possible && self.time_ns(number) <= self.stretch.end && !self.stretch.is_empty()
    }

    /// Returns the index of the step that contains a monotonic time. The number of the sample at
    /// the end of the step is this index plus 1.
    fn number(&self, mono_ns: u64) -> u64 {
        mono_ns.saturating_add(self.phase_ns) / self.step_ns
    }

    /// Returns the monotonic time of a sample.
    fn time_ns(&self, number: u64) -> u64 {
        number.saturating_mul(self.step_ns).saturating_sub(self.phase_ns)
    }

    /// Returns the monotonic time before which all samples were passed to `take`.
    pub fn complete_ns(&self) -> u64 {
        if self.has_begun { self.time_ns(self.next_sample) } else { self.stretch.start }
    }

    /// Makes the sample at the start of the known range, unless this sample was already made.
    fn begin(&mut self, take: &mut impl FnMut(&TaskSample<'_>)) {
        let number = self.number(self.stretch.start);
        let has_begun = std::mem::replace(&mut self.has_begun, true);
        if !has_begun && self.last_sample.is_none_or(|last| number > last) {
            let begun = self.known_in(number);
            self.make((number, None), &begun, take);
        }
    }

    /// Makes the sample at the end of the next step.
    fn make_next(&mut self, take: &mut impl FnMut(&TaskSample<'_>)) {
        let number = self.next_sample;
        self.count_step(number - 1);
        let mut listed = self.known_in(number);
        if let Some(ended) = self.steps.get(&(number - 1)) {
            listed.extend(ended.keys().copied());
        }
        self.make((number, Some(self.time_ns(number))), &listed, take);
        self.drop_step(number - 1);
        self.next_sample = number + 1;
    }

    /// Returns the tasks that are active in a step.
    fn known_in(&mut self, step: u64) -> BTreeSet<u64> {
        let parts: Vec<Task> =
            self.steps.get(&step).into_iter().flat_map(|step| step.values().map(|part| part.task)).collect();
        for task in &parts {
            self.know(*task);
        }
        parts.iter().map(|task| task.number).collect()
    }

    /// Makes a sample at a monotonic time, which is the end of a step or the start of the known
    /// range.
    fn make(
        &mut self,
        (number, end_ns): (u64, Option<u64>),
        listed: &BTreeSet<u64>,
        take: &mut impl FnMut(&TaskSample<'_>),
    ) {
        let is_whole = number.is_multiple_of((ALL_NS / self.step_ns).max(1)) || self.last_sample.is_none();
        let mut threads: Vec<&ThreadState> = if is_whole {
            self.threads.values().collect()
        } else {
            listed.iter().filter_map(|number| self.threads.get(number)).collect()
        };
        threads.sort_unstable_by_key(|thread| (thread.task.info.thread, thread.task.number));
        // If several threads have the same id, the latest is kept.
        threads.dedup_by(|next, kept| {
            let is_same = next.task.info.thread == kept.task.info.thread;
            if is_same {
                *kept = *next;
            }
            is_same
        });
        let wanted: BTreeSet<u32> = threads.iter().map(|thread| thread.task.info.process).collect();
        let processes: Vec<ProcessWork> = wanted
            .iter()
            .filter_map(|process| Some((process, self.processes.get(process)?)))
            .map(|(process, state)| {
                let Work { on_cpu_ns, ready_ns, switches, migrations } = state.work;
                ProcessWork::new(*process, state.name.bytes(), on_cpu_ns, ready_ns, switches, migrations)
            })
            .collect();
        let threads: Vec<ThreadWork> = threads
            .iter()
            .map(|state| {
                let Work { on_cpu_ns, ready_ns, switches, migrations } = state.work;
                let info = &state.task.info;
                ThreadWork::new(
                    info.thread,
                    info.process,
                    info.name.bytes(),
                    on_cpu_ns,
                    ready_ns,
                    switches,
                    migrations,
                )
            })
            .collect();
        let mut builder = FlatBufferBuilder::new();
        let args = TasksArgs {
            processes: Some(builder.create_vector(&processes)),
            threads: Some(builder.create_vector(&threads)),
        };
        let tasks = Tasks::create(&mut builder, &args);
        builder.finish_minimal(tasks);
        self.last_sample = Some(number);
        let (is_begin, payload) = (end_ns.is_none(), builder.finished_data());
        let (time_ns, is_cut) = (end_ns.unwrap_or(self.stretch.start), number < self.cut_until);
        take(&TaskSample { number, time_ns, is_begin, is_cut, payload });
    }

    /// Adds the activity of threads in a step to their counters.
    fn count_step(&mut self, step: u64) {
        let Some(parts) = self.steps.get(&step) else { return };
        let parts: Vec<ThreadPart> = parts.values().copied().collect();
        for part in parts {
            self.know(part.task);
            let Some(thread) = self.threads.get_mut(&part.task.number) else { continue };
            thread.work.add(part.work);
            if let Some(process) = self.processes.get_mut(&part.task.info.process) {
                process.work.add(part.work);
            }
        }
    }

    /// Removes a counted step, and the threads that ended in it.
    fn drop_step(&mut self, step: u64) {
        let Some(parts) = self.steps.remove(&step) else { return };
        self.parts -= parts.len();
        for part in parts.values().filter(|part| part.has_ended) {
            self.forget(part.task);
        }
    }

    /// Counts the steps that get no sample because the time after them is unknown.
    fn count_rest(&mut self) {
        for step in self.steps.keys().copied().collect::<Vec<_>>() {
            if self.time_ns(step) < self.stretch.end {
                self.count_step(step);
                self.drop_step(step);
            }
        }
        self.stretch = 0..0;
    }

    /// Adds a thread and its process, or updates them.
    fn know(&mut self, task: Task) {
        if !self.threads.contains_key(&task.number) && self.threads.len() >= self.limits.1 {
            self.forget_idle();
        }
        let new = ThreadState { task, work: Work::default(), last_cpu: None };
        let thread = self.threads.entry(task.number).or_insert(new);
        thread.task = task;
        let process = self.processes.entry(task.info.process).or_default();
        process.threads.insert(task.number);
        if task.info.thread == task.info.process || process.name.is_empty() {
            process.name = task.info.name;
        }
    }

    fn forget(&mut self, task: Task) {
        self.threads.remove(&task.number);
        if let Some(process) = self.processes.get_mut(&task.info.process) {
            process.threads.remove(&task.number);
            if process.threads.is_empty() {
                self.processes.remove(&task.info.process);
            }
        }
    }

    /// Removes the threads that have no activity in the kept steps. If such a thread becomes active
    /// again, its counters restart.
    fn forget_idle(&mut self) {
        let active: BTreeSet<u64> = self.steps.values().flat_map(|step| step.keys().copied()).collect();
        let idle: Vec<Task> = self
            .threads
            .values()
            .map(|thread| thread.task)
            .filter(|task| !active.contains(&task.number))
            .collect();
        if !idle.is_empty() {
            self.cut_until = self.cut_until.max(self.next_sample.saturating_add(1));
        }
        for task in idle {
            self.forget(task);
        }
    }

    /// Returns the activity of a thread in a step, so that the caller can add to it.
    fn part(&mut self, step: u64, task: Task) -> Option<&mut ThreadPart> {
        let new = ThreadPart { task, work: Work::default(), has_ended: false };
        let part = match self.steps.entry(step).or_default().entry(task.number) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(_) if self.parts >= self.limits.0 => {
                // The sample at the end of the step has the next number.
                self.cut_until = self.cut_until.max(step.saturating_add(2));
                return None;
            }
            Entry::Vacant(place) => {
                self.parts += 1;
                place.insert(new)
            }
        };
        part.task = task;
        Some(part)
    }
}

impl TimelineObserver for TaskSteps {
    fn interval(&mut self, interval: &Interval, _: &CpuHistory) {
        let task = interval.task;
        if task.is_idle() {
            return;
        }
        let has_ended = interval.end == IntervalEnd::Exited;
        if has_ended && let Some(part) = self.part(self.number(interval.end_ns), task) {
            part.has_ended = true;
        }
        if interval.state == TaskState::Sleeping {
            return;
        }
        let is_running = interval.state == TaskState::Running;
        let first_ns = interval.begin_ns.max(self.counted_until_ns);
        let mut begin_ns = first_ns;
        while begin_ns < interval.end_ns {
            let step = self.number(begin_ns);
            // The steps at the largest possible times overflow and are treated as one.
            let step_end_ns = self.time_ns(step + 1);
            let end_ns = if step_end_ns > begin_ns { step_end_ns } else { u64::MAX }.min(interval.end_ns);
            let Some(part) = self.part(step, task) else { return };
            let own = if is_running { &mut part.work.on_cpu_ns } else { &mut part.work.ready_ns };
            *own += end_ns - begin_ns;
            begin_ns = end_ns;
        }
        if !is_running {
            return;
        }
        if interval.begin_ns >= self.counted_until_ns {
            let has_moved = self.move_to(task, interval.cpu);
            if has_moved && let Some(part) = self.part(self.number(interval.begin_ns), task) {
                part.work.migrations += 1;
            }
        }
        let has_stopped = matches!(interval.end, IntervalEnd::Preempted | IntervalEnd::Slept) || has_ended;
        if has_stopped && let Some(part) = self.part(self.number(interval.end_ns), task) {
            part.work.switches += 1;
        }
    }
}

impl TaskSteps {
    /// Sets the CPU that a thread runs on. Returns whether the thread ran on another CPU before.
    fn move_to(&mut self, task: Task, cpu: Option<u16>) -> bool {
        self.know(task);
        let Some(thread) = self.threads.get_mut(&task.number) else { return false };
        let before = std::mem::replace(&mut thread.last_cpu, cpu);
        before.is_some() && before != cpu
    }
}

impl Work {
    fn add(&mut self, other: Self) {
        self.on_cpu_ns += other.on_cpu_ns;
        self.ready_ns += other.ready_ns;
        self.switches += other.switches;
        self.migrations += other.migrations;
    }
}
