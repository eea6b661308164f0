//! Cells of a record, split as RFC 4180 describes.

/// The cells of a record, in a buffer that is reused.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Cells {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Cells {
    /// Returns the number of cells.
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns a cell.
    pub(super) fn get(&self, position: usize) -> Option<&[u8]> {
        let end = *self.ends.get(position)?;
        let start = position.checked_sub(1).and_then(|before| self.ends.get(before)).copied().unwrap_or(0);
        self.bytes.get(start..end)
    }

    /// Returns a cell as text without surrounding spaces. A cell that does not exist is treated as
    /// empty.
    pub(super) fn text(&self, position: usize) -> std::borrow::Cow<'_, str> {
        String::from_utf8_lossy(self.get(position).unwrap_or_default().trim_ascii())
    }

    /// Returns the cells.
    pub(super) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.len()).filter_map(|position| self.get(position))
    }

    /// Returns the total length of the cells, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Ends the current cell.
    pub(super) fn end(&mut self) {
        self.ends.push(self.bytes.len());
    }

    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SplitState {
    CellStart,
    Plain,
    Quoted,
    /// The splitter is after a quote within a quoted cell. This quote closes the cell, or it is the
    /// first quote of an escaped pair.
    QuoteInQuotes,
    /// The splitter is after a closing quote and the spaces that follow it.
    Closed,
}

/// Splits lines into cells. A quoted cell may continue in the next line.
#[derive(Debug)]
pub(super) struct Splitter {
    delimiter: u8,
    state: SplitState,
    has_text_after_quote: bool,
}

impl Splitter {
    pub(super) fn new(delimiter: u8) -> Self {
        Self { delimiter, state: SplitState::CellStart, has_text_after_quote: false }
    }

    /// Returns whether a closing quote was followed by more text of the same cell. In this case, a
    /// quote within the cell was not escaped, so the positions of all later cells are uncertain.
    pub(super) fn has_text_after_quote(&self) -> bool {
        self.has_text_after_quote
    }

    /// Adds a line. Returns false if a quote is open at the end of the line. The record then
    /// continues in the next line. The caller must add the line ending with `add` before it adds
    /// the next line.
    pub(super) fn add_line(&mut self, line: &[u8], cells: &mut Cells) -> bool {
        self.add(line, cells);
        if self.state == SplitState::Quoted {
            return false;
        }
        cells.end();
        self.state = SplitState::CellStart;
        true
    }

    /// Splits the next bytes of a record into cells.
    pub(super) fn add(&mut self, bytes: &[u8], cells: &mut Cells) {
        for byte in bytes {
            self.state = match (self.state, *byte) {
                (SplitState::CellStart, b'"') => SplitState::Quoted,
                (SplitState::Quoted, b'"') => SplitState::QuoteInQuotes,
                (SplitState::Quoted, other) => {
                    cells.bytes.push(other);
                    SplitState::Quoted
                }
                (SplitState::QuoteInQuotes, b'"') => {
                    cells.bytes.push(b'"');
                    SplitState::Quoted
                }
                (_, other) if other == self.delimiter => {
                    cells.end();
                    SplitState::CellStart
                }
                (SplitState::QuoteInQuotes | SplitState::Closed, space @ (b' ' | b'\t')) => {
                    cells.bytes.push(space);
                    SplitState::Closed
                }
                (state, other) => {
                    self.has_text_after_quote |=
                        matches!(state, SplitState::QuoteInQuotes | SplitState::Closed);
                    cells.bytes.push(other);
                    SplitState::Plain
                }
            };
        }
    }
}

/// Splits a line into cells. Returns `None` if a quote is open at the end of the line.
pub(super) fn split_line(line: &[u8], delimiter: u8) -> Option<Cells> {
    let mut cells = Cells::default();
    Splitter::new(delimiter).add_line(line, &mut cells).then_some(cells)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    // Proves that text after a closing quote is detected, and that spaces and escaped quotes are
    // not treated as such text.
    #[test]
    fn text_after_a_closing_quote_is_noticed() {
        for (line, expected) in [
            ("1,\"5\" rack\",2", true),
            ("\"a\"b", true),
            ("\"a\" \"b\"", true),
            ("1,\"5\"\" rack\",2", false),
            ("\"a\" ,\"b\"", false),
            ("a\"b\"c,2", false),
        ] {
            let mut splitter = Splitter::new(b',');
            splitter.add_line(line.as_bytes(), &mut Cells::default());
            assert_eq!(splitter.has_text_after_quote(), expected, "{line}");
        }
    }

    proptest! {
        // Proves that any line is split in the same way as the csv crate splits it.
        #[test]
        fn lines_are_split_as_by_the_csv_crate(line in "[a,\"; ]{1,24}") {
            let mut reader = csv::ReaderBuilder::new().has_headers(false).flexible(true)
                .from_reader(line.as_bytes());
            let mut record = csv::ByteRecord::new();
            reader.read_byte_record(&mut record).unwrap();
            // If a quote is open, the csv crate ends the cell at the end of the file.
            let mut cells = Cells::default();
            if !Splitter::new(b',').add_line(line.as_bytes(), &mut cells) {
                cells.end();
            }
            prop_assert!(record.iter().eq(cells.iter()), "{:?} {:?}", record, cells);
        }
    }
}
