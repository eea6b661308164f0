//! Tests of the timeline against a scheduler that is simulated step by step.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use proptest::prelude::*;

use super::{
    CpuHistory, Interval, IntervalEnd, SchedBatch, TaskState, TaskSteps, TaskTimes, Timeline,
    TimelineObserver,
};
use crate::generated::kernel::{TaskEventKind, Tasks, ThreadWork};
use crate::task::{TaskName, ThreadInfo};
use crate::testing::SchedPayload;

const CPUS: usize = 3;

/// An event of the simulation.
#[derive(Debug, Clone, Copy)]
enum Event {
    Switch { cpu: usize, previous: usize, next: usize, is_preempted: bool },
    Wakeup { thread: usize, waker: usize },
    Changed { thread: usize, kind: TaskEventKind },
}

/// The states of all threads during an interval. Thread 0 is the idle loop.
#[derive(Debug, Clone)]
struct Truth {
    times: Range<u64>,
    states: Vec<Option<TaskState>>,
    running: Vec<usize>,
}

/// A scheduler whose threads are driven by random numbers.
struct Simulation {
    now_ns: u64,
    states: Vec<Option<TaskState>>,
    running: Vec<usize>,
    exiting: BTreeSet<usize>,
    events: Vec<(u64, Event)>,
    truth: Vec<Truth>,
    begin_ns: u64,
}

impl std::fmt::Debug for Simulation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{} {:?}", self.begin_ns, self.now_ns, self.events)
    }
}

impl Simulation {
    fn run(begin_ns: u64, choices: &[u32]) -> Self {
        let mut simulation = Self {
            now_ns: begin_ns,
            states: vec![None],
            running: vec![0; CPUS],
            exiting: BTreeSet::new(),
            events: Vec::new(),
            truth: Vec::new(),
            begin_ns,
        };
        for choice in choices {
            simulation.pass(u64::from(choice >> 8) % 5_000 + 1);
            simulation.choose(*choice as usize);
        }
        simulation.pass(1);
        simulation
    }

    fn pass(&mut self, ns: u64) {
        let times = self.now_ns..self.now_ns + ns;
        self.now_ns += ns;
        self.truth.push(Truth { times, states: self.states.clone(), running: self.running.clone() });
    }

    fn in_state(&self, state: TaskState) -> Vec<usize> {
        (1..self.states.len()).filter(|thread| self.states[*thread] == Some(state)).collect()
    }

    fn choose(&mut self, choice: usize) {
        let (cpu, pick) = (choice / 7 % CPUS, choice / 64);
        let chosen = |from: &[usize]| from.get(pick % from.len().max(1)).copied();
        match choice % 7 {
            0 if self.states.len() < 12 => {
                self.states.push(Some(TaskState::Ready));
                self.add(Event::Changed { thread: self.states.len() - 1, kind: TaskEventKind::Fork });
            }
            1 | 2 => {
                if let Some(thread) = chosen(&self.in_state(TaskState::Sleeping)) {
                    self.states[thread] = Some(TaskState::Ready);
                    self.add(Event::Wakeup { thread, waker: self.running[cpu] });
                }
            }
            3 if self.running[cpu] != 0 && pick % 4 == 0 => {
                let thread = self.running[cpu];
                if self.exiting.insert(thread) {
                    self.add(Event::Changed { thread, kind: TaskEventKind::Exit });
                }
            }
            _ => {
                let previous = self.running[cpu];
                let is_preempted = pick % 2 == 0;
                let ready = self.in_state(TaskState::Ready);
                let next = if pick % 5 == 0 { 0 } else { chosen(&ready).unwrap_or_default() };
                if previous == next {
                    return;
                }
                if previous != 0 {
                    let after = match (is_preempted, self.exiting.contains(&previous)) {
                        // The state of a thread that is preempted while it exits is also unknown.
                        (_, true) => None,
                        (true, false) => Some(TaskState::Ready),
                        (false, false) => Some(TaskState::Sleeping),
                    };
                    self.states[previous] = after;
                }
                if next != 0 {
                    self.states[next] = Some(TaskState::Running);
                }
                self.running[cpu] = next;
                self.add(Event::Switch { cpu, previous, next, is_preempted });
            }
        }
    }

    fn add(&mut self, event: Event) {
        self.events.push((self.now_ns, event));
    }

    /// Returns the threads that run just before the events at a given time.
    fn running_at(&self, at_ns: u64) -> Vec<usize> {
        let truth = self.truth.iter().find(|truth| truth.times.start < at_ns && at_ns <= truth.times.end);
        truth.map_or_else(|| vec![0; CPUS], |truth| truth.running.clone())
    }

