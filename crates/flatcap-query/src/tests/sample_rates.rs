//! Tests of rates in whole samples.

use std::collections::BTreeMap;
use std::path::Path;

use flatbuffers::{FlatBufferBuilder, WIPOffset};
use flatcap_format::replay::ReplayFilter;
use flatcap_format::schema::{
    CompiledSchema, JsonWriter, MetricKind, NewContent, NewField, NewTable, binary_schema, slot_of,
};
use flatcap_format::segment::SampleView;
use flatcap_format::testing::effort;
use flatcap_schemas::host::{Disk, DiskArgs, DiskCounters};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::rates::sample_rates::SampleRates;
use crate::{Recording, RowItem};

const SECOND: u64 = 1_000_000_000;
const DISK: &[u8] = include_bytes!("../../../../generated/host/disk.bfbs");

fn payload(devices: &[(&str, u64)]) -> Vec<u8> {
    let mut builder = FlatBufferBuilder::new();
    let devices: Vec<DiskCounters> = devices
        .iter()
        .map(|(name, reads)| {
            let mut device = DiskCounters::default();
            let mut bytes = [0; 32];
            bytes[..name.len()].copy_from_slice(name.as_bytes());
            device.set_name(&bytes);
            device.set_reads(*reads);
            device
        })
        .collect();
    let devices = builder.create_vector(&devices);
    let root = Disk::create(&mut builder, &DiskArgs { devices: Some(devices) });
    builder.finish_minimal(root);
    builder.finished_data().to_vec()
}

/// Returns whole samples as JSON, with rates. The samples contain only these fields.
fn walked(
    (schema, root): (&[u8], &str),
    fields: &[&str],
    payloads: impl IntoIterator<Item = (u64, Vec<u8>)>,
) -> Vec<String> {
    let mut schema = CompiledSchema::compile(schema, root).unwrap();
    if !fields.is_empty() {
        schema = schema.select(fields).unwrap();
    }
    let mut rates = SampleRates::new("s", &schema).unwrap();
    let line = |(mono_ns, payload): (u64, Vec<u8>)| {
        rates.observe(&SampleView {
            source: 0,
            seq: 0,
            mono_ns,
            wall_ns: 0,
            flags: 0,
            duration_ns: 0,
            payload: &payload,
        });
        let mut json = Vec::new();
        schema.walk(&payload, &mut rates.replace_counters(&mut JsonWriter::new(&mut json))).unwrap();
        String::from_utf8(json).unwrap()
    };
    payloads.into_iter().map(line).collect()
}

fn rates<const N: usize>(payloads: [(u64, Vec<u8>); N]) -> Vec<String> {
    walked((DISK, "flatcap.host.Disk"), &["devices.name", "devices.reads"], payloads)
}

