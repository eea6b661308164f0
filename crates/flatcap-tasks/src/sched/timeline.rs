//! What each thread and each CPU does, as it follows from the events of the scheduler.

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;

use super::batch::{SchedBatch, SchedEventKind};
use super::cpu_history::{CpuHistory, CpuSlice};
use super::ended_threads::EndedThreads;
use super::interval::{Interval, IntervalEnd, TaskState, TaskWakeup, TimelineObserver};
use super::recording_faults::RecordingFaults;
use super::recording_holes::{recorded_part, report_holes};
use super::task_record::{RunningOn, TaskRecord};
use crate::generated::kernel::TaskEventKind;
use crate::task::{Task, ThreadInfo};

/// Most threads that are known at a time. Beyond it those that sleep are forgotten: what they did
/// is known again from their next event on.
const THREADS_MAX: usize = 1 << 17;

/// Follows threads and CPUs through the payloads of one source, in the order of their numbers.
///
/// Between two payloads that do not follow each other, and while the recording was stopped, nothing
/// is known: intervals end there, and no other interval claims that time. Of a payload with records
/// that the kernel lost, the times of CPUs and threads may be wrong where later events do not
/// contradict them: its time is reported as a hole.
#[derive(Debug, Default)]
pub struct Timeline {
    /// Everything before it is known, as far as it was recorded.
    now_ns: u64,
    /// Begin of the payload that is being added.
    batch_ns: u64,
    next_seq: Option<u64>,
    /// The last time without missing payloads and stops.
    stretch: Range<u64>,
    /// The counters and the state of the last payload.
    lost: u64,
    stopped_ns: u64,
    is_stopped: bool,
    cpus: Vec<Option<RunningOn>>,
    tasks: HashMap<u32, TaskRecord>,
    /// Ids of the threads that are ready.
    ready: BTreeSet<u32>,
    ended: EndedThreads,
    last_number: u64,
    history: CpuHistory,
    faults: RecordingFaults,
}

impl Timeline {
    /// Creates a timeline without threads.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the payload with a sequence number. Payloads come in the order of their numbers; a
    /// number that is left out is a loss. Times that step back are taken for the latest one so far.
    pub fn add(&mut self, seq: u64, batch: &SchedBatch<'_>, observer: &mut impl TimelineObserver) {
        let is_first = self.next_seq.is_none();
        let follows = self.next_seq == Some(seq) && batch.begin_ns() <= self.now_ns;
        if !follows {
            self.faults.gaps += u64::from(!is_first);
            self.lose(observer);
        }
        if is_first {
            (self.lost, self.stopped_ns) = (batch.lost(), batch.stopped_ns());
            self.is_stopped = batch.is_stopped();
        }
        let lost = batch.lost().saturating_sub(self.lost);
        let was_stopped = self.is_stopped && (follows || is_first);
        let recorded = recorded_part(batch, was_stopped, self.stopped_ns);
        let missing_since_ns = (!follows && !is_first).then_some(self.now_ns);
        report_holes(batch, &recorded, (lost, missing_since_ns), observer);
        self.now_ns = self.now_ns.max(recorded.start);
        if !follows || self.is_stopped {
            self.stretch.start = self.now_ns;
        }
        if recorded.start <= batch.begin_ns() {
            self.apply_running(batch, observer);
        }
        self.batch_ns = self.now_ns;
        if lost == 0 {
            self.infer_running(batch, &recorded);
        }
        self.apply_events(batch, &recorded, observer);
        self.now_ns = self.now_ns.max(recorded.end);
        self.stretch.end = self.now_ns;
        if recorded.end < batch.end_ns() || batch.is_stopped() {
            self.lose(observer);
            self.now_ns = self.now_ns.max(batch.end_ns());
        }
        let stopped_ns = batch.stopped_ns().saturating_sub(self.stopped_ns);
        self.faults.lost = self.faults.lost.saturating_add(lost);
        self.faults.stopped_ns = self.faults.stopped_ns.saturating_add(stopped_ns);
        self.faults.lacks_wakeups |= !batch.has_wakeups();
        self.forget_ended();
        self.next_seq = Some(seq.wrapping_add(1));
        (self.lost, self.stopped_ns) = (batch.lost(), batch.stopped_ns());
        self.is_stopped = batch.is_stopped();
    }

