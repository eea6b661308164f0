//! What sampling does beside reading: budgets, patterns, and what it says of both.

use std::time::{Duration, Instant};

use flatcap::segment::{Advance, FrameKind, Marker, SegmentReader};
use serde_json::Value;

use crate::rig::{Process, Rig, assert_ticks, eventually, number};

/// What all markers of a rig's recording say, also of one at work.
fn markers(rig: &Rig) -> Vec<String> {
    let mut texts = Vec::new();
    if !rig.data().is_dir() {
        return texts;
    }
    for path in [rig.segments("bin"), rig.segments("active")].concat() {
        let mut reader = SegmentReader::open(&path).unwrap();
        while let Some(Advance::Frame(at)) = reader.advance().unwrap() {
            if at.kind == FrameKind::Marker {
                texts.push(Marker::decode(reader.payload(at)).unwrap().text);
            }
        }
    }
    texts
}

/// Whether a recording at work reads a source on every so-manieth tick, or less often.
fn is_strided(rig: &Rig, name: &str, least: u64) -> bool {
    rig.source(name).is_some_and(|source| number(&source["stride"]) >= least)
}

/// Whether the file of a recording at work says so.
fn is_marked(rig: &Rig) -> bool {
    markers(rig).iter().any(|text| text.contains(": one period in "))
}

/// A source of `info`, by its name.
fn source(info: &Value, name: &str) -> Value {
    let mut sources = info["sources"].as_array().unwrap().iter();
    sources.find(|source| source["name"] == name).unwrap().clone()
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
    let args = ["--config", config.to_str().unwrap(), "--source", "memory", "--source", "load"];
    let begin = Instant::now();
    let mut ticks = 0;
    let called = rig.record_until(&args, "more ticks left out than served", || {
        let Some(memory) = rig.source("memory") else { return false };
        let [served, missed] = ["begun", "missed"].map(|key| number(&memory[key]));
        ticks = served + missed;
        is_strided(&rig, "memory", 2) && missed > served && is_marked(&rig)
    });
    let most = begin.elapsed();
    let info = rig.info();
    let (memory, load) = (source(&info, "memory"), source(&info, "load"));
    assert!(number(&memory["missed"]) > number(&memory["recorded"]), "{memory}");
    assert_ticks(&memory, Duration::from_millis(ticks), most);
    assert_ticks(&load, Duration::from_millis(ticks), most);
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
    let args = ["--config", config.to_str().unwrap(), "--source", "synthetic", "--source", "load"];
    let begin = Instant::now();
    let called =
        rig.record_until(&args, "a longer period", || is_strided(&rig, "synthetic", 2) && is_marked(&rig));
    let most = begin.elapsed();
    let info = rig.info();
    let (synthetic, load) = (source(&info, "synthetic"), source(&info, "load"));
    assert!(number(&synthetic["missed"]) > 0 && number(&load["recorded"]) > 0, "{info}");
    for source in [&synthetic, &load] {
        assert_ticks(source, Duration::ZERO, most);
    }
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
    let begin = Instant::now();
    let said = "[agent] cpu_budget = \"0.1%\": recording alone, without any source, takes ";
    let log = || std::fs::read_to_string(rig.path("record.log")).unwrap();
    let args = ["--config", config.to_str().unwrap(), "--source", "load"];
    let called = rig.record_until(&args, "the longest period", || {
        markers(&rig).iter().any(|text| text.contains("one period in 10000 is read")) && log().contains(said)
    });
    let most = begin.elapsed();
    assert_eq!(called.err.matches(said).count(), 1, "{}", called.err);
    let texts = markers(&rig);
    assert!(texts.iter().any(|text| text.starts_with("load: one period in 10000 is read")), "{texts:?}");
    assert_ticks(&source(&rig.info(), "load"), Duration::ZERO, most);
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
        let args = ["record", "--config", config.to_str().unwrap(), "--source", "command.sleep@1h"];
        let recording = Process(Some(rig.start(&args)));
        let begun = || rig.source("command.sleep").is_some_and(|source| number(&source["begun"]) == 1);
        eventually("a reading under way", begun);
        let called = recording.end("TERM");
        assert_eq!(number(&rig.verify()["unexplained"]), 0);
        let source = &rig.info()["sources"][0];
        assert_eq!((number(&source["recorded"]), number(&source["lost"])), (1, 0), "{called:?}");
        assert_eq!(called.status, Some(0), "{called:?}");
    };
    recorded("0.4");
    // Far longer than a test takes: had it not been killed, the end would have come too late.
    let begin = Instant::now();
    recorded("5432.1");
    assert!(begin.elapsed() < Duration::from_secs(5432));
    let outlives = || {
        std::fs::read_dir("/proc").unwrap().flatten().any(|process| {
            std::fs::read(process.path().join("cmdline")).is_ok_and(|line| line == b"/bin/sleep\x005432.1\0")
        })
    };
    eventually("the end of the program", || !outlives());
}

// Goal: a source that cannot be read any more says so once, with the reason, and again at the end. Method: a file that is removed
// and put back.
#[test]
fn a_failing_source_says_why() {
    let rig = Rig::new();
    let file = rig.write("values", "a 1\n");
    let path = file.to_str().unwrap();
    let config = rig.write("file.toml", format!("[source.file.x]\npath = \"{path}\"\n"));
    let args =
        ["record", "--config", config.to_str().unwrap(), "--source", "file.x@10ms", "--source", "load@10ms"];
    let log = rig.path("log");
    let mut command = rig.command(&args);
    let recording = Process(Some(command.stderr(std::fs::File::create(&log).unwrap()).spawn().unwrap()));
    let said = || std::fs::read_to_string(&log).unwrap();
    let words = "cannot be read: readings are lost until it can";
    eventually("samples", || rig.has_samples(1));
    std::fs::remove_file(&file).unwrap();
    eventually("what is said", || said().contains(words));
    // More of them are no reason to say it again.
    let failed = || number(&rig.source("file.x").unwrap()["failed"]);
    let before = failed();
    eventually("two seconds of losses", || failed() > before + 200);
    std::fs::write(&file, "a 2\n").unwrap();
    let mut called = recording.end("TERM");
    called.err = said();
    let reason = "No such file or directory (os error 2)";
    assert_eq!(called.err.matches(words).count(), 1, "{called:?}");
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
