//! Reads records one by one, in bounded memory.

use std::io;
use std::path::{Path, PathBuf};

use super::cells::{Cells, Splitter};
use super::layout::without_comment_mark;
use super::lines::{Line, Lines};
use super::text_encoding::DecodedInput;
use super::time_form::TimeForm;
use crate::error::ImportError;
use crate::limited_input::LimitedInput;

/// Read size, in bytes.
const BUFFER_BYTES: usize = 256 << 10;
/// Maximum length of a record with several lines, in bytes. Without a limit, an open quote would
/// read the rest of the file into memory.
const RECORD_BYTES_MAX: usize = 8 << 20;
/// Memory that a buffered line needs in addition to its text, in bytes.
const LINE_BYTES: usize = 128;

/// The properties by which the parser distinguishes a row from a line within a quoted cell.
#[derive(Debug, Clone, Default)]
pub(super) struct RowShape {
    pub(super) width: RowWidth,
    /// Positions of the time columns and of the zone column.
    pub(super) time: Vec<usize>,
    /// The time format stated by an option.
    pub(super) time_form: Option<TimeForm>,
}

/// The number of cells of a row.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct RowWidth {
    /// Number of columns.
    columns: usize,
    /// Number of columns up to the last column that has a title.
    titled: usize,
}

/// Reads the records of a file.
pub(super) struct CsvRecords {
    path: PathBuf,
    lines: Lines,
    delimiter: u8,
    shape: Option<RowShape>,
    cells: Cells,
    damage: Option<String>,
    /// The number of the last line that was read in search of a closing quote and that is not a
    /// row. If a quote opens in or before this line, the parser does not search for the closing
    /// quote. Therefore, no line is read several times.
    looked_at: u64,
    /// Whether the header begins with a comment mark.
    has_comment_mark: bool,
}

/// A record and its position.
#[derive(Debug, Clone, Copy)]
pub(super) struct CsvRecord<'r> {
    pub(super) cells: &'r Cells,
    pub(super) line: u64,
    /// The offset in the decompressed and decoded content, in bytes.
    pub(super) offset: u64,
    /// The error in the quotes of the record, if any. If a quote is not closed, the record has the
    /// cells of its first line, split as if the line had no quotes.
    pub(super) quote_fault: Option<&'static str>,
}

impl RowWidth {
    pub(super) fn new(titles: &[String]) -> Self {
        let untitled = titles.iter().rev().take_while(|title| title.is_empty()).count();
        Self { columns: titles.len(), titled: titles.len() - untitled }
    }

    /// Returns whether a record has one cell per column. Empty extra cells at the end are ignored.
    /// At the end of a row, the cells of columns without a title may be missing.
    pub(super) fn is_row(self, cells: &Cells) -> bool {
        cells.len() >= self.titled && self.may_become_row(cells)
    }

    /// Returns whether a record can still become a row if further cells are added.
    fn may_become_row(self, cells: &Cells) -> bool {
        cells.iter().skip(self.columns).all(|cell| cell.trim_ascii().is_empty())
    }
}

impl RowShape {
    /// Returns whether a line is a complete row, or the start of a row whose last cell continues in
    /// the next line.
    fn is_row(&self, line: &[u8], delimiter: u8) -> bool {
        let mut cells = Cells::default();
        let is_whole = Splitter::new(delimiter).add_line(line, &mut cells);
        if !is_whole {
            cells.end();
        }
        let is_wide_enough = self.time.iter().all(|at| *at < cells.len());
        let fits = if is_whole { self.width.is_row(&cells) } else { self.width.may_become_row(&cells) };
        if !fits || !is_wide_enough {
            return false;
        }
        let parts: Vec<_> = self.time.iter().map(|at| cells.text(*at)).collect();
        let time = parts.join(" ");
        match &self.time_form {
            Some(form) => form.read(&time).is_some(),
            None => !TimeForm::candidates(&time).is_empty(),
        }
    }
}

impl CsvRecords {
    /// Creates a reader of the records of an input.
    pub(super) fn new(input: DecodedInput, delimiter: u8) -> Self {
        let path = input.input().path().to_owned();
        let lines = Lines::new(input, BUFFER_BYTES);
        Self {
            path,
            lines,
            delimiter,
            shape: None,
            cells: Cells::default(),
            damage: None,
            looked_at: 0,
            has_comment_mark: false,
        }
    }

    /// Sets the properties of rows. Before this call, a quoted cell may contain any line.
    pub(super) fn set_shape(&mut self, shape: RowShape) {
        self.shape = Some(shape);
    }

    /// Returns the path of the file.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the offset of the next record.
    pub(super) fn offset(&self) -> u64 {
        self.lines.offset()
    }