// Proves that a counter is replaced by its change per second, and that the first value and a value
// that decreased have no rate.
#[test]
fn counters_become_rates() {
    let seen = rates([(0, payload(&[("a", 10), ("b", 7)])), (500_000_000, payload(&[("a", 15), ("b", 6)]))]);
    assert_eq!(seen[0], r#"{"devices":[{"name":"a","reads":null},{"name":"b","reads":null}]}"#);
    assert_eq!(seen[1], r#"{"devices":[{"name":"a","reads":10.0},{"name":"b","reads":null}]}"#);
}

// Proves that elements that appear and disappear do not affect the rates of other elements, and
// that two elements with the same name have no rate.
#[test]
fn others_keep_their_rates() {
    let seen = rates([
        (0, payload(&[("b", 20)])),
        (1_000_000_000, payload(&[("a", 5), ("b", 23)])),
        (2_000_000_000, payload(&[("b", 24), ("b", 25), ("a", 6)])),
        (3_000_000_000, payload(&[("b", 26), ("a", 8)])),
    ]);
    assert_eq!(seen[1], r#"{"devices":[{"name":"a","reads":null},{"name":"b","reads":3.0}]}"#);
    assert_eq!(seen[3], r#"{"devices":[{"name":"b","reads":null},{"name":"a","reads":2.0}]}"#);
}

// Proves that only the schema's identity fields identify an element. A process keeps its rate when
// its state changes, and loses its rate when its PID is reused.
#[test]
fn elements_are_identified_by_schema_fields() {
    use flatcap_schemas::host::{
        CommandLine, Process, ProcessArgs, ProcessCounters, ProcessEvents, ProcessExit, ProcessGroup,
    };
    let payload = |start: u64, state: u8, time: u64| {
        let mut builder = FlatBufferBuilder::new();
        let mut process = ProcessCounters::default();
        process.set_pid(7);
        process.set_start(start);
        process.set_state(&[state, 0, 0, 0, 0, 0, 0, 0]);
        process.set_user_time(time);
        let processes = builder.create_vector(&[process]);
        let events = ProcessEvents::default();
        let exits = Some(builder.create_vector::<ProcessExit>(&[]));
        let command_lines = Some(builder.create_vector::<CommandLine>(&[]));
        let groups = Some(builder.create_vector::<ProcessGroup>(&[]));
        let args = ProcessArgs {
            count: 1,
            processes: Some(processes),
            events: Some(&events),
            exits,
            command_lines,
            groups,
            ..ProcessArgs::default()
        };
        let root = Process::create(&mut builder, &args);
        builder.finish_minimal(root);
        builder.finished_data().to_vec()
    };
    let schema = include_bytes!("../../../../generated/host/process.bfbs");
    let samples =
        [(0, payload(1, b'R', 10)), (SECOND, payload(1, b'S', 14)), (2 * SECOND, payload(2, b'S', 15))];
    let seen = walked(
        (schema, "flatcap.host.Process"),
        &["processes.pid", "processes.start", "processes.user_time"],
        samples,
    );
    for (line, rate) in seen.iter().zip(["null", "4.0", "null"]) {
        assert!(line.ends_with(&format!(r#""user_time":{rate}}}]}}"#)), "{line}");
    }
}

// Proves that fractional counters, which are identified by name and labels, have rates. Also proves
// that the rate is absent for a counter that decreased or is NaN.
#[test]
fn fractions_become_rates() {
    use flatcap_schemas::host::{File, FileArgs, FileCounter, FileCounterArgs, FileValue};
    let payload = |counters: &[(&str, f64)]| {
        let mut builder = FlatBufferBuilder::new();
        let name = Some(builder.create_string("m"));
        let counters: Vec<_> = counters
            .iter()
            .map(|(labels, value)| {
                let labels = Some(builder.create_string(labels));
                FileCounter::create(&mut builder, &FileCounterArgs { name, labels, value: *value })
            })
            .collect();
        let counters = Some(builder.create_vector(&counters));
        let values = Some(builder.create_vector::<FileValue>(&[]));
        let args = FileArgs { values, counters, ..FileArgs::default() };
        let root = File::create(&mut builder, &args);
        builder.finish_minimal(root);
        builder.finished_data().to_vec()
    };
    let schema = include_bytes!("../../../../generated/host/file.bfbs");
    let samples = [
        (0, payload(&[("a", 1.0), ("b", 7.5), ("c", 1.0)])),
        (SECOND / 2, payload(&[("b", 7.75), ("a", 0.5), ("c", f64::NAN), ("d", 1.0)])),
    ];
    let seen = walked((schema, "flatcap.host.File"), &["counters"], samples);
    let found: Value = serde_json::from_str(&seen[1]).unwrap();
    let found: Vec<_> = found["counters"].as_array().unwrap().iter().map(|own| &own["value"]).collect();
    assert_eq!(found, [&json!(0.5), &Value::Null, &Value::Null, &Value::Null]);
}

// Proves that no rate is computed from two devices that have the same index in different samples.
#[test]
fn elements_are_matched_by_name() {
    let seen = rates([
        (0, payload(&[("a", 10), ("b", 20)])),
        (1_000_000_000, payload(&[("b", 21), ("c", 99)])),
        (2_000_000_000, payload(&[("b", 22), ("c", 99)])),
    ]);
    assert_eq!(seen[1], r#"{"devices":[{"name":"b","reads":1.0},{"name":"c","reads":null}]}"#);
    assert_eq!(seen[2], r#"{"devices":[{"name":"b","reads":1.0},{"name":"c","reads":0.0}]}"#);
}

/// An element that has a counter, an inner list of counters by key, and a list of numbers that are
/// counters.
type Item = (u64, BTreeMap<u64, u64>, Vec<u64>);

/// A sample that has a counter in an optional table, and elements by id.
type Nested = (Option<u64>, BTreeMap<u64, Item>);

fn any_nested() -> impl Strategy<Value = Nested> {
    let count = 0..1000_u64;
    let inner = prop::collection::btree_map(0..3_u64, count.clone(), 0..3);
    let item = (count.clone(), inner, prop::collection::vec(count.clone(), 0..3));
    (prop::option::of(count), prop::collection::btree_map(0..4_u64, item, 0..4))
}

fn nested_schema() -> Vec<u8> {
    let number = |name: &str, kind, is_identity| NewField {
        kind,
        is_identity,
        ..NewField::new(name, NewContent::Unsigned)
    };
    let count = || number("count", MetricKind::Counter, false);
    let key = || number("key", MetricKind::State, true);
    let numbers = NewContent::List(Box::new(NewContent::Unsigned));
    let counts = NewField { kind: MetricKind::Counter, ..NewField::new("counts", numbers) };
    let table = |name: &str, fields| NewTable { name: name.into(), fields };
    let items = NewField::new("items", NewContent::Tables("Item".into()));
    let inner = NewField::new("inner", NewContent::Tables("Inner".into()));
    let tables = [
        table("Root", vec![NewField::new("part", NewContent::Table("Part".into())), items]),
        table("Part", vec![count()]),
        table("Item", vec![key(), inner, counts, count()]),
        table("Inner", vec![count(), key()]),
    ];
    binary_schema(&tables, "Root").unwrap()
}

fn nested_payload((part, items): &Nested) -> Vec<u8> {
    let mut builder = FlatBufferBuilder::new();
    let mut elements = Vec::new();
    for (key, (count, inner, counts)) in items {
        let mut inner_tables = Vec::new();
        for (key, count) in inner {
            let table = builder.start_table();
            builder.push_slot_always(slot_of(0), *count);
            builder.push_slot_always(slot_of(1), *key);
            inner_tables.push(WIPOffset::<&str>::new(builder.end_table(table).value()));
        }
        let (inner, counts) = (builder.create_vector(&inner_tables), builder.create_vector(counts));
        let table = builder.start_table();
        builder.push_slot_always(slot_of(0), *key);
        builder.push_slot_always(slot_of(1), inner);
        builder.push_slot_always(slot_of(2), counts);
        builder.push_slot_always(slot_of(3), *count);
        elements.push(WIPOffset::<&str>::new(builder.end_table(table).value()));
    }
    let items = builder.create_vector(&elements);
    let part = part.map(|count| {
        let table = builder.start_table();
        builder.push_slot_always(slot_of(0), count);
        builder.end_table(table)
    });
    let table = builder.start_table();
    if let Some(part) = part {
        builder.push_slot_always(slot_of(0), part);
    }
    builder.push_slot_always(slot_of(1), items);
    let table = builder.end_table(table);
    builder.finish_minimal(table);
    builder.finished_data().to_vec()
}

/// Returns a sample with rates, one second after the previous sample. `last_part` is the last value
/// of the counter in the table, and the age of this value in seconds.
fn nested_rates(before: Option<&Nested>, last_part: Option<(u64, u64)>, now: &Nested) -> Value {
    #[allow(clippy::cast_precision_loss, reason = "small numbers")]
    let rate = |before: Option<u64>, now: u64, seconds: u64| {
        before.and_then(|before| now.checked_sub(before)).map(|change| change as f64 / seconds as f64)
    };
    let part = now.0.map(|count| {
        let (before, seconds) = last_part.unzip();
        json!({ "count": rate(before, count, seconds.unwrap_or(1)) })
    });
    let items = now.1.iter().map(|(key, (count, inner, counts))| {
        let old = before.and_then(|before| before.1.get(key));
        let inner = inner.iter().map(|(key, count)| {
            json!({ "count": rate(old.and_then(|old| old.1.get(key).copied()), *count, 1), "key": key })
        });
        let counts = counts.iter().enumerate().map(|(at, count)| {
            // If the length of a list changes, the same position may belong to another element.
            let old = old.filter(|old| old.2.len() == counts.len());
            rate(old.map(|old| old.2[at]), *count, 1)
        });
        let (inner, counts): (Vec<Value>, Vec<Option<f64>>) = (inner.collect(), counts.collect());
        json!({ "key": key, "inner": inner, "counts": counts, "count": rate(old.map(|old| old.0), *count, 1) })
    });
    json!({ "part": part, "items": items.collect::<Vec<_>>() })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(effort::cases(60, 5_000)))]

    // Proves that each counter of a whole sample is replaced by its own rate, regardless of other
    // elements that appear or disappear. The counters are in nested tables, in lists in elements of
    // lists, and in lists of numbers.
    #[test]
    fn nested_counters_have_their_rates(samples in prop::collection::vec(any_nested(), 1..8)) {
        let schema = nested_schema();
        let payloads = (0..).zip(&samples).map(|(at, sample)| (at * SECOND, nested_payload(sample)));
        let lines = walked((&schema, "Root"), &[], payloads);
        let (mut before, mut last_part) = (None, None);
        for (sample, line) in samples.iter().zip(lines) {
            let found: Value = serde_json::from_str(&line).unwrap();
            // The expected JSON is also parsed, because the parser may round a number to an
            // adjacent value.
            let expected = nested_rates(before, last_part, sample).to_string();
            prop_assert_eq!(found, serde_json::from_str::<Value>(&expected).unwrap());
            before = Some(sample);
            last_part = sample.0.map(|count| (count, 1)).or(last_part.map(|(count, age)| (count, age + 1)));
        }
    }
}

/// Checks that whole samples of the source `app` have these processes. An item has the time of the
/// sample, the id and the run time of the process, and the rate of the run time.
pub(super) fn check_processes(folder: &Path, expected: &[(i64, u64, u64, Option<f64>)]) {
    let filter = ReplayFilter { sources: ["app".to_owned()].into(), ..ReplayFilter::default() };
    let recording = Recording::open(&[folder.to_owned()]).unwrap();
    let read = |is_rate| {
        let (mut reader, mut found) = (recording.samples(&filter, is_rate).unwrap(), Vec::new());
        while let Some(item) = reader.next().unwrap() {
            let RowItem::Row(stamp) = item else { continue };
            let mut json = Vec::new();
            reader.append_json(&mut json).unwrap();
            let json: Value = serde_json::from_slice(&json).unwrap();
            let processes = json["processes"].as_array().unwrap().iter();
            found.extend(processes.map(|own| (stamp.wall_ns, own["pid"].clone(), own["run_time"].clone())));
        }
        found
    };
    let (plain, with_rates) = (read(false), read(true));
    assert_eq!(plain.len(), with_rates.len());
    let known: Vec<_> = plain.into_iter().zip(with_rates).filter(|(own, _)| !own.2.is_null()).collect();
    assert_eq!(known.len(), expected.len());
    for ((found, with_rate), (wall_ns, pid, value, rate)) in known.into_iter().zip(expected) {
        assert_eq!(found, (*wall_ns, json!(pid), json!(value)));
        assert_eq!((with_rate.0, &with_rate.1), (*wall_ns, &json!(pid)));
        // The JSON parser may round a number to an adjacent value.
        let is_near = |(found, rate): (f64, f64)| (found - rate).abs() <= 1e-9 * rate.abs();
        let is_same =
            with_rate.2.as_f64().zip(*rate).map_or(with_rate.2.is_null() && rate.is_none(), is_near);
        assert!(is_same, "{with_rate:?} is not {rate:?}");
    }
}
