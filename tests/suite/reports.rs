//! `spikes` and `explain` as the verbs and the page answer them about the recording in
//! tests/data/reports. python/tests asks Python the same.
//!
//! `FLATCAP_REPORTS=write` records it again. It has sources and processes that share a name,
//! sources that share a path, and a source that ends. It also has absent values, fields that are
//! not ranked, and the kernel's events.

use std::path::{Path, PathBuf};

use flatbuffers::FlatBufferBuilder;
use flatcap_format::schema::{MetricKind, NewContent, NewField, NewTable, binary_schema, slot_of};
use flatcap_format::segment::{SourceInfo, SourceKind};
use flatcap_tasks::schema::{KMSG, KMSG_ROOT, PROFILE, PROFILE_ROOT, SCHED, SCHED_ROOT};
use serde_json::Value;

use crate::causes::kernel_events;
use crate::explaining::{
    Activity, PERIOD_NS, START_WALL_NS, payload, process, process_source, write_samples,
};
use crate::page::Page;
use crate::rig::Rig;

/// 20 s after the begin, for one second.
const INCIDENT: std::ops::Range<u64> = 200..210;
/// The sample after the last one of the source that ends.
const END: u64 = 205;
/// Samples without the optional value.
const ABSENT: std::ops::Range<u64> = 195..215;

/// Middles of windows in milliseconds after the begin, and their lengths.
const WINDOWS: [(i64, i64); 5] =
    [(20_450, 300), (20_500, 1_000), (20_000, 2_000), (5_000, 300), (28_000, 300)];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/reports")
}

/// Two processes of one name that compute during the incident, and others that do not.
fn processes(sample: u64) -> (Vec<Activity>, Vec<u64>) {
    let busy = sample.clamp(INCIDENT.start, INCIDENT.end) - INCIDENT.start;
    let workers = [(812, 10), (813, 6)].map(|(pid, share)| process(pid, "worker", busy * share));
    let state = if INCIDENT.contains(&sample) { "D" } else { "S" };
    let waiting = Activity { state, ..process(814, "sync\u{1b}d", 7) };
    let fresh = INCIDENT.contains(&sample).then(|| process(815, "fresh", (sample + 1 - INCIDENT.start) * 9));
    let processes = [process(10, "steady", sample), waiting].into_iter().chain(workers).chain(fresh);
    (processes.collect(), Vec::new())
}

/// The schema of a pushed source: `size`, which is `pool.size` of the source `db`, `free`, which
/// may be absent, and a text.
fn schema(is_nested: bool) -> Vec<u8> {
    let field = |name: &str, content| NewField { kind: MetricKind::Gauge, ..NewField::new(name, content) };
    let fields = vec![
        NewField { unit: Some("orders".to_owned()), ..field("size", NewContent::Unsigned) },
        field("free", NewContent::Float),
        NewField::new("note", NewContent::Text),
    ];
    let pool = NewTable { name: "Pool".into(), fields };
    let of_pool = NewField::new("pool", NewContent::Table("Pool".into()));
    let root = NewTable { name: "Root".into(), fields: vec![of_pool] };
    binary_schema(&[root, pool], if is_nested { "Root" } else { "Pool" }).unwrap()
}

fn pushed(sample: u64, (peak, is_nested): (u64, bool)) -> Vec<u8> {
    let mut builder = FlatBufferBuilder::new();
    let note = builder.create_string(&format!("note {sample}"));
    let table = builder.start_table();
    let size = if INCIDENT.contains(&sample) { peak } else { 10 + sample % 3 };
    builder.push_slot_always(slot_of(0), size);
    if !ABSENT.contains(&sample) {
        builder.push_slot_always(slot_of(1), 50.0 + (sample % 5) as f64);
    }
    builder.push_slot_always(slot_of(2), note);
    let mut table = builder.end_table(table);
    if is_nested {
        let root = builder.start_table();
        builder.push_slot_always(slot_of(0), table);
        table = builder.end_table(root);
    }
    builder.finish_minimal(table);
    aligned(builder.finished_data().to_vec())
}

fn aligned(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    bytes
}

