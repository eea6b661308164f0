//! Tests the answers of the CPU timeline and its drawing in a browser.

use std::path::Path;

use flatcap_format::schema::text_of;
use flatcap_tasks::testing::SchedPayload;
use flatcap_tasks::{IntervalEnd, ThreadInfo};
use serde_json::Value;

use super::api_request::{TasksRequest, WallRange};
use super::served_page::{ServedPage, TOKEN};
use super::tasks_answer::{CELLS_MAX, SLICES_MAX, THREADS_MAX, TasksAnswer, TracksAnswer};
use super::tasks_reader::TasksReader;
use super::tests::run_browser;
use super::worker::PAGE_ANSWER_BYTES_MAX;
use crate::test_recording::{START_MONO_NS, wall_of, write_sched};
use crate::test_schedule::{Schedule, samples, thread};
use crate::tracks::{SchedSource, Stretch, StretchKind, TrackCell, TrackSlice, WaitCell, Waited};

/// A thread name with a color escape, markup, a right-to-left override and a bell.
const HOSTILE: &str = "\x1b[31m<b>\u{202e}\x07";
/// Start and length of the only time slice in which the thread `blip` runs.
const BLIP_NS: u64 = START_MONO_NS + 1_000_123_000;
const BLIP_LENGTH_NS: u64 = 3_000;
/// Indices of the lost samples, from 300 to 400 ms.
const LOST: std::ops::Range<usize> = 30..40;
/// Length of the recording.
const LENGTH_NS: u64 = 2_000_000_000;

/// Returns a schedule of two seconds on four CPUs.
fn schedule() -> Schedule {
    let idle = thread(0, 0, "");
    let (postgres, kworker) = (thread(812, 812, "postgres"), thread(33, 33, "kworker/0:1"));
    let mut schedule = Schedule::default();
    schedule.run((0..200).flat_map(|_| [(postgres, 5_000_000, false), (idle, 5_000_000, true)]));
    let billing = [thread(901, 900, "billing"), thread(902, 900, "billing-io")];
    schedule.run((0..1000).map(|turn| (billing[turn % 2], 2_000_000, true)));
    let blip_at = BLIP_NS - START_MONO_NS;
    schedule.run([
        (idle, blip_at, true),
        (thread(777, 777, "blip"), BLIP_LENGTH_NS, false),
        (idle, LENGTH_NS - blip_at - BLIP_LENGTH_NS, true),
    ]);
    let hostile = thread(666, 666, HOSTILE);
    // More switches than the maximum number of slices in an answer.
    schedule.run((0..5000).flat_map(|_| [(hostile, 40_000, true), (kworker, 360_000, false)]));
    for turn in 0..200 {
        schedule.wakeups.push((
            START_MONO_NS + 10_000_000 * turn - 20_000 * turn.min(1),
            3,
            postgres,
            kworker,
        ));
    }
    schedule.wakeups.push((BLIP_NS - 20_000, 3, thread(777, 777, "blip"), kworker));
    schedule
}

/// Returns the payloads of the schedule, each of 10 ms. In some of the payloads, the kernel reports
/// dropped events.
fn payloads() -> Vec<SchedPayload> {
    let cuts: Vec<u64> = (1..200).map(|cut| START_MONO_NS + cut * 10_000_000).collect();
    let mut payloads = schedule().payloads(&cuts);
    payloads.iter_mut().skip(60).for_each(|payload| payload.lost = 17);
    payloads
}

fn write_schedule(folder: &Path) {
    let mut samples = samples(&payloads());
    samples.drain(LOST);
    write_sched(folder, &samples);
}

fn request(from_ns: i64, to_ns: i64, pixels: u32, process: Option<u32>) -> TasksRequest {
    TasksRequest { wall_ns: WallRange { from_ns, to_ns }, pixels, process }
}

/// Returns a complete answer, repeating the request as the page does.
fn answer(reader: &mut TasksReader, folder: &Path, request: &TasksRequest) -> TasksAnswer {
    let source = SchedSource { paths: vec![folder.to_owned()], host: None, name: "sched".to_owned() };
    loop {
        let answer = reader.read(&source, false, request).unwrap();
        if answer.is_complete {
            return answer;
        }
    }
}

/// Decodes an answer as the page does, into its header and the bytes of its columns.
fn decoded(bytes: &[u8]) -> (Value, &[u8]) {
    let length = u32::from_le_bytes(bytes[..4].try_into().unwrap()) as usize;
    assert_eq!((4 + length) % 8, 0, "columns are aligned");
    (serde_json::from_slice(&bytes[4..4 + length]).unwrap(), &bytes[4 + length..])
}

