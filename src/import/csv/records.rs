//! Reads records one by one, in bounded memory.

use std::cell::Cell;
use std::io::{self, Read};
use std::path::Path;
use std::rc::Rc;

use csv::{ByteRecord, ErrorKind, Reader, ReaderBuilder};

use crate::import::error::ImportError;
use crate::import::input::Input;

/// Longest record, in bytes. A quote without its end would otherwise read the rest of a file into
/// memory.
const RECORD_BYTES_MAX: u64 = 16 << 20;
/// Read size, in bytes: what a record may already have read of the next ones.
const BUFFER_BYTES: usize = 256 << 10;

/// Reads the records of a file.
pub(super) struct CsvRecords {
    reader: Reader<RecordLimit>,
    limit: Rc<Cell<u64>>,
    record: ByteRecord,
    damage: Option<String>,
}

/// A record, and where it begins.
#[derive(Debug, Clone, Copy)]
pub(super) struct CsvRecord<'r> {
    pub(super) cells: &'r ByteRecord,
    pub(super) line: u64,
    /// In the decompressed content, in bytes.
    pub(super) offset: u64,
}

/// An input that ends with an error in a record that is too long.
struct RecordLimit {
    input: Input,
    /// Bytes that may be read up to the end of the record.
    left: Rc<Cell<u64>>,
}

impl Read for RecordLimit {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.input.read(buffer)?;
        let left = self.left.get().checked_sub(read as u64).ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::FileTooLarge,
                format!("a record is longer than {RECORD_BYTES_MAX} bytes; is a quote not closed?"),
            )
        })?;
        self.left.set(left);
        Ok(read)
    }
}

impl CsvRecords {
    pub(super) fn new(input: Input, delimiter: u8) -> Self {
        let limit = Rc::new(Cell::new(RECORD_BYTES_MAX));
        let reader = ReaderBuilder::new()
            .delimiter(delimiter)
            .has_headers(false)
            .flexible(true)
            .buffer_capacity(BUFFER_BYTES)
            .from_reader(RecordLimit { input, left: Rc::clone(&limit) });
        Self { reader, limit, record: ByteRecord::new(), damage: None }
    }

    /// Returns the path of the file.
    pub(super) fn path(&self) -> &Path {
        self.reader.get_ref().input.path()
    }

    /// Returns the offset of the next record.
    pub(super) fn offset(&self) -> u64 {
        self.reader.position().byte()
    }

    /// Returns why the file cannot be read further, if it ended before its end.
    pub(super) fn damage(&self) -> Option<&str> {
        self.damage.as_deref()
    }

    /// Returns the next record; none at the end, and where a compressed file is damaged or a record
    /// is too long. Empty lines are no records.
    ///
    /// # Errors
    /// [`ImportError::Read`], [`ImportError::Stopped`].
    pub(super) fn next(&mut self) -> Result<Option<CsvRecord<'_>>, ImportError> {
        if self.damage.is_some() {
            return Ok(None);
        }
        self.limit.set(RECORD_BYTES_MAX);
        match self.reader.read_byte_record(&mut self.record) {
            Ok(false) => Ok(None),
            Ok(true) => {
                let place = self.record.position();
                let line = place.map_or(0, csv::Position::line);
                let offset = place.map_or(0, csv::Position::byte);
                Ok(Some(CsvRecord { cells: &self.record, line, offset }))
            }
            Err(error) => match error.into_kind() {
                ErrorKind::Io(error) if error.kind() == io::ErrorKind::FileTooLarge => {
                    self.damage = Some(error.to_string());
                    Ok(None)
                }
                ErrorKind::Io(error) if self.reader.get_ref().input.is_damage(&error) => {
                    self.damage = Some(format!("the compressed file is damaged or cut here: {error}"));
                    Ok(None)
                }
                ErrorKind::Io(error) => Err(ImportError::read(self.path())(error)),
                // Records of any length and any bytes are allowed: no other error is known.
                other => Err(ImportError::read(self.path())(io::Error::other(format!("{other:?}")))),
            },
        }
    }
}
