//! Segments that retention removes between others. `verify` reports them as removed, and segments
//! that are missing for another reason as missing.

use std::path::PathBuf;

use crate::rig::{Rig, number};

/// Records until there are `count` closed segments.
fn record_segments(rig: &Rig, count: usize) -> Vec<PathBuf> {
    let config = rig.write("first.toml", "[storage]\nsegment_size = \"256KiB\"\n");
    let args = ["--quiet", "--config", config.to_str().unwrap(), "--source", "synthetic@100us"];
    rig.record_until(&args, "segments", || rig.data().exists() && rig.segments("bin").len() >= count);
    // Dates the segments back by years.
    for path in rig.segments("bin") {
        let name = path.file_name().unwrap().to_str().unwrap();
        let old = format!("{}-20200101T000000Z{}", &name[..10], &name[27..]);
        std::fs::rename(&path, path.with_file_name(old)).unwrap();
    }
    rig.segments("bin")
}

// Proves that `verify` counts samples of segments that retention has removed between others as
// removed, and reports the recording as intact. A segment that is missing for another reason is
// still a finding. Method: two of eight segments are shipped, so the next run removes them for
// their age. Then another segment is removed by hand.
#[test]
fn verify_tells_removed_segments_from_missing_ones() {
    let rig = Rig::new();
    let segments = record_segments(&rig, 8);
    let receipt = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_str().unwrap();
        format!("{}-{}\n", &name[28..44], &name[..10])
    };
    let shipped = &segments[2..4];
    let whole = rig.verify();
    assert_eq!(number(&whole["unexplained"]), 0, "{whole}");
    let receipts = rig.write("receipts", shipped.iter().map(receipt).collect::<String>());
    let config = rig.write(
        "second.toml",
        format!("[storage]\nretain_age = \"1d\"\nkeep_until_shipped = \"{}\"\n", receipts.display()),
    );
    let args = ["--quiet", "--config", config.to_str().unwrap(), "--source", "load@100ms"];
    rig.record_until(&args, "the removal", || shipped.iter().all(|path| !path.exists()));
    assert_eq!(segments.iter().filter(|path| path.exists()).count(), segments.len() - 2);
    let called = rig.call(&["verify", "--json", "flatcap-data"]);
    let report = called.json();
    assert_eq!(called.status, Some(0), "{called:?}");
    assert!(number(&report["removed"]) > 0 && report["intact"] == true, "{report}");
    assert_eq!(number(&report["unexplained"]), 0, "{report}");
    let text = rig.call(&["verify", "flatcap-data"]);
    let line = format!("removed: {} sample(s) of synthetic", number(&report["removed"]));
    assert!(text.text().contains(&line), "{text:?}");

    std::fs::remove_file(&segments[5]).unwrap();
    let called = rig.call(&["verify", "--json", "flatcap-data"]);
    let missing = called.json();
    assert_ne!(called.status, Some(0), "{called:?}");
    assert_eq!(missing["removed"], report["removed"], "{missing}");
    assert!(number(&missing["unexplained"]) > 0, "{missing}");
    let counted = |report: &serde_json::Value| {
        number(&report["removed"]) + number(&report["unexplained"]) + number(&report["lost"])
    };
    assert!(counted(&missing) > counted(&report), "{missing}");

    // Without the list, all of them are missing.
    std::fs::remove_file(rig.data().join("flatcap.removed")).unwrap();
    let unknown = rig.verify();
    assert!(!unknown.as_object().unwrap().contains_key("removed"), "{unknown}");
    let both = number(&missing["removed"]) + number(&missing["unexplained"]);
    assert_eq!(number(&unknown["unexplained"]), both, "{unknown}");
}
