//! Fields as metrics of Prometheus: names, base units and labels.
//!
//! An export and a query by `PromQL` share these, so both know a field by the same name. See
//! <https://prometheus.io/docs/practices/naming/> and the specification of `OpenMetrics` 1.0.
//!
//! Never: reads a value.

use std::collections::BTreeSet;

use crate::query::{CommonUnit, ElementNames, FieldInfo, NO_ELEMENT, Recording, RunInfo, source_path};
use crate::schema::MetricKind;

/// Common units, and how Prometheus spells them in names.
const UNIT_WORDS: [(&str, &str); 10] = [
    ("s", "seconds"),
    ("B", "bytes"),
    ("Hz", "hertz"),
    ("%", "percent"),
    ("degC", "celsius"),
    ("A", "amperes"),
    ("V", "volts"),
    ("W", "watts"),
    ("J", "joules"),
    ("rpm", "rpm"),
];
/// What the name of a counter's samples ends with.
const COUNTER_SUFFIX: &str = "_total";
/// In front of a label of an element that the host has, too, as Prometheus names those of a target.
const ELEMENT_PREFIX: &str = "exported_";

/// A numeric field as a metric.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Metric {
    /// The source's name.
    pub source: String,
    /// The field.
    pub field: FieldInfo,
    /// The name of its family: that of its samples without suffix.
    pub family: String,
    /// The base unit of its values, as a word that the family's name ends with; none without one.
    pub unit: Option<&'static str>,
}

impl Metric {
    /// Returns whether it only grows.
    pub fn is_counter(&self) -> bool {
        self.field.kind == MetricKind::Counter
    }

    /// Returns whether it is a measurement, and not what identifies something or says in which
    /// state it is.
    pub fn is_measured(&self) -> bool {
        self.field.kind != MetricKind::State
    }

    /// Returns the name of its samples.
    pub fn name(&self) -> String {
        let suffix = if self.is_counter() { COUNTER_SUFFIX } else { "" };
        format!("{}{suffix}", self.family)
    }

    /// Returns the path of the field, with its source.
    pub fn path(&self) -> String {
        source_path(&self.source, &self.field.path)
    }
}

/// Returns the fields of a recording that are no texts as metrics, by source. Each name is there
/// once: of fields whose names differ only in characters that Prometheus does not have, the later
/// ones are numbered. A field whose type differs between runs is one metric.
pub fn metrics(recording: &Recording) -> Vec<Metric> {
    let (mut found, mut families) = (Vec::new(), BTreeSet::new());
    for source in recording.fields() {
        let mut paths = BTreeSet::new();
        for field in source.fields {
            if field.kind == MetricKind::Text || !paths.insert(field.path.clone()) {
                continue;
            }
            let word = unit_word(field.unit.as_deref());
            let base = family_name(&source.source, &field.path, (field.unit.as_deref(), word));
            let (mut family, mut number) = (base.clone(), 1);
            while !families.insert(family.clone()) {
                number += 1;
                family = format!("{base}_{number}");
            }
            let unit = word.filter(|word| family.ends_with(&format!("_{word}")));
            found.push(Metric { source: source.source.clone(), field, family, unit });
        }
    }
    found
}

/// The labels of all series of a host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostLabels(Vec<(String, String)>);

impl HostLabels {
    /// Returns the labels of the host of a run: its name as `host`, and those that its operator
    /// gave it.
    pub fn of(run: &RunInfo) -> Self {
        let mut labels = vec![("host".to_owned(), run.host.name.clone())];
        for (name, value) in &run.host.labels {
            push_distinct(&mut labels, label_name(name), value);
        }
        Self(labels)
    }

