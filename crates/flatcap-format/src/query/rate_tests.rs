//! Rates, steps and aggregates of random recordings against a naive reader of the same samples.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use proptest::prelude::*;

use super::test_segment::{TimedSample, write_samples};
use super::*;
use crate::frame::Incomplete;
use crate::schema::{CompiledSchema, JsonWriter, Rates};
use crate::segment::{SealState, SegmentName, SourceInfo, compressed, example};
use crate::storage::Folder;
use crate::testing::effort;

const SCHEMA: &[u8] = include_bytes!("../../../../tests/data/schema/counters.bfbs");
const ROOT: &str = "flatcap.test.Counters";
const PERIOD_NS: u64 = 100_000_000;
const OFFSET_NS: i64 = 1_700_000_000_000_000_000;
const STRUCT_BYTES: usize = 80;
const IDS: u64 = 4;

/// A field of an element: its name, its offset in the struct, and what it is.
type FieldSpec = (&'static str, usize, FieldKind);

#[derive(Debug, Clone, Copy, PartialEq)]
enum FieldKind {
    Counter,
    Wrapping,
    Gauge,
}

const FIELDS: [FieldSpec; 12] = [
    ("unsigned64", 8, FieldKind::Counter),
    ("signed64", 16, FieldKind::Counter),
    ("float64", 24, FieldKind::Counter),
    ("range", 32, FieldKind::Gauge),
    ("wrapping", 40, FieldKind::Wrapping),
    ("level", 48, FieldKind::Gauge),
    ("signed_level", 56, FieldKind::Gauge),
    ("signed32", 64, FieldKind::Counter),
    ("float32", 68, FieldKind::Counter),
    ("ratio", 72, FieldKind::Gauge),
    ("unsigned16", 76, FieldKind::Counter),
    ("signed8", 78, FieldKind::Counter),
];
const RANGE: usize = 3;

/// A number as a payload has it.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Raw {
    U64(u64),
    I64(i64),
    F64(f64),
    I32(i32),
    F32(f32),
    U16(u16),
    I8(i8),
}

impl Raw {
    fn bytes(self) -> Vec<u8> {
        match self {
            Self::U64(number) => number.to_le_bytes().to_vec(),
            Self::I64(number) => number.to_le_bytes().to_vec(),
            Self::F64(number) => number.to_le_bytes().to_vec(),
            Self::I32(number) => number.to_le_bytes().to_vec(),
            Self::F32(number) => number.to_le_bytes().to_vec(),
            Self::U16(number) => number.to_le_bytes().to_vec(),
            Self::I8(number) => number.to_le_bytes().to_vec(),
        }
    }

    /// The value as FORMAT.md says: none if it is the type's mark of absence, or not a number.
    fn value(self) -> Option<HeldValue> {
        match self {
            Self::U64(number) => (number != u64::MAX).then_some(HeldValue::Unsigned(number)),
            Self::I64(number) => (number != i64::MAX).then_some(HeldValue::Signed(number)),
            Self::I32(number) => (number != i32::MIN).then_some(HeldValue::Signed(number.into())),
            Self::U16(number) => (number != u16::MAX).then_some(HeldValue::Unsigned(number.into())),
            Self::I8(number) => (number != i8::MAX).then_some(HeldValue::Signed(number.into())),
            Self::F64(number) => (!number.is_nan()).then_some(HeldValue::Float(number)),
            Self::F32(number) => (!number.is_nan()).then_some(HeldValue::Float32(number)),
        }
    }

