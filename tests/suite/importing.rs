//! Import and export of foreign recordings: `import stream`, opaque sources in every verb,
//! `export`, and the common parts of all imports.

use std::fs::Permissions;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use flatcap_import::{ImportLimits, ImportSource, RunWriter};
use flatcap_os::storage::DataDirectory;
use flatcap_stream::{ChecksumKind, Framer, KindDeframer, SliceReader};
use serde_json::Value;

use crate::rig::{CallResult, Rig, eventually, finish, finish_within, has_segment, number, signal};
use crate::test_disk::TestDisk;

/// Returns payloads of many lengths from 0, seeded: random bytes, numbers and zeros.
fn payloads(count: usize) -> Vec<Vec<u8>> {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let make = |index: usize| match index % 3 {
        0 => (0..index % 500).map(|_| next().to_le_bytes()[2]).collect(),
        1 => (0..=index % 70).flat_map(|n| (n as f64).to_le_bytes()).collect(),
        _ => vec![0; 1 + index % 90],
    };
    (0..count).map(make).collect()
}

fn stream(kind: ChecksumKind, payloads: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for payload in payloads {
        kind.frame_and_write(&mut bytes, payload).unwrap();
    }
    bytes
}

fn gzip(content: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}

fn import(rig: &Rig, args: &[&str]) -> CallResult {
    rig.call(&[&["import", "stream", "--data-dir", "data"], args].concat())
}

fn export(rig: &Rig, args: &[&str]) -> CallResult {
    rig.call(&[&["export", "data", "--to", "stream", "-o", "out"], args].concat())
}

fn assert_done(called: CallResult) -> CallResult {
    assert_eq!(called.status, Some(0), "{called:?}");
    called
}

