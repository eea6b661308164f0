//! Reload and rotation during a run: unchanged sources are recorded without a gap, and a failed
//! reload changes nothing.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::rig::{CallResult, Rig, eventually, finish, number, signal};
use crate::test_disk::TestDisk;

/// Two sources with one period in one group, and the CPU budget; no test changes them.
const LOAD: &str = "[source.synthetic]\nenabled = true\nperiod = \"1ms\"\nbudget = \"100%\"\n\
     [source.softirqs]\nenabled = true\nperiod = \"1ms\"\nbudget = \"100%\"\n[recorder]\ncpu_budget = \"1000%\"\n";

/// A running recorder whose configuration can be changed, killed if the test fails.
struct Recording<'a> {
    rig: &'a Rig,
    data: PathBuf,
    child: Option<Child>,
}

impl<'a> Recording<'a> {
    fn start(rig: &'a Rig, data: PathBuf, config: &str) -> Self {
        let path = rig.write("reload.toml", config);
        let args =
            ["record", "--quiet", "--config", path.to_str().unwrap(), "--data-dir", data.to_str().unwrap()];
        let log = std::fs::File::create(rig.path("log")).unwrap();
        let child = rig.command(&args).stderr(log).spawn().unwrap();
        let recording = Self { rig, child: Some(child), data };
        eventually("frames on disk", || recording.bytes() > 400 << 10);
        recording
    }

    /// Returns how often the log contains this text so far.
    fn log_count(&self, what: &str) -> usize {
        std::fs::read_to_string(self.rig.path("log")).unwrap().matches(what).count()
    }

    /// Sends a signal and waits until the log confirms it.
    fn signal_and_await(&self, name: &str, what: &str) {
        let before = self.log_count(what);
        signal(self.child(), name);
        eventually(what, || self.log_count(what) > before);
    }

    fn child(&self) -> &Child {
        self.child.as_ref().unwrap()
    }

    fn configure(&self, config: &str) {
        // By rename, as an editor does, so that the recorder never reads half a file.
        let path = self.rig.write("reload.toml.new", config);
        std::fs::rename(path, self.rig.path("reload.toml")).unwrap();
    }

    /// Changes the configuration and waits until it is in effect.
    fn reload(&self, config: &str) {
        self.configure(config);
        self.signal_and_await("HUP", "INFO reloaded: ");
    }

    /// Waits until the number of running programs is as wanted.
    fn await_programs(&self, wanted: impl Fn(usize) -> bool) {
        let programs = || {
            let tasks = std::fs::read_dir(format!("/proc/{}/task", self.child().id())).unwrap().flatten();
            let children = tasks.map(|task| {
                let children = std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
                children.split_whitespace().count()
            });
            children.sum()
        };
        eventually("running programs", || wanted(programs()));
    }

    fn segments(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(&self.data).into_iter().flatten().flatten().map(|entry| entry.path());
        // A file that is being renamed may appear under both names.
        let name = |path: &PathBuf| path.to_str().unwrap().trim_end_matches(".active").to_owned();
        let mut paths: Vec<PathBuf> =
            entries.filter(|path| path.to_str().unwrap().contains(".bin")).collect();
        paths.sort();
        paths.dedup_by_key(|path| name(path));
        paths
    }

    fn bytes(&self) -> u64 {
        self.segments().iter().filter_map(|path| path.metadata().ok()).map(|metadata| metadata.len()).sum()
    }

    fn stop(mut self) -> CallResult {
        signal(self.child(), "TERM");
        let mut called = finish(self.child.take().unwrap());
        called.err = std::fs::read_to_string(self.rig.path("log")).unwrap();
        called.assert_no_panic();
        called
    }
}

impl Drop for Recording<'_> {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ended = child.kill();
            let _ended = child.wait();
        }
    }
}

/// Returns the sources of `info` by name; a name may have several.
fn sources(rig: &Rig, data: &Path) -> BTreeMap<String, Vec<Value>> {
    let info = rig.call(&["info", "--json", data.to_str().unwrap()]).json();
    let mut sources: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for source in info["sources"].as_array().unwrap() {
        sources.entry(source["name"].as_str().unwrap().to_owned()).or_default().push(source.clone());
    }
    sources
}

