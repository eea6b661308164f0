//! The table of one source: the columns that vary first, as many as the width holds.

use std::io::{self, Write};

use flatcap_format::query::{FieldPath, Query, QueryError, QueryItem, Recording};

use super::movement::{Movements, Series, series_path};
use super::row_request::RowRequest;
use super::run;
use crate::cli::ExitStatus;
use crate::cli::error::CliError;
use crate::cli::terminal::Output;
use crate::cli::time_printer::TimePrinter;

/// Samples by which columns are chosen: enough to see what varies, and read at once.
const SAMPLES_MAX: u64 = 1_000;
/// Width of the values of a column of texts: most fit.
const VALUE_WIDTH: usize = 10;

/// Prints the samples of the one source that is selected. `source` is its name.
pub(in crate::cli) fn print(
    request: RowRequest<'_>,
    source: &str,
    out: &mut dyn Write,
) -> Result<ExitStatus, CliError> {
    let recording = Recording::open(&request.selection.paths)?;
    let query = Query { fields: Vec::new(), filter: request.filter.clone() };
    let mut movements = Movements::new(request.is_rate);
    let mut results = recording.query(&query)?;
    while let Some(item) = results.next()? {
        match item {
            QueryItem::Run(_) => movements.begin_run(),
            QueryItem::Batch(mut batch) => {
                if let Some(table) = results.tables().get(batch.table) {
                    movements.add(&mut batch, table);
                }
            }
            QueryItem::Complete(_) if results.summary().samples >= SAMPLES_MAX => break,
            _ => {}
        }
    }
    let is_one_sample = results.summary().samples <= 1 || request.args.limit == Some(1);
    let ranked = movements.ranked();
    let columns: Vec<(Series, String, usize)> = ranked
        .iter()
        .filter_map(|(series, movement)| {
            let info = results.tables().get(series.0)?.columns.get(series.1)?;
            let path = series_path(*series, results.tables(), results.elements())?;
            // The name of a column of an element has the source.
            let prefix = if series.2.is_some() { source.chars().count() + 1 } else { 0 };
            let texts = movement.map(|movement| movement.texts(info, request.is_rate));
            let value = texts.iter().flatten().map(|text| text.chars().count()).max();
            let width = value.unwrap_or(VALUE_WIDTH).max(path.chars().count() + prefix) + 2;
            Some((*series, path, width))
        })
        .collect();
    let mut left =
        Output::Stdout.width_to_fit().saturating_sub(TimePrinter::new(request.zone.clone()).width());
    let fits = |column: &&(Series, String, usize)| {
        let rest = left.checked_sub(column.2);
        left = rest.unwrap_or_default();
        rest.is_some()
    };
    let mut chosen: Vec<_> = columns.iter().take_while(fits).collect();
    let fitting = chosen.len();
    if fitting == 0 || (is_one_sample && fitting < columns.len()) {
        return run(&RowRequest { is_turned: true, ..request }, out);
    }
    chosen.sort_by_key(|(series, ..)| *series);
    let fields: Result<Vec<FieldPath>, _> =
        chosen.iter().map(|(_, path, _)| path.parse::<FieldPath>()).collect();
    if fitting < columns.len() {
        writeln!(
            io::stderr(),
            "flatcap: {fitting} of the {} values of a sample, those that vary most; --fields chooses others, \
             --limit 1 shows all of one sample",
            columns.len()
        )?;
    }
    run(&RowRequest { fields: fields.map_err(QueryError::from)?, ..request }, out)
}