    /// Returns the number of decompressed bytes that were read.
    pub(super) fn bytes_read(&self) -> u64 {
        self.lines.input().bytes_read()
    }

    /// Returns the reason why reading stopped before the end of the file, or `None` if reading did
    /// not stop.
    pub(super) fn damage(&self) -> Option<&str> {
        self.damage.as_deref()
    }

    /// Returns whether the header begins with a comment mark.
    pub(super) fn has_comment_mark(&self) -> bool {
        self.has_comment_mark
    }

    /// Returns the next line unchanged, or `None` at the end or at damage.
    ///
    /// # Errors
    /// [`ImportError::Read`], [`ImportError::Stopped`].
    pub(super) fn next_line(&mut self) -> Result<Option<Line>, ImportError> {
        if self.damage.is_some() && !self.lines.has_returned() {
            return Ok(None);
        }
        match self.lines.next() {
            Ok(line) => Ok(line),
            Err(error) => self.fail(error).map(|()| None),
        }
    }

    /// Returns the header record, without its comment mark.
    ///
    /// # Errors
    /// [`ImportError::Read`], [`ImportError::Stopped`].
    pub(super) fn header(&mut self) -> Result<Option<Cells>, ImportError> {
        if let Some(mut line) = self.next_line()? {
            self.has_comment_mark = line.bytes.starts_with(b"#");
            line.bytes = without_comment_mark(&line.bytes).to_vec();
            self.lines.give_back(vec![line]);
        }
        Ok(self.next()?.map(|record| record.cells.clone()))
    }

    /// Returns the next record and skips empty lines. Returns `None` at the end, at damage of a
    /// compressed file, and at a line that is too long.
    ///
    /// # Errors
    /// [`ImportError::Read`], [`ImportError::Stopped`].
    pub(super) fn next(&mut self) -> Result<Option<CsvRecord<'_>>, ImportError> {
        let first = loop {
            let Some(line) = self.next_line()? else { return Ok(None) };
            if !line.bytes.is_empty() {
                break line;
            }
        };
        self.cells.clear();
        let mut splitter = Splitter::new(self.delimiter);
        let is_closed =
            splitter.add_line(&first.bytes, &mut self.cells) || self.close_quote(&mut splitter, &first)?;
        let mut quote_fault = splitter.has_text_after_quote().then_some("text follows a closing quote");
        if !is_closed {
            quote_fault = Some("a quote is not closed");
            self.cells.clear();
            // The position of the missing quote is unknown, so all quotes of the line are ignored.
            let mut splitter = Splitter::new(self.delimiter);
            let plain: Vec<u8> = first.bytes.iter().copied().filter(|byte| *byte != b'"').collect();
            splitter.add_line(&plain, &mut self.cells);
        }
        let (line, offset) = (first.number, first.offset);
        Ok(Some(CsvRecord { cells: &self.cells, line, offset, quote_fault }))
    }

    /// Continues a record to the end of its quoted cell. Returns false if the quote is still open
    /// at the end of the file or at the maximum length, or if a following line is a complete row.
    /// The lines after the first line are then read again.
    fn close_quote(&mut self, splitter: &mut Splitter, first: &Line) -> Result<bool, ImportError> {
        if first.number <= self.looked_at {
            return Ok(false);
        }
        let mut taken: Vec<Line> = Vec::new();
        let mut bytes = first.bytes.len();
        let mut end = first.end;
        let mut looked_at = first.number;
        let is_closed = loop {
            let Some(line) = self.next_line()? else { break false };
            let is_row = self.shape.as_ref().is_some_and(|shape| shape.is_row(&line.bytes, self.delimiter));
            splitter.add(end, &mut self.cells);
            let is_closed = splitter.add_line(&line.bytes, &mut self.cells);
            (bytes, end) = (bytes + line.bytes.len() + LINE_BYTES, line.end);
            if !is_row {
                looked_at = line.number;
            }
            taken.push(line);
            if is_row || bytes > RECORD_BYTES_MAX {
                break false;
            }
            if is_closed {
                break true;
            }
        };
        if !is_closed {
            // Before the header, any line may belong to a quoted title.
            self.looked_at = if self.shape.is_some() { looked_at } else { 0 };
            self.lines.give_back(taken);
        }
        Ok(is_closed)
    }

    /// Stops reading at damage, or at a line that is too long.
    fn fail(&mut self, error: io::Error) -> Result<(), ImportError> {
        if LimitedInput::is_too_long(&error) {
            self.damage = Some(error.to_string());
        } else if self.lines.input().input().is_damage(&error) {
            self.damage = Some(format!("the compressed file is damaged or cut here: {error}"));
        } else {
            return Err(ImportError::read(&self.path)(error));
        }
        Ok(())
    }
}
