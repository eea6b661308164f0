//! What sampling does beside reading: budgets, patterns, and what it says of both.

use std::time::{Duration, Instant};

use flatcap::segment::{Advance, FrameKind, Marker, SegmentReader};

use crate::rig::{Rig, eventually, finish, has_segment, number, signal};

/// What all markers of a rig's recording say.
fn markers(rig: &Rig) -> Vec<String> {
    let mut texts = Vec::new();
    for path in rig.segments("bin") {
        let mut reader = SegmentReader::open(&path).unwrap();
        while let Some(Advance::Frame(at)) = reader.advance().unwrap() {
            if at.kind == FrameKind::Marker {
                texts.push(Marker::decode(reader.payload(at)).unwrap().text);
            }
        }
    }
    texts
}

// Goal: a source beyond its budget is read on every so-manieth tick, those left out count as missed, the change is in the
// file and is said at the end; others keep their periods. Method: 0.01 % of a core for a source that takes more.
#[test]
fn a_budget_lengthens_the_period() {
    let rig = Rig::new();
    let config = rig.write(
        "budget.toml",
        "[source.memory]\nperiod = \"1ms\"\nbudget = \"0.01%\"\n[source.load]\nperiod = \"20ms\"\n",
    );
    let config = config.to_str().unwrap();
    let called = rig.record(&["--config", config, "--source", "memory", "--source", "load", "--for", "4s"]);
    let info = rig.info();
    let source = |name: &str| {
        let sources = info["sources"].as_array().unwrap();
        sources.iter().find(|source| source["name"] == name).unwrap().clone()
    };
    let (memory, load) = (source("memory"), source("load"));
    let [recorded, missed] = ["recorded", "missed"].map(|key| number(&memory[key]));
    assert!(missed > recorded, "{memory}");
    assert!((3800..=4100).contains(&(recorded + missed)), "{memory}");
    assert!(number(&load["recorded"]) > 150, "{load}");
    let texts = markers(&rig);
    assert!(texts.iter().any(|text| text.starts_with("memory: one period in ")), "{texts:?}");
    assert!(texts.iter().all(|text| text.starts_with("memory: ")), "{texts:?}");
    assert!(called.err.contains("memory: was read every "), "{}", called.err);
    let dumped = rig.call(&["dump", "flatcap-data", "--source", "load"]);
    assert_eq!((dumped.status, dumped.err.matches(" memory: one period in ").count() > 0), (Some(0), true));
    assert_eq!(number(&rig.verify()["unexplained"]), 0);
}

// Goal: where all sources together take more than the agent's budget, the one that costs most gives way and the others do not; the file
// and the summary say which budget it was. Method: 5 % of a core for a large sample a thousand times a second, and a small one.
#[test]
fn the_agents_budget_takes_from_the_costliest() {
    let rig = Rig::new();
    let config = rig.write(
        "budget.toml",
        "[agent]\ncpu_budget = \"5%\"\n[source.load]\nperiod = \"50ms\"\n[source.synthetic]\nperiod = \"1ms\"\n\
         shape = \"wide\"\nfields = 4096\n",
    );
    let config = config.to_str().unwrap();
    let called =
        rig.record(&["--config", config, "--source", "synthetic", "--source", "load", "--for", "8s"]);
    let info = rig.info();
    let counts = |name: &str| {
        let source =
            info["sources"].as_array().unwrap().iter().find(|source| source["name"] == name).unwrap();
        ["recorded", "missed"].map(|key| number(&source[key]))
    };
    let ([recorded, missed], [load, _]) = (counts("synthetic"), counts("load"));
    assert!(recorded < 5_000 && (7_700..=8_100).contains(&(recorded + missed)), "{recorded}, {missed}");
    assert!(load > 100, "{load}");
    let texts = markers(&rig);
    let is_said =
        |text: &String| text.starts_with("synthetic: one period in ") && text.contains("cpu_budget");
    assert!(!texts.is_empty() && texts.iter().all(is_said), "{texts:?}");
    let remark = called.err.lines().find(|line| line.starts_with("synthetic: was read every ")).unwrap();
    assert!(remark.contains("cpu_budget"), "{remark}");
    assert_eq!(number(&rig.verify()["unexplained"]), 0);
}

