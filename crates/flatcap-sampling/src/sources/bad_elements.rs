//! Tests one property of all sources that read text. A bad element, line, file or value makes only
//! its own values absent, and the sample names the place of the damage.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::tests::{decoded, sample_under};
use super::{SourceSpec, find};
use crate::{Incomplete, odd_text};

/// A file of a source that the test damages.
struct TextFile {
    source: &'static str,
    path: &'static str,
    /// Number of heading lines. The test damages single values in these lines, but does not replace
    /// a whole heading line.
    headings: usize,
    /// The name of the element whose values are in the file. The sample may lose the whole element.
    element: &'static str,
}

const fn lines(source: &'static str, path: &'static str, headings: usize) -> TextFile {
    TextFile { source, path, headings, element: "" }
}

const fn of_element(source: &'static str, path: &'static str, element: &'static str) -> TextFile {
    TextFile { source, path, headings: 0, element }
}

/// The files that sources parse. This list lacks `file.NAME`, `command.NAME`, `gpu`, `ethtool` and
/// `kmsg`. `file.NAME` and `command.NAME` have a test in `text_values.rs`, and the other sources
/// have tests with devices.
const FILES: &[TextFile] = &[
    lines("cpu", "proc/stat", 0),
    lines("memory", "proc/meminfo", 0),
    lines("vmstat", "proc/vmstat", 0),
    lines("load", "proc/loadavg", 0),
    lines("disk", "proc/diskstats", 0),
    lines("network", "proc/1/net/dev", 2),
    lines("pressure", "proc/pressure/cpu", 0),
    lines("pressure", "proc/pressure/memory", 0),
    lines("pressure", "proc/pressure/io", 0),
    lines("schedstat", "proc/schedstat", 2),
    lines("softirqs", "proc/softirqs", 1),
    lines("interrupts", "proc/interrupts", 1),
    of_element("cpufreq", "sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq", "cpu0"),
    of_element("thermal", "sys/class/thermal/thermal_zone1/temp", "thermal_zone1 (acpitz)"),
    of_element("hwmon", "sys/class/hwmon/hwmon0/temp2_input", "chip/temp2"),
    of_element("hwmon", "sys/class/hwmon/hwmon0/energy1_input", "chip/energy1"),
    of_element("power", "sys/class/powercap/intel-rapl:0/energy_uj", "intel-rapl:0"),
    of_element("power", "sys/class/power_supply/BAT0/voltage_now", "BAT0"),
    lines("numa", "sys/devices/system/node/node0/meminfo", 0),
    lines("numa", "sys/devices/system/node/node0/numastat", 0),
    lines("numa", "sys/devices/system/node/node0/vmstat", 0),
    lines("slab", "proc/slabinfo", 0),
    lines("buddy", "proc/buddyinfo", 0),
    lines("hugepages", "sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", 0),
    of_element("filesystem", "proc/1/mountinfo", ""),
    lines("sockets", "proc/1/net/sockstat", 0),
    lines("sockets", "proc/1/net/sockstat6", 0),
    lines("snmp", "proc/1/net/snmp", 0),
    // The kernel omits the types of messages that have not occurred, so a line may be missing.
    lines("snmp", "proc/1/net/snmp6", usize::MAX),
    lines("netstat", "proc/1/net/netstat", 0),
    lines("softnet", "proc/1/net/softnet_stat", 0),
    lines("conntrack", "proc/1/net/stat/nf_conntrack", 1),
    of_element("process", "proc/200/stat", "second"),
    of_element("process", "proc/200/io", "second"),
    lines("cgroup", "sys/fs/cgroup/b.slice/cgroup.events", 0),
    lines("cgroup", "sys/fs/cgroup/b.slice/cpu.stat", 0),
    lines("cgroup", "sys/fs/cgroup/b.slice/memory.current", 0),
    lines("cgroup", "sys/fs/cgroup/b.slice/memory.events", 0),
    lines("cgroup", "sys/fs/cgroup/b.slice/memory.stat", 0),
    lines("cgroup", "sys/fs/cgroup/b.slice/io.stat", 1),
    lines("cgroup", "sys/fs/cgroup/b.slice/pids.max", 0),
    lines("cgroup", "sys/fs/cgroup/b.slice/memory.pressure", 0),
];

