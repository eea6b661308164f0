//! Compares rates, steps and aggregates of random recordings with the results of a naive reader of
//! the same samples.

use std::path::{Path, PathBuf};

use flatcap_format::frame::Incomplete;
use flatcap_format::host::ClockReading;
use flatcap_format::replay::ReplayFilter;
use flatcap_format::segment::{SealState, SegmentName, SourceInfo};
use flatcap_format::testing::{Folder, TimedSample, compressed, effort, example, write_samples};
use proptest::prelude::*;

use super::counter_samples::*;
use super::*;
fn write(folder: &Path, samples: &[Sample], random: &mut Random) -> Vec<PathBuf> {
    let cut = samples.len() / 2;
    let mut paths = Vec::new();
    for (number, part) in [(0, 0..cut), (1, cut..samples.len())] {
        let mut header = example();
        header.segment = number;
        // The reader uses these clocks to convert times.
        header.clocks = ClockReading { mono_ns: 0, boot_ns: 0, wall_ns: OFFSET_NS };
        header.clock_table = vec![header.clocks];
        let first = header.sources[0].clone();
        header.sources = vec![SourceInfo {
            id: 0,
            name: "s".to_owned(),
            root: ROOT.to_owned(),
            schema: SCHEMA.to_vec(),
            period_ns: PERIOD_NS,
            next_seq: part.start as u64,
            ..first
        }];
        let run_id = header.run_id;
        let name = SegmentName { number, created_s: 0, run_id, state: SealState::Active };
        let timed = part.clone().map(|at| TimedSample {
            source: 0,
            seq: at as u64,
            mono_ns: samples[at].mono_ns,
            wall_ns: samples[at].mono_ns.cast_signed() + OFFSET_NS,
            incomplete: if samples[at].is_cut { Incomplete::CUT } else { Incomplete::NONE },
            body: samples[at].body(),
        });
        let sealed = write_samples(folder, name, header, timed).seal().unwrap();
        sealed.publish(&Folder(folder.to_owned())).unwrap();
        let path = folder.join(sealed.name().to_string());
        if random.below(2) == 0 {
            std::fs::write(&path, compressed(&path, 20_000)).unwrap();
        }
        paths.push(path);
    }
    paths
}

/// The id of an element, and the position of the element among the elements of a sample that have
/// this id, from 1.
type ElementKey = (u64, u64);

/// A row, with the time of its step or sample, its element, and the value of each field.
type ComparedRow = (i64, Option<ElementKey>, Vec<HeldValue>);

/// Parses the label of an element, such as `7` or `7#2`.
fn key(label: &str) -> ElementKey {
    let (id, number) = label.split_once('#').unwrap_or((label, "1"));
    (id.parse().unwrap(), number.parse().unwrap())
}

/// A condition on the field [`COMPARED`]. The value of the field must be at least this number.
type Least = Option<i64>;
const COMPARED: usize = 6;

/// Returns whether the condition holds for an element.
fn passes(element: &Element, least: Least) -> bool {
    let Raw::I64(level) = element.values[COMPARED] else { panic!("signed_level is a long") };
    least.is_none_or(|least| level != i64::MAX && level >= least)
}

fn rows(paths: &[PathBuf], list: usize, options: &RowOptions, least: Least) -> Vec<ComparedRow> {
    let path = |name: &str| match list {
        0 => format!("s.total.{name}"),
        list => format!("s.{}[*].{name}", LISTS[list]),
    };
    let fields = FIELDS.map(|(name, ..)| path(name));
    let query = Query {
        fields: fields.iter().map(|field| field.parse().unwrap()).collect(),
        condition: least.map(|least| format!("{} >= {least}", path(FIELDS[COMPARED].0)).parse().unwrap()),
        ..Query::default()
    };
    let recording = Recording::open(paths).unwrap();
    let mut reader = recording.rows(&query, options.clone()).unwrap();
    let mut found = Vec::new();
    while let Some(item) = reader.next().unwrap() {
        let RowItem::Row(stamp) = item else { continue };
        let id = stamp.element.map(|element| key(reader.label(element)));
        let values = fields.iter().map(|field| {
            let place = reader.columns().iter().position(|column| column.name == *field).unwrap();
            reader.values()[place].clone()
        });
        found.push((stamp.wall_ns, id, values.collect()));
    }
    found
}

