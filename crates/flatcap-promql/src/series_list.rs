//! Lists the series of a recording by their labels, without their values.

use std::collections::{BTreeMap, BTreeSet};

use flatcap_format::replay::HostIdentity;
use flatcap_query::metric::{HostLabels, Metric};
use flatcap_query::{ElementName, QueryItem, Recording};

use crate::batch_labels::labels_of;
use crate::error::PromqlError;
use crate::labels::Labels;
use crate::selection::Selection;
use crate::series_scan::{ask, warn};

/// Maximum number of series that are listed.
const SERIES_MAX: usize = 20_000;
/// Maximum length of the time range whose elements are listed, in nanoseconds. If the requested
/// range is longer, only its newest part is used.
// The time range is limited because all of its samples are read.
const LISTED_NS_MAX: i64 = 600_000_000_000;

/// The fields of a source that belong to the same list, or that belong to no list.
type FieldGroup<'m> = ((&'m str, &'m str), Vec<&'m Metric>);

/// Returns the labels of the series that match at least one selection. Reads one field of each list
/// to find the elements that existed in the time range.
pub(crate) fn list_series(
    (recording, metrics): (&Recording, &[Metric]),
    selections: &[Selection],
    host: Option<&HostIdentity>,
    (from_ns, to_ns): (i64, i64),
    warnings: &mut BTreeSet<String>,
) -> Result<BTreeSet<Labels>, PromqlError> {
    let groups = field_groups(metrics, selections);
    // The fields of a list have the same elements, so one field shows them all.
    let first: Vec<&Metric> = groups.iter().filter_map(|(_, metrics)| metrics.first().copied()).collect();
    if first.is_empty() {
        return Ok(BTreeSet::new());
    }
    // Listing reads all samples of the time range, so only the newest part of a long range is used.
    let since_ns = from_ns.max(to_ns.saturating_sub(LISTED_NS_MAX));
    let mut results = ask(recording, (&first, Vec::new()), host, (since_ns, to_ns))?;
    let (mut labels, mut found) = (HostLabels::default(), BTreeSet::new());
    let mut known: BTreeSet<(usize, Option<ElementName>)> = BTreeSet::new();
    while let Some(item) = results.next()? {
        let batch = match item {
            QueryItem::Batch(batch) => batch,
            QueryItem::Run(run) => {
                labels = HostLabels::of(&run);
                // The next run may belong to another host, whose labels differ.
                known.clear();
                continue;
            }
            QueryItem::Notice(notice) => {
                warn(&notice, warnings);
                continue;
            }
            _ => continue,
        };
        let Some(table) = results.tables().get(batch.table) else { continue };
        let column = table.columns.first();
        let Some((_, group)) = column.and_then(|column| groups.get(column.order)) else { continue };
        for row in 0..batch.rows() {
            let element = batch.name(row);
            if !known.insert((batch.table, element)) {
                continue;
            }
            for metric in group {
                let own = labels_of(metric, (&labels, table), element, results.elements());
                if selections.is_empty() || selections.iter().any(|selection| selection.passes(&own)) {
                    found.insert(own);
                }
            }
            if found.len() > SERIES_MAX {
                warnings.insert(format!("there are more than {SERIES_MAX} series; the rest is left out"));
                return Ok(found);
            }
        }
    }
    Ok(found)
}

/// Returns the metrics that may match, grouped by source and list of elements.
fn field_groups<'m>(metrics: &'m [Metric], selections: &[Selection]) -> Vec<FieldGroup<'m>> {
    let mut groups: BTreeMap<(&str, &str), BTreeMap<&str, &Metric>> = BTreeMap::new();
    let measured = || metrics.iter().filter(|metric| metric.is_measured()).collect();
    let wanted: Vec<&Metric> = if selections.is_empty() {
        measured()
    } else {
        selections.iter().flat_map(|selection| selection.metrics(metrics)).collect()
    };
    for metric in wanted {
        let path = metric.field.path.as_str();
        let list = path.rfind("[*]").and_then(|end| path.get(..end)).unwrap_or_default();
        groups.entry((&metric.source, list)).or_default().insert(path, metric);
    }
    groups.into_iter().map(|(key, metrics)| (key, metrics.into_values().collect())).collect()
}
