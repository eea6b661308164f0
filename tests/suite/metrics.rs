//! Metrics as others see them: the parsers of Prometheus, the document, the alert rules and the
//! dashboard.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::control::{http_request, start};
use crate::rig::{Rig, eventually, finish, signal};

/// Parses a text with `prometheus_client`, the official parser, and prints one line per family.
const PARSER: &str = "import sys\n\
    from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse\n\
    for family in parse(sys.stdin.read()): print(family.name, family.type, family.unit or '-', len(family.samples))";

/// Returns the metrics of a recorder in both formats after its first second.
fn texts() -> (String, String) {
    let rig = Rig::new();
    let child = start(&rig, &["--source", "cpu@10ms", "--source", "synthetic@1ms"]);
    let body = |accept: &str| {
        let answer = http_request(&rig.socket(), "GET /metrics", accept, "");
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.to_owned(), body.to_owned())
    };
    let has_latencies =
        || body("").1.contains("flatcap_source_lateness_seconds_count{source=\"synthetic\"} 0");
    eventually("latencies", || !has_latencies());
    let (head, newer) = body("");
    assert!(
        head.contains("content-type: application/openmetrics-text; version=1.0.0; charset=utf-8"),
        "{head}"
    );
    let (head, older) = body("Accept: text/plain\r\n");
    assert!(head.contains("content-type: text/plain; version=0.0.4; charset=utf-8"), "{head}");
    signal(&child, "TERM");
    assert_eq!(finish(child).status, Some(0));
    (newer, older)
}

/// Returns success and output of a program with a text on its standard input; none, with one line
/// of notice, if it is not installed.
fn run_parser(program: &str, args: &[&str], text: &str) -> Option<(bool, String)> {
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let Ok(mut judge) = command.spawn() else {
        println!("skipped: {program} is not here");
        return None;
    };
    let mut input = judge.stdin.take().unwrap();
    // A program may stop reading early.
    let _unread = input.write_all(text.as_bytes());
    drop(input);
    let output = judge.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    Some((output.status.success(), said))
}

fn read(path: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

/// Returns names and types of all metrics, as in their lines.
fn metrics() -> BTreeMap<String, String> {
    let types = texts().1;
    let types = types
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE "))
        .map(|line| line.split_once(' ').unwrap());
    types.map(|(name, kind)| (name.to_owned(), kind.to_owned())).collect()
}

/// Returns the names of metrics in a text, without the suffixes of histograms.
fn named_metrics(text: &str, metrics: &BTreeMap<String, String>) -> BTreeSet<String> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    let ours = words.filter(|word| word.starts_with("flatcap_") || word.starts_with("process_"));
    ours.map(|word| {
        let family = ["_bucket", "_sum", "_count"].iter().find_map(|end| word.strip_suffix(end));
        let histogram = family.filter(|family| metrics.get(*family).is_some_and(|kind| kind == "histogram"));
        histogram.unwrap_or(word).to_owned()
    })
    .collect()
}

// Proves that Prometheus can read both formats. Method: its official parser of OpenMetrics and
// promtool, if installed.
#[test]
fn prometheus_parsers_accept_the_metrics() {
    let (newer, older) = texts();
    if let Some((is_content, said)) = run_parser("promtool", &["check", "metrics"], &older) {
        assert!(is_content && said.trim().is_empty(), "{said}");
    }
    // The host's own Python first, which has its packages.
    for python in ["/usr/bin/python3", "python3"] {
        let Some((is_content, said)) = run_parser(python, &["-c", PARSER], &newer) else { continue };
        if said.contains("No module named 'prometheus_client'") {
            println!("skipped: {python} has no prometheus_client");
        } else {
            assert!(is_content, "{said}");
            let families = newer.lines().filter(|line| line.starts_with("# TYPE ")).count();
            assert_eq!(said.lines().count(), families, "{said}");
            assert!(said.contains("flatcap_source_lateness_seconds histogram seconds 50"), "{said}");
            let broken = newer.replace("# EOF\n", "");
            assert!(!run_parser(python, &["-c", PARSER], &broken).unwrap().0, "it judges nothing");
        }
    }
}

