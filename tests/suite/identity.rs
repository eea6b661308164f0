//! Sources that share a name: every verb reads each of them, and never mixes their values.

use flatcap_format::host::HostName;
use flatcap_format::testing::effort;
use flatcap_format::testing::shared_names::{KnownSample, write_recording};
use flatcap_import::{ImportLimits, ImportSource, RunWriter};
use flatcap_os::storage::DataDirectory;
use serde_json::{Value, json};

use crate::rig::Rig;

const SCHEMA: &[u8] = include_bytes!("../../generated/host/load.bfbs");
const ROOT: &str = "flatcap.host.Load";
/// Samples of each source.
const SAMPLES: usize = 300;
/// The sample of the second source that has the largest value.
const PEAK: usize = 280;

/// Returns the time of a sample of a thread.
fn wall_ns(thread: usize, sample: usize) -> i64 {
    1_700_000_000_000_000_000 + i64::try_from(sample * 2 + thread).unwrap() * 50_000_000
}

/// Writes a recording of two threads that push `orders` at the same time.
fn two_threads(rig: &Rig) {
    two_sources(rig, [("orders", ("thread", "1")), ("orders", ("thread", "2"))]);
}

/// Writes a recording of two sources at the same time, each with a label.
fn two_sources(rig: &Rig, sources: [(&str, (&str, &str)); 2]) {
    let storage = DataDirectory::open(&rig.path("data")).unwrap();
    let plan = ImportLimits { segment_bytes: 1 << 20, frame_max: 1 << 16 };
    let mut recording = RunWriter::begin(&storage, plan).unwrap();
    recording.set_host(HostName { name: "db1".into(), machine_id: None, boot_id: None, labels: vec![] });
    let sources: Vec<u16> = sources
        .iter()
        .map(|(name, (label, value))| {
            let source = ImportSource {
                name: (*name).into(),
                labels: vec![((*label).into(), (*value).into())],
                root: ROOT.to_owned(),
                schema: SCHEMA.to_vec(),
            };
            recording.add_source(source).unwrap()
        })
        .collect();
    for sample in 0..SAMPLES {
        for (thread, source) in sources.iter().enumerate() {
            let mut builder = flatbuffers::FlatBufferBuilder::new();
            let table = builder.start_table();
            let value = if (thread, sample) == (1, PEAK) { 1000.0 } else { (sample % 5) as f64 };
            builder.push_slot_always(4, value);
            let table = builder.end_table(table);
            builder.finish(table, None);
            let bytes = builder.finished_data();
            let wall_ns = wall_ns(thread, sample);
            recording.append(*source, wall_ns, bytes.len(), |place| place.copy_from_slice(bytes)).unwrap();
        }
    }
    recording.finish().unwrap();
}

/// Returns the cells of a CSV with values of the sources, row by row, after their header.
fn cells(rig: &Rig, args: &[&str]) -> (Vec<String>, Vec<Vec<String>>) {
    let call = rig.call(&[&["dump", "data", "--format", "csv"][..], args].concat());
    assert_eq!(call.status, Some(0), "{call:?}");
    let text = call.text();
    let mut lines = text.lines().map(|line| line.split(',').skip(2).map(str::to_owned).collect());
    (lines.next().unwrap(), lines.collect())
}

// Proves that no verb loses a sample of threads that push the same name, or assigns it to another
// thread. Covers rows, steps, conditions, a path with an id, and a rule, which applies to each
// thread.
#[test]
fn threads_that_push_one_name_are_all_read() {
    let rig = Rig::new();
    two_threads(&rig);
    let (header, rows) = cells(&rig, &["--fields", "orders.load1"]);
    assert_eq!(header, ["orders[0].load1", "orders[1].load1"]);
    let values = |place: usize| rows.iter().filter(|row| !row[place].is_empty()).count();
    assert_eq!((rows.len(), values(0), values(1)), (2 * SAMPLES, SAMPLES, SAMPLES));
    let (header, rows) = cells(&rig, &["--fields", "orders[1].load1"]);
    assert_eq!((header, rows.len()), (vec!["orders[1].load1".to_owned()], SAMPLES));
    let (_, rows) = cells(&rig, &["--fields", "orders.load1", "--every", "100s:max"]);
    let largest = |place: usize| -> Option<f64> {
        rows.iter().filter_map(|row| row[place].parse().ok()).max_by(f64::total_cmp)
    };
    assert_eq!((largest(0), largest(1)), (Some(4.0), Some(1000.0)));
    let (_, rows) = cells(&rig, &["--fields", "orders.load1", "--where", "orders.load1 > 900"]);
    assert_eq!(rows, [["", "1000.0"]]);
    let call = rig.call(&["check-trigger", "orders.load1 > 900", "data", "--json"]);
    let firings = call.json();
    let firings = firings.as_array().unwrap_or_else(|| panic!("{call:?}"));
    let named: Vec<&str> = firings.iter().filter_map(|firing| firing["source"].as_str()).collect();
    assert_eq!(named, ["orders[1]"], "{firings:?}");
    assert_eq!(firings[0]["fired_wall_ns"], wall_ns(1, PEAK));
}

