//! Runs the program on directories, and queries the result with `DuckDB`.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    missing_docs,
    reason = "a test says what it expects by failing"
)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use flatcap_format::replay::ReplayFilter;
use flatcap_query::{ColumnValues, Query, QueryItem, Recording};
use recordings::{LOST, SOURCES, TestSegment, write_run};
use serde_json::{Value, json};

#[path = "../src/recordings.rs"]
#[allow(dead_code, reason = "the tests of the library use the rest")]
mod recordings;

const PROGRAM: &str = env!("CARGO_BIN_EXE_flatcap-ship");
/// Directory of the queries for engines.
const DEPLOY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/lake");

/// Exit status and output of a call of the program.
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
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

fn call(args: &[&str], data_dir: &Path, lake: &Path) -> Called {
    let (data_dir, lake) = (data_dir.display().to_string(), format!("file://{}", lake.display()));
    let paths = ["--data-dir", &data_dir, "--to", &lake];
    Called::from(Command::new(PROGRAM).args(args).args(paths).output().unwrap())
}

fn json_of(called: &Called) -> Value {
    serde_json::from_str(&called.out).unwrap_or_else(|_| panic!("{called:?}"))
}

/// Returns the names of all objects in a lake.
fn objects(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(objects(&path)) } else { found.push(path) }
    }
    found.sort();
    found
}

/// Returns the path of a Python that has this module. If there is none, prints one line and returns
/// `None`. .ci/run installs the modules.
fn judge(module: &str) -> Option<PathBuf> {
    let installed = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tools/judges/bin/python");
    let found = [installed, PathBuf::from("python3")].into_iter().find(|python| {
        let imports = Command::new(python).args(["-c", &format!("import {module}")]).output();
        imports.is_ok_and(|output| output.status.success())
    });
    if found.is_none() {
        println!("skipped: no Python with {module}");
    }
    found
}

/// Returns rows and sums of each source of some recordings. The numbers come from a query of the
/// recordings themselves.
fn recorded(folders: &[&Path]) -> BTreeMap<String, (u64, BTreeMap<String, u128>)> {
    let mut all: BTreeMap<String, (u64, BTreeMap<String, u128>)> = BTreeMap::new();
    for source in SOURCES {
        let filter = ReplayFilter { sources: [source.to_owned()].into(), ..ReplayFilter::default() };
        for folder in folders {
            let recording = Recording::open(&[(*folder).to_owned()]).unwrap();
            let mut results = recording.query(&Query { filter: filter.clone(), ..Query::default() }).unwrap();
            while let Some(item) = results.next().unwrap() {
                let QueryItem::Batch(batch) = item else { continue };
                let columns = results.tables()[batch.table].columns.clone();
                let (rows, sums) = all.entry(source.to_owned()).or_default();
                *rows += batch.rows() as u64;
                for (info, column) in columns.iter().zip(&batch.columns) {
                    if let ColumnValues::Unsigned(values) = &column.values {
                        let sum: u128 = values.iter().map(|value| u128::from(*value)).sum();
                        *sums.entry(info.path.to_string()).or_default() += sum;
                    }
                }
            }
        }
    }
    all
}

/// Two hosts, `web-1` and `db-1`, and the lake to which they ship.
struct Hosts {
    folder: tempfile::TempDir,
    one: PathBuf,
    other: PathBuf,
    lake: PathBuf,
}