fn assert_intact(rig: &Rig, data: &Path) -> Value {
    let verify = rig.call(&["verify", "--json", data.to_str().unwrap()]).json();
    assert_eq!(
        (&verify["intact"], &verify["unexplained"]),
        (&Value::from(true), &Value::from(0)),
        "{verify}"
    );
    verify
}

/// Checks that the files contain every sequence number of this source from 0, in order, and returns
/// the count.
fn assert_contiguous(rig: &Rig, data: &Path, name: &str) -> u64 {
    let called = rig.call(&["dump", "--format", "jsonl", "--source", name, data.to_str().unwrap()]);
    let mut next = 0;
    for sample in called.lines() {
        assert_eq!(number(&sample["seq"]), next, "{name}");
        next += 1;
    }
    next
}

fn ticks(source: &Value) -> u64 {
    ["recorded", "lost", "missed"].iter().map(|key| number(&source[*key])).sum()
}

fn reloads(called: &CallResult) -> Vec<&str> {
    called.err.lines().filter_map(|line| Some(line.split_once("INFO reloaded: ")?.1)).collect()
}

// Proves that reloads under full load cost unchanged sources no sample and no tick, and changed
// ones no sample. Method: two sources of 1 kHz that stay, 20 reloads that change sources, groups
// and storage; the ticks of the two on one grid.
#[test]
fn twenty_reloads_under_load() {
    let changes = [
        "[source.disk]\nenabled = false\n",
        "[source.snmp]\nenabled = true\n[source.cpu]\nperiod = \"1ms\"\n",
        "[source.cpu]\nperiod = \"2ms\"\nbudget = \"50%\"\n[storage]\nsegment_age = \"5m\"\nsync = \"never\"\n",
        "[source.load]\nperiod = \"5ms\"\n[group.fast]\ntiming = \"spin\"\non_full = \"block\"\n[source.network]\nexclude = [\"lo\"]\n",
        "[source.command.x]\ncommand = [\"/bin/echo\", \"a 1\"]\nformat = \"pairs\"\nperiod = \"50ms\"\ntimeout = \"1m\"\n",
    ];
    let rig = Rig::new();
    let recording = Recording::start(&rig, rig.data(), LOAD);
    let reads = |path: &PathBuf| rig.call(&["info", "--attachment", "flatcap.toml", path.to_str().unwrap()]);
    let mut wanted = vec![String::new()];
    for round in 0..20 {
        let change = if round % 2 == 0 { changes[round / 2 % changes.len()] } else { changes[round % 3] };
        let change = if round % 7 == 6 { "" } else { change };
        if wanted.last().is_some_and(|last| last == change) {
            continue;
        }
        recording.reload(&format!("{LOAD}{change}"));
        wanted.push(change.to_owned());
    }
    let called = recording.stop();
    assert_eq!(called.status, Some(0), "{called:?}");
    assert_eq!(reloads(&called).len(), wanted.len() - 1, "{called:?}");
    assert!(wanted.len() > 15);
    let verify = assert_intact(&rig, &rig.data());
    assert_eq!(number(&verify["lost"]), 0, "{verify}");
    let sources = sources(&rig, &rig.data());
    let [synthetic, softirqs] = ["synthetic", "softirqs"].map(|name| {
        let [only] = sources[name].as_slice() else { panic!("{name} has changed its id: {sources:?}") };
        assert_eq!(assert_contiguous(&rig, &rig.data(), name), number(&only["recorded"]));
        only
    });
    assert!(ticks(synthetic).abs_diff(ticks(softirqs)) <= 1, "{synthetic} {softirqs}");
    assert!(sources["load"].len() > 1, "it moved between two groups");
    // One segment for each configuration, in order, each with its own.
    let segments = rig.segments("bin");
    assert_eq!(segments.len(), wanted.len());
    for (segment, change) in segments.iter().zip(&wanted) {
        let attached = reads(segment).text();
        let has = |line: &str| attached.lines().any(|found| found == line);
        assert_eq!(has("segment_age = \"5m\""), change.contains("segment_age"), "{segment:?}");
        assert_eq!(has("[source.command.x]"), change.contains("command.x"), "{segment:?}");
    }
}