/// Files that are missing on the captured host, or that contain no values on this host.
const ADDED: &[(&str, &str)] = &[
    (
        "proc/slabinfo",
        "slabinfo - version: 2.1\n# name <active_objs> <num_objs>\n\
         dentry 375 532 192 21 1 : tunables 0 0 0 : slabdata 19 22 0\n\
         kmalloc-64 1001 1002 64 65 2 : tunables 0 0 0 : slabdata 15 16 0\n",
    ),
    ("proc/buddyinfo", "Node 0, zone DMA 1 2 3 4\nNode 0, zone Normal 4381 1093 185 7\n"),
    (
        "proc/1/net/sockstat",
        "sockets: used 290\nTCP: inuse 5 orphan 6 tw 7 alloc 8 mem 9\n\
         UDP: inuse 11 mem 12\nRAW: inuse 13\nFRAG: inuse 14 memory 15\n",
    ),
    (
        "proc/1/net/snmp",
        "Icmp: InMsgs InErrors\nIcmp: 14 15\n\
         Tcp: RtoMin MaxConn ActiveOpens\nTcp: 200 40 9\nUdp: InDatagrams NoPorts\nUdp: 31 32\n",
    ),
    (
        "proc/1/net/netstat",
        "TcpExt: SyncookiesSent SyncookiesRecv EmbryonicRsts\nTcpExt: 21 22 23\n\
         IpExt: InNoRoutes InTruncatedPkts\nIpExt: 24 25\n",
    ),
    (
        "proc/1/net/stat/nf_conntrack",
        "entries  clashres found search_restart\n00000021 00000002 00000003 0000000a\n\
         00000021 00000012 00000013 0000001a\n",
    ),
    (
        "proc/schedstat",
        "version 15\ntimestamp 14\ncpu0 1 0 3 4 5 6 7 8 9\ndomain0 00000003 212 210 186\n\
         cpu1 11 0 13 14 15 16 17 18 19\n",
    ),
    ("proc/1/mountinfo", "20 1 8:1 / /a rw - btrfs /dev/sda1 rw\n21 1 8:2 / /b rw - btrfs /dev/sda2 rw\n"),
    ("a/file", ""),
    ("b/file", ""),
    ("sys/devices/system/cpu/online", "0-1\n"),
    ("sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq", "3001\n"),
    ("sys/devices/system/cpu/cpu1/cpufreq/scaling_cur_freq", "3002\n"),
    ("sys/class/thermal/thermal_zone0/type", "acpitz\n"),
    ("sys/class/thermal/thermal_zone0/temp", "27800\n"),
    ("sys/class/thermal/thermal_zone1/type", "acpitz\n"),
    ("sys/class/thermal/thermal_zone1/temp", "95000\n"),
    ("sys/class/hwmon/hwmon0/name", "chip\n"),
    ("sys/class/hwmon/hwmon0/temp1_input", "41000\n"),
    ("sys/class/hwmon/hwmon0/temp2_input", "42000\n"),
    ("sys/class/hwmon/hwmon0/energy1_input", "43000\n"),
    ("sys/class/powercap/intel-rapl:0/name", "package-0\n"),
    ("sys/class/powercap/intel-rapl:0/energy_uj", "240422\n"),
    ("sys/class/powercap/intel-rapl:0/max_energy_range_uj", "262143\n"),
    ("sys/class/powercap/intel-rapl:1/name", "package-1\n"),
    ("sys/class/powercap/intel-rapl:1/energy_uj", "240423\n"),
    ("sys/class/powercap/intel-rapl:1/max_energy_range_uj", "262144\n"),
    ("sys/class/power_supply/BAT0/type", "Battery\n"),
    ("sys/class/power_supply/BAT0/capacity", "81\n"),
    ("sys/class/power_supply/BAT0/voltage_now", "12100\n"),
    (
        "proc/100/stat",
        "100 (first) S 1 1 1 0 -1 0 5 0 6 0 31 32 0 0 20 0 3 0 900 4096 9 0 0 0 0 0 0 0 0 0 0 0 0 0 17 0 0 0 2 0 \
         0 0 0 0 0 0 0 0 0\n",
    ),
    (
        "proc/100/io",
        "rchar: 1\nwchar: 2\nsyscr: 3\nsyscw: 4\nread_bytes: 5\nwrite_bytes: 6\ncancelled_write_bytes: 7\n",
    ),
    (
        "proc/200/stat",
        "200 (second) S 1 1 1 0 -1 0 5 0 6 0 41 42 0 0 20 0 4 0 901 8192 8 0 0 0 0 0 0 0 0 0 0 0 0 0 17 0 0 0 3 0 \
         0 0 0 0 0 0 0 0 0\n",
    ),
    (
        "proc/200/io",
        "rchar: 11\nwchar: 12\nsyscr: 13\nsyscw: 14\nread_bytes: 15\nwrite_bytes: 16\n\
         cancelled_write_bytes: 17\n",
    ),
    ("sys/fs/cgroup/cgroup.controllers", "cpu memory\n"),
    ("sys/fs/cgroup/a.slice/memory.current", "501\n"),
    ("sys/fs/cgroup/a.slice/memory.stat", "anon 502\nfile 503\n"),
    ("sys/fs/cgroup/b.slice/cgroup.events", "populated 1\nfrozen 0\n"),
    ("sys/fs/cgroup/b.slice/cpu.stat", "usage_usec 601\nuser_usec 602\nsystem_usec 603\nnice_usec 1\n"),
    ("sys/fs/cgroup/b.slice/memory.current", "604\n"),
    ("sys/fs/cgroup/b.slice/memory.events", "low 605\nhigh 606\nmax 607\noom 608\noom_kill 609\n"),
    ("sys/fs/cgroup/b.slice/memory.stat", "anon 610\nfile 611\nkernel 612\nunknown 3\nslab 613\n"),
    ("sys/fs/cgroup/b.slice/io.stat", "8:0 rbytes=614 wbytes=615 rios=616 wios=617 dbytes=618 dios=619\n"),
    ("sys/fs/cgroup/b.slice/pids.max", "620\n"),
    (
        "sys/fs/cgroup/b.slice/memory.pressure",
        "some avg10=0.00 avg60=0.00 avg300=0.00 total=621\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=622\n",
    ),
];

