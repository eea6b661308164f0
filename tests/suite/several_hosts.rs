//! Recordings of several hosts: who recorded what is said, and can be selected.

use std::collections::BTreeSet;

use flatcap_stream::ChecksumKind;
use serde_json::json;

use crate::crafted::{SegmentBuilder, fixture, header, source};
use crate::rig::{Rig, number};

/// Returns a segment of a host with three samples of `event-0`.
fn segment(run_id: u64, name: &str, machine: Option<&str>, labels: &[(&str, &str)]) -> Vec<u8> {
    let mut header = header(ChecksumKind::Xxh3, vec![source(0, &fixture("event.bfbs"))]);
    header.run_id = run_id;
    name.clone_into(&mut header.host.name);
    header.host.machine_id = machine.map(str::to_owned);
    header.host.labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    let mut maker = SegmentBuilder::new(header);
    maker.samples(0, 0..3);
    maker.sealed()
}

/// Writes segments of three machines: two of them are called `db`.
fn three_machines(rig: &Rig) -> [&'static str; 3] {
    rig.write("a.bin", segment(1, "db", Some("aaaaaaaabbbb"), &[("role", "db"), ("site", "fra")]));
    rig.write("b.bin", segment(2, "db", Some("ccccccccdddd"), &[]));
    rig.write("c.bin", segment(3, "web", None, &[("role", "web")]));
    ["a.bin", "b.bin", "c.bin"]
}

// Proves that every sample is shown with its host, in each format, machines of one name with their
// ids, and that the output of one host has no column for it, except in JSON.
#[test]
fn samples_are_shown_with_their_host() {
    let rig = Rig::new();
    let files = three_machines(&rig);
    let dump = |args: &[&str]| rig.call(&[&["dump"], args].concat());
    let rows = dump(&[&files[..], &["--format", "jsonl"]].concat()).lines();
    assert_eq!(rows.len(), 9);
    let hosts: BTreeSet<&str> = rows.iter().map(|row| row["host"].as_str().unwrap()).collect();
    let expected = ["db (aaaaaaaa)", "db (cccccccc)", "web"];
    assert_eq!(hosts, BTreeSet::from(expected));
    let csv = dump(&[&files[..], &["--format", "csv"]].concat()).text();
    assert!(csv.starts_with("source,host,seq,"), "{csv}");
    let table = dump(&[&["--source", "event-0"][..], &files].concat()).text();
    assert!(table.lines().next().unwrap().split_whitespace().take(2).eq(["time", "host"]), "{table}");
    let digest = dump(&files).text();
    assert!(digest.contains("host: db (aaaaaaaa) (role=db, site=fra)\n"), "{digest}");
    for host in expected {
        assert_eq!(csv.lines().filter(|line| line.contains(&format!("event-0,{host},"))).count(), 3, "{csv}");
        assert_eq!(table.lines().filter(|line| line.contains(&format!(" {host}"))).count(), 3, "{table}");
    }
    let alone = dump(&["a.bin", "--format", "csv"]).text();
    assert!(alone.starts_with("source,seq,"), "{alone}");
    assert_eq!(dump(&["a.bin", "--format", "jsonl"]).lines()[0]["host"], "db");
}

// Proves that --host selects by name, shown name or machine id, in every verb that has it, and that
// a wrong or an ambiguous name is answered with all names.
#[test]
fn a_host_is_selected() {
    let rig = Rig::new();
    let files = three_machines(&rig);
    let count = |host: &str| {
        let rows = rig.call(&[&["dump", "--format", "jsonl", "--host", host], &files[..]].concat()).lines();
        let info = rig.call(&[&["info", "--json", "--host", host], &files[..]].concat()).json();
        let verified = rig.call(&[&["verify", "--json", "--host", host], &files[..]].concat()).json();
        assert_eq!(info["hosts"], verified["hosts"]);
        let shown = info["hosts"][0]["name"].clone();
        assert!(rows.iter().all(|row| row["host"] == shown), "{rows:?}");
        assert_eq!(info["hosts"].as_array().unwrap().len(), 1);
        assert_eq!(number(&info["frames"]), rows.len() as u64);
        rows.len()
    };
    for host in ["web", "db (cccccccc)", "ccccccccdddd"] {
        assert_eq!(count(host), 3, "{host}");
    }
    for verb in [&["dump"][..], &["info"], &["verify"], &["replay", "--speed", "max"]] {
        for (host, says) in [("db", "several machines have this name"), ("wbe", "no such host")] {
            let called = rig.call(&[verb, &["--host", host], &files[..]].concat());
            assert_eq!(called.status, Some(2), "{called:?}");
            let known = "they have db (aaaaaaaa), db (cccccccc), web";
            assert!(called.err.contains(says) && called.err.contains(known), "{called:?}");
        }
    }
    // After a replay, the runs are in one file, in which runs of other hosts are skipped, too.
    let called = rig.call(&[&["replay", "--speed", "max"], &files[..]].concat());
    rig.write("all.bin", &called.out);
    for host in ["web", "db (cccccccc)", "aaaaaaaabbbb"] {
        let rows = rig.call(&["dump", "--format", "jsonl", "--host", host, "all.bin"]).lines();
        assert_eq!(rows.len(), 3, "{host}");
    }
}

// Proves that hosts and labels are listed, for people and as JSON.
#[test]
fn hosts_and_labels_are_listed() {
    let rig = Rig::new();
    let files = three_machines(&rig);
    for verb in ["info", "verify"] {
        let text = rig.call(&[&[verb], &files[..]].concat()).text();
        for line in [
            "host: db (aaaaaaaa) (role=db, site=fra)\n",
            "host: db (cccccccc)\n",
            "host: web (role=web)\n",
            "host: 2 machines are called db;",
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
        let json = rig.call(&[&[verb, "--json"], &files[..]].concat()).json();
        assert_eq!(
            json["hosts"],
            json!([
                {"name": "db (aaaaaaaa)", "machine_id": "aaaaaaaabbbb", "labels": {"role": "db", "site": "fra"}},
                {"name": "db (cccccccc)", "machine_id": "ccccccccdddd", "labels": {}},
                {"name": "web", "machine_id": null, "labels": {"role": "web"}},
            ])
        );
    }
    let info = rig.call(&[&["info", "--json"], &files[..]].concat()).json();
    assert_eq!(info["segments"][1]["host"], "db (cccccccc)");
    assert_eq!(info["sources"][2]["host"], "web");
}

// Proves that the labels of the configuration are in the segments and in the printed configuration.
#[test]
fn labels_are_recorded() {
    let rig = Rig::new();
    let config = rig.write("labels.toml", "[recorder]\nlabels = { site = \"fra\", role = \"db\" }\n");
    let config = config.to_str().unwrap();
    let mut status = None;
    rig.record_until(&["--config", config, "--source", "load@10ms"], "a status", || {
        status = rig.status().filter(|_| rig.has_samples(3));
        status.is_some()
    });
    let hosts = &rig.info()["hosts"];
    assert_eq!(hosts[0]["labels"], json!({"role": "db", "site": "fra"}));
    let status = &status.unwrap()["recorder"];
    assert_eq!((&status["host"], &status["labels"]), (&hosts[0]["name"], &hosts[0]["labels"]));
    assert!(rig.call(&["info"]).text().contains(" (role=db, site=fra)\n"));
    let printed = rig.call(&["check-config", config]).text();
    assert!(printed.contains("labels = { role = \"db\", site = \"fra\" }"), "{printed}");
}
