//! What sampling does beside reading: budgets, patterns, and what it says of both.

use flatcap::segment::{Advance, FrameKind, Marker, SegmentReader};

use crate::rig::{Rig, number};

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