const DOCUMENT: &str = "docs/METRICS.md";
/// The command that writes the document again.
const WRITE: &str = "FLATCAP_METRICS=write cargo test --features packaged --test suite metrics";
const HEAD: &str = "# Metrics\n\n\
    The metrics of `GET /metrics`, as the recorder describes them. Generated by\n\
    `FLATCAP_METRICS=write cargo test --features packaged --test suite metrics`; a test fails if this\n\
    file is out of date. [OPERATIONS.md](OPERATIONS.md#metrics) says how to scrape them, and\n\
    which ones to watch.\n\n\
    | metric | type | meaning |\n|---|---|---|\n";

// Proves that the list of metrics is complete and up to date. Method: a table of names, types and
// descriptions in the answer of a recorder, compared with the document.
#[test]
fn every_metric_is_in_the_document() {
    let text = texts().1;
    let mut document = HEAD.to_owned();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let Some((name, help)) = line.strip_prefix("# HELP ").and_then(|line| line.split_once(' ')) else {
            continue;
        };
        let kind = lines.peek().and_then(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
        let (of, kind) = kind.unwrap_or_else(|| panic!("{name} has no type"));
        assert_eq!(of, name);
        // The older format has no info type.
        let kind = if name.ends_with("_info") { "info" } else { kind };
        let help = help.replace('|', "\\|");
        document.extend(["| `", name, "` | ", kind, " | ", &help, " |\n"]);
    }
    let rows = document.lines().filter(|line| line.starts_with("| `")).count();
    assert_eq!(rows, text.matches("\n# TYPE ").count() + usize::from(text.starts_with("# TYPE ")));
    if std::env::var("FLATCAP_METRICS").as_deref() == Ok("write") {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(DOCUMENT);
        std::fs::write(path, &document).unwrap();
    }
    assert!(read(DOCUMENT) == document, "{DOCUMENT} is out of date: {WRITE}");
}

// Proves that rules and dashboard name existing metrics only, and that each rule's runbook exists.
// Method: their words against the answer of a recorder, their links against the document's
// headings.
#[test]
fn rules_and_dashboard_name_what_is_there() {
    let metrics = metrics();
    let rules = read("deploy/prometheus/alerts.yaml");
    let mut dashboard: Value = serde_json::from_str(&read("deploy/grafana/flatcap.json")).unwrap();
    // Those of the host ask a recording; a test of the page asks them.
    let panels = dashboard["panels"].as_array_mut().unwrap();
    panels.retain(|panel| panel["datasource"]["uid"] != "${recording}");
    let dashboard = dashboard.to_string();
    for (what, text, least) in [("rules", &rules, 12), ("dashboard", &dashboard, 25)] {
        let named = named_metrics(text, &metrics);
        let missing: Vec<&String> = named.iter().filter(|name| !metrics.contains_key(*name)).collect();
        assert!(missing.is_empty() && named.len() >= least, "{what}: {missing:?} of {named:?}");
    }
    let document = read("docs/OPERATIONS.md");
    let anchors: BTreeSet<String> = document
        .lines()
        .filter_map(|line| line.strip_prefix("### "))
        .map(|heading| format!("docs/OPERATIONS.md#{}", heading.to_lowercase().replace(' ', "-")))
        .collect();
    let runbooks: Vec<&str> =
        rules.lines().filter_map(|line| line.trim().strip_prefix("runbook: ")).collect();
    assert_eq!(runbooks.len(), rules.matches("- alert: ").count());
    for runbook in runbooks {
        assert!(anchors.contains(runbook), "no heading for {runbook}");
    }
    let dashboard: Value = serde_json::from_str(&dashboard).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    assert!(panels.iter().all(|panel| panel["type"] == "row" || panel["targets"][0]["expr"].is_string()));
}

// Proves that the rules are valid and fire as intended. Method: promtool, if installed, with series
// written by hand.
#[test]
fn the_rules_fire_where_they_should() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for args in [
        ["check", "rules", "deploy/prometheus/alerts.yaml"],
        ["test", "rules", "tests/data/prometheus/alerts.test.yaml"],
    ] {
        match Command::new("promtool").args(args).current_dir(root).output() {
            Ok(output) => assert!(
                output.status.success(),
                "{}{}",
                String::from_utf8_lossy(&output.stdout),
                String::from_utf8_lossy(&output.stderr)
            ),
            Err(_) => println!("skipped: promtool is not here"),
        }
    }
}
