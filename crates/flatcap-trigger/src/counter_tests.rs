//! Compares rates and changes of random counters with the results of a naive reader of the same
//! samples. The tests of `dump` use the same method.

use flatcap_format::schema::CompiledSchema;
use proptest::prelude::*;

use crate::fixtures::{TIMES, rule};
use crate::slot::FieldSlot;
use crate::{RuleSource, TriggerEngine, TriggerRule};

const SCHEMA: &[u8] = include_bytes!("../../../tests/data/schema/counters.bfbs");
const MS: u64 = 1_000_000;
const STRUCT_BYTES: usize = 80;
/// The counters of 64 bits, each with its offset in an element.
const COUNTERS: [(&str, usize); 3] = [("unsigned64", 8), ("signed64", 16), ("wrapping", 40)];
const RANGE_AT: usize = 32;
const LISTS: [&str; 3] = ["total", "devices", "processes"];

/// An element with its id, the values of [`COUNTERS`], and the range of the wrapping counter.
type Element = (u64, [u64; 3], u64);

/// A sample: the time since the previous sample, whether it was truncated, the number of omitted
/// elements, and the elements by list.
type Sample = (u64, bool, u64, [Vec<Element>; 3]);

fn any_element() -> impl Strategy<Value = Element> {
    let unsigned = prop_oneof![4 => 900..1100_u64, 1 => Just(u64::MAX), 1 => any::<u64>(), 1 => 0..20_u64];
    let wrapping = prop_oneof![5 => 0..1000_u64, 1 => Just(u64::MAX)];
    let range = prop_oneof![4 => Just(1000_u64), 1 => Just(500_u64), 1 => Just(u64::MAX)];
    (0..3_u64, unsigned.clone(), unsigned, wrapping, range)
        .prop_map(|(id, first, second, third, range)| (id, [first, second, third], range))
}

fn any_sample() -> impl Strategy<Value = Sample> {
    let elements = || prop::collection::vec(any_element(), 0..4);
    let total = any_element().prop_map(|own| vec![own]);
    (80..120_u64, prop::bool::weighted(0.2), 0..2_u64, (total, elements(), elements())).prop_map(
        |(ms, is_cut, skipped, (total, devices, processes))| {
            (ms, is_cut, skipped, [total, devices, processes])
        },
    )
}

fn bytes((id, values, range): &Element) -> Vec<u8> {
    let mut bytes = vec![0; STRUCT_BYTES];
    bytes[..8].copy_from_slice(&id.to_le_bytes());
    for ((_, at), value) in COUNTERS.iter().zip(values) {
        bytes[*at..at + 8].copy_from_slice(&value.to_le_bytes());
    }
    bytes[RANGE_AT..RANGE_AT + 8].copy_from_slice(&range.to_le_bytes());
    bytes
}

/// Returns the payload of a sample, which is a table of a struct, two lists of structs, and a
/// number.
fn payload((_, _, skipped, lists): &Sample) -> Vec<u8> {
    const TABLE_AT: usize = 16;
    let put = |bytes: &mut Vec<u8>, at: usize, number: usize| {
        bytes[at..at + 4].copy_from_slice(&u32::try_from(number).unwrap().to_le_bytes());
    };
    let mut all = vec![0; TABLE_AT + 16];
    put(&mut all, 0, TABLE_AT);
    for (number, slot) in [12_u16, 104, 16, 4, 8, 96].iter().enumerate() {
        all[4 + 2 * number..][..2].copy_from_slice(&slot.to_le_bytes());
    }
    put(&mut all, TABLE_AT, 12);
    all.extend(bytes(&lists[0][0]));
    all.extend(skipped.to_le_bytes());
    for (list, at) in [(1, TABLE_AT + 4), (2, TABLE_AT + 8)] {
        all.extend([0; 4]);
        let offset = all.len() - at;
        put(&mut all, at, offset);
        all.extend(u32::try_from(lists[list].len()).unwrap().to_le_bytes());
        all.extend(lists[list].iter().flat_map(bytes));
    }
    all
}

/// Returns the rate at which a counter of an element changed since the last sample that has a value
/// of this counter. `samples` are the samples up to now, with their times.
#[allow(clippy::cast_precision_loss, reason = "compared with a tolerance")]
fn rate(samples: &[(u64, Sample)], list: usize, id: u64, counter: usize) -> Option<f64> {
    let own = |sample: &Sample| -> Vec<Element> {
        sample.3[list].iter().filter(|element| list == 0 || element.0 == id).copied().collect()
    };
    let value = |(_, values, _): &Element| match (counter, values[counter]) {
        (1, number) => (number.cast_signed() != i64::MAX).then_some(i128::from(number.cast_signed())),
        (_, number) => (number != u64::MAX).then_some(i128::from(number)),
    };
    let ((now_ns, now), earlier) = samples.split_last()?;
    let [now] = own(now)[..] else { return None };
    let (range, now) = (now.2, value(&now)?);
    for (before_ns, sample) in earlier.iter().rev() {
        let is_complete = !sample.1 && (list != 2 || sample.2 == 0);
        let before = match own(sample)[..] {
            [] if is_complete => return None,
            [] => continue,
            [before] => value(&before),
            _ => return None,
        };
        let Some(before) = before else { continue };
        let range = Some(i128::from(range)).filter(|_| counter == 2 && range != u64::MAX);
        let change = match range {
            _ if now >= before => now - before,
            // A small decrease is a correction. The rate of a correction is unknown.
            _ if (before - now) * 100 <= before.abs() => return None,
            Some(range) if range >= before => range - before + now,
            _ => return None,
        };
        return Some(change as f64 / ((now_ns - before_ns) as f64 / 1e9));
    }
    None
}