impl Hosts {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (one, other, lake) =
            (folder.path().join("one"), folder.path().join("other"), folder.path().join("lake"));
        Self { folder, one, other, lake }
    }

    /// Records `count` segments on `web-1` and four on `db-1`, and ships them with additional
    /// options.
    fn ship(&self, count: u64, options: [&[&str]; 2]) {
        let segment = TestSegment { samples: 300, ..TestSegment::default() };
        let of_other = TestSegment {
            run_id: 0xdef,
            host: ("db-1", Some("00112233445566778899aabbccddeeff")),
            is_compressed: true,
            ..segment.clone()
        };
        write_run(&self.one, &segment, count);
        write_run(&self.other, &of_other, 4);
        for (data_dir, options) in [&self.one, &self.other].into_iter().zip(options) {
            let called = call(&[&["once", "--json"], options].concat(), data_dir, &self.lake);
            assert_eq!(called.status, Some(0), "{called:?}");
        }
    }

    /// Removes the recordings, so that they can be written again with more segments.
    fn forget(&self) {
        for data_dir in [&self.one, &self.other] {
            std::fs::remove_dir_all(data_dir).unwrap();
        }
    }

    /// Merges the hours that have ended.
    fn merge(&self) {
        let merged = call(&["compact", "--settle=0s", "--grace=0s", "--json"], &self.one, &self.lake);
        assert_eq!((merged.status, json_of(&merged)["hours"].as_u64()), (Some(0), Some(2)), "{merged:?}");
    }

    /// Writes the expected results to a file, and returns its path.
    fn expected(&self, one_segments: u64) -> PathBuf {
        let tables: BTreeMap<String, Value> = recorded(&[&self.one, &self.other])
            .into_iter()
            .map(|(source, (rows, sums))| {
                let sums: BTreeMap<String, String> =
                    sums.into_iter().map(|(path, sum)| (path, sum.to_string())).collect();
                let table = if source == SOURCES[1] { "odd_name_..-19e59f52".to_owned() } else { source };
                (table, json!({ "rows": rows, "sums": sums }))
            })
            .collect();
        let expected = json!({
            "tables": tables,
            "hosts": 2,
            "names": [["db-1", 4], ["web-1", one_segments]],
            "lost": (LOST * (one_segments + 4)).to_string(),
            "marks": one_segments + 4,
            "hidden": self.manifest("0000000000000def-0000000001"),
        });
        let file = self.folder.path().join("expected.json");
        std::fs::write(&file, expected.to_string()).unwrap();
        file
    }

    /// Returns the manifest of a segment.
    fn manifest(&self, name: &str) -> PathBuf {
        let mut all = objects(&self.lake.join("v1/_segments")).into_iter();
        all.find(|path| path.file_stem().unwrap() == name).unwrap()
    }
}

/// Runs a script of the tests and returns its output.
fn judged(python: &Path, script: &str, args: &[&Path]) -> String {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(script);
    let called = Called::from(Command::new(python).arg(script).args(args).output().unwrap());
    assert_eq!(called.status, Some(0), "{}", called.err);
    called.out
}

// Proves that DuckDB finds every recorded sample exactly once, with the same sums and without a
// missing sample. Method: hot objects, merged hours, and additional later segments. A hidden
// manifest is detected.
#[test]
fn duckdb_finds_every_sample_once() {
    let Some(python) = judge("duckdb") else { return };
    let hosts = Hosts::new();
    let rows = |one_segments: u64| {
        let sql = Path::new(DEPLOY).join("duckdb.sql");
        let expected = hosts.expected(one_segments);
        let rows = judged(&python, "lake.py", &[&sql, &hosts.lake, &expected]);
        rows.trim().parse::<u64>().unwrap()
    };
    hosts.ship(2, [&[]; 2]);
    assert_eq!(rows(2), 2 * 300 * 6);
    hosts.merge();
    assert_eq!(rows(2), 2 * 300 * 6);
    hosts.forget();
    hosts.ship(5, [&[]; 2]);
    let removed = call(&["compact", "--settle=24h", "--grace=0s", "--json"], &hosts.one, &hosts.lake);
    assert_eq!(json_of(&removed)["removed_objects"].as_u64(), Some(6 * 5), "{removed:?}");
    assert_eq!(rows(5), 2 * 300 * 9);
}

