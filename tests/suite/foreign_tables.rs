//! Imports tables of other programs as a user does. Some properties are recognized. Others are
//! guesses, with their line, exit status 3, and the option that settles them.

use serde_json::Value;

use crate::rig::{CallResult, Rig};

/// Imports a file into a directory of its own, in a time zone.
fn import(rig: &Rig, zone: &str, args: &[&str], data: &str) -> CallResult {
    let args = [&["import"], args, &["--data-dir", data]].concat();
    CallResult::from(rig.command(&args).env("TZ", zone).output().unwrap())
}

/// Seconds since the first row, or since 1970, and the values of the rows of a source.
fn rows(rig: &Rig, data: &str, source: &str) -> Vec<(i64, Value)> {
    let args = ["export", data, "--to", "jsonl", "-o", "-", "--source", source];
    let called = rig.call(&args);
    let lines = String::from_utf8(called.out).unwrap();
    let rows = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    rows.map(|row| (row["wall_ns"].as_i64().unwrap() / 1_000_000_000, row["data"].clone())).collect()
}

// Proves that the repeated hour of autumn is resolved by the order of the rows, that the missing
// hour of spring is reported with the line of its first row, and that --utc settles both.
#[test]
fn local_times_are_resolved_or_reported() {
    let rig = Rig::new();
    let night = ["01:30", "02:00", "02:30", "02:00", "02:30", "03:00"];
    let text = |day: &str| night.map(|time| format!("{day} {time}:00,1\n")).concat();
    rig.write("autumn.csv", format!("time,v\n{}", text("2024-10-27")));
    let called = import(&rig, "Europe/Berlin", &["csv", "autumn.csv"], "autumn");
    assert_eq!(called.status, Some(0), "{called:?}");
    let seconds: Vec<i64> = rows(&rig, "autumn", "autumn").iter().map(|(at, _)| at - 1_729_985_400).collect();
    assert_eq!(seconds, [0, 1800, 3600, 5400, 7200, 9000]);
    rig.write(
        "spring.csv",
        "timestamp,value\n2015-03-08 01:57:53,1\n2015-03-08 02:02:53,2\n2015-03-08 03:02:53,3\n",
    );
    let called = import(&rig, "America/New_York", &["csv", "spring.csv"], "spring");
    assert_eq!(called.status, Some(3), "{called:?}");
    assert!(
        called.err.contains("spring.csv line 3: the time does not exist in America/New_York"),
        "{called:?}"
    );
    assert!(called.err.contains("--utc"), "{called:?}");
    for (option, data) in [(&["--utc"][..], "utc"), (&["--zone", "Etc/GMT+5"], "fixed")] {
        let args = [&["csv", "spring.csv"], option].concat();
        assert_eq!(import(&rig, "America/New_York", &args, data).status, Some(0), "{option:?}");
    }
}

// Proves that times have the zone that sadf prints, whatever the zone of this host is.
#[test]
fn the_zone_of_an_archive_is_its_own() {
    let rig = Rig::new();
    let document = r#"{"sysstat": {"hosts": [{"nodename": "web-1", "timezone": "Europe/Paris", "statistics": [
        {"timestamp": {"date": "2019-06-30", "time": "07:39:34", "tz": "CEST"}, "queue": {"runq-sz": 0}}]}]}}"#;
    rig.write("sa.json", document);
    let called = import(&rig, "UTC", &["sar", "sa.json"], "data");
    assert_eq!(called.status, Some(0), "{called:?}");
    assert_eq!(rows(&rig, "data", "sar-queue")[0].0, 1_561_873_174);
    let called = import(&rig, "UTC", &["sar", "sa.json", "--utc"], "utc");
    assert_eq!((called.status, rows(&rig, "utc", "sar-queue")[0].0), (Some(0), 1_561_880_374), "{called:?}");
}