fn rate(growths: &[(f64, u64)]) -> HeldValue {
    let (amount, elapsed_ns) =
        growths.iter().fold((0.0, 0), |(amount, elapsed), own| (amount + own.0, elapsed + own.1));
    #[allow(clippy::cast_precision_loss, reason = "compared with a tolerance")]
    let rate = amount / (elapsed_ns as f64 / 1e9);
    if elapsed_ns == 0 || amount < 0.0 { HeldValue::Absent } else { HeldValue::Float(rate) }
}

/// Returns the aggregate of these values, in the type of the values.
#[allow(clippy::cast_precision_loss, reason = "compared with a tolerance")]
fn aggregate(name: &str, values: &[HeldValue]) -> HeldValue {
    let mut sorted = values.to_vec();
    sorted.sort_by(|one, other| match (one, other) {
        (HeldValue::Unsigned(one), HeldValue::Unsigned(other)) => one.cmp(other),
        (HeldValue::Signed(one), HeldValue::Signed(other)) => one.cmp(other),
        _ => one.number().unwrap().total_cmp(&other.number().unwrap()),
    });
    if name == "count" {
        return HeldValue::Unsigned(values.len() as u64);
    }
    let Some(last) = values.last() else { return HeldValue::Absent };
    let whole: i128 = values
        .iter()
        .map(|value| match value {
            HeldValue::Unsigned(number) => i128::from(*number),
            HeldValue::Signed(number) => i128::from(*number),
            _ => 0,
        })
        .sum();
    let fractions: f64 = values.iter().filter_map(HeldValue::number).sum();
    match (name, last) {
        ("min", _) => sorted[0].clone(),
        ("max", _) => sorted[sorted.len() - 1].clone(),
        ("last", _) => last.clone(),
        ("p50", _) => sorted[values.len().div_ceil(2) - 1].clone(),
        ("sum", HeldValue::Unsigned(_)) => {
            u64::try_from(whole).map_or(HeldValue::Absent, HeldValue::Unsigned)
        }
        ("sum", HeldValue::Signed(_)) => i64::try_from(whole).map_or(HeldValue::Absent, HeldValue::Signed),
        ("sum", _) => HeldValue::Float(fractions),
        (_, HeldValue::Unsigned(_) | HeldValue::Signed(_)) => {
            HeldValue::Float(whole as f64 / values.len() as f64)
        }
        _ => HeldValue::Float(fractions / values.len() as f64),
    }
}

