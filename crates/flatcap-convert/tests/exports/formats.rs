//! Runs the program on recordings of all kinds, in the same way as `flatcap export` does.

use std::collections::{BTreeMap, BTreeSet};
use std::io::IoSlice;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, UInt64Type};
use arrow_ipc::reader::FileReader;
use flatcap_format::frame::{ENVELOPE_BYTES, Envelope, Incomplete, Stamp};
use flatcap_format::host::{ClockReading, HostName};
use flatcap_format::replay::{MergedReader, ReplayFilter, ReplayItem};
use flatcap_format::schema::{CompiledSchema, LeafField, NewContent, NewField, NewTable, binary_schema};
use flatcap_format::segment::{
    Frames, Gap, SampleSpan, SealState, SegmentHeader, SegmentName, SegmentWriter, SourceInfo, SourceKind,
};
use flatcap_format::testing::{Folder, TableLayout, TableWriter};
use flatcap_stream::{ChecksumKind, Framer};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use serde_json::Value;

const PROGRAM: &str = env!("CARGO_BIN_EXE_flatcap-convert");

/// A schema, its root table, and a field of the root table.
type SchemaField = (&'static [u8], &'static str, &'static str);
/// A source with one field.
type NamedField = (&'static str, SchemaField);

const POINT: SchemaField =
    (include_bytes!("../../../../generated/synthetic.bfbs"), "flatcap.synthetic.Point", "counter");
const LOAD: SchemaField =
    (include_bytes!("../../../../generated/host/load.bfbs"), "flatcap.host.Load", "tasks");

const BEGIN_NS: i64 = 1_700_000_000_000_000_000;

/// Exit status and output of a call.
#[derive(Debug)]
struct Called {
    status: Option<i32>,
    out: String,
    err: String,
}

impl From<Output> for Called {
    fn from(output: Output) -> Self {
        Self {
            status: output.status.code(),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

impl Called {
    /// Returns the number of rows of each file, by the name of the file. Files that the export adds
    /// are left out, because they have no samples.
    fn rows(&self) -> Vec<(String, u64)> {
        let report: Value = serde_json::from_str(&self.out).unwrap_or_else(|_| panic!("{self:?}"));
        let files = report["files"].as_array().unwrap();
        let name = |file: &Value| {
            let path = PathBuf::from(file["path"].as_str().unwrap());
            path.file_name().unwrap().to_str().unwrap().to_owned()
        };
        files.iter().map(|file| (name(file), file["rows"].as_u64().unwrap())).collect()
    }

    fn rows_of(&self, name: &str) -> u64 {
        let rows = self.rows();
        rows.iter().find(|(own, _)| own == name).unwrap_or_else(|| panic!("no {name} in {rows:?}")).1
    }
}

fn export(args: &[&str], paths: &[&Path]) -> Called {
    Called::from(Command::new(PROGRAM).arg("export").args(args).arg("--").args(paths).output().unwrap())
}

fn to_parquet(output: &Path, args: &[&str], paths: &[&Path]) -> Called {
    let output = format!("--output={}", output.display());
    export(&[&["--to=parquet", "--json", &output], args].concat(), paths)
}

/// Returns a file below tests/ of the workspace.
fn test_file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests").join(name)
}

fn names(folder: &Path) -> BTreeSet<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// Time for which the host was suspended before the runs, in nanoseconds.
const SUSPENDED_NS: u64 = 5_000_000_000;

/// Writes a run. Its sources have one field each, and one sample per value, every millisecond.
fn write_run(folder: &Path, run_id: u64, sources: &[NamedField], values: &[u64], gap: Option<Gap>) {
    write_run_of(folder, (run_id, None), sources, values, gap);
}

/// Writes a run as `write_run` does, for a host with this machine id.
fn write_run_of(
    folder: &Path,
    (run_id, machine_id): (u64, Option<&str>),
    sources: &[NamedField],
    values: &[u64],
    gap: Option<Gap>,
) {
    let storage = Folder(folder.to_owned());
    let clocks = ClockReading { mono_ns: 0, boot_ns: SUSPENDED_NS, wall_ns: BEGIN_NS };
    let info = |(id, (name, (schema, root, _))): (usize, &NamedField)| SourceInfo {
        id: u16::try_from(id).unwrap(),
        name: (*name).to_owned(),
        labels: Vec::new(),
        kind: SourceKind::Synthetic,
        period_ns: 1_000_000,
        root: (*root).to_owned(),
        schema: schema.to_vec(),
        next_seq: 0,
    };
    let header = SegmentHeader {
        segment: run_id,
        run_id,
        host: HostName {
            name: "example".into(),
            machine_id: machine_id.map(str::to_owned),
            boot_id: Some("boot".into()),
            labels: std::iter::once(("site", "a \"b\""))
                .chain((machine_id == Some("aaaabbbbcccc")).then_some(("role", "db")))
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .collect(),
        },
        agent_version: "0".into(),
        checksum: ChecksumKind::Xxh3,
        frame_max: 1 << 20,
        clocks,
        reorder_window_ns: 1_000_000_000,
        sources: sources.iter().enumerate().map(info).collect(),
        clock_table: vec![clocks],
        recorder_pid: 0,
    };
    let created_s = BEGIN_NS / 1_000_000_000;
    let name = SegmentName { number: run_id, created_s, run_id, state: SealState::Active };
    let mut segment = SegmentWriter::create(&storage, name, header, &[], 0).unwrap();
    let kind = segment.checksum();
    let mut append = |payload: &[u8]| {
        let mut frame = Vec::new();
        kind.frame_and_write(&mut frame, payload).unwrap();
        let (pieces, header) = (&mut [IoSlice::new(&frame)], &frame[..kind.frame_bytes(0)]);
        segment.append(Frames { pieces, headers: &[header], count: 1 }).unwrap();
    };
    let schemas = sources.iter().map(|(_, (schema, root, _))| CompiledSchema::compile(schema, root).unwrap());
    let schemas: Vec<CompiledSchema> = schemas.collect();
    let mut spans = Vec::new();
    for (at, value) in values.iter().enumerate() {
        for (id, (_, (_, _, field))) in sources.iter().enumerate() {
            let layout = TableLayout::new(&schemas[id], &[*field]).unwrap();
            let place = layout.field(field).unwrap();
            let mut writer = TableWriter::new();
            let table = writer.start(&layout);
            writer.set(table, place, *value);
            let body = writer.finished().unwrap();
            let (seq, mono_ns) = (at as u64, 1_000_000 * (run_id * 1000 + at as u64));
            let wall_ns = BEGIN_NS.wrapping_add_unsigned(mono_ns) + 999;
            let stamp = Stamp { mono_ns, wall_ns, seq, incomplete: Incomplete::NONE, duration_ns: 900 };
            let mut payload = vec![0; ENVELOPE_BYTES + body.len()];
            Envelope::new(u16::try_from(id).unwrap()).write(&mut payload, &stamp, body);
            append(&payload);
            spans.push((u16::try_from(id).unwrap(), SampleSpan::of(seq, mono_ns, wall_ns)));
        }
    }
    let _gap = gap.map(|gap| append(&gap.encode()));
    for (id, span) in spans {
        segment.count_samples(id, 1, span);
    }
    segment.append_index(0).unwrap();
    segment.seal().unwrap().publish(&storage).unwrap();
}

/// Returns the path of a Python with the reference libraries. If it does not exist, prints one line
/// and returns `None`. .ci/run installs it.
fn judge() -> Option<PathBuf> {
    let installed = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tools/judges/bin/python");
    let found = [installed, PathBuf::from("python3")].into_iter().find(|python| {
        let imports = Command::new(python).args(["-c", "import duckdb, polars, pyarrow.parquet"]).output();
        imports.is_ok_and(|output| output.status.success())
    });
    if found.is_none() {
        println!("skipped: no Python with duckdb, polars and pyarrow");
    }
    found
}

/// Returns the contents of a file as read by the libraries of MCAP and Perfetto. If the libraries
/// are missing, prints one line and returns `None`. .ci/run installs them.
fn found_by_library(args: &[&Path]) -> Option<Value> {
    let installed = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tools/judges/bin/python");
    let found = [installed, PathBuf::from("python3")].into_iter().find(|python| {
        let imports = Command::new(python).args(["-c", "import mcap.reader, perfetto.protos"]).output();
        imports.is_ok_and(|output| output.status.success())
    });
    let Some(python) = found else {
        println!("skipped: no Python with mcap and perfetto");
        return None;
    };
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/formats.py");
    let read = Called::from(Command::new(python).arg(script).args(args).output().unwrap());
    assert_eq!(read.status, Some(0), "{}", read.err);
    Some(serde_json::from_str(&read.out).unwrap())
}

fn lost(source: u16, first: u64, count: u64) -> Gap {
    let (after_mono_ns, before_mono_ns) = (1_002_000_000, 1_003_000_000);
    Gap { source, first, count, causes: 1, after_mono_ns, before_mono_ns }
}

// Proves that the library of MCAP finds every payload, bit for bit, with the time and the schema of
// its sample, and that it finds the lost samples.
#[test]
fn mcap_has_the_payloads() {
    let folder = tempfile::tempdir().unwrap();
    let sources: [NamedField; 2] = [("point", POINT), ("load", LOAD)];
    write_run(folder.path(), 1, &sources, &[5, 7, u64::MAX], Some(lost(0, 3, 2)));
    let file = folder.path().join("out.mcap");
    let output = format!("--output={}", file.display());
    let called = export(&["--to=mcap", "--json", &output], &[folder.path()]);
    assert_eq!((called.status, called.rows_of("out.mcap")), (Some(0), 6), "{called:?}");
    let payloads = tempfile::tempdir().unwrap();
    let Some(found) = found_by_library(&[Path::new("mcap"), &file, payloads.path()]) else { return };
    assert_eq!(found["messages"], 7, "{found}");
    let mut reader = MergedReader::open(&[folder.path().to_owned()], ReplayFilter::default()).unwrap();
    let mut expected = [Vec::new(), Vec::new()];
    while let Some(item) = reader.next().unwrap() {
        let ReplayItem::Sample(sample) = item else { continue };
        let sample = sample.telemetry;
        let own = &mut expected[usize::from(sample.source)];
        own.extend(u32::try_from(sample.payload.len()).unwrap().to_le_bytes());
        own.extend(sample.wall_ns.to_le_bytes());
        own.extend(sample.payload);
    }
    for ((name, (schema, root, _)), expected) in sources.iter().zip(expected) {
        assert_eq!(std::fs::read(payloads.path().join(name)).unwrap(), expected, "{name}");
        let channel = &found["channels"][*name];
        assert_eq!(
            (channel["encoding"].as_str(), channel["schema"].as_str()),
            (Some("flatbuffer"), Some(*root))
        );
        assert_eq!(channel["schema_bytes"], schema.len(), "{name}");
    }
    let gaps = std::fs::read(payloads.path().join("flatcap_gaps")).unwrap();
    let gap: Value = serde_json::from_slice(&gaps[12..]).unwrap();
    assert_eq!((gap["source"].as_str(), gap["count"].as_u64()), (Some("point"), Some(2)), "{gap}");
}

fn add_source(sources: &mut BTreeMap<u16, (String, CompiledSchema)>, source: &SourceInfo) {
    if !source.is_opaque() {
        let schema = CompiledSchema::compile(&source.schema, &source.root).unwrap();
        sources.insert(source.id, (source.name.clone(), schema));
    }
}

/// Returns a recording of the corpus. If the recorder is built, returns a recording of this host,
/// too.
fn host_recordings(folder: &Path) -> Vec<PathBuf> {
    let mut paths = vec![test_file("corpus/sealed-xxh3.bin")];
    let program = Path::new(PROGRAM).with_file_name("flatcap");
    if program.exists() {
        let data = folder.join("data");
        let mut record = Command::new(&program);
        record.args([
            "record",
            "--quiet",
            "--for",
            "1s",
            "--source",
            "+disk,+buddy,+filesystem",
            "--data-dir",
        ]);
        record.arg(&data).current_dir(folder).env("RUNTIME_DIRECTORY", folder);
        let recorded = record.env("FLATCAP_STORAGE__MIN_FREE", "0").output().unwrap();
        assert!(recorded.status.success(), "{recorded:?}");
        paths.push(data);
    } else {
        println!("skipped: {} is not built", program.display());
    }
    paths
}

// Proves that payloads with fixed-length arrays, which many FlatBuffers readers reject, become
// tables with the same values. Also proves that other payloads do not change. The test uses each
// sample of the corpus, and of a recording of this host if the recorder is built.
#[test]
fn mcap_has_no_arrays_of_fixed_length() {
    let folder = tempfile::tempdir().unwrap();
    let paths = host_recordings(folder.path());
    let mut converted = 0;
    for path in &paths {
        let out = folder.path().join("out.mcap");
        let output = format!("--output={}", out.display());
        let called = export(&["--to=mcap", "--json", "--force", &output], &[path]);
        assert_eq!(called.status, Some(0), "{called:?}");
        let has_arrays = |field: LeafField<'_>| field.field.type_name().contains(':');
        let mut has_arrays_before: BTreeSet<String> = BTreeSet::new();
        let mut expected: BTreeMap<(String, u32), (String, Vec<u8>)> = BTreeMap::new();
        let mut reader = MergedReader::open(std::slice::from_ref(path), ReplayFilter::default()).unwrap();
        let mut sources: BTreeMap<u16, (String, CompiledSchema)> = BTreeMap::new();
        while let Some(item) = reader.next().unwrap() {
            match item {
                ReplayItem::Header(header, _) => {
                    header.sources.iter().for_each(|source| add_source(&mut sources, source));
                }
                ReplayItem::Source(source, _) => add_source(&mut sources, source),
                ReplayItem::Sample(sample) => {
                    let sample = sample.telemetry;
                    let Some((name, schema)) = sources.get(&sample.source) else { continue };
                    if schema.fields().any(has_arrays) {
                        has_arrays_before.insert(name.clone());
                    }
                    let mut line = Vec::new();
                    schema.append_json(sample.payload, &mut line).unwrap();
                    let key = (name.clone(), u32::try_from(sample.seq).unwrap());
                    expected.insert(key, (String::from_utf8(line).unwrap(), sample.payload.to_vec()));
                }
                _ => {}
            }
        }
        let bytes = std::fs::read(&out).unwrap();
        for message in mcap::MessageStream::new(&bytes).unwrap().map(Result::unwrap) {
            let Some(schema) = message.channel.schema.as_ref().filter(|own| own.encoding == "flatbuffer")
            else {
                continue;
            };
            let compiled = CompiledSchema::compile(&schema.data, &schema.name).unwrap();
            assert!(!compiled.fields().any(has_arrays), "{}", message.channel.topic);
            let mut line = Vec::new();
            compiled.append_json(&message.data, &mut line).unwrap();
            let key = (message.channel.topic.clone(), message.sequence);
            let (json, payload) = expected.remove(&key).unwrap_or_else(|| panic!("{key:?}"));
            if has_arrays_before.contains(&key.0) {
                converted += 1;
            } else {
                assert_eq!(message.data.as_ref(), payload.as_slice(), "{key:?}");
            }
            let value = |text: &str| serde_json::from_str::<Value>(text).unwrap();
            assert_eq!(value(std::str::from_utf8(&line).unwrap()), value(&json), "{key:?}");
        }
        assert!(expected.is_empty(), "{}: {:?}", path.display(), expected.keys());
    }
    assert_eq!(converted > 20, paths.len() > 1, "{converted}");
}

// Proves that Perfetto's own protobuf library finds each changed value at its time, in the track of
// its field and with its unit. Also proves that lost samples are slices, and that counters are
// rates.
#[test]
fn perfetto_has_the_values() {
    let folder = tempfile::tempdir().unwrap();
    let sources: [NamedField; 2] = [("point", POINT), ("load", LOAD)];
    write_run(folder.path(), 1, &sources, &[5, 7, 7, 9], Some(lost(0, 4, 2)));
    let file = folder.path().join("out.perfetto");
    let output = format!("--output={}", file.display());
    let called = export(&["--to=perfetto", "--json", &output], &[folder.path()]);
    assert_eq!(called.status, Some(0), "{called:?}");
    let Some(found) = found_by_library(&[Path::new("perfetto"), &file]) else { return };
    let times: Vec<u64> = (0..4).map(|at| SUSPENDED_NS + 1_000_000 * (1000 + at)).collect();
    let clock = |id: &str| found["clocks"][id].as_i64().unwrap();
    assert_eq!(
        [clock("6"), clock("3"), clock("1")],
        [6_000_000_000, 1_000_000_000, BEGIN_NS + 1_000_000_999]
    );
    let track = |name: &str| &found["tracks"][format!("example/{name}")];
    let values = |name: &str| -> Vec<(u64, f64)> {
        let events = track(name)["events"].as_array().unwrap_or_else(|| panic!("no {name} in {found}"));
        assert!(events.iter().all(|event| event[0] == "TYPE_COUNTER"), "{found}");
        events.iter().map(|event| (event[1].as_u64().unwrap(), event[2].as_f64().unwrap())).collect()
    };
    assert_eq!(values("load/tasks"), [(times[0], 5.0), (times[1], 7.0), (times[3], 9.0)]);
    assert_eq!(values("point/counter"), [(times[1], 2000.0), (times[2], 0.0), (times[3], 2000.0)]);
    assert_eq!(track("point/counter")["unit"], "/s");
    let slice = &track("point/lost")["events"];
    assert_eq!(
        (slice[0][0].as_str(), slice[1][0].as_str()),
        (Some("TYPE_SLICE_BEGIN"), Some("TYPE_SLICE_END"))
    );
    assert!(slice[0][2].as_str().unwrap().starts_with("2 samples of point lost: "), "{slice}");
    assert_eq!((slice[0][1].as_u64(), slice[1][1].as_u64()), (Some(6_002_000_000), Some(6_003_000_000)));
}

// Proves that a counter does not hold its value from the end of a run to the next run.
#[test]
fn perfetto_is_zero_between_runs() {
    let folder = tempfile::tempdir().unwrap();
    write_run(folder.path(), 1, &[("load", LOAD)], &[5, 7], None);
    write_run(folder.path(), 2, &[("load", LOAD)], &[7, 0], None);
    write_run(folder.path(), 3, &[("load", LOAD)], &[3], None);
    let file = folder.path().join("out.perfetto");
    let output = format!("--output={}", file.display());
    let called = export(&["--to=perfetto", "--json", &output], &[folder.path()]);
    assert_eq!(called.status, Some(0), "{called:?}");
    let Some(found) = found_by_library(&[Path::new("perfetto"), &file]) else { return };
    let events = found["tracks"]["example/load/tasks"]["events"].as_array().unwrap();
    let values = events.iter().map(|event| (event[1].as_u64().unwrap(), event[2].as_f64().unwrap()));
    let at = |ms: u64| SUSPENDED_NS + 1_000_000 * ms;
    let expected = [
        (at(1000), 5.0),
        (at(1001), 7.0),
        (at(1001) + 1, 0.0),
        (at(2000), 7.0),
        (at(2001), 0.0),
        (at(3000), 3.0),
    ];
    assert_eq!(values.collect::<Vec<_>>(), expected, "{found}");
}

// Proves that an Arrow file of several hosts has a column with the host of each row, and that a
// file of a selected host has no such column.
#[test]
fn arrow_tells_hosts_apart() {
    let folder = tempfile::tempdir().unwrap();
    for (run_id, machine_id) in [(1, "aaaabbbbcccc"), (2, "ddddeeeeffff")] {
        write_run_of(folder.path(), (run_id, Some(machine_id)), &[("load", LOAD)], &[7, 8], None);
    }
    let hosts = |more: &[&str]| {
        let file = folder.path().join("out.arrow");
        let output = format!("--output={}", file.display());
        let called =
            export(&[&["--to=arrow", "--json", "--force", &output], more].concat(), &[folder.path()]);
        assert_eq!(called.status, Some(0), "{called:?}");
        let reader = FileReader::try_new(std::fs::File::open(&file).unwrap(), None).unwrap();
        let mut found = Vec::new();
        for batch in reader {
            let batch = batch.unwrap();
            let column = batch.column_by_name("host").map(|column| column.as_string::<i32>().clone());
            found.extend(column.iter().flatten().map(|host| host.unwrap().to_owned()));
        }
        found
    };
    let (one, other) = ("example (aaaabbbb)", "example (ddddeeee)");
    assert_eq!(hosts(&[]), [one, one, other, other]);
    assert!(hosts(&["--host=example", "--machine-id=aaaabbbbcccc"]).is_empty());
}

// Proves that the export to Arrow writes a file for each source into a directory, and that standard
// output refuses several sources.
#[test]
fn arrow_has_a_file_of_each_source() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    std::fs::create_dir(&data).unwrap();
    write_run(&data, 1, &[("load", LOAD), ("a/b", POINT), ("A_b", POINT)], &[7, 8, 9], None);
    let output = folder.path().join("out");
    let to = format!("--output={}", output.display());
    let called = export(&["--to=arrow", "--json", &to], &[&data]);
    assert_eq!(called.status, Some(0), "{called:?}");
    assert_eq!(called.rows().iter().map(|(_, rows)| *rows).collect::<Vec<_>>(), [3, 3, 3], "{called:?}");
    let lowercase: BTreeSet<String> = names(&output).iter().map(|name| name.to_lowercase()).collect();
    assert_eq!(lowercase.len(), 3, "{lowercase:?}");
    let reader = FileReader::try_new(std::fs::File::open(output.join("load.arrow")).unwrap(), None).unwrap();
    assert_eq!(reader.map(|batch| batch.unwrap().num_rows()).sum::<usize>(), 3);
    // If one of the files exists, none is written.
    let other = folder.path().join("other");
    std::fs::create_dir(&other).unwrap();
    let existing = names(&output).into_iter().find(|name| name != "load.arrow").unwrap();
    std::fs::copy(output.join(&existing), other.join(&existing)).unwrap();
    let called = export(&["--to=arrow", &format!("--output={}", other.display())], &[&data]);
    assert!(called.status == Some(1) && !other.join("load.arrow").exists(), "{called:?}");
    let called = export(&["--to=arrow", "--output=-"], &[&data]);
    assert_eq!(called.status, Some(2), "{called:?}");
    assert!(called.err.contains("choose one of A_b, a/b, load with --source"), "{called:?}");
}

// Proves that hosts with the same name have separate series. Also proves that the values of runs
// are in the order of time, in whichever order the paths of the runs are given.
#[test]
fn openmetrics_tells_hosts_apart() {
    let folder = tempfile::tempdir().unwrap();
    let runs = [("later", 5, "aaaabbbbcccc"), ("other", 1, "ddddeeeeffff"), ("earlier", 2, "aaaabbbbcccc")];
    let paths: Vec<PathBuf> = runs
        .iter()
        .map(|(name, run_id, machine_id)| {
            let path = folder.path().join(name);
            std::fs::create_dir(&path).unwrap();
            write_run_of(&path, (*run_id, Some(machine_id)), &[("load", LOAD)], &[run_id * 10], None);
            path
        })
        .collect();
    let file = folder.path().join("out.txt");
    let output = format!("--output={}", file.display());
    let paths: Vec<&Path> = paths.iter().map(PathBuf::as_path).collect();
    let called = export(&["--to=openmetrics", "--json", &output], &paths);
    assert_eq!(called.status, Some(0), "{called:?}");
    let text = std::fs::read_to_string(&file).unwrap();
    let values: Vec<&str> = text.lines().filter(|line| line.starts_with("flatcap_load_tasks{")).collect();
    let line = |machine: &str, value: u32, second: u32| {
        let role = if machine == "aaaabbbb" { ",role=\"db\"" } else { "" };
        let labels = format!("host=\"example ({machine})\",site=\"a \\\"b\\\"\"{role}");
        format!("flatcap_load_tasks{{{labels}}} {value} 170000000{second}.000")
    };
    assert_eq!(values, [line("aaaabbbb", 20, 2), line("aaaabbbb", 50, 5), line("ddddeeee", 10, 1)]);
}

// Proves that promtool creates blocks from the text, and then prints every value from them with its
// labels and time. Also proves that the first value of each step is written.
#[test]
fn openmetrics_becomes_blocks() {
    let folder = tempfile::tempdir().unwrap();
    let sources: [NamedField; 2] = [("point", POINT), ("load", LOAD)];
    write_run(folder.path(), 1, &sources, &[5, 7, 7, 9], Some(lost(0, 4, 2)));
    let file = folder.path().join("out.txt");
    let output = format!("--output={}", file.display());
    let called = export(&["--to=openmetrics", "--json", "--step-ns=2000000", &output], &[folder.path()]);
    assert_eq!(called.status, Some(0), "{called:?}");
    let text = std::fs::read_to_string(&file).unwrap();
    let line = |line: &str| assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    line("# TYPE flatcap_load_tasks gauge");
    line("# TYPE flatcap_point_counter counter");
    let labels = r#"host="example",site="a \"b\"""#;
    line(&format!("flatcap_load_tasks{{{labels}}} 5 1700000001.000"));
    line(&format!("flatcap_load_tasks{{{labels}}} 7 1700000001.002"));
    line("flatcap_lost_total{host=\"example\",source=\"point\"} 2 1700000001.003");
    assert!(text.ends_with("# EOF\n"));
    let blocks = folder.path().join("blocks");
    let promtool = |args: &[&str]| Command::new("promtool").args(args).output().map(Called::from);
    let (from, to) = (file.to_str().unwrap(), blocks.to_str().unwrap());
    let Ok(made) = promtool(&["tsdb", "create-blocks-from", "openmetrics", from, to]) else {
        return println!("skipped: promtool is not here");
    };
    assert_eq!(made.status, Some(0), "{made:?}");
    // Prometheus would have created this directory.
    std::fs::create_dir(blocks.join("wal")).unwrap();
    let dumped = promtool(&["tsdb", "dump", to]).unwrap();
    let values = text.lines().filter(|line| !line.starts_with('#')).count();
    let printed: Vec<&str> = dumped.out.lines().filter(|line| line.contains("__name__")).collect();
    assert_eq!(printed.len(), values, "{dumped:?}");
    let has = |name: &str, end: &str| {
        printed.iter().any(|line| line.contains(&format!("__name__=\"{name}\"")) && line.ends_with(end))
    };
    assert!(has("flatcap_load_tasks", "} 7 1700000001002") && has("flatcap_lost_total", "} 2 1700000001003"));
}

// Proves that a file and standard output get the same bytes. Also proves that a file is replaced
// only on request, and that options of other formats are refused.
#[test]
fn single_files_appear_whole() {
    let folder = tempfile::tempdir().unwrap();
    write_run(folder.path(), 1, &[("load", LOAD)], &[5, 7], None);
    for format in ["perfetto", "openmetrics", "mcap"] {
        let file = folder.path().join(format!("out.{format}"));
        let (to, output) = (format!("--to={format}"), format!("--output={}", file.display()));
        assert_eq!(export(&[&to, &output], &[folder.path()]).status, Some(0));
        let first = std::fs::read(&file).unwrap();
        let refused = export(&[&to, &output], &[folder.path()]);
        assert!(refused.status == Some(1) && refused.err.contains("exists already"), "{refused:?}");
        assert_eq!(export(&[&to, &output, "--force"], &[folder.path()]).status, Some(0));
        let streamed = Command::new(PROGRAM)
            .args(["export", to.as_str(), "--output=-", "--"])
            .arg(folder.path())
            .output()
            .unwrap();
        if format == "mcap" {
            assert_eq!(streamed.status.code(), Some(2));
        } else {
            assert_eq!((streamed.status.code(), streamed.stdout), (Some(0), first), "{format}");
        }
        let refused = export(&[&to, "--output=x", "--explode"], &[folder.path()]);
        assert!(refused.status == Some(2) && refused.err.contains("are for parquet"), "{refused:?}");
    }
    let refused = export(&["--to=mcap", "--output=x", "--fields=load.tasks"], &[folder.path()]);
    assert!(refused.status == Some(2) && refused.err.contains("mcap has whole payloads"), "{refused:?}");
    let refused = export(&["--to=openmetrics", "--output=x", "--step-ns=1000"], &[folder.path()]);
    assert!(refused.status == Some(2) && refused.err.contains("shorter than 1ms"), "{refused:?}");
}

/// The readers that check exports. Spark reads only Parquet.
const READERS: [&str; 4] = ["DuckDB", "Polars", "pyarrow", "Spark"];

/// Compares the files in folders with the samples that `dump` prints. Each pair has the samples and
/// the folder of the files. Each reader must have checked all sources of it and, if `files` is
/// given, this number of files.
fn assert_agrees(python: &Path, pairs: &[(PathBuf, PathBuf)], readers: &[&str], files: Option<usize>) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/agree.py");
    let mut command = Command::new(python);
    command.arg(script).args(pairs.iter().flat_map(|(samples, folder)| [samples, folder]));
    let judged = Called::from(command.output().unwrap());
    assert_eq!(judged.status, Some(0), "{}{}", judged.out, judged.err);
    let skipped = judged.out.lines().find(|line| line.starts_with("skipped: no Spark"));
    if let Some(line) = skipped.filter(|_| readers.contains(&"Spark")) {
        println!("{line}");
    }
    let end =
        files.map_or_else(String::new, |files| format!(" of {files} files")) + " are equal, all sources";
    for reader in readers.iter().filter(|reader| **reader != "Spark" || skipped.is_none()) {
        let lines = judged.out.lines().filter(|line| line.starts_with(reader) && line.ends_with(&end));
        assert_eq!(lines.count(), pairs.len(), "{reader}: {judged:?}");
    }
}

// Proves that DuckDB, Polars, pyarrow and Spark read every value of the files. The files have every
// type, absent values, strings, lists, lists in lists, and numbers above 2^63.
#[test]
fn independent_readers_agree() {
    let Some(python) = judge() else { return };
    let folder = tempfile::tempdir().unwrap();
    let all = names(&test_file("conformance"));
    let mut pairs = Vec::new();
    for name in all.iter().filter_map(|name| name.strip_suffix(".bin")) {
        let output = folder.path().join(name);
        let called = to_parquet(&output, &["--unsigned"], &[&test_file(&format!("conformance/{name}.bin"))]);
        assert_eq!(called.status, Some(0), "{name}: {called:?}");
        pairs.push((test_file(&format!("conformance/{name}.jsonl")), output));
    }
    assert_agrees(&python, &pairs, &READERS, None);
}

// Proves that independent readers read every value of an Arrow file and of an Arrow stream.
#[test]
fn independent_readers_agree_on_arrow() {
    let Some(python) = judge() else { return };
    let folder = tempfile::tempdir().unwrap();
    let input = test_file("conformance/level0-types.bin");
    for source in ["shapes", "marked"] {
        let source_option = format!("--source={source}");
        let file = format!("--output={}", folder.path().join(format!("{source}.arrow")).display());
        let called = export(&["--to=arrow", "--json", &source_option, &file], &[&input]);
        assert_eq!(called.status, Some(0), "{called:?}");
        let streamed = Command::new(PROGRAM)
            .args(["export", "--to=arrow", "--output=-", &source_option])
            .arg(&input)
            .output()
            .unwrap();
        assert!(streamed.status.success(), "{streamed:?}");
        std::fs::write(folder.path().join(format!("{source}.arrows")), streamed.stdout).unwrap();
    }
    let samples = test_file("conformance/level0-types.jsonl");
    assert_agrees(&python, &[(samples, folder.path().to_owned())], &READERS[..3], Some(4));
}

// Proves that independent readers read every value of a recording of this host, if the recorder is
// built, too.
#[test]
fn independent_readers_agree_on_this_host() {
    let program = Path::new(PROGRAM).with_file_name("flatcap");
    let Some(python) = judge() else { return };
    if !program.exists() {
        println!("skipped: {} is not built", program.display());
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let mut record = Command::new(&program);
    record.args(["record", "--quiet", "--for", "3s", "--source"]);
    record.arg("+synthetic,+softirqs,+interrupts,+numa,+buddy,+filesystem,+sockets,+netstat,+ethtool,+perf");
    record.arg("--data-dir").arg(&data).current_dir(folder.path()).env("RUNTIME_DIRECTORY", folder.path());
    let recorded = record.env("FLATCAP_STORAGE__MIN_FREE", "0").output().unwrap();
    assert!(recorded.status.success(), "{recorded:?}");
    let dumped =
        Command::new(&program).args(["dump", "--raw", "--format", "jsonl"]).arg(&data).output().unwrap();
    let samples = folder.path().join("samples.jsonl");
    std::fs::write(&samples, dumped.stdout).unwrap();
    let output = folder.path().join("exported");
    // Exports with the verb `export`, which must find the program in its own directory.
    let mut verb = Command::new(&program);
    verb.args(["export", "--to", "parquet", "--unsigned", "--json", "-o"]).arg(&output).arg(&data);
    let called = Called::from(verb.output().unwrap());
    assert_eq!(called.status, Some(0), "{called:?}");
    assert!(called.rows_of("cpu.parquet") > 10 && called.rows().len() > 10, "{called:?}");
    assert_agrees(&python, &[(samples, output)], &READERS, None);
}

// Proves that damage is skipped, and reported one time and by exit status 3. Also proves that marks
// and gaps occur exactly once. If a file cannot be read at all, this is an error that leaves no
// file.
#[test]
fn damage_is_skipped_and_reported() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("damaged");
    let damaged = to_parquet(&output, &[], &[&test_file("corpus/damaged-payload.bin")]);
    assert_eq!(damaged.status, Some(3), "{damaged:?}");
    assert!(damaged.err.contains("damage at offset 5776"), "{damaged:?}");
    assert!(damaged.rows().iter().map(|(_, rows)| rows).sum::<u64>() > 10, "{damaged:?}");
    // Each of the four sources is read separately.
    let found = |what: &str| damaged.err.matches(what).count();
    let notes = ["flatcap_gaps.parquet", "flatcap_marks.parquet"].map(|name| damaged.rows_of(name));
    assert_eq!((found("damage at offset"), notes), (1, [2, 2]), "{damaged:?}");
    let output = folder.path().join("future");
    let future = to_parquet(&output, &[], &[&test_file("corpus/future-version.bin")]);
    assert_eq!((future.status, names(&output)), (Some(1), BTreeSet::new()), "{future:?}");
}

/// Returns the rows of a Parquet file.
fn parquet_rows(path: &Path) -> RecordBatch {
    let file = std::fs::File::open(path).unwrap();
    let reader = ParquetRecordBatchReaderBuilder::try_new(file).unwrap().build().unwrap();
    let batches: Vec<RecordBatch> = reader.map(Result::unwrap).collect();
    assert_eq!(batches.len(), 1, "{}", path.display());
    batches[0].clone()
}

/// Returns a schema with one list of two numbers, of which the second one uses all bits.
fn bits_schema() -> Vec<u8> {
    let number =
        |name: &str, uses_all_bits| NewField { uses_all_bits, ..NewField::new(name, NewContent::Unsigned) };
    let table = NewTable { name: "Bits".into(), fields: vec![number("plain", false), number("bits", true)] };
    binary_schema(&[table], "Bits").unwrap()
}

// Proves that a number beyond INT64 leaves only its cell empty, with a line that names it and exit
// status 3. A column whose bits all count can hold such a number, and so can a column with
// --unsigned. An absent value is not a large number.
#[test]
fn large_numbers_cost_their_cells() {
    let folder = tempfile::tempdir().unwrap();
    let schema: &'static [u8] = bits_schema().leak();
    let sources: [NamedField; 3] =
        [("points", POINT), ("plain", (schema, "Bits", "plain")), ("bits", (schema, "Bits", "bits"))];
    let large = u64::MAX - 7;
    write_run(folder.path(), 1, &sources, &[1, 1 << 63, large], None);
    let output = folder.path().join("out");
    let called = to_parquet(&output, &[], &[folder.path()]);
    assert_eq!((called.status, called.rows_of("points.parquet")), (Some(3), 3), "{called:?}");
    for line in [
        "2 values of points.counter left out: points.counter, sample 1 at 1700000001001000999 ns, is \
         9223372036854775808: larger than 9223372036854775807, the limit of INT64; --unsigned keeps such values",
        "2 values of plain.plain left out: ",
    ] {
        assert_eq!(called.err.matches(line).count(), 1, "{called:?}");
    }
    let rows = parquet_rows(&output.join("points.parquet"));
    let counters = rows.column_by_name("counter").unwrap().as_primitive::<Int64Type>();
    assert_eq!(counters.iter().collect::<Vec<_>>(), [Some(1), None, None]);
    let rows = parquet_rows(&output.join("bits.parquet"));
    let bits = rows.column_by_name("bits").unwrap().as_primitive::<UInt64Type>();
    assert_eq!(bits.iter().collect::<Vec<_>>(), [Some(1), Some(1 << 63), Some(large)]);
    let unsigned = to_parquet(&folder.path().join("unsigned"), &["--unsigned"], &[folder.path()]);
    assert_eq!(unsigned.status, Some(0), "{unsigned:?}");
    let absent = tempfile::tempdir().unwrap();
    write_run(absent.path(), 1, &[("load", LOAD)], &[1, u64::MAX], None);
    let called = to_parquet(&absent.path().join("out"), &[], &[absent.path()]);
    assert_eq!((called.status, called.rows_of("load.parquet")), (Some(0), 2), "{called:?}");
}

// Proves that the names of columns and files differ in more than the case of their letters. Also
// proves that no name begins with a character that hides a file.
#[test]
fn names_are_distinct_without_regard_to_case() {
    let folder = tempfile::tempdir().unwrap();
    let fields = ["CPU", "cpu", "Time"].map(|name| NewField::new(name, NewContent::Unsigned)).to_vec();
    let schema = binary_schema(&[NewTable { name: "Row".into(), fields }], "Row").unwrap();
    let row: SchemaField = (schema.leak(), "Row", "cpu");
    write_run(folder.path(), 1, &[("_a", row), ("xA", row), (".b", row)], &[1, 2], None);
    let output = folder.path().join("out");
    assert_eq!(to_parquet(&output, &[], &[folder.path()]).status, Some(0));
    let files = names(&output);
    let lowercase: BTreeSet<String> = files.iter().map(|name| name.to_lowercase()).collect();
    assert!(files.iter().all(|name| !name.starts_with(['_', '.'])) && lowercase.len() == 6, "{files:?}");
    let rows = parquet_rows(&output.join("xa.parquet"));
    let columns: Vec<String> = rows.schema().fields().iter().map(|field| field.name().clone()).collect();
    let own: Vec<&str> = columns.iter().map(String::as_str).skip(7).collect();
    assert_eq!(own, ["CPU", "cpu-2", "Time-2"], "{columns:?}");
}

// Proves that rows, gaps and topics name their host if there are several hosts, and that rows then
// have the labels of the host. Also proves that a single host needs no such names.
#[test]
fn parquet_and_mcap_tell_hosts_apart() {
    let folder = tempfile::tempdir().unwrap();
    for (run_id, machine_id) in [(1, "aaaabbbbcccc"), (2, "ddddeeeeffff")] {
        let gap = Some(lost(0, 3, 2));
        write_run_of(folder.path(), (run_id, Some(machine_id)), &[("load", LOAD)], &[7, 8], gap);
    }
    let (one, other) = ("example (aaaabbbb)", "example (ddddeeee)");
    let output = folder.path().join("out");
    assert_eq!(to_parquet(&output, &[], &[folder.path()]).status, Some(0));
    let hosts = |file: &str| -> Vec<String> {
        let rows = parquet_rows(&output.join(file));
        let column = rows.column_by_name("host").unwrap_or_else(|| panic!("{file}"));
        column.as_string::<i32>().iter().map(|host| host.unwrap().to_owned()).collect()
    };
    assert_eq!(hosts("load.parquet"), [one, one, other, other]);
    let rows = parquet_rows(&output.join("load.parquet"));
    let label = |key| -> Vec<Option<String>> {
        let column = rows.column_by_name(key).unwrap_or_else(|| panic!("{key}")).as_string::<i32>();
        column.iter().map(|value| value.map(str::to_owned)).collect()
    };
    assert_eq!(label("site"), vec![Some("a \"b\"".to_owned()); 4]);
    assert_eq!(label("role"), [Some("db".to_owned()), Some("db".to_owned()), None, None]);
    assert_eq!(hosts("flatcap_gaps.parquet"), [one, other]);
    let topics = |more: &[&str]| -> BTreeSet<String> {
        let file = folder.path().join("out.mcap");
        let to = format!("--output={}", file.display());
        let called = export(&[&["--to=mcap", "--json", "--force", &to], more].concat(), &[folder.path()]);
        assert_eq!(called.status, Some(0), "{called:?}");
        let bytes = std::fs::read(&file).unwrap();
        let summary = mcap::Summary::read(&bytes).unwrap().unwrap();
        summary.channels.values().map(|channel| channel.topic.clone()).collect()
    };
    let own = ["/flatcap/gaps", "/flatcap/marks"].map(str::to_owned);
    let with = |more: &[&str]| own.iter().cloned().chain(more.iter().map(|topic| (*topic).into())).collect();
    assert_eq!(topics(&[]), with(&["example (aaaabbbb)/load", "example (ddddeeee)/load"]));
    assert_eq!(topics(&["--host=example", "--machine-id=aaaabbbbcccc"]), with(&["load"]));
    let bytes = std::fs::read(folder.path().join("out.mcap")).unwrap();
    let gaps: Vec<Value> = mcap::MessageStream::new(&bytes)
        .unwrap()
        .map(Result::unwrap)
        .filter(|message| message.channel.topic == "/flatcap/gaps")
        .map(|message| serde_json::from_slice(&message.data).unwrap())
        .collect();
    assert_eq!(gaps[0]["host"], one, "{gaps:?}");
}

// Proves that names of sources reach no terminal with control characters, neither as text nor as
// JSON, and that the JSON keeps the names.
#[test]
fn names_reach_no_terminal() {
    const NAME: &str = "\u{9b}2J\u{202e}\u{1b}]0;x";
    let folder = tempfile::tempdir().unwrap();
    write_run(folder.path(), 1, &[(NAME, POINT)], &[1, 2], None);
    for format in ["parquet", "mcap", "arrow", "openmetrics", "perfetto"] {
        for form in [&["--json"][..], &[]] {
            let output = folder.path().join(format!("{format}{}", form.len()));
            let args = [format!("--to={format}"), format!("--output={}", output.display())];
            let args: Vec<&str> = args.iter().map(String::as_str).chain(form.iter().copied()).collect();
            let called = export(&args, &[folder.path()]);
            assert!(matches!(called.status, Some(0 | 3)), "{called:?}");
            for text in [&called.out, &called.err] {
                let is_unsafe = |c: char| c != '\n' && c.is_control() || c == '\u{202e}';
                assert!(!text.contains(is_unsafe), "{format} {form:?}: {text:?}");
            }
            if format == "parquet" && !form.is_empty() {
                let report: Value = serde_json::from_str(&called.out).unwrap();
                let files = report["files"].as_array().unwrap();
                assert!(files.iter().any(|file| file["source"] == NAME), "{report}");
            }
        }
    }
}

// Proves that existing files are replaced only on request, whichever of the files exists.
#[test]
fn existing_files_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    write_run(folder.path(), 1, &[("points", POINT)], &[1, 2, 3], None);
    for name in ["points.parquet", "flatcap_gaps.parquet", "flatcap_marks.parquet", "flatcap_sources.parquet"]
    {
        let output = folder.path().join(format!("with{name}"));
        std::fs::create_dir(&output).unwrap();
        std::fs::write(output.join(name), "mine").unwrap();
        let refused = to_parquet(&output, &[], &[folder.path()]);
        assert_eq!((refused.status, names(&output).len()), (Some(1), 1), "{refused:?}");
        assert!(refused.err.contains(&format!("{name} exists already")), "{refused:?}");
        assert_eq!(std::fs::read(output.join(name)).unwrap(), b"mine");
        let forced = to_parquet(&output, &["--force"], &[folder.path()]);
        assert_eq!((forced.status, names(&output).len()), (Some(0), 4), "{forced:?}");
        assert_ne!(std::fs::read(output.join(name)).unwrap(), b"mine");
    }
}

// Proves that a source whose schema changed has a file per schema, and that each run can be
// distinguished. Also proves that names stay distinct even if they differ only in characters that
// file names cannot contain.
#[test]
fn schemas_and_names_stay_apart() {
    let folder = tempfile::tempdir().unwrap();
    write_run(folder.path(), 1, &[("same", POINT), ("a/b", POINT), ("a:b", POINT)], &[1, 2], None);
    let second = [("same", LOAD), ("a/b", POINT), ("flatcap_gaps", POINT)];
    write_run(folder.path(), 2, &second, &[3, 4, 5], None);
    let output = folder.path().join("out");
    let called = to_parquet(&output, &[], &[folder.path()]);
    let expected = [
        ("a_b.parquet", 5),
        ("a_b-2.parquet", 2),
        ("flatcap_gaps-2.parquet", 3),
        ("same.parquet", 2),
        ("same-2.parquet", 3),
        ("flatcap_gaps.parquet", 0),
        ("flatcap_marks.parquet", 0),
        ("flatcap_sources.parquet", 6),
    ];
    assert_eq!(called.rows(), expected.map(|(name, rows)| (name.to_owned(), rows)), "{called:?}");
    let arrow = export(&["--to=arrow", "--output=-", "--source=same"], &[folder.path()]);
    assert_eq!(arrow.status, Some(2), "{}", arrow.err);
    assert!(arrow.err.contains("same has another schema from run 0000000000000002 on"), "{}", arrow.err);
    let several = export(&["--to=arrow", "--output=-"], &[folder.path()]);
    assert_eq!((several.status, several.out.len()), (Some(2), 0), "{}", several.err);
}

// Proves that losses are rows of a separate file, and that times, steps and fields select rows and
// columns.
#[test]
fn rows_are_selected() {
    let folder = tempfile::tempdir().unwrap();
    let gap = Gap { source: 0, first: 4, count: 7, causes: 1, after_mono_ns: 5, before_mono_ns: 9 };
    write_run(folder.path(), 1, &[("points", POINT)], &[1, 2, 3, 4], Some(gap));
    let export = |name: &str, args: &[&str]| to_parquet(&folder.path().join(name), args, &[folder.path()]);
    let all = export("all", &[]);
    assert_eq!((all.rows_of("points.parquet"), all.rows_of("flatcap_gaps.parquet")), (4, 1), "{all:?}");
    assert_eq!(export("steps", &["--step-ns=2000000"]).rows_of("points.parquet"), 2);
    let since = format!("--since-ns={}", BEGIN_NS + 1_002_000_000);
    assert_eq!(export("since", &[&since]).rows_of("points.parquet"), 2);
    assert_eq!(export("after", &["--after-ns=1000000", "--before-ns=3000000"]).rows_of("points.parquet"), 2);
    let none = export("none", &["--until-ns=5"]);
    assert_eq!((none.status, names(&folder.path().join("none"))), (Some(1), BTreeSet::new()), "{none:?}");
    assert!(none.err.contains("the recording spans 2023-11-14T22:13:21.000000Z"), "{none:?}");
    let field = export("field", &["--fields=points.nope"]);
    assert_eq!(field.status, Some(2), "{field:?}");
    let exploded = to_parquet(
        &folder.path().join("lists"),
        &["--explode"],
        &[&test_file("conformance/level2-columns.bin")],
    );
    assert_eq!(exploded.status, Some(0), "{exploded:?}");
}

/// Returns a pseudo-random number for a position.
fn mixed(at: u64) -> u64 {
    let once = at.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (once ^ once >> 32).wrapping_mul(0xD6E8_FEB8_6659_FD93) >> 1
}

// Proves that an export that cannot continue to write, or is killed while it writes, leaves no file
// under a final name, whatever the position. The test limits the file size, so that a write fails
// or the kernel kills the process.
#[test]
fn interrupted_exports_leave_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    std::fs::create_dir(&data).unwrap();
    let sources = [("a", POINT), ("b", LOAD), ("c", POINT)];
    // These values do not compress, so that each file is larger than the limits.
    let values: Vec<u64> = (0..1500).map(mixed).collect();
    write_run(&data, 1, &sources, &values, None);
    let mut failed = 0;
    for (number, kilobytes) in (1..=32).step_by(3).enumerate() {
        for trap in ["trap '' XFSZ;", ""] {
            let output = folder.path().join(format!("{number}{}", trap.len()));
            let script = format!(
                "{trap} ulimit -f {kilobytes}; exec \"$0\" export --to=parquet \"--output=$1\" \"$2\""
            );
            let mut shell = Command::new("bash");
            shell.arg("-c").arg(&script).arg(PROGRAM).arg(&output).arg(&data);
            let called = Called::from(shell.output().unwrap());
            let left = names(&output);
            if called.status == Some(0) {
                assert_eq!(left.len(), 6, "{left:?}");
                continue;
            }
            failed += 1;
            let is_temporary = |name: &String| name.starts_with(".flatcap-") && name.ends_with(".partial");
            assert!(left.iter().all(is_temporary), "{kilobytes} KiB: {left:?}");
            if !trap.is_empty() {
                assert_eq!((called.status, left.len()), (Some(1), 0), "{called:?}");
                assert!(
                    called.err.contains("cannot write") && called.err.contains("too large"),
                    "{called:?}"
                );
            }
        }
    }
    assert!(failed >= 8, "{failed} exports were interrupted");
}

