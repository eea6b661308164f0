//! Writes rows to Parquet objects in memory. The bytes depend only on the rows. The bytes depend
//! neither on the batches in which the rows arrive nor on a clock.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, RecordBatch};
use arrow_schema::{ArrowError, DataType, SchemaRef};
use arrow_select::concat::concat_batches;
use flatcap_export::{GROUP_ROWS, ParquetOptions, RowGroups};
use parquet::errors::ParquetError;

/// Number of rows that are encoded in one step, for a table without lists.
const CHUNK_ROWS: usize = 1024;
/// Number of rows that are encoded in one step, for a table with lists. Such a row may have
/// thousands of elements.
// Pages end at the ends of chunks, so chunks must have a fixed size.
const LIST_CHUNK_ROWS: usize = 64;
/// Number of rows at the start of an object that determine its encodings.
const TRIED_ROWS: usize = 1024;
/// If the first rows reach this size in bytes, they determine the encodings, even if there are
/// fewer rows.
const TRIED_BYTES: usize = 4 << 20;
/// Size of the rows of a row group in bytes. These rows are held in memory.
const GROUP_BYTES: usize = 16 << 20;
/// Size in bytes at which an encoded object is complete.
// The object is held in memory, and one request puts it.
const OBJECT_BYTES: usize = 16 << 20;

/// A complete object.
#[derive(Debug)]
pub(crate) struct WrittenObject {
    pub(crate) rows: u64,
    pub(crate) bytes: Vec<u8>,
}

/// The error for rows that cannot be encoded. Such an error is a defect of this program.
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
    /// The rows of the next chunk.
    pending: Vec<RecordBatch>,
    pending_rows: usize,
    /// The first chunks of the next object. The chunks are kept until the encodings of the object
    /// can be chosen.
    first: Vec<RecordBatch>,
    first_bytes: usize,
    object: Option<RowGroups<Vec<u8>>>,
    object_rows: u64,
    /// Size of the rows that the object holds in memory, in bytes.
    group_bytes: usize,
}

impl ObjectWriter {
    pub(crate) fn new(schema: SchemaRef) -> Self {
        let has_lists = schema.fields().iter().any(|field| matches!(field.data_type(), DataType::List(_)));
        Self {
            schema,
            chunk_rows: if has_lists { LIST_CHUNK_ROWS } else { CHUNK_ROWS },
            pending: Vec::new(),
            pending_rows: 0,
            first: Vec::new(),
            first_bytes: 0,
            object: None,
            object_rows: 0,
            group_bytes: 0,
        }
    }

    pub(crate) fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Adds rows. Returns the objects that are complete now.
    pub(crate) fn write(&mut self, batch: &RecordBatch) -> Result<Vec<WrittenObject>, ObjectWriterError> {
        let mut complete = Vec::new();
        let mut from = 0;
        while from < batch.num_rows() {
            let rows = (batch.num_rows() - from).min(self.chunk_rows - self.pending_rows);
            self.pending.push(batch.slice(from, rows));
            (from, self.pending_rows) = (from + rows, self.pending_rows + rows);
            if self.pending_rows == self.chunk_rows {
                complete.extend(self.end_chunk()?);
            }
        }
        Ok(complete)
    }

    /// Writes the remaining rows, and returns the last object if there is one. If there were no
    /// rows at all and `may_be_empty` is true, returns an object without rows.
    pub(crate) fn finish(mut self, may_be_empty: bool) -> Result<Option<WrittenObject>, ObjectWriterError> {
        if self.pending_rows > 0
            && let Some(object) = self.end_chunk()?
        {
            return Ok(Some(object));
        }
        if let Some(object) = self.write_first()? {
            return Ok(Some(object));
        }
        if self.object.is_none() && may_be_empty {
            self.object = Some(begin(&RecordBatch::new_empty(Arc::clone(&self.schema)))?);
        }
        self.end_object()
    }

    fn end_chunk(&mut self) -> Result<Option<WrittenObject>, ObjectWriterError> {
        let chunk = concat_batches(&self.schema, &self.pending)?;
        self.pending.clear();
        self.pending_rows = 0;
        if self.object.is_some() {
            return self.write_chunk(chunk);
        }
        self.first_bytes += bytes_of(&chunk);
        self.first.push(chunk);
        let rows: usize = self.first.iter().map(RecordBatch::num_rows).sum();
        if rows < TRIED_ROWS && self.first_bytes < TRIED_BYTES { Ok(None) } else { self.write_first() }
    }