// Proves that DuckDB, Spark and DataFusion find the same rows in a lake with the queries in
// deploy/lake. Each engine finds every recorded sample exactly once, with the same sums, losses and
// marks. In one lake no hour is merged. In the other, merged hours exist together with the hot
// objects that they replace, and later segments are hot. One segment has no manifest, the store
// contains halves of objects, and the identities of hosts look like numbers.
#[test]
fn three_engines_agree() {
    let pythons = ["duckdb", "pyspark", "datafusion"].map(judge);
    let [Some(python), Some(of_spark), Some(of_datafusion)] = pythons else { return };
    if !Command::new("java").arg("-version").output().is_ok_and(|output| output.status.success()) {
        return println!("skipped: no Java for Spark");
    }
    assert!(python == of_spark && python == of_datafusion, "the judges are not of one Python");
    let hot = Hosts::new();
    hot.ship(2, [&[]; 2]);
    let both = Hosts::new();
    let configs = ["007", "1e3"].map(|identity| {
        let file = both.folder.path().join(identity);
        std::fs::write(&file, format!("ship.host = \"{identity}\"\n")).unwrap();
        format!("--config={}", file.display())
    });
    let options = [&[configs[0].as_str()][..], &[configs[1].as_str()]];
    both.ship(2, options);
    both.merge();
    both.forget();
    both.ship(5, options);
    let both_expected = both.expected(5);
    both.forget();
    both.ship(6, options);
    #[expect(clippy::disallowed_methods, reason = "a test takes a manifest away")]
    std::fs::remove_file(both.manifest("0000000000000abc-0000000005")).unwrap();
    // This is the state that an interrupted put to a directory leaves.
    for object in objects(&both.lake) {
        let half = std::fs::read(&object).unwrap();
        std::fs::write(format!("{}#1", object.display()), &half[..half.len() / 2]).unwrap();
    }
    let files = [Path::new(DEPLOY), &hot.lake, &hot.expected(2), &both.lake, &both_expected];
    let found = judged(&python, "engines.py", &files);
    let rows = [2 * 300 * 6, 2 * 300 * 9].map(|rows: u64| format!("{rows} rows\n")).concat();
    assert_eq!(found, rows);
}

// Proves that a Delta table of merged hours has every row exactly once, also rows of hours that are
// merged after its registration. Registering the table again adds nothing.
#[test]
fn delta_tables_have_the_merged_hours() {
    const COUNTS: &str = "import json, sys; from deltalake import DeltaTable, QueryBuilder; \
        table = DeltaTable(sys.argv[1]); \
        sql = 'SELECT count(*) AS n, count(DISTINCT concat(run, seq)) AS k, count(DISTINCT host) AS h FROM t'; \
        rows = QueryBuilder().register('t', table).execute(sql).read_all(); \
        print(json.dumps([rows[name][0].as_py() for name in 'nkh']))";
    let Some(python) = judge("deltalake") else { return };
    let folder = tempfile::tempdir().unwrap();
    let lake = folder.path().join("lake");
    let segment = TestSegment { samples: 50, ..TestSegment::default() };
    let other = TestSegment {
        run_id: 0xdef,
        host: ("db-1", Some("00112233445566778899aabbccddeeff")),
        ..segment.clone()
    };
    let register = |lake: &Path, tables: &[&str]| {
        let mut command = Command::new(&python);
        Called::from(command.arg(Path::new(DEPLOY).join("delta.py")).arg(lake).args(tables).output().unwrap())
    };
    let mut folders: Vec<PathBuf> = Vec::new();
    for (hosts, segment) in [segment, other].into_iter().enumerate() {
        let data_dir = folder.path().join(hosts.to_string());
        write_run(&data_dir, &segment, 3);
        assert_eq!(call(&["once"], &data_dir, &lake).status, Some(0));
        let merged = call(&["compact", "--settle=0s"], &data_dir, &lake);
        assert_eq!(merged.status, Some(0), "{merged:?}");
        folders.push(data_dir);
        let registered = register(&lake, &[]);
        assert_eq!(registered.status, Some(0), "{registered:?}");
        let again = register(&lake, &[SOURCES[0]]);
        let said = format!("{}: 0 of {n} objects registered, {n} were\n", SOURCES[0], n = hosts + 1);
        assert_eq!((again.status, again.out), (Some(0), said));
        let rows = recorded(&folders.iter().map(PathBuf::as_path).collect::<Vec<_>>())[SOURCES[0]].0;
        let table = lake.join(format!("v1/hour/source={}", SOURCES[0]));
        let counted = Called::from(Command::new(&python).args(["-c", COUNTS]).arg(&table).output().unwrap());
        assert_eq!(json_of(&counted), json!([rows, rows, hosts + 1]), "{counted:?}");
    }
    let unknown = register(&lake, &["nope"]);
    assert!(
        unknown.status == Some(1) && unknown.err.contains("no merged hour has the table nope"),
        "{unknown:?}"
    );
    let elsewhere = register(&folder.path().join("missing"), &[]);
    assert!(elsewhere.status == Some(1) && elsewhere.err.contains("no merged hour"), "{elsewhere:?}");
}