// Proves that a slice of 3 us within two seconds is shown at every zoom. In a long range, the
// thread of the slice is the thread of its pixel, with its share. In a short range, the slice has
// its begin, length and waits.
#[test]
fn one_switch_is_seen_at_every_zoom() {
    let folder = tempfile::tempdir().unwrap();
    write_schedule(folder.path());
    let mut reader = TasksReader::default();
    let (begin, end) = (wall_of(START_MONO_NS), wall_of(START_MONO_NS + LENGTH_NS));
    let blip = wall_of(BLIP_NS);
    for pixels in [1, 7, 100, 1536] {
        let all = answer(&mut reader, folder.path(), &request(begin, end, pixels, Some(777)));
        let TracksAnswer::Pixels(tracks) = &all.tracks else { panic!("{SLICES_MAX} slices are the limit") };
        assert_eq!(tracks.len(), 4);
        let (_, cells) = &tracks[2];
        let threads: Vec<&TrackCell> = cells.iter().filter(|cell| cell.threads > 0).collect();
        assert!(!threads.is_empty() && threads.len() <= 2, "{pixels}: {threads:?}");
        assert_eq!(threads.iter().map(|cell| cell.own_ns).sum::<u64>(), BLIP_LENGTH_NS);
        assert_eq!(threads[0].top.unwrap().0, thread(777, 777, "blip"));
        assert_eq!(decoded(&all.encode()).0["is_exact"], false);
    }
    let close = answer(&mut reader, folder.path(), &request(blip - 2000, blip + 2000, 1000, None));
    let TracksAnswer::Slices(tracks) = &close.tracks else { panic!("few slices are sent as they are") };
    let slice = tracks[2].1.iter().find(|slice| slice.thread.thread == 777).unwrap();
    assert_eq!((slice.begin_ns, slice.end_ns), (blip, blip + BLIP_LENGTH_NS.cast_signed()));
    assert_eq!(slice.end, IntervalEnd::Slept);
    assert_eq!(
        (slice.waited.ready_ns, slice.waited.waker),
        (Some(20_000), Some(thread(33, 33, "kworker/0:1")))
    );
}

// Proves that a time that was not recorded has a range with its cause, and no cells. Also proves
// that a timeline is reused while the page scrolls, and that its pixels equal the pixels of a new
// reader.
#[test]
fn moving_on_reads_the_same() {
    let folder = tempfile::tempdir().unwrap();
    write_schedule(folder.path());
    let mut moving = TasksReader::default();
    let begin = wall_of(START_MONO_NS);
    for (step, length) in (0..12).flat_map(|step| [(step, 600_000_000), (step, 1_700_000_000)]) {
        let from = begin + step * 70_000_000;
        let request = request(from, from + length, 300, None);
        let mut fresh = TasksReader::default();
        let wanted = answer(&mut fresh, folder.path(), &request);
        assert_eq!(answer(&mut moving, folder.path(), &request), wanted, "step {step}");
        let kinds: Vec<_> = wanted.stretches.iter().map(|stretch| (stretch.kind, stretch.lost)).collect();
        let has_gap = from < begin + 400_000_000;
        assert_eq!(kinds.contains(&(StretchKind::NotRecorded, 0)), has_gap);
        let has_lost = from < begin + 610_000_000 && from + length > begin + 600_000_000;
        assert_eq!(kinds.contains(&(StretchKind::Lost, 17)), has_lost, "step {step}: {kinds:?}");
    }
}

// Proves that the largest answers fit the size limit, even with names in which every byte is
// escaped.
#[test]
fn answers_fit_their_limit() {
    let hostile = |at: usize| thread(u32::MAX - u32::try_from(at).unwrap(), u32::MAX, &"\x01".repeat(15));
    let stretch =
        Stretch { kind: StretchKind::Stopped, begin_ns: i64::MIN, end_ns: i64::MAX, lost: u64::MAX };
    let answer = |tracks| TasksAnswer {
        pixel_ns: i64::MAX,
        first_ns: i64::MIN,
        is_complete: false,
        has_wakeups: false,
        left_out: usize::MAX,
        unreadable: u64::MAX,
        stretches: vec![stretch; 256],
        waiting: vec![WaitCell { waited_ns: u64::MAX, longest_ns: u64::MAX }; 1536],
        tracks,
    };
    for cpus in [1, 21, 1024] {
        let cell = |at: usize| TrackCell {
            known_ns: u64::MAX,
            busy_ns: u64::MAX,
            own_ns: 1,
            top: Some((hostile(at), u64::MAX)),
            top_process_ns: u64::MAX,
            threads: u32::MAX,
            switches: u32::MAX,
        };
        let rows = CELLS_MAX / cpus;
        let track = |cpu: usize| {
            (u16::MAX - u16::try_from(cpu).unwrap(), (0..rows).map(|row| cell(cpu * rows + row)).collect())
        };
        let bytes = answer(TracksAnswer::Pixels((0..cpus).map(track).collect())).encode();
        assert!(bytes.len() <= PAGE_ANSWER_BYTES_MAX, "{cpus} CPUs: {} bytes", bytes.len());
        let (header, columns) = decoded(&bytes);
        assert_eq!(header["threads"].as_array().unwrap().len(), THREADS_MAX.min(cpus * rows));
        let own = 1536 * 16 + rows.next_multiple_of(4) * 2 * 6;
        assert_eq!(columns[own..own + 2], [1, 0], "a nanosecond of a pixel is not nothing");
    }
    let slice = |at: usize| TrackSlice {
        thread: hostile(at % THREADS_MAX),
        begin_ns: i64::MIN,
        end_ns: i64::MAX,
        end: IntervalEnd::Open,
        waited: Waited { ready_ns: None, slept_ns: Some(u64::MAX), waker: Some(hostile(0)) },
    };
    let slices = (0..SLICES_MAX).map(slice).collect();
    let bytes = answer(TracksAnswer::Slices(vec![(0, slices)])).encode();
    assert!(bytes.len() <= PAGE_ANSWER_BYTES_MAX, "{} bytes", bytes.len());
    assert_eq!(decoded(&bytes).0["threads"][0][2], "\x01".repeat(15));
}

