//! One Parquet file: how its columns are encoded, and how it is completed.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::{DataType, Field, SchemaRef};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{WriterProperties, WriterPropertiesBuilder};
use parquet::schema::types::ColumnPath;

use crate::error::ColumnarError;
use crate::output::{TargetDirectory, UnpublishedFile};
use crate::request::ColumnarFile;

/// Rows of a row group: what a reader skips or reads as a whole.
const GROUP_ROWS: usize = 128 << 10;
/// The same for files that are read from a local disk: small groups skip more.
const LOCAL_GROUP_ROWS: usize = 4 << 10;
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
    writer: ArrowWriter<UnpublishedFile>,
    pub(crate) rows: u64,
    /// Memory of the row group that is being written, in bytes.
    pub(crate) held_bytes: usize,
}

impl ParquetFile {
    pub(crate) fn create(
        directory: &TargetDirectory,
        name: &str,
        schema: &SchemaRef,
        (options, should_replace): (ParquetOptions, bool),
    ) -> Result<Self, ColumnarError> {
        let path = directory.path(name);
        // Fails early; publishing checks again.
        if !should_replace && directory.contains(name) {
            return Err(ColumnarError::Exists { path });
        }
        let failed = |error| ColumnarError::Write { path: path.clone(), error };
        let pending = directory.begin(name).map_err(failed)?;
        let writer =
            ArrowWriter::try_new(pending, Arc::clone(schema), Some(parquet_properties(schema, options)));
        let writer = writer.map_err(|error| failed(io_error(error)))?;
        Ok(Self { path, writer, rows: 0, held_bytes: 0 })
    }

    pub(crate) fn write(&mut self, batch: &RecordBatch) -> Result<(), ColumnarError> {
        self.writer.write(batch).map_err(|error| self.failed(error))?;
        self.rows += batch.num_rows() as u64;
        self.held_bytes = self.writer.memory_size();
        Ok(())
    }

    /// Writes the rows that are held.
    pub(crate) fn end_group(&mut self) -> Result<(), ColumnarError> {
        self.writer.flush().map_err(|error| self.failed(error))?;
        self.held_bytes = 0;
        Ok(())
    }

    /// Writes the rest, and syncs the file.
    pub(crate) fn complete(
        mut self,
        source: Option<String>,
        about: Vec<KeyValue>,
    ) -> Result<(UnpublishedFile, ColumnarFile), ColumnarError> {
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

/// Returns how the columns of a file are encoded. Dictionaries of numbers are not worth their
/// memory: counters never repeat, and the differences of the rest take a few bits. Texts repeat.
pub fn parquet_properties(schema: &SchemaRef, options: ParquetOptions) -> WriterProperties {
    let group_rows = if options.is_local { LOCAL_GROUP_ROWS } else { GROUP_ROWS };
    let mut builder = WriterProperties::builder()
        .set_created_by(concat!("flatcap-export ", env!("CARGO_PKG_VERSION")).to_owned())
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_dictionary_enabled(false)
        .set_max_row_group_row_count(Some(group_rows));
    for field in schema.fields() {
        builder = encoded(builder, Vec::new(), field);
    }
    builder.build()
}

/// Sets the encodings of the columns of a field.
fn encoded(
    builder: WriterPropertiesBuilder,
    mut path: Vec<String>,
    field: &Field,
) -> WriterPropertiesBuilder {
    path.push(field.name().clone());
    match field.data_type() {
        DataType::Struct(fields) => {
            fields.iter().fold(builder, |builder, field| encoded(builder, path.clone(), field))
        }
        DataType::List(element) => {
            path.push("list".to_owned());
            encoded(builder, path, element)
        }
        DataType::Utf8 => builder.set_column_dictionary_enabled(ColumnPath::new(path), true),
        DataType::Float32 | DataType::Float64 => {
            builder.set_column_encoding(ColumnPath::new(path), Encoding::BYTE_STREAM_SPLIT)
        }
        DataType::Boolean => builder,
        _ => builder.set_column_encoding(ColumnPath::new(path), Encoding::DELTA_BINARY_PACKED),
    }
}
