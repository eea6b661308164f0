//! Properties that must hold for any payloads. The functions are the entry points of `fuzz/`, and
//! tests also call them.
//!
//! Only tests and the feature `fuzzing` compile this module, and releases do not. The input is a
//! sequence of payloads. Each payload is preceded by one byte, and by its length as two bytes,
//! little-endian. The one byte is [`NEW_RUN`], or the difference between the sequence numbers of
//! this payload and the previous payload.

use std::collections::HashMap;

use crate::generated::kernel::root_as_tasks;
use crate::{
    CpuHistory, HoleCause, Interval, KnownCode, LogBatch, PayloadError, ProfileBatch, RecordingHole,
    RecordingHoles, SchedBatch, StackTotals, TaskState, TaskSteps, TaskTimes, TaskWakeup, Timeline,
    TimelineObserver,
};

/// Value of the byte before a payload that belongs to another run.
const NEW_RUN: u8 = u8::MAX;
/// A window that contains all events. The next constant is a window that cuts off some of the
/// events near time 0.
const ALL_NS: std::ops::Range<u64> = 0..u64::MAX;
const CUT_NS: std::ops::Range<u64> = 150..1_000;
/// Interval between two samples of [`TaskSteps`]. The next constant is the maximum number of these
/// samples in one payload.
const STEP_NS: u64 = 1_000_000_000;
const STEPS_MAX: usize = 63;

/// Reads payloads of the source `sched` and derives times, steps and holes from them.
///
/// # Panics
/// Panics if the derived results are inconsistent.
pub fn sched(data: &[u8]) {
    let mut timeline = Timeline::new();
    let mut observed = ObservedTimes::new();
    let (mut seq, mut threads, mut batches, mut samples) = (0_u64, 0, 0, 0);
    let mut check_step = |payload: &[u8]| {
        samples += 1;
        assert!(root_as_tasks(payload).is_ok(), "a sample of the steps cannot be read");
    };
    for (step, payload) in payloads(data) {
        if step == NEW_RUN {
            timeline.begin_run(&mut observed);
            observed.begin_run();
        }
        seq = seq.wrapping_add(step.into());
        let Some(batch) = checked(SchedBatch::read(payload)) else { continue };
        (threads, batches) = (threads + batch.threads().len(), batches + 1);
        timeline.add(seq, &batch, &mut observed);
        observed.steps.reach(&timeline, |sample| check_step(sample.payload));
        observed.cut.reach(&timeline);
        assert!(timeline.sleeping().count() <= threads, "more threads are known than there were");
        assert!(timeline.stretch().end <= timeline.now_ns());
    }
    observed.steps.finish(|sample| check_step(sample.payload));
    assert!(samples <= batches * STEPS_MAX, "{samples} samples of {batches} payloads");
    observed.all.reach(&timeline);
    observed.check();
    let holes: Vec<RecordingHole> = observed.holes.holes().collect();
    assert!(holes.len() <= 4 * batches);
    let lost = holes.iter().filter_map(|hole| match hole.cause {
        HoleCause::LostRecords(records) => Some(records),
        HoleCause::Stopped | HoleCause::MissingSamples => None,
    });
    let lost = lost.fold(0_u64, u64::saturating_add);
    assert!(lost <= timeline.faults().lost, "holes have more lost records than there were");
    timeline.finish(&mut observed);
}

/// Reads payloads of the source `profile` and sums their call chains.
///
/// # Panics
/// Panics if the sums are inconsistent or exceed the input.
pub fn profile(data: &[u8]) {
    let (mut all, mut cut) = (StackTotals::new(ALL_NS), StackTotals::new(CUT_NS));
    let (mut known, mut samples, mut bytes) = (KnownCode::default(), 0, 0);
    for (_, payload) in payloads(data) {
        let Some(batch) = checked(ProfileBatch::read(payload)) else { continue };
        all.add(&batch);
        cut.add(&batch);
        known.add(&batch);
        samples += batch.samples().filter(|sample| ALL_NS.contains(&sample.time_ns)).count();
        bytes += payload.len();
    }
    assert_eq!(usize::try_from(all.samples()), Ok(samples));
    assert!(cut.samples() <= all.samples() && cut.total_ns() <= all.total_ns());
    let stacks = all.stacks().len();
    all.complete_objects(&known);
    assert!(all.stacks().len() <= stacks);
    for totals in [&all, &cut] {
        assert!(totals.stacks().len() <= samples && totals.frames().len() <= bytes);
        assert!(totals.objects().len() <= bytes);
        let frames = totals.stacks().into_iter().flat_map(|stack| stack.frames.iter());
        for frame in frames {
            let object = totals.frame(*frame).and_then(|frame| totals.object(frame));
            assert!(object.is_some(), "a call chain has a place that is not known");
        }
        let of_file = totals.functions(|object, _| Some(object.path.to_string()));
        for function in of_file.iter().chain(&totals.functions(|_, _| None)) {
            assert!(function.self_ns <= function.total_ns && function.total_ns <= totals.total_ns());
            assert!(totals.frame(function.frame).is_some());
        }
    }
}

