//! The table of one source. It shows as many of the columns that vary most as fit the width.

use std::io::{self, Write};

use flatcap_query::{FieldPath, Query, QueryError, QueryItem, QueryResults, Recording, TableInfo};

use super::movement::{Movements, Series, series_path};
use super::row_request::RowRequest;
use super::run;
use crate::cli::ExitStatus;
use crate::cli::error::CliError;
use crate::cli::terminal::Output;
use flatcap_text::time_printer::TimePrinter;

/// Maximum number of samples that are used to choose columns. These samples show which columns
/// vary, and they are few enough to be read in one pass.
const SAMPLES_MAX: u64 = 1_000;
/// Heading of the column with the names of elements.
const ELEMENT_HEADING: &str = "element";
/// Width of the values in a column of strings. Most strings fit.
const VALUE_WIDTH: usize = 10;

/// Prints the samples of the only selected source. `source` is the source's name.
pub(in crate::cli) fn print(
    request: RowRequest<'_>,
    source: &str,
    out: &mut dyn Write,
) -> Result<ExitStatus, CliError> {
    let recording = Recording::open_with_added_sources(&request.selection.paths)?;
    let query = Query { filter: request.filter.clone(), ..Query::default() };
    let mut results = recording.query(&query)?;
    let movements = follow_movements(&mut results, request.is_rate)?;
    let is_one_sample = results.summary().samples <= 1 || request.args.limit == Some(1);
    let list = leading_list(results.tables());
    let names = results.elements();
    let mut columns: Vec<(Series, String, usize)> = Vec::new();
    // The heading may be wider than all names of elements.
    let mut label_width = if list.is_some() { ELEMENT_HEADING.len() + 2 } else { 0 };
    for (series, movement) in movements.ranked() {
        let (table, column, element) = series;
        if list.is_some_and(|list| list != table) {
            continue;
        }
        let Some(info) = results.tables().get(table).and_then(|table| table.columns.get(column)) else {
            continue;
        };
        let shown = (table, column, element.filter(|_| list.is_none()));
        let path = match list {
            Some(_) if is_only_end(results.tables(), &info.path) => Some(info.path.to_string()),
            _ => series_path(shown, results.tables(), names),
        };
        let Some(path) = path else { continue };
        if let Some(element) = element.filter(|_| list.is_some()) {
            label_width = label_width.max(names.label(element).chars().count() + 2);
        }
        // The name of a column of a list element includes the name of the source.
        let prefix = if list.is_none() && element.is_some() { source.chars().count() + 1 } else { 0 };
        let texts = movement.map(|movement| movement.texts(info, request.is_rate));
        let value = texts.iter().flatten().map(|text| text.chars().count()).max();
        let width = value.unwrap_or(VALUE_WIDTH).max(path.chars().count() + prefix) + 2;
        match columns.iter_mut().find(|(_, known, _)| *known == path) {
            Some((.., known)) => *known = width.max(*known),
            None => columns.push((series, path, width)),
        }
    }
    let time_width = TimePrinter::new(request.zone.clone()).width();
    let mut left = Output::Stdout.width_to_fit().saturating_sub(time_width + label_width);
    let fits = |column: &&(Series, String, usize)| {
        let rest = left.checked_sub(column.2);
        left = rest.unwrap_or_default();
        rest.is_some()
    };
    let mut chosen: Vec<_> = columns.iter().take_while(fits).collect();
    // At least one column is printed, even if it is too wide.
    if chosen.is_empty() {
        chosen.extend(columns.first());
    }
    let is_part = chosen.len() < columns.len();
    if list.is_none() && is_one_sample && is_part {
        return run(&RowRequest { is_turned: true, ..request }, out);
    }
    chosen.sort_by_key(|(series, ..)| *series);
    let fields: Result<Vec<FieldPath>, _> =
        chosen.iter().map(|(_, path, _)| path.parse::<FieldPath>()).collect();
    if is_part {
        writeln!(
            io::stderr(),
            "flatcap: {} of the {} fields of {source}, those that vary most; --fields chooses others, flatcap fields \
             shows all",
            chosen.len(),
            columns.len()
        )?;
    }
    let fields = fields.map_err(QueryError::from)?;
    run(&RowRequest { fields, is_long: list.is_some(), ..request }, out)
}

/// Returns whether exactly one field has a path that ends with `path`. If so, `path` is the name of
/// its column.
fn is_only_end(tables: &[TableInfo], path: &str) -> bool {
    let columns = tables.iter().flat_map(|table| &table.columns);
    let has_end =
        |own: &str| own.strip_suffix(path).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
    !path.is_empty() && columns.filter(|column| has_end(&column.path)).count() == 1
}

/// Returns how much each series varies in the first samples of the source.
fn follow_movements(results: &mut QueryResults, is_rate: bool) -> Result<Movements, QueryError> {
    let mut movements = Movements::new(is_rate);
    while let Some(item) = results.next()? {
        match item {
            QueryItem::Run(_) => movements.begin_run(),
            QueryItem::Batch(mut batch) => {
                if let Some(table) = results.tables().get(batch.table) {
                    movements.add(&mut batch, table, results.elements());
                }
            }
            QueryItem::Complete(_) if results.summary().samples >= SAMPLES_MAX => break,
            _ => {}
        }
    }
    Ok(movements)
}

/// Returns the table of the list whose elements become the rows of the output. A list is used in
/// this way only if it has more fields than the source has outside of lists.
fn leading_list(tables: &[TableInfo]) -> Option<usize> {
    let outside = tables.iter().filter(|table| table.list.is_none()).map(|table| table.columns.len()).sum();
    let lists = tables.iter().enumerate().filter(|(_, table)| table.list.is_some());
    let (place, table) = lists.max_by_key(|(_, table)| table.columns.len())?;
    (table.columns.len() > outside).then_some(place)
}

#[cfg(test)]
mod tests {
    use flatcap_format::schema::{ColumnType, MetricKind, Usage};
    use flatcap_query::ColumnInfo;

    use super::*;

    fn table(list: Option<&str>, columns: usize) -> TableInfo {
        let column = ColumnInfo {
            path: "a".into(),
            column_type: ColumnType::Unsigned,
            type_name: "ulong".into(),
            unit: None,
            kind: MetricKind::Gauge,
            usage: Usage::Use,
            is_identity: false,
            order: 0,
        };
        TableInfo {
            source: "s".into(),
            instance: None,
            list: list.map(Into::into),
            columns: vec![column; columns],
        }
    }

    // Proves that the elements of a list become the rows if most fields of the source are in the
    // list.
    #[test]
    fn the_largest_list_makes_the_rows() {
        assert_eq!(leading_list(&[table(None, 17), table(Some("cores[*]"), 11)]), None);
        assert_eq!(leading_list(&[table(None, 6), table(Some("a[*]"), 3), table(Some("b[*]"), 20)]), Some(2));
        assert_eq!(leading_list(&[table(Some("interfaces[*]"), 1)]), Some(0));
        assert_eq!(leading_list(&[table(None, 3)]), None);
    }

    // Proves that a short name is used only if it belongs to exactly one field.
    #[test]
    fn short_names_are_of_one_field() {
        assert!(is_only_end(&[table(Some("b[*]"), 1)], "a"));
        assert!(!is_only_end(&[table(None, 1), table(Some("b[*]"), 1)], "a"));
        assert!(!is_only_end(&[table(None, 1)], "") && !is_only_end(&[table(None, 1)], "b"));
    }
}