/// Returns the values of a slot in the order of the elements.
fn values(slot: &FieldSlot) -> Vec<Option<f64>> {
    let known = |value: &f64| Some(*value).filter(|value| !value.is_nan());
    if slot.plan.is_list { slot.rows.iter().map(known).collect() } else { vec![known(&slot.value)] }
}

fn is_same(found: Option<f64>, expected: Option<f64>) -> bool {
    match (found, expected) {
        (Some(found), Some(expected)) => (found - expected).abs() <= 1e-9 * expected.abs().max(1.0),
        (found, expected) => found == expected,
    }
}

proptest! {
    // Proves that the rate of a counter in a rule is the rate that a naive reader computes, at each
    // sample and for each element. `dump` prints the same rate. Counters wrap, are reset, decrease
    // slightly and are absent. Elements end, return, are omitted and occur twice.
    #[test]
    fn rates_are_those_of_other_outputs(samples in prop::collection::vec(any_sample(), 2..30)) {
        let schema = CompiledSchema::compile(SCHEMA, "flatcap.test.Counters").unwrap();
        let source = RuleSource { name: "s", period_ns: 100 * MS, schema: Some(&schema) };
        let path = |list: usize, name: &str| match list {
            0 => format!("s.total.{name}"),
            list => format!("s.{}[*].{name}", LISTS[list]),
        };
        let all: Vec<(usize, &str)> =
            (0..3).flat_map(|list| COUNTERS.iter().map(move |(name, _)| (list, *name))).collect();
        let rules: Vec<TriggerRule> = all
            .iter()
            .map(|(list, name)| match list {
                0 => rule(&format!("{}:rate > 0", path(*list, name))),
                list => rule(&format!("any({}:rate > 0)", path(*list, name))),
            })
            .map(|rule| TriggerRule { times: TIMES, ..rule })
            .collect();
        let mut engine = TriggerEngine::new(&rules, &[source]).unwrap();
        let (mut known, mut time_ns, mut events) = (Vec::new(), 1_000 * MS, Vec::new());
        for sample in &samples {
            time_ns += sample.0 * MS;
            // Bits 0 and 1 of the flags mean that the sample was truncated.
            let flags = if sample.1 { 0b11 } else { 0 };
            let payload = payload(sample);
            engine.observe(0, (time_ns, flags), &payload, &mut events);
            known.push((time_ns, sample.clone()));
            for ((list, name), slot) in all.iter().zip(engine.slots.iter().filter(|slot| !slot.plan.stages.is_empty())) {
                let counter = COUNTERS.iter().position(|(own, _)| own == name).unwrap();
                let ids = sample.3[*list].iter().map(|element| element.0);
                let expected: Vec<Option<f64>> = ids.map(|id| rate(&known, *list, id, counter)).collect();
                let found = values(slot);
                let same = found.len() == expected.len()
                    && found.iter().zip(&expected).all(|(found, expected)| is_same(*found, *expected));
                prop_assert!(same, "{}: {:?} is not {:?}", path(*list, name), found, expected);
            }
        }
    }

    // Proves that the growth over a window is the sum of the growths between its samples.
    #[test]
    fn growth_over_a_window_is_a_sum(
        steps in prop::collection::vec((1..4_u64, 0..300_u64), 2..40),
        window in 1..9_u64,
    ) {
        let schema = CompiledSchema::compile(SCHEMA, "flatcap.test.Counters").unwrap();
        let source = RuleSource { name: "s", period_ns: MS, schema: Some(&schema) };
        let condition = format!("s.total.wrapping:delta({window}ms) >= 0");
        let mut engine = TriggerEngine::new(&[rule(&condition)], &[source]).unwrap();
        let (mut time_ns, mut count, mut events) = (1_000 * MS, 0, Vec::new());
        // The true count at each time.
        let mut known: Vec<(u64, u64)> = Vec::new();
        for (ms, change) in steps {
            (time_ns, count) = (time_ns + ms * MS, count + change);
            known.push((time_ns, count));
            let sample = (0, false, 0, [vec![(0, [0, 0, count % 1000], 1000)], Vec::new(), Vec::new()]);
            engine.observe(0, (time_ns, 0), &payload(&sample), &mut events);
            let begin = known.iter().rev().find(|(at, _)| *at <= time_ns - window * MS);
            #[allow(clippy::cast_precision_loss, reason = "small numbers")]
            let expected = begin.map(|(_, before)| (count - before) as f64);
            let slot = engine.slots.iter().find(|slot| !slot.plan.stages.is_empty()).unwrap();
            prop_assert_eq!(values(slot), vec![expected]);
        }
    }
}