/// Copies the captured host, and adds the files of `ADDED`.
fn host_to_damage() -> (tempfile::TempDir, PathBuf) {
    let captured = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/hosts/kvm-2-cores");
    let folder = tempfile::tempdir().unwrap();
    let copied = std::process::Command::new("cp").arg("-r").arg(captured).arg(folder.path()).status();
    assert!(copied.unwrap().success());
    let root = folder.path().join("kvm-2-cores");
    for (file, text) in ADDED {
        let path = root.join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    (folder, root)
}

/// Collects the numeric values of a sample, except offsets, lengths, flags and ids. The block and
/// inode counts of file systems are also excluded, because other programs change them.
fn numbers_of(value: &Value, found: &mut Vec<u64>) {
    match value {
        Value::Number(number) => found.push(number.as_f64().unwrap().to_bits()),
        Value::Array(items) => items.iter().for_each(|item| numbers_of(item, found)),
        Value::Object(fields) => {
            let is_left_out = |name: &str| {
                matches!(name, "offset" | "length" | "is_per_core" | "path_length" | "id")
                    || ["block", "inodes"].iter().any(|prefix| name.starts_with(prefix))
            };
            fields
                .iter()
                .filter(|(name, _)| !is_left_out(name))
                .for_each(|(_, item)| numbers_of(item, found));
        }
        _ => {}
    }
}

/// Collects the numbers in the list elements that have one of these strings as the value of a
/// field.
fn numbers_of_elements(value: &Value, names: &[&str], found: &mut Vec<u64>) {
    match value {
        Value::Array(items) => {
            for item in items {
                let mut texts =
                    item.as_object().into_iter().flatten().filter_map(|(_, field)| field.as_str());
                if texts.any(|text| names.contains(&text)) {
                    numbers_of(item, found);
                } else {
                    numbers_of_elements(item, names, found);
                }
            }
        }
        Value::Object(fields) => fields.values().for_each(|item| numbers_of_elements(item, names, found)),
        _ => {}
    }
}

/// Returns all numbers in a line, both decimal and hexadecimal.
#[allow(clippy::cast_precision_loss, reason = "small numbers")]
fn numbers_in(line: &str) -> Vec<u64> {
    let numbers = line.split(|byte: char| !byte.is_ascii_digit() && byte != '.');
    let decimal = numbers.filter_map(|number| number.parse::<f64>().ok());
    let words = line.split_whitespace();
    let hexadecimal = words.filter_map(|word| u64::from_str_radix(word, 16).ok()).map(|number| number as f64);
    decimal.chain(hexadecimal).map(f64::to_bits).collect()
}

/// Removes the numbers `what` from `from`. Returns false if any of these numbers is missing in
/// `from`.
fn remove_all(from: &mut Vec<u64>, what: &[u64]) -> bool {
    what.iter().all(|number| {
        let at = from.iter().position(|one| one == number);
        at.map(|at| from.swap_remove(at)).is_some()
    })
}

/// Returns the word with its number replaced, such as `wrong`, `key=wrong` or `3/wrong`. Returns
/// `None` if the word has no number.
fn damaged_word(word: &str) -> Option<String> {
    let is_number =
        |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let (before, number) =
        word.rsplit_once(['=', '/']).map_or(("", word), |(before, number)| (&word[..=before.len()], number));
    is_number(number).then(|| format!("{before}wrong"))
}

/// Returns damaged forms of a line. In each form, either one value or the whole line is damaged.
fn damaged_lines(line: &str, has_whole: bool) -> Vec<String> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let values = words.iter().enumerate().filter_map(|(at, word)| Some((at, damaged_word(word)?)));
    let damaged = values.take(24).map(|(at, bad)| {
        let words = words.iter().enumerate();
        words
            .map(|(other, word)| if other == at { bad.as_str() } else { *word })
            .collect::<Vec<_>>()
            .join(" ")
    });
    damaged.chain(has_whole.then(|| "wrong".to_owned())).collect()
}