/// Computes the rows by their definition. The condition selects rows but changes no value.
fn expected(samples: &[Sample], list: usize, options: &RowOptions, least: Least) -> Vec<ComparedRow> {
    // The samples of each row.
    let mut groups: Vec<(i64, Vec<usize>)> = Vec::new();
    for (at, sample) in samples.iter().enumerate() {
        let wall_ns = sample.mono_ns.cast_signed() + OFFSET_NS;
        let begin_ns = options.steps.map_or(wall_ns, |steps| wall_ns - wall_ns % steps.step_ns.cast_signed());
        match groups.last_mut() {
            Some((known, group)) if *known == begin_ns => group.push(at),
            _ => groups.push((begin_ns, vec![at])),
        }
    }
    let mut rows = Vec::new();
    for (begin_ns, group) in groups {
        // The values of each element in a row. A row has one value per element, or all values of a
        // step.
        let mut own: Vec<(ElementKey, Vec<(usize, &Element)>)> = Vec::new();
        for at in group {
            let elements = &samples[at].lists[list];
            for (place, element) in elements.iter().enumerate().filter(|(_, own)| passes(own, least)) {
                let before = elements[..place].iter().filter(|other| other.id == element.id).count();
                let key = (element.id, before as u64 + 1);
                match own.iter_mut().find(|(known, _)| *known == key && options.steps.is_some()) {
                    Some((_, values)) => values.push((at, element)),
                    None => own.push((key, vec![(at, element)])),
                }
            }
        }
        for (key, group) in own {
            let (id, _) = key;
            let values = FIELDS.iter().enumerate().map(|(field, (_, _, kind))| {
                let is_rate = options.is_rate && *kind != FieldKind::Gauge;
                let growths = group.iter().map(|(at, _)| growth(samples, *at, list, id, field));
                let named = |name: &str| {
                    let values: Vec<HeldValue> = if is_rate {
                        let rates = growths.clone().map(|growth| rate(growth.as_slice()));
                        rates.filter(|rate| *rate != HeldValue::Absent).collect()
                    } else {
                        group.iter().filter_map(|(_, element)| element.values[field].value()).collect()
                    };
                    aggregate(name, &values)
                };
                match options.steps.map(|steps| steps.aggregate) {
                    // NaN is a valid value of a row, but a rate cannot be computed from NaN.
                    None if !is_rate => match group[0].1.values[field] {
                        Raw::F64(number) if number.is_nan() => HeldValue::Float(number),
                        Raw::F32(number) if number.is_nan() => HeldValue::Float32(number),
                        value => value.value().unwrap_or(HeldValue::Absent),
                    },
                    Some(None | Some(Aggregate::Mean)) if is_rate => {
                        let limit_ns = 2 * PERIOD_NS.max(options.steps.unwrap().step_ns);
                        let near: Vec<_> = growths.flatten().filter(|own| own.1 <= limit_ns).collect();
                        rate(&near)
                    }
                    Some(None) if *kind != FieldKind::Gauge => named("last"),
                    Some(Some(Aggregate::Quantile(_))) => named("p50"),
                    Some(Some(Aggregate::Min)) => named("min"),
                    Some(Some(Aggregate::Max)) => named("max"),
                    None | Some(Some(Aggregate::Last)) => named("last"),
                    Some(Some(Aggregate::Sum)) => named("sum"),
                    Some(Some(Aggregate::Count)) => named("count"),
                    Some(None | Some(Aggregate::Mean)) => named("mean"),
                }
            });
            rows.push((begin_ns, (list > 0).then_some(key), values.collect()));
        }
    }
    rows
}

/// Returns whether two values are the same. Integers must be equal, and fractions may differ by the
/// rounding of a sum.
fn is_same(found: &HeldValue, expected: &HeldValue) -> bool {
    match (found, expected) {
        (HeldValue::Float(found), HeldValue::Float(expected)) => {
            (found.is_nan() && expected.is_nan())
                || (found - expected).abs() <= 1e-9 * found.abs().max(expected.abs()).max(1e-3)
                || found.total_cmp(expected).is_eq()
        }
        (HeldValue::Float32(found), HeldValue::Float32(expected)) => {
            found.to_bits() == expected.to_bits() || (found.is_nan() && expected.is_nan())
        }
        _ => found == expected,
    }
}

fn compare(paths: &[PathBuf], samples: &[Sample], list: usize, options: &RowOptions, least: Least) {
    let (found, expected) = (rows(paths, list, options, least), expected(samples, list, options, least));
    for (number, (found, expected)) in found.iter().zip(&expected).enumerate() {
        assert_eq!(
            (found.0, found.1),
            (expected.0, expected.1),
            "row {number} of {} {options:?} {least:?}",
            LISTS[list]
        );
        for ((found, expected), (name, ..)) in found.2.iter().zip(&expected.2).zip(FIELDS) {
            assert!(
                is_same(found, expected),
                "row {number} of {}.{name} {options:?} {least:?}: {found:?} is not {expected:?}",
                LISTS[list]
            );
        }
    }
    assert_eq!(found.len(), expected.len(), "rows of {} {options:?} {least:?}", LISTS[list]);
}