// Proves that no format leaves a part of a file under its final name, wherever the export is
// killed, stopped, or prevented from writing. Also proves that only a kill leaves any files.
// FLATCAP_KILLS sets the number of interruptions. The test sends a signal when a random part of the
// bytes is written, or limits the file size.
#[test]
fn a_killed_export_leaves_no_file() {
    const FORMATS: [(&str, &str); 5] = [
        ("parquet", ""),
        ("arrow", "file.arrow"),
        ("mcap", "file.mcap"),
        ("perfetto", "file.perfetto"),
        ("openmetrics", "file.txt"),
    ];
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    std::fs::create_dir(&data).unwrap();
    write_run(&data, 1, &[("a", POINT)], &(0..20_000).map(mixed).collect::<Vec<_>>(), None);
    let start = |output: &Path, (format, file): (&str, &str), limit: Option<u64>| {
        std::fs::create_dir(output).unwrap();
        let limit = limit.map_or_else(String::new, |kilobytes| format!("ulimit -f {kilobytes};"));
        let mut command = Command::new("bash");
        command.arg("-c").arg(format!("trap '' XFSZ; {limit} exec \"$@\"")).args(["bash", PROGRAM, "export"]);
        command.arg(format!("--to={format}")).arg("--output").arg(output.join(file)).arg(&data);
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    };
    let bytes = |output: &Path| -> u64 {
        let files = std::fs::read_dir(output).unwrap();
        files.filter_map(|file| file.ok()?.metadata().ok()).map(|file| file.len()).sum()
    };
    let complete = FORMATS.map(|format| {
        let output = folder.path().join(format.0);
        assert!(start(&output, format, None).wait().unwrap().success());
        (names(&output), bytes(&output))
    });
    let kills = std::env::var("FLATCAP_KILLS").map_or(10, |kills| kills.parse::<u64>().unwrap());
    let mut interrupted = 0;
    for kill in 0..kills {
        let number = usize::try_from(kill).unwrap() % FORMATS.len();
        let output = folder.path().join(format!("{kill}"));
        let (all_names, all_bytes) = &complete[number];
        let part = mixed(kill + 1) % all_bytes;
        let is_limited = kill % 3 == 2;
        let mut child = start(&output, FORMATS[number], is_limited.then_some(part / 1024));
        while !is_limited && child.try_wait().unwrap().is_none() && bytes(&output) < part {}
        let is_killed = kill % 3 == 1;
        if is_killed {
            child.kill().unwrap();
        } else if !is_limited {
            let pid = child.id().to_string();
            Command::new("kill").args(["-INT", &pid]).stderr(Stdio::null()).status().unwrap();
        }
        let status = child.wait().unwrap();
        let left = names(&output);
        if status.success() || left.len() == all_names.len() && left == *all_names {
            assert_eq!((&left, bytes(&output)), (all_names, *all_bytes), "kill {kill}");
            continue;
        }
        interrupted += 1;
        let is_temporary = |name: &String| name.starts_with(".flatcap-") && name.ends_with(".partial");
        assert!(left.iter().all(is_temporary), "kill {kill} of {:?}: {left:?}", FORMATS[number]);
        assert!(is_killed || left.is_empty(), "kill {kill} of {:?}: {left:?}", FORMATS[number]);
    }
    println!("{interrupted} of {kills} exports were interrupted");
    assert!(interrupted > 0, "no export was interrupted");
}