// Proves that `spikes` and `explain` say which of two sources with one name departed, that the
// value is the one of this source alone, and that their `dump` command prints it.
#[test]
fn a_departure_names_its_source() {
    let rig = Rig::new();
    two_threads(&rig);
    let spikes = rig.call(&["spikes", "data", "--json"]).json();
    let spike = &spikes[0];
    assert_eq!(
        (&spike["source"], &spike["source_id"], &spike["field"]),
        (&json!("orders"), &json!(1), &json!("load1"))
    );
    let text = rig.call(&["spikes", "data"]).text();
    assert!(text.contains("orders[1].load1"), "{text}");
    let at = format!("{}", jiff::Timestamp::from_nanosecond(i128::from(wall_ns(1, PEAK))).unwrap());
    let explanation = rig.call(&["explain", "data", "--at", &at, "--json"]).json();
    let field = &explanation["fields"][0];
    assert_eq!((&field["source_id"], &field["field"]), (&json!(1), &json!("load1")), "{explanation}");
    for departure in [spike, field] {
        let dump = departure["measured"]["dump"].as_str().unwrap();
        assert!(dump.contains("orders[1].load1"), "{dump}");
        let from = departure["measured"]["from_wall_ns"].as_i64().unwrap();
        let until = departure["measured"]["until_wall_ns"].as_i64().unwrap();
        let own = (0..SAMPLES).filter(|sample| (from..until).contains(&wall_ns(1, *sample)));
        let values: Vec<f64> =
            own.map(|sample| if sample == PEAK { 1000.0 } else { (sample % 5) as f64 }).collect();
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        assert!((departure["value"].as_f64().unwrap() - mean).abs() < 1e-6, "{departure}");
    }
}

// Proves that a replay evaluates a rule about two sources only if the recorder would: not if
// applications push both.
#[test]
fn a_rule_names_one_pushed_source() {
    let rule = "orders.load1 < 5 and queue.load1 > 900";
    let rig = Rig::new();
    two_sources(&rig, [("orders", ("client", "shop")), ("queue", ("client", "shop"))]);
    let call = rig.call(&["check-trigger", rule, "data"]);
    assert_eq!(call.status, Some(2), "{call:?}");
    assert!(call.err.contains("names several sources that applications push"), "{call:?}");
    let call = rig.call(&["check-trigger", "queue.load1 > 900", "data", "--json"]);
    assert_eq!(call.json().as_array().map(Vec::len), Some(1), "{call:?}");

    let rig = Rig::new();
    two_sources(&rig, [("orders", ("shard", "1")), ("queue", ("shard", "2"))]);
    let call = rig.call(&["check-trigger", rule, "data", "--json"]);
    assert_eq!(call.json().as_array().map(Vec::len), Some(1), "{call:?}");
}

/// Returns the time of each element of `app`, the begin of its label, and its counter.
fn known_counts(samples: &[KnownSample]) -> Vec<(String, String, u64)> {
    let own = samples.iter().filter(|sample| sample.name() == "app");
    let elements = own.flat_map(|sample| sample.devices.iter().map(move |device| (sample, device)));
    elements.map(|(sample, device)| (sample.wall_ns.to_string(), device.label(), device.count)).collect()
}

// Proves that JSON lines and CSV have each sample and each element once, with its source and the
// name that the element had. Method: random recordings whose sources and elements share names.
#[test]
fn printed_rows_are_those_of_the_samples() {
    for seed in 0..effort::of(20, 1000) {
        let rig = Rig::new();
        std::fs::create_dir(rig.path("data")).unwrap();
        let samples = write_recording(&rig.path("data"), seed);
        if !samples.iter().any(|sample| sample.name() == "app") {
            continue;
        }
        let expected: Vec<Value> = samples
            .iter()
            .map(|sample| {
                let devices = sample.devices.iter().map(|device| {
                    json!({
                        "pid": device.pid, "name": device.printed_name(), "size": device.size,
                        "count": device.count,
                    })
                });
                let data = json!({ "level": sample.level, "devices": devices.collect::<Vec<_>>() });
                json!([sample.name(), sample.seq, sample.wall_ns, data])
            })
            .collect();
        let lines = rig.call(&["dump", "data", "--format", "jsonl"]).text();
        let lines = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let found: Vec<Value> =
            lines.map(|line| json!([line["source"], line["seq"], line["wall_ns"], line["data"]])).collect();
        assert_eq!(found, expected, "{seed}");

        let args = ["dump", "data", "--fields", "app.devices[*].count", "--long", "--format", "csv"];
        let text = rig.call(&args).text();
        let mut rows = text.lines().skip(1).map(|line| line.split(',').collect::<Vec<_>>());
        for (wall_ns, label, count) in known_counts(&samples) {
            let row = rows.next().unwrap_or_else(|| panic!("{seed}: no {label} at {wall_ns}: {text}"));
            let values: Vec<&str> = row[3..].iter().copied().filter(|cell| !cell.is_empty()).collect();
            assert_eq!(
                (row[1], values),
                (wall_ns.as_str(), vec![count.to_string().as_str()]),
                "{seed}: {text}"
            );
            let rest = row[2].strip_prefix(label.as_str());
            let is_its = rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['{', '#']));
            assert!(is_its, "{seed}: {} is not {label}", row[2]);
        }
        assert_eq!(rows.next(), None, "{seed}: {text}");
    }
}