fn verified(rig: &Rig) -> Value {
    assert_done(rig.call(&["verify", "--strict", "--json", "data"])).json()
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// Returns streams written by flatstream, if they are next to the checkout.
fn foreign_streams() -> Vec<(String, Vec<u8>)> {
    let folder = std::env::var_os("FLATCAP_SHARED_DATA")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/data"), PathBuf::from);
    let Ok(entries) = std::fs::read_dir(folder.join("flatstream")) else {
        println!("skipped: no streams of flatstream in {}", folder.display());
        return Vec::new();
    };
    let mut streams: Vec<_> = entries
        .map(|entry| {
            let path = entry.unwrap().path();
            let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
            let content = std::fs::read(&path).unwrap();
            let is_hex = path.extension().is_some_and(|extension| extension == "hex");
            (name, if is_hex { unhex(std::str::from_utf8(&content).unwrap()) } else { content })
        })
        .collect();
    streams.sort();
    streams
}

fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.chars().filter_map(|c| c.to_digit(16)).map(|digit| digit as u8).collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

// Proves that streams survive import and export byte for byte, with every checksum. Method: seeded
// streams, plain and gzipped, with detected and given checksum, also from standard input.
#[test]
fn streams_make_the_round_trip() {
    for kind in ChecksumKind::ALL {
        let rig = Rig::new();
        let bytes = stream(*kind, &payloads(3000));
        rig.write("a.bin", &bytes);
        rig.write("b.bin.gz", gzip(&bytes));
        rig.write("c", &bytes);
        assert_done(import(&rig, &["a.bin", "b.bin.gz"]));
        assert_done(import(&rig, &["c", "--checksum", kind.name()]));
        let mut child = rig
            .command(&["import", "stream", "-", "--data-dir", "data"])
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(&bytes).unwrap();
        assert_done(finish(child));
        assert_eq!(number(&verified(&rig)["frames"]), 4 * 3000);
        assert_done(export(&rig, &["--checksum", kind.name()]));
        assert_eq!(names(&rig.path("out")), ["a.bin", "b.bin", "c.bin", "stdin.bin"]);
        for name in ["a.bin", "b.bin", "c.bin", "stdin.bin"] {
            assert!(std::fs::read(rig.path("out").join(name)).unwrap() == bytes, "{kind}, {name}");
        }
    }
}

// Proves that streams written by flatstream are imported with the detected checksum and exported
// unchanged. Ambiguous bytes are refused until a checksum is given.
#[test]
fn streams_of_flatstream_itself() {
    let mut streams = foreign_streams();
    for (name, hex) in [
        ("default_small", "03000000616263"),
        ("crc16_small", "03000000d69d616263"),
        ("crc32_small", "03000000c2412435616263"),
        ("xxhash64_small", "0300000050392f89945faf78616263"),
        ("crc32_empty", "0000000000000000"),
    ] {
        streams.push((format!("here_{name}"), unhex(hex)));
    }
    for (name, bytes) in streams {
        let rig = Rig::new();
        rig.write(&name, &bytes);
        let kinds =
            [("crc16", "crc16"), ("crc32", "crc32"), ("xxh", "xxh3"), ("none", "none"), ("default", "none")];
        let kind = kinds.iter().find(|(word, _)| name.contains(word)).unwrap().1;
        if name.ends_with("crc32_empty") {
            let called = import(&rig, &[&name]);
            assert_eq!((called.status, called.out.len()), (Some(1), 0), "{called:?}");
            assert!(called.err.contains("crc32, none") && called.err.contains("--checksum"), "{called:?}");
            assert_done(import(&rig, &[&name, "--checksum", kind]));
        } else {
            assert_done(import(&rig, &[&name]));
        }
        verified(&rig);
        assert_done(export(&rig, &["--checksum", kind]));
        assert!(std::fs::read(rig.path("out").join(format!("{name}.bin"))).unwrap() == bytes, "{name}");
    }
}

// Proves that rows printed as CSV become a recording with the same times and values, and that the
// report says what was recognized.
#[test]
fn printed_rows_are_imported_again() {
    let rig = Rig::new();
    rig.record_samples(&["--source", "cpu@10ms", "--source", "load@10ms"], 12);
    let fields = "cpu.total.user,cpu.context_switches,load.load1";
    let printed = assert_done(rig.call(&["dump", "--fields", fields, "--format", "csv"])).text();
    rig.write("rows.csv", &printed);
    let args = ["import", "csv", "rows.csv", "--data-dir", "data", "--counter", "cpu.total.user", "--json"];
    let report = assert_done(rig.call(&args)).json();
    let recognized = report["recognized"][0].as_str().unwrap();
    assert!(recognized.contains("rows.csv: time is column 1 (ISO 8601)"), "{report}");
    assert_eq!(number(&report["sources"][0]["recorded"]), printed.lines().count() as u64 - 1);
    verified(&rig);
    let again = "rows.cpu_total_user,rows.cpu_context_switches,rows.load_load1";
    let again = assert_done(rig.call(&["dump", "data", "--fields", again, "--format", "csv"])).text();
    assert!(again.lines().skip(1).eq(printed.lines().skip(1)), "{printed}\n{again}");
    let fields = assert_done(rig.call(&["fields", "data", "--json"])).json();
    let kinds: Vec<_> =
        fields.as_array().unwrap().iter().map(|field| field["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["gauge", "counter", "gauge", "gauge"], "wall_ns is a field, too");

    rig.write("bad.csv", "time,a\n1700000000,1\nsoon,2\n");
    let called = rig.call(&["import", "csv", "bad.csv", "--data-dir", "other"]);
    assert_eq!(called.status, Some(3), "{called:?}");
    assert!(called.err.contains("bad.csv at offset 20: line 3: \"soon\" is no time"), "{called:?}");
}

// Proves that every verb handles payloads without a schema. Method: an opaque source and a
// described one in one recording, through each verb and format.
#[test]
fn opaque_sources_in_every_verb() {
    let rig = Rig::new();
    let event = std::fs::read("tests/data/schema/event.bin").unwrap();
    rig.write("bytes.bin", stream(ChecksumKind::Crc32, &[vec![0xAB, 0xCD], Vec::new(), vec![0xEE; 10]]));
    rig.write("events.bin", stream(ChecksumKind::Crc32, &[event.clone(), event]));
    std::fs::copy("tests/data/schema/event.bfbs", rig.path("event.bfbs")).unwrap();
    assert_done(import(&rig, &["bytes.bin"]));

    let info = assert_done(rig.call(&["info", "--json", "data"])).json();
    assert_eq!((&info["sources"][0]["root"], number(&info["sources"][0]["recorded"])), (&Value::from(""), 3));
    verified(&rig);
    let rows = assert_done(rig.call(&["dump", "data", "--format", "jsonl"])).lines();
    let strings: Vec<_> =
        rows.iter().map(|row| row["data"]["payload"].as_str().unwrap().to_owned()).collect();
    let last = r"\xee".repeat(10);
    assert_eq!(strings, [r"\xab\xcd", "", &last], "not UTF-8");
    assert!(rows.iter().all(|row| row["source"] == "bytes" && row["wall_ns"] == 0));
    let rates = assert_done(rig.call(&["dump", "data", "--format", "jsonl", "--rate"])).lines();
    assert_eq!(rates, rows, "bytes have no rate");
    let csv = assert_done(rig.call(&["dump", "data", "--format", "csv"])).text();
    let expected = format!(
        "source,seq,mono_ns,wall_ns,time,duration_ns,flags,payload\n\
         bytes,0,0,0,1970-01-01T00:00:00.000000000Z,0,0,\\xab\\xcd\n\
         bytes,1,0,0,1970-01-01T00:00:00.000000000Z,0,0,\n\
         bytes,2,0,0,1970-01-01T00:00:00.000000000Z,0,0,{last}\n"
    );
    assert_eq!(csv, expected);
    let table = assert_done(rig.call(&["dump", "data"])).text();
    let cells: Vec<_> = table.lines().map(|line| line.split_whitespace().last().unwrap()).collect();
    assert_eq!((cells[0], cells[1], cells[3]), ("payload", r"\xab\xcd", &*last), "{table}");
    let called = rig.call(&["dump", "data", "--fields", "id"]);
    assert_eq!((called.status, called.out.len()), (Some(2), 0), "{called:?}");
    assert!(called.err.contains("id"), "{called:?}");
    let rows = ["--fields", "bytes.payload", "--format", "jsonl"];
    let rows = assert_done(rig.call(&[&["dump", "data"][..], &rows].concat())).lines();
    let texts: Vec<_> = rows.iter().map(|row| row["bytes.payload"].as_str().unwrap().to_owned()).collect();
    assert_eq!(texts, strings);

    assert_done(import(&rig, &["events.bin", "--schema", "event.bfbs"]));
    let rows = assert_done(rig.call(&["dump", "data", "--format", "jsonl"])).lines();
    assert_eq!(rows.len(), 5);
    assert!(rows[3]["data"]["payload"].is_null() && rows[3]["source"] == "events", "{}", rows[3]);
    let digest = assert_done(rig.call(&["dump", "data"])).text();
    assert!(digest.contains("bytes (text)") && digest.contains("events (constant)"), "{digest}");

    let replayed = assert_done(rig.call(&["replay", "data", "--speed", "max"])).out;
    rig.write("replayed.bin", replayed);
    let again = assert_done(rig.call(&["dump", "replayed.bin", "--format", "jsonl"])).lines();
    assert_eq!(again, rows);
    let verdict = rig.call(&["verify", "--json", "replayed.bin"]).json();
    let damage: Vec<_> = verdict["damage"].as_array().unwrap().iter().map(|damage| &damage["what"]).collect();
    assert!(damage.len() == 1 && damage[0].as_str().unwrap().starts_with("not sealed"), "{verdict}");
    let recovered = assert_done(rig.call(&["recover", "data", "--json"])).json();
    assert_eq!(recovered["damage"], Value::Array(vec![]));
}

// Proves that recover seals a killed import with its opaque frames. Method: kill -9 while standard
// input continues.
#[test]
fn a_killed_import_is_recovered() {
    let rig = Rig::new();
    let bytes = stream(ChecksumKind::Xxh3, &payloads(20_000));
    let mut child =
        rig.command(&["import", "stream", "-", "--data-dir", "data"]).stdin(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(&bytes).unwrap();
    eventually("a segment", || has_segment(&rig.path("data"), 1 << 20));
    child.kill().unwrap();
    child.wait().unwrap();
    drop(input);
    assert_done(rig.call(&["recover", "data"]));
    let frames = number(&verified(&rig)["frames"]);
    assert!(frames > 1000, "{frames}");
    assert_done(export(&rig, &[]));
    let exported = std::fs::read(rig.path("out/stdin.bin")).unwrap();
    assert!(bytes.starts_with(&exported) && !exported.is_empty());
}

// Proves that a signal ends an import cleanly: it seals the imported frames, and the status shows
// that it is incomplete. Method: SIGINT while standard input continues.
#[test]
fn a_signal_seals_what_was_imported() {
    let rig = Rig::new();
    let bytes = stream(ChecksumKind::Xxh3, &payloads(5000));
    let mut child = rig
        .command(&["import", "stream", "-", "--data-dir", "data", "--json"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let feeder = std::thread::spawn(move || while input.write_all(&bytes).is_ok() {});
    eventually("a segment", || has_segment(&rig.path("data"), 1 << 20));
    signal(&child, "INT");
    let called = finish(child);
    feeder.join().unwrap();
    assert_eq!(called.status, Some(1), "{called:?}");
    assert!(called.err.contains("stopped by a signal"), "{called:?}");
    let report = called.json();
    assert_eq!(report["stopped"], true);
    assert_eq!(verified(&rig)["frames"], report["sources"][0]["recorded"]);
    assert!(names(&rig.path("data")).iter().all(|name| !name.contains("active")));
}

// Proves that one signal ends an import that waits for a pipe, and seals what it read. Method: a
// FIFO without a writer, and one whose writer is silent after some frames.
#[test]
fn a_signal_ends_the_wait_for_a_pipe() {
    let rig = Rig::new();
    let pipe = rig.path("pipe");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    let bytes = stream(ChecksumKind::Crc32, &payloads(100));
    let start =
        || rig.start(&["import", "stream", "pipe", "--data-dir", "data", "--checksum", "crc32", "--json"]);
    for written in [None, Some(&bytes)] {
        let child = start();
        let writer = written.map(|bytes| {
            let mut writer = std::fs::OpenOptions::new().write(true).open(&pipe).unwrap();
            writer.write_all(bytes).unwrap();
            eventually("all is read", || rustix::io::ioctl_fionread(&writer).unwrap() == 0);
            writer
        });
        eventually("signals are handled", || {
            let tasks = std::fs::read_dir(format!("/proc/{}/task", child.id())).unwrap().flatten();
            let name = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("comm"));
            tasks.filter_map(|task| name(task).ok()).any(|name| name.trim() == "signals")
        });
        signal(&child, "TERM");
        let called = finish_within(child, crate::rig::WATCHDOG);
        drop(writer);
        assert_eq!(called.status, Some(1), "{called:?}");
        assert!(called.err.contains("stopped by a signal"), "{called:?}");
        let report = called.json();
        let frames = if written.is_some() { 100 } else { 0 };
        assert_eq!((&report["stopped"], number(&report["sources"][0]["recorded"])), (&true.into(), frames));
        assert!(report["flaws"].as_array().unwrap().is_empty(), "{report}");
    }
    assert_eq!(number(&verified(&rig)["frames"]), 100);
}

// Proves that damage costs only the frames that it hits, is reported with offset and count, and
// sets status 3. Method: a changed frame, a frame above --frame-max, a cut end; gzip that is cut
// too.
#[test]
fn intact_frames_of_damaged_streams_are_imported() {
    let rig = Rig::new();
    let payloads =
        [b"first".to_vec(), b"second".to_vec(), vec![5; 100_000], b"fourth".to_vec(), b"fifth".to_vec()];
    let mut bytes = stream(ChecksumKind::Xxh3, &payloads);
    bytes[12 + 5 + 12] ^= 1;
    bytes.truncate(bytes.len() - 2);
    let long_at = 12 + 5 + 12 + 6;
    let end_at = long_at + 12 + 100_000 + 12 + 6;
    rig.write("a.bin", &bytes);
    let called = import(&rig, &["a.bin", "--frame-max", "64KiB", "--json"]);
    assert_eq!(called.status, Some(3), "{called:?}");
    let report = called.json();
    let flaws: Vec<_> = report["flaws"]
        .as_array()
        .unwrap()
        .iter()
        .map(|flaw| (number(&flaw["offset"]), number(&flaw["count"])))
        .collect();
    assert_eq!(flaws, [(17, 1), (long_at, 1), (end_at, 1)], "{report}");
    assert!(
        called.err.contains("a.bin at offset 17: ") && called.err.contains("--frame-max"),
        "{}",
        called.err
    );
    assert_eq!((number(&report["sources"][0]["recorded"]), number(&report["sources"][0]["lost"])), (2, 3));
    let verdict = rig.call(&["verify", "--json", "data"]);
    assert_eq!(verdict.status, Some(0), "{verdict:?}");
    assert_eq!((number(&verdict.json()["lost"]), number(&verdict.json()["unexplained"])), (3, 0));
    let seqs: Vec<_> = rig
        .call(&["dump", "data", "--format", "jsonl"])
        .lines()
        .iter()
        .map(|row| number(&row["seq"]))
        .collect();
    assert_eq!(seqs, [0, 3]);
    // Lost frames of a recording are not damage.
    assert_done(export(&rig, &[]));

    let packed = gzip(&bytes);
    rig.write("b.gz", &packed[..packed.len() - 9]);
    let called = import(&rig, &["b.gz"]);
    assert_eq!(called.status, Some(3), "{called:?}");
    assert!(called.err.contains("gzip"), "{called:?}");
}

// Proves that an empty file is not an error and creates no recording, alone and together with
// another file.
#[test]
fn an_empty_file_has_nothing_to_import() {
    let rig = Rig::new();
    rig.write("empty.bin", "");
    let called = assert_done(import(&rig, &["empty.bin"]));
    assert!(called.text().contains("empty: 0 frames") && called.text().contains("0 segment"), "{called:?}");
    assert_eq!(names(&rig.path("data")), ["flatcap.lock"]);
    rig.write("a.bin", stream(ChecksumKind::Xxh3, &[b"abc".to_vec()]));
    assert_done(import(&rig, &["empty.bin", "a.bin"]));
    assert_done(export(&rig, &[]));
    assert_eq!(std::fs::read(rig.path("out/empty.bin")).unwrap(), b"");
}

// Proves that every mistake is refused with its place and a remedy before anything is written.
#[test]
fn mistakes_are_reported_before_anything_is_written() {
    let rig = Rig::new();
    rig.write("a.bin", stream(ChecksumKind::Xxh3, &[b"abc".to_vec()]));
    rig.write("text.csv", "time,price\n1,2\n");
    rig.write("not.bfbs", "table A {}");
    std::fs::copy("tests/data/schema/event.bfbs", rig.path("event.bfbs")).unwrap();
    std::fs::create_dir(rig.path("folder")).unwrap();
    rig.write("file", "");
    for (args, status, said) in [
        (&["missing.bin"][..], 1, "missing.bin"),
        (&["a.bin", "missing.bin"], 1, "missing.bin"),
        (&["folder"], 1, "folder"),
        (&["text.csv"], 1, "--checksum"),
        (&["a.bin", "--checksum", "md5"], 2, "xxh3"),
        (&["a.bin", "--frame-max", "1KiB"], 2, "64KiB"),
        (&["a.bin", "--frame-max", "1GiB"], 2, "64KiB"),
        (&["a.bin", "--root", "Event"], 2, "--schema"),
        (&["a.bin", "--schema", "missing.bfbs"], 1, "missing.bfbs"),
        (&["a.bin", "--schema", "not.bfbs"], 2, "--schema not.bfbs: "),
        (&["a.bin", "--schema", "event.bfbs", "--root", "Evnt"], 2, "no such table in event.bfbs; it has "),
        (&["a.bin", "--checksum", "crc32"], 1, "try another --checksum"),
        (&["a.bin", "--name", "x", "--name", "y"], 2, "--name"),
        (&["a.bin", "--name", "../x"], 2, "--name"),
        (&[], 2, "FILE"),
    ] {
        let called = import(&rig, args);
        let is_silent = called.out.is_empty() || called.text().contains("0 segment(s) written");
        assert!(called.status == Some(status) && is_silent, "{args:?}: {called:?}");
        assert!(called.err.contains(said), "{args:?}: {called:?}");
        let data = rig.path("data");
        assert!(!data.exists() || names(&data) == ["flatcap.lock"], "{args:?}");
    }
    let called = rig.call(&["import", "stream", "a.bin"]);
    assert!(called.status == Some(2) && called.err.contains("--data-dir"), "{called:?}");
    let called = rig.call(&["import", "stream", "a.bin", "--data-dir", "file"]);
    assert!(called.status == Some(1) && called.err.contains("file"), "{called:?}");
}

// Proves that an import never writes into the directory of a running recorder, and that import and
// export respect permissions. Method: a recorder in its directory; another account, closed paths.
#[test]
fn directories_of_others_are_left_alone() {
    let rig = Rig::new();
    rig.write("a.bin", stream(ChecksumKind::Xxh3, &[b"abc".to_vec()]));
    let recorder = rig.start(&["record", "--source", "synthetic@10ms", "--data-dir", "data"]);
    eventually("a segment", || has_segment(&rig.path("data"), 1));
    let called = import(&rig, &["a.bin"]);
    assert!(called.status == Some(1) && called.err.contains("in use by another recorder"), "{called:?}");
    // The export of a running recording contains the frames written so far.
    eventually("frames", || {
        let exported = export(&rig, &["--force", "--json"]);
        exported.status == Some(0)
            && exported.json()["files"].get(0).is_some_and(|file| number(&file["frames"]) > 0)
    });
    signal(&recorder, "INT");
    finish(recorder);

    if !rustix::process::geteuid().is_root() {
        println!("skipped: needs root for other accounts");
        return;
    }
    let closed = rig.path("closed");
    std::fs::create_dir(&closed).unwrap();
    std::fs::write(closed.join("b.bin"), b"").unwrap();
    std::fs::set_permissions(&closed, Permissions::from_mode(0o700)).unwrap();
    for args in [
        &["import", "stream", "closed/b.bin", "--data-dir", "new"][..],
        &["import", "stream", "a.bin", "--data-dir", "closed"],
        &["export", "data", "--to", "stream", "-o", "closed"],
    ] {
        let called = CallResult::from(rig.command_as(65_533, args).output().unwrap());
        assert_eq!(called.status, Some(1), "{args:?}: {called:?}");
    }
    assert_eq!(names(&closed), ["b.bin"]);
}

// Proves that a full disk ends import and export with an error, that imported frames are sealed or
// can be recovered, and that no partial file has a final name. Method: a small tmpfs.
#[test]
fn a_full_disk_is_reported() {
    let rig = Rig::new();
    let bytes = stream(ChecksumKind::Xxh3, &vec![vec![7; 1000]; 6000]);
    rig.write("a.bin", &bytes);
    let Some(disk) = TestDisk::tmpfs(&rig, 4 << 20) else { return };
    let data = disk.path().join("data");
    let data = data.to_str().unwrap();
    let called = rig.call(&["import", "stream", "a.bin", "--data-dir", data]);
    assert_eq!(called.status, Some(1), "{called:?}");
    assert!(called.err.contains("No space left") && called.err.contains("data directory"), "{called:?}");
    assert_eq!(rig.call(&["recover", data]).status, Some(0));
    let verdict = rig.call(&["verify", "--json", data]);
    assert!(verdict.status == Some(0) && number(&verdict.json()["frames"]) > 1000, "{verdict:?}");

    std::fs::remove_dir_all(data).unwrap();
    assert_done(import(&rig, &["a.bin"]));
    let out = disk.path().join("out");
    let called = rig.call(&["export", "data", "--to", "stream", "-o", out.to_str().unwrap()]);
    assert_eq!((called.status, called.out.len()), (Some(1), 0), "{called:?}");
    assert!(
        called.err.contains("No space left") && called.err.contains("nothing was exported"),
        "{called:?}"
    );
    assert!(names(&out).is_empty(), "{:?}", names(&out));
}

// Proves that an export replaces nothing without --force and contains the selected samples of all
// runs in order. Method: two runs of one source and one of another; --force, --source, an empty
// time range.
#[test]
fn an_export_contains_the_selection() {
    let rig = Rig::new();
    let (one, other) = (payloads(20), payloads(33));
    rig.write("a", stream(ChecksumKind::None, &one));
    rig.write("b", stream(ChecksumKind::Crc16, &other));
    assert_done(import(&rig, &["a", "b"]));
    assert_done(import(&rig, &["b", "--name", "a"]));
    assert_done(export(&rig, &["--source", "a", "--checksum", "none"]));
    assert_eq!(names(&rig.path("out")), ["a.bin"]);
    let both = [one, other].concat();
    assert!(std::fs::read(rig.path("out/a.bin")).unwrap() == stream(ChecksumKind::None, &both));

    let called = export(&rig, &[]);
    assert_eq!((called.status, called.out.len()), (Some(1), 0), "{called:?}");
    assert!(called.err.contains("out/a.bin exists already") && called.err.contains("--force"), "{called:?}");
    assert_eq!(names(&rig.path("out")), ["a.bin"]);
    let report = assert_done(export(&rig, &["--force", "--json"])).json();
    assert_eq!(report["files"].as_array().unwrap().len(), 2);
    let exported = std::fs::read(rig.path("out/a.bin")).unwrap();
    assert_eq!(number(&report["files"][0]["bytes"]), exported.len() as u64);
    let again: Result<Vec<_>, _> =
        SliceReader::new(&exported, KindDeframer::new(ChecksumKind::Xxh3)).collect();
    assert!(again.unwrap() == both);

    for (args, said) in [
        (&["--source", "c"][..], "no such source in these recordings; they have a, b"),
        (&["--since", "@5", "--until", "@4"], "--since"),
        (&["--checksum", "auto"], "xxh3"),
    ] {
        let called = export(&rig, args);
        assert!(called.status == Some(2) && called.err.contains(said), "{called:?}");
    }
    let called = rig.call(&["export", "data", "--to", "xml", "-o", "out"]);
    assert!(called.status == Some(2) && called.err.contains("stream"), "{called:?}");
    let later = rig.call(&["export", "data", "--to", "stream", "-o", "later", "--since", "@1000"]);
    assert_eq!(later.status, Some(1), "{later:?}");
    assert!(later.err.contains("no samples in the selected time; the recording spans"), "{later:?}");
    assert!(
        names(&rig.path("later"))
            .iter()
            .all(|name| std::fs::metadata(rig.path("later").join(name)).unwrap().len() == 0),
        "{later:?}"
    );
}

// Proves that damage in a recording sets status 3 of its export and costs only the frame it hits.
#[test]
fn intact_frames_of_a_damaged_recording_are_exported() {
    let rig = Rig::new();
    let payloads = payloads(400);
    rig.write("a", stream(ChecksumKind::Xxh3, &payloads));
    assert_done(import(&rig, &["a"]));
    let segment = rig
        .path("data")
        .join(names(&rig.path("data")).into_iter().find(|name| name != "flatcap.lock").unwrap());
    let mut bytes = std::fs::read(&segment).unwrap();
    // Bytes that occur only once: numbers and zeros are in many payloads.
    let long = (0..payloads.len()).position(|index| index % 3 == 0 && payloads[index].len() > 200).unwrap();
    let at = bytes.windows(100).position(|window| *window == payloads[long][..100]).unwrap();
    bytes[at + 50] ^= 1;
    std::fs::write(&segment, bytes).unwrap();
    let called = export(&rig, &[]);
    assert_eq!(called.status, Some(3), "{called:?}");
    assert!(called.err.contains("damage at offset"), "{called:?}");
    let exported = std::fs::read(rig.path("out/a.bin")).unwrap();
    let mut left = payloads;
    left.remove(long);
    assert!(exported == stream(ChecksumKind::Xxh3, &left));
}

// Proves that no source name leads an export out of its directory, or one file over another.
#[test]
fn hostile_names_stay_in_the_directory() {
    let rig = Rig::new();
    let storage = DataDirectory::open(&rig.path("data")).unwrap();
    let plan = ImportLimits { segment_bytes: 1 << 20, frame_max: 1 << 16 };
    let mut recording = RunWriter::begin(&storage, plan).unwrap();
    for name in ["../escaped", ".._escaped", "_._escaped", "", "a/b", "a_b", "/etc/passwd", "x\n\u{1b}[31m"] {
        let source =
            ImportSource { name: name.to_owned(), labels: vec![], root: String::new(), schema: vec![] };
        let source = recording.add_source(source).unwrap();
        recording.append(source, 0, name.len(), |payload| payload.copy_from_slice(name.as_bytes())).unwrap();
    }
    recording.finish().unwrap();
    drop(storage);
    assert_done(export(&rig, &["--checksum", "none"]));
    assert_eq!(
        names(&rig.path("out")),
        [
            "_._escaped-2.bin",
            "_._escaped-3.bin",
            "_._escaped.bin",
            "_.bin",
            "_etc_passwd.bin",
            "a_b-2.bin",
            "a_b.bin",
            "x___31m.bin"
        ]
    );
    assert_eq!(std::fs::read(rig.path("out/a_b-2.bin")).unwrap(), b"\x03\0\0\0a_b");
    assert!(!rig.path("escaped.bin").exists());
}
