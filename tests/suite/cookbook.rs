//! The commands of docs/COOKBOOK.md run as they are.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::rig::Rig;

/// Status of a program whose reader closed the pipe.
const CLOSED_PIPE: i32 = 141;

/// Returns what a line needs that this machine does not have.
fn absent_tool(line: &str) -> Option<String> {
    let succeeds = |script: &str| {
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().unwrap().success()
    };
    let tools = line.split(" | ").filter_map(|part| part.split_whitespace().next());
    let absent =
        tools.filter(|tool| *tool != "flatcap").find(|tool| !succeeds(&format!("command -v {tool}")));
    let module = line.split("import ").nth(1).and_then(|rest| rest.split(';').next());
    let module = module.filter(|module| !succeeds(&format!("python3 -c 'import {module}'")));
    absent.or(module).map(str::to_owned)
}

// Proves that every command of the cookbook succeeds and prints something, in its order, in a
// directory with a recording of the default sources, at shorter periods. Lines that need a tool
// that is not there are skipped.
#[test]
fn every_line_runs() {
    let text =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/COOKBOOK.md")).unwrap();
    let rig = Rig::new();
    let periods = [
        "cpu@10ms,+memory@50ms,+network@10ms,+disk@50ms",
        "pressure@50ms,+process@100ms,+vmstat@50ms,+load@100ms,+self@100ms",
    ];
    let sources = periods.map(|sources| format!("+{sources}"));
    let args: Vec<&str> = sources.iter().flat_map(|source| ["--source", source.as_str()]).collect();
    rig.record_samples(&args, 12);
    let program = Path::new(env!("CARGO_BIN_EXE_flatcap")).parent().unwrap();
    let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap());
    let (mut is_shell, mut ran) = (false, 0);
    for line in text.lines() {
        if line.starts_with("```") {
            is_shell = line == "```sh";
            continue;
        }
        if !is_shell {
            continue;
        }
        // A build of the recorder alone lacks the program that exports columns.
        let is_exported =
            ["--to parquet", "--to arrow", "--to perfetto", "--to openmetrics", "exported/", "cpu.arrow"];
        if is_exported.iter().any(|word| line.contains(word)) && !program.join("flatcap-convert").exists() {
            println!("skipped, flatcap-convert is not built: {line}");
            continue;
        }
        // Events of the scheduler need a capability, and not each kernel has them.
        if line.contains("tasks.") {
            println!("skipped, no events of the scheduler are recorded: {line}");
            continue;
        }
        if let Some(tool) = absent_tool(line) {
            println!("skipped, {tool} is not installed: {line}");
            continue;
        }
        let mut shell = Command::new("bash");
        shell.args(["-o", "pipefail", "-c", line]).current_dir(rig.folders()[0]).env("PATH", &path);
        let done = shell.stdin(Stdio::null()).output().unwrap();
        let says = String::from_utf8_lossy(&done.stderr);
        assert!(matches!(done.status.code(), Some(0 | CLOSED_PIPE)), "{line}: {:?}: {says}", done.status);
        let has_output = !done.stdout.is_empty() || line.contains(" > ");
        // Exits come from the kernel's connector, which needs rights that a test may lack.
        assert!(has_output || line.contains("exits"), "{line}: no output: {says}");
        ran += 1;
    }
    assert!(ran >= 16, "{ran} lines");
}
