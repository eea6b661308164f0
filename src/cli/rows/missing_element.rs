//! Finds a path in the query whose list element is in no sample, and lists the elements that exist.

use std::collections::BTreeSet;

use flatcap_query::{FieldPath, Query, QueryError, Recording, RowItem, RowOptions, RowReader};
use flatcap_text::human::printable;

use crate::cli::error::CliError;

/// Maximum number of elements that the error lists.
const NAMED_MAX: usize = 12;
/// Maximum number of rows that are read to find elements.
const ROWS_MAX: usize = 10_000;

/// Returns the error for the first path whose elements had no values. Returns `None` if no samples
/// were read.
pub(super) fn find(
    recording: &Recording,
    query: &Query,
    reader: &RowReader,
    rows: u64,
) -> Result<Option<CliError>, QueryError> {
    if reader.summary().samples == 0 {
        return Ok(None);
    }
    let is_missing = |number: usize| {
        if reader.is_long() {
            rows == 0
        } else {
            reader.columns().iter().all(|column| column.order.0 != number)
        }
    };
    let paths = query.fields.iter().enumerate();
    let Some((_, path)) =
        paths.into_iter().find(|(number, path)| path.picks_elements() && is_missing(*number))
    else {
        return Ok(None);
    };
    let known = elements(recording, query, path)?;
    let more = if known.len() > NAMED_MAX {
        format!(" and {} more", known.len() - NAMED_MAX)
    } else {
        String::new()
    };
    let named: Vec<&str> = known.iter().take(NAMED_MAX).map(String::as_str).collect();
    let there_are = match named.as_slice() {
        [] => "the list has no elements".to_owned(),
        named => format!("there are {}{more}", named.join(", ")),
    };
    Ok(Some(CliError::Usage(format!(
        "--fields: {path:?}: no sample in the selected time has such an element; {there_are}",
        path = path.as_str()
    ))))
}

/// Returns the labels of all elements in the list of the path.
fn elements(recording: &Recording, query: &Query, path: &FieldPath) -> Result<BTreeSet<String>, QueryError> {
    let query = Query { fields: vec![path.of_all_elements()], condition: None, ..query.clone() };
    let options = RowOptions { is_long: true, ..RowOptions::default() };
    let mut reader = recording.rows(&query, options)?;
    let mut found = BTreeSet::new();
    for _ in 0..ROWS_MAX {
        match reader.next()? {
            None => break,
            Some(RowItem::Row(stamp)) => {
                found.extend(stamp.element.map(|element| printable(reader.label(element))));
            }
            Some(_) => {}
        }
    }
    Ok(found)
}
