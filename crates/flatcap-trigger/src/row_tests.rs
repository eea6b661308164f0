//! Compares the results of conditions on rows with the results of the same conditions in rules, and
//! with a naive model.

use std::fmt::Write as _;
use std::path::Path;

use flatbuffers::FlatBufferBuilder;
use flatcap_format::schema::{
    CompiledSchema, MetricKind, NewContent, NewField, NewTable, binary_schema, slot_of,
};
use flatcap_format::testing::{effort, write_source};
use flatcap_query::{Query, QueryItem, Recording};
use proptest::prelude::*;

use crate::fixtures::rule;
use crate::{RuleSource, TriggerEngine};

const ROOT: &str = "Root";

/// A value of a sample. `None` if the value is absent.
type Value = Option<u64>;

/// An element of the list, with its id and the value of `size`.
type Device = (u64, Value);

/// A row, with the values of `time` and `count`, and the devices.
type Row = (Value, Value, Vec<Device>);

/// A result in three-valued logic. `None` is unknown.
type Result3 = Option<bool>;

/// A condition as a tree.
#[derive(Debug, Clone)]
enum Tree {
    /// The value of `time`, which is recorded in us and compared in ms.
    Time(usize, u64),
    Count(usize, u64),
    /// The sum of `count` and a number, divided by `time` in us.
    Quotient(usize, u64),
    /// The size of the element, in a row that is an element. In other rows, the size of any
    /// element.
    Own(usize, u64),
    /// The size of the device with this id.
    Picked(u64, usize, u64),
    /// The size of each device, or of any device.
    Elements(bool, usize, u64),
    Not(Box<Tree>),
    Joined(bool, Vec<Tree>),
}

