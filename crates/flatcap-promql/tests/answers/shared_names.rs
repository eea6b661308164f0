//! Compares answers about random recordings with the content of the recordings. In the recordings,
//! sources and elements share names, so the content is found by ids.

use std::path::Path;

use flatcap_format::testing::effort;
use flatcap_format::testing::shared_names::{KnownSample, STEP_NS, write_recording};
use flatcap_promql::{Engine, EvaluationOptions, QueryValue, TimeGrid};
use flatcap_query::Recording;

/// A time in milliseconds, the labels `pid` and `name`, and the value.
type TimedValue = (i64, [String; 2], u64);

/// Returns all values of a metric at the times of the samples. If several sources have the same
/// name, a series has only values of its source.
fn evaluated(folder: &Path, metric: &str, samples: &[KnownSample]) -> Vec<TimedValue> {
    let engine = Engine::new(Recording::open(&[folder.to_owned()]).unwrap());
    let ms = |sample: &KnownSample| sample.wall_ns / 1_000_000;
    let (first, last) = (samples.first().map(ms).unwrap(), samples.last().map(ms).unwrap());
    let grid = TimeGrid::range(first, last, STEP_NS / 1_000_000).unwrap();
    // With this lookback, a value is valid only at the time of its sample.
    let options = EvaluationOptions { lookback_ms: 1, ..EvaluationOptions::default() };
    let answer = engine.evaluate(metric, grid, &options).unwrap();
    let QueryValue::Vector(series) = answer.value else { panic!("{metric}") };
    let mut found = Vec::new();
    for own in series {
        let labels = ["pid", "name"].map(|name| own.labels.get(name).to_owned());
        let source = own.labels.get("source_id");
        let values = own.values.iter().enumerate().filter_map(|(step, value)| Some((step, (*value)?)));
        for (step, value) in values {
            let own = samples.iter().find(|sample| ms(sample) == grid.at(step)).unwrap();
            assert!(source.is_empty() || source == own.source.to_string(), "{source} at {own:?}");
            found.push((grid.at(step), labels.clone(), value as u64));
        }
    }
    found.sort();
    found
}

// Proves that each value occurs exactly once, in the series of its source and of its element, with
// the name that the element had. The recordings are random.
#[test]
fn series_are_of_one_source_and_element() {
    for seed in 0..effort::of(50, 2000) {
        let folder = tempfile::tempdir().unwrap();
        let samples = write_recording(folder.path(), seed);
        if samples.is_empty() {
            continue;
        }
        for name in ["app", "other"] {
            let own = || samples.iter().filter(|sample| sample.name() == name);
            let at = |sample: &KnownSample| sample.wall_ns / 1_000_000;
            let levels: Vec<TimedValue> =
                own().map(|sample| (at(sample), [String::new(), String::new()], sample.level)).collect();
            let metric = format!("flatcap_{name}_level");
            assert_eq!(evaluated(folder.path(), &metric, &samples), levels, "{seed} {metric}");
            let mut sizes: Vec<TimedValue> = own()
                .flat_map(|sample| sample.devices.iter().map(move |device| (sample, device)))
                .map(|(sample, device)| {
                    let labels = [device.pid.to_string(), device.printed_name()];
                    (at(sample), labels, device.size)
                })
                .collect();
            sizes.sort();
            let metric = format!("flatcap_{name}_devices_size");
            assert_eq!(evaluated(folder.path(), &metric, &samples), sizes, "{seed} {metric}");
        }
    }
}
