//! Every number of `spikes` and `explain` is one that `dump` prints.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use flatcap_format::segment::{SealState, SourceInfo, SourceKind};
use flatcap_format::testing::effort;
use serde_json::Value;

use crate::explaining::{
    Activity, SAMPLES, payload, payload_without, process, process_source, write_samples, write_segment,
};
use crate::rig::Rig;

/// Numbers by a seed.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
        (self.0 >> 33) % end
    }
}

/// The processes of each sample, and the parents of those that ended before it.
type Samples = Vec<(Vec<Activity>, Vec<u64>)>;

/// The samples of a host, and the number of processes that each of them leaves out.
type RandomHost = (Samples, Vec<u64>);

/// A host on which anything may happen: bursts of every kind, processes that begin, sleep, wait,
/// end and are missing in samples, and bytes that ended children leave to their parents.
fn random_host(seed: u64) -> RandomHost {
    let mut random = Random(seed);
    let names = ["api", "batch", "cron", "db", "edge"];
    let mut living: Vec<Activity> = Vec::new();
    let mut next_pid = 100;
    let mut begin = |living: &mut Vec<Activity>, random: &mut Random, now: u64| {
        next_pid += 1;
        let count = living.len() as u64;
        let parent =
            if count > 0 && random.below(2) == 0 { living[random.below(count) as usize].pid } else { 1 };
        let mut new = process(next_pid, names[random.below(5) as usize], random.below(5));
        (new.parent, new.resident_size) = (parent, random.below(300) << 20);
        new.start = (now * 10).saturating_sub(random.below(10));
        living.push(new);
    };
    for _ in 0..6 {
        begin(&mut living, &mut random, 0);
    }
    let mut bursts: Vec<(u64, u64)> = Vec::new();
    let (mut samples, mut left_out) = (Vec::new(), Vec::new());
    for sample in 0..SAMPLES {
        let mut ended = Vec::new();
        if random.below(25) == 0 && living.len() < 40 {
            for _ in 0..=random.below(4) {
                begin(&mut living, &mut random, sample);
            }
        }
        if random.below(40) == 0 && living.len() > 4 {
            let gone = living.remove(random.below(living.len() as u64) as usize);
            ended.push(gone.parent);
            if let Some(parent) = living.iter_mut().find(|other| other.pid == gone.parent) {
                parent.written += gone.written;
            }
        }
        if random.below(15) == 0 {
            let at = random.below(living.len() as u64) as usize;
            bursts.push((living[at].pid, 1 + random.below(12)));
        }
        bursts.retain_mut(|(_, left)| {
            *left = left.saturating_sub(1);
            *left > 0
        });
        for own in &mut living {
            let is_busy = bursts.iter().any(|(pid, _)| *pid == own.pid);
            own.user_time += if is_busy { 5 + random.below(6) } else { random.below(30) / 29 };
            own.written += if is_busy && own.pid % 3 == 0 { random.below(60) << 20 } else { 0 };
            own.state = match random.below(if is_busy { 4 } else { 40 }) {
                0 => "R",
                1 => "D",
                2 if own.pid % 7 == 0 => "Z",
                _ if is_busy => "R",
                _ => "S",
            };
            if is_busy && own.pid % 4 == 0 {
                own.resident_size += random.below(64) << 20;
            }
            // A wait is counted when it ends.
            if random.below(60) == 0 {
                own.wait_time += random.below(900) * 1_000_000;
            }
        }
        let mut shown = living.clone();
        shown.retain(|_| random.below(12) != 0);
        left_out.push((living.len() - shown.len()) as u64);
        samples.push((shown, ended));
    }
    (samples, left_out)
}

/// Runs the command of a number, and returns its rows: their wall times, and their last column.
fn dumped(rig: &Rig, measured: &Value) -> Vec<(i64, String, String)> {
    let command = measured["dump"].as_str().unwrap();
    let rest = command.strip_prefix("flatcap ").unwrap();
    let shell = format!("{} {rest}", env!("CARGO_BIN_EXE_flatcap"));
    let output = Command::new("sh").args(["-c", &shell]).current_dir(rig.path("")).output().unwrap();
    assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
    let mut rows = csv::Reader::from_reader(output.stdout.as_slice());
    rows.records()
        .map(|row| {
            let row = row.unwrap();
            let wall_ns = row[1].parse().unwrap();
            (wall_ns, row[2].to_owned(), row[row.len() - 1].to_owned())
        })
        .collect()
}

