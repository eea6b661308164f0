//! Exposes fields as metrics of Prometheus, with names, base units and labels.
//!
//! An export and a query in `PromQL` both use this module, so both use the same name for a field.
//! See <https://prometheus.io/docs/practices/naming/> and the specification of `OpenMetrics` 1.0.
//!
//! This module never reads a value.

use std::collections::BTreeSet;

use flatcap_format::consumer_names::{is_metric_name, label_name, metric_part};
use flatcap_format::schema::MetricKind;

use crate::{
    ColumnInfo, CommonUnit, ElementIdentity, ElementName, ElementNames, FieldInfo, FieldPath, PathError,
    Recording, RunInfo, SourceLosses, TableInfo, exact_path, source_path,
};

/// Common units, each with the word that Prometheus uses for it in names.
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
/// In recorded Prometheus metrics, the fields that identify an element, and the field that contains
/// the element's value.
const NAME_FIELD: &str = "name";
const LABELS_FIELD: &str = "labels";
const VALUE_SUFFIX: &str = "[*].value";
/// A unit whose size may differ between elements. The next constant names the field that contains
/// the size in bytes.
pub const BLOCKS: &str = "blocks";
const BLOCK_SIZE: &str = "block_size";
/// The name of the counter of lost samples. This name belongs to no field of a source.
pub const LOST_TOTAL: &str = "flatcap_lost_total";
/// Prefix of the names of flatcap's own metrics.
const OWN_PREFIX: &str = "flatcap_";
/// Suffix of the name of a counter's samples.
const COUNTER_SUFFIX: &str = "_total";
/// Prefix that is added to the name of an element's label if the host has a label with the same
/// name. Prometheus adds the same prefix to conflicting labels of a target.
const ELEMENT_PREFIX: &str = "exported_";

/// A numeric field as a metric.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Metric {
    /// The source's name.
    pub source: String,
    /// The field.
    pub field: FieldInfo,
    /// The name of the metric family, which is the name of its samples without the suffix.
    pub family: String,
    /// The word for the base unit of the values. The name of the family ends with this word. `None`
    /// if the values have no base unit.
    pub unit: Option<&'static str>,
    /// Whether the list contains recorded Prometheus metrics, so that each element has its own name
    /// and labels.
    pub has_named_elements: bool,
}

/// The name and the labels of a series.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MetricSeries {
    /// The name of the samples of the metric.
    pub name: String,
    /// The labels. No two labels have the same name.
    pub labels: Vec<(String, String)>,
}

impl Metric {
    /// Returns whether the metric is a counter.
    pub fn is_counter(&self) -> bool {
        self.field.is_counter()
    }

    /// Returns whether a column contains values of this metric. In another run, a field with the
    /// same path may have another meaning, or may be a list.
    pub fn has_values_of(&self, table: &TableInfo, column: &ColumnInfo) -> bool {
        let is_counter = column.kind == MetricKind::Counter;
        *table.source == *self.source
            && table.path(column) == self.field.path
            && column.unit.as_deref() == self.field.unit.as_deref()
            && is_counter == self.is_counter()
    }

    /// Returns whether the metric is a measurement. A value that is an identifier or a state is not
    /// a measurement.
    pub fn is_measured(&self) -> bool {
        is_measured(self.field.kind, &self.field.type_name)
    }

    /// Returns the name of the metric's samples.
    pub fn name(&self) -> String {
        let suffix = if self.is_counter() { COUNTER_SUFFIX } else { "" };
        format!("{}{suffix}", self.family)
    }

    /// Returns the name and the labels of the series of an element. Recorded Prometheus metrics get
    /// the labels that they would have if a server had scraped them. Their label `job` is the last
    /// part of the source's name, and their label `instance` is the host.
    pub fn series(
        &self,
        (host, table): (&HostLabels, &TableInfo),
        element: Option<ElementName>,
        names: &ElementNames,
    ) -> MetricSeries {
        let foreign = element.filter(|element| self.has_named_elements && *element != ElementName::NONE);
        if let Some(own) = foreign.and_then(|element| self.foreign_series(host, names.identity(element))) {
            return own;
        }
        MetricSeries { name: self.name(), labels: host.series(table, element, names) }
    }