// Goal: a budget that recording alone exceeds is said, once, and every source is read as rarely as can be. Method: the least budget,
// and a recorder that looks 10,000 times a second.
#[test]
fn a_budget_that_cannot_be_kept_is_said() {
    let rig = Rig::new();
    let config = rig.write(
        "budget.toml",
        "[agent]\ncpu_budget = \"0.1%\"\n[handover]\ndrain = \"100us\"\n[source.load]\nperiod = \"1ms\"\n",
    );
    let called = rig.record(&["--config", config.to_str().unwrap(), "--source", "load", "--for", "8s"]);
    let said =
        called.err.matches("[agent] cpu_budget = \"0.1%\": recording alone, without any source, takes ");
    assert_eq!(said.count(), 1, "{}", called.err);
    let texts = markers(&rig);
    assert!(texts.iter().any(|text| text.starts_with("load: one period in 10000 is read")), "{texts:?}");
    let load = &rig.info()["sources"][0];
    let [recorded, missed] = ["recorded", "missed"].map(|key| number(&load[key]));
    assert!(recorded < 5_000 && (7_700..=8_100).contains(&(recorded + missed)), "{load}");
}

// Goal: a reading that is being made when the run ends is waited for, so that an orderly end loses nothing; a program that takes
// longer is killed, is recorded so, and neither holds up the end nor outlives it. Method: programs that take less than the wait,
// and far more.
#[test]
fn the_end_waits_for_readings_under_way() {
    let recorded = |seconds: &str| {
        let rig = Rig::new();
        let config = rig.write(
            "sleep.toml",
            format!("[source.command.sleep]\ncommand = [\"/bin/sleep\", \"{seconds}\"]\ntimeout = \"1m\"\n"),
        );
        let begin = Instant::now();
        let config = config.to_str().unwrap();
        let called =
            rig.call(&["record", "--config", config, "--source", "command.sleep@1h", "--for", "100ms"]);
        assert_eq!(number(&rig.verify()["unexplained"]), 0);
        let source = &rig.info()["sources"][0];
        (called, begin.elapsed(), number(&source["recorded"]), number(&source["lost"]))
    };
    let (called, _, recorded_once, lost) = recorded("0.4");
    assert_eq!((recorded_once, lost, called.status), (1, 0, Some(0)), "{called:?}");
    let (called, took, recorded_once, lost) = recorded("54.321");
    assert_eq!((recorded_once, lost, called.status), (1, 0, Some(0)), "{called:?}");
    assert!(took < Duration::from_secs(20), "{took:?}");
    let outlives = std::fs::read_dir("/proc").unwrap().flatten().any(|process| {
        std::fs::read(process.path().join("cmdline")).is_ok_and(|line| line == b"/bin/sleep\x0054.321\0")
    });
    assert!(!outlives);
}

// Goal: a source that cannot be read any more says so once, with the reason, and again at the end. Method: a file that is removed
// and put back.
#[test]
fn a_failing_source_says_why() {
    let rig = Rig::new();
    let file = rig.write("values", "a 1\n");
    let path = file.to_str().unwrap();
    let config = rig.write("file.toml", format!("[source.file.x]\npath = \"{path}\"\n"));
    let config = config.to_str().unwrap();
    let child =
        rig.start(&["record", "--config", config, "--source", "file.x@10ms", "--source", "load@10ms"]);
    eventually("recording", || has_segment(&rig.data(), 1));
    std::fs::remove_file(&file).unwrap();
    std::thread::sleep(Duration::from_millis(2500));
    std::fs::write(&file, "a 2\n").unwrap();
    signal(&child, "TERM");
    let called = finish(child);
    let reason = "No such file or directory (os error 2)";
    assert_eq!(called.err.matches("cannot be read: readings are lost until it can").count(), 1, "{called:?}");
    assert!(called.err.contains(&format!("failed and are lost; the last one: {reason}")), "{called:?}");
    assert_eq!((number(&rig.verify()["unexplained"]), called.status), (0, Some(3)));
}

// Goal: a root that is not there is an error, and not a host that lacks everything. Method: a configuration that names one.
#[test]
fn a_root_must_be_there() {
    let rig = Rig::new();
    let config = rig.write("root.toml", "[agent]\nhost_root = \"/nowhere\"\n");
    let called = rig.call(&["record", "--config", config.to_str().unwrap(), "--for", "100ms"]);
    assert_eq!(called.status, Some(1), "{called:?}");
    assert!(called.err.contains("host_root = \"/nowhere\": No such file or directory"), "{called:?}");
}