// Proves that each guess has the exit status 3, its line and the option that settles it. With this
// option, the result is the same and the exit status is 0.
#[test]
fn options_settle_guesses() {
    let rig = Rig::new();
    let numbers: Vec<String> = (0..20).map(|at| format!("17000000{at:02},{at}.5\n")).collect();
    let absent = format!("time,w\n{}", numbers.concat().replace(",7.5", ",N/A"));
    for (name, content, line, option) in [
        ("absent", absent.as_str(), 9, &["--absent", "N/A"][..]),
        (
            "order",
            "time,v\n1700000001,1\n1700000005,5\n1700000002,2\n1700000008,8\n",
            4,
            &["--order", "time"],
        ),
        ("dates", "time,v\n01/02/2024 00:00:00,1\n02/02/2024 00:00:00,1\n", 2, &["--time-format", "dmy"]),
        ("group", "time,v\n1700000001,\"1,234\"\n1700000002,\"5,678\"\n", 2, &["--decimal", "."]),
        ("latin", "time,v\n1700000001,\u{1}\n", 2, &["--encoding", "latin1"]),
        ("header", "Report\nof a rig,\ntime,v\n1700000001,1\n1700000002,1\n", 1, &["--skip-lines", "2"]),
        (
            "devices",
            "time,disk,v\n1700000017,a,1\n1700000017,b,2\n1700000018,a,1\n1700000018,b,2\n",
            3,
            &["--key", "disk"],
        ),
        ("decades", "time,v\n500,1\n501,2\n", 2, &["--time-format", "s"]),
    ] {
        let file = format!("{name}.csv");
        let bytes: Vec<u8> = content.bytes().map(|byte| if byte == 1 { 0xE9 } else { byte }).collect();
        rig.write(&file, bytes);
        let guessed = import(&rig, "UTC", &["csv", &file], &format!("{name}-guessed"));
        assert_eq!(guessed.status, Some(3), "{guessed:?}");
        assert!(guessed.err.contains(&format!("{file} line {line}: ")), "{guessed:?}");
        assert!(guessed.err.contains(option[0]), "{guessed:?}");
        let args = [&["csv", &file], option].concat();
        let settled = import(&rig, "UTC", &args, &format!("{name}-settled"));
        assert_eq!((settled.status, settled.err.as_str()), (Some(0), ""), "{name}");
        let both = ["guessed", "settled"].map(|end| rows(&rig, &format!("{name}-{end}"), name));
        assert!(!both[0].is_empty() && both[0] == both[1], "{name}: {both:?}");
    }
}

// Proves that --check writes nothing, prints at most 80 columns, and has the columns, types, units,
// times and gaps as JSON.
#[test]
fn a_check_writes_nothing() {
    let rig = Rig::new();
    let title = "a title that is longer than the table of a check can show in its first column";
    rig.write(
        "a.csv",
        format!("time;load [%];{title}\n1700000000;1,5;2\n1700000001;N/A;2\n1700000100;1,5;2\n"),
    );
    let called = CallResult::from(
        rig.command(&["import", "csv", "a.csv", "--check"]).env("TZ", "UTC").output().unwrap(),
    );
    assert_eq!(called.status, Some(3), "{called:?}");
    assert!(called.err.contains("a.csv line 3: column load [%]: \"N/A\""), "{called:?}");
    let text = String::from_utf8(called.out).unwrap();
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    for part in [
        "cells between ';'",
        "decimal comma",
        "seconds since 1970",
        "2023-11-14T22:13:20",
        "99.0s before line 4",
        "float",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let counted = |more: &[&str]| {
        let called = rig.call(&[&["import", "csv", "a.csv", "--check", "--json"], more].concat());
        serde_json::from_slice::<Value>(&called.out).unwrap()["files"][0]["columns"][0]["values"].clone()
    };
    // A word for a missing value is no value, stated or not. A column of text has it as text.
    assert_eq!([counted(&[]), counted(&["--absent", "N/A"])], [2, 2]);
    assert_eq!(counted(&["--type", "load [%]=text"]), 3);
    let called = rig.call(&["import", "csv", "a.csv", "--check", "--json", "--absent", "N/A"]);
    assert_eq!(called.status, Some(0), "{called:?}");
    let check: Value = serde_json::from_slice(&called.out).unwrap();
    let file = &check["files"][0];
    assert_eq!(
        (&file["columns"][0]["type"], &file["columns"][0]["unit"]),
        (&"float".into(), &"%".into()),
        "{check}"
    );
    assert_eq!((&file["time"]["gaps"][0]["line"], &file["rows"]), (&4.into(), &3.into()), "{check}");
    let files = std::fs::read_dir(rig.path(".")).unwrap().count();
    assert_eq!(files, 1, "nothing is written");
    let called = rig.call(&["import", "csv", "a.csv"]);
    assert_eq!(called.status, Some(2), "a directory is needed: {called:?}");
}