fn assert_equal(value: f64, expected: f64, what: &Value) {
    let is_equal = (value - expected).abs() <= 1e-6 * expected.abs().max(1e-6);
    assert!(is_equal, "{value} is not {expected}: {what}");
}

/// Compares a number with what its command prints.
fn check(rig: &Rig, shown: &Value, pid: Option<u64>) {
    let measured = &shown["measured"];
    assert!(measured.is_object(), "{shown}");
    let rows = dumped(rig, measured);
    let value = shown["value"].as_f64().unwrap();
    let percent = if shown["unit"] == "percent" { 100.0 } else { 1.0 };
    let (from, until) =
        (measured["from_wall_ns"].as_i64().unwrap(), measured["until_wall_ns"].as_i64().unwrap());
    let seconds = (until - 1 - from) as f64 / 1e9;
    let is_limited = measured["is_limited"] == true;
    let field = shown["field"].as_str().unwrap();
    match measured["shown"].as_str().unwrap() {
        "samples" if field.ends_with("[*]") => {
            let parent = pid.unwrap().to_string();
            let of = |is_wanted: &dyn Fn(i64) -> bool| -> BTreeSet<String> {
                let own = rows.iter().filter(|(wall_ns, _, last)| is_wanted(*wall_ns) && *last == parent);
                own.map(|(_, element, _)| element.clone()).collect()
            };
            let is_exits = field.starts_with("exits");
            let before = if is_exits { BTreeSet::new() } else { of(&|wall_ns| wall_ns <= from) };
            let new = of(&|wall_ns| wall_ns > from).difference(&before).count();
            assert_equal(value, new as f64 / seconds, shown);
        }
        "samples" => {
            let state = field.rsplit_once('=').unwrap().1;
            let has = |text: &str| text == state || (state == "R or D" && (text == "R" || text == "D"));
            let count = rows.iter().filter(|(.., text)| has(text)).count();
            assert_equal(value, 100.0 * count as f64 / rows.len() as f64, shown);
        }
        shape => {
            assert_eq!(rows.len(), 1, "{shown}");
            let printed: f64 = rows[0].2.parse().unwrap();
            // A count of a new element is printed in the unit of its schema.
            let unit = match shown["field_unit"].as_str() {
                Some("jiffies") => 0.01,
                Some("ns") => 1e-9,
                _ => 1.0,
            };
            let printed = if shape == "last" { printed * unit * percent / seconds } else { printed };
            if is_limited {
                assert!(printed > 100.0, "{printed}: {shown}");
                assert_equal(value, 100.0, shown);
            } else {
                assert_equal(value, printed, shown);
            }
        }
    }
}

fn record((samples, left_out): &RandomHost) -> Rig {
    let rig = Rig::new();
    std::fs::create_dir_all(rig.path("flatcap-data")).unwrap();
    write_samples(&rig.path("flatcap-data"), ("db1", 1), vec![process_source(0, "process")], |sample| {
        let at = sample as usize;
        vec![payload_without(&samples[at], sample, left_out[at])]
    });
    rig
}

fn explained(rig: &Rig, at: &str) -> Value {
    rig.call(&["explain", "flatcap-data", "--at", at, "--json", "--limit", "100"]).json()
}

fn pid_of(element: &Value) -> Option<u64> {
    element.as_str()?.rsplit_once('[')?.1.strip_suffix(']')?.parse().ok()
}