    /// Ends what is open, and forgets all threads: the next payload is of another run, or of
    /// another source. Numbers of tasks are not given again.
    pub fn begin_run(&mut self, observer: &mut impl TimelineObserver) {
        self.lose(observer);
        let (last_number, faults) = (self.last_number, self.faults);
        *self = Self { last_number, faults, ..Self::default() };
    }

    /// Reports what is open at the end of the last payload, as [`IntervalEnd::Open`].
    pub fn finish(self, observer: &mut impl TimelineObserver) {
        for interval in self.active().chain(self.sleeping()) {
            observer.interval(&interval, &self.history);
        }
    }

    /// The end of the last payload, in monotonic nanoseconds.
    pub fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// The last time in which everything was recorded without a hole, in monotonic nanoseconds. It
    /// ends at [`now_ns`](Self::now_ns), or where the recording was stopped before.
    pub fn stretch(&self) -> Range<u64> {
        self.stretch.clone()
    }

    /// What the payloads so far lack.
    pub fn faults(&self) -> RecordingFaults {
        self.faults
    }

    /// Returns who runs, by CPU, and then who is ready, up to now: intervals that have not ended.
    pub fn active(&self) -> impl Iterator<Item = Interval> {
        let running = self.cpus.iter().enumerate().filter_map(|(cpu, running)| {
            let running = running.as_ref()?;
            let task = match running.thread {
                0 => Task::IDLE,
                thread => self.tasks.get(&thread)?.task,
            };
            Some(Interval {
                task,
                state: TaskState::Running,
                cpu: u16::try_from(cpu).ok(),
                begin_ns: running.since_ns,
                end_ns: self.now_ns,
                end: IntervalEnd::Open,
                waker: None,
            })
        });
        let ready = self.ready.iter().filter_map(|thread| self.open_interval(self.tasks.get(thread)?));
        running.chain(ready)
    }

    /// Returns who sleeps, by thread id, up to now: intervals that have not ended.
    pub fn sleeping(&self) -> impl Iterator<Item = Interval> {
        let is_asleep = |record: &&TaskRecord| matches!(record.state, Some((TaskState::Sleeping, _)));
        let mut asleep: Vec<&TaskRecord> = self.tasks.values().filter(is_asleep).collect();
        asleep.sort_unstable_by_key(|record| record.task.info.thread);
        asleep.into_iter().filter_map(|record| self.open_interval(record))
    }

    /// Who ran on each CPU lately.
    pub fn history(&self) -> &CpuHistory {
        &self.history
    }

    fn open_interval(&self, record: &TaskRecord) -> Option<Interval> {
        let (state, begin_ns) = record.state?;
        let (end_ns, end, waker) = (self.now_ns, IntervalEnd::Open, record.waker);
        Some(Interval { task: record.task, state, cpu: None, begin_ns, end_ns, end, waker })
    }

    /// Takes over who runs on each CPU at the begin of a payload.
    fn apply_running(&mut self, batch: &SchedBatch<'_>, observer: &mut impl TimelineObserver) {
        // A CPU that it leaves out is away, or records of it were lost.
        let listed: BTreeSet<u16> = batch.running().map(|(cpu, _)| cpu).collect();
        for cpu in (0..=u16::MAX).take(self.cpus.len()).filter(|cpu| !listed.contains(cpu)) {
            self.lose_cpu(cpu, observer);
        }
        for (cpu, info) in batch.running() {
            let known = self.running_on(cpu).map(|running| running.thread);
            if !info.is_idle() {
                self.know(info, observer);
            }
            // A thread that is another one now was taken off its CPU.
            if known == Some(info.thread) && self.running_on(cpu).is_some() {
                continue;
            }
            self.lose_cpu(cpu, observer);
            if !info.is_idle() {
                self.lose_task(info.thread, observer);
            }
            self.run_on(cpu, info.thread);
        }
    }

