//! Runs the program as `flatcap export` does, on recordings of all kinds.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    missing_docs,
    reason = "a test says what it expects by failing"
)]

use std::collections::BTreeSet;
use std::io::IoSlice;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use flatcap_format::frame::{ENVELOPE_BYTES, Envelope, Incomplete, Stamp, TableLayout, TableWriter};
use flatcap_format::host::{ClockReading, HostName};
use flatcap_format::schema::CompiledSchema;
use flatcap_format::segment::{
    Frames, Gap, SampleSpan, SealState, SegmentHeader, SegmentName, SegmentWriter, SourceInfo, SourceKind,
};
use flatcap_format::storage::Folder;
use flatcap_stream::{ChecksumKind, Framer};
use serde_json::Value;

const PROGRAM: &str = env!("CARGO_BIN_EXE_flatcap-export");

/// A schema, its root table, and a field of this.
type SchemaField = (&'static [u8], &'static str, &'static str);
/// A source with one field.
type NamedField = (&'static str, SchemaField);

const POINT: SchemaField =
    (include_bytes!("../../../generated/synthetic.bfbs"), "flatcap.synthetic.Point", "counter");
const LOAD: SchemaField = (include_bytes!("../../../generated/host/load.bfbs"), "flatcap.host.Load", "tasks");

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
    /// Returns the rows of each file by its name; those of the export's own files without samples
    /// are left out.
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
    Called::from(Command::new(PROGRAM).args(args).arg("--").args(paths).output().unwrap())
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

/// Writes a run of sources with one field each, a sample per value every millisecond.
fn write_run(folder: &Path, run_id: u64, sources: &[NamedField], values: &[u64], gap: Option<Gap>) {
    let storage = Folder(folder.to_owned());
    let clocks = ClockReading { mono_ns: 0, boot_ns: 0, wall_ns: BEGIN_NS };
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
            machine_id: None,
            boot_id: Some("boot".into()),
            labels: vec![("site".into(), "a \"b\"".into())],
        },
        agent_version: "0".into(),
        checksum: ChecksumKind::Xxh3,
        frame_max: 1 << 20,
        clocks,
        reorder_window_ns: 1_000_000_000,
        sources: sources.iter().enumerate().map(info).collect(),
        clock_table: vec![clocks],
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
    if let Some(gap) = gap {
        append(&gap.encode());
    }
    for (id, span) in spans {
        segment.count_samples(id, 1, span);
    }
    segment.append_index(0).unwrap();
    segment.seal().unwrap().publish(&storage).unwrap();
}

/// Returns a Python with the judging libraries; none, with one line of notice, if there is none.
/// .ci/run installs them.
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

/// Judges exported files by the samples that `dump` prints.
fn assert_agrees(python: &Path, samples: &Path, folder: &Path) -> String {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/agree.py");
    let judged = Called::from(Command::new(python).arg(script).arg(samples).arg(folder).output().unwrap());
    assert_eq!(judged.status, Some(0), "{}: {}", samples.display(), judged.err);
    judged.out
}

// Proves that DuckDB, Polars and pyarrow read every value of the files for readers in other
// languages: every type, absent values, texts, lists, lists in lists, and numbers above 2^63.
#[test]
fn independent_readers_agree() {
    let Some(python) = judge() else { return };
    let folder = tempfile::tempdir().unwrap();
    let all = names(&test_file("conformance"));
    for name in all.iter().filter_map(|name| name.strip_suffix(".bin")) {
        let output = folder.path().join(name);
        let called = to_parquet(&output, &["--unsigned"], &[&test_file(&format!("conformance/{name}.bin"))]);
        assert_eq!(called.status, Some(0), "{name}: {called:?}");
        let judged = assert_agrees(&python, &test_file(&format!("conformance/{name}.jsonl")), &output);
        assert!(judged.matches("all sources").count() == 3, "{name}: {judged}");
    }
}

// Proves the same for Arrow, as a file and as a stream.
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
            .args(["--to=arrow", "--output=-", &source_option])
            .arg(&input)
            .output()
            .unwrap();
        assert!(streamed.status.success(), "{streamed:?}");
        std::fs::write(folder.path().join(format!("{source}.arrows")), streamed.stdout).unwrap();
    }
    let judged = assert_agrees(&python, &test_file("conformance/level0-types.jsonl"), folder.path());
    assert!(judged.matches(" of 4 files are equal, all sources").count() == 3, "{judged}");
}