// Proves that `dump` prints each number of `spikes` and `explain` for the same field, element and
// time. A sum of children is the sum of its parts. Each suspect has the departures of its role.
// Method: random hosts.
#[test]
fn numbers_are_those_of_dump() {
    let mut numbers = 0;
    for seed in 0..effort::of(6, 200) {
        let rig = record(&random_host(seed + 1));
        let spikes = rig.call(&["spikes", "flatcap-data", "--json", "--limit", "20"]).json();
        for spike in spikes.as_array().unwrap() {
            check(&rig, spike, pid_of(&spike["element"]));
            numbers += 1;
        }
        let mut times: Vec<String> = (0..2).map(|at| spikes[at]["wall_ns"].to_string()).collect();
        times.retain(|time| time != "null");
        times.push(format!("+{}ms", 8_000 + seed * 97 % 20_000));
        for at in times {
            let found = explained(&rig, &at);
            for suspect in found["suspects"].as_array().unwrap() {
                let own = suspect["evidence"].as_array().unwrap();
                let children = suspect["children"].as_array().unwrap();
                assert!(!(own.is_empty() && children.is_empty()), "{suspect}");
                for evidence in own {
                    let is_less = suspect["role"] == "used_less" && evidence.get("state").is_none();
                    let is_more = evidence["value"].as_f64() > evidence["usual"].as_f64();
                    assert_ne!(is_more, is_less, "{suspect}");
                    let state = evidence["field"].as_str().unwrap().rsplit_once("state=");
                    assert!(state.is_none_or(|(_, state)| !["S", "Z"].contains(&state)), "{evidence}");
                    assert_eq!(suspect["pid"].as_u64(), pid_of(&evidence["element"]), "its own: {suspect}");
                    check(&rig, evidence, suspect["pid"].as_u64());
                    numbers += 1;
                }
                for child in children {
                    let parts = child["parts"].as_array().unwrap();
                    let sum: f64 = parts.iter().map(|part| part["value"].as_f64().unwrap()).sum();
                    assert_equal(child["sum"].as_f64().unwrap(), sum, child);
                    for part in parts {
                        check(&rig, part, pid_of(&part["element"]));
                        numbers += 1;
                    }
                }
            }
        }
    }
    assert!(numbers > 40, "{numbers}");
}

/// A device with counters of an application.
#[derive(Clone, Copy)]
struct Device {
    id: u64,
    count: u64,
    wrapping: u64,
    /// Samples for which it is busy, and for which it is not there.
    busy: u64,
    gone: u64,
}

/// At this value the counter of a device begins again at 0.
const DEVICE_RANGE: u64 = 5_000;

/// The devices of each sample: they are busy at times, disappear and return with other values, and
/// are reset.
fn random_devices(seed: u64) -> Vec<Vec<Device>> {
    let mut random = Random(seed);
    let mut all: Vec<Device> =
        (1..=3).map(|id| Device { id, count: id * 1000, wrapping: id * 77, busy: 0, gone: 0 }).collect();
    let step = |random: &mut Random, device: &mut Device, is_late: bool| {
        device.gone = device.gone.saturating_sub(1);
        device.busy = device.busy.saturating_sub(1);
        if is_late && random.below(20) == 0 {
            device.busy = 2 + random.below(8);
        }
        if is_late && random.below(30) == 0 {
            device.gone = 1 + random.below(6);
            // The one that returns is another device.
            (device.count, device.wrapping) = (random.below(9000), random.below(DEVICE_RANGE));
        }
        let grown = if device.busy > 0 { 300 + random.below(900) } else { random.below(3) };
        device.count += grown;
        device.wrapping = (device.wrapping + grown) % DEVICE_RANGE;
        match random.below(if is_late { 40 } else { 4_000_000 }) {
            0 => device.count = random.below(50),
            // A correction by less than a hundredth.
            1 => device.count -= device.count / 200,
            _ => {}
        }
    };
    (0..SAMPLES)
        .map(|sample| {
            for device in &mut all {
                step(&mut random, device, sample > 100);
            }
            all.iter().copied().filter(|device| device.gone == 0).collect()
        })
        .collect()
}

/// Returns the payload of a sample of `counters`.
fn device_payload(devices: &[Device]) -> Vec<u8> {
    let mut builder = flatbuffers::FlatBufferBuilder::new();
    let words: Vec<u64> = devices
        .iter()
        .flat_map(|device| {
            // Whatever this test says nothing about is absent.
            let mut words = [u64::MAX; 10];
            (words[0], words[1], words[4], words[5]) =
                (device.id, device.count, DEVICE_RANGE, device.wrapping);
            words
        })
        .collect();
    builder.start_vector::<u64>(words.len());
    for word in words.iter().rev() {
        builder.push(*word);
    }
    let list = builder.end_vector::<u64>(devices.len());
    let table = builder.start_table();
    builder.push_slot_always(6, list);
    let table = builder.end_table(table);
    builder.finish_minimal(table);
    let mut bytes = builder.finished_data().to_vec();
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    bytes
}

