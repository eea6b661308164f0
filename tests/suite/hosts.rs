//! Captured hosts: file trees in tests/hosts, and the samples that the sources read from them.
//!
//! `FLATCAP_HOSTS=write cargo test --features packaged --test suite hosts` writes the expected
//! samples again; review the difference.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::rig::Rig;

/// The sources that a captured host has.
const HOSTS: [(&str, &[&str]); 1] = [(
    "kvm-2-cores",
    &[
        "cpu",
        "memory",
        "vmstat",
        "load",
        "disk",
        "network",
        "pressure",
        "softirqs",
        "interrupts",
        "numa",
        "slab",
        "buddy",
        "hugepages",
        "sockets",
        "snmp",
        "netstat",
        "softnet",
    ],
)];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/hosts")
}

/// Returns the first sample of each source, in the order of the list.
fn samples(host: &str, sources: &[&str]) -> Vec<Value> {
    let rig = Rig::new();
    let root = folder().join(host);
    // Unused loop devices, which are left out by default, are read, too.
    let text =
        format!("[recorder]\nhost_root = {:?}\n[source.disk]\ninclude = [\"*\"]\n", root.to_str().unwrap());
    let config = rig.write("host.toml", text);
    let mut arguments = vec!["--quiet", "--config", config.to_str().unwrap()];
    arguments.extend(sources.iter().flat_map(|source| ["--source", source]));
    rig.record_samples(&arguments, 1);
    let rows = rig.call(&["dump", "flatcap-data", "--format", "jsonl"]).lines();
    let first = |source: &&str| rows.iter().find(|row| row["source"] == **source).unwrap().clone();
    sources.iter().map(first).collect()
}

/// Collects every integer of a value.
fn numbers(value: &Value, found: &mut Vec<u64>) {
    match value {
        Value::Number(number) => found.extend(number.as_u64()),
        Value::Array(items) => items.iter().for_each(|item| numbers(item, found)),
        Value::Object(fields) => fields.values().for_each(|field| numbers(field, found)),
        _ => {}
    }
}

/// Returns every run of digits of a file.
fn digits(host: &str, file: &str) -> BTreeSet<u64> {
    let text = std::fs::read_to_string(folder().join(host).join(file)).unwrap();
    text.split(|byte: char| !byte.is_ascii_digit()).filter_map(|run| run.parse().ok()).collect()
}

// Proves that a captured host is read completely and as before. Method: one sample of each source
// against the stored ones.
#[test]
fn captured_hosts_are_read_as_before() {
    for (host, sources) in HOSTS {
        let mut made = String::new();
        for sample in samples(host, sources) {
            assert_eq!(sample["flags"], 0, "{host}: {sample}");
            writeln!(made, "{{\"source\":{},\"data\":{}}}", sample["source"], sample["data"]).unwrap();
        }
        let path = folder().join(format!("{host}.jsonl"));
        if std::env::var_os("FLATCAP_HOSTS").is_some_and(|value| value == "write") {
            std::fs::write(&path, &made).unwrap();
        }
        let kept = std::fs::read_to_string(&path).unwrap();
        let other = kept.lines().zip(made.lines()).find(|(kept, made)| kept != made);
        assert!(kept == made, "{host}: {other:#?}");
    }
}

// Proves that no number is invented: each number of a sample occurs in the files that it was read
// from.
#[test]
fn every_number_is_in_its_file() {
    for (source, file) in [
        ("cpu", "proc/stat"),
        ("memory", "proc/meminfo"),
        ("vmstat", "proc/vmstat"),
        ("load", "proc/loadavg"),
        ("disk", "proc/diskstats"),
        ("network", "proc/1/net/dev"),
        ("softirqs", "proc/softirqs"),
        ("buddy", "proc/buddyinfo"),
        ("slab", "proc/slabinfo"),
        ("sockets", "proc/1/net/sockstat"),
        ("netstat", "proc/1/net/netstat"),
    ] {
        let sample = samples("kvm-2-cores", &[source]).remove(0);
        let mut found = Vec::new();
        numbers(&sample["data"], &mut found);
        let mut known = digits("kvm-2-cores", file);
        if source == "sockets" {
            known.extend(digits("kvm-2-cores", "proc/1/net/sockstat6"));
        }
        assert!(found.len() > 2, "{sample}");
        let made_up: Vec<&u64> = found.iter().filter(|number| !known.contains(number)).collect();
        assert!(made_up.is_empty(), "{source}: {made_up:?} of {sample}");
    }
}
