//! What the timeline says where the recording lacks something.

use super::*;
use crate::generated::kernel::TaskEventKind;
use crate::task::{TaskName, ThreadInfo};
use crate::testing::SchedPayload;

/// Intervals as text: thread, state, begin, end, why it ended.
#[derive(Debug, Default)]
struct Texts(Vec<String>);

impl TimelineObserver for Texts {
    fn interval(&mut self, interval: &Interval, _: &CpuHistory) {
        if !interval.task.is_idle() {
            let Interval { task, state, begin_ns, end_ns, end, .. } = interval;
            self.0.push(format!("{} {state:?} {begin_ns}-{end_ns} {end:?}", task.info.thread));
        }
    }
}

/// Numbers of tasks, and their names.
struct Numbers<'n>(&'n mut Vec<(u64, String)>);

impl TimelineObserver for Numbers<'_> {
    fn interval(&mut self, interval: &Interval, _: &CpuHistory) {
        if !interval.task.is_idle() {
            self.0.push((interval.task.number, interval.task.info.name.to_string()));
        }
    }
}

fn thread(thread: u32, process: u32, name: &str) -> ThreadInfo {
    ThreadInfo { thread, process, name: TaskName::new(name.as_bytes()) }
}

/// A payload with the idle loop, and threads 1 and 2 of the processes 1 and 2.
fn payload(begin_ns: u64, end_ns: u64) -> SchedPayload {
    let threads = vec![thread(0, 0, "swapper"), thread(1, 1, "one"), thread(2, 2, "two")];
    SchedPayload { begin_ns, end_ns, threads, ..SchedPayload::default() }
}

fn intervals(payloads: &[(u64, SchedPayload)]) -> (Vec<String>, RecordingFaults) {
    let (mut timeline, mut texts) = (Timeline::new(), Texts::default());
    for (seq, payload) in payloads {
        timeline.add(*seq, &SchedBatch::read(&payload.bytes()).unwrap(), &mut texts);
    }
    let faults = timeline.faults();
    timeline.finish(&mut texts);
    (texts.0, faults)
}

// Proves that a thread which stops running on a CPU about which nothing is known has run there from
// the begin on, and that without wakeups a wait counts as sleep.
#[test]
fn the_first_switch_says_who_ran() {
    let switches = vec![(30, 0, 1, 0, false), (60, 0, 0, 1, false)];
    let only = SchedPayload { switches, lacks_wakeups: true, ..payload(10, 100) };
    let (found, faults) = intervals(&[(0, only)]);
    assert_eq!(found, ["1 Running 10-30 Slept", "1 Sleeping 30-60 Ran", "1 Running 60-100 Open"]);
    assert!(faults.lacks_wakeups);
}

// Proves that after a payload that is missing nothing is claimed of the time in between.
#[test]
fn missing_payloads_end_everything() {
    let first = SchedPayload { running: vec![(0, 1)], ..payload(0, 100) };
    let later = SchedPayload { running: vec![(0, 1)], ..payload(200, 300) };
    let (found, faults) = intervals(&[(0, first.clone()), (2, later.clone())]);
    assert_eq!(found, ["1 Running 0-100 Lost", "1 Running 200-300 Open"]);
    assert_eq!(faults.gaps, 1);
    // The numbers follow each other, and the times do not: the source was opened again.
    let (found, _) = intervals(&[(0, first), (1, later)]);
    assert_eq!(found, ["1 Running 0-100 Lost", "1 Running 200-300 Open"]);
}

// Proves that a CPU which a payload leaves out is not busy for ever with what ran there last: it is
// away, as during a suspend.
#[test]
fn a_cpu_that_is_away_runs_nothing() {
    for away in [1, u16::MAX] {
        let first = SchedPayload { running: vec![(0, 1), (away, 2)], ..payload(0, 100) };
        let next = SchedPayload { running: vec![(0, 1)], ..payload(100, 200) };
        let (found, _) = intervals(&[(0, first), (1, next)]);
        assert_eq!(found, ["2 Running 0-0 Lost", "1 Running 0-200 Open"]);
    }
}

// Proves that a thread which waits while it exits does not sleep for ever afterwards: the record of
// its end comes before its last switches.
#[test]
fn a_thread_may_wait_while_it_exits() {
    let exiting = SchedPayload {
        running: vec![(0, 1)],
        events: vec![(10, 1, TaskEventKind::Exit)],
        switches: vec![(20, 0, 1, 0, false), (60, 0, 0, 1, false), (70, 0, 1, 0, false)],
        wakeups: vec![(50, 0, 1, 0)],
        ..payload(0, 100)
    };
    let (found, _) = intervals(&[(0, exiting)]);
    assert_eq!(found, ["1 Running 0-20 Exited", "1 Ready 50-60 Ran", "1 Running 60-70 Exited"]);
}

