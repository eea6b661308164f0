//! Derives the states of each thread and CPU from the events of the scheduler.

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

/// Maximum number of known threads. Above the limit, sleeping threads are discarded. The state of a
/// discarded thread becomes known again at its next event.
const THREADS_MAX: usize = 1 << 17;

/// Tracks threads and CPUs through the payloads of one source, in the order of their sequence
/// numbers.
///
/// Nothing is known about the time between two payloads that are not consecutive, or about the time
/// while the recording was stopped. Intervals end where such a time begins, and no other interval
/// covers this time. If the kernel lost records of a payload, the times of CPUs and threads in the
/// payload may be wrong. Only later events can reveal this. Therefore the range of the payload is
/// reported as a hole.
#[derive(Debug, Default)]
pub struct Timeline {
    /// Time up to which all recorded events are known.
    now_ns: u64,
    /// Start of the payload that is being added.
    batch_ns: u64,
    next_seq: Option<u64>,
    /// The last time range in which no payload is missing and recording did not stop.
    stretch: Range<u64>,
    /// The counter of lost records in the last payload. The next fields are another counter and the
    /// state of that payload.
    lost: u64,
    stopped_ns: u64,
    is_stopped: bool,
    cpus: Vec<Option<RunningOn>>,
    tasks: HashMap<u32, TaskRecord>,
    /// Ids of the ready threads.
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

    /// Adds the payload with this sequence number. The caller must add payloads in ascending order
    /// of their sequence numbers. A missing sequence number is treated as a loss. If a time is
    /// earlier than the latest time so far, the latest time is used instead.
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

    /// Ends all open intervals, and discards all threads, because the next payload is from another
    /// run or another source. Task ids are not reused.
    pub fn begin_run(&mut self, observer: &mut impl TimelineObserver) {
        self.lose(observer);
        let (last_number, faults) = (self.last_number, self.faults);
        *self = Self { last_number, faults, ..Self::default() };
    }

    /// Reports the open intervals at the end of the last payload, with the reason
    /// [`IntervalEnd::Open`].
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn finish(self, observer: &mut impl TimelineObserver) {
        for interval in self.active().chain(self.sleeping()) {
            observer.interval(&interval, &self.history);
        }
    }

    /// Returns the end of the last payload, in monotonic nanoseconds.
    pub(crate) fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// Returns the last completely recorded range, in monotonic nanoseconds. The range ends at
    /// [`now_ns`](Self::now_ns), or earlier if the recording was stopped.
    pub(crate) fn stretch(&self) -> Range<u64> {
        self.stretch.clone()
    }

    /// Returns the missing parts of the payloads so far.
    pub fn faults(&self) -> RecordingFaults {
        self.faults
    }

    /// Returns the open intervals of the running threads, by CPU, and then the open intervals of
    /// the ready threads. The intervals end at the end of the last payload.
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

    /// Returns the open intervals of the sleeping threads, by thread id. The intervals end at the
    /// end of the last payload.
    pub(crate) fn sleeping(&self) -> impl Iterator<Item = Interval> {
        let is_asleep = |record: &&TaskRecord| matches!(record.state, Some((TaskState::Sleeping, _)));
        let mut asleep: Vec<&TaskRecord> = self.tasks.values().filter(is_asleep).collect();
        asleep.sort_unstable_by_key(|record| record.task.info.thread);
        asleep.into_iter().filter_map(|record| self.open_interval(record))
    }

    /// Returns the recent slices of each CPU.
    pub(crate) fn history(&self) -> &CpuHistory {
        &self.history
    }

    fn open_interval(&self, record: &TaskRecord) -> Option<Interval> {
        let (state, begin_ns) = record.state?;
        let (end_ns, end, waker) = (self.now_ns, IntervalEnd::Open, record.waker);
        Some(Interval { task: record.task, state, cpu: None, begin_ns, end_ns, end, waker })
    }

    /// Applies the list of the threads that run at the start of a payload.
    fn apply_running(&mut self, batch: &SchedBatch<'_>, observer: &mut impl TimelineObserver) {
        // A CPU that is not listed is offline, or records of this CPU were lost.
        let listed: BTreeSet<u16> = batch.running().map(|(cpu, _)| cpu).collect();
        for cpu in (0..=u16::MAX).take(self.cpus.len()).filter(|cpu| !listed.contains(cpu)) {
            self.lose_cpu(cpu, observer);
        }
        for (cpu, info) in batch.running() {
            let known = self.running_on(cpu).map(|running| running.thread);
            if !info.is_idle() {
                self.know(info, observer);
            }
            // If the id now belongs to another thread, the old thread was removed from its CPU.
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

    /// Infers the first slice of each CPU whose state is unknown. If a thread stops running on a
    /// CPU whose state is unknown, the thread has run there since the recorded part began.
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
                // Threads also change while their switches are not recorded.
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

    /// Processes the start, the end or a new name of a thread.
    fn change(&mut self, thread: ThreadInfo, change: TaskEventKind, observer: &mut impl TimelineObserver) {
        if thread.is_idle() {
            return;
        }
        if change == TaskEventKind::Fork {
            // The previous thread with this id has ended.
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
                // A running thread runs until its last switch.
                if !matches!(record.state, Some((TaskState::Running, _))) {
                    self.end_interval(thread.thread, IntervalEnd::Exited, None, observer);
                }
            }
            _ => {}
        }
    }

    /// Processes a wakeup. A running or ready thread keeps its state, because the kernel also
    /// reports wakeups of threads that are already awake.
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

    /// Processes the event that a thread stops running on a CPU.
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
            // The record of the thread's last switch is missing.
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
            // The kernel releases the id of a thread while the thread exits. Later events may be
            // reported under another id, and then this thread would be ready forever.
            record.state = (!record.is_exiting).then_some((state, now_ns));
            record.waker = None;
            if is_preempted && !record.is_exiting {
                self.ready.insert(thread.thread);
            }
        }
    }

    /// Processes the event that a thread starts to run on a CPU.
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

    /// Ends all intervals now, because nothing is known about the time after now.
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

    /// Makes the state of a CPU unknown, because another thread has run there in the meantime.
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

    /// Makes the state of a thread unknown, because the state changed at an unknown time during
    /// this payload.
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

    /// Sets the running thread of a CPU to a known thread or to the idle loop.
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

    /// Adds a new thread, or updates the name of a known thread.
    fn know(&mut self, info: ThreadInfo, observer: &mut impl TimelineObserver) {
        let known = self.tasks.get(&info.thread).map(|record| record.task.info.process);
        if let Some(process) = known
            && process != info.process
        {
            // The id was reused.
            self.lose_task(info.thread, observer);
            self.forget(info.thread);
        } else if known.is_none() && self.tasks.len() >= THREADS_MAX {
            self.forget_sleeping(observer);
        }
        self.insert(info);
    }

    /// Adds a thread, or updates its name.
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

    /// Removes the threads that ended some time ago and are not active.
    fn forget_ended(&mut self) {
        while let Some((thread, number)) = self.ended.take_old(self.now_ns) {
            match self.tasks.get_mut(&thread).filter(|record| record.task.number == number) {
                // Another thread has this id now, and the record of its start was lost.
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

    /// Removes the sleeping threads. Then removes all threads if at least half of the maximum
    /// number of threads still remains.
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
