//! Compares overviews with the results of a walk over all values.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use flatcap_format::host::ClockReading;
use flatcap_format::schema::segment::GapCause;
use flatcap_format::segment::{Gap, SealState, SegmentName};
use flatcap_format::testing::{Folder, TimedSample, compressed, effort, example};
use proptest::prelude::*;

use super::engine::{cpu, write_segment};
use super::overview_walk::{PERIOD_NS, Walked, formulas, walked, walked_formula};
use super::*;

const FIELDS: [&str; 3] = ["cpu.forks", "cpu.cores[*].times.user", "cpu.context_switches"];

/// A sample that will be written.
#[derive(Debug, Clone)]
struct Step {
    /// Time since the previous sample, in nanoseconds.
    after_ns: u64,
    /// Number of lost samples between this sample and the previous one.
    lost: u64,
    /// Growth of the counters.
    growth: u64,
    cores: u16,
}

/// The form of a segment's file, which is raw, compressed or still active.
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
    // A large growth makes a spike of one sample.
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

/// The clocks and the counters of a run that is being written.
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
            // The growth is also recorded as a separate counter, which falls again after a spike.
            // So this counter has spikes, and its rate has no value at the fall.
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

/// Computes the rows (pixels and gaps) of an overview from the values of the walk.
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

/// Returns a name of a series. A formula has no name, so its position in the request is used.
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
    #![proptest_config(ProptestConfig::with_cases(effort::cases(10, 200)))]

    // Proves that each pixel has the count and the first, last, smallest and largest value of its
    // samples, and that gaps are rows. The test covers every zoom level, for values, rates and
    // formulas. The test uses random samples with spikes of one sample, lost samples, holes, and
    // elements that appear and disappear. The samples are in raw, compressed and unsealed segments
    // of several runs. Overviews are computed with and without a cache.
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
    #![proptest_config(ProptestConfig::with_cases(effort::cases(20, 500)))]

    // Proves that a feed returns each pixel and gap of an overview of the whole recording exactly
    // once, while the recording grows by segments. The test uses samples like those in the previous
    // test, even at the beginning of runs.
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
            // The feed is interrupted after each part.
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
        // The overview has no values from before its range, so it contains no gap that begins
        // before the range.
        rows.retain(|_, rows| {
            rows.retain(|row| !matches!(row, OverviewRow::Gap(gap) if gap.start < begin_ns));
            !rows.is_empty()
        });
        prop_assert_eq!(rows, expected);
    }
}

// Proves that a spike of one sample is visible in the overview of a long time, and that each
// segment is summarized exactly once. Also proves that the hosts of two directories are separate,
// and that a damaged segment is counted.
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
    // If the cache is large enough for the summaries of all segments, each call summarizes only one
    // more segment.
    let mut own = OverviewCache::new(1 << 20);
    let ask = |cache: &mut OverviewCache| recording.overview_until(&request, cache, &mut || true).unwrap();
    let first = ask(&mut own);
    assert!(!first.is_complete && !first.series.is_empty() && first.series != overview.series, "{first:?}");
    assert_eq!(ask(&mut own), overview);
    assert_eq!(ask(&mut OverviewCache::new(0)), overview);
    // From here on, the segment file cannot be read.
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

// Proves that samples that were left out on purpose are not shown as a gap, within a segment and
// between two segments, regardless of the time between the remaining samples. Also proves that lost
// samples among the left-out samples are shown as a gap.
#[test]
fn samples_left_out_on_purpose_are_no_gap() {
    // One of ten samples is written to the files.
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