fn write(folder: &Path) {
    let source = |name: &str, root: &str, schema: &[u8], labels: &[(&str, &str)]| SourceInfo {
        id: 0,
        name: name.into(),
        labels: labels.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect(),
        kind: SourceKind::Synthetic,
        period_ns: PERIOD_NS,
        root: root.into(),
        schema: schema.to_vec(),
        next_seq: 0,
    };
    let sender = [("client", "shop"), ("uid", "1000"), ("executable", "/usr/bin/shop"), ("thread", "1")];
    let other = [("client", "shop\u{202e}"), ("uid", "1000"), ("thread", "2")];
    let mut sources = vec![
        process_source(0, "process"),
        source("sched", SCHED_ROOT, SCHED, &[]),
        source("profile", PROFILE_ROOT, PROFILE, &[]),
        source("kmsg", KMSG_ROOT, KMSG, &[]),
        source("orders", "Pool", &schema(false), &sender),
        source("orders", "Pool", &schema(false), &other),
        source("db", "Root", &schema(true), &sender),
        source("db.pool", "Pool", &schema(false), &sender),
        source("opaque", "", &[], &[]),
        source("ended", "Pool", &schema(false), &sender),
    ];
    for (id, source) in (0..).zip(&mut sources) {
        source.id = id;
    }
    write_samples(folder, ("db1", 1), sources, |sample| {
        let mut payloads = vec![payload(&processes(sample), sample)];
        payloads.extend(kernel_events(sample).map(aligned));
        let peaks = [(10, false), (900, false), (700, true), (300, false)];
        payloads.extend(peaks.map(|of| pushed(sample, of)));
        payloads.push(vec![7; 8]);
        payloads.extend((sample < END).then(|| pushed(sample, (500, false))));
        payloads
    });
}

/// Returns whether a JSON value has a key at any depth, or a text as a value.
fn has(value: &Value, wanted: &str) -> bool {
    match value {
        Value::Object(keys) => keys.iter().any(|(key, value)| key == wanted || has(value, wanted)),
        Value::Array(list) => list.iter().any(|value| has(value, wanted)),
        other => other == wanted,
    }
}

// Proves that the page answers each question with the JSON that the verb prints, byte for byte
// apart from the escapes of invisible characters; that no field is listed twice; and that sources
// that share a path are in quotes. The list of texts shows that the recording has each case.
#[test]
fn verb_and_page_have_one_report() {
    let folder = folder();
    if std::env::var_os("FLATCAP_REPORTS").is_some_and(|wish| wish == "write") {
        std::fs::remove_dir_all(&folder).ok();
        std::fs::create_dir_all(&folder).unwrap();
        write(&folder);
        let compressed = Rig::new().call(&["compress", folder.to_str().unwrap()]);
        assert_eq!(compressed.status, Some(0), "{compressed:?}");
    }
    let (rig, folder) = (Rig::new(), folder.to_str().unwrap().to_owned());
    let page = Page::start(&rig, &[&folder]);
    let asked = |path: &str| {
        let answer = page.ask(path, page.token());
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200"), "{answer}");
        body.to_owned()
    };
    let wall_ns = |ms: i64| START_WALL_NS + ms * 1_000_000;
    let mut answers = Vec::new();
    for (middle_ms, length_ms) in WINDOWS {
        let [at, window] = [wall_ns(middle_ms).to_string(), format!("{length_ms}ms")];
        let called =
            rig.call(&["explain", &folder, "--at", &at, "--window", &window, "--limit", "20", "--json"]);
        let (from, to) = (wall_ns(middle_ms - length_ms / 2), wall_ns(middle_ms + length_ms / 2));
        answers.push((called, asked(&format!("explain?from={from}&to={to}"))));
    }
    let (from, to) = (wall_ns(0), wall_ns(30_000));
    let called = rig.call(&["spikes", &folder, "--limit", "20", "--json"]);
    answers.push((called, asked(&format!("spikes?from={from}&to={to}"))));
    for (called, answer) in &answers {
        assert_eq!(called.text().trim_end(), flatcap_format::schema::visible_json(answer.clone()));
    }
    let all: Vec<Value> = answers.iter().map(|(called, _)| called.json()).collect();
    for wanted in [
        "source_id",
        "field_unit",
        "measured",
        "pushed_by",
        "state",
        "absent",
        "short_baseline",
        "no_schema",
        "no_quantity",
        "events",
        "meanwhile",
        "records",
        "functions",
        "sync\u{1b}d[814] process.processes[*].state=D",
        "worker[812]",
        "worker[813]",
        "\"db\".pool.size",
        "\"db.pool\".size",
        "orders[5].size",
    ] {
        assert!(all.iter().any(|answer| has(answer, wanted)), "{wanted} is in no answer");
    }
    for answer in &all {
        let groups = answer["fields"].as_array().into_iter().flatten();
        let others = |group: &Value| group["together"].as_array().cloned().unwrap_or_default();
        let listed = groups.flat_map(|group| others(group).into_iter().chain([group.clone()]));
        let mut names: Vec<String> = listed.map(|field| field["name"].to_string()).collect();
        names.sort();
        let count = names.len();
        names.dedup();
        assert_eq!(names.len(), count, "a field is listed twice: {answer}");
    }
    // Text for people has the same names.
    let at = wall_ns(20_500).to_string();
    let text = rig.call(&["explain", &folder, "--at", &at, "--window", "2s"]).text();
    assert!(text.contains("orders[5].size"), "{text}");
    let early = rig.call(&["explain", &folder, "--at", &wall_ns(28_000).to_string()]).text();
    let unranked = "not ranked, states, texts and reservations: 18: \"db\".pool.note, \"db.pool";
    assert!(early.contains(unranked), "{early}");
}