/// An operator, and the function that returns whether the comparison of two numbers holds.
type Sign = (&'static str, fn(u64, u64) -> bool);

const SIGNS: [Sign; 6] = [
    ("=", |one, other| one == other),
    ("!=", |one, other| one != other),
    ("<", |one, other| one < other),
    ("<=", |one, other| one <= other),
    (">", |one, other| one > other),
    (">=", |one, other| one >= other),
];

/// Returns a number of thousandths as a decimal string.
fn decimal(thousandths: u64) -> String {
    format!("0.{thousandths:03}")
}

fn not(result: Result3) -> Result3 {
    result.map(|holds| !holds)
}

fn joined(results: &[Result3], is_every: bool) -> Result3 {
    match (results.contains(&Some(!is_every)), results.contains(&None)) {
        (true, _) => Some(!is_every),
        (false, true) => None,
        (false, false) => Some(is_every),
    }
}

impl Tree {
    /// Returns the result for a sample, or for the element of a row.
    fn result(&self, row: &Row, element: Option<&Device>) -> Result3 {
        let (time, count, devices) = row;
        let compared = |sign: usize, value: Value, other: u64| Some(SIGNS[sign].1(value?, other));
        let sizes = |sign: usize, other: u64| -> Vec<Result3> {
            devices.iter().map(|(_, size)| compared(sign, *size, other)).collect()
        };
        match self {
            Self::Time(sign, other) => compared(*sign, *time, *other),
            Self::Count(sign, other) => compared(*sign, *count, *other),
            // The comparison `(count + 4) / (time / 1us) > other`, computed without a division.
            Self::Quotient(sign, other) => {
                compared(*sign, Some((*count)? + 4), other * time.filter(|time| *time > 0)?)
            }
            Self::Own(sign, other) => match element {
                Some((_, size)) => compared(*sign, *size, *other),
                None => joined(&sizes(*sign, *other), false),
            },
            Self::Picked(id, sign, other) => {
                let own = devices.iter().filter(|(own, _)| own == id);
                let own: Vec<Result3> = own.map(|(_, size)| compared(*sign, *size, *other)).collect();
                if own.is_empty() { None } else { joined(&own, false) }
            }
            Self::Elements(true, ..) if devices.is_empty() => None,
            Self::Elements(is_every, sign, other) => joined(&sizes(*sign, *other), *is_every),
            Self::Not(part) => not(part.result(row, element)),
            Self::Joined(is_every, parts) => {
                let parts: Vec<Result3> = parts.iter().map(|part| part.result(row, element)).collect();
                joined(&parts, *is_every)
            }
        }
    }

    /// Returns the condition as a string. A rule needs `any` around a condition on elements.
    fn text(&self, is_rule: bool) -> String {
        let sign = |sign: &usize| SIGNS[*sign].0;
        match self {
            Self::Time(own, other) => format!("s.time {} {}ms", sign(own), decimal(*other)),
            Self::Count(own, other) => format!("s.count {} {other}", sign(own)),
            Self::Quotient(own, other) => format!("(s.count + 4) / (s.time / 1us) {} {other}", sign(own)),
            Self::Own(own, other) if is_rule => {
                format!("any(s.devices[*].size {} {}KiB)", sign(own), 4 * other)
            }
            Self::Own(own, other) => format!("s.devices[*].size {} {}KiB", sign(own), 4 * other),
            Self::Picked(id, own, other) => format!("s.devices[{id}].size {} {} KiB", sign(own), 4 * other),
            Self::Elements(is_every, own, other) => {
                let name = if *is_every { "all" } else { "any" };
                format!("{name}(s.devices[*].size {} {}B)", sign(own), other * 4096)
            }
            Self::Not(part) => format!("not {}", part.text(is_rule)),
            Self::Joined(is_every, parts) => {
                let mut text = String::from("(");
                for (number, part) in parts.iter().enumerate() {
                    let word = if *is_every { " and " } else { " or " };
                    write!(text, "{}{}", if number == 0 { "" } else { word }, part.text(is_rule)).unwrap();
                }
                text + ")"
            }
        }
    }
}

fn any_value() -> impl Strategy<Value = Value> {
    prop_oneof![3 => (0..4_u64).prop_map(Some), 1 => Just(None)]
}

fn any_row() -> impl Strategy<Value = Row> {
    (any_value(), any_value(), prop::collection::vec((0..3_u64, any_value()), 0..4))
}

fn any_tree() -> impl Strategy<Value = Tree> {
    let (sign, other) = (0..SIGNS.len(), 0..4_u64);
    let leaf = prop_oneof![
        (sign.clone(), other.clone()).prop_map(|(sign, other)| Tree::Time(sign, other)),
        (sign.clone(), other.clone()).prop_map(|(sign, other)| Tree::Count(sign, other)),
        (sign.clone(), other.clone()).prop_map(|(sign, other)| Tree::Quotient(sign, other)),
        (sign.clone(), other.clone()).prop_map(|(sign, other)| Tree::Own(sign, other)),
        (0..3_u64, sign.clone(), other.clone()).prop_map(|(id, sign, other)| Tree::Picked(id, sign, other)),
        (any::<bool>(), sign, other).prop_map(|(every, sign, other)| Tree::Elements(every, sign, other)),
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            inner.clone().prop_map(|part| Tree::Not(Box::new(part))),
            (any::<bool>(), prop::collection::vec(inner, 2..4))
                .prop_map(|(is_every, parts)| Tree::Joined(is_every, parts)),
        ]
    })
}

fn schema() -> Vec<u8> {
    let number = |name: &str, unit: Option<&str>| NewField {
        kind: MetricKind::Gauge,
        unit: unit.map(str::to_owned),
        ..NewField::new(name, NewContent::Unsigned)
    };
    let id = NewField { is_identity: true, kind: MetricKind::State, ..number("id", None) };
    let devices = NewField::new("devices", NewContent::Tables("Device".into()));
    let root = vec![number("time", Some("us")), number("count", None), devices];
    let tables = [
        NewTable { name: ROOT.into(), fields: root },
        NewTable { name: "Device".into(), fields: vec![id, number("size", Some("pages"))] },
    ];
    binary_schema(&tables, ROOT).unwrap()
}