    fn foreign_series(&self, host: &HostLabels, identity: &[ElementIdentity]) -> Option<MetricSeries> {
        let part = |field: &str| identity.iter().find(|part| &*part.field == field).map(|part| &*part.value);
        let name = part(NAME_FIELD).filter(|name| is_metric_name(name) && !name.starts_with(OWN_PREFIX))?;
        let own = parse_labels(part(LABELS_FIELD).unwrap_or_default())?;
        let mut labels = host.0.clone();
        let job = self.source.rsplit('.').next().unwrap_or_default();
        push_distinct(&mut labels, "job".to_owned(), job);
        let instance = labels.first().map(|(_, host)| host.clone()).unwrap_or_default();
        push_distinct(&mut labels, "instance".to_owned(), &instance);
        for (name, value) in own {
            push_distinct(&mut labels, name, &value);
        }
        Some(MetricSeries { name: name.to_owned(), labels })
    }

    /// Returns the path of the field. The path begins with the name of the source.
    pub fn path(&self) -> String {
        source_path(&self.source, &self.field.path)
    }

    /// Returns the path of the field for a query. The path leads to no other source.
    ///
    /// # Errors
    /// The path is not well formed.
    pub fn field_path(&self) -> Result<FieldPath, PathError> {
        exact_path(&self.source, &self.field.path).parse()
    }
}

/// Returns whether values of this kind and type are measurements. Values that are identifiers or
/// states are not measurements. Bytes without a metric kind in the schema are not measurements
/// either, because they are parts of strings or of numbers.
pub fn is_measured(kind: MetricKind, type_name: &str) -> bool {
    match kind {
        MetricKind::State | MetricKind::Text => false,
        MetricKind::Counter | MetricKind::Gauge => true,
        MetricKind::Unknown => !type_name.starts_with("[ubyte"),
    }
}

/// Returns the fields of a recording as metrics, by source. Leaves out fields that are strings.
/// Each name is unique. If the names of several fields differ only in characters that Prometheus
/// does not allow, a numeric suffix is added to the later names. A field whose unit or kind differs
/// between runs becomes several metrics. A field whose type differs between runs, but not its unit
/// or kind, becomes one metric.
pub fn metrics(recording: &Recording) -> Vec<Metric> {
    let (mut found, mut families) = (Vec::new(), BTreeSet::new());
    for source in recording.fields() {
        let mut paths = BTreeSet::new();
        let named_lists = named_lists(&source.fields);
        for field in source.fields {
            let meaning = (field.path.clone(), field.unit.clone(), field.is_counter());
            if field.kind == MetricKind::Text || !paths.insert(meaning) {
                continue;
            }
            let word = unit_word(field.unit.as_deref());
            let is_counter = field.kind == MetricKind::Counter;
            let base = family_name(&source.source, &field.path, (field.unit.as_deref(), word), is_counter);
            let (mut family, mut number) = (base.clone(), 1);
            // The name of a family must differ from the names of all other families and of their
            // samples.
            let suffix = if is_counter { COUNTER_SUFFIX } else { "" };
            while families.contains(&family) || families.contains(&format!("{family}{suffix}")) {
                number += 1;
                family = format!("{base}_{number}");
            }
            families.extend([family.clone(), format!("{family}{suffix}")]);
            let unit = word.filter(|word| family.ends_with(&format!("_{word}")));
            let list = field.path.strip_suffix(VALUE_SUFFIX);
            let has_named_elements = list.is_some_and(|list| named_lists.contains(list));
            found.push(Metric { source: source.source.clone(), field, family, unit, has_named_elements });
        }
    }
    found
}

/// Returns the lists whose elements have names of Prometheus metrics.
fn named_lists(fields: &[FieldInfo]) -> BTreeSet<String> {
    let is_text =
        |path: &str| fields.iter().any(|field| field.path == path && field.kind == MetricKind::Text);
    let lists = fields.iter().filter_map(|field| field.path.strip_suffix(VALUE_SUFFIX));
    let has_names =
        |list: &&str| [NAME_FIELD, LABELS_FIELD].iter().all(|field| is_text(&format!("{list}[*].{field}")));
    lists.filter(has_names).map(str::to_owned).collect()
}

