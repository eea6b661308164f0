//! Dump: recorded values come out unchanged in every format, decoded with the file's own schema.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};

use flatcap_stream::ChecksumKind;
use serde_json::Value;

use crate::crafted::{WALL_NS, every_frame_kind, fixture};
use crate::rig::{CallResult, Rig, eventually, finish, has_segment, number, signal};

// Proves that `memory` agrees with /proc/meminfo. Method: the test reads it before and after a
// recording; every sample lies between the two, or near them for values that change by themselves.
#[test]
fn memory_agrees_with_meminfo() {
    fn meminfo() -> BTreeMap<String, u64> {
        std::fs::read_to_string("/proc/meminfo")
            .unwrap()
            .lines()
            .map(|line| {
                let (name, rest) = line.split_once(':').unwrap();
                (name.to_owned(), rest.split_whitespace().next().unwrap().parse().unwrap())
            })
            .collect()
    }
    let rig = Rig::new();
    let before = meminfo();
    rig.record_samples(&["--source", "memory@10ms"], 10);
    let after = meminfo();
    let rows = rig.call(&["dump", "flatcap-data", "--format", "jsonl", "--source", "memory"]).lines();
    assert!(rows.len() >= 10);
    for row in &rows {
        assert_eq!(row["source"], "memory");
        let counters = &row["data"]["counters"];
        for (field, name) in [
            ("mem_total", "MemTotal"),
            ("swap_total", "SwapTotal"),
            ("hugepagesize", "Hugepagesize"),
            ("vmalloc_total", "VmallocTotal"),
        ] {
            assert_eq!(number(&counters[field]), before[name], "{name} never changes");
        }
        for (field, name) in [
            ("mem_free", "MemFree"),
            ("mem_available", "MemAvailable"),
            ("cached", "Cached"),
            ("anon_pages", "AnonPages"),
            ("slab", "Slab"),
        ] {
            let (least, most) = (before[name].min(after[name]), before[name].max(after[name]));
            // Other tests run at the same time: a change of 2 GiB is allowed for them.
            let allowed = 2 << 20;
            let value = number(&counters[field]);
            assert!(
                value + allowed >= least && value <= most + allowed,
                "{name}: {value} between {least} and {most}"
            );
        }
        // Every counter of the kernel is present, and no other counter.
        let given = counters.as_object().unwrap().values().filter(|value| !value.is_null()).count();
        assert_eq!(given, before.len());
    }
}

// Proves that every default source is decoded with the fields of its schema: one object per sample,
// with the documented keys.
#[test]
fn every_source_is_decoded() {
    let rig = Rig::new();
    rig.record_samples(&[], 1);
    let rows = rig.call(&["dump", "flatcap-data", "--format", "jsonl"]).lines();
    let mut seen: BTreeMap<String, Value> = BTreeMap::new();
    let mut last = 0;
    for row in rows {
        let keys: Vec<&String> = row.as_object().unwrap().keys().collect();
        assert_eq!(keys.len(), 9, "{keys:?}");
        assert_eq!(row["flags"], 0, "no sample is incomplete on a live host: {row}");
        let mono = number(&row["mono_ns"]);
        assert!(mono >= last, "in the order of time");
        last = mono;
        seen.insert(row["source"].as_str().unwrap().to_owned(), row["data"].clone());
    }
    assert!(number(&seen["cpu"]["cores"][0]["times"]["user"]) > 0);
    assert!(number(&seen["vmstat"]["counters"]["pgfault"]) > 0);
    assert!(seen["load"]["load1"].as_f64().unwrap() >= 0.0);
    assert!(seen["disk"]["devices"].as_array().unwrap().iter().all(|disk| disk["name"].is_string()));
    assert!(
        seen["network"]["interfaces"].as_array().unwrap().iter().any(|interface| interface["name"] == "lo")
    );
    assert_eq!(number(&seen["self"]["sources"][0]["source"]), 0);
    if let Some(pressure) = seen.get("pressure") {
        assert!(pressure["cpu_some"]["total"].is_u64());
    }
}