    /// Returns the labels of the series of an element; of the host alone without one.
    pub fn series(&self, element: Option<u32>, names: &ElementNames) -> Vec<(String, String)> {
        let mut labels = self.0.clone();
        let Some(element) = element else { return labels };
        let identity = if element == NO_ELEMENT { &[][..] } else { names.identity(element) };
        // The first text names an element; further ones say in which state it is.
        let mut has_name = false;
        for part in identity.iter().filter(|part| part.is_key || !std::mem::replace(&mut has_name, true)) {
            push_distinct(&mut labels, label_name(&part.field), &part.value);
        }
        if identity.is_empty() {
            push_distinct(&mut labels, "element".to_owned(), names.label(element));
        }
        labels
    }
}

/// Adds a label. A name that is taken gets the prefix of an element's.
fn push_distinct(labels: &mut Vec<(String, String)>, mut name: String, value: &str) {
    while labels.iter().any(|(other, _)| *other == name) {
        name.insert_str(0, ELEMENT_PREFIX);
    }
    labels.push((name, value.to_owned()));
}

/// Returns the word of Prometheus for the base unit of a unit.
fn unit_word(unit: Option<&str>) -> Option<&'static str> {
    let common = CommonUnit::of(unit, false);
    UNIT_WORDS.iter().find(|(name, _)| *name == common.name).map(|(_, word)| *word)
}

/// Returns the name of a family: source, path without elements, and unit.
fn family_name(source: &str, path: &str, (unit, word): (Option<&str>, Option<&str>)) -> String {
    let mut name = format!("flatcap_{}_{}", plain(source), plain(&path.replace("[*]", "")));
    // Its values are in base units: `max_ns` becomes `max_seconds`.
    if let (Some(unit), Some(_)) = (unit, word)
        && let Some(stem) = name.strip_suffix(&format!("_{}", plain(unit)))
    {
        name.truncate(stem.len());
    }
    if let Some(stem) = name.strip_suffix(COUNTER_SUFFIX) {
        name.truncate(stem.len());
    }
    match word {
        Some(word) if !name.ends_with(&format!("_{word}")) => format!("{name}_{word}"),
        _ => name,
    }
}

/// Returns the name of a label, with the characters that it may have.
fn label_name(text: &str) -> String {
    let prefix = if text.starts_with(|first: char| first.is_ascii_digit()) { "_" } else { "" };
    format!("{prefix}{}", plain(text))
}

/// Returns a text with the characters that names may have.
fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::HostName;

    // Proves that names have the base unit once, and only characters that names may have.
    #[test]
    fn names_follow_the_conventions() {
        let named = |source, path, unit: Option<&str>| family_name(source, path, (unit, unit_word(unit)));
        assert_eq!(
            named("self", "sources[*].lateness.max_ns", Some("ns")),
            "flatcap_self_sources_lateness_max_seconds"
        );
        assert_eq!(named("disk", "devices[*].read_bytes", Some("bytes")), "flatcap_disk_devices_read_bytes");
        assert_eq!(named("file.a-b", "io_some.total", Some("us")), "flatcap_file_a_b_io_some_seconds");
        assert_eq!(named("load", "tasks", None), "flatcap_load_tasks");
    }

    // Proves that labels have the characters of Prometheus, each name once.
    #[test]
    fn labels_have_distinct_names() {
        let own = [("role", "db"), ("host", "other"), ("1st-part", "\u{e4}")];
        let host = HostName {
            name: "a\"b".to_owned(),
            machine_id: None,
            boot_id: None,
            labels: own.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec(),
        };
        let labels = HostLabels::of(&RunInfo { run_id: 1, host, suspended_ns: 0, recorder_pid: 0 });
        let series = labels.series(None, &ElementNames::default());
        let all: Vec<(&str, &str)> =
            series.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!(
            all,
            [("host", "a\"b"), ("role", "db"), ("exported_host", "other"), ("_1st_part", "\u{e4}")]
        );
        let series = labels.series(Some(NO_ELEMENT), &ElementNames::default());
        assert_eq!(series.last(), Some(&("element".to_owned(), "?".to_owned())));
    }
}