/// Parses the labels of a series in the text format of Prometheus, `code="200",method="get"`.
/// Returns `None` if the string has another form.
fn parse_labels(mut text: &str) -> Option<Vec<(String, String)>> {
    let mut labels = Vec::new();
    while !text.is_empty() {
        let (name, rest) = text.split_once("=\"")?;
        let mut value = String::new();
        let mut chars = rest.char_indices();
        let end = loop {
            match chars.next()? {
                (at, '"') => break at,
                (_, '\\') => match chars.next()? {
                    (_, 'n') => value.push('\n'),
                    (_, other) => value.push(other),
                },
                (_, other) => value.push(other),
            }
        };
        if !is_metric_name(name) {
            return None;
        }
        labels.push((name.to_owned(), value));
        text = rest.get(end + 1..)?;
        if !text.is_empty() {
            text = text.strip_prefix(',')?;
        }
    }
    Some(labels)
}

/// The labels that all series of a host have.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostLabels(Vec<(String, String)>);

impl HostLabels {
    /// Returns the labels of the host of a run. They consist of the label `host` with the host's
    /// name, and of the labels that the operator of the host chose.
    pub fn of(run: &RunInfo) -> Self {
        let mut labels = vec![("host".to_owned(), run.host.name.clone())];
        for (name, value) in &run.host.labels {
            push_distinct(&mut labels, label_name(name), value);
        }
        Self(labels)
    }

    /// Returns the labels of the counter of lost samples of a source.
    pub fn losses(&self, losses: &SourceLosses) -> Vec<(String, String)> {
        let mut labels = self.0.clone();
        push_distinct(&mut labels, "source".to_owned(), &losses.source);
        if let Some(id) = losses.instance {
            push_distinct(&mut labels, "source_id".to_owned(), &id.to_string());
        }
        labels
    }

    /// Returns the labels of an element's series. Without an element, returns the labels of the
    /// host. If several sources have the same name at the same time, the label `source_id`
    /// distinguishes these sources.
    pub(crate) fn series(
        &self,
        table: &TableInfo,
        element: Option<ElementName>,
        names: &ElementNames,
    ) -> Vec<(String, String)> {
        let mut labels = self.0.clone();
        if let Some(id) = table.instance {
            push_distinct(&mut labels, "source_id".to_owned(), &id.to_string());
        }
        let Some(element) = element else { return labels };
        let identity = names.identity(element);
        // The first string of the identity names the element. Further strings describe the state of
        // the element.
        let mut has_name = false;
        for part in identity.iter().filter(|part| part.is_key || !std::mem::replace(&mut has_name, true)) {
            push_distinct(&mut labels, label_name(&part.field), &part.value);
        }
        if !names.has_own_identity(element) {
            push_distinct(&mut labels, "element".to_owned(), names.label(element));
        }
        labels
    }
}

/// Adds a label. If the name is already in use, adds the prefix of element labels to the name.
fn push_distinct(labels: &mut Vec<(String, String)>, mut name: String, value: &str) {
    while labels.iter().any(|(other, _)| *other == name) {
        name.insert_str(0, ELEMENT_PREFIX);
    }
    labels.push((name, value.to_owned()));
}

/// Returns a factor by which the values of an element are multiplied in addition to the factor of
/// the unit. If the element counts blocks, the factor is the size of its blocks, so that the values
/// of all file systems are in bytes. Otherwise the factor is 1. Returns `None` if the element has
/// no block size.
pub fn element_factor(unit: Option<&str>, element: Option<ElementName>, names: &ElementNames) -> Option<f64> {
    if unit != Some(BLOCKS) {
        return Some(1.0);
    }
    let identity = names.identity(element?);
    identity.iter().find(|part| &*part.field == BLOCK_SIZE)?.value.parse().ok()
}

/// Returns the word that Prometheus uses for the base unit of this unit.
fn unit_word(unit: Option<&str>) -> Option<&'static str> {
    if unit == Some(BLOCKS) {
        return Some("bytes");
    }
    let common = CommonUnit::of(unit, false);
    UNIT_WORDS.iter().find(|(name, _)| *name == common.name).map(|(_, word)| *word)
}

