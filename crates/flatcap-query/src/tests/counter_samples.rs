//! Random samples of counters for tests, and the growth of each counter.

use std::collections::BTreeMap;

use super::*;

pub(super) const SCHEMA: &[u8] = include_bytes!("../../../../tests/data/schema/counters.bfbs");
pub(super) const ROOT: &str = "flatcap.test.Counters";
pub(super) const PERIOD_NS: u64 = 100_000_000;
pub(super) const OFFSET_NS: i64 = 1_700_000_000_000_000_000;
pub(super) const STRUCT_BYTES: usize = 80;
pub(super) const IDS: u64 = 4;

/// A field of an element, with its name, its offset in the struct, and its kind.
pub(super) type FieldSpec = (&'static str, usize, FieldKind);

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum FieldKind {
    Counter,
    Wrapping,
    Gauge,
}

pub(super) const FIELDS: [FieldSpec; 12] = [
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
pub(super) const RANGE: usize = 3;

/// A number in the form in which a payload stores it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Raw {
    U64(u64),
    I64(i64),
    F64(f64),
    I32(i32),
    F32(f32),
    U16(u16),
    I8(i8),
}

impl Raw {
    pub(super) fn bytes(self) -> Vec<u8> {
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

    /// Returns the value as docs/FORMAT.md defines it. Returns `None` for the value that means
    /// absence in this type, and for NaN.
    pub(super) fn value(self) -> Option<HeldValue> {
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

    /// Returns the value that means "absent" in the type of this number. For a float, it is NaN.
    pub(super) fn absent(self) -> Self {
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
    pub(super) fn plus(self, change: i64) -> Self {
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

/// Pseudorandom numbers. The same seed gives the same numbers, so that a failure can be reproduced.
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ mixed >> 31) % end
    }

    pub(super) fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[usize::try_from(self.below(all.len() as u64)).unwrap()]
    }
}

#[derive(Debug, Clone)]
pub(super) struct Element {
    pub(super) id: u64,
    pub(super) values: [Raw; 12],
}

impl Element {
    pub(super) fn new(id: u64, random: &mut Random) -> Self {
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

    /// Changes all values, as if time passed.
    pub(super) fn go_on(&mut self, random: &mut Random) {
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

    /// Returns the element in the form in which a sample contains it, with some values absent.
    pub(super) fn sampled(&self, random: &mut Random) -> Self {
        let values = self.values.map(|value| if random.below(12) == 0 { value.absent() } else { value });
        Self { id: self.id, values }
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
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
pub(super) struct Sample {
    pub(super) mono_ns: u64,
    pub(super) is_cut: bool,
    pub(super) skipped: u64,
    /// The elements of the lists `total`, `devices` and `processes`.
    pub(super) lists: [Vec<Element>; 3],
}

pub(super) const LISTS: [&str; 3] = ["total", "devices", "processes"];

impl Sample {
    /// Returns whether an element that is missing from the sample has ended. The element has ended
    /// if the sample contains all elements of the list.
    pub(super) fn is_complete(&self, list: usize) -> bool {
        !self.is_cut && (list != 2 || self.skipped == 0)
    }

    /// Builds the payload by hand. The payload is a table with a struct, two lists and a number.
    pub(super) fn body(&self) -> Vec<u8> {
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

pub(super) fn samples(random: &mut Random) -> Vec<Sample> {
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
                    // A device that is created again has the name of the old device.
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

/// Returns the growth of a value since the previous value of the same element, and the time between
/// the two values.
pub(super) fn growth(
    samples: &[Sample],
    at: usize,
    list: usize,
    id: u64,
    field: usize,
) -> Option<(f64, u64)> {
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
pub(super) fn change(
    before: &HeldValue,
    now: &HeldValue,
    range: Option<i128>,
    elapsed_ns: u64,
) -> Option<f64> {
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