    /// A thread that stops running on a CPU about which nothing is known has run there since its
    /// recording began.
    fn infer_running(&mut self, batch: &SchedBatch<'_>, recorded: &Range<u64>) {
        let mut is_known: Vec<bool> = self.cpus.iter().map(Option::is_some).collect();
        for (time_ns, cpu, previous) in batch.stopped_threads() {
            let place = usize::from(cpu);
            if is_known.get(place).is_some_and(|is_known| *is_known) || !recorded.contains(&time_ns) {
                continue;
            }
            if is_known.len() <= place {
                is_known.resize(place + 1, false);
            }
            if let Some(is_known) = is_known.get_mut(place) {
                *is_known = true;
            }
            let is_other =
                |record: &TaskRecord| record.state.is_some() || record.task.info.process != previous.process;
            if previous.is_idle() {
                self.run_on(cpu, 0);
            } else if !self.tasks.get(&previous.thread).is_some_and(is_other) {
                self.insert(previous);
                self.run_on(cpu, previous.thread);
            }
        }
    }

    fn apply_events(
        &mut self,
        batch: &SchedBatch<'_>,
        recorded: &Range<u64>,
        observer: &mut impl TimelineObserver,
    ) {
        for event in batch.events() {
            let is_before = event.time_ns < recorded.start && recorded.start > batch.begin_ns();
            let is_after = event.time_ns >= recorded.end && recorded.end < batch.end_ns();
            if is_before || is_after {
                // Threads change while their switches are not recorded, too.
                if let SchedEventKind::Changed { thread, change: TaskEventKind::Exit, .. } = event.kind
                    && is_before
                {
                    self.forget(thread.thread);
                }
                continue;
            }
            self.now_ns = event.time_ns.clamp(self.now_ns, self.now_ns.max(recorded.end));
            match event.kind {
                SchedEventKind::Changed { thread, change, .. } => self.change(thread, change, observer),
                SchedEventKind::Woken { thread, waker, cpu } => self.wake(thread, waker, cpu, observer),
                SchedEventKind::Switched { previous, next, cpu, is_preempted } => {
                    self.stop(cpu, previous, is_preempted, observer);
                    self.start(cpu, next, observer);
                }
            }
        }
    }

    /// A thread began, ended, or has another name.
    fn change(&mut self, thread: ThreadInfo, change: TaskEventKind, observer: &mut impl TimelineObserver) {
        if thread.is_idle() {
            return;
        }
        if change == TaskEventKind::Fork {
            // Whoever had the id before has ended.
            self.lose_task(thread.thread, observer);
            self.forget(thread.thread);
        }
        self.know(thread, observer);
        let now_ns = self.now_ns;
        let Some(record) = self.tasks.get_mut(&thread.thread) else { return };
        match change {
            TaskEventKind::Fork => {
                record.state = Some((TaskState::Ready, now_ns));
                self.ready.insert(thread.thread);
            }
            TaskEventKind::Exit => {
                record.is_exiting = true;
                self.ended.add(now_ns, thread.thread, record.task.number);
                // One that runs does so until its last switch.
                if !matches!(record.state, Some((TaskState::Running, _))) {
                    self.end_interval(thread.thread, IntervalEnd::Exited, None, observer);
                }
            }
            _ => {}
        }
    }

    /// A thread was made ready. One that is running or ready stays so: the kernel reports wakeups
    /// that come too late, too.
    fn wake(
        &mut self,
        thread: ThreadInfo,
        waker: ThreadInfo,
        cpu: u16,
        observer: &mut impl TimelineObserver,
    ) {
        if thread.is_idle() {
            return;
        }
        let waker = if waker.is_idle() {
            Task::IDLE
        } else {
            self.know(waker, observer);
            let Some(record) = self.tasks.get(&waker.thread) else { return };
            record.task
        };
        self.know(thread, observer);
        let time_ns = self.now_ns;
        let Some(record) = self.tasks.get(&thread.thread) else { return };
        observer.wakeup(&TaskWakeup { time_ns, task: record.task, waker, cpu });
        if !matches!(record.state, None | Some((TaskState::Sleeping, _))) {
            return;
        }
        self.end_interval(thread.thread, IntervalEnd::Woken, None, observer);
        if let Some(record) = self.tasks.get_mut(&thread.thread) {
            record.state = Some((TaskState::Ready, time_ns));
            record.waker = Some(waker);
            self.ready.insert(thread.thread);
        }
    }