/// Returns the name of a family, which consists of the source, the path without elements, and the
/// unit. The samples of a counter have a suffix that the name of the family does not have.
fn family_name(
    source: &str,
    path: &str,
    (unit, word): (Option<&str>, Option<&str>),
    is_counter: bool,
) -> String {
    let mut name = format!("{OWN_PREFIX}{}_{}", metric_part(source), metric_part(&path.replace("[*]", "")));
    // The values of the metric are in base units, so the name `max_ns` becomes `max_seconds`.
    if let (Some(unit), Some(_)) = (unit, word)
        && let Some(stem) = name.strip_suffix(&format!("_{}", metric_part(unit)))
    {
        name.truncate(stem.len());
    }
    if is_counter && let Some(stem) = name.strip_suffix(COUNTER_SUFFIX) {
        name.truncate(stem.len());
    }
    match word {
        Some(word) if !name.ends_with(&format!("_{word}")) => format!("{name}_{word}"),
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use flatcap_format::host::HostName;

    use super::*;

    // Proves that a name contains the base unit only one time, and only characters that are allowed
    // in names.
    #[test]
    fn names_follow_the_conventions() {
        let family = |source, path, unit: Option<&str>, is_counter| {
            family_name(source, path, (unit, unit_word(unit)), is_counter)
        };
        let named = |source, path, unit| family(source, path, unit, true);
        assert_eq!(
            named("self", "sources[*].lateness.max_ns", Some("ns")),
            "flatcap_self_sources_lateness_max_seconds"
        );
        assert_eq!(named("disk", "devices[*].read_bytes", Some("bytes")), "flatcap_disk_devices_read_bytes");
        assert_eq!(named("file.a-b", "io_some.total", Some("us")), "flatcap_file_a_b_io_some_seconds");
        assert_eq!(named("load", "tasks", None), "flatcap_load_tasks");
        // Only the names of counters have the suffix. This field is not a counter, but the total
        // size of the memory.
        assert_eq!(
            family("memory", "counters.mem_total", Some("KiB"), false),
            "flatcap_memory_counters_mem_total_bytes"
        );
        assert_eq!(family("app", "total", None, false), "flatcap_app_total");
        assert_eq!(
            family("filesystem", "mounts[*].blocks_free", Some("blocks"), false),
            "flatcap_filesystem_mounts_blocks_free_bytes"
        );
    }

    // Proves that labels are read with the escapes of Prometheus, and that other forms are
    // rejected.
    #[test]
    fn labels_of_a_text_are_read() {
        let parsed = |text: &str| {
            parse_labels(text).map(|labels| {
                labels.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(";")
            })
        };
        assert_eq!(parsed("").as_deref(), Some(""));
        let text = "cpu=\"0\",path=\"C:\\\\D\\n\\\"x,=\",mode=\"idle\"";
        assert_eq!(parsed(text).as_deref(), Some("cpu=0;path=C:\\D\n\"x,=;mode=idle"));
        for wrong in ["cpu", "cpu=\"0", "cpu=\"0\"mode=\"1\"", "a b=\"1\"", "cpu=\"0\\"] {
            assert_eq!(parsed(wrong), None, "{wrong}");
        }
    }

    // Proves that labels have only characters that Prometheus allows, and that no two labels have
    // the same name.
    #[test]
    fn labels_have_distinct_names() {
        let own = [("role", "db"), ("host", "other"), ("1st-part", "\u{e4}")];
        let host = HostName {
            name: "a\"b".to_owned(),
            machine_id: None,
            boot_id: None,
            labels: own.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec(),
        };
        let labels =
            HostLabels::of(&RunInfo { run_id: 1, host, suspended_ns: 0, wall_offset_ns: 0, recorder_pid: 0 });
        let table = TableInfo { source: "s".into(), instance: None, list: None, columns: Vec::new() };
        let series = labels.series(&table, None, &ElementNames::default());
        let all: Vec<(&str, &str)> =
            series.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!(
            all,
            [("host", "a\"b"), ("role", "db"), ("exported_host", "other"), ("_1st_part", "\u{e4}")]
        );
        let table = TableInfo { instance: Some(3), ..table };
        let series = labels.series(&table, Some(ElementName::NONE), &ElementNames::default());
        assert_eq!(series.get(series.len() - 2), Some(&("source_id".to_owned(), "3".to_owned())));
        assert_eq!(series.last(), Some(&("element".to_owned(), "?".to_owned())));
    }
}
