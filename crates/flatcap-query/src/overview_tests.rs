//! Compares overviews with a walk over all values.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use flatcap_format::host::ClockReading;
use flatcap_format::schema::segment::GapCause;
use flatcap_format::segment::{Gap, SealState, SegmentName};
use flatcap_format::testing::{Folder, TimedSample, compressed, effort, example};
use proptest::prelude::*;

use super::engine_tests::{cpu, write_segment};
use super::*;

const PERIOD_NS: u64 = 50_000_000;
/// As documented: a hole is longer than four periods for a source, and at least three seconds for
/// an element.
const SOURCE_HOLE_NS: u64 = 4 * PERIOD_NS;
const ELEMENT_HOLE_NS: u64 = 3_000_000_000;
const FIELDS: [&str; 3] = ["cpu.forks", "cpu.cores[*].times.user", "cpu.context_switches"];

/// A sample that will be written.
#[derive(Debug, Clone)]
struct Step {
    /// Distance from the previous sample, in nanoseconds.
    after_ns: u64,
    /// Number of lost samples between them.
    lost: u64,
    /// Growth of the counters.
    growth: u64,
    cores: u16,
}

/// The form in which a segment is stored.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Form {
    Raw,
    Compressed(usize),
    Active,
}

fn any_step() -> impl Strategy<Value = Step> {
    let after_ns = prop_oneof![
        20 => PERIOD_NS - 9_000_000..PERIOD_NS + 9_000_000,
        2 => 4 * PERIOD_NS - 2..4 * PERIOD_NS + 3,
        1 => 2_500_000_000..3_500_000_000_u64,
    ];
    let lost = prop_oneof![30 => Just(0_u64), 1 => 1..5_u64];
    // Spikes that last one sample.
    let growth = prop_oneof![20 => 0..9_u64, 1 => 1_000_000..9_000_000_u64];
    let cores = prop_oneof![9 => Just(2_u16), 1 => 0..4_u16];
    (after_ns, lost, growth, cores).prop_map(|(after_ns, lost, growth, cores)| Step {
        after_ns,
        lost,
        growth,
        cores,
    })
}

fn any_form() -> impl Strategy<Value = Form> {
    prop_oneof![Just(Form::Raw), Just(Form::Compressed(3000)), Just(Form::Compressed(1 << 20))]
}

/// The clock and the counters of a run being written.
struct Run {
    id: u64,
    offset_ns: i64,
    mono_ns: u64,
    seq: u64,
    count: u64,
}

impl Run {
    /// Writes the next segment. Returns its path.
    fn write(&mut self, folder: &Path, number: u64, steps: &[Step], form: Form) -> PathBuf {
        let mut header = example();
        header.segment = number;
        header.run_id = self.id;
        let (mono_ns, wall_ns) = (self.mono_ns, self.offset_ns + self.mono_ns.cast_signed());
        let clocks = ClockReading { mono_ns, boot_ns: mono_ns, wall_ns };
        (header.clocks, header.clock_table) = (clocks, vec![clocks]);
        header.sources[0].period_ns = PERIOD_NS;
        let name = SegmentName { number, created_s: 0, run_id: self.id, state: SealState::Active };
        let samples = steps.iter().map(|step| {
            self.mono_ns += step.after_ns;
            self.seq += 1 + step.lost;
            // The first field falls again: its values have spikes, and its rates have none there.
            self.count = self.count.wrapping_add(step.growth);
            TimedSample {
                incomplete: flatcap_format::frame::Incomplete::NONE,
                source: 0,
                seq: self.seq,
                mono_ns: self.mono_ns,
                wall_ns: self.offset_ns + self.mono_ns.cast_signed(),
                body: cpu(&[self.count, step.growth, self.count / 3], step.cores),
            }
        });
        let samples: Vec<TimedSample> = samples.collect();
        let writer = write_segment(folder, name, header, samples.into_iter());
        if form == Form::Active {
            return folder.join(name.to_string());
        }
        let sealed = writer.seal().unwrap();
        sealed.publish(&Folder(folder.to_owned())).unwrap();
        let path = folder.join(sealed.name().to_string());
        if let Form::Compressed(block_bytes) = form {
            std::fs::write(&path, compressed(&path, block_bytes)).unwrap();
        }
        path
    }
}