    /// Returns the payloads of the simulation, divided at the times `cuts`.
    fn payloads(&self, cuts: &BTreeSet<u64>) -> Vec<SchedPayload> {
        let mut ends: Vec<u64> = cuts.iter().copied().collect();
        ends.retain(|cut| (self.begin_ns + 1..self.now_ns).contains(cut));
        ends.push(self.now_ns);
        let mut begin_ns = self.begin_ns;
        ends.into_iter()
            .map(|end_ns| {
                let payload = self.payload(begin_ns..end_ns);
                begin_ns = end_ns;
                payload
            })
            .collect()
    }

    fn payload(&self, times: Range<u64>) -> SchedPayload {
        let number = |thread: usize| u16::try_from(thread).unwrap();
        let mut payload = SchedPayload {
            begin_ns: times.start,
            end_ns: times.end,
            threads: (0..self.states.len()).map(info).collect(),
            running: (0..)
                .zip(self.running_at(times.start))
                .map(|(cpu, thread)| (cpu, number(thread)))
                .collect(),
            ..SchedPayload::default()
        };
        for (time, event) in self.events.iter().filter(|(time, _)| times.contains(time)) {
            match *event {
                Event::Switch { cpu, previous, next, is_preempted } => {
                    payload.switches.push((*time, number(cpu), number(previous), number(next), is_preempted));
                }
                Event::Wakeup { thread, waker } => {
                    payload.wakeups.push((*time, 0, number(thread), number(waker)));
                }
                Event::Changed { thread, kind } => payload.events.push((*time, number(thread), kind)),
            }
        }
        payload
    }

    /// Returns the time that a thread was in a state within a window.
    fn time_in(&self, thread: usize, state: TaskState, window: &Range<u64>) -> u64 {
        let own = self.truth.iter().filter(|truth| truth.states.get(thread) == Some(&Some(state)));
        own.map(|truth| overlap(&truth.times, window)).sum()
    }

    /// Returns how long `running` ran while `waiting` was ready, on the CPU on which `waiting` ran
    /// next.
    fn blocked(&self, window: &Range<u64>) -> BTreeMap<(u32, u32), u64> {
        let mut found = BTreeMap::new();
        let mut since = BTreeMap::<usize, u64>::new();
        for (time, event) in &self.events {
            match *event {
                Event::Wakeup { thread, .. } | Event::Changed { thread, kind: TaskEventKind::Fork } => {
                    since.insert(thread, *time);
                }
                Event::Changed { .. } => {}
                Event::Switch { cpu, previous, next, is_preempted } => {
                    if let Some(since_ns) = since.remove(&next).filter(|_| next != 0) {
                        let wait = since_ns.max(window.start)..(*time).min(window.end);
                        for truth in &self.truth {
                            let ns = overlap(&truth.times, &wait);
                            let key = (thread_id(next), thread_id(truth.running[cpu]));
                            if ns > 0 {
                                *found.entry(key).or_default() += ns;
                            }
                        }
                    }
                    if is_preempted && previous != 0 {
                        since.insert(previous, *time);
                    }
                }
            }
        }
        found
    }
}

fn overlap(one: &Range<u64>, other: &Range<u64>) -> u64 {
    one.end.min(other.end).saturating_sub(one.start.max(other.start))
}

fn thread_id(thread: usize) -> u32 {
    if thread == 0 { 0 } else { 100 + u32::try_from(thread).unwrap() }
}

fn info(thread: usize) -> ThreadInfo {
    let id = thread_id(thread);
    // Threads 1 and 2 belong to one process, and threads 3 and 4 belong to another process.
    let process = if thread == 0 { 0 } else { 100 + u32::try_from(thread - (thread + 1) % 2).unwrap() };
    ThreadInfo { thread: id, process, name: TaskName::new(format!("thread{thread}").as_bytes()) }
}

/// All intervals.
#[derive(Debug, Default)]
struct Intervals(Vec<Interval>);

impl TimelineObserver for Intervals {
    fn interval(&mut self, interval: &Interval, _: &CpuHistory) {
        self.0.push(*interval);
    }
}

fn add_all(payloads: &[(u64, SchedPayload)], observer: &mut impl TimelineObserver) -> Timeline {
    let mut timeline = Timeline::new();
    for (seq, payload) in payloads {
        timeline.add(*seq, &SchedBatch::read(&payload.bytes()).unwrap(), observer);
    }
    timeline
}

