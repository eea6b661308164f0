//! Payloads and sources for the tests of this crate.

use std::sync::Arc;

use flatbuffers::{FlatBufferBuilder, VOffsetT, Vector, WIPOffset};
use flatcap_format::schema::CompiledSchema;

use crate::engine::{TriggerEngine, TriggerRule};
use crate::error::RuleProblem;
use crate::event::TriggerEvent;
use crate::machine::TriggerTimes;
use crate::rule_source::RuleSource;

pub(crate) const MS: u64 = 1_000_000;

/// A field of a payload.
pub(crate) enum FixtureField<'w> {
    Word(u64),
    Double(f64),
    /// Words of consecutive structs, and the number of structs.
    Structs(&'w [u64], usize),
    /// Words of one struct.
    Struct(&'w [u64]),
}

/// Returns a payload. The arguments give the position and the value of each field in the root
/// table.
pub(crate) fn payload(fields: &[(u16, FixtureField<'_>)]) -> Vec<u8> {
    let mut builder = FlatBufferBuilder::new();
    let lists: Vec<Option<WIPOffset<Vector<'_, u64>>>> = fields
        .iter()
        .map(|(_, field)| {
            let FixtureField::Structs(words, count) = field else { return None };
            builder.start_vector::<u64>(words.len());
            words.iter().rev().for_each(|word| {
                builder.push(*word);
            });
            Some(builder.end_vector(*count))
        })
        .collect();
    let table = builder.start_table();
    for ((position, field), list) in fields.iter().zip(lists) {
        let slot: VOffsetT = 4 + 2 * position;
        match field {
            FixtureField::Word(word) => builder.push_slot_always(slot, *word),
            FixtureField::Double(number) => builder.push_slot_always(slot, *number),
            FixtureField::Structs(..) => builder.push_slot_always(slot, list.unwrap()),
            FixtureField::Struct(words) => {
                words[1..].iter().rev().for_each(|word| {
                    builder.push(*word);
                });
                builder.push_slot_always(slot, words[0]);
            }
        }
    }
    let root = builder.end_table(table);
    builder.finish_minimal(root);
    builder.finished_data().to_vec()
}

/// Returns a sample of the synthetic source.
pub(crate) fn point(counter: u64, wave: f64) -> Vec<u8> {
    payload(&[(0, FixtureField::Word(counter)), (1, FixtureField::Double(wave)), (2, FixtureField::Word(7))])
}

fn text_words<const WORDS: usize>(text: &str) -> [u64; WORDS] {
    let mut bytes = text.as_bytes().to_vec();
    bytes.resize(8 * WORDS, 0);
    let words: Vec<u64> = bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
    words.try_into().unwrap()
}

/// Returns a sample of thermal zones. A zone has a number, a kind, and a temperature in
/// millidegrees.
pub(crate) fn zones(zones: &[(u64, &str, f64)]) -> Vec<u8> {
    let mut words = Vec::new();
    for (zone, kind, temperature) in zones {
        words.push(*zone);
        words.extend(text_words::<4>(kind));
        words.extend([temperature.to_bits(), 0]);
    }
    payload(&[(0, FixtureField::Structs(&words, zones.len()))])
}

/// Returns a sample of processes. The sample contains running processes by id and name, ended
/// processes by process id and signal, whether the kernel reports ends of processes, and the number
/// of omitted processes.
pub(crate) fn processes(
    running: &[(u64, &str)],
    ended: &[(u64, Option<u64>)],
    has_events: bool,
    skipped: u64,
) -> Vec<u8> {
    let (mut words, mut ends) = (Vec::new(), Vec::new());
    for (id, name) in running {
        words.extend([*id, 100 + id, 1, 0]);
        words.extend(text_words::<8>(name));
        words.extend(text_words::<1>("S"));
        words.extend([0_u64; 17]);
    }
    for (id, signal) in ended {
        ends.extend([
            *id,
            1,
            100 + id,
            5,
            if signal.is_some() { u64::MAX } else { 0 },
            signal.unwrap_or(u64::MAX),
        ]);
    }
    let events = [1_u64; 5];
    let mut fields = vec![(0, FixtureField::Word(running.len() as u64))];
    if has_events {
        fields.push((1, FixtureField::Struct(&events)));
    }
    fields.push((2, FixtureField::Structs(&words, running.len())));
    fields.push((3, FixtureField::Structs(&ends, ended.len())));
    fields.push((4, FixtureField::Structs(&[], 0)));
    fields.push((5, FixtureField::Structs(&[], 0)));
    fields.push((6, FixtureField::Word(skipped)));
    payload(&fields)
}

/// Returns the sources of the tests with their periods. The sources are `synthetic` at 1 kHz,
/// `thermal` at 10 Hz, `process` at 10 Hz, and `pressure` at 100 Hz.
pub(crate) fn schemas() -> [(&'static str, u64, CompiledSchema); 4] {
    let compile = |schema: &[u8], root| CompiledSchema::compile(schema, root).unwrap();
    [
        (
            "synthetic",
            MS,
            compile(include_bytes!("../../../generated/synthetic.bfbs"), "flatcap.synthetic.Point"),
        ),
        (
            "thermal",
            100 * MS,
            compile(include_bytes!("../../../generated/host/thermal.bfbs"), "flatcap.host.Thermal"),
        ),
        (
            "process",
            100 * MS,
            compile(include_bytes!("../../../generated/host/process.bfbs"), "flatcap.host.Process"),
        ),
        (
            "pressure",
            10 * MS,
            compile(include_bytes!("../../../generated/host/pressure.bfbs"), "flatcap.host.Pressure"),
        ),
    ]
}

pub(crate) const TIMES: TriggerTimes =
    TriggerTimes { for_ns: 0, before_ns: 0, after_ns: 0, hold_off_ns: 0, max_per_day: 10_000 };

pub(crate) fn rule(when: &str) -> TriggerRule {
    TriggerRule { name: Arc::from("rule"), when: when.parse().unwrap(), clear: None, times: TIMES }
}

/// Compiles rules for the sources of the tests.
pub(crate) fn compile(rules: &[TriggerRule]) -> Result<TriggerEngine, Vec<RuleProblem>> {
    let schemas = schemas();
    let sources: Vec<RuleSource<'_>> = schemas
        .iter()
        .map(|(name, period_ns, schema)| RuleSource { name, period_ns: *period_ns, schema: Some(schema) })
        .collect();
    TriggerEngine::new(rules, &sources)
}

/// Passes samples to a rule. A sample has a source, a time in milliseconds, and a payload. Returns
/// the times of the rule's firings in milliseconds, and all events.
pub(crate) fn firings(rule: TriggerRule, samples: &[(usize, u64, Vec<u8>)]) -> (Vec<u64>, Vec<TriggerEvent>) {
    let mut engine = compile(&[rule]).unwrap();
    let mut events = Vec::new();
    for (source, time, payload) in samples {
        engine.observe(*source, (time * MS, 0), payload, &mut events);
    }
    let fired = events.iter().filter(|event| event.change == crate::TriggerChange::Fired);
    (fired.map(|event| event.fired_mono_ns / MS).collect(), events)
}