/// A value of the walk, and whether there is a gap before it.
#[derive(Debug, Clone, Copy)]
struct Walked {
    wall_ns: i64,
    value: f64,
    is_after_gap: bool,
}

/// The previous sample of a series in the walk.
struct Before {
    run_id: u64,
    mono_ns: u64,
    count: u64,
    /// The number of the sample in the run and table.
    sample: u64,
}

/// Walks all values of a recording. Returns those of each series.
#[allow(clippy::cast_precision_loss, reason = "small numbers")]
fn walked(paths: &[PathBuf], fields: &[FieldPath], is_rate: bool) -> BTreeMap<String, Vec<Walked>> {
    let recording = Recording::open(paths).unwrap();
    let mut results = recording.query(&Query { fields: fields.to_vec(), ..Query::default() }).unwrap();
    let (mut series, mut before): (BTreeMap<String, Vec<Walked>>, BTreeMap<String, Before>) =
        Default::default();
    let (mut run_id, mut has_gap) = (0, BTreeMap::new());
    // For each table: the last sample, and the end of the last hole of the source.
    let mut samples: BTreeMap<usize, (u64, u64, u64)> = BTreeMap::new();
    let mut counts: BTreeMap<usize, u64> = BTreeMap::new();
    while let Some(item) = results.next().unwrap() {
        if let QueryItem::Run(run) = &item {
            run_id = run.run_id;
            samples.clear();
        }
        let QueryItem::Batch(batch) = item else { continue };
        let table = &results.tables()[batch.table];
        let (mut row, times) = (0, &batch.times);
        for sample in 0..times.len() {
            let (seq, mono_ns) = (times.seq[sample], times.mono_ns[sample]);
            let number = counts.entry(batch.table).or_default();
            *number += 1;
            let (last_seq, last_ns, hole_ns) = samples.entry(batch.table).or_insert((seq - 1, mono_ns, 0));
            if seq != *last_seq + 1 || mono_ns - *last_ns > SOURCE_HOLE_NS {
                *hole_ns = mono_ns;
            }
            (*last_seq, *last_ns) = (seq, mono_ns);
            while row < batch.rows() && batch.sample(row) == sample {
                for (column, info) in batch.columns.iter().zip(&table.columns) {
                    let label = batch.name(row).map(|name| results.elements().label(name));
                    let path = label.map_or(table.path(info), |label| table.element_path(info, label));
                    let path = format!("cpu.{path}");
                    let flatcap_format::schema::FieldValue::Unsigned(count) = column.get(row) else {
                        continue;
                    };
                    let last =
                        before.insert(path.clone(), Before { run_id, mono_ns, count, sample: *number });
                    let limit_ns = if table.list.is_some() { ELEMENT_HOLE_NS } else { SOURCE_HOLE_NS };
                    let is_gap = last.as_ref().is_some_and(|last| {
                        last.run_id != run_id || *hole_ns > last.mono_ns || mono_ns - last.mono_ns > limit_ns
                    });
                    *has_gap.entry(path.clone()).or_insert(false) |= is_gap;
                    let rate =
                        // An element that is missing in a sample has ended.
                        last.filter(|last| last.run_id == run_id && last.sample + 1 == *number)
                            .filter(|last| count >= last.count)
                            .and_then(|last| {
                            let elapsed_ns = mono_ns - last.mono_ns;
                            (elapsed_ns <= ELEMENT_HOLE_NS)
                                .then(|| (count - last.count) as f64 / (elapsed_ns as f64 / 1e9))
                        });
                    let Some(value) = (if is_rate { rate } else { Some(count as f64) }) else { continue };
                    let is_after_gap = has_gap.insert(path.clone(), false) == Some(true);
                    let wall_ns = times.wall_ns[sample];
                    series.entry(path).or_default().push(Walked { wall_ns, value, is_after_gap });
                }
                row += 1;
            }
        }
    }
    series
}