// Proves that with many CPUs each gets fewer pixels, and no CPU is left out.
#[test]
fn many_cpus_share_the_pixels() {
    let folder = tempfile::tempdir().unwrap();
    let mut schedule = Schedule::default();
    for cpu in 0..200 {
        let own = |at: u32| thread(1 + cpu * 2 + at % 2, 5, "own");
        schedule.run((0..60).map(|at| (own(at), 1000, true)));
    }
    write_sched(folder.path(), &samples(&schedule.payloads(&[])));
    let begin = wall_of(START_MONO_NS);
    let request = request(begin, begin + 60_000, 1536, Some(5));
    let answer = answer(&mut TasksReader::default(), folder.path(), &request);
    let TracksAnswer::Pixels(tracks) = &answer.tracks else { panic!("{SLICES_MAX} slices are the limit") };
    assert_eq!((tracks.len(), answer.left_out), (200, 0));
    assert!(tracks.iter().map(|(_, cells)| cells.len()).sum::<usize>() <= CELLS_MAX);
    assert!(tracks.iter().all(|(_, cells)| cells.iter().map(|cell| cell.own_ns).sum::<u64>() == 60_000));
}

// Proves that the API reports whether there is a timeline, and that names from the recording are
// sent as JSON. Also proves that the API refuses a timeline without switches, with an error that
// says what to do.
#[test]
fn the_api_has_the_timeline() {
    let without = ServedPage::new();
    assert_eq!(without.json("sources")["has_tasks"], false);
    let (head, body) = without.get("tasks?from=1&to=2&px=9");
    assert!(head.starts_with("HTTP/1.1 404"), "{head}");
    assert!(String::from_utf8(body).unwrap().contains("record the source sched"));
    let page = ServedPage::of(write_schedule);
    assert_eq!(page.json("sources")["has_tasks"], true);
    let (from, to) = (wall_of(BLIP_NS - 1_000_000), wall_of(BLIP_NS + 1_000_000));
    let header = loop {
        let (head, body) = page.get(&format!("tasks?from={from}&to={to}&px=800"));
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        let (header, _) = decoded(&body);
        if header["is_complete"] == true {
            break header;
        }
    };
    let has = |info: ThreadInfo| {
        let wanted = serde_json::json!([info.thread, info.process, text_of(info.name.as_bytes())]);
        header["threads"].as_array().unwrap().contains(&wanted)
    };
    assert!(has(thread(666, 666, HOSTILE)) && has(thread(777, 777, "blip")), "{header}");
    // The causes that are shown for a selection come from the same events.
    let (from, to) = (wall_of(BLIP_NS - 100_000_000), wall_of(BLIP_NS + 100_000_000));
    let found = page.json(&format!("explain?from={from}&to={to}"));
    let billing = &found["tasks"]["processes"][0];
    assert_eq!((&billing["pid"], &billing["name"]), (&900.into(), &"billing".into()), "{found}");
    assert_eq!(found["waits"][0]["meanwhile"][0]["pid"], 900, "{found}");
    assert!(found.get("stacks").is_none() && found.get("log").is_none(), "{found}");
}

// Proves in a real browser that the timeline draws each CPU. One slice of 3 us is drawn at every
// zoom and shown under the cursor with its time and waits. Keys and a click find the slice and
// highlight its process. Names are shown as text, a zoom sends one request, and the timeline fits a
// width of 400 pixels.
#[test]
fn the_timeline_shows_who_ran_in_a_browser() {
    let page = ServedPage::of(write_schedule);
    let (from, length) = (wall_of(BLIP_NS).to_string(), BLIP_LENGTH_NS.to_string());
    let gap = wall_of(START_MONO_NS + 350_000_000).to_string();
    run_browser("timeline.mjs", &page, &[TOKEN, &from, &length, &gap]);
}
