//! Reads rows of selected fields. These rows are the rows that `flatcap dump --fields` prints.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::builder::StringBuilder;
use arrow_array::{ArrayRef, RecordBatch, StringArray, new_null_array};
use arrow_schema::SchemaRef;
use flatcap_format::replay::{Notice, RecordedHosts};
use flatcap_query::{
    PlainItem, PlainRows, Query, QuerySummary, Recording, RowItem, RowOptions, RowReader, RunInfo, SampleRows,
};

use crate::batch_item::BatchItem;
use crate::column_builder::ColumnBuilder;
use crate::columns::array;
use crate::error::BatchError;
use crate::field_columns::{FieldColumns, time_arrays};
use crate::layout::{Descriptions, encoding_error};

/// Maximum number of rows of a batch that is built row by row.
const ROWS_MAX: usize = 1 << 13;
/// Maximum number of values in a batch that is built row by row. These values take about 2 MiB. A
/// batch with only one row may have more values.
const VALUES_MAX: usize = 1 << 18;
/// Number of rows between two calls of `goes_on` during the first reading, which determines the
/// columns.
const ROWS_BETWEEN_CALLS: u64 = 1 << 12;

/// Reads rows of selected fields. The columns contain the time and the value of each field. If
/// there are several hosts, an additional column contains the host. If rows are elements, an
/// additional column contains the element.
#[derive(Debug)]
pub struct FieldsReader {
    rows: FieldRows,
    columns: FieldColumns,
    hosts: RecordedHosts,
    /// The host and the run of the following rows.
    host: String,
    run: String,
}

/// The reader from which the rows come.
#[derive(Debug)]
enum FieldRows {
    /// Batches of columns.
    Plain(Box<PlainRows>),
    /// Reads rows that are joined one by one, and holds a notice that is returned after the last
    /// batch.
    Joined(Box<RowReader>, Option<Notice>),
}

/// Rows that are collected one by one.
struct RowBatch {
    wall_ns: Vec<i64>,
    hosts: StringBuilder,
    elements: StringBuilder,
    values: Vec<ColumnBuilder>,
}

impl FieldsReader {
    /// Requests rows. If the elements of a list have separate columns, the rows are read twice,
    /// because all columns are known only after the first reading. During the first reading,
    /// `goes_on` is called repeatedly. If `goes_on` returns false, this function ends and returns
    /// `None`.
    ///
    /// # Errors
    /// Returns the errors of the query.
    pub fn open(
        recording: &Recording,
        query: &Query,
        options: &RowOptions,
        hosts: RecordedHosts,
        goes_on: &mut dyn FnMut() -> bool,
    ) -> Result<Option<Self>, BatchError> {
        let plain = if *options == RowOptions::default() { recording.plain_rows(query)? } else { None };
        let rows = match plain {
            Some(plain) => FieldRows::Plain(Box::new(plain)),
            None => match joined(recording, query, options, goes_on)? {
                Some(reader) => FieldRows::Joined(Box::new(reader), None),
                None => return Ok(None),
            },
        };
        let own = match &rows {
            FieldRows::Plain(reader) => reader.columns(),
            FieldRows::Joined(reader, _) => reader.columns(),
        };
        let has_host = hosts.are_several() && query.filter.host.is_none();
        let columns = FieldColumns::new(own, options, &Descriptions::of(recording), has_host);
        Ok(Some(Self { rows, columns, hosts, host: String::new(), run: String::new() }))
    }

    /// Returns the columns.
    pub fn schema(&self) -> &SchemaRef {
        &self.columns.schema
    }

    /// Returns a summary of the data read so far.
    pub fn summary(&self) -> QuerySummary {
        match &self.rows {
            FieldRows::Plain(rows) => rows.summary(),
            FieldRows::Joined(rows, _) => rows.summary(),
        }
    }

    /// Returns the next part, or `None` at the end. Gaps and markers are not rows.
    ///
    /// # Errors
    /// Returns the errors of the query. Also returns `OtherType` if the type of a field changed.
    #[allow(clippy::should_implement_trait, reason = "an Iterator could not be asked for a summary between")]
    pub fn next(&mut self) -> Result<Option<BatchItem>, BatchError> {
        match &mut self.rows {
            FieldRows::Plain(_) => self.next_plain(),
            FieldRows::Joined(_, held) => match held.take() {
                Some(notice) => Ok(Some(BatchItem::Notice(notice))),
                None => self.next_joined(),
            },
        }
    }

    fn next_plain(&mut self) -> Result<Option<BatchItem>, BatchError> {
        loop {
            let FieldRows::Plain(rows) = &mut self.rows else { return Ok(None) };
            match rows.next()? {
                None => return Ok(None),
                Some(PlainItem::Run(run)) => self.begin_run(&run),
                Some(PlainItem::Rows(rows)) => return self.plain_batch(rows).map(Some),
                Some(PlainItem::Notice(notice)) => return Ok(Some(BatchItem::Notice(notice))),
                Some(PlainItem::Gap(..) | PlainItem::Marker(_)) => {}
            }
        }
    }