/// The formulas that tests draw: a share over 100 ms, the largest sum of a list, the same over 250
/// ms, and a gauge.
fn formulas() -> Vec<DrawnValue> {
    let field = |path: &str, part: f64, whole: f64| FormulaField {
        path: path.to_owned(),
        is_counter: path != "total.nice",
        part,
        whole,
    };
    let formula = |fields: Vec<FormulaField>, quotient: Option<f64>, resolution_ms: u64| Formula {
        fields,
        unit: "%".to_owned(),
        quotient,
        resolution_ns: resolution_ms * 1_000_000,
    };
    let share = vec![field("total.user", 1.0, 1.0), field("total.system", 0.0, 1.0)];
    let sum = || vec![field("cores[*].times.user", 1.0, 0.0), field("cores[*].times.system", 0.5, 0.0)];
    [
        formula(share, Some(100.0), 100),
        formula(sum(), None, 0),
        formula(sum(), None, 250),
        formula(vec![field("total.nice", 2.0, 0.0)], None, 0),
    ]
    .iter()
    .map(|formula| DrawnValue::of_formula("cpu", formula).unwrap())
    .collect()
}

/// Computes a formula from the counts of one element in two samples, by time.
#[allow(clippy::cast_precision_loss, reason = "small numbers")]
fn computed(
    formula: &Formula,
    (before_ns, before): (u64, &[u64]),
    (now_ns, now): (u64, &[u64]),
) -> Option<f64> {
    let (mut part, mut whole) = (0.0, 0.0);
    for (field, (now, before)) in formula.fields.iter().zip(now.iter().zip(before)) {
        let number = if field.is_counter {
            // A fall of at most 1 % is a correction.
            if now < before && (before - now) as f64 > *before as f64 / 100.0 {
                return None;
            }
            (*now as f64 - *before as f64) / ((now_ns - before_ns) as f64 / 1e9)
        } else {
            *now as f64
        };
        part += field.part * number;
        whole += field.whole * number;
    }
    match formula.quotient {
        None => Some(part),
        Some(factor) => (whole.abs() > 0.0).then(|| factor * part / whole),
    }
}

/// The time and the counts of a sample.
type Reading = (u64, Vec<u64>);

/// Walks all values of a formula.
fn walked_formula(paths: &[PathBuf], drawn: &DrawnValue) -> Vec<Walked> {
    let DrawnValue::Formula(formula, fields) = drawn else { panic!("{drawn:?}") };
    let recording = Recording::open(paths).unwrap();
    let mut results = recording.query(&Query { fields: fields.clone(), ..Query::default() }).unwrap();
    let (mut values, mut last_value, mut run_id) = (Vec::new(), None, 0);
    // By label: the number of the last sample with the element, and times and counts since it began.
    let mut readings: BTreeMap<String, (u64, Vec<Reading>)> = BTreeMap::new();
    let (mut number, mut last_sample, mut hole_ns) = (0, None, 0);
    while let Some(item) = results.next().unwrap() {
        if let QueryItem::Run(run) = &item {
            run_id = run.run_id;
            (last_sample, hole_ns) = (None, 0);
            readings.clear();
        }
        let QueryItem::Batch(batch) = item else { continue };
        let is_list = results.tables()[batch.table].list.is_some();
        let limit_ns = if is_list { ELEMENT_HOLE_NS } else { SOURCE_HOLE_NS };
        for sample in 0..batch.times.len() {
            let (seq, mono_ns) = (batch.times.seq[sample], batch.times.mono_ns[sample]);
            number += 1;
            if last_sample
                .is_some_and(|(last_seq, last_ns)| seq != last_seq + 1 || mono_ns - last_ns > SOURCE_HOLE_NS)
            {
                hole_ns = mono_ns;
            }
            last_sample = Some((seq, mono_ns));
            let mut largest: Option<f64> = None;
            for row in (0..batch.rows()).filter(|row| batch.sample(*row) == sample) {
                let label = batch.name(row).map_or("", |name| results.elements().label(name));
                let count = |column: &ValueColumn| match column.get(row) {
                    flatcap_format::schema::FieldValue::Unsigned(count) => count,
                    other => panic!("{other:?}"),
                };
                let now: Vec<u64> = batch.columns.iter().map(count).collect();
                let (seen, own) = readings.entry(label.to_owned()).or_default();
                if *seen + 1 != number {
                    own.clear();
                }
                *seen = number;
                let value = if formula.fields.iter().any(|field| field.is_counter) {
                    let age = |at: u64| mono_ns - at;
                    let least_ns = formula.resolution_ns.max(1);
                    let base = own.iter().rfind(|(at, _)| (least_ns..=ELEMENT_HOLE_NS).contains(&age(*at)));
                    base.and_then(|(at, before)| computed(formula, (*at, before), (mono_ns, &now)))
                } else {
                    computed(formula, (0, &now), (0, &now))
                };
                own.push((mono_ns, now));
                if let Some(value) = value {
                    largest = Some(largest.map_or(value, |largest| largest.max(value)));
                }
            }
            let Some(value) = largest else { continue };
            let is_after_gap = last_value.is_some_and(|(last_run, last_ns)| {
                last_run != run_id || hole_ns > last_ns || mono_ns - last_ns > limit_ns
            });
            last_value = Some((run_id, mono_ns));
            values.push(Walked { wall_ns: batch.times.wall_ns[sample], value, is_after_gap });
        }
    }
    values
}

