//! One Parquet file: how its columns are encoded, and how it is completed.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

use arrow_array::RecordBatch;
use arrow_schema::{DataType, Field, Fields, SchemaRef};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::{ArrowColumnWriter, ArrowRowGroupWriterFactory, compute_leaves};
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::metadata::{KeyValue, RowGroupMetaData};
use parquet::file::properties::{WriterProperties, WriterPropertiesBuilder};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::ColumnPath;

use crate::error::ColumnarError;
use crate::output::{TargetDirectory, UnpublishedFile};
use crate::request::ColumnarFile;

/// Rows of a row group: what a reader skips or reads as a whole.
const GROUP_ROWS: usize = 128 << 10;
/// The same for files that are read from a local disk: small groups skip more.
const LOCAL_GROUP_ROWS: usize = 4 << 10;
/// Level 3 makes files a tenth smaller than level 1, in the same time.
const ZSTD_LEVEL: i32 = 3;
/// Rows with which encodings are tried.
const TRIED_ROWS: usize = 1024;

/// Options of Parquet files.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ParquetOptions {
    /// Whether `ulong` becomes UINT64 instead of INT64.
    pub is_unsigned: bool,
    /// Whether the elements of lists are rows of files of their own.
    pub is_exploded: bool,
    /// Whether row groups are small, for a local disk.
    pub is_local: bool,
}

/// A file that is being written.
pub(crate) struct ParquetFile {
    pub(crate) path: PathBuf,
    schema: SchemaRef,
    writer: SerializedFileWriter<UnpublishedFile>,
    column_writers: ArrowRowGroupWriterFactory,
    pub(crate) rows: u64,
    /// The rows of the next row group. An open column has a compressor and a page in memory, and
    /// all of them together do not fit a processor's cache. So columns are written one after the
    /// other.
    held: Vec<RecordBatch>,
    held_rows: usize,
    /// Memory of the rows that are held, in bytes.
    pub(crate) held_bytes: usize,
    group_rows: usize,
}

impl ParquetFile {
    /// Begins a file. `first` are its first rows, as far as they are known: its encodings are
    /// chosen by them. They are not written.
    pub(crate) fn create(
        directory: &TargetDirectory,
        name: &str,
        first: &RecordBatch,
        (options, should_replace): (ParquetOptions, bool),
    ) -> Result<Self, ColumnarError> {
        let path = directory.path(name);
        // Fails early; publishing checks again.
        if !should_replace && directory.contains(name) {
            return Err(ColumnarError::Exists { path });
        }
        let failed = |error| ColumnarError::Write { path: path.clone(), error };
        let pending = directory.begin(name).map_err(failed)?;
        let writer = parquet_properties(first, options)
            .and_then(|properties| ArrowWriter::try_new(pending, first.schema(), Some(properties)))
            .and_then(ArrowWriter::into_serialized_writer);
        let (writer, column_writers) = writer.map_err(|error| failed(io_error(error)))?;
        Ok(Self {
            path,
            schema: first.schema(),
            writer,
            column_writers,
            rows: 0,
            held: Vec::new(),
            held_rows: 0,
            held_bytes: 0,
            group_rows: group_rows(options),
        })
    }

    /// Adds rows. They are held until there are enough for a row group.
    pub(crate) fn write(&mut self, mut batch: RecordBatch) -> Result<(), ColumnarError> {
        self.rows += batch.num_rows() as u64;
        while self.held_rows + batch.num_rows() >= self.group_rows {
            let missing = self.group_rows - self.held_rows;
            self.hold(batch.slice(0, missing));
            batch = batch.slice(missing, batch.num_rows() - missing);
            self.end_group()?;
        }
        if batch.num_rows() > 0 {
            self.hold(batch);
        }
        Ok(())
    }

    fn hold(&mut self, batch: RecordBatch) {
        self.held_rows += batch.num_rows();
        self.held_bytes += batch.get_array_memory_size();
        self.held.push(batch);
    }

    /// Writes the rows that are held as a row group.
    pub(crate) fn end_group(&mut self) -> Result<(), ColumnarError> {
        (self.held_rows, self.held_bytes) = (0, 0);
        let held = std::mem::take(&mut self.held);
        if held.is_empty() {
            return Ok(());
        }
        self.write_group(&held).map_err(|error| self.failed(error))
    }