    /// The mark of absence; of a fraction, not a number.
    fn absent(self) -> Self {
        match self {
            Self::U64(_) => Self::U64(u64::MAX),
            Self::I64(_) => Self::I64(i64::MAX),
            Self::I32(_) => Self::I32(i32::MIN),
            Self::U16(_) => Self::U16(u16::MAX),
            Self::I8(_) => Self::I8(i8::MAX),
            Self::F64(_) => Self::F64(f64::NAN),
            Self::F32(_) => Self::F32(f32::NAN),
        }
    }

    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        clippy::cast_sign_loss,
        reason = "any number will do"
    )]
    fn plus(self, change: i64) -> Self {
        match self {
            Self::U64(number) => Self::U64(number.wrapping_add_signed(change)),
            Self::I64(number) => Self::I64(number.wrapping_add(change)),
            Self::I32(number) => Self::I32(number.wrapping_add(change as i32)),
            Self::U16(number) => Self::U16(number.wrapping_add(change as u16)),
            Self::I8(number) => Self::I8(number.wrapping_add(change as i8 / 4)),
            Self::F64(number) => Self::F64(number + change as f64 / 8.0),
            Self::F32(number) => Self::F32(number + change as f32 / 8.0),
        }
    }
}

/// Numbers that look random: of a seed, so that a failure can be repeated.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ mixed >> 31) % end
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[usize::try_from(self.below(all.len() as u64)).unwrap()]
    }
}

#[derive(Debug, Clone)]
struct Element {
    id: u64,
    values: [Raw; 12],
}

impl Element {
    fn new(id: u64, random: &mut Random) -> Self {
        let unsigned = [0, 5, 1000, 100_000, (1 << 53) - 3, (1 << 63) - 5, u64::MAX - 700];
        let signed = [0, -7, 90_000, -(1 << 53) - 1, i64::MIN, i64::MAX - 300];
        let values = [
            Raw::U64(random.of(&unsigned)),
            Raw::I64(random.of(&signed)),
            Raw::F64(random.of(&[0.0, 1e6, -3.5, 1e300])),
            Raw::U64(random.of(&[1000, 1_000_000, u64::MAX])),
            Raw::U64(0),
            Raw::U64(random.of(&unsigned)),
            Raw::I64(random.of(&signed)),
            Raw::I32(random.of(&[0, -5, i32::MAX - 50, i32::MIN + 1, 40_000])),
            Raw::F32(random.of(&[0.0, 0.1, 1e6])),
            Raw::F32(random.of(&[0.1, 0.3])),
            Raw::U16(random.of(&[0, 100, 60_000])),
            Raw::I8(random.of(&[0, -100, 90])),
        ];
        Self { id, values }
    }

    /// Moves all values as time goes by.
    fn go_on(&mut self, random: &mut Random) {
        let range = self.values[RANGE];
        for (value, (_, _, kind)) in self.values.iter_mut().zip(FIELDS) {
            match (kind, *value) {
                (FieldKind::Wrapping, Raw::U64(number)) => {
                    let range = if let Raw::U64(range) = range { range } else { u64::MAX };
                    *value = Raw::U64((number + random.below(600)) % range.max(1));
                }
                (FieldKind::Gauge, _) if value.bytes() == range.bytes() => {}
                (FieldKind::Gauge, number) => {
                    *value = number.plus(random.below(2000).cast_signed() - 1000);
                }
                (_, number) => {
                    let change = match random.below(12) {
                        0 => 0,
                        1 => -1 - random.below(3).cast_signed(),
                        2 => -random.below(100_000).cast_signed(),
                        _ => random.below(400).cast_signed(),
                    };
                    *value = number.plus(change);
                }
            }
        }
    }

    /// The element as a sample has it: some values are absent.
    fn sampled(&self, random: &mut Random) -> Self {
        let values = self.values.map(|value| if random.below(12) == 0 { value.absent() } else { value });
        Self { id: self.id, values }
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; STRUCT_BYTES];
        bytes[..8].copy_from_slice(&self.id.to_le_bytes());
        for (value, (_, at, _)) in self.values.iter().zip(FIELDS) {
            let value = value.bytes();
            bytes[at..at + value.len()].copy_from_slice(&value);
        }
        bytes
    }
}

#[derive(Debug, Clone)]
struct Sample {
    mono_ns: u64,
    is_cut: bool,
    skipped: u64,
    /// `total`, `devices` and `processes`.
    lists: [Vec<Element>; 3],
}

const LISTS: [&str; 3] = ["total", "devices", "processes"];