/// Adds the values of the walk to pixels.
fn drawn(values: &[Walked], overview: &Overview) -> Vec<OverviewRow> {
    let mut rows: Vec<OverviewRow> = Vec::new();
    for Walked { wall_ns, value, is_after_gap } in values.iter().copied() {
        if !overview.wall_ns.contains(&wall_ns) {
            continue;
        }
        let pixel = |ns: i64| (ns - overview.wall_ns.start).cast_unsigned() / overview.pixel_ns;
        match rows.last_mut() {
            Some(OverviewRow::Pixel(own)) if pixel(own.first_ns) == pixel(wall_ns) => {
                own.missing_ns += if is_after_gap { (wall_ns - own.last_ns).cast_unsigned() } else { 0 };
                own.min = own.min.min(value);
                own.max = own.max.max(value);
                (own.last, own.last_ns) = (value, wall_ns);
                own.count += 1;
                continue;
            }
            Some(OverviewRow::Pixel(own)) if is_after_gap => {
                let gap = own.last_ns..wall_ns;
                rows.push(OverviewRow::Gap(gap));
            }
            _ => {}
        }
        rows.push(OverviewRow::Pixel(PixelValues {
            first_ns: wall_ns,
            last_ns: wall_ns,
            min: value,
            max: value,
            first: value,
            last: value,
            count: 1,
            missing_ns: 0,
        }));
    }
    rows
}

/// Names a series. A formula has no name, so its number in the request stands for it.
fn name_of(series: &OverviewSeries) -> String {
    let column = &series.column;
    if column.name.is_empty() { format!("formula {}", column.order.0) } else { column.name.clone() }
}