// Proves that a configuration with mistakes changes nothing, and that keys that cannot change
// during a run are reported and left. Method: three mistakes; then a change with a key of each
// kind; then nothing new.
#[test]
fn mistakes_change_nothing() {
    let rig = Rig::new();
    let recording = Recording::start(&rig, rig.data(), LOAD);
    recording.configure(&format!(
        "{LOAD}[source.cpu]\nperiod = \"10\"\n[storage]\nnonsense = 1\nsync = \"now\"\n"
    ));
    recording.signal_and_await("HUP", "ERROR not reloaded");
    assert_eq!(recording.segments().len(), 1);
    recording.reload(&format!(
        "{LOAD}memory_max = \"100MiB\"\n[storage]\nchecksum = \"none\"\nretain_age = \"1d\"\n"
    ));
    recording.signal_and_await("HUP", "INFO reloaded: nothing has changed");
    let called = recording.stop();
    assert_eq!(called.status, Some(0), "{called:?}");
    let waits = "takes effect at the next start, not before: recorder.memory_max: 64MiB -> 100MiB; storage.checksum: xxh3 -> none";
    let warned = format!("WARN {waits}");
    for said in [
        "ERROR not reloaded, the old configuration stays in effect",
        "[source.cpu] period = \"10\"",
        "nonsense",
        "[storage] sync = \"now\"",
        &warned,
    ] {
        assert!(called.err.contains(said), "{said}: {called:?}");
    }
    let answers = [format!("storage.retain_age: 7d -> 1d; {waits}"), format!("nothing has changed; {waits}")];
    assert_eq!(reloads(&called), answers, "{called:?}");
    assert_eq!(rig.segments("bin").len(), 2);
    assert_intact(&rig, &rig.data());
}

// Proves that a source that cannot be opened with its new settings is read with those before, which
// the answer says, and that the next reload tries again.
#[test]
fn a_source_that_cannot_be_opened_again_is_kept() {
    let rig = Rig::new();
    let (file, away) = (rig.path("root/proc/softirqs"), rig.path("away"));
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(&file, std::fs::read("/proc/softirqs").unwrap()).unwrap();
    let load = format!("{LOAD}host_root = {:?}\n", rig.path("root").to_str().unwrap());
    let recording = Recording::start(&rig, rig.data(), &load);
    let slower = load.replace(
        "[source.softirqs]\nenabled = true\nperiod = \"1ms\"",
        "[source.softirqs]\nenabled = true\nperiod = \"2ms\"",
    );
    assert_ne!(slower, load);
    std::fs::rename(&file, &away).unwrap();
    recording.reload(&slower);
    std::fs::rename(&away, &file).unwrap();
    recording.reload(&slower);
    let called = recording.stop();
    assert_eq!(called.status, Some(0), "{called:?}");
    // The root has none of the sources that are on by default, either.
    let [refused, applied] = reloads(&called)[..] else { panic!("{called:?}") };
    let kept = "softirqs: /proc/softirqs: No such file or directory (os error 2); it is read with the settings before";
    assert!(refused.starts_with("nothing has changed; ") && refused.contains(kept), "{refused}");
    assert!(applied.starts_with("softirqs: period 1ms -> 2ms; ") && !applied.contains(kept), "{applied}");
    assert!(assert_contiguous(&rig, &rig.data(), "softirqs") > 0);
    assert_eq!(sources(&rig, &rig.data())["softirqs"].len(), 1);
    assert_intact(&rig, &rig.data());
}

// Proves that reloads are limited to one per second, and that the last configuration wins. Method:
// 300 signals at 100 per second while the configuration changes.
#[test]
fn a_hundred_hangups_a_second() {
    let rig = Rig::new();
    let recording = Recording::start(&rig, rig.data(), LOAD);
    let age = |seconds: u32| format!("{LOAD}[storage]\nsegment_age = \"{seconds}s\"\n");
    let begin = Instant::now();
    for round in 0..300 {
        recording.configure(&age(1000 + round));
        signal(recording.child(), "HUP");
        std::thread::sleep(Duration::from_millis(10));
    }
    recording.configure(&age(5000));
    signal(recording.child(), "HUP");
    let last_has = |line: &str| {
        let last = recording.segments().pop().unwrap();
        let called = rig.call(&["info", "--attachment", "flatcap.toml", last.to_str().unwrap()]);
        called.status == Some(0) && called.text().contains(line)
    };
    eventually("the last configuration", || last_has("segment_age = \"5000s\""));
    let called = recording.stop();
    let most = begin.elapsed().as_secs() as usize + 2;
    assert_eq!(called.status, Some(0), "{called:?}");
    let count = reloads(&called).len();
    assert!((2..=most).contains(&count), "{count} reloads, {most} at most: {called:?}");
    assert_eq!(number(&assert_intact(&rig, &rig.data())["lost"]), 0);
    assert_contiguous(&rig, &rig.data(), "synthetic");
}