// Proves that each verb reports its result. Examples are the backlog, the hosts of a store, and a
// wrong configuration with its line and status 2.
#[test]
fn verbs_report() {
    let folder = tempfile::tempdir().unwrap();
    let (data_dir, lake) = (folder.path().join("data"), folder.path().join("lake"));
    let segment = TestSegment { samples: 50, ..TestSegment::default() };
    write_run(&data_dir, &segment, 2);
    segment.write(&data_dir.join("snapshots/20231114T221320Z-rule"));
    let status = json_of(&call(&["status", "--json"], &data_dir, &lake));
    assert_eq!(
        (status["backlog_segments"].as_u64(), status["backlog_snapshots"].as_u64()),
        (Some(3), Some(1))
    );
    for reading in [&["status", "--fleet"][..], &["compact"], &["check-config"]] {
        let called = call(reading, &data_dir, &lake);
        assert_eq!(called.status, Some(0), "{called:?}");
    }
    assert!(!lake.exists(), "they write nothing");
    let shipped = call(&["once"], &data_dir, &lake);
    assert_eq!(shipped.status, Some(0), "{shipped:?}");
    let lines: Vec<&str> = shipped.out.lines().collect();
    assert!(lines.len() == 4 && lines[0].starts_with("v1/_snapshots/"), "snapshots first: {lines:?}");
    assert!(lines[3].starts_with("3 segments shipped: 300 rows, "), "{lines:?}");
    let status = call(&["status"], &data_dir, &lake);
    assert!(status.out.contains("backlog       0 segments"), "{status:?}");
    let fleet = call(&["status", "--fleet", "--json"], &data_dir, &lake);
    let host = &json_of(&fleet)["hosts"][0];
    assert_eq!(
        (&host["name"], &host["segments"], &host["lost"]),
        (&json!("web-1"), &json!(2), &json!(2 * LOST))
    );
    let fleet = call(&["status", "--fleet"], &data_dir, &lake);
    assert!(fleet.out.lines().count() == 2 && fleet.out.contains("site=fra"), "{fleet:?}");

    let config = folder.path().join("ship.toml");
    let check = |text: &str| {
        std::fs::write(&config, text).unwrap();
        Called::from(Command::new(PROGRAM).args(["check-config", "--config"]).arg(&config).output().unwrap())
    };
    let wrong = check("[ship]\ndata_dir = \"/x\"\ninterval = \"soon\"\n");
    assert!(wrong.status == Some(2) && wrong.err.contains(".toml:3:"), "{wrong:?}");
    let wrong = check("[ship]\ndata_dir = \"/x\"\n");
    assert!(wrong.status == Some(2) && wrong.err.contains("--to"), "{wrong:?}");
    let right = check(&format!("[ship]\ndata_dir = \"/x\"\nto = \"file://{}\"\n", lake.display()));
    assert_eq!((right.status, json_of(&right)["interval"].as_f64()), (Some(0), Some(10.0)), "{right:?}");
    let with_raw = folder.path().join("raw");
    let receipts = folder.path().join("receipts");
    let text = format!("[ship]\nraw = true\nreceipts = \"{}\"\n", receipts.display());
    std::fs::write(&config, text).unwrap();
    let raw = call(&["once", "--config", config.to_str().unwrap()], &data_dir, &with_raw);
    assert_eq!(raw.status, Some(0), "{raw:?}");
    let listed = std::fs::read_to_string(&receipts).unwrap();
    assert_eq!(listed, "0000000000000abc-0000000000\n0000000000000abc-0000000001\n");
    let segments: Vec<PathBuf> = objects(&with_raw.join("v1/raw"));
    let originals: Vec<PathBuf> = objects(&data_dir);
    assert_eq!(segments.len(), originals.len(), "two segments and a snapshot");
    assert_eq!(std::fs::read(&segments[0]).unwrap(), std::fs::read(&originals[0]).unwrap());
    // `--from` names the store only for verbs that read it.
    let from = format!("file://{}", lake.display());
    let read = Command::new(PROGRAM).args(["status", "--fleet", "--from", &from]).output().unwrap();
    let read = Called::from(read);
    assert!(read.status == Some(0) && read.out.contains("site=fra"), "{read:?}");
    for verb in ["once", "run", "check-config"] {
        let refused = Command::new(PROGRAM).args([verb, "--from", &from]).output().unwrap();
        let refused = Called::from(refused);
        let is_clear = refused.err.contains("--data-dir DIR") && refused.err.contains("--to URL");
        assert!(refused.status == Some(2) && is_clear, "{refused:?}");
    }
    let unknown = call(&["once"], &folder.path().join("missing"), &lake);
    assert!(unknown.status == Some(1) && unknown.err.contains("missing"), "{unknown:?}");
}