// Proves that a projection has exactly the selected fields, and that an unknown field is answered
// with the nearest name.
#[test]
fn fields_are_selected() {
    let rig = Rig::new();
    rig.record_samples(&["--source", "cpu@10ms", "--source", "load@10ms"], 3);
    let fields = "total.user,context_switches";
    let called = rig.call(&["dump", "--source", "cpu", "--fields", fields, "--format", "jsonl"]);
    assert!(called.lines().len() >= 3);
    for row in called.lines() {
        let names: Vec<&String> = row.as_object().unwrap().keys().collect();
        assert_eq!(names, ["context_switches", "host", "mono_ns", "time", "total.user", "wall_ns"]);
    }
    let called = rig.call(&["dump", "flatcap-data", "--fields", "total.usr"]);
    assert_eq!(called.status, Some(2), "{called:?}");
    assert!(called.err.contains("total.usr") && called.err.contains("user"), "{called:?}");
    for (field, says) in [("load15", ""), ("steal", "cpu.total.steal"), ("speed", "no field \"speed\"")] {
        let called = rig.call(&["dump", "flatcap-data", "--fields", field]);
        assert_eq!(called.status, Some(if says.is_empty() { 0 } else { 2 }), "{called:?}");
        assert!(called.err.contains(says), "{called:?}");
    }
}

// Proves that CSV has one header and one row per sample, with the values of the JSON output.
#[test]
fn csv_and_json_agree() {
    let rig = Rig::new();
    rig.record_samples(&["--source", "cpu@10ms", "--source", "synthetic@10ms"], 5);
    let text = rig.call(&["dump", "flatcap-data", "--source", "cpu", "--format", "csv"]).text();
    let rows = rig.call(&["dump", "flatcap-data", "--source", "cpu", "--format", "jsonl"]).lines();
    let mut lines = text.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let header = lines.next().unwrap();
    let stamps = ["source", "seq", "mono_ns", "wall_ns", "time", "duration_ns", "flags"];
    assert_eq!(header[..7], stamps);
    let column = |name: &str| header.iter().position(|column| *column == name).unwrap();
    assert_eq!(text.lines().count(), rows.len() + 1);
    for (line, row) in lines.zip(&rows) {
        assert_eq!(line[1], row["seq"].to_string());
        assert_eq!(line[column("total.system")], row["data"]["total"]["system"].to_string());
        assert_eq!(line[column("cores.0.times.idle")], row["data"]["cores"][0]["times"]["idle"].to_string());
    }
    let called = rig.call(&["dump", "flatcap-data", "--format", "csv"]);
    assert_eq!(called.status, Some(2), "two sources are too many: {called:?}");
}

// Proves that --rate changes values only: the same samples, gaps and markers are printed, whole and
// as rows of fields, from any time on. Earlier samples are only read for the first rates.
#[test]
fn rates_change_no_lines() {
    let rig = Rig::new();
    let file = every_frame_kind(ChecksumKind::Xxh3, &fixture("event.bfbs")).sealed();
    std::fs::create_dir(rig.data()).unwrap();
    rig.write("flatcap-data/0000000007-20231114T221320Z-0123456789abcdef.bin", file);
    for mono_ns in [0, 2_000, 2_001, 7_000, 9_000, 9_001, 10_500] {
        let since = (WALL_NS + mono_ns).to_string();
        for fields in [&[][..], &["--fields", "event-0.sample.device_id"]] {
            let lines = |more: &[&str]| {
                let dump = ["dump", "flatcap-data", "--format", "jsonl", "--since", &since];
                let text = rig.call(&[&dump[..], fields, more].concat()).text();
                text.lines().map(str::to_owned).collect::<Vec<_>>()
            };
            let (plain, with_rates) = (lines(&[]), lines(&["--rate"]));
            assert_eq!(plain, with_rates, "{since} {fields:?}: no field is a counter");
            let has_gap = plain.iter().any(|line| line.starts_with("{\"gap\":"));
            let has_marker = plain.iter().any(|line| line.starts_with("{\"marker\":"));
            assert_eq!((has_gap, has_marker), (mono_ns <= 9_000, mono_ns <= 2_000), "{since}");
        }
    }
}