// Proves that a program that runs while its source is reopened or removed may finish: its sample is
// recorded complete, under its own number. Method: a program that sleeps for less than a reload
// waits.
#[test]
fn a_running_program_may_finish() {
    let rig = Rig::new();
    let slow = |period: &str| {
        format!(
            "{LOAD}[source.command.slow]\ncommand = [\"/bin/sh\", \"-c\", \"sleep 0.4; echo a 1\"]\nformat = \"pairs\"\nperiod = \"{period}\"\n"
        )
    };
    let recording = Recording::start(&rig, rig.data(), &slow("1s"));
    recording.await_programs(|count| count > 0);
    recording.reload(&slow("2s"));
    recording.await_programs(|count| count == 0);
    recording.await_programs(|count| count > 0);
    recording.reload(LOAD);
    recording.await_programs(|count| count == 0);
    let called = recording.stop();
    assert_eq!(called.status, Some(0), "{called:?}");
    assert_eq!(reloads(&called), ["command.slow: period 1s -> 2s", "command.slow: off"]);
    assert_eq!(number(&assert_intact(&rig, &rig.data())["lost"]), 0);
    let sources = sources(&rig, &rig.data());
    let [slow] = sources["command.slow"].as_slice() else { panic!("it has changed its id: {sources:?}") };
    assert_eq!(number(&slow["incomplete"]), 0, "each sample is complete: {slow}");
    let recorded = assert_contiguous(&rig, &rig.data(), "command.slow");
    assert!(recorded >= 2 && recorded == number(&slow["recorded"]), "{slow}");
}

// Proves that a source with a hung program is removed all the same: the program is killed after a
// second, and its sample is lost and explained.
#[test]
fn a_hung_program_is_killed() {
    let rig = Rig::new();
    let hung =
        "[source.command.hung]\ncommand = [\"/bin/sleep\", \"911\"]\nformat = \"pairs\"\ntimeout = \"1m\"\n";
    let recording = Recording::start(&rig, rig.data(), &format!("{LOAD}{hung}"));
    recording.await_programs(|count| count > 0);
    recording.reload(LOAD);
    recording.await_programs(|count| count == 0);
    let called = recording.stop();
    assert_eq!(called.status, Some(3), "a sample is lost: {called:?}");
    assert_eq!(reloads(&called), ["command.hung: off"]);
    let verify = assert_intact(&rig, &rig.data());
    assert_eq!(number(&verify["lost"]), 1, "{verify}");
    let hung = &sources(&rig, &rig.data())["command.hung"][0];
    assert_eq!((number(&hung["lost"]), hung["lost_causes"].as_str()), (1, Some("timed_out")), "{hung}");
    assert_contiguous(&rig, &rig.data(), "synthetic");
}

// Proves that a reload on a full disk is refused with the reason and changes nothing, and that it
// succeeds once there is space. Method: a small tmpfs with a ballast file, one more source.
#[test]
fn a_full_disk_refuses_a_reload() {
    let rig = Rig::new();
    let Some(disk) = TestDisk::tmpfs(&rig, 8 << 20) else { return };
    let (data, ballast) = (disk.path().join("data"), disk.path().join("ballast"));
    let storage = "[storage]\npreallocate = \"0\"\nsegment_size = \"4MiB\"\nretain_bytes = \"64MiB\"\nmin_free = \"0%\"\n";
    let recording = Recording::start(&rig, data.clone(), &format!("{LOAD}{storage}"));
    // All free space; the open segment keeps the space that it has reserved.
    let mut filler = std::fs::File::create(&ballast).unwrap();
    while std::io::Write::write_all(&mut filler, &[1; 4096]).is_ok() {}
    let segments = recording.segments().len();
    recording.configure(&format!("{LOAD}{storage}[source.snmp]\nenabled = true\n"));
    recording.signal_and_await("HUP", "ERROR not reloaded");
    recording.signal_and_await("USR1", "ERROR not rotated");
    assert_eq!(recording.segments().len(), segments, "neither a reload nor a rotation");
    drop(filler);
    std::fs::remove_file(&ballast).unwrap();
    recording.reload(&format!("{LOAD}{storage}[source.snmp]\nenabled = true\n"));
    let called = recording.stop();
    assert!(
        called
            .err
            .contains("ERROR not reloaded, the old configuration stays in effect: cannot create a segment"),
        "{called:?}"
    );
    assert!(called.err.contains("ERROR not rotated: cannot create a segment"), "{called:?}");
    assert_eq!(reloads(&called), ["snmp: on"], "{called:?}");
    assert_intact(&rig, &data);
}