// Proves that names of hosts and sources never reach a terminal with control characters, neither in
// the output of a verb nor in a manifest. The JSON keeps the names.
#[test]
fn names_reach_no_terminal() {
    const HOST: &str = "\u{9b}2J\u{202e}\u{1b}]0;x";
    let folder = tempfile::tempdir().unwrap();
    let (data_dir, lake) = (folder.path().join("data"), folder.path().join("lake"));
    let host = (HOST, Some("4c4c4544004a35108052b7c04f4d5831"));
    let segment = TestSegment { samples: 20, host, names: [HOST, "b"], ..TestSegment::default() };
    write_run(&data_dir, &segment, 2);
    let is_unsafe = |c: char| c != '\n' && c.is_control() || c == '\u{202e}';
    for args in [
        &["once"][..],
        &["once", "--json"],
        &["status"],
        &["status", "--json"],
        &["status", "--fleet"],
        &["status", "--fleet", "--json"],
        &["compact", "--json"],
    ] {
        let called = call(args, &data_dir, &lake);
        assert!(matches!(called.status, Some(0 | 3)), "{called:?}");
        assert!(!called.out.contains(is_unsafe) && !called.err.contains(is_unsafe), "{args:?}: {called:?}");
        if args.contains(&"--json") {
            let report = json_of(&called);
            assert!(!args.contains(&"--fleet") || report["hosts"][0]["name"] == HOST, "{report}");
        }
    }
    let manifests = objects(&lake.join("v1/_segments"));
    assert_eq!(manifests.len(), 2);
    for manifest in manifests {
        let text = std::fs::read_to_string(manifest).unwrap();
        assert!(!text.contains(is_unsafe), "{text:?}");
    }
}