    fn plain_batch(&self, rows: SampleRows) -> Result<BatchItem, BatchError> {
        let SampleRows { times, mut columns } = rows;
        let count = times.len();
        let mut arrays: Vec<ArrayRef> = time_arrays(times.wall_ns).into();
        if self.columns.has_host {
            let hosts = std::iter::repeat_n(self.host.as_str(), count);
            arrays.push(Arc::new(StringArray::from_iter_values(hosts)));
        }
        // If a field was selected twice, its columns share their values.
        let mut made: BTreeMap<usize, ArrayRef> = BTreeMap::new();
        for column in &self.columns.values {
            let shared = made.get(&column.place).map(Arc::clone);
            let array = match (shared, columns.get_mut(column.place).and_then(Option::take)) {
                (Some(shared), _) => shared,
                (None, None) => new_null_array(&column.data_type, count),
                (None, Some(values)) if column.fits(&values.values) => {
                    // The column has the type of the field in the schema, which can hold all
                    // values.
                    array(values, &column.data_type).0
                }
                (None, Some(_)) => return Err(self.other_type(&column.name)),
            };
            made.insert(column.place, Arc::clone(&array));
            arrays.push(array);
        }
        self.batch(arrays)
    }

    fn next_joined(&mut self) -> Result<Option<BatchItem>, BatchError> {
        let mut batch = RowBatch::new(&self.columns);
        let rows_max = (VALUES_MAX / self.columns.values.len().max(1)).clamp(1, ROWS_MAX);
        while batch.wall_ns.len() < rows_max {
            let FieldRows::Joined(reader, held) = &mut self.rows else { break };
            match reader.next()? {
                None => break,
                Some(RowItem::Run(run)) => self.begin_run(&run),
                Some(RowItem::Row(stamp)) => {
                    let label = stamp.element.map(|element| reader.label(element)).unwrap_or_default();
                    batch.push((stamp.wall_ns, &self.host, label));
                    let row = reader.values();
                    for (column, builder) in self.columns.values.iter().zip(&mut batch.values) {
                        match row.get(column.place) {
                            None => builder.push_null(),
                            Some(value) if builder.push(value) => {}
                            Some(_) => return Err(self.other_type(&column.name)),
                        }
                    }
                }
                Some(RowItem::Notice(notice)) if batch.wall_ns.is_empty() => {
                    return Ok(Some(BatchItem::Notice(notice)));
                }
                Some(RowItem::Notice(notice)) => {
                    *held = Some(notice);
                    break;
                }
                Some(RowItem::Gap(..) | RowItem::Marker(_)) => {}
            }
        }
        if batch.wall_ns.is_empty() {
            return Ok(None);
        }
        let arrays = batch.finish(&self.columns);
        self.batch(arrays).map(Some)
    }

    fn batch(&self, arrays: Vec<ArrayRef>) -> Result<BatchItem, BatchError> {
        let batch = RecordBatch::try_new(Arc::clone(&self.columns.schema), arrays);
        batch.map(BatchItem::Batch).map_err(encoding_error)
    }

    fn begin_run(&mut self, run: &RunInfo) {
        self.run = format!("{:016x}", run.run_id);
        self.host = match self.hosts.name_of(run.run_id) {
            "" => run.host.name.clone(),
            name => name.to_owned(),
        };
    }

    fn other_type(&self, field: &str) -> BatchError {
        BatchError::OtherType { field: field.to_owned(), run: self.run.clone() }
    }
}

impl RowBatch {
    fn new(columns: &FieldColumns) -> Self {
        let values = columns.values.iter().map(|column| ColumnBuilder::new(&column.data_type));
        Self {
            wall_ns: Vec::new(),
            hosts: StringBuilder::new(),
            elements: StringBuilder::new(),
            values: values.collect(),
        }
    }

    /// Begins a row with its time, host and element.
    fn push(&mut self, (wall_ns, host, element): (i64, &str, &str)) {
        self.wall_ns.push(wall_ns);
        self.hosts.append_value(host);
        self.elements.append_value(element);
    }

    fn finish(mut self, columns: &FieldColumns) -> Vec<ArrayRef> {
        let mut arrays: Vec<ArrayRef> = time_arrays(self.wall_ns).into();
        for (is_there, texts) in
            [(columns.has_host, &mut self.hosts), (columns.has_element, &mut self.elements)]
        {
            if is_there {
                arrays.push(Arc::new(texts.finish()));
            }
        }
        arrays.extend(self.values.iter_mut().map(ColumnBuilder::finish));
        arrays
    }
}

/// Returns a reader of joined rows that knows all of its columns. Returns `None` if the caller
/// ended the reading.
fn joined(
    recording: &Recording,
    query: &Query,
    options: &RowOptions,
    goes_on: &mut dyn FnMut() -> bool,
) -> Result<Option<RowReader>, BatchError> {
    let mut reader = recording.rows(query, options.clone())?;
    if !reader.has_elements() {
        return Ok(Some(reader));
    }
    let mut rows = 0_u64;
    while reader.next()?.is_some() {
        rows += 1;
        if rows.is_multiple_of(ROWS_BETWEEN_CALLS) && !goes_on() {
            return Ok(None);
        }
    }
    let columns = reader.columns().to_vec();
    Ok(Some(recording.rows(query, options.clone())?.with_columns(columns)))
}
