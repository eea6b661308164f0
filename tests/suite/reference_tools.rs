//! Comparison with other programs: the values that they report for the same host lie between those
//! recorded before and after.

use std::collections::BTreeMap;
use std::process::{Child, Command};

use serde_json::Value;

use crate::rig::{Rig, eventually, number};
use crate::sources::origins;

/// Returns the output of a program; none, with one line of notice, if it is not installed.
fn program_output(command: &[&str]) -> Option<String> {
    let (program, arguments) = command.split_first().unwrap();
    let output = Command::new(program).args(arguments).env("LC_ALL", "C").output();
    match output {
        Ok(output) if output.status.success() => Some(String::from_utf8(output.stdout).unwrap()),
        _ => {
            println!("skipped: {program} is not installed");
            None
        }
    }
}

/// Returns the first and the last sample of a recording of one source, and the output of a program
/// that ran in between.
fn recorded_around(source: &str, command: &[&str]) -> Option<(Value, String, Value)> {
    program_output(command)?;
    let rig = Rig::new();
    // Fields that are left out by default are also compared.
    let text = "[source.disk]\ninclude = [\"*\"]\n[source.process]\nfull_interval = \"1ms\"\n";
    let config = rig.write("all.toml", text);
    let begun = || rig.source(source).map_or(0, |source| number(&source["begun"]));
    let mut answer = None;
    rig.record_until(
        &["--quiet", "--config", config.to_str().unwrap(), "--source", &format!("{source}@50ms")],
        "a sample before and after",
        || {
            if answer.is_none() && rig.has_samples(2) {
                let said = program_output(command);
                // A sample in progress may have begun before the program ran.
                answer = Some((said, begun() + 2));
            }
            answer.as_ref().is_some_and(|(_, least)| rig.has_samples(*least))
        },
    );
    let (said, _) = answer?;
    let rows = rig.call(&["dump", "flatcap-data", "--format", "jsonl", "--source", source]).lines();
    assert!(rows.len() >= 4, "{} samples", rows.len());
    Some((rows.first()?["data"].clone(), said?, rows.last()?["data"].clone()))
}

fn assert_between(what: &str, before: &Value, judge: u64, after: &Value) {
    let (least, most) = (number(before), number(after));
    assert!((least..=most).contains(&judge), "{what}: {judge} is not in {least}..={most}");
}

/// Returns the first number of the line with this ending.
fn line(text: &str, ending: &str) -> u64 {
    let line = text.lines().find(|line| line.trim_end().ends_with(ending));
    let line = line.unwrap_or_else(|| panic!("no {ending} in\n{text}"));
    line.split_whitespace().next().unwrap().parse().unwrap()
}

/// Returns the element of `list` whose `key` is `name`.
fn element_named<'a>(list: &'a Value, key: &str, name: &str) -> &'a Value {
    let found = list.as_array().unwrap().iter().find(|one| one[key] == name);
    found.unwrap_or_else(|| panic!("no {name} in {list}"))
}

// Proves that `cpu` agrees with vmstat: totals since boot, which only grow.
#[test]
fn cpu_agrees_with_vmstat() {
    let Some((before, said, after)) = recorded_around("cpu", &["vmstat", "-s"]) else { return };
    for (field, ending) in [
        ("user", "non-nice user cpu ticks"),
        ("nice", " nice user cpu ticks"),
        ("system", "system cpu ticks"),
        ("idle", "idle cpu ticks"),
        ("softirq", "softirq cpu ticks"),
        ("steal", "stolen cpu ticks"),
    ] {
        assert_between(field, &before["total"][field], line(&said, ending), &after["total"][field]);
    }
    for (field, ending) in
        [("interrupts", "interrupts"), ("context_switches", "context switches"), ("forks", "forks")]
    {
        assert_between(field, &before[field], line(&said, ending), &after[field]);
    }
    assert_eq!(number(&before["boot_time"]), line(&said, "boot time"));
}

// Proves that `disk` agrees with vmstat: all values that it prints for each device.
#[test]
fn disks_agree_with_vmstat() {
    let Some((before, said, after)) = recorded_around("disk", &["vmstat", "-d"]) else { return };
    let mut devices = 0;
    for line in said.lines().skip(2) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let disk = |data: &Value| element_named(&data["devices"], "name", words[0]).clone();
        let (before, after) = (disk(&before), disk(&after));
        let fields = [
            "reads",
            "reads_merged",
            "sectors_read",
            "read_time",
            "writes",
            "writes_merged",
            "sectors_written",
            "write_time",
        ];
        for (field, word) in fields.into_iter().zip(&words[1..]) {
            assert_between(field, &before[field], word.parse().unwrap(), &after[field]);
        }
        devices += 1;
    }
    assert!(devices > 0 || before["devices"].as_array().unwrap().is_empty());
}

// Proves that `disk` agrees with iostat: kilobytes since boot, from sectors of 512 bytes.
#[test]
fn disks_agree_with_iostat() {
    let Some((before, said, after)) = recorded_around("disk", &["iostat", "-d", "-k", "-o", "JSON"]) else {
        return;
    };
    let said: Value = serde_json::from_str(&said).unwrap();
    let disks = said["sysstat"]["hosts"][0]["statistics"][0]["disk"].as_array().unwrap().clone();
    for disk in disks {
        let name = disk["disk_device"].as_str().unwrap();
        let [before, after] = [&before, &after].map(|data| element_named(&data["devices"], "name", name));
        for (field, key) in [("sectors_read", "kB_read"), ("sectors_written", "kB_wrtn")] {
            let [least, most] = [before, after].map(|device| number(&device[field]) / 2);
            let judge = number(&disk[key]);
            assert!((least..=most).contains(&judge), "{name} {field}: {judge} is not in {least}..={most}");
        }
    }
}

