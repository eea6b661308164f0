//! Sources that share a name: every verb reads each of them, and never mixes their values.

use flatcap::import::{ImportLimits, ImportSource, RunWriter};
use flatcap::os::storage::DataDirectory;
use flatcap_format::host::HostName;

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
    let storage = DataDirectory::open(&rig.path("data")).unwrap();
    let plan = ImportLimits { segment_bytes: 1 << 20, frame_max: 1 << 16 };
    let mut recording = RunWriter::begin(&storage, plan).unwrap();
    recording.set_host(HostName { name: "db1".into(), machine_id: None, boot_id: None, labels: vec![] });
    let sources: Vec<u16> = ["1", "2"]
        .iter()
        .map(|thread| {
            let source = ImportSource {
                name: "orders".into(),
                labels: vec![("thread".into(), (*thread).into())],
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
