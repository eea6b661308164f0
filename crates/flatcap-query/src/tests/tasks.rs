//! Tests of the source that is computed from the events of the scheduler.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use flatcap_format::host::ClockReading;
use flatcap_format::replay::ReplayFilter;
use flatcap_format::segment::{SealState, SegmentName, SourceInfo};
use flatcap_format::testing::{Folder, TimedSample, compressed, example, write_samples};
use flatcap_tasks::schema::{SCHED, SCHED_ROOT, TaskEventKind};
use flatcap_tasks::testing::SchedPayload;
use flatcap_tasks::{TaskName, ThreadInfo};

use super::engine::cpu;
use super::*;

const MS: u64 = 1_000_000;
/// Time at which the events begin, in milliseconds.
const BEGIN_MS: u64 = 1_000;
/// Length of the time that one payload covers, in milliseconds.
const PAYLOAD_MS: u64 = 20;
const OFFSET_NS: i64 = 1_700_000_000_000_000_000;
const CPU_SCHEMA: &[u8] = include_bytes!("../../../../generated/host/cpu.bfbs");

/// Context switches between the idle loop, a worker thread and a thread that hogs the CPU. The
/// worker is ready from 2 ms on and runs from 5 ms on. The hog uses the worker's CPU from 30 to 65
/// ms. The worker runs again until 75 ms.
const SWITCHES: [(u64, u16, u16, bool); 5] =
    [(5, 0, 1, true), (30, 1, 2, true), (65, 2, 1, false), (75, 1, 0, false), (150, 0, 2, true)];
const FORKS: [(u64, u16); 2] = [(2, 1), (28, 2)];
const WAKEUPS: [(u64, u16); 1] = [(149, 2)];

/// The form of a segment's file, which is raw, compressed or still active.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Raw,
    Compressed,
    Active,
}

/// Counters of processes. The key is the time of the sample in milliseconds since the first event,
/// and the process id.
type Counters = BTreeMap<(u64, String), [u64; 3]>;

fn payload(number: u64) -> SchedPayload {
    let first_ms = number * PAYLOAD_MS;
    let is_own = |at_ms: &u64| (first_ms..first_ms + PAYLOAD_MS).contains(at_ms);
    let at_ns = |at_ms: u64| (BEGIN_MS + at_ms) * MS;
    let thread =
        |id, name: &str| ThreadInfo { thread: id, process: id, name: TaskName::new(name.as_bytes()) };
    let before = SWITCHES.iter().rev().find(|(at_ms, ..)| *at_ms < first_ms);
    SchedPayload {
        begin_ns: at_ns(first_ms),
        end_ns: at_ns(first_ms + PAYLOAD_MS),
        threads: vec![thread(0, "swapper"), thread(10, "worker"), thread(20, "hog")],
        running: vec![(0, before.map_or(0, |(_, _, next, _)| *next))],
        switches: (SWITCHES.iter().filter(|(at_ms, ..)| is_own(at_ms)))
            .map(|(at_ms, previous, next, is_preempted)| (at_ns(*at_ms), 0, *previous, *next, *is_preempted))
            .collect(),
        events: (FORKS.iter().filter(|(at_ms, _)| is_own(at_ms)))
            .map(|(at_ms, thread)| (at_ns(*at_ms), *thread, TaskEventKind::Fork))
            .collect(),
        wakeups: (WAKEUPS.iter().filter(|(at_ms, _)| is_own(at_ms)))
            .map(|(at_ms, thread)| (at_ns(*at_ms), 0, *thread, 0))
            .collect(),
        ..SchedPayload::default()
    }
}

/// Writes payloads of events, and one sample of `cpu` with each payload. Returns the path of the
/// segment.
fn write(folder: &Path, ids: (u64, u64), numbers: &[u64], form: Form) -> PathBuf {
    write_with(folder, ids, numbers, form, false)
}

