//! Columns of values of one type.

use std::collections::HashMap;

use crate::schema::{ColumnType, FieldValue};

/// The values of one field, one per row.
#[derive(Debug, Clone, PartialEq)]
pub struct ValueColumn {
    /// The values; one of a row without a value is 0, false or empty.
    pub values: ColumnValues,
    /// The rows that have a value.
    pub valid: ValidRows,
}

/// The values of a column.
#[derive(Debug, Clone, PartialEq)]
pub enum ColumnValues {
    /// Unsigned integers.
    Unsigned(Vec<u64>),
    /// Signed integers.
    Signed(Vec<i64>),
    /// 32-bit floats, which print shorter than as 64 bits.
    Float32(Vec<f32>),
    /// 64-bit floats.
    Float(Vec<f64>),
    /// Bools.
    Bool(Vec<bool>),
    /// Texts.
    Text(TextColumn),
}

/// Texts, each distinct one stored once.
#[derive(Debug, Clone, Default)]
pub struct TextColumn {
    codes: Vec<u32>,
    texts: Vec<Box<str>>,
    known: HashMap<Box<str>, u32>,
}

/// A set of rows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ValidRows {
    // One bit per row, from the lowest; none if all rows are in the set.
    bits: Option<Vec<u64>>,
    rows: usize,
}

impl ValueColumn {
    /// Creates an empty column.
    pub(super) fn new(column_type: ColumnType) -> Self {
        let values = match column_type {
            ColumnType::Unsigned => ColumnValues::Unsigned(Vec::new()),
            ColumnType::Signed => ColumnValues::Signed(Vec::new()),
            ColumnType::Float32 => ColumnValues::Float32(Vec::new()),
            ColumnType::Float => ColumnValues::Float(Vec::new()),
            ColumnType::Bool => ColumnValues::Bool(Vec::new()),
            ColumnType::Text => ColumnValues::Text(TextColumn::default()),
        };
        Self { values, valid: ValidRows::default() }
    }

    /// Returns the value of a row.
    pub fn get(&self, row: usize) -> FieldValue<'_> {
        if !self.valid.has(row) {
            return FieldValue::Absent;
        }
        let value = match &self.values {
            ColumnValues::Unsigned(values) => values.get(row).copied().map(FieldValue::Unsigned),
            ColumnValues::Signed(values) => values.get(row).copied().map(FieldValue::Signed),
            ColumnValues::Float32(values) => values.get(row).copied().map(FieldValue::Float32),
            ColumnValues::Float(values) => values.get(row).copied().map(FieldValue::Float),
            ColumnValues::Bool(values) => values.get(row).copied().map(FieldValue::Bool),
            ColumnValues::Text(texts) => texts.get(row).map(FieldValue::Text),
        };
        value.unwrap_or(FieldValue::Absent)
    }

    /// Returns the value of a row as a number; none for a text, NaN, or a row without a value.
    /// Integers are rounded to the nearest float.
    #[allow(clippy::cast_precision_loss, reason = "documented")]
    pub fn number(&self, row: usize) -> Option<f64> {
        let number = match self.get(row) {
            FieldValue::Unsigned(number) => number as f64,
            FieldValue::Signed(number) => number as f64,
            FieldValue::Float32(number) => f64::from(number),
            FieldValue::Float(number) => number,
            FieldValue::Bool(value) => f64::from(u8::from(value)),
            FieldValue::Text(_) | FieldValue::Absent => return None,
        };
        Some(number).filter(|number| !number.is_nan())
    }

    /// Appends a row without a value.
    pub(super) fn push_absent(&mut self) {
        match &mut self.values {
            ColumnValues::Unsigned(values) => values.push(0),
            ColumnValues::Signed(values) => values.push(0),
            ColumnValues::Float32(values) => values.push(0.0),
            ColumnValues::Float(values) => values.push(0.0),
            ColumnValues::Bool(values) => values.push(false),
            ColumnValues::Text(texts) => texts.push(""),
        }
        self.valid.push(false);
    }

    /// Sets the value of the last row. A number in a column of texts, which is an enum value
    /// without a name, becomes its digits.
    pub(super) fn set_last(&mut self, value: FieldValue<'_>) {
        let is_set = match (&mut self.values, value) {
            (ColumnValues::Unsigned(values), FieldValue::Unsigned(number)) => set_last(values, number),
            (ColumnValues::Signed(values), FieldValue::Signed(number)) => set_last(values, number),
            (ColumnValues::Float32(values), FieldValue::Float32(number)) => set_last(values, number),
            (ColumnValues::Float(values), FieldValue::Float(number)) => set_last(values, number),
            (ColumnValues::Bool(values), FieldValue::Bool(value)) => set_last(values, value),
            (ColumnValues::Text(texts), FieldValue::Text(text)) => texts.set_last(text),
            (ColumnValues::Text(texts), FieldValue::Unsigned(number)) => texts.set_last(&number.to_string()),
            (ColumnValues::Text(texts), FieldValue::Signed(number)) => texts.set_last(&number.to_string()),
            _ => false,
        };
        if is_set {
            self.valid.set_last();
        }
    }

    /// Keeps the first `rows` rows.
    pub(super) fn truncate(&mut self, rows: usize) {
        match &mut self.values {
            ColumnValues::Unsigned(values) => values.truncate(rows),
            ColumnValues::Signed(values) => values.truncate(rows),
            ColumnValues::Float32(values) => values.truncate(rows),
            ColumnValues::Float(values) => values.truncate(rows),
            ColumnValues::Bool(values) => values.truncate(rows),
            ColumnValues::Text(texts) => texts.codes.truncate(rows),
        }
        self.valid.truncate(rows);
    }
}