// Proves that the service ships segments that are sealed later, and reports its state and its
// metrics in the files that a drop-in names. The service continues if it cannot write a file, and
// ends at SIGTERM with status 0.
#[test]
fn the_service_ships_and_stops() {
    let folder = tempfile::tempdir().unwrap();
    let (data_dir, lake) = (folder.path().join("data"), folder.path().join("lake"));
    let state_file = folder.path().join("status.json");
    let config = folder.path().join("ship.toml");
    let text = format!(
        "[ship]\ndata_dir = \"{}\"\nto = \"file://{}\"\ninterval = \"1s\"\nstatus_file = \"{}\"\n",
        data_dir.display(),
        lake.display(),
        state_file.display()
    );
    std::fs::write(&config, text).unwrap();
    // The directory of this metrics file is created later.
    let metrics_file = folder.path().join("metrics").join("ship.prom");
    let drop_in = format!("ship.metrics_file = \"{}\"\n", metrics_file.display());
    std::fs::create_dir(folder.path().join("ship.d")).unwrap();
    std::fs::write(folder.path().join("ship.d/metrics.toml"), drop_in).unwrap();
    let segment = TestSegment { samples: 50, ..TestSegment::default() };
    segment.write(&data_dir);
    let mut command = Command::new(PROGRAM);
    command.args(["run", "--config"]).arg(&config).stdout(Stdio::null());
    let mut service = command.spawn().unwrap();
    let shipped = || {
        let state: Value = serde_json::from_slice(&std::fs::read(&state_file).ok()?).ok()?;
        state["segments"].as_u64()
    };
    let wait_for = |segments: u64| {
        for _ in 0..600 {
            if shipped() == Some(segments) {
                return;
            }
            #[expect(clippy::disallowed_methods, reason = "a test waits for a process")]
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
        panic!("{segments} segments are not shipped");
    };
    wait_for(1);
    std::fs::create_dir(metrics_file.parent().unwrap()).unwrap();
    TestSegment { number: 1, ..segment }.write(&data_dir);
    wait_for(2);
    let status =
        Called::from(Command::new(PROGRAM).args(["status", "--config"]).arg(&config).output().unwrap());
    assert!(status.status == Some(0) && status.out.contains("service       2 segments"), "{status:?}");
    let reported = || {
        let text = std::fs::read_to_string(&metrics_file).unwrap_or_default();
        ["segments_total 2", "rows_total 200", "backlog_segments 0", "failures 0"]
            .into_iter()
            .all(|line| text.contains(&format!("\nflatcap_ship_{line}\n")))
    };
    for _ in 0..600 {
        if reported() {
            break;
        }
        #[expect(clippy::disallowed_methods, reason = "a test waits for a process")]
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    assert!(reported(), "{:?}", std::fs::read_to_string(&metrics_file));
    let pid = service.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    assert_eq!(service.wait().unwrap().code(), Some(0));
}

// Proves that `kill -9` at any time does not change the result. Method: a program that is killed
// repeatedly until it is done must leave the same objects as one that is not killed. FLATCAP_KILLS
// sets the number of kills.
#[test]
fn a_kill_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (data_dir, lake) = (folder.path().join("data"), folder.path().join("lake"));
    write_run(&data_dir, &TestSegment { samples: 400, ..TestSegment::default() }, 3);
    let undisturbed = folder.path().join("undisturbed");
    assert_eq!(call(&["once"], &data_dir, &undisturbed).status, Some(0));
    let content = |lake: &Path| -> BTreeMap<PathBuf, Vec<u8>> {
        let whole = |path: &PathBuf| !path.to_str().unwrap().contains('#');
        let name = |path: &Path| path.strip_prefix(lake).unwrap().to_owned();
        let found = objects(lake).into_iter().filter(whole);
        found.map(|path| (name(&path), std::fs::read(&path).unwrap())).collect()
    };
    let kills = std::env::var("FLATCAP_KILLS").map_or(6, |kills| kills.parse::<u64>().unwrap());
    let expected = content(&undisturbed);
    let mut interrupted = 0;
    for kill in 0..kills {
        let to = format!("--to=file://{}", lake.display());
        let from = format!("--data-dir={}", data_dir.display());
        let mut command = Command::new(PROGRAM);
        let mut child = command.args(["once", &to, &from]).stdout(Stdio::null()).spawn().unwrap();
        // Kill the program when it has put about one object more than the last time.
        let wanted = usize::try_from(kill % 20).unwrap();
        while objects(&lake).len() < wanted && child.try_wait().unwrap().is_none() {}
        child.kill().unwrap();
        interrupted += u64::from(child.wait().unwrap().code().is_none());
        if wanted == 19 {
            std::fs::remove_dir_all(&lake).unwrap();
        }
    }
    assert!(interrupted > 0, "no process was killed before its end");
    assert_eq!(call(&["once"], &data_dir, &lake).status, Some(0));
    assert!(content(&lake) == expected, "{interrupted} kills");
}
