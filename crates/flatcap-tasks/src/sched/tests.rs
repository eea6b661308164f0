//! Tests of the timeline on incomplete recordings.

use super::*;
use crate::generated::kernel::TaskEventKind;
use crate::task::{TaskName, ThreadInfo};
use crate::testing::SchedPayload;

/// Collects intervals as strings of thread, state, start, end and the reason of the end.
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

/// Collects the ids of tasks and their names.
struct Numbers<'n>(&'n mut Vec<(u64, String)>);

impl TimelineObserver for Numbers<'_> {
    fn interval(&mut self, interval: &Interval, _: &CpuHistory) {
        if !interval.task.is_idle() {
            self.0.push((
                interval.task.number,
                String::from_utf8(interval.task.info.name.as_bytes().to_vec()).unwrap(),
            ));
        }
    }
}

fn thread(thread: u32, process: u32, name: &str) -> ThreadInfo {
    ThreadInfo { thread, process, name: TaskName::new(name.as_bytes()) }
}

/// Returns a payload that lists the idle loop, thread 1 of process 1, and thread 2 of process 2.
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

// Proves that if a thread stops running on a CPU whose state is unknown, the thread is assumed to
// have run there since the start of the payload. Without wakeups, a wait is counted as sleep.
#[test]
fn the_first_switch_says_who_ran() {
    let switches = vec![(30, 0, 1, 0, false), (60, 0, 0, 1, false)];
    let only = SchedPayload { switches, lacks_wakeups: true, ..payload(10, 100) };
    let (found, faults) = intervals(&[(0, only)]);
    assert_eq!(found, ["1 Running 10-30 Slept", "1 Sleeping 30-60 Ran", "1 Running 60-100 Open"]);
    assert!(faults.lacks_wakeups);
}

// Proves that if a payload is missing, no interval covers the time of this payload.
#[test]
fn missing_payloads_end_everything() {
    let first = SchedPayload { running: vec![(0, 1)], ..payload(0, 100) };
    let later = SchedPayload { running: vec![(0, 1)], ..payload(200, 300) };
    let (found, faults) = intervals(&[(0, first.clone()), (2, later.clone())]);
    assert_eq!(found, ["1 Running 0-100 Lost", "1 Running 200-300 Open"]);
    assert_eq!(faults.gaps, 1);
    // The numbers are consecutive, but the times are not, because the source was reopened.
    let (found, _) = intervals(&[(0, first), (1, later)]);
    assert_eq!(found, ["1 Running 0-100 Lost", "1 Running 200-300 Open"]);
}

// Proves that a CPU that a payload does not list does not stay busy with its last thread forever.
// The CPU is offline, as happens during a suspend.
#[test]
fn a_cpu_that_is_away_runs_nothing() {
    for away in [1, u16::MAX] {
        let first = SchedPayload { running: vec![(0, 1), (away, 2)], ..payload(0, 100) };
        let next = SchedPayload { running: vec![(0, 1)], ..payload(100, 200) };
        let (found, _) = intervals(&[(0, first), (1, next)]);
        assert_eq!(found, ["2 Running 0-0 Lost", "1 Running 0-200 Open"]);
    }
}

// Proves that a thread that waits while it exits does not sleep forever afterwards. The record of
// the thread's end precedes the last switches of the thread.
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

// Proves that a switch that contradicts the known state ends this state. The state ends at the time
// at which it was last known.
#[test]
fn lost_records_end_what_they_contradict() {
    let first = SchedPayload { running: vec![(0, 1)], ..payload(0, 100) };
    // The switch from thread 1 to thread 2 is missing.
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

// Proves that the list of running threads at the start of a payload corrects the known state.
#[test]
fn the_running_threads_are_taken_over() {
    let first = SchedPayload { running: vec![(0, 1), (1, 0)], ..payload(0, 100) };
    let second = SchedPayload { running: vec![(0, 2), (1, 1)], ..payload(100, 200) };
    let (found, _) = intervals(&[(0, first), (1, second)]);
    assert_eq!(found, ["1 Running 0-0 Lost", "2 Running 100-200 Open", "1 Running 100-200 Open"]);
}

// Proves that no interval covers time in which switches were not recorded.
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

// Proves that holes have the right cause and are merged across payloads. Holes may begin before the
// window, and end in the window.
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

// Proves that if the recording of switches is stopped at the start, there are no intervals until it
// resumes.
#[test]
fn a_recording_may_begin_stopped() {
    let stopped =
        SchedPayload { running: vec![(0, 1)], stopped_ns: 500, is_stopped: true, ..payload(0, 100) };
    let resumed = SchedPayload { running: vec![(0, 2)], stopped_ns: 500, ..payload(100, 200) };
    let (found, _) = intervals(&[(0, stopped), (1, resumed)]);
    assert_eq!(found, ["2 Running 100-200 Open"]);
}

// Proves that a reused thread id is another task, with and without a record of the end of the first
// thread.
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

// Proves that a time earlier than the latest time so far is replaced by the latest time, within a
// payload and between two payloads.
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

// Proves that the indexes and times of a payload are checked.
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

// Proves that a thread that is preempted while it exits does not stay ready forever. The kernel may
// release the id of such a thread before the thread runs for the last time. If the thread runs
// again under its id, this is recorded.
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