/// Reads payloads of the source `kmsg`.
///
/// # Panics
/// Panics if a payload has more lines than bytes.
pub fn kmsg(data: &[u8]) {
    for (_, payload) in payloads(data) {
        let Some(batch) = checked(LogBatch::read(payload)) else { continue };
        let lines = batch.lines();
        assert!(lines.len() <= payload.len(), "more lines than bytes");
        for line in lines {
            assert!(line.text.len() <= payload.len(), "a text that is longer than its payload");
        }
    }
}

/// Returns the payloads, each with the byte before it. The last payload may be truncated.
fn payloads(data: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    let mut rest = data;
    std::iter::from_fn(move || {
        let ([step, low, high], after) = rest.split_first_chunk()?;
        let length = usize::from(u16::from_le_bytes([*low, *high])).min(after.len());
        let (payload, after) = after.split_at_checked(length)?;
        rest = after;
        Some((*step, payload))
    })
}

/// Returns the batch, or checks that the error has a message.
fn checked<T>(read: Result<T, PayloadError>) -> Option<T> {
    read.inspect_err(|error| assert!(!error.to_string().is_empty())).ok()
}

fn check_times(times: &TaskTimes) {
    let window_ns = times.window().end - times.window().start;
    for thread in times.threads() {
        let sum = u128::from(thread.on_cpu_ns) + u128::from(thread.ready_ns) + u128::from(thread.sleeping_ns);
        assert!(sum <= u128::from(window_ns), "a thread did more than there is time: {thread:?}");
        assert!(thread.longest_ready_ns <= window_ns && thread.preemptions <= thread.switches);
    }
    for (cpu, own) in times.cpus() {
        let sum = u128::from(own.busy_ns) + u128::from(own.idle_ns);
        assert!(sum <= u128::from(window_ns), "CPU {cpu} did more than there is time");
    }
    let processes = times.processes();
    assert!(processes.is_sorted_by(|one, next| one.on_cpu_ns >= next.on_cpu_ns));
    assert!(times.blocking_processes(|_| true).len() <= times.blockers(|_| true).len());
}

/// Derives all results from a timeline, and checks that they are consistent.
struct ObservedTimes {
    all: TaskTimes,
    cut: TaskTimes,
    steps: TaskSteps,
    holes: RecordingHoles,
    /// The end of the last interval of each task. The next field contains the end of the last
    /// interval of each CPU.
    task_ends: HashMap<u64, u64>,
    cpu_ends: HashMap<u16, u64>,
}

impl ObservedTimes {
    fn new() -> Self {
        Self {
            all: TaskTimes::new(ALL_NS),
            cut: TaskTimes::new(CUT_NS),
            steps: TaskSteps::new(STEP_NS),
            holes: RecordingHoles::new(ALL_NS),
            task_ends: HashMap::new(),
            cpu_ends: HashMap::new(),
        }
    }

    /// Checks the collected times and then discards them, because the clock of another run may be
    /// at an earlier time.
    fn begin_run(&mut self) {
        self.check();
        (self.all, self.cut) = (TaskTimes::new(ALL_NS), TaskTimes::new(CUT_NS));
        self.cpu_ends.clear();
    }

    fn check(&self) {
        for times in [&self.all, &self.cut] {
            check_times(times);
        }
    }
}

impl TimelineObserver for ObservedTimes {
    fn interval(&mut self, interval: &Interval, history: &CpuHistory) {
        let Interval { task, state, cpu, begin_ns, end_ns, .. } = *interval;
        assert!(begin_ns <= end_ns, "an interval ends before it begins: {interval:?}");
        if !task.is_idle() {
            let before_ns = self.task_ends.insert(task.number, end_ns);
            assert!(before_ns.is_none_or(|before_ns| before_ns <= begin_ns), "an overlap: {interval:?}");
        }
        if let Some(cpu) = cpu.filter(|_| state == TaskState::Running) {
            let before_ns = self.cpu_ends.insert(cpu, end_ns);
            assert!(before_ns.is_none_or(|before_ns| before_ns <= begin_ns), "two ran: {interval:?}");
        }
        self.all.interval(interval, history);
        self.cut.interval(interval, history);
        self.steps.interval(interval, history);
    }

