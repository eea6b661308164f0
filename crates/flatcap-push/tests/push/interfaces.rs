//! Tests with other processes and languages, that is, a C program, its children, and Python.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use super::fake_recorder::{FakeRecorder, SHAPE};
use super::place;

/// The folder of this crate.
fn home() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The shared library that cargo has built with these tests.
fn library() -> PathBuf {
    let beside = std::env::current_exe().unwrap();
    let folder = beside.parent().unwrap();
    let name = |path: &PathBuf| path.file_name().unwrap().to_string_lossy().into_owned();
    let mut found: Vec<PathBuf> = [folder, folder.parent().unwrap()]
        .into_iter()
        .flat_map(|folder| std::fs::read_dir(folder).unwrap())
        .map(|entry| entry.unwrap().path())
        .filter(|path| name(path).starts_with("libflatcap_push") && name(path).ends_with(".so"))
        .collect();
    found.sort_by_key(|path| std::fs::metadata(path).unwrap().modified().unwrap());
    found.pop().expect("the shared library is built with the tests")
}

fn succeeded(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

// Proves that a C program can use every function of the header, and that its child is a separate
// client. Samples of both arrive.
#[test]
fn a_c_program_pushes_and_forks() {
    let (folder, socket) = place();
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    if cfg!(not(target_arch = "x86_64")) || Command::new(&compiler).arg("--version").output().is_err() {
        eprintln!("skipped: no C compiler {compiler} for this machine");
        return;
    }
    let (program, library) = (folder.path().join("program"), library());
    let compiled = Command::new(&compiler)
        .args(["-std=c99", "-Wall", "-Wextra", "-Werror", "-o"])
        .arg(&program)
        .arg(home().join("tests/c/program.c"))
        .arg(format!("-I{}", home().join("include").display()))
        .arg(&library)
        .output()
        .unwrap();
    succeeded(&compiled);
    let run = || {
        let folder = library.parent().unwrap();
        Command::new(&program).arg(&socket).env("LD_LIBRARY_PATH", folder).output().unwrap()
    };
    assert_eq!(succeeded(&run()).trim(), "no recorder: 3 dropped");
    let recorder = FakeRecorder::start(&socket, SHAPE);
    assert_eq!(succeeded(&run()).trim(), "pushed by parent and child");
    recorder.wait_until(|seen| seen.begun.len() == 3);
    let seen = recorder.seen.lock().unwrap();
    let mut payloads: Vec<&[u8]> = seen.samples.iter().map(|sample| &sample.payload[..]).collect();
    payloads.sort_unstable();
    assert_eq!(payloads.remove(0)[16..], 12.5_f64.to_le_bytes());
    assert_eq!(payloads, [&b"built"[..], b"child", b"many", b"many 2", b"parent"]);
    assert_eq!((seen.missing, seen.connections, seen.triggers.as_slice()), (0, 2, &["fire".to_owned()][..]));
}

// Proves that the Python module pushes samples one by one, many samples in one call, and log
// records as a handler.
#[test]
fn a_python_program_pushes() {
    let (_folder, socket) = place();
    if cfg!(not(target_arch = "x86_64")) || Command::new("python3").arg("--version").output().is_err() {
        eprintln!("skipped: no python3 for this machine");
        return;
    }
    let recorder = FakeRecorder::start(&socket, SHAPE);
    let run = Command::new("python3")
        .arg(home().join("tests/python/program.py"))
        .arg(&socket)
        .env("PYTHONPATH", home().join("python"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("FLATCAP_PUSH_LIBRARY", library())
        .output()
        .unwrap();
    assert_eq!(succeeded(&run).trim(), "pushed");
    recorder.wait_until(|seen| seen.begun.len() == 3);
    let seen = recorder.seen.lock().unwrap();
    let payloads: Vec<&[u8]> = seen.samples.iter().map(|sample| &sample.payload[..]).collect();
    assert_eq!(payloads[..4], [&b"one"[..], b"two", b"", b"three"]);
    assert_eq!(payloads[4][16..], 12.5_f64.to_le_bytes());
    let record = String::from_utf8_lossy(payloads[5]);
    assert!(
        record.contains("\"message\":\"order 4711 is slow\"") && record.contains("\"level\":\"WARNING\""),
        "{record}"
    );
    assert_eq!((payloads.len(), seen.missing), (6, 0));
}