/// Compares an overview with the walked values.
fn compare(
    paths: &[PathBuf],
    request: &OverviewRequest,
    all: &BTreeMap<String, Vec<Walked>>,
    cache: &mut OverviewCache,
) {
    let overview = Recording::open(paths).unwrap().overview(request, cache).unwrap();
    assert_eq!((overview.left_out, overview.unreadable), (0, 0));
    assert!(overview.wall_ns.start <= request.wall_ns.start && overview.wall_ns.end >= request.wall_ns.end);
    let found: BTreeMap<String, &[OverviewRow]> =
        overview.series.iter().map(|series| (name_of(series), &*series.rows)).collect();
    for (name, values) in all {
        let expected = drawn(values, &overview);
        let own = found.get(name).copied().unwrap_or_default();
        assert_eq!(own, expected, "{name} in {request:?}");
        let pixels = own.iter().filter(|row| matches!(row, OverviewRow::Pixel(_))).count();
        assert!(pixels <= request.pixels as usize + 1);
    }
    assert!(found.keys().all(|name| all.contains_key(name)), "{:?}", found.keys());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(effort::of(10, 200)))]

    // Proves that each pixel has the count and the first, last, smallest and largest value of its
    // samples, and that gaps are rows, at every zoom, for values, rates and formulas. Method: random
    // samples with spikes of one sample, losses, holes, and elements that come and go, in raw,
    // compressed and unsealed segments of several runs, with and without a cache.
    #[test]
    fn pixels_have_the_extremes_of_their_samples(
        segments in prop::collection::vec((prop::collection::vec(any_step(), 1..80), any_form()), 1..5),
        begins_run in any::<u8>(),
        is_active in any::<bool>(),
        ranges in prop::collection::vec((0..1000_u32, 0..1000_u32, 1..3000_u32), 6),
        is_rate in any::<bool>(),
        picked in 1..128_usize,
    ) {
        let folder = tempfile::tempdir().unwrap();
        let mut run = Run { id: 1, offset_ns: 1 << 60, mono_ns: 77, seq: 0, count: 5 };
        let begin_ns = run.offset_ns;
        for (number, (steps, form)) in segments.iter().enumerate() {
            if begins_run >> number & 1 == 1 {
                run = Run {
                    id: run.id + 1,
                    offset_ns: run.offset_ns + run.mono_ns.cast_signed() + 1_000_000_000,
                    mono_ns: 5,
                    seq: 100,
                    count: 7,
                };
            }
            let is_last = number + 1 == segments.len();
            let form = if is_last && is_active { Form::Active } else { *form };
            run.write(folder.path(), number as u64 + 1, steps, form);
        }
        let end_ns = run.offset_ns + run.mono_ns.cast_signed() + 1;
        let paths = [folder.path().to_owned()];
        let fields = FIELDS.iter().enumerate().filter(|(number, _)| picked >> number & 1 == 1);
        let fields: Vec<FieldPath> = fields.map(|(_, field)| field.parse().unwrap()).collect();
        let mut values: Vec<DrawnValue> = fields.iter().cloned().map(DrawnValue::Field).collect();
        // A query without fields would walk all fields.
        let mut all = if fields.is_empty() { BTreeMap::new() } else { walked(&paths, &fields, is_rate) };
        let formulas = formulas().into_iter().enumerate();
        for (_, formula) in formulas.filter(|(number, _)| picked >> (number + FIELDS.len()) & 1 == 1) {
            all.insert(format!("formula {}", values.len()), walked_formula(&paths, &formula));
            values.push(formula);
        }
        let mut cache = OverviewCache::new(1 << 20);
        let length = end_ns - begin_ns;
        let at = |part: u32| begin_ns + length * i64::from(part) / 1000;
        for (one, other, pixels) in ranges.into_iter().chain([(0, 1000, 1), (0, 1000, 7), (0, 1000, 2)]) {
            let wall_ns = at(one.min(other))..at(one.max(other)) + 1;
            let request = OverviewRequest { values: values.clone(), wall_ns, pixels, is_rate, host: None };
            compare(&paths, &request, &all, &mut cache);
            compare(&paths, &request, &all, &mut OverviewCache::new(0));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(effort::of(20, 500)))]

    // Proves that a feed returns each pixel and gap of an overview of the whole recording once,
    // while the recording grows by segments. Method: the samples of the previous test, also at the
    // beginning of runs.
    #[test]
    fn a_feed_returns_the_pixels_of_an_overview(
        segments in prop::collection::vec((prop::collection::vec(any_step(), 1..80), any_form()), 1..5),
        begins_run in any::<u8>(),
        bits in 25..34_u32,
        skipped in 0..20_i64,
        is_rate in any::<bool>(),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let paths = [folder.path().to_owned()];
        let mut run = Run { id: 1, offset_ns: 1 << 60, mono_ns: 77, seq: 0, count: 5 };
        let begin_ns = run.offset_ns + (skipped << bits);
        let fields = FIELDS.iter().map(|field| field.parse().unwrap());
        let values: Vec<DrawnValue> = fields.chain(formulas()).collect();
        let request = |pixels: u32| OverviewRequest {
            values: values.clone(),
            wall_ns: begin_ns..begin_ns + (i64::from(pixels) << bits),
            pixels,
            is_rate,
            host: None,
        };
        let mut feed: Option<OverviewFeed> = None;
        let mut rows: BTreeMap<String, Vec<OverviewRow>> = BTreeMap::new();
        for (number, (steps, form)) in segments.iter().enumerate() {
            if begins_run >> number & 1 == 1 {
                // A pixel belongs to one run only.
                let end_ns = (((run.offset_ns + run.mono_ns.cast_signed()) >> bits) + 1) << bits;
                run = Run { id: run.id + 1, offset_ns: end_ns, mono_ns: 5, seq: 100, count: 7 };
            }
            run.write(folder.path(), number as u64 + 1, steps, *form);
            let feed = feed.get_or_insert_with(|| Recording::open(&paths).unwrap().follow(&request(1)).unwrap());
            feed.refresh().unwrap();
            let is_last = number + 1 == segments.len();
            let until_ns = if is_last { i64::MAX } else { run.offset_ns + run.mono_ns.cast_signed() };
            // It is interrupted after each part.
            let mut calls = 0;
            let mut has_time = || { calls += 1; calls % 2 == 0 };
            for _ in 0..100 {
                for series in feed.advance(until_ns, &mut has_time).unwrap().series {
                    rows.entry(name_of(&series)).or_default().extend(series.rows);
                }
            }
        }
        let length = (run.offset_ns + run.mono_ns.cast_signed() - begin_ns).max(0) >> bits;
        let whole = request(u32::try_from(length).unwrap() + 1);
        let overview = Recording::open(&paths).unwrap().overview(&whole, &mut OverviewCache::new(0)).unwrap();
        prop_assert_eq!((overview.pixel_ns, overview.left_out), (1 << bits, 0));
        let expected: BTreeMap<String, Vec<OverviewRow>> =
            overview.series.into_iter().map(|series| (name_of(&series), series.rows)).collect();
        // The overview does not know values before its range, so it does not contain a gap that
        // begins there.
        rows.retain(|_, rows| {
            rows.retain(|row| !matches!(row, OverviewRow::Gap(gap) if gap.start < begin_ns));
            !rows.is_empty()
        });
        prop_assert_eq!(rows, expected);
    }
}