// Proves that --rate turns counters into per-second rates. Method: a counter that grows by one per
// sample, divided by the time between two samples.
#[test]
fn rates_are_per_second() {
    let rig = Rig::new();
    rig.record_samples(&["--source", "synthetic@10ms"], 20);
    let rows = rig.call(&["dump", "flatcap-data", "--rate", "--format", "jsonl"]).lines();
    assert!(rows[0]["data"]["counter"].is_null(), "the first sample has no rate");
    assert!(rows.len() >= 20);
    let plain = rig.call(&["dump", "flatcap-data", "--format", "jsonl"]).lines();
    for pair in plain.windows(2).zip(&rows[1..]) {
        let elapsed = (number(&pair.0[1]["mono_ns"]) - number(&pair.0[0]["mono_ns"])) as f64 / 1e9;
        let rate = pair.1["data"]["counter"].as_f64().unwrap();
        assert!((rate - 1.0 / elapsed).abs() < 1e-6 * rate, "{rate} at {elapsed}");
        assert_eq!(pair.1["data"]["wave"], pair.0[1]["data"]["wave"], "a gauge stays as it is");
    }
    // A table is for people.
    let table = rig.call(&["dump", "flatcap-data", "--rate", "--fields", "counter"]).text();
    let rates: Vec<&str> =
        table.lines().skip(2).map(|line| line.split_whitespace().nth(1).unwrap()).collect();
    let is_short = |rate: &&str| match rate.split_once('.') {
        Some((whole, decimals)) => whole.len() + decimals.len() == 3,
        None => rate.len() >= 3,
    };
    assert!(rates.len() + 1 == rows.len() && rates.iter().all(is_short), "{table}");
}

// Proves that times select samples, in every form. Method: counts against the wall times of all
// samples.
#[test]
fn times_select() {
    let rig = Rig::new();
    rig.record_samples(&["--source", "synthetic@10ms"], 50);
    let rows =
        |args: &[&str]| rig.call(&[&["dump", "flatcap-data", "--format", "jsonl"], args].concat()).lines();
    let count = |args: &[&str]| rows(args).len();
    let times: Vec<u64> = rows(&[]).iter().map(|row| number(&row["wall_ns"])).collect();
    let all = times.len();
    assert!(all >= 50);
    // From one sample to another: the first is included, the last is not.
    let after = |at: usize| format!("+{}ns", times[at] - times[0]);
    assert_eq!(count(&["--since", &after(10), "--until", &after(30)]), 20);
    let wall = |at: usize| format!("@{}.{:09}", times[at] / 1_000_000_000, times[at] % 1_000_000_000);
    assert_eq!(count(&["--since", &wall(10), "--until", &wall(30)]), 20);
    assert_eq!(count(&["--until", "+1h"]), all);
    assert_eq!(count(&["--since", "1h ago"]), all);
    assert_eq!(count(&["--since", "-1h"]), all);
    assert_eq!(count(&["--since=-1h", "--until=now"]), all);
    assert_eq!(count(&["--until", "1h ago"]), 0);
    assert_eq!(count(&["--since", "@0", "--until", "2100-01-01T00:00:00Z"]), all);
    assert_eq!(count(&["--since", "yesterday", "--until", "now+1h"]), all);
    let nanoseconds = |at: usize| times[at].to_string();
    assert_eq!(count(&["--since", &nanoseconds(10), "--until", &nanoseconds(30)]), 20);
    // From the end, of which the last sample is a part.
    let before_end = |at: usize| format!("-{}ns", times[all - 1] - times[at]);
    assert_eq!(count(&["--since", &before_end(10), "--until", &before_end(30)]), 20);
    assert_eq!(count(&["--since", "-0s"]), 1);
    let window = format!("{}ns", 2 * (times[30] - times[20]));
    let around = count(&["--around", &nanoseconds(20), "--window", &window]);
    assert_eq!(
        around,
        times.iter().filter(|time| time.abs_diff(times[20]) <= times[30] - times[20]).count() - 1
    );
    assert_eq!(count(&["--around", "+0s", "--window", "1h"]), all);
    for (args, says) in [
        (&["--since", "soon"][..], "--since: \"soon\" is not a point in time; use 2026-"),
        (&["--around", "-5"], "--around: \"-5\" is not"),
        (&["--since", "+2s", "--until", "+1s"], "--since must be before --until"),
        (&["--around", "now", "--since", "-5m"], "cannot be used with"),
        (&["--window", "1s"], "--around"),
    ] {
        let called = rig.call(&[&["dump", "flatcap-data"], args].concat());
        assert!(called.status == Some(2) && called.err.contains(says), "{called:?}");
    }
}

