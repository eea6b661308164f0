//! Writes rows to Parquet objects in memory. The bytes depend on the rows alone: not on how they
//! arrive, and on no clock.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::{ArrowError, DataType, SchemaRef};
use arrow_select::concat::concat_batches;
use flatcap_export::{ParquetOptions, parquet_properties};
use parquet::arrow::ArrowWriter;
use parquet::errors::ParquetError;

/// Rows that are encoded at once, for a table without lists...
const CHUNK_ROWS: usize = 1024;
/// ...and for one with lists, whose rows may have thousands of elements. Pages end where chunks
/// do, so chunks must have a fixed size.
const LIST_CHUNK_ROWS: usize = 64;
/// Encoded bytes of a row group, which is held in memory.
const GROUP_BYTES: usize = 4 << 20;
/// Encoded bytes of an object: it is held in memory, and one request puts it.
const OBJECT_BYTES: usize = 16 << 20;

/// A complete object.
#[derive(Debug)]
pub(crate) struct WrittenObject {
    pub(crate) rows: u64,
    pub(crate) bytes: Vec<u8>,
}

/// Rows that cannot be encoded: a defect of this program.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ObjectWriterError {
    #[error("cannot encode the rows: {0}; please report it as a defect")]
    Parquet(#[from] ParquetError),
    #[error("cannot encode the rows: {0}; please report it as a defect")]
    Arrow(#[from] ArrowError),
}

/// Writes the rows of one table to objects of bounded size.
pub(crate) struct ObjectWriter {
    schema: SchemaRef,
    chunk_rows: usize,
    /// Rows of the next chunk.
    pending: Vec<RecordBatch>,
    pending_rows: usize,
    object: Option<ArrowWriter<Vec<u8>>>,
    object_rows: u64,
}

impl ObjectWriter {
    pub(crate) fn new(schema: SchemaRef) -> Self {
        let has_lists = schema.fields().iter().any(|field| matches!(field.data_type(), DataType::List(_)));
        Self {
            schema,
            chunk_rows: if has_lists { LIST_CHUNK_ROWS } else { CHUNK_ROWS },
            pending: Vec::new(),
            pending_rows: 0,
            object: None,
            object_rows: 0,
        }
    }

    pub(crate) fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Adds rows. Returns the objects that became complete.
    pub(crate) fn write(&mut self, batch: &RecordBatch) -> Result<Vec<WrittenObject>, ObjectWriterError> {
        let mut complete = Vec::new();
        let mut from = 0;
        while from < batch.num_rows() {
            let rows = (batch.num_rows() - from).min(self.chunk_rows - self.pending_rows);
            self.pending.push(batch.slice(from, rows));
            (from, self.pending_rows) = (from + rows, self.pending_rows + rows);
            if self.pending_rows == self.chunk_rows {
                complete.extend(self.write_chunk()?);
            }
        }
        Ok(complete)
    }

    /// Writes the rest. Returns the last object; without any rows, if `may_be_empty`, one without
    /// rows.
    pub(crate) fn finish(mut self, may_be_empty: bool) -> Result<Option<WrittenObject>, ObjectWriterError> {
        if self.pending_rows > 0
            && let Some(object) = self.write_chunk()?
        {
            return Ok(Some(object));
        }
        if self.object.is_none() && may_be_empty {
            self.object = Some(self.begin(&RecordBatch::new_empty(Arc::clone(&self.schema)))?);
        }
        self.end_object()
    }

    fn write_chunk(&mut self) -> Result<Option<WrittenObject>, ObjectWriterError> {
        let chunk = concat_batches(&self.schema, &self.pending)?;
        self.pending.clear();
        self.pending_rows = 0;
        let mut object = match self.object.take() {
            Some(object) => object,
            None => self.begin(&chunk)?,
        };
        object.write(&chunk)?;
        self.object_rows += chunk.num_rows() as u64;
        if object.in_progress_size() >= GROUP_BYTES {
            object.flush()?;
        }
        let is_full = object.bytes_written() >= OBJECT_BYTES;
        self.object = Some(object);
        if is_full { self.end_object() } else { Ok(None) }
    }

    /// Begins an object with these first rows, without writing them.
    fn begin(&self, first: &RecordBatch) -> Result<ArrowWriter<Vec<u8>>, ObjectWriterError> {
        let properties = parquet_properties(first, ParquetOptions::default())?;
        Ok(ArrowWriter::try_new(Vec::new(), Arc::clone(&self.schema), Some(properties))?)
    }

    fn end_object(&mut self) -> Result<Option<WrittenObject>, ObjectWriterError> {
        let Some(object) = self.object.take() else { return Ok(None) };
        let bytes = object.into_inner()?;
        Ok(Some(WrittenObject { rows: std::mem::take(&mut self.object_rows), bytes }))
    }
}

#[cfg(test)]
mod tests {
    use arrow_array::{ArrayRef, Int64Array, StringArray};
    use arrow_schema::{Field, Schema};

    use super::*;

    fn rows(from: i64, count: i64) -> RecordBatch {
        let schema = Schema::new(vec![
            Field::new("n", DataType::Int64, false),
            Field::new("text", DataType::Utf8, false),
        ]);
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(from..from + count));
        let texts: ArrayRef =
            Arc::new(StringArray::from_iter_values((from..from + count).map(|n| format!("t{}", n % 7))));
        RecordBatch::try_new(Arc::new(schema), vec![numbers, texts]).unwrap()
    }

    fn written(sizes: &[i64]) -> WrittenObject {
        let mut writer = ObjectWriter::new(rows(0, 0).schema());
        let mut from = 0;
        for size in sizes {
            assert!(writer.write(&rows(from, *size)).unwrap().is_empty());
            from += size;
        }
        writer.finish(true).unwrap().unwrap()
    }

    // Proves that the bytes do not depend on how rows arrive, as they do in other batches from a
    // compressed segment than from a raw one.
    #[test]
    fn bytes_depend_on_rows_alone() {
        let whole = written(&[5000]);
        assert_eq!(whole.rows, 5000);
        for sizes in [&[1, 1, 1022, 1, 3975][..], &[1024, 1024, 2952], &[4999, 1], &[0, 5000, 0]] {
            let other = written(sizes);
            assert!(other.bytes == whole.bytes && other.rows == 5000, "{sizes:?}");
        }
        assert_eq!(written(&[]).rows, 0, "a table without rows");
        assert!(ObjectWriter::new(rows(0, 0).schema()).finish(false).unwrap().is_none());
    }
}