/// Writes payloads like [`write`]. With `is_pushed`, adds a sample of an application's source
/// `tasks` to each payload.
fn write_with(
    folder: &Path,
    (segment, run_id): (u64, u64),
    numbers: &[u64],
    form: Form,
    is_pushed: bool,
) -> PathBuf {
    let mut header = example();
    (header.segment, header.run_id) = (segment, run_id);
    let clocks = ClockReading { mono_ns: 0, boot_ns: 0, wall_ns: OFFSET_NS };
    (header.clocks, header.clock_table) = (clocks, vec![clocks]);
    header.reorder_window_ns = MS;
    let source = |id, name: &str, (root, schema): (&str, &[u8])| SourceInfo {
        id,
        name: name.to_owned(),
        period_ns: PAYLOAD_MS * MS,
        root: root.to_owned(),
        schema: schema.to_vec(),
        next_seq: 0,
        ..example().sources[0].clone()
    };
    header.sources =
        vec![source(0, "cpu", ("flatcap.host.Cpu", CPU_SCHEMA)), source(1, "sched", (SCHED_ROOT, SCHED))];
    if is_pushed {
        let labels = vec![("client".to_owned(), "app".to_owned()), ("uid".to_owned(), "7".to_owned())];
        let pushed = source(2, "tasks", ("flatcap.host.Cpu", CPU_SCHEMA));
        header.sources.push(SourceInfo { labels, ..pushed });
    }
    let samples = numbers.iter().flat_map(|number| {
        let mono_ns = (BEGIN_MS + (number + 1) * PAYLOAD_MS) * MS + MS / 10;
        let wall_ns = OFFSET_NS + mono_ns.cast_signed();
        let of = |source, body| TimedSample {
            source,
            seq: *number,
            mono_ns,
            wall_ns,
            incomplete: flatcap_format::frame::Incomplete::NONE,
            body,
        };
        let own = [of(0, cpu(&[*number], 1)), of(1, payload(*number).bytes())];
        own.into_iter().chain(is_pushed.then(|| of(2, cpu(&[*number], 1))))
    });
    let name = SegmentName { number: segment, created_s: 0, run_id, state: SealState::Active };
    let writer = write_samples(folder, name, header, samples);
    if form == Form::Active {
        return folder.join(name.to_string());
    }
    let sealed = writer.seal().unwrap();
    sealed.publish(&Folder(folder.to_owned())).unwrap();
    let path = folder.join(sealed.name().to_string());
    if form == Form::Compressed {
        std::fs::write(&path, compressed(&path, 1500)).unwrap();
    }
    path
}

/// Queries the counters of processes, and returns them.
fn counters(recording: &Recording, query: &Query) -> Counters {
    let mut results = recording.query(query).unwrap();
    let mut found = Counters::new();
    while let Some(item) = results.next().unwrap() {
        let QueryItem::Batch(batch) = item else { continue };
        let table = &results.tables()[batch.table];
        if &*table.source != "tasks" || table.list.as_deref() != Some("processes[*]") {
            continue;
        }
        for row in 0..batch.rows() {
            let at_ms = batch.times.mono_ns[batch.sample(row)] / MS - BEGIN_MS;
            let value = |path: &str| {
                let column = table.columns.iter().position(|column| &*column.path == path).unwrap();
                match batch.columns[column].get(row) {
                    flatcap_format::schema::FieldValue::Unsigned(number) => number,
                    other => unreachable!("{other:?}"),
                }
            };
            let label = results.elements().label(batch.name(row).unwrap()).to_owned();
            let counts = [value("on_cpu"), value("run_delay"), value("switches") * MS];
            found.insert((at_ms, label), counts.map(|count| count / MS));
        }
    }
    found
}

fn asking(fields: &[&str]) -> Query {
    Query { fields: fields.iter().map(|field| field.parse().unwrap()).collect(), ..Query::default() }
}

fn of_tasks() -> Query {
    let filter = ReplayFilter { sources: ["tasks".to_owned()].into(), ..ReplayFilter::default() };
    Query { filter, ..Query::default() }
}

/// Returns the expected counters of both processes, at intervals of 10 ms. The counters are the
/// time on CPU, the time ready, and the number of times that the process stopped running.
fn expected() -> Counters {
    let worker = "worker[10]";
    let hog = "hog[20]";
    let rows = [
        (0, worker, [0, 0, 0]),
        (10, worker, [5, 3, 0]),
        (20, worker, [15, 3, 0]),
        (20, hog, [0, 0, 0]),
        (30, worker, [25, 3, 0]),
        (30, hog, [0, 2, 0]),
        (40, worker, [25, 13, 1]),
        (40, hog, [10, 2, 0]),
        (50, worker, [25, 23, 1]),
        (50, hog, [20, 2, 0]),
        (60, worker, [25, 33, 1]),
        (60, hog, [30, 2, 0]),
        (70, worker, [30, 38, 1]),
        (70, hog, [35, 2, 1]),
        (80, worker, [35, 38, 2]),
        (140, hog, [35, 2, 1]),
        (150, hog, [35, 3, 1]),
        (160, hog, [45, 3, 1]),
        (170, hog, [55, 3, 1]),
        (180, hog, [65, 3, 1]),
        (190, hog, [75, 3, 1]),
        (200, hog, [85, 3, 1]),
    ];
    rows.map(|(at_ms, label, counts)| ((at_ms, label.to_owned()), counts)).into()
}