    fn write_group(&mut self, rows: &[RecordBatch]) -> Result<(), ParquetError> {
        let number = self.writer.flushed_row_groups().len();
        let mut unopened = self.column_writers.create_column_writers(number)?.into_iter();
        let mut group = self.writer.next_row_group()?;
        for (number, field) in self.schema.fields().iter().enumerate() {
            // A list has several columns.
            let mut open: Vec<ArrowColumnWriter> = Vec::new();
            for batch in rows {
                let parts = compute_leaves(field, batch.column(number))?;
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

    /// Writes the rest, and syncs the file.
    pub(crate) fn complete(
        mut self,
        source: Option<String>,
        about: Vec<KeyValue>,
    ) -> Result<(UnpublishedFile, ColumnarFile), ColumnarError> {
        self.end_group()?;
        let version = KeyValue::new("flatcap.version".to_owned(), env!("CARGO_PKG_VERSION").to_owned());
        about.into_iter().chain([version]).for_each(|pair| self.writer.append_key_value_metadata(pair));
        let Self { path, writer, rows, .. } = self;
        let failed = |error| ColumnarError::Write { path: path.clone(), error };
        let pending = writer.into_inner().map_err(|error| failed(io_error(error)))?;
        let bytes = pending.sync().map_err(failed)?;
        Ok((pending, ColumnarFile { source, path, rows, bytes }))
    }

    fn failed(&self, error: ParquetError) -> ColumnarError {
        ColumnarError::Write { path: self.path.clone(), error: io_error(error) }
    }
}

/// Returns the error of the system call behind an error of the encoder.
fn io_error(error: ParquetError) -> io::Error {
    match error {
        ParquetError::External(inner) => match inner.downcast::<io::Error>() {
            Ok(error) => *error,
            Err(other) => io::Error::other(other),
        },
        other => io::Error::other(other),
    }
}

/// Returns how the columns of a file with these first rows are encoded.
///
/// Counters of a source are best stored as differences, and floats byte by byte. In a list, values
/// of one element are apart, so that differences are large, and the codec finds more in the values
/// as they are. Which is smaller depends on the values: both are tried with the first rows.
/// Dictionaries of numbers are not worth their memory; texts repeat.
///
/// # Errors
/// The rows cannot be encoded.
pub fn parquet_properties(
    first: &RecordBatch,
    options: ParquetOptions,
) -> Result<WriterProperties, ParquetError> {
    let first = first.slice(0, first.num_rows().min(TRIED_ROWS));
    let schema = first.schema();
    let as_is = column_sizes(&first, base_properties(options).build())?;
    let transformed = leaves(schema.fields()).fold(base_properties(options), transform);
    let transformed = column_sizes(&first, transformed.build())?;
    let is_worth_it = |column: &(ColumnPath, &DataType)| {
        let size = |sizes: &BTreeMap<String, i64>| sizes.get(&column.0.string()).copied();
        size(&transformed) <= size(&as_is)
    };
    Ok(leaves(schema.fields()).filter(is_worth_it).fold(base_properties(options), transform).build())
}

fn group_rows(options: ParquetOptions) -> usize {
    if options.is_local { LOCAL_GROUP_ROWS } else { GROUP_ROWS }
}

/// Returns the properties that all files have.
fn base_properties(options: ParquetOptions) -> WriterPropertiesBuilder {
    WriterProperties::builder()
        .set_created_by(concat!("flatcap-export ", env!("CARGO_PKG_VERSION")).to_owned())
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(ZSTD_LEVEL).unwrap_or_default()))
        .set_dictionary_enabled(false)
        .set_max_row_group_row_count(Some(group_rows(options)))
}

/// Returns the compressed size of each column.
fn column_sizes(
    rows: &RecordBatch,
    properties: WriterProperties,
) -> Result<BTreeMap<String, i64>, ParquetError> {
    let mut writer = ArrowWriter::try_new(io::sink(), rows.schema(), Some(properties))?;
    writer.write(rows)?;
    let file = writer.close()?;
    let columns = file.row_groups().iter().flat_map(RowGroupMetaData::columns);
    Ok(columns.map(|column| (column.column_path().string(), column.compressed_size())).collect())
}

/// Sets the encoding that suits the type of a column.
fn transform(
    builder: WriterPropertiesBuilder,
    (path, data_type): (ColumnPath, &DataType),
) -> WriterPropertiesBuilder {
    match data_type {
        DataType::Utf8 => builder.set_column_dictionary_enabled(path, true),
        DataType::Float32 | DataType::Float64 => {
            builder.set_column_encoding(path, Encoding::BYTE_STREAM_SPLIT)
        }
        DataType::Boolean => builder,
        _ => builder.set_column_encoding(path, Encoding::DELTA_BINARY_PACKED),
    }
}

/// Returns the columns below some fields, with their types.
fn leaves(fields: &Fields) -> impl Iterator<Item = (ColumnPath, &DataType)> {
    let mut found = Vec::new();
    fields.iter().for_each(|field| add_leaves(field, &[], &mut found));
    found.into_iter()
}

fn add_leaves<'f>(field: &'f Field, outer: &[String], found: &mut Vec<(ColumnPath, &'f DataType)>) {
    let mut path = [outer, &[field.name().clone()]].concat();
    match field.data_type() {
        DataType::Struct(fields) => fields.iter().for_each(|field| add_leaves(field, &path, found)),
        DataType::List(element) => {
            path.push("list".to_owned());
            add_leaves(element, &path, found);
        }
        data_type => found.push((ColumnPath::new(path), data_type)),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::types::Int64Type;
    use arrow_array::{Array, Int64Array, ListArray};
    use arrow_schema::Schema;

    use super::*;

    // Proves that a counter is stored as differences, and as it is in a list in which two elements
    // far apart take turns, and that no rows decide for differences.
    #[test]
    fn the_smaller_encoding_is_chosen() {
        const ROWS: i64 = 500;
        let counter = Int64Array::from_iter_values((0..ROWS).map(|row| 1_700_000_000 + row * row));
        let pair = || Some([Some(0x0123_4567_89ab_cdef), Some(-7)]);
        let list = ListArray::from_iter_primitive::<Int64Type, _, _>((0..ROWS).map(|_| pair()));
        let schema = Arc::new(Schema::new(vec![
            Field::new("counter", DataType::Int64, false),
            Field::new("elements", list.data_type().clone(), true),
        ]));
        let rows =
            RecordBatch::try_new(Arc::clone(&schema), vec![Arc::new(counter), Arc::new(list)]).unwrap();
        let encodings = |rows: &RecordBatch| {
            let properties = parquet_properties(rows, ParquetOptions::default()).unwrap();
            let paths = [vec!["counter"], vec!["elements", "list", "item"]];
            paths.map(|path| {
                let path: Vec<String> = path.into_iter().map(str::to_owned).collect();
                properties.encoding(&ColumnPath::new(path))
            })
        };
        assert_eq!(encodings(&rows), [Some(Encoding::DELTA_BINARY_PACKED), None]);
        let none = RecordBatch::new_empty(schema);
        assert_eq!(encodings(&none), [Some(Encoding::DELTA_BINARY_PACKED); 2]);
    }
}