/// Returns a sample of a source in four parts: its numeric values, the decoded sample, the reasons
/// why it is incomplete, and the place of the error.
fn sample(spec: &SourceSpec, root: &Path) -> (Vec<u64>, Value, Incomplete, Option<String>) {
    let _earlier = odd_text::take();
    let keys = if spec.name == "disk" { "include = [\"*\"]" } else { "" };
    let (payload, incomplete) = sample_under(spec, keys, root);
    let value = decoded(spec, &payload);
    let mut found = Vec::new();
    numbers_of(&value, &mut found);
    (found, value, incomplete, odd_text::take().map(|odd| odd.to_string()))
}

// Proves that a bad value or line removes from a sample only the values that are in the line or
// belong to its element. No other value is missing, and no value is invented. The sample names the
// file and line, or the element. In turn, the test damages each number and each line of the files
// of a host. Missing values must come from the damaged line, its element, or the line below a
// damaged heading.
#[test]
fn bad_text_costs_only_itself_and_is_named() {
    let (_folder, root) = host_to_damage();
    let (mut damaged, mut failures) = (0, Vec::new());
    for TextFile { source: name, path: file, headings, element } in FILES {
        let (spec, file) = (find(name).unwrap(), root.join(file));
        let text = std::fs::read_to_string(&file).unwrap();
        let (whole, value, incomplete, _) = sample(spec, &root);
        assert_eq!(incomplete, Incomplete::NONE, "{name}");
        let lines: Vec<&str> = text.lines().collect();
        // If the version line differs, the columns may differ, so the source refuses the file.
        for (at, line) in lines.iter().enumerate().filter(|(_, line)| !line.starts_with("version ")) {
            let section = |line: &str| line.split_once(' ').map(|(section, _)| section.to_owned());
            let below = lines.get(at + 1).filter(|below| {
                matches!(*name, "snmp" | "netstat") && at % 2 == 0 && section(below) == section(line)
            });
            for damage in damaged_lines(line, at >= *headings) {
                let mut lines = lines.clone();
                lines[at] = &damage;
                std::fs::write(&file, lines.join("\n") + "\n").unwrap();
                let (found, _, incomplete, place) = sample(spec, &root);
                let what = format!("{name}, {} line {}: {damage:?}", file.display(), at + 1);
                let mut lost = whole.clone();
                let mut check = |is_right: bool, words: &str| {
                    if !is_right {
                        failures.push(format!("{words}: {what}"));
                    }
                };
                check(remove_all(&mut lost, &found), "invented");
                let mut own = numbers_in(line);
                own.extend(below.into_iter().flat_map(|below| numbers_in(below)));
                let names: Vec<&str> = match *name {
                    "filesystem" => line.split(' ').collect(),
                    _ if element.is_empty() => Vec::new(),
                    _ => vec![*element],
                };
                numbers_of_elements(&value, &names, &mut own);
                check(remove_all(&mut own, &lost), "other values are lost");
                // The kernel may lack a line, so a missing line need not be marked.
                let is_marked = !incomplete.is_none() || (damage == "wrong" && lines.len() > 1);
                check(lost.is_empty() || is_marked, "not marked");
                damaged += 1;
                if incomplete.is_none() || incomplete == Incomplete::MISSING {
                    continue;
                }
                let place = place.unwrap_or_default();
                if element.is_empty() {
                    let path = format!("/{}", file.strip_prefix(&root).unwrap().display());
                    let line = |at: usize| place.contains(&format!(" line {}", at + 1));
                    let is_whole = incomplete == Incomplete::CUT && damage == "wrong";
                    let is_line = line(at) || below.is_some() && line(at + 1) || is_whole;
                    check(place.starts_with(&path) && is_line, &place);
                } else {
                    check(place.contains(*element) || place.contains("/proc/200/"), &place);
                }
            }
        }
        std::fs::write(&file, &text).unwrap();
    }
    assert!(failures.is_empty(), "{failures:#?}");
    assert!(damaged > 600, "{damaged}");
}