    /// Begins an object with the first chunks, if there are any. All of these chunks except the
    /// last one are smaller in total than an object. So at most one object is complete after this
    /// call.
    fn write_first(&mut self) -> Result<Option<WrittenObject>, ObjectWriterError> {
        self.first_bytes = 0;
        let first = std::mem::take(&mut self.first);
        if !first.is_empty() {
            self.object = Some(begin(&concat_batches(&self.schema, &first)?)?);
        }
        let mut complete = None;
        for chunk in first {
            complete = self.write_chunk(chunk)?;
        }
        Ok(complete)
    }

    fn write_chunk(&mut self, chunk: RecordBatch) -> Result<Option<WrittenObject>, ObjectWriterError> {
        let mut object = match self.object.take() {
            Some(object) => object,
            None => begin(&chunk)?,
        };
        self.object_rows += chunk.num_rows() as u64;
        self.group_bytes += bytes_of(&chunk);
        object.hold(chunk);
        if object.held_rows() >= GROUP_ROWS || self.group_bytes >= GROUP_BYTES {
            object.end_group()?;
            self.group_bytes = 0;
        }
        let is_full = object.bytes_written() >= OBJECT_BYTES;
        self.object = Some(object);
        if is_full { self.end_object() } else { Ok(None) }
    }

    fn end_object(&mut self) -> Result<Option<WrittenObject>, ObjectWriterError> {
        let Some(object) = self.object.take() else { return Ok(None) };
        let bytes = object.finish()?;
        self.group_bytes = 0;
        Ok(Some(WrittenObject { rows: std::mem::take(&mut self.object_rows), bytes }))
    }
}

/// Begins an object for which the rows in `first` determine the encodings. Does not write these
/// rows.
fn begin(first: &RecordBatch) -> Result<RowGroups<Vec<u8>>, ObjectWriterError> {
    Ok(RowGroups::begin(Vec::new(), first, ParquetOptions::default())?)
}

/// Returns the size of some rows in bytes. The same rows always have the same size.
fn bytes_of(rows: &RecordBatch) -> usize {
    // Do not use the memory size of the columns, because their memory may also contain other rows.
    rows.columns().iter().map(|column| array_bytes(column)).sum()
}

fn array_bytes(array: &dyn Array) -> usize {
    let span = |offsets: &[i32]| {
        let ends = offsets.first().zip(offsets.last());
        ends.and_then(|(first, last)| {
            Some((usize::try_from(*first).ok()?, usize::try_from(last - first).ok()?))
        })
    };
    match array.data_type() {
        DataType::List(_) => {
            let list = array.as_list::<i32>();
            let elements = span(list.value_offsets()).map(|(first, count)| list.values().slice(first, count));
            size_of_val(list.value_offsets()) + elements.map_or(0, |elements| array_bytes(&elements))
        }
        DataType::Struct(_) => array.as_struct().columns().iter().map(|column| array_bytes(column)).sum(),
        DataType::Utf8 => {
            let offsets = array.as_string::<i32>().value_offsets();
            size_of_val(offsets) + span(offsets).map_or(0, |(_, bytes)| bytes)
        }
        // Booleans have no width in bytes.
        other => array.len() * other.primitive_width().unwrap_or(1),
    }
}

#[cfg(test)]
mod tests {
    use arrow_array::types::Int64Type;
    use arrow_array::{ArrayRef, Int64Array, ListArray, StringArray};
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

    // Proves that the bytes do not depend on the batches in which rows arrive. A compressed segment
    // and a raw one result in different batches.
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

    // Proves that the size of rows equals the size of a copy of these rows, even if the rows share
    // memory with other rows.
    #[test]
    fn shared_rows_count_as_their_copies() {
        let list =
            ListArray::from_iter_primitive::<Int64Type, _, _>((0..100).map(|row| Some(vec![Some(row); 5])));
        let texts = StringArray::from_iter_values((0..100).map(|n| "t".repeat(n)));
        let columns: [(&str, ArrayRef); 2] = [("list", Arc::new(list)), ("text", Arc::new(texts))];
        let all = RecordBatch::try_from_iter(columns).unwrap();
        for (from, count) in [(0, 100), (7, 1), (30, 64), (99, 1)] {
            let part = all.slice(from, count);
            let empty = RecordBatch::new_empty(all.schema());
            let copy = concat_batches(&all.schema(), [&part, &empty]).unwrap();
            let text_bytes: usize = (from..from + count).sum();
            let expected = 2 * 4 * (count + 1) + 5 * 8 * count + text_bytes;
            assert_eq!((bytes_of(&part), bytes_of(&copy)), (expected, expected), "{from} {count}");
        }
    }
}
