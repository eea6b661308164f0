//! Compares the counter of lost samples with a naive sum of the gaps of a recording.

use std::collections::BTreeMap;
use std::io::IoSlice;
use std::path::Path;

use flatcap_format::frame::{ENVELOPE_BYTES, Envelope, Incomplete, Stamp};
use flatcap_format::host::{ClockReading, HostName};
use flatcap_format::schema::segment::GapCause;
use flatcap_format::segment::{
    Frames, Gap, SampleSpan, SealState, SegmentHeader, SegmentName, SegmentWriter, SourceInfo, SourceKind,
};
use flatcap_format::testing::Folder;
use flatcap_promql::{Engine, EvaluationOptions, QueryValue, TimeGrid};
use flatcap_query::Recording;
use flatcap_stream::{ChecksumKind, Framer};
use proptest::prelude::*;

const BEGIN_MS: i64 = 1_700_000_000_000;
const MONO_NS: u64 = 1_000_000_000;
/// Duration of a run, and time between the end of a run and the begin of the next run.
const RUN_MS: i64 = 60_000;
const PAUSE_MS: i64 = 30_000;
const SOURCES: [&str; 2] = ["cpu", "orders"];

/// The losses of a run. Each has the source, the time since the begin of the run in milliseconds,
/// the number of samples, and whether they were left out on purpose.
type RunLosses = Vec<(u16, i64, u64, bool)>;

fn begin_ms(run: usize) -> i64 {
    BEGIN_MS + i64::try_from(run).unwrap() * (RUN_MS + PAUSE_MS)
}

fn header(run_id: u64, wall_ns: i64) -> SegmentHeader {
    let clocks = ClockReading { mono_ns: MONO_NS, boot_ns: MONO_NS, wall_ns };
    let source = |(id, name): (u16, &str)| SourceInfo {
        id,
        name: name.into(),
        labels: Vec::new(),
        kind: SourceKind::Synthetic,
        period_ns: 0,
        root: String::new(),
        schema: Vec::new(),
        next_seq: 0,
    };
    SegmentHeader {
        segment: run_id,
        run_id,
        host: HostName { name: "db1".into(), machine_id: None, boot_id: None, labels: Vec::new() },
        agent_version: "0".into(),
        checksum: ChecksumKind::Xxh3,
        frame_max: 1 << 20,
        clocks,
        reorder_window_ns: 0,
        sources: (0..).zip(SOURCES).map(source).collect(),
        clock_table: vec![clocks],
        recorder_pid: 0,
    }
}

/// Writes a run with these losses. If `has_samples` is true, the run has a sample of the first
/// source at its begin and at its end; otherwise it has no samples.
fn write_run(folder: &Path, run: usize, losses: &RunLosses, has_samples: bool) {
    let storage = Folder(folder.to_owned());
    let run_id = u64::try_from(run).unwrap() + 1;
    let wall_ns = begin_ms(run) * 1_000_000;
    let name = SegmentName { number: run_id, created_s: 0, run_id, state: SealState::Active };
    let mut segment = SegmentWriter::create(&storage, name, header(run_id, wall_ns), &[], 0).unwrap();
    let kind = segment.checksum();
    for (seq, elapsed_ns) in [(0, 0), (1, RUN_MS * 1_000_000)].into_iter().filter(|_| has_samples) {
        let (mono_ns, wall_ns) = (MONO_NS + elapsed_ns.unsigned_abs(), wall_ns + elapsed_ns);
        let stamp = Stamp { mono_ns, wall_ns, seq, incomplete: Incomplete::NONE, duration_ns: 9 };
        let mut payload = vec![0; ENVELOPE_BYTES];
        Envelope::new(0).write(&mut payload, &stamp, &[]);
        let mut frame = Vec::new();
        kind.frame_and_write(&mut frame, &payload).unwrap();
        let (pieces, header) = (&mut [IoSlice::new(&frame)], &frame[..kind.frame_bytes(0)]);
        segment.append(Frames { pieces, headers: &[header], count: 1 }).unwrap();
        segment.count_samples(0, 1, SampleSpan::of(seq, mono_ns, wall_ns));
    }
    let gaps = losses.iter().map(|(source, ms, count, is_thinned)| Gap {
        source: *source,
        first: 5,
        count: *count,
        causes: if *is_thinned { GapCause::Thinned.bits() } else { GapCause::QueueFull.bits() },
        after_mono_ns: MONO_NS,
        before_mono_ns: MONO_NS + ms.unsigned_abs() * 1_000_000,
    });
    segment.append_gaps(&gaps.collect::<Vec<_>>()).unwrap();
    segment.append_index(0).unwrap();
    segment.seal().unwrap().publish(&storage).unwrap();
}