// Proves that `network` agrees with ip: the statistics of each interface, which only grow.
#[test]
fn interfaces_agree_with_ip() {
    let Some((before, said, after)) = recorded_around("network", &["ip", "-j", "-s", "link"]) else { return };
    let said: Value = serde_json::from_str(&said).unwrap();
    for interface in said.as_array().unwrap() {
        let name = interface["ifname"].as_str().unwrap();
        let [before, after] = [&before, &after].map(|data| element_named(&data["interfaces"], "name", name));
        let statistics = &interface["stats64"];
        if statistics.is_null() {
            continue;
        }
        for (field, side, key) in [
            ("rx_bytes", "rx", "bytes"),
            ("rx_packets", "rx", "packets"),
            ("tx_bytes", "tx", "bytes"),
            ("tx_packets", "tx", "packets"),
            ("tx_errors", "tx", "errors"),
        ] {
            assert_between(field, &before[field], number(&statistics[side][key]), &after[field]);
        }
    }
}

// Proves that `netstat` agrees with nstat: each common counter, by its kernel name.
#[test]
fn extended_counters_agree_with_nstat() {
    let Some((before, said, after)) = recorded_around("netstat", &["nstat", "-a", "-s", "-z"]) else {
        return;
    };
    let said: BTreeMap<&str, u64> = said
        .lines()
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            Some((words.next()?, words.next()?.parse().ok()?))
        })
        .collect();
    let entry = flatcap_sampling::sources::find("netstat").unwrap();
    let mut judged = 0;
    for (field, origin) in origins(entry.schema) {
        let (before, after) = (&before["counters"][&field], &after["counters"][&field]);
        let Some(judge) = said.get(origin.replace(':', "").as_str()) else { continue };
        if before.is_null() || after.is_null() || number(after) < number(before) {
            continue;
        }
        assert_between(&field, before, *judge, after);
        judged += 1;
    }
    assert!(judged > 80, "{judged}");
}

// Proves that `sockets` agrees with ss. Method: its summary, in a recording without changes around
// it.
#[test]
fn sockets_agree_with_ss() {
    for _ in 0..20 {
        let Some((before, said, after)) = recorded_around("sockets", &["ss", "-s"]) else { return };
        if before["counters"] != after["counters"] {
            continue;
        }
        let row = said.lines().find(|line| line.starts_with("TCP\t")).unwrap();
        let of_version_4: u64 = row.split_whitespace().nth(2).unwrap().parse().unwrap();
        // ss also counts sockets in TIME-WAIT.
        let [in_use, waiting] = ["tcp_inuse", "tcp_tw"].map(|field| number(&before["counters"][field]));
        assert!([in_use, in_use + waiting].contains(&of_version_4), "{said}{before}");
        return;
    }
    println!("skipped: the number of sockets changed all the time");
}

// Proves that `filesystem` agrees with df: size and inodes of each mount that both list.
#[test]
fn mounts_agree_with_df() {
    let command = ["df", "-B1", "--output=itotal,size,target"];
    let Some((before, said, _)) = recorded_around("filesystem", &command) else { return };
    let mut judged = 0;
    for line in said.lines().skip(1) {
        let mut words = line.split_whitespace();
        let (Some(inodes), Some(size), Some(target)) = (words.next(), words.next(), words.next()) else {
            continue;
        };
        let mounts = before["mounts"].as_array().unwrap();
        let Some(mount) = mounts.iter().find(|mount| mount["mount_point"] == target) else { continue };
        assert_eq!(
            number(&mount["blocks"]) * number(&mount["block_size"]),
            size.parse::<u64>().unwrap(),
            "{target}"
        );
        assert_eq!(mount["inodes"], inodes.parse::<u64>().unwrap_or(0), "{target}");
        judged += 1;
    }
    assert!(judged > 0, "{said}");
}

/// A child process that is killed at the end of the test.
struct Sleeper(Child);

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ended = self.0.kill();
        let _waited = self.0.wait();
    }
}

// Proves that `process` agrees with ps: a sleeping child of the test.
#[test]
fn processes_agree_with_ps() {
    let sleeper = Sleeper(Command::new("sleep").arg("1000").spawn().unwrap());
    let pid = sleeper.0.id().to_string();
    let stat = || std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    eventually("a sleeping program", || stat().contains(" (sleep) S "));
    let command = ["ps", "-o", "ppid=,nlwp=,euid=,vsz=,state=,comm=", "-p", &pid];
    let Some((_, said, after)) = recorded_around("process", &command) else { return };
    let processes = after["processes"].as_array().unwrap();
    let process = processes.iter().find(|process| process["pid"] == u64::from(sleeper.0.id())).unwrap();
    let expected = format!(
        "{} {} {} {} {} {}",
        process["parent"],
        process["threads"],
        process["user"],
        number(&process["virtual_size"]) / 1024,
        process["state"].as_str().unwrap(),
        process["name"].as_str().unwrap()
    );
    assert_eq!(said.split_whitespace().collect::<Vec<_>>().join(" "), expected);
}
