//! A column of strings.

use std::borrow::Cow;
use std::collections::HashMap;

use flatcap_format::schema::{CompiledSchema, FieldValue, ScalarReader};

use super::strided_rows::{StridedRows, picked, set, set_last};

/// Strings. Each distinct string is stored only one time.
#[derive(Debug, Clone, Default)]
pub struct TextColumn {
    codes: Vec<u32>,
    texts: Vec<Box<str>>,
    known: HashMap<Box<str>, u32>,
    /// Whether any string contains a backslash.
    // Only a string with a backslash can be the escaped form of bytes that are not UTF-8.
    has_backslash: bool,
}

impl TextColumn {
    /// Returns the string of a row.
    pub fn get(&self, row: usize) -> Option<&str> {
        self.texts.get(*self.codes.get(row)? as usize).map(|text| &**text)
    }

    /// Returns an integer code for each row. Rows with equal strings have equal codes. The codes
    /// begin at 0, and are assigned in the order in which the distinct strings first occur.
    pub fn codes(&self) -> &[u32] {
        &self.codes
    }

    /// Returns the distinct strings, in the order in which they first occur.
    #[cfg(test)]
    pub(crate) fn texts(&self) -> impl ExactSizeIterator<Item = &str> {
        self.texts.iter().map(|text| &**text)
    }

    /// Returns whether any string may be the escaped form of bytes that are not UTF-8.
    pub(super) fn may_be_escaped(&self) -> bool {
        self.has_backslash
    }

    /// Appends a row with a string.
    pub(super) fn push(&mut self, text: &str) {
        let code = self.code(text);
        self.codes.push(code);
    }

    /// Appends a row with a string. The row `distance` positions before the new row probably has
    /// the same string.
    pub(super) fn push_repeated(&mut self, text: &str, distance: usize) {
        let code = self.code_before(self.codes.len(), distance, text);
        self.codes.push(code);
    }

    /// Sets the string of the last row. Returns false if the column has no rows.
    pub(super) fn set_last(&mut self, text: &str) -> bool {
        let code = self.code(text);
        set_last(&mut self.codes, code)
    }

    /// Appends rows with empty strings, until there are `rows` rows.
    pub(super) fn grow(&mut self, rows: usize) {
        let empty = self.code("");
        self.codes.resize(rows, empty);
    }

    /// Writes the same string to several rows.
    pub(super) fn fill(&mut self, rows: StridedRows, text: &str) -> bool {
        let code = self.code(text);
        rows.fill(&mut self.codes, code)
    }

    /// Writes strings to the rows from `start` on. The rows `count` positions before the written
    /// rows probably have the same strings, because they contain the same list of the previous
    /// sample.
    pub(super) fn write<'t>(
        &mut self,
        (start, count): (usize, usize),
        texts: impl Iterator<Item = Cow<'t, str>>,
    ) {
        for (row, text) in (start..).zip(texts) {
            let code = self.code_before(row, count, &text);
            set(&mut self.codes, row, code);
        }
    }

    /// Returns the code of a string for a row. The row `distance` positions before this row
    /// probably has the same string.
    fn code_before(&mut self, row: usize, distance: usize, text: &str) -> u32 {
        // Comparing the string with the string `distance` rows before is faster than a search.
        let before = row.checked_sub(distance).filter(|before| self.get(*before) == Some(text));
        match before.and_then(|before| self.codes.get(before)) {
            Some(code) => *code,
            None => self.code(text),
        }
    }

    /// Returns the rows with these positions.
    pub(super) fn select(&self, rows: &[usize]) -> Self {
        self.of_codes(&picked(&self.codes, rows), 0)
    }

    /// Splits off the rows from position `at` on. Reserves space for `rows` rows in the part that
    /// is split off.
    pub(super) fn split_off(&mut self, at: usize, rows: usize) -> Self {
        let later = self.of_codes(self.codes.get(at..).unwrap_or_default(), rows);
        self.codes.truncate(at);
        later
    }

    /// Keeps only the first `rows` rows.
    pub(super) fn truncate(&mut self, rows: usize) {
        self.codes.truncate(rows);
    }

    fn code(&mut self, text: &str) -> u32 {
        if let Some(code) = self.known.get(text) {
            return *code;
        }
        // The size of a batch is limited, so a batch has fewer rows than 32 bits can count.
        let code = u32::try_from(self.texts.len()).unwrap_or(u32::MAX);
        self.has_backslash |= text.contains('\\');
        self.texts.push(text.into());
        self.known.insert(text.into(), code);
        code
    }

    /// Returns a column with the strings that have these codes. Reserves space for `rows` rows.
    fn of_codes(&self, codes: &[u32], rows: usize) -> Self {
        let mut column = Self { codes: Vec::with_capacity(rows.max(codes.len())), ..Self::default() };
        // For each string, its code in the new column, if the string has already occurred there.
        let mut new_codes: Vec<Option<u32>> = vec![None; self.texts.len()];
        for code in codes {
            let (Some(text), Some(new)) = (self.texts.get(*code as usize), new_codes.get_mut(*code as usize))
            else {
                column.push("");
                continue;
            };
            let new = *new.get_or_insert_with(|| column.code(text));
            column.codes.push(new);
        }
        column
    }

    /// Writes the names of enum values. If an enum value has no name, writes the decimal digits of
    /// the value. Returns the rows without a value.
    pub(super) fn write_names(
        &mut self,
        rows: StridedRows,
        bits: &[u64],
        reader: &ScalarReader,
        schema: &CompiledSchema,
    ) -> Vec<usize> {
        let mut absent = Vec::new();
        // The previous value and its code are kept, because states rarely change.
        let mut last: Option<(u64, Option<u32>)> = None;
        for (row, bits) in rows.iter().zip(bits) {
            let code = match last {
                Some((before, code)) if before == *bits => code,
                _ => match schema.read_bits(reader, *bits) {
                    FieldValue::Text(name) => Some(self.code(name)),
                    FieldValue::Unsigned(number) => Some(self.code(&number.to_string())),
                    FieldValue::Signed(number) => Some(self.code(&number.to_string())),
                    _ => None,
                },
            };
            last = Some((*bits, code));
            match code {
                Some(code) => set(&mut self.codes, row, code),
                None => absent.push(row),
            }
        }
        absent
    }
}

impl PartialEq for TextColumn {
    fn eq(&self, other: &Self) -> bool {
        // Another column may have other codes for the same strings, so the strings are compared.
        self.codes.len() == other.codes.len()
            && (0..self.codes.len()).all(|row| self.get(row) == other.get(row))
    }
}
