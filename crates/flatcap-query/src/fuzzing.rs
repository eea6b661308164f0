//! Checks properties that must hold for any file. This module is the entry point of `fuzz/`, and
//! tests also use it.
//!
//! Only tests and the feature `fuzzing` compile this module. Releases do not compile it.

use std::collections::BTreeMap;
use std::path::Path;

use super::{Query, QueryItem, QueryResults, QuerySummary, Recording, RowCondition};

/// The rows of a table in printed form. The first list contains the samples, and the second list
/// contains the values of each row.
type TableText = (Vec<String>, Vec<String>);

/// All results of a query, in printed form.
#[derive(Debug, Default, PartialEq)]
struct Answer {
    tables: BTreeMap<String, TableText>,
    others: Vec<String>,
    samples: u64,
    undecodable: u64,
    malformed_schemas: u64,
    damage: u64,
}

fn answer(mut results: QueryResults) -> (Answer, QuerySummary) {
    let mut answer = Answer::default();
    while let Ok(Some(item)) = results.next() {
        match item {
            QueryItem::Batch(batch) => {
                let Some(table) = results.tables().get(batch.table) else {
                    unreachable!("a batch has a table")
                };
                let key = format!("{} {:?} {:?}", table.source, table.list, table.columns);
                let (samples, rows) = answer.tables.entry(key).or_default();
                let times = &batch.times;
                let all = times.seq.iter().zip(&times.mono_ns).zip(&times.wall_ns);
                let all = all.zip(&times.duration_ns).zip(&times.flags);
                samples.extend(all.map(|all| format!("{all:?}")));
                rows.extend((0..batch.rows()).map(|row| {
                    let names = results.elements();
                    let element = batch.name(row).map(|name| (names.label(name), names.identity(name)));
                    let values: Vec<_> = batch.columns.iter().map(|column| column.get(row)).collect();
                    format!("{:?} {element:?} {values:?}", times.seq.get(batch.sample(row)))
                }));
            }
            QueryItem::Complete(_) => {}
            other => answer.others.push(format!("{other:?}")),
        }
    }
    let summary = results.summary();
    answer.samples = summary.samples;
    answer.undecodable = summary.undecodable;
    answer.malformed_schemas = summary.malformed_schemas;
    answer.damage = summary.damage;
    // The two ways of reading may return these items at different positions between the batches.
    answer.others.sort();
    (answer, summary)
}

/// Queries a file in two ways and compares the results. One query reads by columns and templates,
/// the other walks each payload. Returns the summary of the query by columns and templates, or
/// `None` if the file or the query is rejected.
///
/// # Panics
/// The answers differ.
pub fn compare(path: &Path, query: &Query, condition: Option<&RowCondition>) -> Option<QuerySummary> {
    let (fast, walked, summary) = answers(path, query, condition)?;
    for ((key, fast), walked) in fast.tables.iter().zip(walked.tables.values()) {
        assert_eq!(fast, walked, "{}: {query:?} {condition:?} {key}", path.display());
    }
    assert_eq!(fast, walked, "{}: {query:?} {condition:?}", path.display());
    Some(summary)
}

/// Queries all fields of a file that may contain any bytes. The times in the file may be arbitrary,
/// so the order of rows may differ between the two ways of reading.
///
/// # Panics
/// The answers differ.
pub fn agree(path: &Path) {
    let Some((mut fast, mut walked, _)) = answers(path, &Query::default(), None) else { return };
    for answer in [&mut fast, &mut walked] {
        for (samples, rows) in answer.tables.values_mut() {
            samples.sort_unstable();
            rows.sort_unstable();
        }
        // One way of reading may report adjacent damaged ranges as one range.
        answer.others.retain(|other| !other.starts_with("Notice"));
        answer.damage = answer.damage.min(1);
    }
    assert_eq!(fast, walked, "{}", path.display());
}

fn answers(
    path: &Path,
    query: &Query,
    condition: Option<&RowCondition>,
) -> Option<(Answer, Answer, QuerySummary)> {
    let recording = Recording::open(&[path.to_owned()]).ok()?;
    let query = Query { condition: condition.cloned(), ..query.clone() };
    let asked = || recording.query(&query);
    let (mut fast, summary) = answer(asked().ok()?);
    let (mut walked, _) = answer(asked().ok()?.walk());
    if condition.is_some() {
        // The numbers of samples that were read may differ between the two ways of reading. Tables
        // without rows may differ, too.
        (fast.samples, walked.samples) = (0, 0);
        for answer in [&mut fast, &mut walked] {
            answer.tables.retain(|_, (_, rows)| !rows.is_empty());
        }
    }
    Some((fast, walked, summary))
}