// Proves that a selected time without samples is an error that says which time the recording spans,
// by every verb that selects.
#[test]
fn a_time_without_samples_is_an_error() {
    let rig = Rig::new();
    rig.record_samples(&["--source", "synthetic@10ms"], 5);
    let rows = rig.call(&["dump", "flatcap-data", "--format", "jsonl"]).lines();
    let second = |row: &Value| row["time"].as_str().unwrap()[..19].to_owned();
    let span = (second(&rows[0]), second(rows.last().unwrap()));
    for verb in [
        &["dump"][..],
        &["dump", "--format", "jsonl"],
        &["dump", "--format", "csv"],
        &["replay", "--speed", "max"],
        &["export", "--to", "stream", "-o", "out", "--force"],
    ] {
        for time in [&["--since", "+1h"], &["--until", "2001-02-03"], &["--around", "@1000"]] {
            let called = rig.call(&[verb, &["flatcap-data", "--utc"], time].concat());
            assert_eq!(called.status, Some(1), "{called:?}");
            let (_, says) = called.err.split_once("no samples in the selected time; ").unwrap();
            let (first, last) = (format!("the recording spans {}", span.0), format!(" to {}", span.1));
            assert!(says.starts_with(&first) && says.contains(&last), "{called:?}");
            assert_eq!(called.err.lines().count(), 1, "{called:?}");
        }
    }
}

// Proves that printed times have their offset, are the same in every zone and format, and select
// what they were printed for. Method: zones as rules, which need no files of the host.
#[test]
fn printed_times_are_accepted() {
    let rig = Rig::new();
    rig.record_samples(&["--source", "load@10ms"], 5);
    let call = |zone: &str, args: &[&str]| {
        CallResult::from(
            rig.command(&[&["dump", "flatcap-data", "--source", "load"], args].concat())
                .env("TZ", zone)
                .output()
                .unwrap(),
        )
    };
    let rows = call("IST-5:30", &["--format", "jsonl"]).lines();
    let table = |zone, args: &[&str]| -> Vec<String> {
        let text = call(zone, args).text();
        text.lines().skip(1).map(|line| line.split_whitespace().next().unwrap().to_owned()).collect()
    };
    let (east, utc) = (table("IST-5:30", &[]), table("IST-5:30", &["--utc"]));
    assert_eq!(table("UTC", &[]), utc);
    assert_eq!(rows.len(), east.len());
    for ((east, utc), row) in east.iter().zip(&utc).zip(&rows) {
        assert!(east.len() == 32 && east.ends_with("+05:30") && utc.ends_with('Z'), "{east} {utc}");
        let time = row["time"].as_str().unwrap();
        assert!(time.len() == 30 && time.starts_with(utc.trim_end_matches('Z')), "{time} {utc}");
    }
    for (at, zone) in [(2, "IST-5:30"), (3, "MST7")] {
        for printed in [&east[at], &utc[at], &rows[at]["time"].as_str().unwrap().to_owned()] {
            let later = call(zone, &["--since", printed, "--format", "jsonl"]).lines();
            assert_eq!(later, rows[at..], "{printed}");
        }
    }
    // Without an offset, a time is in the zone in which it would be printed.
    let local = &east[2][..26];
    for (zone, args) in [("IST-5:30", &["--since", local][..]), ("UTC", &["--since", &utc[2][..26]])] {
        assert_eq!(call(zone, &[args, &["--format", "jsonl"]].concat()).lines(), rows[2..]);
    }
    let since = &utc[2][..26];
    let called = call("IST-5:30", &["--utc", "--since", since, "--format", "jsonl"]);
    assert_eq!(called.lines(), rows[2..]);
    // A zone that does not exist is reported, once.
    let called = call("Nowhere/Land", &[]);
    assert_eq!((called.status, called.err.lines().count()), (Some(0), 1), "{called:?}");
    assert!(called.err.contains("TZ=Nowhere/Land: no such time zone"), "{called:?}");
    assert!(called.text().contains(&utc[0]), "{called:?}");
    assert_eq!(call("Nowhere/Land", &["--utc"]).err, "");
}

// Proves that the table of a source is stable in a pipe, and that --follow prints lines of
// name=value if there are several sources.
#[test]
fn tables_are_stable_in_a_pipe() {
    let rig = Rig::new();
    rig.record_samples(&["--source", "load@10ms"], 4);
    let text = rig.call(&["dump", "flatcap-data", "--source", "load"]).text();
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with("time ") && lines[0].ends_with("last_pid"), "{text}");
    assert!(lines.len() >= 5 && lines[0].contains(" load1 "), "{text}");
    assert!(!text.contains('\x1b'), "no color in a pipe");

    // Several sources share no columns: each value follows its name.
    rig.record_samples(&["--source", "synthetic@10ms"], 1);
    let until = ["dump", "flatcap-data", "--follow", "--until", "now"];
    let text = rig.call(&until).text();
    let first = text.lines().next().unwrap();
    assert!(first.contains(" load seq=0 load1="), "{text}");
    assert!(text.lines().last().unwrap().contains(" synthetic seq="), "{text}");
}