/// Compares whole samples that contain rates, as `dump --source --rate` prints them. `first` is the
/// index in `samples` of the first compared sample.
fn compare_source(paths: &[PathBuf], samples: &[Sample], first: usize) {
    let since_ns = samples[first].mono_ns.cast_signed() + OFFSET_NS;
    let filter = ReplayFilter { since_ns: (first > 0).then_some(since_ns), ..ReplayFilter::default() };
    let mut reader = Recording::open(paths).unwrap().samples(&filter, true).unwrap();
    let mut found = Vec::new();
    while let Some(item) = reader.next().unwrap() {
        let RowItem::Row(stamp) = item else { continue };
        let sample = reader.sample().unwrap();
        assert_eq!((stamp.mono_ns, stamp.wall_ns), (sample.mono_ns, sample.wall_ns));
        let mut json = Vec::new();
        reader.append_json(&mut json).unwrap();
        let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
        found.push((sample.seq, json));
    }
    // To compute the rates, only samples that are shortly before the first compared sample are
    // read.
    let read_ns = samples[first].mono_ns.saturating_sub(2 * PERIOD_NS + 1_000_000_000);
    let begin = if first == 0 { 0 } else { samples.partition_point(|sample| sample.mono_ns < read_ns) };
    // Several samples may have the same time.
    let first = samples.partition_point(|sample| sample.mono_ns < samples[first].mono_ns);
    assert_eq!(found.len(), samples.len() - first);
    for (at, (seq, json)) in (first..).zip(found) {
        assert_eq!(seq, at as u64);
        let sample = &samples[at];
        for (list, name) in LISTS.iter().enumerate() {
            for (place, element) in sample.lists[list].iter().enumerate() {
                let object = if list == 0 { &json["total"] } else { &json[name][place] };
                for (field, (field_name, _, kind)) in FIELDS.iter().enumerate() {
                    if *kind == FieldKind::Gauge {
                        continue;
                    }
                    let own = growth(&samples[begin..], at - begin, list, element.id, field);
                    let found = object[field_name].as_f64().map_or(HeldValue::Absent, HeldValue::Float);
                    let expected = rate(own.as_slice());
                    assert!(
                        is_same(&found, &expected),
                        "{at} {name}.{field_name}: {found:?} is not {expected:?}"
                    );
                }
            }
        }
    }
}

fn options(is_long: bool, is_rate: bool, steps: Option<(u64, &str)>) -> RowOptions {
    let steps = steps.map(|(step_ns, name)| Steps { step_ns, aggregate: name.parse().ok() });
    RowOptions { is_long, is_rate, steps, is_growing: false }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(effort::cases(60, 5_000)))]

    // Proves that rates, steps and all aggregates have the values that a naive reader computes.
    // Counters of all types wrap, are reset, fall a little and are absent. Elements end, come back,
    // are left out, and occur twice. Values are around 2^53, 2^63 and 2^64. The two segments are
    // raw or compressed. A condition selects rows. The rates of these rows cover the time since the
    // last sample of the element, even if the condition excludes that sample.
    #[test]
    fn rates_and_steps_are_as_defined(seed in any::<u64>()) {
        let mut random = Random(seed);
        let samples = samples(&mut random);
        let folder = tempfile::tempdir().unwrap();
        let paths = write(folder.path(), &samples, &mut random);
        for first in [0, usize::try_from(random.below(samples.len() as u64)).unwrap()] {
            compare_source(&paths, &samples, first);
        }
        for list in 0..3 {
            for is_rate in [false, true] {
                for least in [None, Some(0), Some(random.below(2000).cast_signed() - 1500)] {
                    compare(&paths, &samples, list, &options(list > 0, is_rate, None), least);
                }
                for name in ["", "mean", "min", "max", "last", "sum", "count", "p50"] {
                    let step_ns = random.of(&[PERIOD_NS, 300_000_000, 1_000_000_000, 100_000_000_000]);
                    let least = random.of(&[None, Some(0), Some(-500)]);
                    compare(&paths, &samples, list, &options(list > 0, is_rate, Some((step_ns, name))), least);
                }
            }
        }
    }
}

/// Returns an element whose counters and gauges all have the value `count`.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "small numbers"
)]
fn counted(id: u64, count: i64) -> Element {
    let unsigned = Raw::U64(count.cast_unsigned());
    let values = [
        unsigned,
        Raw::I64(count),
        Raw::F64(count as f64),
        Raw::U64(u64::MAX),
        unsigned,
        unsigned,
        Raw::I64(count),
        Raw::I32(count as i32),
        Raw::F32(count as f32),
        Raw::F32(count as f32),
        Raw::U16(count as u16),
        Raw::I8(count as i8),
    ];
    Element { id, values }
}

