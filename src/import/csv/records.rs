//! Reads records one by one, in bounded memory.

use std::io;
use std::path::Path;

use csv::{ByteRecord, ErrorKind, Position, Reader, ReaderBuilder};

use crate::import::error::ImportError;
use crate::import::input::Input;
use crate::import::limited_input::{ElementBudget, LimitedInput};

/// Read size, in bytes.
const BUFFER_BYTES: usize = 256 << 10;

/// Reads the records of a file.
pub(super) struct CsvRecords {
    reader: Reader<LimitedInput>,
    budget: ElementBudget,
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

impl CsvRecords {
    pub(super) fn new(input: Input, delimiter: u8) -> Self {
        let budget = ElementBudget::new();
        let reader = ReaderBuilder::new()
            .delimiter(delimiter)
            .has_headers(false)
            .flexible(true)
            .buffer_capacity(BUFFER_BYTES)
            .from_reader(LimitedInput::new(input, budget.clone()));
        Self { reader, budget, record: ByteRecord::new(), damage: None }
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
        self.budget.renew();
        match self.reader.read_byte_record(&mut self.record) {
            Ok(false) => Ok(None),
            Ok(true) => {
                let place = self.record.position();
                let (line, offset) = (place.map_or(0, Position::line), place.map_or(0, Position::byte));
                Ok(Some(CsvRecord { cells: &self.record, line, offset }))
            }
            Err(error) => match error.into_kind() {
                ErrorKind::Io(error) if LimitedInput::is_too_long(&error) => {
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
