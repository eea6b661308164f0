//! Returns rows that are samples of one source, as batches of columns. No values have to be joined,
//! so rows need not be built one by one.

use flatcap_format::replay::Notice;
use flatcap_format::segment::{Gap, Marker};

use super::layout::{RowColumn, RowLayout};
use super::options::RowOptions;
use super::selected_columns::SelectedColumns;
use crate::columns::batch::BatchTimes;
use crate::columns::column::ValueColumn;
use crate::error::QueryError;
use crate::recording::Recording;
use crate::request::Query;
use crate::results::{QueryItem, QueryResults, RunInfo};
use crate::summary::QuerySummary;

/// Reads rows that are samples of one source. [`RowReader`](crate::RowReader) returns the same rows
/// one by one.
#[derive(Debug)]
pub struct PlainRows {
    results: QueryResults,
    layout: RowLayout,
}

/// A batch of rows in the form of columns.
#[derive(Debug, Clone, PartialEq)]
pub struct SampleRows {
    /// The times of the samples, one per row.
    pub times: BatchTimes,
    /// The values of each column, or `None` if the schema of this run lacks the field of the
    /// column.
    pub columns: Vec<Option<ValueColumn>>,
}

/// An item that [`PlainRows`] returns.
#[derive(Debug)]
pub enum PlainItem {
    /// A run begins. The following items belong to the run.
    Run(RunInfo),
    /// Rows, in the order of time.
    Rows(SampleRows),
    /// A range of lost samples, with the name of their source.
    Gap(String, Gap),
    /// A note at a point in time.
    Marker(Marker),
    /// A problem with a file.
    Notice(Notice),
}

impl Recording {
    /// Queries the rows that [`rows`](Self::rows) returns without options, as batches of columns.
    /// Returns `None` if the fields are in lists or in several sources, because then a row may join
    /// values of several samples or elements.
    ///
    /// # Errors
    /// The same errors as [`query`](Self::query).
    pub fn plain_rows(&self, query: &Query) -> Result<Option<PlainRows>, QueryError> {
        let options = RowOptions::default();
        let selected = SelectedColumns::of(self, query, &options)?;
        let namesakes = self.sources().iter().any(|source| {
            source.instances.keys().any(Option::is_some) && selected.periods.contains_key(&source.name)
        });
        // Rows with such fields may join values of several samples or elements.
        if !selected.lists.is_empty() || selected.periods.len() != 1 || namesakes {
            return Ok(None);
        }
        let mut layout = RowLayout::new((selected.own_names, selected.names), Vec::new(), &options);
        layout.fix(selected.columns);
        Ok(Some(PlainRows { results: self.query(query)?, layout }))
    }
}

impl PlainRows {
    /// Returns the columns.
    pub fn columns(&self) -> &[RowColumn] {
        &self.layout.columns
    }

    /// Returns the summary of the data read so far.
    pub fn summary(&self) -> QuerySummary {
        self.results.summary()
    }

    /// Returns the next item, or `None` at the end.
    ///
    /// # Errors
    /// The same errors as [`QueryResults::next`].
    #[allow(clippy::should_implement_trait, reason = "an Iterator could not be asked for a summary between")]
    pub fn next(&mut self) -> Result<Option<PlainItem>, QueryError> {
        while let Some(item) = self.results.next()? {
            return Ok(Some(match item {
                QueryItem::Batch(batch) => {
                    self.layout.add_tables(self.results.tables());
                    let mut columns = vec![None; self.layout.columns.len()];
                    let places = self.layout.places(batch.table, None);
                    for (place, column) in places.iter().zip(batch.columns) {
                        if let Some(own) = place.and_then(|place| columns.get_mut(place)) {
                            *own = Some(column);
                        }
                    }
                    PlainItem::Rows(SampleRows { times: batch.times, columns })
                }
                QueryItem::Complete(_) => continue,
                QueryItem::Run(run) => PlainItem::Run(run),
                QueryItem::Gap(source, gap) => PlainItem::Gap(source, gap),
                QueryItem::Marker(marker) => PlainItem::Marker(marker),
                QueryItem::Notice(notice) => PlainItem::Notice(notice),
            }));
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::segment_files::files;
    use crate::{HeldValue, RowItem};

    /// The times and the values of a row. The values are in printed form, so that rows with NaN can
    /// also be compared.
    type ComparedRow = (u64, i64, String);

    fn by_batches(mut rows: PlainRows) -> Vec<ComparedRow> {
        let mut found = Vec::new();
        while let Some(item) = rows.next().unwrap() {
            let PlainItem::Rows(SampleRows { times, columns }) = item else { continue };
            for row in 0..times.len() {
                let value = |column: &Option<ValueColumn>| {
                    column.as_ref().map_or(HeldValue::Absent, |column| column.get(row).into())
                };
                let values: Vec<HeldValue> = columns.iter().map(value).collect();
                found.push((times.mono_ns[row], times.wall_ns[row], format!("{values:?}")));
            }
        }
        found
    }

    // Proves that batches have the same columns and values as rows, in the same order, for all
    // fields that are not in a list. The test reads each source of the conformance and corpus
    // files.
    #[test]
    fn batches_have_the_values_of_rows() {
        let mut compared = 0;
        for path in files("conformance").into_iter().chain(files("corpus")) {
            let Ok(recording) = Recording::open(&[path]) else { continue };
            for source in recording.fields() {
                let plain = source.fields.iter().filter(|field| !field.path.contains('['));
                let paths = plain.map(|field| format!("{}.{}", source.source, field.path));
                let fields = paths.filter_map(|path| path.parse().ok()).collect();
                let query = Query { fields, ..Query::default() };
                if query.fields.is_empty() {
                    continue;
                }
                let (Ok(mut rows), Ok(plain)) =
                    (recording.rows(&query, RowOptions::default()), recording.plain_rows(&query))
                else {
                    continue;
                };
                let plain = plain.unwrap();
                assert_eq!(plain.columns(), rows.columns());
                let mut expected = Vec::new();
                while let Some(item) = rows.next().unwrap() {
                    if let RowItem::Row(stamp) = item {
                        expected.push((stamp.mono_ns, stamp.wall_ns, format!("{:?}", rows.values())));
                    }
                }
                compared += expected.len();
                assert_eq!(by_batches(plain), expected, "{}", source.source);
            }
        }
        assert!(compared > 1000, "{compared} rows");
    }

    // Proves that `plain_rows` returns no reader for fields of lists and for fields of several
    // sources.
    #[test]
    fn joined_values_are_no_plain_rows() {
        let all = files("conformance").into_iter().chain(files("corpus"));
        let mut opened = all.filter_map(|path| Recording::open(&[path]).ok());
        let recording = opened.find(|recording| recording.fields().len() > 1).unwrap();
        assert!(recording.plain_rows(&Query::default()).unwrap().is_none());
    }
}