// Proves that a spike of one sample is in the overview of a long time, that each segment is
// summarized once, that the hosts of two directories are separate, and that a damaged segment is
// counted.
#[test]
fn overviews_of_hosts_show_a_single_sample() {
    let folder = tempfile::tempdir().unwrap();
    let (one, other) = (folder.path().join("one"), folder.path().join("other"));
    std::fs::create_dir(&one).unwrap();
    std::fs::create_dir(&other).unwrap();
    let step = |growth| Step { after_ns: PERIOD_NS, lost: 0, growth, cores: 1 };
    let mut steps = vec![step(1); 1000];
    steps[700].growth = 1_000_000;
    let mut run = Run { id: 1, offset_ns: 1 << 60, mono_ns: 0, seq: 0, count: 0 };
    let path = run.write(&one, 1, &steps, Form::Compressed(1 << 16));
    let mut run = Run { id: 2, offset_ns: 1 << 60, mono_ns: 0, seq: 0, count: 0 };
    run.write(&other, 1, &vec![step(1); 1000], Form::Raw);
    let mut request = OverviewRequest {
        values: vec!["cpu.forks".parse().unwrap()],
        wall_ns: 1 << 60..(1 << 60) + 50_000_000_000,
        pixels: 8,
        is_rate: true,
        host: None,
    };
    let paths = [one, other];
    let mut cache = OverviewCache::new(1 << 20);
    let recording = Recording::open(&paths).unwrap();
    let overview = recording.overview(&request, &mut cache).unwrap();
    let most = |overview: &Overview| {
        let rows = overview.series.iter().flat_map(|series| &series.rows);
        rows.map(|row| if let OverviewRow::Pixel(values) = row { values.max } else { 0.0 })
            .fold(0.0, f64::max)
    };
    assert!(most(&overview) > 1e6, "{overview:?}");
    assert!(cache.bytes() > 0);
    // Reads one segment after the other, as far as summaries are kept.
    let mut own = OverviewCache::new(1 << 20);
    let ask = |cache: &mut OverviewCache| recording.overview_until(&request, cache, &mut || true).unwrap();
    let first = ask(&mut own);
    assert!(!first.is_complete && !first.series.is_empty() && first.series != overview.series, "{first:?}");
    assert_eq!(ask(&mut own), overview);
    assert_eq!(ask(&mut OverviewCache::new(0)), overview);
    // From now on, the file cannot be read.
    let bytes = std::fs::read(&path).unwrap();
    let mut damaged = bytes.clone();
    damaged[bytes.len() / 2] ^= 1;
    std::fs::write(&path, &damaged).unwrap();
    assert_eq!(recording.overview(&request, &mut cache).unwrap(), overview);
    let again = recording.overview(&request, &mut OverviewCache::new(0)).unwrap();
    assert!(again.unreadable > 0, "{again:?}");
    std::fs::write(&path, &bytes).unwrap();
    request.values = vec!["cpu.nothing".parse().unwrap()];
    assert!(recording.overview(&request, &mut cache).is_err());
    request.values = vec!["cpu.forks".parse().unwrap()];
    request.wall_ns = 5..5;
    assert!(recording.overview(&request, &mut cache).unwrap().series.is_empty());
}

