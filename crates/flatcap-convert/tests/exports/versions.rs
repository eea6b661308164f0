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
            "flatcap: flatcap is version 0.0.9 and flatcap-convert version {own}; install both from one package\n"
        );
        assert_eq!(error, expected, "{verb}");
        let (status, out, error) = call(&[&format!("--caller={own}"), verb, "--help"]);
        assert_eq!((status, error.as_str()), (Some(0), ""), "{verb}");
        assert!(out.contains("Usage:"), "{verb}: {out}");
    }
}