fn set_last<T>(values: &mut [T], value: T) -> bool {
    values.last_mut().map(|last| *last = value).is_some()
}

impl TextColumn {
    /// Returns the text of a row.
    pub fn get(&self, row: usize) -> Option<&str> {
        self.texts.get(*self.codes.get(row)? as usize).map(|text| &**text)
    }

    /// Returns for each row the index of its text in [`texts`](Self::texts).
    pub fn codes(&self) -> &[u32] {
        &self.codes
    }

    /// Returns the distinct texts, in the order of their first rows.
    pub fn texts(&self) -> impl ExactSizeIterator<Item = &str> {
        self.texts.iter().map(|text| &**text)
    }

    fn code(&mut self, text: &str) -> u32 {
        if let Some(code) = self.known.get(text) {
            return *code;
        }
        // There are fewer rows than 32 bits count: a batch is bounded.
        let code = u32::try_from(self.texts.len()).unwrap_or(u32::MAX);
        self.texts.push(text.into());
        self.known.insert(text.into(), code);
        code
    }

    fn push(&mut self, text: &str) {
        let code = self.code(text);
        self.codes.push(code);
    }

    fn set_last(&mut self, text: &str) -> bool {
        let code = self.code(text);
        set_last(&mut self.codes, code)
    }
}

impl PartialEq for TextColumn {
    fn eq(&self, other: &Self) -> bool {
        self.codes.len() == other.codes.len()
            && (0..self.codes.len()).all(|row| self.get(row) == other.get(row))
    }
}

impl ValidRows {
    /// Returns whether the row is in the set.
    #[inline]
    pub fn has(&self, row: usize) -> bool {
        row < self.rows
            && self
                .bits
                .as_ref()
                .is_none_or(|bits| bits.get(row / 64).is_some_and(|word| word >> (row % 64) & 1 == 1))
    }

    /// Returns whether every row is in the set.
    pub fn are_all(&self) -> bool {
        self.bits.is_none()
    }

    /// Appends a row.
    pub(super) fn push(&mut self, is_valid: bool) {
        let row = self.rows;
        self.rows += 1;
        if !is_valid && self.bits.is_none() {
            self.bits = Some(vec![u64::MAX; row / 64 + 1]);
        }
        if let Some(bits) = &mut self.bits {
            bits.resize(row / 64 + 1, 0);
            if let Some(word) = bits.get_mut(row / 64) {
                let bit = 1 << (row % 64);
                *word = if is_valid { *word | bit } else { *word & !bit };
            }
        }
    }

    fn set_last(&mut self) {
        if let Some(row) = self.rows.checked_sub(1)
            && let Some(word) = self.bits.as_mut().and_then(|bits| bits.get_mut(row / 64))
        {
            *word |= 1 << (row % 64);
        }
    }

    fn truncate(&mut self, rows: usize) {
        self.rows = self.rows.min(rows);
        if let Some(bits) = &mut self.bits {
            bits.truncate(self.rows.div_ceil(64));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that values are returned as they were set, and that rows without a value are absent,
    // also after rows were taken back.
    #[test]
    fn columns_keep_their_values() {
        let mut column = ValueColumn::new(ColumnType::Unsigned);
        for row in 0..200_u64 {
            column.push_absent();
            if row % 3 != 0 {
                column.set_last(FieldValue::Unsigned(row));
            }
        }
        column.truncate(130);
        column.push_absent();
        column.set_last(FieldValue::Unsigned(7));
        column.push_absent();
        for row in 0..130 {
            let expected = if row % 3 == 0 { FieldValue::Absent } else { FieldValue::Unsigned(row as u64) };
            assert_eq!(column.get(row), expected);
        }
        assert_eq!((column.get(130), column.get(131)), (FieldValue::Unsigned(7), FieldValue::Absent));
        assert_eq!((column.number(1), column.get(132)), (Some(1.0), FieldValue::Absent));
    }

    // Proves that a text is stored once, and that a value of another type is not taken.
    #[test]
    fn texts_are_stored_once() {
        let mut column = ValueColumn::new(ColumnType::Text);
        for text in ["a", "b", "a"] {
            column.push_absent();
            column.set_last(FieldValue::Text(text));
        }
        column.push_absent();
        column.set_last(FieldValue::Unsigned(9));
        column.push_absent();
        column.set_last(FieldValue::Bool(true));
        let values: Vec<_> = (0..5).map(|row| column.get(row)).collect();
        assert_eq!(
            values,
            [
                FieldValue::Text("a"),
                FieldValue::Text("b"),
                FieldValue::Text("a"),
                FieldValue::Text("9"),
                FieldValue::Absent
            ]
        );
        let ColumnValues::Text(texts) = &column.values else { panic!("{column:?}") };
        assert_eq!(texts.texts().filter(|text| *text == "a").count(), 1);
    }
}
