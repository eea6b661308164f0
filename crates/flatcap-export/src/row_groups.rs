//! Writes rows to the row groups of a Parquet file, one column after the other.

use std::fmt;
use std::io::Write;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::{ArrowColumnWriter, ArrowRowGroupWriterFactory, compute_leaves};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::writer::SerializedFileWriter;

use crate::parquet_properties::{ParquetOptions, parquet_properties};

/// Writes the rows of a Parquet file. Rows are held until there are enough for a row group. An open
/// column has a compressor and a page in memory. Together, all open columns do not fit into a
/// processor's cache. Therefore columns are written one after the other.
pub struct RowGroups<W: Write + Send> {
    schema: SchemaRef,
    writer: SerializedFileWriter<W>,
    column_writers: ArrowRowGroupWriterFactory,
    /// The rows of the next row group.
    held: Vec<RecordBatch>,
    held_rows: usize,
}

impl<W: Write + Send> fmt::Debug for RowGroups<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RowGroups").field("held_rows", &self.held_rows).finish_non_exhaustive()
    }
}

impl<W: Write + Send> RowGroups<W> {
    /// Begins a file. `first` contains the first rows, if they are known. They determine the
    /// encodings of the file, but are not written.
    ///
    /// # Errors
    /// Fails if the rows cannot be encoded, or if the file cannot be written.
    pub fn begin(out: W, first: &RecordBatch, options: ParquetOptions) -> Result<Self, ParquetError> {
        let properties = parquet_properties(first, options)?;
        let writer = ArrowWriter::try_new(out, first.schema(), Some(properties))?;
        let (writer, column_writers) = writer.into_serialized_writer()?;
        Ok(Self { schema: first.schema(), writer, column_writers, held: Vec::new(), held_rows: 0 })
    }

    /// Returns the number of rows that are held.
    pub fn held_rows(&self) -> usize {
        self.held_rows
    }

    /// Adds rows to the held rows. The end of the added rows is also the end of a page.
    pub fn hold(&mut self, rows: RecordBatch) {
        self.held_rows += rows.num_rows();
        self.held.push(rows);
    }

    /// Writes the held rows as a row group.
    ///
    /// # Errors
    /// Returns the same errors as [`begin`](Self::begin).
    pub fn end_group(&mut self) -> Result<(), ParquetError> {
        self.held_rows = 0;
        let held = std::mem::take(&mut self.held);
        if held.is_empty() {
            return Ok(());
        }
        let number = self.writer.flushed_row_groups().len();
        let mut unopened = self.column_writers.create_column_writers(number)?.into_iter();
        let mut group = self.writer.next_row_group()?;
        for (number, field) in Arc::clone(&self.schema).fields().iter().enumerate() {
            // If the column is a list, it has several writers.
            let mut open: Vec<ArrowColumnWriter> = Vec::new();
            for rows in &held {
                let parts = compute_leaves(field, rows.column(number))?;
                open.extend(unopened.by_ref().take(parts.len() - open.len()));
                for (part, column) in parts.iter().zip(&mut open) {
                    column.write(part)?;
                }
            }
            for column in open {
                column.close()?.append_to_row_group(&mut group)?;
            }
        }
        group.close().map(drop)
    }

    /// Returns the number of bytes that were written so far.
    pub fn bytes_written(&self) -> usize {
        self.writer.bytes_written()
    }

    /// Adds a key and its value to the file's metadata.
    pub(crate) fn describe(&mut self, pair: KeyValue) {
        self.writer.append_key_value_metadata(pair);
    }

    /// Writes the rest of the file.
    ///
    /// # Errors
    /// Returns the same errors as [`begin`](Self::begin).
    pub fn finish(mut self) -> Result<W, ParquetError> {
        self.end_group()?;
        self.writer.into_inner()
    }
}