impl Sample {
    /// Whether an element that is not in the list has ended.
    fn is_complete(&self, list: usize) -> bool {
        !self.is_cut && (list != 2 || self.skipped == 0)
    }

    /// The payload, by hand: a table of a struct, two lists and a number.
    fn body(&self) -> Vec<u8> {
        const TABLE_AT: usize = 16;
        let mut bytes = vec![0; TABLE_AT];
        let put = |bytes: &mut Vec<u8>, at: usize, number: u32| {
            bytes[at..at + 4].copy_from_slice(&number.to_le_bytes());
        };
        put(&mut bytes, 0, u32::try_from(TABLE_AT).unwrap());
        let vtable: [u16; 6] = [12, 104, 16, 4, 8, 96];
        for (number, slot) in vtable.iter().enumerate() {
            bytes[4 + 2 * number..][..2].copy_from_slice(&slot.to_le_bytes());
        }
        bytes.resize(TABLE_AT + 16, 0);
        put(&mut bytes, TABLE_AT, 12);
        bytes.extend(self.lists[0][0].bytes());
        bytes.extend(self.skipped.to_le_bytes());
        for (list, at) in [(1, TABLE_AT + 4), (2, TABLE_AT + 8)] {
            bytes.extend([0; 4]);
            let offset = u32::try_from(bytes.len() - at).unwrap();
            put(&mut bytes, at, offset);
            bytes.extend(u32::try_from(self.lists[list].len()).unwrap().to_le_bytes());
            bytes.extend(self.lists[list].iter().flat_map(Element::bytes));
        }
        bytes
    }
}

fn samples(random: &mut Random) -> Vec<Sample> {
    let mut known: BTreeMap<(usize, u64), Element> = BTreeMap::new();
    let mut mono_ns = 1_000_000_000;
    let count = 3 + random.below(60);
    (0..count)
        .map(|_| {
            mono_ns += match random.below(20) {
                0 => 700_000_000,
                1 => 61_000_000_000,
                _ => PERIOD_NS - 5_000_000 + random.below(10_000_000),
            };
            let lists = [0, 1, 2].map(|list| {
                let mut elements = Vec::new();
                for id in 0..if list == 0 { 1 } else { IDS } {
                    let is_there = list == 0 || random.below(6) > 0;
                    // Made again under its name.
                    if !is_there && random.below(2) == 0 {
                        known.remove(&(list, id));
                    }
                    let element = known.entry((list, id)).or_insert_with(|| Element::new(id, random));
                    element.go_on(random);
                    if is_there {
                        elements.push(element.sampled(random));
                    }
                    if is_there && list > 0 && random.below(25) == 0 {
                        elements.push(Element::new(id, random));
                    }
                }
                elements
            });
            let (is_cut, skipped) = (random.below(10) == 0, random.below(2));
            Sample { mono_ns, is_cut, skipped, lists }
        })
        .collect()
}

/// The growth of a value since the last one of its element, and over which time.
fn growth(samples: &[Sample], at: usize, list: usize, id: u64, field: usize) -> Option<(f64, u64)> {
    let own = |at: usize| -> Vec<&Element> {
        samples[at].lists[list].iter().filter(|element| list == 0 || element.id == id).collect()
    };
    let counted = |value: Raw| {
        value.value().filter(|value| {
            !matches!(value, HeldValue::Float(number) if !number.is_finite())
                && !matches!(value, HeldValue::Float32(number) if !number.is_finite())
        })
    };
    let [now] = own(at)[..] else { return None };
    let value = counted(now.values[field])?;
    for before_at in (0..at).rev() {
        let before = match own(before_at)[..] {
            [] if samples[before_at].is_complete(list) => return None,
            [] => continue,
            [before] => before,
            _ => return None,
        };
        let Some(before) = counted(before.values[field]) else { continue };
        let elapsed_ns = samples[at].mono_ns - samples[before_at].mono_ns;
        let range = match (FIELDS[field].2, now.values[RANGE]) {
            (FieldKind::Wrapping, Raw::U64(range)) if range != u64::MAX => Some(i128::from(range)),
            _ => None,
        };
        return Some((change(&before, &value, range, elapsed_ns)?, elapsed_ns));
    }
    None
}

