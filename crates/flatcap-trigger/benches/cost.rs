//! Measures the time that a rule takes per sample. Compares it with the time for visiting all
//! fields of the same payloads. Run it with `cargo bench --package flatcap-trigger`.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    clippy::cast_precision_loss,
    reason = "a bench fails by panicking, measures time and prints"
)]

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use flatbuffers::{FlatBufferBuilder, VOffsetT};
use flatcap_format::schema::{CompiledSchema, FieldValue, PathStep, Visitor};
use flatcap_trigger::{RuleSource, TriggerEngine, TriggerRule, TriggerTimes};

/// Number of samples in a round.
const SAMPLES: u64 = 100_000;
/// Number of rounds. Only the fastest round counts, because interference slows down the other
/// rounds.
const ROUNDS: usize = 9;
const MS: u64 = 1_000_000;

const SCHEMA: &[u8] = include_bytes!("../../../generated/host/pressure.bfbs");

/// Returns a sample of /proc/pressure, which has seven lines of three averages and a total.
fn payload(total: u64) -> Vec<u8> {
    let mut builder = FlatBufferBuilder::new();
    let table = builder.start_table();
    for line in 0..7 {
        let slot: VOffsetT = 4 + 2 * line;
        builder.push(total);
        builder.push(0.5_f64);
        builder.push(0.5_f64);
        builder.push_slot_always(slot, 0.5_f64);
    }
    let root = builder.end_table(table);
    builder.finish_minimal(root);
    builder.finished_data().to_vec()
}

/// Finds one field by its name. A reader without a precompiled plan finds fields in this way.
#[derive(Default)]
struct NaiveVisitor {
    depth: usize,
    is_inside: bool,
    total: u64,
}

fn name(step: PathStep<'_>) -> Option<&str> {
    match step {
        PathStep::Root => None,
        PathStep::Field(field) | PathStep::Element(field, _) => Some(field.name()),
    }
}

impl Visitor for NaiveVisitor {
    fn begin_object(&mut self, step: PathStep<'_>) {
        self.depth += 1;
        self.is_inside = name(step) == Some("io_some");
    }

    fn end_object(&mut self) {
        self.depth -= 1;
        self.is_inside = false;
    }

    fn begin_list(&mut self, _step: PathStep<'_>, _length: usize) {}

    fn end_list(&mut self) {}

    fn value(&mut self, step: PathStep<'_>, value: FieldValue<'_>) {
        if let (true, Some("total"), FieldValue::Unsigned(number)) = (self.is_inside, name(step), value) {
            self.total = number;
        }
    }
}

/// Returns the nanoseconds per sample of the fastest round.
fn fastest(mut round: impl FnMut()) -> f64 {
    let rounds = (0..ROUNDS).map(|_| {
        let begin = Instant::now();
        round();
        begin.elapsed().as_nanos() as f64 / SAMPLES as f64
    });
    rounds.fold(f64::INFINITY, f64::min)
}

fn engine(conditions: &[&str], schema: &CompiledSchema) -> TriggerEngine {
    let times = TriggerTimes { for_ns: 0, before_ns: 0, after_ns: 0, hold_off_ns: 0, max_per_day: 100 };
    let rules: Vec<TriggerRule> = conditions
        .iter()
        .map(|when| TriggerRule { name: Arc::from("rule"), when: when.parse().unwrap(), clear: None, times })
        .collect();
    let source = RuleSource { name: "pressure", period_ns: MS, schema: Some(schema) };
    TriggerEngine::new(&rules, &[source]).unwrap()
}

fn main() {
    let schema = CompiledSchema::compile(SCHEMA, "flatcap.host.Pressure").unwrap();
    let payloads: Vec<Vec<u8>> = (0..1024).map(payload).collect();
    let at = |number: u64| payloads.get(usize::try_from(number % 1024).unwrap()).unwrap().as_slice();
    let walk = fastest(|| {
        let mut visitor = NaiveVisitor::default();
        for number in 0..SAMPLES {
            schema.walk(black_box(at(number)), &mut visitor).unwrap();
        }
        black_box(visitor.total);
    });
    println!("{walk:>8.1} ns a sample: a walk of the payload, the field by its name");
    let one = "pressure.io_some.total";
    for (what, conditions) in [
        ("a rule with a threshold", vec![format!("{one} > 20s")]),
        ("a rule with :rate", vec![format!("{one}:rate > 200%")]),
        ("a rule with :rate(200ms)", vec![format!("{one}:rate(200ms) > 200%")]),
        ("a rule with :rate:max(1s)", vec![format!("{one}:rate:max(1s) > 200000%")]),
        ("a rule with :quantile(0.99, 1s)", vec![format!("{one}:delta:quantile(0.99, 1s) > 20s")]),
        (
            "ten rules with :rate(200ms) of two fields",
            (0..10)
                .map(|number| {
                    let field = if number % 2 == 0 { "io_some" } else { "cpu_some" };
                    format!("pressure.{field}.total:rate(200ms) > {}%", 200 + number)
                })
                .collect(),
        ),
    ] {
        let conditions: Vec<&str> = conditions.iter().map(String::as_str).collect();
        let mut engine = engine(&conditions, &schema);
        let (mut time, mut events) = (0, Vec::new());
        let cost = fastest(|| {
            for number in 0..SAMPLES {
                time += MS;
                engine.observe(0, (time, 0), black_box(at(number)), &mut events);
            }
            events.clear();
        });
        let a_rule = cost / conditions.len() as f64;
        println!("{cost:>8.1} ns a sample, {a_rule:.1} a sample and rule: {what}");
    }
}