// Proves the same for a recording of this host, if the recorder is built, too.
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
    // By the verb, which must find the program beside its own.
    let mut verb = Command::new(&program);
    verb.args(["export", "--to", "parquet", "--unsigned", "--json", "-o"]).arg(&output).arg(&data);
    let called = Called::from(verb.output().unwrap());
    assert_eq!(called.status, Some(0), "{called:?}");
    assert!(called.rows_of("cpu.parquet") > 10 && called.rows().len() > 10, "{called:?}");
    let judged = assert_agrees(&python, &samples, &output);
    assert!(judged.matches("all sources").count() == 3, "{judged}");
}

// Proves that damage is skipped and reported by exit status 3, and that a file that cannot be read
// at all is an error that leaves no file.
#[test]
fn damage_is_skipped_and_reported() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("damaged");
    let damaged = to_parquet(&output, &[], &[&test_file("corpus/damaged-payload.bin")]);
    assert_eq!(damaged.status, Some(3), "{damaged:?}");
    assert!(damaged.err.contains("damage at offset 5776"), "{damaged:?}");
    assert!(damaged.rows().iter().map(|(_, rows)| rows).sum::<u64>() > 10, "{damaged:?}");
    let output = folder.path().join("future");
    let future = to_parquet(&output, &[], &[&test_file("corpus/future-version.bin")]);
    assert_eq!((future.status, names(&output)), (Some(1), BTreeSet::new()), "{future:?}");
}

// Proves that a number that INT64 cannot hold ends the export with its place and no file, that
// UINT64 holds it, and that an absent value is no such number.
#[test]
fn large_numbers_end_the_export() {
    let folder = tempfile::tempdir().unwrap();
    write_run(folder.path(), 1, &[("points", POINT)], &[1, 1 << 63], None);
    let output = folder.path().join("out");
    let called = to_parquet(&output, &[], &[folder.path()]);
    assert_eq!((called.status, names(&output)), (Some(1), BTreeSet::new()), "{called:?}");
    let place = "points.counter, sample 1 at 1700000001001000999 ns, is 9223372036854775808";
    assert!(called.err.contains(place), "{called:?}");
    assert_eq!(to_parquet(&output, &["--unsigned"], &[folder.path()]).rows_of("points.parquet"), 2);
    let absent = tempfile::tempdir().unwrap();
    write_run(absent.path(), 1, &[("load", LOAD)], &[1, u64::MAX], None);
    assert_eq!(to_parquet(&absent.path().join("out"), &[], &[absent.path()]).rows_of("load.parquet"), 2);
}