// Proves that `dump` prints the same change per second of counters that wrap, are reset or
// corrected, and of elements that disappear and return. Method: random devices of an application.
#[test]
fn rates_follow_the_rule_of_dump() {
    let mut numbers = 0;
    for seed in 0..effort::of(6, 200) {
        let samples = random_devices(seed + 1);
        let rig = Rig::new();
        std::fs::create_dir_all(rig.path("flatcap-data")).unwrap();
        let source = SourceInfo {
            root: "flatcap.test.Counters".into(),
            schema: include_bytes!("../data/schema/counters.bfbs").to_vec(),
            kind: SourceKind::Imported,
            ..process_source(0, "counters")
        };
        write_samples(&rig.path("flatcap-data"), ("db1", 1), vec![source], |sample| {
            vec![device_payload(&samples[sample as usize])]
        });
        let spikes = rig.call(&["spikes", "flatcap-data", "--json", "--limit", "20"]).json();
        let mut shown: Vec<Value> = spikes.as_array().unwrap().clone();
        for at in 0..10 {
            let found = explained(&rig, &format!("+{}ms", 15_000 + at * 1_300 + seed * 131 % 1_000));
            shown.extend(found["fields"].as_array().unwrap().iter().cloned());
        }
        for own in shown.iter().filter(|own| own["measured"]["shown"] == "rate") {
            check(&rig, own, None);
            numbers += 1;
        }
    }
    assert!(numbers > 15, "{numbers}");
}

const MIB: u64 = 1 << 20;

/// A grandchild writes evenly below two shells; then all end at once, and the shells have its
/// bytes.
fn nested(sample: u64) -> (Vec<Activity>, Vec<u64>) {
    let end = 240;
    let written = sample.clamp(120, end) - 120;
    let shell = |pid, parent| Activity { parent, ..process(pid, "bash", 3) };
    let outer = Activity { written: if sample > end { written * 16 * MIB } else { 0 }, ..shell(50, 1) };
    if sample > end {
        return (vec![outer], if sample == end + 1 { vec![51, 50] } else { Vec::new() });
    }
    let reader = Activity { parent: 51, written: written * 16 * MIB, ..process(52, "python3", 1) };
    let shown = if sample < 120 { vec![outer, shell(51, 50)] } else { vec![outer, shell(51, 50), reader] };
    (shown, Vec::new())
}

/// A shell waits for a child that no sample has seen, and has its bytes.
fn unseen(sample: u64) -> (Vec<Activity>, Vec<u64>) {
    let written = if sample >= 200 { 600 * MIB } else { 0 };
    let shell = Activity { written, ..process(50, "bash", 3) };
    (vec![shell, process(60, "other", 1)], if sample == 200 { vec![50] } else { Vec::new() })
}

// Proves that `spikes` and `explain` never count the bytes of ended processes as a rate of their
// ancestors, even if a process between them ended too, or if no sample has the ended process.
#[test]
fn inherited_bytes_are_no_rate() {
    for (scene, at) in [(nested as fn(u64) -> _, "+24100ms"), (unseen, "+20000ms")] {
        let rig = record(&((0..SAMPLES).map(scene).collect(), vec![0; SAMPLES as usize]));
        let spikes = rig.call(&["spikes", "flatcap-data", "--json"]).json();
        let has_shell = |list: &Value, key: &str| {
            let names = list.as_array().unwrap().iter().map(|own| own[key].as_str().unwrap_or_default());
            names.filter(|name| name.starts_with("bash")).count() > 0
        };
        assert!(!has_shell(&spikes, "element"), "{spikes}");
        let found = explained(&rig, at);
        assert!(!has_shell(&found["suspects"], "name"), "{found}");
    }
}

/// A process that always runs falls asleep; another one becomes a zombie without memory.
fn ending(sample: u64) -> (Vec<Activity>, Vec<u64>) {
    let is_over = sample >= 200;
    let ran = sample.min(200);
    let tired = Activity { state: if is_over { "S" } else { "R" }, ..process(20, "tired", ran * 10) };
    let (state, resident_size) = if is_over { ("Z", 0) } else { ("R", 800 * MIB) };
    let dead = Activity { state, resident_size, ..process(21, "dead", ran * 10) };
    (vec![tired, dead, process(22, "idle", 1)], Vec::new())
}

