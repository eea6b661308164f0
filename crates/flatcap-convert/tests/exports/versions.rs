//! Calls of the program by programs of the same and of another version.

use std::process::Command;

fn call(arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_flatcap-convert")).args(arguments).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

// Proves that each verb refuses a caller of another version before it looks at other arguments,
// that the error has both versions, and that the own version is accepted.
#[test]
fn a_caller_of_another_version_is_refused() {
    let own = env!("CARGO_PKG_VERSION");
    for verb in ["import", "export", "symbolize"] {
        let (status, out, error) = call(&["--caller=0.0.9", verb, "--option-of-another-version"]);
        assert_eq!((status, out.as_str()), (Some(2), ""), "{verb}");
        let expected = format!(
            "flatcap: flatcap is version 0.0.9 and {} version {own}; install both from one package\n",
            env!("CARGO_BIN_EXE_flatcap-convert")
        );
        assert_eq!(error, expected, "{verb}");
        let (status, out, error) = call(&[&format!("--caller={own}"), verb, "--help"]);
        assert_eq!((status, error.as_str()), (Some(0), ""), "{verb}");
        assert!(out.contains("Usage:"), "{verb}: {out}");
    }
}

// Proves that a closed output does not change the outcome of an import. Method: an import of CSV
// with an assumption, whose report nobody reads.
#[test]
fn a_closed_output_keeps_the_outcome() {
    let folder = tempfile::tempdir().unwrap();
    let (file, data) = (folder.path().join("a.csv"), folder.path().join("data"));
    std::fs::write(&file, "time,a\n01/02/2024 10:00:00,1\n01/02/2024 10:00:01,2\n").unwrap();
    let script = "\"$0\" import csv \"$1\" --data-dir \"$2\" 2>&- | true; exit ${PIPESTATUS[0]}";
    let mut shell = Command::new("bash");
    shell.arg("-c").arg(script).arg(env!("CARGO_BIN_EXE_flatcap-convert")).args([&file, &data]);
    assert_eq!(shell.status().unwrap().code(), Some(3));
}