/// Returns the values of an expression, by source.
fn evaluated(folder: &Path, expression: &str, grid: TimeGrid) -> BTreeMap<String, Vec<Option<f64>>> {
    let engine = Engine::new(Recording::open(&[folder.to_owned()]).unwrap());
    let answer = engine.evaluate(expression, grid, &EvaluationOptions::default()).unwrap();
    let QueryValue::Vector(series) = answer.value else { panic!("{expression}") };
    series.into_iter().map(|series| (series.labels.get("source").to_owned(), series.values)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    // Proves that at each step the counter is the number of samples lost until then in all runs.
    // Samples that were left out on purpose do not count. The counter has no value while no
    // recorder runs.
    #[test]
    fn the_counter_is_the_sum_of_the_gaps(
        runs in prop::collection::vec(
            prop::collection::vec((0_u16..2, 1..RUN_MS, 1_u64..1000, any::<bool>()), 0..6),
            1..4,
        ),
        step_ms in 700_i64..9000,
    ) {
        let folder = tempfile::tempdir().unwrap();
        for (run, losses) in runs.iter().enumerate() {
            write_run(folder.path(), run, losses, true);
        }
        let end_ms = begin_ms(runs.len());
        let grid = TimeGrid::range(BEGIN_MS, end_ms, step_ms).unwrap();
        let found = evaluated(folder.path(), "flatcap_lost_total", grid);
        let lost_until = |source: u16, ms: i64| -> u64 {
            let losses = runs.iter().enumerate().flat_map(|(run, losses)| {
                losses.iter().map(move |(of, at_ms, count, thinned)| (*of, begin_ms(run) + at_ms, *count, *thinned))
            });
            let own = losses.filter(|(of, at_ms, _, thinned)| *of == source && *at_ms <= ms && !thinned);
            own.map(|(_, _, count, _)| count).sum()
        };
        for (id, source) in (0..).zip(SOURCES) {
            for (step, value) in found[source].iter().enumerate() {
                let ms = grid.at(step);
                let is_running = (0..runs.len()).any(|run| (begin_ms(run)..=begin_ms(run) + RUN_MS).contains(&ms));
                #[expect(clippy::cast_precision_loss, reason = "small numbers")]
                let expected = is_running.then(|| lost_until(id, ms) as f64);
                prop_assert_eq!(*value, expected, "{} at {}", source, ms - BEGIN_MS);
            }
        }
    }
}

// Proves that windows see the growth of the counter, and that other metrics do not contain it.
#[test]
fn windows_contain_the_losses() {
    let folder = tempfile::tempdir().unwrap();
    write_run(folder.path(), 0, &vec![(1, 20_000, 300, false), (1, 50_000, 7, false)], true);
    let at = TimeGrid::instant(BEGIN_MS + 60_000);
    let grown = evaluated(
        folder.path(),
        "max_over_time(flatcap_lost_total[1m]) - min_over_time(flatcap_lost_total[1m])",
        at,
    );
    assert_eq!(grown["orders"], [Some(307.0)]);
    assert_eq!(grown["cpu"], [Some(0.0)]);
    let increase = evaluated(folder.path(), "increase(flatcap_lost_total{source=\"orders\"}[20s])", at);
    assert_eq!(increase["orders"], [Some(7.0)]);
    assert!(evaluated(folder.path(), "flatcap_load_tasks", at).is_empty());
}

// Proves that a run that recorded nothing does not hide the losses of the next run.
#[test]
fn a_run_without_samples_ends() {
    let folder = tempfile::tempdir().unwrap();
    write_run(folder.path(), 0, &vec![(1, 1000, 5, false)], false);
    write_run(folder.path(), 1, &vec![(1, 1000, 300, false)], true);
    let value_at =
        |ms| evaluated(folder.path(), "flatcap_lost_total", TimeGrid::instant(ms)).remove("orders");
    assert_eq!(value_at(begin_ms(0) + 1000), Some(vec![Some(5.0)]));
    assert_eq!(value_at(begin_ms(0) + 2000), None);
    assert_eq!(value_at(begin_ms(1) + 2000), Some(vec![Some(305.0)]));
}