// Proves that samples that were left out on purpose are not a gap, at any distance of the remaining
// samples, within a segment and between two, and that lost samples among them are a gap.
#[test]
fn samples_left_out_on_purpose_are_no_gap() {
    // One of ten samples is in the files.
    const KEPT: u64 = 10;
    const LOST_AFTER: u64 = 25;
    let folder = tempfile::tempdir().unwrap();
    let mono_ns = |kept: u64| (1 + kept * KEPT) * PERIOD_NS;
    let mut paths = Vec::new();
    for number in 1..=2 {
        let kept = 20 * (number - 1)..20 * number;
        let samples = kept.clone().map(|kept| TimedSample {
            incomplete: flatcap_format::frame::Incomplete::NONE,
            source: 0,
            seq: kept * KEPT,
            mono_ns: mono_ns(kept),
            wall_ns: mono_ns(kept).cast_signed(),
            body: cpu(&[kept, 1, 1], 1),
        });
        let mut header = example();
        header.segment = number;
        let clocks = ClockReading { mono_ns: 0, boot_ns: 0, wall_ns: 0 };
        (header.clocks, header.clock_table) = (clocks, vec![clocks]);
        header.sources[0].period_ns = PERIOD_NS;
        let run_id = header.run_id;
        let name = SegmentName { number, created_s: 0, run_id, state: SealState::Active };
        let mut writer = write_segment(folder.path(), name, header, samples);
        let gaps = kept.map(|kept| Gap {
            source: 0,
            first: kept * KEPT + 1,
            count: KEPT - 1,
            causes: if kept == LOST_AFTER { GapCause::QueueFull } else { GapCause::Thinned }.bits(),
            after_mono_ns: mono_ns(kept),
            before_mono_ns: mono_ns(kept + 1),
        });
        writer.append_gaps(&gaps.collect::<Vec<_>>()).unwrap();
        let sealed = writer.seal().unwrap();
        sealed.publish(&Folder(folder.path().to_owned())).unwrap();
        paths.push(folder.path().join(sealed.name().to_string()));
    }
    let recording = Recording::open(&paths).unwrap();
    for pixels in [2, 500] {
        let request = OverviewRequest {
            values: vec!["cpu.forks".parse().unwrap()],
            wall_ns: 0..mono_ns(40).cast_signed(),
            pixels,
            is_rate: false,
            host: None,
        };
        let overview = recording.overview(&request, &mut OverviewCache::new(1 << 20)).unwrap();
        let (mut count, mut missing_ns) = (0, 0);
        for row in &overview.series[0].rows {
            match row {
                OverviewRow::Pixel(values) => {
                    count += values.count;
                    missing_ns += values.missing_ns;
                }
                OverviewRow::Gap(gap) => missing_ns += (gap.end - gap.start).unsigned_abs(),
            }
        }
        assert_eq!((count, missing_ns), (40, KEPT * PERIOD_NS), "{pixels}: {overview:?}");
    }
}
