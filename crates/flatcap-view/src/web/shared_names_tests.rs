//! Compares charts of random recordings with the content of the recordings. In the recordings,
//! sources and elements share names, so the content is found by ids.

use std::path::Path;

use flatcap_format::testing::effort;
use flatcap_format::testing::shared_names::{KnownSample, write_recording};

use super::api_request::{RangeRequest, WallRange};
use super::recording_reader::RecordingReader;
use super::shown_paths::ShownPaths;

/// A shown value: the beginning of its series' path, the wall time, and the value.
type ShownValue = (String, i64, u64);

fn reader(folder: &Path) -> RecordingReader {
    let paths = vec![folder.to_owned()];
    RecordingReader::open(ShownPaths { paths, host: None, host_name: String::new(), can_mark: false })
        .unwrap()
}

/// Returns the values of a chart whose pixels have one sample each, and the number of series that
/// were left out.
fn drawn(reader: &mut RecordingReader, field: &str, wall_ns: WallRange) -> (Vec<ShownValue>, u64) {
    let answer = reader.range(&RangeRequest { field: field.to_owned(), wall_ns, pixels: 1536 }).unwrap();
    let mut found = Vec::new();
    for series in &answer.series {
        for row in series.rows.iter().filter(|row| row.count > 0) {
            assert_eq!((row.count, row.first_ns, row.min.to_bits()), (1, row.last_ns, row.max.to_bits()));
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small integers")]
            found.push((series.path.clone(), row.first_ns, row.min as u64));
        }
    }
    found.sort_by_key(|(_, wall_ns, value)| (*wall_ns, *value));
    (found, answer.left_out)
}

/// Returns the samples of a chart.
fn listed(reader: &mut RecordingReader, field: &str, wall_ns: WallRange) -> Vec<ShownValue> {
    let answer = serde_json::to_value(reader.samples(field, wall_ns).unwrap()).unwrap();
    let text = |sample: &serde_json::Value, name: &str| sample[name].as_str().unwrap().to_owned();
    let samples = answer["samples"].as_array().unwrap().iter().map(|sample| {
        (
            text(sample, "field"),
            text(sample, "wall_ns").parse().unwrap(),
            text(sample, "value").parse().unwrap(),
        )
    });
    let mut found: Vec<ShownValue> = samples.collect();
    found.sort_by_key(|(_, wall_ns, value)| (*wall_ns, *value));
    found
}

/// Compares the values that were found with the expected values. An expected value has the label of
/// its element, if any, a wall time and a value.
fn check(found: &[ShownValue], expected: &[(String, i64, u64)], what: &str) {
    let values = |all: &[ShownValue]| -> Vec<(i64, u64)> { all.iter().map(|own| (own.1, own.2)).collect() };
    assert_eq!(values(found), values(expected), "{what}");
    for ((path, ..), (label, ..)) in found.iter().zip(expected) {
        // A backslash is escaped only before a quote.
        assert!(path.contains(label.as_str()), "{what}: {path} is not of {label:?}");
    }
}

// Proves that the page shows each value exactly once, at its time, under the name that its element
// had. The recordings are random and are read as pixels and as samples.
#[test]
fn charts_have_each_value_once() {
    let mut charts = 0;
    for seed in 0..effort::of(30, 2000) {
        let folder = tempfile::tempdir().unwrap();
        let samples = write_recording(folder.path(), seed);
        let own: Vec<&KnownSample> = samples.iter().filter(|sample| sample.name() == "app").collect();
        let (Some(first), Some(last)) = (own.first(), own.last()) else { continue };
        let wall_ns = WallRange { from_ns: first.wall_ns, to_ns: last.wall_ns + 1 };
        let mut reader = reader(folder.path());
        let levels: Vec<ShownValue> =
            own.iter().map(|sample| (String::new(), sample.wall_ns, sample.level)).collect();
        let elements =
            own.iter().flat_map(|sample| sample.devices.iter().map(move |device| (sample, device)));
        let mut sizes: Vec<ShownValue> =
            elements.map(|(sample, device)| (device.label(), sample.wall_ns, device.size)).collect();
        sizes.sort_by_key(|(_, wall_ns, value)| (*wall_ns, *value));
        for (field, expected) in [("app.level", &levels), ("app.devices[*].size", &sizes)] {
            if expected.is_empty() {
                continue;
            }
            let what = format!("{seed}: {field}");
            check(&listed(&mut reader, field, wall_ns), expected, &what);
            let (found, left_out) = drawn(&mut reader, field, wall_ns);
            if left_out == 0 {
                check(&found, expected, &what);
                charts += 1;
            }
        }
    }
    assert!(charts > 20, "{charts}");
}

// Proves that a chart has a separate line for each unit of its field. The field is in bytes per
// second in two runs, and in seconds in the third. No value is shown with the unit of another run.
#[test]
fn runs_with_other_units_are_other_lines() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/answers/schemas");
    let wall_ns = WallRange { from_ns: 1_700_000_000_000_000_000, to_ns: 1_700_000_030_000_000_000 };
    let request = RangeRequest { field: "a.x".to_owned(), wall_ns, pixels: 1000 };
    let answer = reader(&folder).range(&request).unwrap();
    let mut lines: Vec<(String, String, usize)> = answer
        .series
        .iter()
        .map(|own| (own.path.clone(), own.unit.clone(), own.rows.iter().filter(|row| row.count > 0).count()))
        .collect();
    lines.sort();
    let line = |path: &str, unit: &str, rows: usize| (path.to_owned(), unit.to_owned(), rows);
    assert_eq!(lines, [line("a.x{bytes,counter}", "B/s", 6), line("a.x{ns,gauge}", "s", 4)]);
}