fn body((time, count, devices): &Row) -> Vec<u8> {
    let mut builder = FlatBufferBuilder::new();
    let mut tables = Vec::new();
    for (id, size) in devices {
        let table = builder.start_table();
        builder.push_slot_always(slot_of(0), *id);
        if let Some(size) = size {
            builder.push_slot_always(slot_of(1), *size);
        }
        tables.push(flatbuffers::WIPOffset::<&str>::new(builder.end_table(table).value()));
    }
    let devices = builder.create_vector(&tables);
    let table = builder.start_table();
    for (slot, value) in [(0, time), (1, count)] {
        if let Some(value) = value {
            builder.push_slot_always(slot_of(slot), *value);
        }
    }
    builder.push_slot_always(slot_of(2), devices);
    let table = builder.end_table(table);
    builder.finish_minimal(table);
    let mut bytes = builder.finished_data().to_vec();
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    bytes
}

/// Returns the result of a rule that observes one sample.
fn rule_result(condition: &str, schema: &CompiledSchema, body: &[u8]) -> Result3 {
    let source = RuleSource { name: "s", period_ns: 1000, schema: Some(schema) };
    let mut engine = TriggerEngine::new(&[rule(condition)], &[source]).unwrap();
    let mut events = Vec::new();
    engine.observe(0, (1000, 0), body, &mut events);
    let is_unknown = engine.counts().next().unwrap().1.unknown > 0;
    if is_unknown { None } else { Some(!events.is_empty()) }
}

/// Returns the sequence numbers of the selected rows of `s.count`, and the sequence numbers of the
/// selected rows of devices.
fn selected(path: &Path, condition: &str) -> [Vec<u64>; 2] {
    let recording = Recording::open(&[path.to_owned()]).unwrap();
    ["s.count", "s.devices[*].size"].map(|field| {
        let query = Query {
            fields: vec![field.parse().unwrap()],
            condition: Some(condition.parse().unwrap()),
            ..Query::default()
        };
        let mut results = recording.query(&query).unwrap();
        let mut rows = Vec::new();
        while let Some(item) = results.next().unwrap() {
            let QueryItem::Batch(batch) = item else { continue };
            rows.extend((0..batch.rows()).map(|row| batch.times.seq[batch.sample(row)]));
        }
        rows
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(effort::of(100, 10_000)))]

    // Proves that a condition selects the rows for which it is true in three-valued logic, whether
    // rows are samples or elements. Also proves that the same condition in a rule has the same
    // result for each sample.
    #[test]
    fn rows_and_rules_agree_with_a_model(
        rows in prop::collection::vec(any_row(), 1..12),
        repeated in 1..5_usize,
        tree in any_tree(),
    ) {
        let rows: Vec<&Row> = rows.iter().flat_map(|row| std::iter::repeat_n(row, repeated)).collect();
        let bytes = schema();
        let schema = CompiledSchema::compile(&bytes, ROOT).unwrap();
        let (mut samples, mut elements) = (Vec::new(), Vec::new());
        for (seq, row) in (0_u64..).zip(&rows) {
            let expected = tree.result(row, None);
            prop_assert_eq!(rule_result(&tree.text(true), &schema, &body(row)), expected, "{}", tree.text(true));
            samples.extend((expected == Some(true)).then_some(seq));
            let own = row.2.iter().filter(|own| tree.result(row, Some(own)) == Some(true));
            elements.extend(own.map(|_| seq));
        }
        let folder = tempfile::tempdir().unwrap();
        let bodies: Vec<Vec<u8>> = rows.iter().map(|row| body(row)).collect();
        let path = write_source(folder.path(), ("s", ROOT), &bytes, &bodies);
        let condition = tree.text(false);
        prop_assert_eq!(selected(&path, &condition), [samples, elements], "{}", condition);
    }
}
