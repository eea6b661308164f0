//! Reads the rows of objects in the store, in the order of the objects.

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use parquet::arrow::arrow_reader::{ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder};

use crate::bounded_answers::OBJECT_BYTES_MAX;
use crate::error::ShipError;
use crate::lake::Lake;

/// Number of rows that are decoded in one batch.
const BATCH_ROWS: usize = 256;

/// Opens an object. Returns the object's columns and a reader of its rows.
///
/// # Errors
/// Fails with `Object` for an object that is missing or damaged. Also returns errors of the store.
pub(crate) fn open_object(
    lake: &Lake,
    name: &str,
) -> Result<(SchemaRef, ParquetRecordBatchReader), ShipError> {
    let bytes = lake.read(name, OBJECT_BYTES_MAX)?.ok_or_else(|| damaged(name, "missing"))?;
    let builder = ParquetRecordBatchReaderBuilder::try_new(bytes).map_err(|error| damaged(name, error))?;
    let builder = builder.with_batch_size(BATCH_ROWS);
    let schema = SchemaRef::clone(builder.schema());
    Ok((schema, builder.build().map_err(|error| damaged(name, error))?))
}

/// Returns the error for a damaged object.
pub(crate) fn damaged(name: &str, what: impl std::fmt::Display) -> ShipError {
    ShipError::Object { name: name.to_owned(), what: what.to_string() }
}

/// Reads the rows of several objects of one table.
pub(crate) struct ObjectRows<'l> {
    lake: &'l Lake,
    names: std::vec::IntoIter<String>,
    open: Option<(String, ParquetRecordBatchReader)>,
    /// Rows that were read but that [`take`](Self::take) has not returned yet.
    rows: Option<RecordBatch>,
}

impl<'l> ObjectRows<'l> {
    pub(crate) fn new(lake: &'l Lake, names: Vec<String>) -> Self {
        Self { lake, names: names.into_iter(), open: None, rows: None }
    }

    /// Returns the next rows without taking them, or `None` at the end. A returned batch has at
    /// least one row.
    ///
    /// # Errors
    /// Returns the same errors as [`open_object`].
    pub(crate) fn peek(&mut self) -> Result<Option<&RecordBatch>, ShipError> {
        while self.rows.as_ref().is_none_or(|rows| rows.num_rows() == 0) {
            let Some(rows) = self.read()? else { return Ok(None) };
            self.rows = Some(rows);
        }
        Ok(self.rows.as_ref())
    }

    /// Takes the first `count` of the rows that [`peek`](Self::peek) has returned, or all of them
    /// if there are fewer.
    pub(crate) fn take(&mut self, count: usize) -> Option<RecordBatch> {
        let rows = self.rows.take()?;
        let count = count.min(rows.num_rows());
        self.rows = Some(rows.slice(count, rows.num_rows() - count));
        Some(rows.slice(0, count))
    }

    /// Reads the next batch.
    fn read(&mut self) -> Result<Option<RecordBatch>, ShipError> {
        loop {
            if let Some((name, reader)) = &mut self.open {
                match reader.next() {
                    Some(batch) => return batch.map(Some).map_err(|error| damaged(name, error)),
                    None => self.open = None,
                }
            } else if let Some(name) = self.names.next() {
                let (_, reader) = open_object(self.lake, &name)?;
                self.open = Some((name, reader));
            } else {
                return Ok(None);
            }
        }
    }
}
