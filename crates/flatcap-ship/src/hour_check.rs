//! Compares the objects of an hour with the objects of its segments, row by row, before the objects
//! of the segments are removed. The manifest of the hour does not prove that rows are complete,
//! because every client that can write objects can replace it.

use std::collections::BTreeMap;

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;

use crate::error::ShipError;
use crate::lake::Lake;
use crate::manifest::Manifest;
use crate::names::ObjectGroup;
use crate::object_rows::{ObjectRows, damaged};

/// The column with the number of a row's segment.
const SEGMENT: &str = "segment";

/// The objects of a table, in the order of their parts.
#[derive(Debug, Default)]
struct TableObjects {
    /// The names of the objects of each segment, by segment number.
    of_segments: BTreeMap<i64, Vec<String>>,
    of_hour: Vec<String>,
}

/// Checks the objects of an hour. For each merged segment and each table, the rows of the hour must
/// begin with the rows of the segment's objects. `hot` maps each segment number to the names of the
/// segment's objects. The hour may contain additional rows.
///
/// # Errors
/// Fails with `Object` if a row is missing or differs, or if an object is missing or damaged. Also
/// returns errors of the store.
pub(crate) fn check_hour(
    lake: &Lake,
    hour: &ObjectGroup,
    manifest: &Manifest,
    hot: &BTreeMap<u64, Vec<String>>,
) -> Result<(), ShipError> {
    // An interrupted removal may have removed the last parts of a segment, so the hour may have
    // more rows.
    for (table, objects) in tables(hour, manifest, hot)? {
        let differ = |segment: i64| {
            let what = format!("its objects of {table} do not have the rows of its segment {segment}");
            damaged(&hour.manifest(), what)
        };
        let streams = objects.of_segments.into_iter();
        let mut segments: BTreeMap<i64, ObjectRows<'_>> =
            streams.map(|(segment, names)| (segment, ObjectRows::new(lake, names))).collect();
        let mut merged = ObjectRows::new(lake, objects.of_hour);
        while let Some(rows) = merged.peek()? {
            let (segment, count) = first_run(rows).ok_or_else(|| {
                damaged(&hour.manifest(), format!("its objects of {table} have no column {SEGMENT}"))
            })?;
            let own = match segments.get_mut(&segment) {
                Some(own) => own.peek()?.map(RecordBatch::num_rows).map(|rows| (own, rows)),
                None => None,
            };
            match own {
                // The objects of this segment were already removed.
                None => drop(merged.take(count)),
                Some((own, rows)) => {
                    // The batches of the two streams may end at different rows.
                    let count = count.min(rows);
                    if own.take(count) != merged.take(count) {
                        return Err(differ(segment));
                    }
                }
            }
        }
        for (segment, rows) in &mut segments {
            if rows.peek()?.is_some() {
                return Err(differ(*segment));
            }
        }
    }
    Ok(())
}

/// Returns the segment of the first row, and the number of consecutive rows of this segment at the
/// start of the batch. Returns `None` if the batch has no column `segment`.
fn first_run(rows: &RecordBatch) -> Option<(i64, usize)> {
    let numbers = rows.column_by_name(SEGMENT)?.as_primitive_opt::<Int64Type>()?.values();
    let first = *numbers.first()?;
    Some((first, numbers.iter().take_while(|number| **number == first).count()))
}

/// Returns the objects of the segments and of the hour, for each table.
fn tables(
    hour: &ObjectGroup,
    manifest: &Manifest,
    hot: &BTreeMap<u64, Vec<String>>,
) -> Result<BTreeMap<String, TableObjects>, ShipError> {
    let mut tables: BTreeMap<String, TableObjects> = BTreeMap::new();
    for (number, names) in hot {
        let segment = i64::try_from(*number).unwrap_or(i64::MAX);
        let parsed = names.iter().filter_map(|name| ObjectGroup::parse_table(name));
        for (group, table, part) in in_order(parsed.collect()) {
            let own = tables.entry(table.to_owned()).or_default();
            own.of_segments.entry(segment).or_default().push(group.table(table, part));
        }
    }
    let mut parsed = Vec::new();
    for object in &manifest.objects {
        match ObjectGroup::parse_table(&object.name) {
            Some(own) if own.0 == *hour => parsed.push(own),
            _ => {
                let what = format!("it names {}, which is not an object of this hour", object.name);
                return Err(damaged(&hour.manifest(), what));
            }
        }
    }
    for (group, table, part) in in_order(parsed) {
        tables.entry(table.to_owned()).or_default().of_hour.push(group.table(table, part));
    }
    Ok(tables)
}

/// Sorts objects by their part numbers.
pub(crate) fn in_order(mut parts: Vec<(ObjectGroup, &str, u32)>) -> Vec<(ObjectGroup, &str, u32)> {
    parts.sort_by_key(|(_, _, part)| *part);
    parts
}