// Proves that --follow shows frames while they are recorded, across rotations, and ends on a
// signal. Method: a run that rotates each second.
#[test]
fn a_running_recording_is_followed() {
    let rig = Rig::new();
    let config = rig.write("aged.toml", "[storage]\nsegment_age = \"1s\"\n");
    let recorder =
        rig.start(&["record", "--config", config.to_str().unwrap(), "--source", "synthetic@5ms", "--quiet"]);
    eventually("frames on disk", || has_segment(&rig.data(), 8 << 10));
    let mut follower = rig.start(&["dump", "flatcap-data", "--follow", "--format", "jsonl"]);
    let lines = BufReader::new(follower.stdout.take().unwrap()).lines();
    // A busy machine adds markers and gaps.
    let mut lines = lines.filter(|line| line.as_ref().is_ok_and(|line| line.contains("\"seq\":")));
    for expected in 0..500 {
        let line: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        assert_eq!(number(&line["seq"]), expected, "each sample once, in order");
    }
    signal(&recorder, "TERM");
    assert_eq!(finish(recorder).status, Some(0));
    signal(&follower, "TERM");
    let seen = 500 + lines.map_while(Result::ok).count() as u64;
    assert!(seen <= number(&rig.info()["sources"][0]["recorded"]), "{seen}");
    let called = finish(follower);
    assert_eq!((called.status, called.err.as_str()), (Some(0), ""), "{called:?}");
}

// Proves that a dump ends without an error when the reader closes the pipe.
#[test]
fn a_closed_pipe_ends_quietly() {
    let rig = Rig::new();
    rig.record_samples(&["--source", "vmstat@1ms"], 200);
    let mut child = rig.start(&["dump", "flatcap-data", "--format", "jsonl"]);
    let mut first = [0; 10];
    child.stdout.take().unwrap().read_exact(&mut first).unwrap();
    let called = finish(child);
    assert_eq!((called.status, called.err.as_str()), (Some(0), ""), "{called:?}");
}

// Proves that an export of rows has the bytes of `dump`, appears whole or not at all, and replaces
// a file only on request.
#[test]
fn rows_are_exported_to_whole_files() {
    let rig = Rig::new();
    rig.record_samples(&["--source", "load@1ms,memory@1ms"], 20);
    for (format, more) in [
        ("jsonl", &["--source", "load"][..]),
        ("csv", &["--fields", "load.load1,memory.mem_free"]),
        ("csv", &["--source", "load", "--fields", "load1", "--every", "5ms"]),
    ] {
        let printed = rig.call(&[&["dump", "--format", format, "flatcap-data"], more].concat());
        assert_eq!(printed.status, Some(0), "{printed:?}");
        let export = |output: &str, force: &[&str]| {
            rig.call(&[&["export", "--to", format, "-o", output, "flatcap-data"], more, force].concat())
        };
        let name = format!("out/{format}");
        let exported = export(&name, &["--force", "--json"]);
        assert_eq!(exported.status, Some(0), "{exported:?}");
        let content = std::fs::read(rig.path(&name)).unwrap();
        assert!(content == printed.out && content.len() > 100, "{format}");
        assert_eq!(number(&exported.json()["files"][0]["bytes"]), content.len() as u64);
        assert!(export("-", &[]).out == printed.out, "{format}");
        let refused = export(&name, &[]);
        assert!(refused.status == Some(1) && refused.err.contains("exists already"), "{refused:?}");
        let refused = export("new", &["--explode"]);
        assert!(refused.status == Some(2) && refused.err.contains("are for parquet"), "{refused:?}");
        let failed = export("new", &["--since", "2001-01-01", "--until", "2001-01-02"]);
        assert_eq!(failed.status, Some(1), "{failed:?}");
    }
    let names: Vec<_> =
        std::fs::read_dir(rig.path("out")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names.len(), 2, "{names:?}");
    assert!(!rig.path("new").exists());
}