fn numbered(payloads: Vec<SchedPayload>) -> Vec<(u64, SchedPayload)> {
    (7..).zip(payloads).collect()
}

fn any_simulation() -> impl Strategy<Value = (Simulation, BTreeSet<u64>)> {
    let choices = prop::collection::vec(any::<u32>(), 1..200);
    let cuts = prop::collection::btree_set(0..500_000_u64, 0..12);
    (0..20_000_u64, choices, cuts).prop_map(|(begin_ns, choices, cuts)| {
        let simulation = Simulation::run(begin_ns, &choices);
        let cuts = cuts.into_iter().map(|cut| begin_ns + cut).collect();
        (simulation, cuts)
    })
}

proptest! {
    // Proves that the times of threads and CPUs in any window are the same as in the simulation,
    // however the events are divided into payloads. The threads that ran while other threads waited
    // are also the same.
    #[test]
    fn times_are_exact((simulation, cuts) in any_simulation(), from in 0..600_000_u64, length in 1..600_000_u64) {
        let window = from..from + length;
        let mut times = TaskTimes::new(window.clone());
        let timeline = add_all(&numbered(simulation.payloads(&cuts)), &mut times);
        times.reach(&timeline);
        let found: BTreeMap<u32, _> =
            times.threads().into_iter().map(|times| (times.task.info.thread, times)).collect();
        for thread in 1..simulation.states.len() {
            let expected = [TaskState::Running, TaskState::Ready, TaskState::Sleeping]
                .map(|state| simulation.time_in(thread, state, &window));
            let own = found.get(&thread_id(thread));
            let own = own.map(|own| [own.on_cpu_ns, own.ready_ns, own.sleeping_ns]).unwrap_or_default();
            prop_assert_eq!(own, expected, "thread {}", thread);
        }
        let known = overlap(&(simulation.begin_ns..simulation.now_ns), &window);
        for cpu in 0..CPUS {
            let cpu = times.cpus().get(&u16::try_from(cpu).unwrap()).copied().unwrap_or_default();
            prop_assert_eq!(cpu.busy_ns + cpu.idle_ns, known);
        }
        let blocked = simulation.blocked(&window);
        for thread in 1..simulation.states.len() {
            let id = thread_id(thread);
            let found: BTreeMap<u32, u64> = times
                .blockers(|info| info.thread == id)
                .into_iter()
                .map(|blocker| (blocker.info.thread, blocker.ns))
                .collect();
            let own = blocked.iter().filter(|((waiting, _), _)| *waiting == id);
            let expected: BTreeMap<u32, u64> = own.map(|((_, running), ns)| (*running, *ns)).collect();
            prop_assert_eq!(found, expected);
        }
        prop_assert_eq!(timeline.faults(), super::RecordingFaults::default());
    }

    // Proves that the intervals of each thread are consecutive, without a hole or an overlap, from
    // the start of the thread to its end. The intervals do not depend on how the events are divided
    // into payloads.
    #[test]
    fn intervals_are_whole((simulation, cuts) in any_simulation()) {
        let intervals = |cuts: &BTreeSet<u64>| {
            let mut found = Intervals::default();
            add_all(&numbered(simulation.payloads(cuts)), &mut found).finish(&mut found);
            found.0
        };
        let found = intervals(&cuts);
        let uncut = intervals(&BTreeSet::new());
        for (one, other) in found.iter().zip(&uncut) {
            prop_assert_eq!(one, other);
        }
        prop_assert_eq!(found.len(), uncut.len());
        let mut ends = BTreeMap::<u64, u64>::new();
        for interval in found.iter().filter(|interval| !interval.task.is_idle()) {
            prop_assert!(interval.begin_ns <= interval.end_ns);
            prop_assert_ne!(interval.end, IntervalEnd::Lost);
            let before = ends.insert(interval.task.number, interval.end_ns);
            prop_assert!(before.is_none_or(|before| before == interval.begin_ns), "{:?}", interval);
        }
    }

    // Proves that no interval covers the time of a missing payload, and that the times before and
    // after this payload are exact.
    #[test]
    fn gaps_are_not_bridged((simulation, cuts) in any_simulation(), missing in 0..12_usize) {
        let mut payloads = numbered(simulation.payloads(&cuts));
        prop_assume!(payloads.len() > 1);
        let (_, missing) = payloads.remove(missing % payloads.len());
        let gap = missing.begin_ns..missing.end_ns;
        let mut found = Intervals::default();
        add_all(&payloads, &mut found).finish(&mut found);
        for interval in &found.0 {
            prop_assert_eq!(interval.overlap_ns(&gap), 0, "{:?}", interval);
        }
        for thread in 1..simulation.states.len() {
            let ran = found.0.iter().filter(|interval| {
                interval.task.info.thread == thread_id(thread) && interval.state == TaskState::Running
            });
            let all = simulation.begin_ns..simulation.now_ns;
            let expected = simulation.time_in(thread, TaskState::Running, &all)
                - simulation.time_in(thread, TaskState::Running, &gap);
            prop_assert_eq!(ran.map(Interval::length_ns).sum::<u64>(), expected);
        }
    }

    // Proves that the counters of each sample equal the counters of the simulation at the time of
    // the sample. A thread that was active in a step is in the samples before and after this step.
    // If a limit is exceeded, this holds up to the first sample that is marked as incomplete.
    #[test]
    fn steps_are_exact(
        (simulation, cuts) in any_simulation(),
        offset_ns in prop_oneof![Just(0), any::<i64>()],
        limits in prop_oneof![
            Just((usize::MAX, usize::MAX)),
            (1_usize..9).prop_map(|parts| (parts, usize::MAX)),
            (1_usize..4).prop_map(|threads| (usize::MAX, threads)),
        ],
    ) {
        let step_ns = super::STEP_NS_MIN;
        let mut steps = TaskSteps::new(0);
        steps.set_offset(offset_ns);
        steps.set_limits(limits.0, limits.1);
        let mut whole = None;
        let mut timeline = Timeline::new();
        let mut samples: Vec<(u64, u64, BTreeMap<u32, [u64; 2]>)> = Vec::new();
        let mut take = |sample: &super::TaskSample<'_>| {
            let tasks = flatbuffers::root::<Tasks<'_>>(sample.payload).unwrap();
            let work = |thread: &ThreadWork| (thread.thread(), [thread.on_cpu(), thread.run_delay()]);
            if sample.is_cut && whole.is_none() {
                whole = Some(samples.len());
            }
            samples.push((sample.number, sample.time_ns, tasks.threads().iter().map(work).collect()));
        };
        for (seq, payload) in numbered(simulation.payloads(&cuts)) {
            timeline.add(seq, &SchedBatch::read(&payload.bytes()).unwrap(), &mut steps);
            steps.reach(&timeline, &mut take);
        }
        steps.finish(&mut take);
        let phase_ns = offset_ns.rem_euclid(step_ns.cast_signed()).unsigned_abs();
        let number = |at_ns: u64| (at_ns + phase_ns) / step_ns;
        let boundaries = number(simulation.now_ns) - number(simulation.begin_ns);
        prop_assert_eq!(samples.len() as u64, boundaries + 1);
        prop_assert!(whole.is_none() || limits != (usize::MAX, usize::MAX));
        samples.truncate(whole.unwrap_or(samples.len()));
        for (number, time_ns, threads) in &samples {
            for thread in 1..simulation.states.len() {
                let until = 0..*time_ns;
                let expected = [TaskState::Running, TaskState::Ready]
                    .map(|state| simulation.time_in(thread, state, &until));
                if let Some(found) = threads.get(&thread_id(thread)) {
                    prop_assert_eq!(found, &expected, "sample {}", number);
                }
            }
        }
        for pair in samples.windows(2) {
            let step = pair[0].1..pair[1].1;
            for thread in 1..simulation.states.len() {
                let active = simulation.time_in(thread, TaskState::Running, &step)
                    + simulation.time_in(thread, TaskState::Ready, &step);
                let is_there = |sample: &(u64, u64, BTreeMap<u32, [u64; 2]>)| sample.2.contains_key(&thread_id(thread));
                prop_assert!(active == 0 || (is_there(&pair[0]) && is_there(&pair[1])), "step {:?}", step);
            }
        }
    }

    // Proves that no payload makes the reader or the timeline panic, whatever its bytes.
    #[test]
    fn damaged_payloads_are_refused_or_read(
        (simulation, cuts) in any_simulation(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let mut steps = TaskSteps::new(10_000_000);
        let mut timeline = Timeline::new();
        for (seq, payload) in numbered(simulation.payloads(&cuts)) {
            let mut bytes = payload.bytes();
            for (place, value) in &damage {
                let place = place.index(bytes.len());
                bytes[place] = *value;
            }
            if let Ok(batch) = SchedBatch::read(&bytes) {
                timeline.add(seq, &batch, &mut steps);
                steps.reach(&timeline, |_| {});
            }
        }
        steps.finish(|_| {});
    }
}