// Proves that a signal begins a new segment and costs no sample: three signals, each awaited.
#[test]
fn a_signal_rotates() {
    let rig = Rig::new();
    let recording = Recording::start(&rig, rig.data(), LOAD);
    let length =
        || recording.segments().pop().and_then(|path| path.metadata().ok()).map_or(0, |file| file.len());
    for _ in 0..3 {
        recording.signal_and_await("USR1", "INFO rotated: ");
        // A segment without a sample would not be sealed.
        let header = length();
        eventually("samples in it", || length() > header + (16 << 10));
    }
    let called = recording.stop();
    assert_eq!(called.status, Some(0), "{called:?}");
    assert!(called.err.contains("INFO rotated: segment 0 is sealed, segment 1 is open"), "{called:?}");
    assert_eq!(rig.segments("bin").len(), 4);
    assert_eq!(number(&assert_intact(&rig, &rig.data())["lost"]), 0);
    assert_contiguous(&rig, &rig.data(), "synthetic");
}

/// Returns the times and values of `cpu.total.user`: in whole samples, or in rows of the field.
fn user_times(rig: &Rig, is_field: bool, args: &[&str]) -> Vec<(i64, u64)> {
    let select = if is_field { ["--fields", "cpu.total.user"] } else { ["--source", "cpu"] };
    let call = rig.call(&[&["dump", "--format", "jsonl"][..], &select, args].concat());
    assert_eq!(call.status, Some(0), "{call:?}");
    let value = |row: &Value| {
        let value = if is_field { &row["cpu.total.user"] } else { &row["data"]["total"]["user"] };
        (row["wall_ns"].as_i64().unwrap(), number(value))
    };
    call.lines().iter().map(value).collect()
}

// Proves that a source that reloads move to another group, and turn off and on again, is read whole
// by field: all of it, from any time on, and each segment alone. Method: comparison with whole
// samples.
#[test]
fn a_source_that_moves_is_read_whole() {
    let rig = Rig::new();
    let with = |cpu: &str| format!("{LOAD}[source.cpu]\n{cpu}\n");
    let recording = Recording::start(&rig, rig.data(), &with("period = \"5ms\""));
    let recorded = |place: usize| {
        let sources = sources(&rig, &rig.data());
        sources.get("cpu").and_then(|all| all.get(place)).map_or(0, |own| number(&own["recorded"]))
    };
    let await_samples = |place: usize| eventually("samples of the source", || recorded(place) > 3);
    await_samples(0);
    recording.reload(&with("period = \"50ms\""));
    await_samples(1);
    recording.reload(&with("enabled = false"));
    recording.reload(&with("period = \"5ms\""));
    await_samples(2);
    let segments = recording.segments();
    assert_eq!(recording.stop().status, Some(0));
    assert_intact(&rig, &rig.data());
    let data = rig.data();
    let all = user_times(&rig, false, &[data.to_str().unwrap()]);
    assert_eq!(user_times(&rig, true, &[data.to_str().unwrap()]), all);
    for at in [1, all.len() / 3, all.len() / 2, all.len() - 2] {
        let since = all[at].0.to_string();
        let args = [data.to_str().unwrap(), "--since", &since];
        assert_eq!(user_times(&rig, true, &args), all[at..], "since {at}");
    }
    assert!(segments.len() > 2, "{segments:?}");
    for segment in rig.segments("bin") {
        let args = [segment.to_str().unwrap()];
        let own = rig.call(&["dump", args[0], "--source", "cpu", "--format", "jsonl"]);
        if own.lines().is_empty() {
            continue;
        }
        assert_eq!(user_times(&rig, true, &args), user_times(&rig, false, &args), "{segment:?}");
    }
}