    /// A thread stops running on a CPU.
    fn stop(
        &mut self,
        cpu: u16,
        thread: ThreadInfo,
        is_preempted: bool,
        observer: &mut impl TimelineObserver,
    ) {
        if self.running_on(cpu).is_some_and(|running| running.thread != thread.thread) {
            self.lose_cpu(cpu, observer);
        }
        if thread.is_idle() {
            if let Some(running) = self.take_running(cpu) {
                let times = running.since_ns..self.now_ns;
                self.report(&Interval::slice(Task::IDLE, cpu, times, IntervalEnd::Preempted), observer);
            }
            return;
        }
        self.know(thread, observer);
        if self.running_on(cpu).is_none() {
            // Its last switch is missing.
            self.lose_task(thread.thread, observer);
        }
        let Some(record) = self.tasks.get(&thread.thread).copied() else { return };
        let has_ended = record.is_exiting && !is_preempted;
        let end = match (is_preempted, has_ended) {
            (true, _) => IntervalEnd::Preempted,
            (false, true) => IntervalEnd::Exited,
            (false, false) => IntervalEnd::Slept,
        };
        if let Some(running) = self.take_running(cpu) {
            let slice = Interval::slice(record.task, cpu, running.since_ns..self.now_ns, end);
            self.report(&slice, observer);
        }
        let state = if is_preempted { TaskState::Ready } else { TaskState::Sleeping };
        let now_ns = self.now_ns;
        if let Some(record) = self.tasks.get_mut(&thread.thread) {
            // The kernel takes the id of a thread away while it exits: what it does next may be
            // said of another id, and this one would be ready for ever.
            record.state = (!record.is_exiting).then_some((state, now_ns));
            record.waker = None;
            if is_preempted && !record.is_exiting {
                self.ready.insert(thread.thread);
            }
        }
    }

    /// A thread runs on a CPU from now on.
    fn start(&mut self, cpu: u16, thread: ThreadInfo, observer: &mut impl TimelineObserver) {
        if !thread.is_idle() {
            self.know(thread, observer);
            let state = self.tasks.get(&thread.thread).and_then(|record| record.state);
            if matches!(state, Some((TaskState::Running, _))) {
                self.lose_task(thread.thread, observer);
            }
            self.end_interval(thread.thread, IntervalEnd::Ran, Some(cpu), observer);
        }
        self.run_on(cpu, thread.thread);
    }

    /// Ends all intervals now: what follows is not known.
    fn lose(&mut self, observer: &mut impl TimelineObserver) {
        let now_ns = self.now_ns;
        for interval in self.active().chain(self.sleeping()).collect::<Vec<_>>() {
            if interval.begin_ns < now_ns {
                let interval = Interval { end: IntervalEnd::Lost, ..interval };
                self.report(&interval, observer);
            }
        }
        self.cpus.clear();
        self.ready.clear();
        for record in self.tasks.values_mut() {
            (record.state, record.waker) = (None, None);
        }
    }

    /// Ends what is known of a CPU: another thread ran there meanwhile.
    fn lose_cpu(&mut self, cpu: u16, observer: &mut impl TimelineObserver) {
        match self.running_on(cpu) {
            None => {}
            Some(RunningOn { thread: 0, since_ns }) => {
                self.take_running(cpu);
                let end_ns = since_ns.max(self.batch_ns).min(self.now_ns);
                self.report(&Interval::slice(Task::IDLE, cpu, since_ns..end_ns, IntervalEnd::Lost), observer);
            }
            Some(RunningOn { thread, .. }) => self.lose_task(thread, observer),
        }
    }

    /// Ends what is known of a thread: it did something else meanwhile, at an unknown time of this
    /// payload.
    fn lose_task(&mut self, thread: u32, observer: &mut impl TimelineObserver) {
        let Some(record) = self.tasks.get_mut(&thread) else { return };
        let Some((state, begin_ns)) = record.state.take() else { return };
        let (task, cpu, waker) = (record.task, record.cpu, record.waker.take());
        let end_ns = begin_ns.max(self.batch_ns).min(self.now_ns);
        self.ready.remove(&thread);
        if state == TaskState::Running {
            self.take_running(cpu);
            self.report(&Interval::slice(task, cpu, begin_ns..end_ns, IntervalEnd::Lost), observer);
        } else if begin_ns < end_ns {
            let end = IntervalEnd::Lost;
            observer
                .interval(&Interval { task, state, cpu: None, begin_ns, end_ns, end, waker }, &self.history);
        }
    }

