//! One Parquet file. Only one row group is held in memory at a time.

use std::io;
use std::path::PathBuf;

use arrow_array::RecordBatch;
use flatcap_format::storage::linux::{OpenPendingFile, OutputDirectory};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;

use crate::error::ColumnarError;
use crate::parquet_properties::{ParquetOptions, group_rows};
use crate::request::ColumnarFile;
use crate::row_groups::RowGroups;

/// A file that is being written.
pub(crate) struct ParquetFile {
    pub(crate) path: PathBuf,
    groups: RowGroups<OpenPendingFile>,
    pub(crate) rows: u64,
    /// Memory that the held rows take, in bytes.
    pub(crate) held_bytes: usize,
    group_rows: usize,
}

impl ParquetFile {
    /// Begins a file. `first` contains the first rows, if they are known. They determine the
    /// encodings of the file, but are not written.
    pub(crate) fn create(
        directory: &OutputDirectory,
        name: &str,
        first: &RecordBatch,
        (options, should_replace): (ParquetOptions, bool),
    ) -> Result<Self, ColumnarError> {
        let path = directory.path(name);
        // This check only lets the export fail early. The same check is made again when the file is
        // renamed.
        if !should_replace && directory.contains(name) {
            return Err(ColumnarError::Exists { path });
        }
        let failed = |error| ColumnarError::Write { path: path.clone(), error };
        let pending = directory.begin_open(name.to_owned()).map_err(failed)?;
        let groups = RowGroups::begin(pending, first, options);
        let groups = groups.map_err(|error| failed(io_error(error)))?;
        Ok(Self { path, groups, rows: 0, held_bytes: 0, group_rows: group_rows(options) })
    }

    /// Adds rows. Rows are held until there are enough for a row group.
    pub(crate) fn write(&mut self, mut batch: RecordBatch) -> Result<(), ColumnarError> {
        self.rows += batch.num_rows() as u64;
        while self.groups.held_rows() + batch.num_rows() >= self.group_rows {
            let missing = self.group_rows - self.groups.held_rows();
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
        self.held_bytes += batch.get_array_memory_size();
        self.groups.hold(batch);
    }

    /// Writes the held rows as a row group.
    pub(crate) fn end_group(&mut self) -> Result<(), ColumnarError> {
        self.held_bytes = 0;
        self.groups.end_group().map_err(|error| self.failed(error))
    }

    /// Writes the rest of the file, and syncs it.
    pub(crate) fn complete(
        mut self,
        source: Option<String>,
        about: Vec<KeyValue>,
    ) -> Result<(OpenPendingFile, ColumnarFile), ColumnarError> {
        let version = KeyValue::new("flatcap.version".to_owned(), env!("CARGO_PKG_VERSION").to_owned());
        about.into_iter().chain([version]).for_each(|pair| self.groups.describe(pair));
        let Self { path, groups, rows, .. } = self;
        let failed = |error| ColumnarError::Write { path: path.clone(), error };
        let pending = groups.finish().map_err(|error| failed(io_error(error)))?;
        let bytes = pending.sync().map_err(failed)?;
        Ok((pending, ColumnarFile { source, path, rows, bytes }))
    }

    fn failed(&self, error: ParquetError) -> ColumnarError {
        ColumnarError::Write { path: self.path.clone(), error: io_error(error) }
    }
}

/// Returns the error of the system call that caused an error of the encoder.
fn io_error(error: ParquetError) -> io::Error {
    match error {
        ParquetError::External(inner) => match inner.downcast::<io::Error>() {
            Ok(error) => *error,
            Err(other) => io::Error::other(other),
        },
        other => io::Error::other(other),
    }
}