// Proves that a switch which contradicts what was known ends it where it was known last.
#[test]
fn lost_records_end_what_they_contradict() {
    let first = SchedPayload { running: vec![(0, 1)], ..payload(0, 100) };
    // That thread 1 stopped and thread 2 began is missing.
    let second = SchedPayload {
        running: vec![(0, 1)],
        switches: vec![(150, 0, 2, 1, true)],
        lost: 2,
        ..payload(100, 200)
    };
    let (found, faults) = intervals(&[(0, first), (1, second)]);
    assert_eq!(found, ["1 Running 0-100 Lost", "1 Running 150-200 Open", "2 Ready 150-200 Open"]);
    assert_eq!(faults.lost, 2);
}

// Proves that the begin of a payload corrects who runs.
#[test]
fn the_running_threads_are_taken_over() {
    let first = SchedPayload { running: vec![(0, 1), (1, 0)], ..payload(0, 100) };
    let second = SchedPayload { running: vec![(0, 2), (1, 1)], ..payload(100, 200) };
    let (found, _) = intervals(&[(0, first), (1, second)]);
    assert_eq!(found, ["1 Running 0-0 Lost", "2 Running 100-200 Open", "1 Running 100-200 Open"]);
}

// Proves that nothing is claimed of the time in which switches were not recorded.
#[test]
fn stops_end_everything() {
    let running = vec![(0, 1)];
    let payloads = [
        SchedPayload { running: running.clone(), ..payload(0, 100) },
        SchedPayload { running, stopped_ns: 60, is_stopped: true, ..payload(100, 200) },
        SchedPayload { stopped_ns: 160, is_stopped: true, ..payload(200, 300) },
        SchedPayload { stopped_ns: 190, switches: vec![(350, 0, 2, 1, false)], ..payload(300, 400) },
    ];
    let (found, faults) = intervals(&(0..).zip(payloads).collect::<Vec<_>>());
    assert_eq!(
        found,
        [
            "1 Running 0-140 Lost",
            "2 Running 330-350 Slept",
            "1 Running 350-400 Open",
            "2 Sleeping 350-400 Open"
        ]
    );
    assert_eq!(faults.stopped_ns, 190);
}

fn holes(window: std::ops::Range<u64>, payloads: &[(u64, SchedPayload)]) -> Vec<RecordingHole> {
    let (mut timeline, mut holes) = (Timeline::new(), RecordingHoles::new(window));
    for (seq, payload) in payloads {
        timeline.add(*seq, &SchedBatch::read(&payload.bytes()).unwrap(), &mut holes);
    }
    assert_eq!(holes.further(), 0);
    holes.holes().collect()
}

// Proves that times in which switches were not recorded have their cause, are one over several
// payloads, begin where they did and end in the window.
#[test]
fn holes_have_causes() {
    let payloads = [
        (0, SchedPayload { lost: 1, ..payload(0, 100) }),
        (1, SchedPayload { lost: 1, stopped_ns: 60, is_stopped: true, ..payload(100, 200) }),
        (2, SchedPayload { lost: 1, stopped_ns: 160, is_stopped: true, ..payload(200, 300) }),
        (3, SchedPayload { lost: 1, stopped_ns: 190, ..payload(300, 400) }),
        (4, SchedPayload { lost: 3, stopped_ns: 190, ..payload(400, 500) }),
        (5, SchedPayload { lost: 8, stopped_ns: 190, ..payload(500, 600) }),
        (7, SchedPayload { lost: 8, stopped_ns: 190, ..payload(700, 800) }),
    ];
    let hole = |begin_ns, end_ns, cause| RecordingHole { begin_ns, end_ns, cause };
    let (stopped, lost) = (hole(140, 330, HoleCause::Stopped), HoleCause::LostRecords(7));
    let missing = hole(600, 700, HoleCause::MissingSamples);
    assert_eq!(holes(0..1_000, &payloads), [stopped, hole(400, 600, lost), missing]);
    assert_eq!(holes(200..300, &payloads), [RecordingHole { end_ns: 300, ..stopped }]);
    assert_eq!(holes(450..550, &payloads), [hole(400, 550, lost)]);
    assert_eq!(holes(330..400, &payloads), []);
    assert_eq!(holes(699..700, &payloads), [missing]);
    assert_eq!(holes(0..140, &payloads), []);
}