#[allow(clippy::cast_precision_loss, reason = "compared with a tolerance")]
fn change(before: &HeldValue, now: &HeldValue, range: Option<i128>, elapsed_ns: u64) -> Option<f64> {
    if range.is_some() && elapsed_ns > 60_000_000_000 {
        return None;
    }
    let integer = |value: &HeldValue| match value {
        HeldValue::Unsigned(number) => Some(i128::from(*number)),
        HeldValue::Signed(number) => Some(i128::from(*number)),
        _ => None,
    };
    if let (Some(before), Some(now)) = (integer(before), integer(now)) {
        let is_correction = (before - now) * 100 <= before.abs();
        return match range {
            _ if now >= before || is_correction => Some((now - before) as f64),
            Some(range) if range >= before => Some((range - before + now) as f64),
            _ => None,
        };
    }
    let (before, now) = (before.number()?, now.number()?);
    (now >= before || (before - now) * 100.0 <= before.abs())
        .then_some(now - before)
        .filter(|own| own.is_finite())
}

fn write(folder: &Path, samples: &[Sample], random: &mut Random) -> Vec<PathBuf> {
    let cut = samples.len() / 2;
    let mut paths = Vec::new();
    for (number, part) in [(0, 0..cut), (1, cut..samples.len())] {
        let mut header = example();
        header.segment = number;
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

/// A row: step or sample, element, and values by field.
type ComparedRow = (i64, Option<u64>, Vec<HeldValue>);

fn rows(paths: &[PathBuf], list: usize, options: &RowOptions) -> Vec<ComparedRow> {
    let fields = FIELDS.map(|(name, ..)| match list {
        0 => format!("s.total.{name}"),
        list => format!("s.{}[*].{name}", LISTS[list]),
    });
    let query =
        Query { fields: fields.iter().map(|field| field.parse().unwrap()).collect(), ..Query::default() };
    let recording = Recording::open(paths).unwrap();
    let mut reader = recording.rows(&query, options.clone()).unwrap();
    let mut found = Vec::new();
    while let Some(item) = reader.next().unwrap() {
        let RowItem::Row(stamp) = item else { continue };
        let id = stamp.element.map(|element| reader.label(element).parse().unwrap());
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

/// One value of these, in their type.
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

/// Returns the rows by their definition.
fn expected(samples: &[Sample], list: usize, options: &RowOptions) -> Vec<ComparedRow> {
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
        // The values of each element in a row: one value, or all values of a step.
        let mut own: Vec<(u64, Vec<(usize, &Element)>)> = Vec::new();
        for at in group {
            for element in &samples[at].lists[list] {
                match own.iter_mut().find(|(id, _)| *id == element.id && options.steps.is_some()) {
                    Some((_, values)) => values.push((at, element)),
                    None => own.push((element.id, vec![(at, element)])),
                }
            }
        }
        for (id, group) in own {
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
                    // Not a number is a value of a row.
                    None if !is_rate => match group[0].1.values[field] {
                        Raw::F64(number) if number.is_nan() => HeldValue::Float(number),
                        Raw::F32(number) if number.is_nan() => HeldValue::Float32(number),
                        value => value.value().unwrap_or(HeldValue::Absent),
                    },
                    None | Some(Some(Aggregate::Last)) => named("last"),
                    Some(None | Some(Aggregate::Mean)) if is_rate => {
                        let limit_ns = 2 * PERIOD_NS.max(options.steps.unwrap().step_ns);
                        let near: Vec<_> = growths.flatten().filter(|own| own.1 <= limit_ns).collect();
                        rate(&near)
                    }
                    Some(None) if *kind != FieldKind::Gauge => named("last"),
                    Some(None | Some(Aggregate::Mean)) => named("mean"),
                    Some(Some(Aggregate::Quantile(_))) => named("p50"),
                    Some(Some(Aggregate::Min)) => named("min"),
                    Some(Some(Aggregate::Max)) => named("max"),
                    Some(Some(Aggregate::Sum)) => named("sum"),
                    Some(Some(Aggregate::Count)) => named("count"),
                }
            });
            rows.push((begin_ns, (list > 0).then_some(id), values.collect()));
        }
    }
    rows
}