// Proves that each sample has the exact counters of the threads of each process at the time of the
// sample. The test uses raw, compressed and unsealed segments, and different numbers of segments.
#[test]
fn samples_are_exact_in_all_forms() {
    let numbers: Vec<u64> = (0..10).collect();
    for form in [Form::Raw, Form::Compressed, Form::Active] {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), (1, 5), &numbers, form);
        let recording = Recording::open(&[folder.path().to_owned()]).unwrap();
        assert_eq!(counters(&recording, &of_tasks()), expected(), "{form:?}");
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), (1, 5), &numbers[..3], Form::Compressed);
        write(folder.path(), (2, 5), &numbers[3..], form);
        let recording = Recording::open(&[folder.path().to_owned()]).unwrap();
        assert_eq!(counters(&recording, &of_tasks()), expected(), "{form:?}, two segments");
    }
}

// Proves that a query returns the computed source if the query names the source or a field of the
// source. A query of all fields does not return the computed source. Also proves that the fields of
// the source are listed.
#[test]
fn it_is_there_for_those_who_ask() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), (1, 5), &[0, 1, 2, 3], Form::Raw);
    let recording = Recording::open(&[folder.path().to_owned()]).unwrap();
    let sources = |query: &Query| {
        let mut results = recording.query(query).unwrap();
        while results.next().unwrap().is_some() {}
        let mut names: Vec<String> = results.tables().iter().map(|table| table.source.to_string()).collect();
        names.dedup();
        names
    };
    assert_eq!(sources(&Query::default()), ["cpu", "sched"]);
    assert_eq!(sources(&of_tasks()), ["tasks"]);
    assert_eq!(sources(&asking(&["on_cpu", "forks"])), ["cpu", "tasks"]);
    // The list of threads contains the values of processes in more detail.
    let mut results = recording.query(&asking(&["on_cpu"])).unwrap();
    while results.next().unwrap().is_some() {}
    let paths = |results: &QueryResults| -> Vec<String> {
        let tables = results.tables().iter();
        tables.flat_map(|table| table.columns.iter().map(|column| table.path(column))).collect()
    };
    assert_eq!(paths(&results), ["processes[*].on_cpu"]);
    let fields = recording.fields();
    let tasks = fields.iter().find(|source| source.source == "tasks").unwrap();
    assert!(tasks.is_computed && tasks.fields.iter().any(|field| field.path == "threads[*].run_delay"));
    assert!(recording.query(&asking(&["tasks.nothing"])).is_err());
}

// Proves that a pushed source with the name of the computed source does not hide the computed
// source. Both sources have columns. The columns of the recorded source have the id of this source,
// and the name of this source is reported.
#[test]
fn a_recorded_source_does_not_hide_it() {
    let numbers: Vec<u64> = (0..10).collect();
    for form in [Form::Raw, Form::Compressed, Form::Active] {
        let folder = tempfile::tempdir().unwrap();
        write_with(folder.path(), (1, 5), &numbers, form, true);
        let recording = Recording::open(&[folder.path().to_owned()]).unwrap();
        assert_eq!(counters(&recording, &of_tasks()), expected(), "{form:?}");
        let mut results = recording.query(&of_tasks()).unwrap();
        while results.next().unwrap().is_some() {}
        let mut instances: Vec<Option<u16>> = results.tables().iter().map(|table| table.instance).collect();
        instances.sort_unstable();
        instances.dedup();
        assert_eq!(instances, [None, Some(2)], "{form:?}");
        let fields = recording.fields();
        let named: Vec<bool> = fields
            .iter()
            .filter(|source| source.source == "tasks")
            .map(|source| source.is_computed)
            .collect();
        assert_eq!(named, [true, false]);
        let remarks = recording.name_remarks();
        let [remark] = remarks.as_slice() else { panic!("{remarks:?}") };
        assert_eq!((remark.source.as_str(), &remark.field), ("tasks", &None));
        assert!(remark.what.ends_with("paths name this one by its id: 2"), "{remark:?}");
    }
}

// Proves that a query of a part of the time returns the samples of this part, with the same counter
// growth as in a query of the whole time. This is true even if all events of the part are in
// earlier or later payloads.
#[test]
fn a_part_of_the_time_is_as_in_the_whole() {
    let folder = tempfile::tempdir().unwrap();
    let numbers: Vec<u64> = (0..10).collect();
    write(folder.path(), (1, 5), &numbers, Form::Compressed);
    let recording = Recording::open(&[folder.path().to_owned()]).unwrap();
    let mut query = of_tasks();
    let wall_ns = |at_ms: u64| Some(OFFSET_NS + ((BEGIN_MS + at_ms) * MS).cast_signed());
    (query.filter.since_ns, query.filter.until_ns) = (wall_ns(35), wall_ns(70));
    let part = expected().into_iter().filter(|((at_ms, _), _)| (35..70).contains(at_ms)).collect();
    assert_eq!(counters(&recording, &query), part);
}