    /// Ends the sleep or the wait of a thread now.
    fn end_interval(
        &mut self,
        thread: u32,
        end: IntervalEnd,
        cpu: Option<u16>,
        observer: &mut impl TimelineObserver,
    ) {
        let Some(record) = self.tasks.get_mut(&thread) else { return };
        let (task, waker) = (record.task, record.waker.take());
        if let Some((state, begin_ns)) = record.state.take() {
            let interval = Interval { task, state, cpu, begin_ns, end_ns: self.now_ns, end, waker };
            observer.interval(&interval, &self.history);
        }
        self.ready.remove(&thread);
    }

    fn report(&mut self, interval: &Interval, observer: &mut impl TimelineObserver) {
        if let (TaskState::Running, Some(cpu)) = (interval.state, interval.cpu) {
            let Interval { task, begin_ns, end_ns, .. } = *interval;
            self.history.add(cpu, CpuSlice { task, begin_ns, end_ns });
        }
        observer.interval(interval, &self.history);
    }

    fn running_on(&self, cpu: u16) -> Option<RunningOn> {
        self.cpus.get(usize::from(cpu)).copied().flatten()
    }

    fn take_running(&mut self, cpu: u16) -> Option<RunningOn> {
        self.cpus.get_mut(usize::from(cpu)).and_then(Option::take)
    }

    /// Lets a known thread, or the idle loop, run on a CPU from now on.
    fn run_on(&mut self, cpu: u16, thread: u32) {
        let place = usize::from(cpu);
        if self.cpus.len() <= place {
            self.cpus.resize(place + 1, None);
        }
        if let Some(running) = self.cpus.get_mut(place) {
            *running = Some(RunningOn { thread, since_ns: self.now_ns });
        }
        if let Some(record) = self.tasks.get_mut(&thread) {
            record.state = Some((TaskState::Running, self.now_ns));
            record.cpu = cpu;
            record.waker = None;
            self.ready.remove(&thread);
        }
    }

    /// Takes note of a thread: a new one, or another name of a known one.
    fn know(&mut self, info: ThreadInfo, observer: &mut impl TimelineObserver) {
        let known = self.tasks.get(&info.thread).map(|record| record.task.info.process);
        if let Some(process) = known
            && process != info.process
        {
            // The id was given again.
            self.lose_task(info.thread, observer);
            self.forget(info.thread);
        } else if known.is_none() && self.tasks.len() >= THREADS_MAX {
            self.forget_sleeping(observer);
        }
        self.insert(info);
    }

    /// Adds a thread, or takes over its name.
    fn insert(&mut self, info: ThreadInfo) {
        if let Some(record) = self.tasks.get_mut(&info.thread) {
            if !info.name.is_empty() {
                record.task.info.name = info.name;
            }
            return;
        }
        self.last_number += 1;
        let task = Task { number: self.last_number, info };
        let record = TaskRecord { task, state: None, cpu: 0, waker: None, is_exiting: false };
        self.tasks.insert(info.thread, record);
    }

    /// Forgets the threads that ended some time ago, and do nothing.
    fn forget_ended(&mut self) {
        while let Some((thread, number)) = self.ended.take_old(self.now_ns) {
            match self.tasks.get_mut(&thread).filter(|record| record.task.number == number) {
                // Another thread has the id, and its begin was lost.
                Some(record) if record.state.is_some() => record.is_exiting = false,
                Some(_) => self.forget(thread),
                None => {}
            }
        }
    }

    fn forget(&mut self, thread: u32) {
        self.tasks.remove(&thread);
        self.ready.remove(&thread);
    }

    /// Forgets the threads that sleep, and if these are few, everything.
    fn forget_sleeping(&mut self, observer: &mut impl TimelineObserver) {
        for interval in self.sleeping().collect::<Vec<_>>() {
            let interval = Interval { end: IntervalEnd::Lost, ..interval };
            observer.interval(&interval, &self.history);
        }
        let is_active =
            |state: Option<(TaskState, u64)>| state.is_some_and(|(state, _)| state != TaskState::Sleeping);
        self.tasks.retain(|_, record| is_active(record.state));
        if self.tasks.len() >= THREADS_MAX / 2 {
            self.lose(observer);
            self.tasks.clear();
        }
    }
}