/// Whether two values are the same: integers exactly, fractions to the rounding of a sum.
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

fn compare(paths: &[PathBuf], samples: &[Sample], list: usize, options: &RowOptions) {
    let (found, expected) = (rows(paths, list, options), expected(samples, list, options));
    for (number, (found, expected)) in found.iter().zip(&expected).enumerate() {
        assert_eq!(
            (found.0, found.1),
            (expected.0, expected.1),
            "row {number} of {} {options:?}",
            LISTS[list]
        );
        for ((found, expected), (name, ..)) in found.2.iter().zip(&expected.2).zip(FIELDS) {
            assert!(
                is_same(found, expected),
                "row {number} of {}.{name} {options:?}: {found:?} is not {expected:?}",
                LISTS[list]
            );
        }
    }
    assert_eq!(found.len(), expected.len(), "rows of {} {options:?}", LISTS[list]);
}

/// Compares the rates of whole samples, as `dump --source` prints them.
fn compare_source(samples: &[Sample]) {
    let schema = CompiledSchema::compile(SCHEMA, ROOT).unwrap();
    let mut rates = Rates::default();
    for (at, sample) in samples.iter().enumerate() {
        let flags = if sample.is_cut { Incomplete::CUT.flags() } else { 0 };
        let body = sample.body();
        rates.observe(&schema, (sample.mono_ns, flags), &body).unwrap();
        let mut json = Vec::new();
        schema.walk(&body, &mut rates.replace_counters(&mut JsonWriter::new(&mut json))).unwrap();
        let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
        for (list, name) in LISTS.iter().enumerate() {
            for (place, element) in sample.lists[list].iter().enumerate() {
                let object = if list == 0 { &json["total"] } else { &json[name][place] };
                for (field, (field_name, _, kind)) in FIELDS.iter().enumerate() {
                    if *kind == FieldKind::Gauge {
                        continue;
                    }
                    let own = growth(samples, at, list, element.id, field);
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
    #![proptest_config(ProptestConfig::with_cases(effort::of(200, 5_000)))]

    // Proves that rates, steps and all aggregates have the values that a naive reader computes.
    // Counters of all types wrap, are reset, fall a little and are absent. Elements end, come back,
    // are left out, and occur twice. Values are around 2^53, 2^63 and 2^64. The two segments are
    // raw or compressed.
    #[test]
    fn rates_and_steps_are_as_defined(seed in any::<u64>()) {
        let mut random = Random(seed);
        let samples = samples(&mut random);
        let folder = tempfile::tempdir().unwrap();
        let paths = write(folder.path(), &samples, &mut random);
        compare_source(&samples);
        for list in 0..3 {
            for is_rate in [false, true] {
                compare(&paths, &samples, list, &options(list > 0, is_rate, None));
                for name in ["", "mean", "min", "max", "last", "sum", "count", "p50"] {
                    let step_ns = random.of(&[PERIOD_NS, 300_000_000, 1_000_000_000, 100_000_000_000]);
                    compare(&paths, &samples, list, &options(list > 0, is_rate, Some((step_ns, name))));
                }
            }
        }
    }
}

/// Returns an element whose counters and gauges all have this count.
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

/// Returns the rows of samples with these totals and devices, one each 100 ms.
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
    rows(&paths, list, options)
}

// Proves that counters of each type of number have the same rate, plain and by steps.
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

// Proves that a device that is made again under its name has no rate against the old one, and that
// two devices of one name have none against each other.
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

// Proves that a time that the kernel corrects downwards by a tick has the rate of its growth in each
// step, and that a counter that is reset has the rate of the rest of the step.
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

// Proves that the rate of a counter that wraps is right over the wraps, also of several in a step.
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