// Proves that samples at steps shorter than the period are exact, and that the rate of a time
// counter is a share of one core.
#[test]
fn steps_may_be_shorter() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), (1, 5), &[0, 1, 2, 3, 4], Form::Raw);
    let recording = Recording::open(&[folder.path().to_owned()]).unwrap();
    let query = Query { computed_step_ns: Some(MS), ..of_tasks() };
    let found = counters(&recording, &query);
    assert_eq!(found[&(28, "worker[10]".to_owned())], [24, 3, 0]);
    assert_eq!(found[&(30, "hog[20]".to_owned())], [1, 2, 0]);
    let steps = Some(Steps { step_ns: MS, aggregate: None });
    let options = RowOptions { is_rate: true, is_long: true, steps, ..RowOptions::default() };
    let mut rows = recording.rows(&asking(&["on_cpu"]), options).unwrap();
    let mut shares = BTreeMap::new();
    while let Some(item) = rows.next().unwrap() {
        let RowItem::Row(stamp) = item else { continue };
        let HeldValue::Float(share) = rows.values()[0] else { continue };
        let label = rows.label(stamp.element.unwrap()).to_owned();
        shares.insert((stamp.mono_ns / MS - BEGIN_MS, label), share);
    }
    // The row of a step has the changes within this step.
    for (at_ms, label, share) in
        [(5, "worker[10]", 1e9), (4, "worker[10]", 0.0), (30, "hog[20]", 1e9), (30, "worker[10]", 0.0)]
    {
        let found = shares[&(at_ms, label.to_owned())];
        assert!((found - share).abs() < 1.0, "{at_ms} {label}: {found}");
    }
}

// Proves that there are no samples for the time of a missing payload, and that runs are kept
// separate.
#[test]
fn holes_and_runs_are_kept_apart() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), (1, 5), &[0, 1, 3, 4], Form::Raw);
    write(folder.path(), (1, 6), &[0, 1], Form::Active);
    let recording = Recording::open(&[folder.path().to_owned()]).unwrap();
    let mut results = recording.query(&asking(&["tasks.processes[*].on_cpu"])).unwrap();
    let (mut runs, mut numbers) = (0, Vec::new());
    while let Some(item) = results.next().unwrap() {
        match item {
            QueryItem::Run(_) => runs += 1,
            QueryItem::Batch(batch) => numbers.extend(batch.times.seq),
            _ => {}
        }
    }
    assert_eq!(runs, 2);
    // The events from 40 to 60 ms are missing.
    let first = [100, 101, 102, 103, 104, 106, 107, 108, 109, 110];
    let second = [100, 101, 102, 103, 104];
    assert_eq!(numbers, [&first[..], &second[..]].concat());
}

// Proves that an overview of a computed field contains the extrema of the rate of this field.
#[test]
fn overviews_have_them() {
    let folder = tempfile::tempdir().unwrap();
    let numbers: Vec<u64> = (0..10).collect();
    write(folder.path(), (1, 5), &numbers, Form::Compressed);
    let recording = Recording::open(&[folder.path().to_owned()]).unwrap();
    let request = OverviewRequest {
        values: vec!["tasks.processes[*].run_delay".parse().unwrap()],
        wall_ns: OFFSET_NS + (BEGIN_MS * MS).cast_signed()..OFFSET_NS + ((BEGIN_MS + 300) * MS).cast_signed(),
        pixels: 100,
        is_rate: true,
        host: None,
    };
    let overview = recording.overview(&request, &mut OverviewCache::new(1 << 20)).unwrap();
    let largest = |label: &str| {
        let series = overview.series.iter().find(|series| series.label.as_deref() == Some(label)).unwrap();
        let values = series.rows.iter().filter_map(|row| match row {
            OverviewRow::Pixel(values) => Some(values.max),
            OverviewRow::Gap(_) => None,
        });
        values.fold(0.0, f64::max)
    };
    assert!((largest("worker[10]") - 1e9).abs() < 1.0);
    assert!((largest("hog[20]") - 2e8).abs() < 1.0);
}

// Proves that the events are read unchanged, with their kind.
#[test]
fn events_are_read() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), (1, 5), &[0, 1, 2], Form::Compressed);
    let recording = Recording::open(&[folder.path().to_owned()]).unwrap();
    let mut reader = recording.kernel_events(&ReplayFilter::default(), |_| true).unwrap().unwrap();
    let (mut runs, mut switches) = (0, 0);
    while let Some(item) = reader.next().unwrap() {
        match item {
            KernelItem::Run(_) => runs += 1,
            KernelItem::Payload(KernelSource::Scheduler, sample) => {
                switches += flatcap_tasks::SchedBatch::read(sample.payload).unwrap().switches();
            }
            KernelItem::Payload(..) => unreachable!("there are no other events"),
            _ => {}
        }
    }
    assert_eq!((runs, switches), (1, 2));
    assert!(
        recording
            .kernel_events(&ReplayFilter::default(), |kind| kind == KernelSource::Log)
            .unwrap()
            .is_none()
    );
}