    fn wakeup(&mut self, wakeup: &TaskWakeup) {
        assert!(!wakeup.task.is_idle(), "the idle loop was made ready");
    }

    fn hole(&mut self, hole: &RecordingHole) {
        assert!(hole.begin_ns < hole.end_ns);
        self.holes.hole(hole);
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use proptest::prelude::*;

    use super::*;
    use crate::generated::kernel::{CodeKind, TaskEventKind};
    use crate::task::{TaskName, ThreadInfo};
    use crate::testing::{KmsgPayload, ProfilePayload, SchedPayload};

    /// Encodes payloads as input of the entry points.
    fn joined(payloads: &[(u8, Vec<u8>)]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (step, payload) in payloads {
            bytes.push(*step);
            bytes.extend(u16::try_from(payload.len()).unwrap().to_le_bytes());
            bytes.extend(payload);
        }
        bytes
    }

    fn threads() -> Vec<ThreadInfo> {
        let thread = |thread, process, name: &[u8]| ThreadInfo { thread, process, name: TaskName::new(name) };
        vec![thread(0, 0, b"idle"), thread(7, 7, b"shell"), thread(8, 7, b"worker"), thread(9, 9, b"")]
    }

    fn scheduled() -> Payloads {
        let first = SchedPayload {
            begin_ns: 100,
            end_ns: 200,
            threads: threads(),
            running: vec![(0, 0), (1, 1)],
            switches: vec![(110, 0, 0, 2, true), (150, 0, 2, 3, false), (160, 1, 1, 0, true)],
            wakeups: vec![(105, 1, 2, 1)],
            events: vec![(140, 3, TaskEventKind::Fork), (145, 3, TaskEventKind::Exec)],
            ..SchedPayload::default()
        };
        let exit = SchedPayload {
            begin_ns: 200,
            end_ns: 300,
            running: vec![(0, 3), (1, 0)],
            switches: vec![(230, 0, 3, 1, false)],
            events: vec![(220, 3, TaskEventKind::Exit)],
            lost: 2,
            ..first.clone()
        };
        let empty = SchedPayload { threads: threads(), ..SchedPayload::default() };
        let stopped = SchedPayload {
            begin_ns: 300,
            end_ns: 400,
            stopped_ns: 60,
            is_stopped: true,
            lost: 2,
            ..empty.clone()
        };
        let resumed =
            SchedPayload { begin_ns: 400, end_ns: 500, stopped_ns: 90, lost: u64::MAX, ..empty.clone() };
        let after_gap = SchedPayload {
            begin_ns: 900,
            end_ns: 2_000_000_000,
            running: vec![(0, 1)],
            lacks_wakeups: true,
            ..empty
        };
        let payloads = [first, exit, stopped, resumed].map(|payload| (1, payload.bytes()));
        payloads.into_iter().chain([(3, after_gap.bytes()), (NEW_RUN, after_gap.bytes())]).collect()
    }

    fn profiled() -> Payloads {
        let payload = ProfilePayload {
            begin_ns: 100,
            end_ns: 200,
            interval_ns: 10,
            threads: threads(),
            samples: vec![(110, 1, 0, 0), (120, 2, 1, 1), (190, 1, 0, 2)],
            stacks: vec![vec![1, 0], vec![2, 1, 1, 0], vec![]],
            frames: vec![(0, 0x100), (0, 0x200), (1, 0x300)],
            objects: vec![
                (CodeKind::File, "/usr/bin/program".to_owned(), vec![0xAB; 20]),
                (CodeKind::Kernel, "[kernel]".to_owned(), Vec::new()),
            ],
            lost: 0,
            versions: Vec::new(),
        };
        let long = ProfilePayload { interval_ns: u64::MAX, lost: 5, ..payload.clone() };
        vec![(1, payload.bytes()), (1, long.bytes())]
    }

    fn logged() -> Payloads {
        let lines = vec![(5, 1, 3, "sda: I/O error".to_owned()), (6, 2, 6, String::new())];
        vec![
            (1, KmsgPayload { lines, lost: 0 }.bytes()),
            (1, KmsgPayload { lines: Vec::new(), lost: 9 }.bytes()),
        ]
    }

    type Entry = fn(&[u8]);
    /// Payloads, each with the byte that precedes it.
    type Payloads = Vec<(u8, Vec<u8>)>;

    /// Returns each entry point with its name and seeds.
    fn targets() -> [(&'static str, Entry, Payloads); 3] {
        [("sched", sched, scheduled()), ("profile", profile, profiled()), ("kmsg", kmsg, logged())]
    }

    // Proves that the properties hold for the seeds, that all seeds can be read, and that the seeds
    // in fuzz/corpus are current. With FLATCAP_CORPUS=write, the test writes the seeds.
    #[test]
    fn the_corpus_has_the_seeds() {
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
        if !corpus.exists() {
            return println!("skipped: no corpus in {}", corpus.display());
        }
        for (target, entry, payloads) in targets() {
            let is_read = |payload: &[u8]| match target {
                "sched" => SchedBatch::read(payload).is_ok(),
                "profile" => ProfileBatch::read(payload).is_ok(),
                _ => LogBatch::read(payload).is_ok(),
            };
            assert!(payloads.iter().all(|(_, payload)| is_read(payload)), "{target}");
            let seeds = [("first", joined(&payloads[..1])), ("all", joined(&payloads))];
            for (name, seed) in seeds {
                entry(&seed);
                let path = corpus.join(target).join(name);
                if std::env::var_os("FLATCAP_CORPUS").is_some_and(|value| value == "write") {
                    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                    std::fs::write(&path, &seed).unwrap();
                }
                let is_current = std::fs::read(&path).is_ok_and(|bytes| bytes == seed);
                assert!(is_current, "{} is not the seed: FLATCAP_CORPUS=write", path.display());
            }
        }
    }

    fn any_ns() -> impl Strategy<Value = u64> {
        prop_oneof![4 => 0..2_000_u64, 1 => any::<u64>()]
    }

    /// Returns a strategy for payloads with mostly valid indexes and arbitrary numbers.
    fn any_sched() -> impl Strategy<Value = SchedPayload> {
        let (cpu, thread) = (0..3_u16, 0..4_u16);
        let kinds = prop_oneof![
            Just(TaskEventKind::Fork),
            Just(TaskEventKind::Exit),
            Just(TaskEventKind::Exec),
            Just(TaskEventKind::Rename)
        ];
        let switch = (any_ns(), cpu.clone(), thread.clone(), thread.clone(), any::<bool>());
        let wakeup = (any_ns(), cpu.clone(), thread.clone(), thread.clone());
        let lists = (
            prop::collection::vec((cpu, thread.clone()), 0..3),
            prop::collection::vec(switch, 0..12),
            prop::collection::vec(wakeup, 0..6),
            prop::collection::vec((any_ns(), thread, kinds), 0..6),
        );
        let state = (any_ns(), any_ns(), any::<bool>(), any::<bool>());
        ((any_ns(), 0..600_u64), lists, state).prop_map(|((begin_ns, length_ns), lists, state)| {
            let (running, mut switches, mut wakeups, mut events) = lists;
            switches.sort_unstable();
            wakeups.sort_unstable();
            events.sort_by_key(|event| event.0);
            let (lost, stopped_ns, is_stopped, lacks_wakeups) = state;
            let end_ns = begin_ns.saturating_add(length_ns);
            let threads = threads();
            SchedPayload {
                begin_ns,
                end_ns,
                threads,
                running,
                switches,
                wakeups,
                events,
                lacks_wakeups,
                lost,
                stopped_ns,
                is_stopped,
            }
        })
    }

    fn any_step() -> impl Strategy<Value = u8> {
        prop_oneof![6 => Just(1), 1 => 0..4_u8, 1 => Just(NEW_RUN)]
    }

    proptest! {
        // Proves that any valid payloads of the source `sched`, in any order and with any numbers,
        // give consistent results.
        #[test]
        fn sched_holds_for_any_values(
            payloads in prop::collection::vec((any_step(), any_sched()), 0..12),
        ) {
            let payloads: Payloads =
                payloads.into_iter().map(|(step, payload)| (step, payload.bytes())).collect();
            sched(&joined(&payloads));
        }

        // Proves that no bytes make a reader of a source panic or return more than the input
        // contains.
        #[test]
        fn readers_hold_for_any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
            for (_, entry, _) in targets() {
                entry(&bytes);
                entry(&joined(&[(1, bytes.clone())]));
            }
        }

        // Proves that damaged, truncated or repeated payloads do not make a reader panic or return
        // more than the input contains.
        #[test]
        fn readers_hold_for_damaged_payloads(
            damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
            cut in any::<prop::sample::Index>(),
            is_cut: bool,
            repeated in 1..3_usize,
        ) {
            for (_, entry, payloads) in targets() {
                let mut bytes = joined(&vec![payloads; repeated].concat());
                for (place, value) in &damage {
                    let place = place.index(bytes.len());
                    bytes[place] = *value;
                }
                if is_cut {
                    bytes.truncate(cut.index(bytes.len()));
                }
                entry(&bytes);
            }
        }
    }
}