/// Returns the rows of samples with these totals and devices. There is one sample every 100 ms.
fn rows_of(
    samples: impl Iterator<Item = (Element, Vec<Element>)>,
    list: usize,
    options: &RowOptions,
) -> Vec<ComparedRow> {
    let samples = (10_u64..).zip(samples).map(|(number, (total, devices))| Sample {
        mono_ns: number * PERIOD_NS,
        is_cut: false,
        skipped: 0,
        lists: [vec![total], devices, Vec::new()],
    });
    let (samples, folder): (Vec<Sample>, _) = (samples.collect(), tempfile::tempdir().unwrap());
    let paths = write(folder.path(), &samples, &mut Random(0));
    rows(&paths, list, options, None)
}

// Proves that counters of all number types have the same rate, with steps and without.
#[test]
fn all_types_of_counters_have_rates() {
    let samples = || (0..11).map(|number| (counted(0, number), Vec::new()));
    for steps in [None, Some((500_000_000, "")), Some((500_000_000, "max"))] {
        let found = rows_of(samples(), 0, &options(false, true, steps));
        for (field, (name, _, kind)) in FIELDS.iter().enumerate() {
            if *kind == FieldKind::Gauge {
                continue;
            }
            let last = &found.last().unwrap().2[field];
            assert!(is_same(last, &HeldValue::Float(10.0)), "{name} {steps:?}: {last:?}");
        }
    }
}

// Proves that the rate of a device that is created again under its old name is not computed from
// the counters of the old device. Also proves that no rate is computed from two devices with the
// same name.
#[test]
fn a_device_made_again_is_another_one() {
    let samples = || {
        (0..90).map(|number| {
            let own = match number {
                0..30 => vec![counted(3, 1000 + number * 10)],
                30..40 => Vec::new(),
                40..60 => vec![counted(3, 5000 + (number - 40) * 10)],
                _ => vec![counted(3, 5000 + number * 10), counted(3, 90_000 + number * 10)],
            };
            (counted(0, 0), own)
        })
    };
    for steps in [None, Some((1_000_000_000, "")), Some((1_000_000_000, "max"))] {
        let found = rows_of(samples(), 1, &options(true, true, steps));
        let rates: Vec<f64> = found.iter().filter_map(|row| row.2[0].number()).collect();
        assert!(rates.iter().all(|rate| (rate - 100.0).abs() < 1e-6), "{rates:?}");
        assert!(rates.len() >= 3, "{steps:?}");
        assert_eq!(found.last().unwrap().2[0], HeldValue::Absent, "two of one name, {steps:?}");
    }
}

// Proves that a CPU time has a rate in each step, although the kernel sometimes corrects the CPU
// time downwards by a tick. If a counter is reset, the rate covers the rest of the step.
#[test]
fn a_step_back_does_not_blank_a_step() {
    let mut count = 1000;
    let corrected = (1..120).map(|number| {
        count += if number % 7 == 0 { -1 } else { 1 };
        (counted(0, count), Vec::new())
    });
    let reset = (0..120).map(|number| (counted(0, number % 25), Vec::new()));
    let options = options(false, true, Some((2_000_000_000, "")));
    let (corrected, reset) = (rows_of(corrected, 0, &options), rows_of(reset, 0, &options));
    for (rows, rates) in [(corrected, 5.0..8.5), (reset, 9.9..10.1)] {
        for row in rows.iter().skip(1) {
            let rate = row.2[0].number();
            assert!(rate.is_some_and(|rate| rates.contains(&rate)), "{rate:?}, not {rates:?}");
        }
        assert!(rows.len() > 5);
    }
}

// Proves that the rate of a counter that wraps is correct across wraps, even with several wraps in
// a step.
#[test]
fn counters_with_a_range_go_on_over_wraps() {
    let samples = || {
        (0..200_u64).map(|number| {
            let mut total = counted(0, 0);
            total.values[RANGE] = Raw::U64(1000);
            total.values[RANGE + 1] = Raw::U64(number * 70 % 1000);
            (total, Vec::new())
        })
    };
    for steps in [None, Some((5_000_000_000, "")), Some((5_000_000_000, "min"))] {
        let found = rows_of(samples(), 0, &options(false, true, steps));
        for row in found.iter().skip(1) {
            assert!(is_same(&row.2[RANGE + 1], &HeldValue::Float(700.0)), "{:?} {steps:?}", row.2[RANGE + 1]);
        }
    }
}
