//! Budgets, failing sources and the end of sampling, and the reports about them.

use std::time::{Duration, Instant};

use flatcap_format::segment::{Advance, FrameKind, Marker, SegmentReader};
use serde_json::Value;

use crate::rig::{Process, Rig, assert_ticks, eventually, number};

/// Returns the texts of all markers of a rig's recording, also of a running one.
fn markers(rig: &Rig) -> Vec<String> {
    let mut texts = Vec::new();
    if !rig.data().is_dir() {
        return texts;
    }
    for path in [rig.segments("bin"), rig.segments("active")].concat() {
        let mut reader = match SegmentReader::open(&path) {
            Ok(reader) => reader,
            // It has no header yet, or was sealed since it was listed.
            Err(_) if path.extension().is_some_and(|ending| ending == "active") => continue,
            Err(error) => panic!("{error}"),
        };
        while let Some(Advance::Frame(at)) = reader.advance().unwrap() {
            if at.kind == FrameKind::Marker {
                texts.push(Marker::decode(reader.payload(at)).unwrap().text);
            }
        }
    }
    texts
}

/// Returns whether a running recording reads a source on every `least`-th tick or less often.
fn is_strided(rig: &Rig, name: &str, least: u64) -> bool {
    rig.source(name).is_some_and(|source| number(&source["stride"]) >= least)
}

/// Returns whether the files of a running recording have a marker of a longer period.
fn is_marked(rig: &Rig) -> bool {
    markers(rig).iter().any(|text| text.contains(": one period in "))
}

/// Returns a source of `info` by its name.
fn source(info: &Value, name: &str) -> Value {
    let mut sources = info["sources"].as_array().unwrap().iter();
    sources.find(|source| source["name"] == name).unwrap().clone()
}

// Proves that a source over its budget is read at every n-th tick, that the others count as missed,
// that a marker and the summary report it, and that other sources keep their periods. Method: 0.01
// % of a core.
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
    let called = rig.record_until(&args, "more ticks skipped than served", || {
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
    assert_eq!((dumped.status, dumped.text().contains(" memory: one period in ")), (Some(0), true));
    assert_eq!(number(&rig.verify()["unexplained"]), 0);
}

// Proves that, if all sources exceed the recorder's budget, only the most expensive one is read
// less often, and that file and summary name the budget. Method: 5 % of a core, a large and a small
// source, whose own budgets are far off: not even beside other work does a sample take its period.
#[test]
fn the_recorder_budget_slows_the_most_expensive_source() {
    let rig = Rig::new();
    let config = rig.write(
        "budget.toml",
        "[recorder]\ncpu_budget = \"5%\"\n[source.load]\nperiod = \"200ms\"\nbudget = \"100%\"\n\
         [source.synthetic]\nperiod = \"4ms\"\nbudget = \"100%\"\nshape = \"wide\"\nfields = 4096\n",
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

// Proves that a budget that the recorder alone exceeds is reported once, and that every source then
// has its longest period. Method: the smallest budget, and a recorder that polls 10,000 times a
// second.
#[test]
fn an_unattainable_budget_is_reported() {
    let rig = Rig::new();
    let config = rig.write(
        "budget.toml",
        "[recorder]\ncpu_budget = \"0.1%\"\n[buffering]\npoll_interval = \"100us\"\n[source.load]\nperiod = \"1ms\"\n",
    );
    let begin = Instant::now();
    let said = "[recorder] cpu_budget = \"0.1%\": the recorder alone, without any source, takes ";
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

// Proves that a sample in progress at the end of a run is awaited, and that a program that takes
// too long is killed, recorded so, and neither delays the end nor outlives it.
#[test]
fn the_end_waits_for_samples_in_progress() {
    let recorded = |seconds: &str| {
        let rig = Rig::new();
        let config = rig.write(
            "sleep.toml",
            format!("[source.command.sleep]\ncommand = [\"/bin/sleep\", \"{seconds}\"]\ntimeout = \"1m\"\n"),
        );
        let args = ["record", "--config", config.to_str().unwrap(), "--source", "command.sleep@1h"];
        let recording = Process(Some(rig.start(&args)));
        let begun = || rig.source("command.sleep").is_some_and(|source| number(&source["begun"]) == 1);
        eventually("a sample in progress", begun);
        let called = recording.end("TERM");
        assert_eq!(number(&rig.verify()["unexplained"]), 0);
        let source = &rig.info()["sources"][0];
        assert_eq!((number(&source["recorded"]), number(&source["lost"])), (1, 0), "{called:?}");
        assert_eq!(called.status, Some(0), "{called:?}");
    };
    recorded("0.4");
    // Far longer than a test takes: without the kill, the end would be too late.
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

// Proves that a failing source is reported once with the reason, and again in the summary. Method:
// a file that is removed and restored.
#[test]
fn a_failing_source_reports_the_reason() {
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
    let words = "cannot read this source; its samples are lost until it can be read";
    eventually("samples", || rig.has_samples(1));
    std::fs::remove_file(&file).unwrap();
    eventually("the warning", || said().contains(words));
    // Further losses are not logged again.
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

// Proves that the log, `status` and `info` say in words why samples are incomplete, with the file,
// the line and its text.
#[test]
fn reasons_are_told_in_words() {
    let rig = Rig::new();
    std::fs::create_dir_all(rig.path("host/proc")).unwrap();
    let captured = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/hosts/kvm-2-cores/proc/stat");
    let text = std::fs::read_to_string(captured).unwrap();
    let line = text.lines().position(|line| line.starts_with("processes ")).unwrap();
    let lines = text.lines().enumerate();
    let lines: Vec<&str> = lines.map(|(at, own)| if at == line { "processes odd" } else { own }).collect();
    rig.write("host/proc/stat", lines.join("\n") + "\n");
    let config = rig.write("host.toml", format!("[recorder]\nhost_root = {:?}\n", rig.path("host")));
    let args = ["--config", config.to_str().unwrap(), "--source", "cpu@10ms"];
    let mut said = None;
    let called = rig.record_until(&args, "an explanation", || {
        said = rig.source("cpu").and_then(|source| source["incomplete_reasons"].as_str().map(str::to_owned));
        said.is_some() && rig.has_samples(2)
    });
    let reason = "a value could not be read, or was no number";
    let expected = format!("{reason}: /proc/stat line {}: \"processes odd\"", line + 1);
    assert_eq!(said.unwrap(), expected);
    let logged = called.err.matches("samples are incomplete: ").count();
    assert!(logged == 1 && called.err.contains("processes odd"), "{called:?}");
    let cpu = source(&rig.info(), "cpu");
    assert_eq!((&cpu["incomplete"], &cpu["incomplete_reasons"]), (&cpu["recorded"], &reason.into()));
    assert!(rig.call(&["info", "flatcap-data"]).text().replace('\n', " ").contains(reason));
}

// Proves that a missing host root is an error, not a host that lacks everything.
#[test]
fn a_root_must_be_there() {
    let rig = Rig::new();
    let config = rig.write("root.toml", "[recorder]\nhost_root = \"/nowhere\"\n");
    let called = rig.call(&["record", "--config", config.to_str().unwrap(), "--for", "100ms"]);
    assert_eq!(called.status, Some(1), "{called:?}");
    assert!(called.err.contains("host_root = \"/nowhere\": No such file or directory"), "{called:?}");
}