// Proves that a recording that begins stopped claims nothing, and goes on when it was resumed.
#[test]
fn a_recording_may_begin_stopped() {
    let stopped =
        SchedPayload { running: vec![(0, 1)], stopped_ns: 500, is_stopped: true, ..payload(0, 100) };
    let resumed = SchedPayload { running: vec![(0, 2)], stopped_ns: 500, ..payload(100, 200) };
    let (found, _) = intervals(&[(0, stopped), (1, resumed)]);
    assert_eq!(found, ["2 Running 100-200 Open"]);
}

// Proves that a thread id that is given again is another task, with and without the end of the
// first one.
#[test]
fn ids_are_given_again() {
    let exit = TaskEventKind::Exit;
    let first = SchedPayload {
        running: vec![(0, 1)],
        events: vec![(40, 1, exit)],
        switches: vec![(50, 0, 1, 0, false)],
        ..payload(0, 100)
    };
    let mut second = SchedPayload {
        events: vec![(110, 1, TaskEventKind::Fork)],
        switches: vec![(120, 0, 0, 1, false)],
        ..payload(100, 200)
    };
    second.threads[1] = thread(1, 7, "new");
    let mut numbers = Vec::new();
    let mut timeline = Timeline::new();
    for (seq, payload) in [(0, &first), (1, &second)] {
        timeline.add(seq, &SchedBatch::read(&payload.bytes()).unwrap(), &mut Numbers(&mut numbers));
    }
    timeline.finish(&mut Numbers(&mut numbers));
    let expected = [(1, "one"), (2, "new"), (2, "new")].map(|(number, name)| (number, name.to_owned()));
    assert_eq!(numbers, expected);
    let (found, _) = intervals(&[(0, first), (1, second)]);
    assert_eq!(found, ["1 Running 0-50 Exited", "1 Ready 110-120 Ran", "1 Running 120-200 Open"]);
}

// Proves that times that step back are taken for the latest one so far, in a payload and between
// two.
#[test]
fn times_never_step_back() {
    let first = SchedPayload {
        running: vec![(0, 1)],
        wakeups: vec![(60, 1, 2, 1)],
        switches: vec![(50, 0, 1, 2, true), (40, 0, 2, 1, false)],
        ..payload(0, 100)
    };
    let second = SchedPayload { running: vec![(0, 1)], ..payload(95, 200) };
    let (found, faults) = intervals(&[(0, first), (1, second)]);
    assert_eq!(
        found,
        [
            "1 Running 0-50 Preempted",
            "2 Running 50-50 Slept",
            "1 Ready 50-50 Ran",
            "2 Sleeping 50-60 Woken",
            "1 Running 50-200 Open",
            "2 Ready 60-200 Open"
        ]
    );
    assert_eq!(faults.gaps, 0);
}

// Proves that indexes and times of a payload are checked.
#[test]
fn payloads_are_checked() {
    let error = |payload: SchedPayload| SchedBatch::read(&payload.bytes()).unwrap_err().to_string();
    let outside = SchedPayload { switches: vec![(5, 0, 1, 3, false)], ..payload(0, 10) };
    assert_eq!(error(outside), "switches has the index 3 of threads, which has 3 elements");
    assert_eq!(error(payload(10, 9)), "the payload begins at 10 ns and ends at 9 ns");
    let long = error(payload(0, crate::PAYLOAD_NS_MAX + 1));
    assert_eq!(long, "the payload is about 60000000001 ns, the limit is 60000000000 ns");
    assert_eq!(
        SchedBatch::read(&[1, 2, 3]).unwrap_err().to_string(),
        "the payload is not valid by its schema"
    );
}

// Proves that a thread which is preempted while it exits is not ready for ever: the kernel may take
// its id away before it runs for the last time. If it runs again under its id, that is known.
#[test]
fn a_thread_that_exits_does_not_wait() {
    let events = vec![(40, 1, TaskEventKind::Exit)];
    let first = [(10, 0, 0, 1, false), (50, 0, 1, 2, true)];
    let gone = SchedPayload { switches: first.to_vec(), events: events.clone(), ..payload(0, 100) };
    let expected = ["1 Running 10-50 Preempted", "2 Running 50-100 Open"];
    assert_eq!(intervals(&[(0, gone)]).0, expected);
    let switches = [&first[..], &[(60, 0, 2, 1, true), (70, 0, 1, 2, false)]].concat();
    let back = SchedPayload { switches, events, ..payload(0, 100) };
    let (found, _) = intervals(&[(0, back)]);
    assert!(found.contains(&"1 Running 60-70 Exited".to_owned()), "{found:?}");
    assert!(!found.iter().any(|text| text.starts_with("1 Ready") || text.starts_with("1 Sleeping")));
}