// Proves that a process that falls asleep, ends, or frees its memory is listed as one that used
// less, and never as one that used more.
#[test]
fn who_sleeps_or_ends_is_no_suspect() {
    let rig = record(&((0..SAMPLES).map(ending).collect(), vec![0; SAMPLES as usize]));
    for at in ["+20100ms", "+20400ms", "+21000ms"] {
        let found = explained(&rig, at);
        let suspects = found["suspects"].as_array().unwrap();
        assert!(!suspects.is_empty() && suspects.iter().all(|own| own["role"] == "used_less"), "{found}");
    }
    let spikes = rig.call(&["spikes", "flatcap-data", "--json"]).text();
    assert!(!spikes.contains("state=S") && !spikes.contains("state=Z"), "{spikes}");
}

/// A parent begins five children, each with 60 MiB.
fn starting(sample: u64) -> (Vec<Activity>, Vec<u64>) {
    let mut all = vec![process(20, "parent", 1), process(22, "idle", 1)];
    if sample >= 200 {
        all.extend((30..35).map(|pid| Activity {
            parent: 20,
            resident_size: 60 * MIB,
            start: 1995,
            ..process(pid, "child", (sample - 199) * 2)
        }));
    }
    (all, Vec::new())
}

// Proves that the use of new children is printed as a sum, apart from the parent's own use.
#[test]
fn children_are_shown_apart() {
    let rig = record(&((0..SAMPLES).map(starting).collect(), vec![0; SAMPLES as usize]));
    let found = explained(&rig, "+20300ms");
    let parent = found["suspects"].as_array().unwrap().iter().find(|own| own["pid"] == 20).unwrap();
    assert_eq!(parent["evidence"], Value::Array(Vec::new()), "it did nothing: {parent}");
    let memory = parent["children"].as_array().unwrap().iter();
    let memory = memory.clone().find(|own| own["field"] == "processes[*].resident_size").unwrap();
    assert_eq!((&memory["count"], memory["sum"].as_f64()), (&5.into(), Some((300 * MIB) as f64)));
    let text = rig.call(&["explain", "flatcap-data", "--at", "+20300ms"]).text();
    assert!(text.contains("+ 5 new children") && text.contains("300 MiB"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
}

/// A wait of 400 ms that ends within one sample.
fn waiting(sample: u64) -> (Vec<Activity>, Vec<u64>) {
    let wait_time = if sample >= 200 { 400_000_000 } else { 0 };
    (vec![Activity { wait_time, ..process(20, "waiter", 1) }, process(22, "idle", 1)], Vec::new())
}

// Proves that one thread waits for at most all of the time: a wait that is counted when it ends is
// measured over as long as it took.
#[test]
fn a_wait_is_at_most_all_of_the_time() {
    let rig = record(&((0..SAMPLES).map(waiting).collect(), vec![0; SAMPLES as usize]));
    let found = explained(&rig, "+20000ms");
    let wait = &found["suspects"][0]["evidence"][0];
    assert_eq!(wait["field"], "processes[*].wait_time", "{found}");
    assert_equal(wait["value"].as_f64().unwrap(), 100.0, wait);
    check(&rig, wait, None);
}

/// Returns a source of processes that a program pushes.
fn pushed_source() -> SourceInfo {
    let label = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let labels = vec![label("client", "rig"), label("executable", "/usr/bin/python3"), label("uid", "65534")];
    SourceInfo { kind: SourceKind::Host, labels, ..process_source(1, "innocent") }
}

/// Records a host, on which a program may push a process table of its own, with a process that
/// takes eight cores.
fn with_pushed(folder: &Path, seed: u64, is_pushed: bool) {
    let ((host, left_out), (other, _)) = (random_host(seed), random_host(seed + 1000));
    let pushed = pushed_source();
    let mut sources = vec![process_source(0, "process")];
    sources.extend(is_pushed.then_some(pushed));
    write_samples(folder, ("db1", 1), sources, |sample| {
        let own = payload_without(&host[sample as usize], sample, left_out[sample as usize]);
        let (mut spoofed, _) = other[sample as usize].clone();
        spoofed.push(Activity {
            state: "R",
            ..process(4711, "postgres", 80 * sample.saturating_sub(200).min(20))
        });
        let spoofed = payload(&(spoofed, vec![host[0].0[0].pid; 40]), sample);
        if is_pushed { vec![own, spoofed] } else { vec![own] }
    });
}

// Proves that a process table that a program pushes changes no suspect of the host, and that its
// values are shown with the program and its user. Method: random hosts, with the table and without.
#[test]
fn pushed_processes_are_no_processes_of_the_host() {
    // The page's tests have more seeds: what they ask for costs no process.
    for seed in 0..effort::of(2, 20) {
        let suspects = |is_pushed| {
            let rig = Rig::new();
            std::fs::create_dir_all(rig.path("flatcap-data")).unwrap();
            with_pushed(&rig.path("flatcap-data"), seed + 1, is_pushed);
            let found = explained(&rig, "+20900ms");
            let spikes = rig.call(&["spikes", "flatcap-data", "--json", "--limit", "50"]).json();
            let text = rig.call(&["explain", "flatcap-data", "--at", "+20900ms"]).text();
            (found, spikes, text)
        };
        let ((alone, ..), (found, spikes, text)) = (suspects(false), suspects(true));
        assert_eq!(found["suspects"], alone["suspects"], "seed {seed}");
        let all = found["fields"].as_array().unwrap().iter().chain(spikes.as_array().unwrap());
        let mut pushed = 0;
        for shown in all.filter(|shown| shown["source"] == "innocent") {
            let sender = &shown["pushed_by"][0];
            assert_eq!((&sender["client"], &sender["user"]), (&"rig".into(), &"65534".into()), "{shown}");
            assert_eq!(sender["program"], "/usr/bin/python3");
            pushed += 1;
        }
        assert!(pushed > 0, "seed {seed}");
        assert!(text.contains("pushed by rig (user 65534, /usr/bin/python3)"), "{text}");
    }
}

// Proves that while a segment is written, verbs see a source that was added to it, as pushed ones
// are, whether they name it or not.
#[test]
fn sources_that_are_added_are_seen() {
    let rig = Rig::new();
    std::fs::create_dir_all(rig.path("flatcap-data")).unwrap();
    let sources = (vec![process_source(0, "process")], vec![pushed_source()]);
    write_segment(&rig.path("flatcap-data"), ("db1", 1), sources, SealState::Active, |sample| {
        let all = (vec![process(20, "steady", 1)], Vec::new());
        let pushed = (vec![process(30, "worker", sample.saturating_sub(200).min(9) * 10)], Vec::new());
        vec![payload(&all, sample), payload(&pushed, sample)]
    });
    let fields = rig.call(&["fields", "flatcap-data", "innocent"]);
    assert_eq!(fields.status, Some(0), "{}", fields.err);
    assert!(rig.call(&["dump", "flatcap-data"]).text().contains("innocent"));
    let spikes = rig.call(&["spikes", "flatcap-data", "--source", "innocent", "--json"]).json();
    assert_eq!(spikes[0]["source"], "innocent", "{spikes}");
    let found = explained(&rig, &spikes[0]["wall_ns"].to_string());
    assert_eq!(found["fields"][0]["source"], "innocent", "{found}");
}

// Proves that an explanation states how much was recorded before, and that nothing is ranked if
// that is too little.
#[test]
fn a_short_time_before_is_stated() {
    let computing = (0..SAMPLES).map(crate::explaining::computing).collect();
    let rig = record(&(computing, vec![0; SAMPLES as usize]));
    let text = rig.call(&["explain", "flatcap-data", "--at", "+5s"]).text();
    assert!(text.contains("against 2.85s before") && text.contains("nothing is ranked"), "{text}");
    let found = explained(&rig, "+5s");
    assert_eq!((&found["baseline"]["is_too_short"], &found["ranked"]), (&true.into(), &0.into()), "{found}");
    assert_eq!(found["suspects"], Value::Array(Vec::new()));
    let later = explained(&rig, "+20500ms");
    assert_eq!(later["baseline"]["is_too_short"], false);
    assert_eq!(later["suspects"][0]["pid"], 812);
}