// Proves that existing files are replaced only on request, whichever of them exists.
#[test]
fn existing_files_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    write_run(folder.path(), 1, &[("points", POINT)], &[1, 2, 3], None);
    for name in ["points.parquet", "_gaps.parquet", "_marks.parquet", "_sources.parquet"] {
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

// Proves that a source whose schema changed has a file per schema, that names which differ only in
// characters that files cannot have stay apart, and that each run is told apart.
#[test]
fn schemas_and_names_stay_apart() {
    let folder = tempfile::tempdir().unwrap();
    write_run(folder.path(), 1, &[("same", POINT), ("a/b", POINT), ("a:b", POINT)], &[1, 2], None);
    write_run(folder.path(), 2, &[("same", LOAD), ("a/b", POINT)], &[3, 4, 5], None);
    let output = folder.path().join("out");
    let called = to_parquet(&output, &[], &[folder.path()]);
    let expected = [
        ("same.parquet", 2),
        ("a_b.parquet", 5),
        ("a_b-2.parquet", 2),
        ("same-2.parquet", 3),
        ("_gaps.parquet", 0),
        ("_marks.parquet", 0),
        ("_sources.parquet", 5),
    ];
    assert_eq!(called.rows(), expected.map(|(name, rows)| (name.to_owned(), rows)), "{called:?}");
    let arrow = export(&["--to=arrow", "--output=-", "--source=same"], &[folder.path()]);
    assert_eq!(arrow.status, Some(2), "{}", arrow.err);
    assert!(arrow.err.contains("same has another schema from run 0000000000000002 on"), "{}", arrow.err);
    let several = export(&["--to=arrow", "--output=-"], &[folder.path()]);
    assert_eq!((several.status, several.out.len()), (Some(2), 0), "{}", several.err);
}

// Proves that losses are rows of their own file, and that times, steps and fields select rows and
// columns.
#[test]
fn rows_are_selected() {
    let folder = tempfile::tempdir().unwrap();
    let gap = Gap { source: 0, first: 4, count: 7, causes: 1, after_mono_ns: 5, before_mono_ns: 9 };
    write_run(folder.path(), 1, &[("points", POINT)], &[1, 2, 3, 4], Some(gap));
    let export = |name: &str, args: &[&str]| to_parquet(&folder.path().join(name), args, &[folder.path()]);
    let all = export("all", &[]);
    assert_eq!((all.rows_of("points.parquet"), all.rows_of("_gaps.parquet")), (4, 1), "{all:?}");
    assert_eq!(export("steps", &["--step-ns=2000000"]).rows_of("points.parquet"), 2);
    let since = format!("--since-ns={}", BEGIN_NS + 1_002_000_000);
    assert_eq!(export("since", &[&since]).rows_of("points.parquet"), 2);
    assert_eq!(export("after", &["--after-ns=1000000", "--before-ns=3000000"]).rows_of("points.parquet"), 2);
    let none = export("none", &["--until-ns=5"]);
    assert_eq!((none.status, names(&folder.path().join("none"))), (Some(1), BTreeSet::new()), "{none:?}");
    assert!(none.err.contains("the recording spans 2023-11-14T22:13:21.000000Z"), "{none:?}");
    let field = export("field", &["--fields=points.nope"]);
    assert_eq!(field.status, Some(2), "{field:?}");
    assert!(export("caller", &["--caller=99"]).err.contains("install both from one package"));
    let exploded = to_parquet(
        &folder.path().join("lists"),
        &["--explode"],
        &[&test_file("conformance/level2-columns.bin")],
    );
    assert_eq!(exploded.status, Some(0), "{exploded:?}");
}

// Proves that an export that cannot write on, or is killed while it writes, leaves no file under a
// final name, wherever that is. Method: limits of the file size, by which a write fails or the
// kernel kills the process.
#[test]
fn interrupted_exports_leave_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    std::fs::create_dir(&data).unwrap();
    let sources = [("a", POINT), ("b", LOAD), ("c", POINT)];
    // Values that do not compress, so that each file is larger than the limits.
    let mixed = |at: u64| {
        let once = at.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (once ^ once >> 32).wrapping_mul(0xD6E8_FEB8_6659_FD93) >> 1
    };
    let values: Vec<u64> = (0..1500).map(mixed).collect();
    write_run(&data, 1, &sources, &values, None);
    let mut failed = 0;
    for (number, kilobytes) in (1..=32).step_by(3).enumerate() {
        for trap in ["trap '' XFSZ;", ""] {
            let output = folder.path().join(format!("{number}{}", trap.len()));
            let script =
                format!("{trap} ulimit -f {kilobytes}; exec \"$0\" --to=parquet \"--output=$1\" \"$2\"");
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
