//! Columns of values of one type.

use std::borrow::Cow;

use flatcap_format::schema::{ColumnType, CompiledSchema, FieldValue, ScalarReader};

use super::strided_rows::{StridedRows, picked, set, set_last, split_off};
use super::text_column::TextColumn;

/// The values of one field, one per row.
#[derive(Debug, Clone, PartialEq)]
pub struct ValueColumn {
    /// The values. For a row without a value, the stored value is 0, false or empty.
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
    /// 32-bit floats. The decimal form of a 32-bit float is shorter than the decimal form of the
    /// same value as a 64-bit float.
    Float32(Vec<f32>),
    /// 64-bit floats.
    Float(Vec<f64>),
    /// Bools.
    Bool(Vec<bool>),
    /// Strings.
    Text(TextColumn),
}

/// A set of rows of a column.
#[derive(Debug, Clone, Default)]
pub struct ValidRows {
    // One bit per row, the lowest bit of a word first. `None` if all rows are in the set.
    bits: Option<Vec<u64>>,
    rows: usize,
}

/// The default is a column without rows.
impl Default for ValueColumn {
    fn default() -> Self {
        Self::new(ColumnType::Unsigned, 0)
    }
}

impl ValueColumn {
    /// Creates an empty column, with space for `rows` rows.
    pub(crate) fn new(column_type: ColumnType, rows: usize) -> Self {
        let values = match column_type {
            ColumnType::Unsigned => ColumnValues::Unsigned(Vec::with_capacity(rows)),
            ColumnType::Signed => ColumnValues::Signed(Vec::with_capacity(rows)),
            ColumnType::Float32 => ColumnValues::Float32(Vec::with_capacity(rows)),
            ColumnType::Float => ColumnValues::Float(Vec::with_capacity(rows)),
            ColumnType::Bool => ColumnValues::Bool(Vec::with_capacity(rows)),
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

    /// Returns the value of a row as a number, or `None` for a string, NaN, or a row without a
    /// value. Integers are rounded to the nearest float.
    pub fn number(&self, row: usize) -> Option<f64> {
        self.get(row).number().filter(|number| !number.is_nan())
    }

    /// Returns the type of the values.
    pub(crate) fn column_type(&self) -> ColumnType {
        match &self.values {
            ColumnValues::Unsigned(_) => ColumnType::Unsigned,
            ColumnValues::Signed(_) => ColumnType::Signed,
            ColumnValues::Float32(_) => ColumnType::Float32,
            ColumnValues::Float(_) => ColumnType::Float,
            ColumnValues::Bool(_) => ColumnType::Bool,
            ColumnValues::Text(_) => ColumnType::Text,
        }
    }

    /// Returns whether any string of the column may be the escaped form of bytes that are not
    /// UTF-8.
    pub(crate) fn may_be_escaped(&self) -> bool {
        matches!(&self.values, ColumnValues::Text(texts) if texts.may_be_escaped())
    }

    /// Appends a row without a value.
    pub(crate) fn push_absent(&mut self) {
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

    /// Appends a row with a value.
    pub(crate) fn push(&mut self, value: FieldValue<'_>) {
        match (&mut self.values, value) {
            (ColumnValues::Unsigned(values), FieldValue::Unsigned(number)) => values.push(number),
            (ColumnValues::Signed(values), FieldValue::Signed(number)) => values.push(number),
            (ColumnValues::Float32(values), FieldValue::Float32(number)) => values.push(number),
            (ColumnValues::Float(values), FieldValue::Float(number)) => values.push(number),
            (ColumnValues::Bool(values), FieldValue::Bool(value)) => values.push(value),
            (ColumnValues::Text(texts), FieldValue::Text(text)) => texts.push(text),
            _ => {
                self.push_absent();
                self.set_last(value);
                return;
            }
        }
        self.valid.push(true);
    }

    /// Sets the value of the last row. In a column of strings, a number stands for an enum value
    /// that has no name. The number is stored as its digits.
    pub(crate) fn set_last(&mut self, value: FieldValue<'_>) {
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

    /// Appends rows whose values the caller writes next.
    pub(crate) fn grow(&mut self, rows: usize) {
        let length = self.valid.rows + rows;
        match &mut self.values {
            ColumnValues::Unsigned(values) => values.resize(length, 0),
            ColumnValues::Signed(values) => values.resize(length, 0),
            ColumnValues::Float32(values) => values.resize(length, 0.0),
            ColumnValues::Float(values) => values.resize(length, 0.0),
            ColumnValues::Bool(values) => values.resize(length, false),
            ColumnValues::Text(texts) => texts.grow(length),
        }
        self.valid.grow(rows);
    }

    /// Writes one value to several rows that [`grow`](Self::grow) has appended.
    pub(crate) fn write_constant(&mut self, rows: StridedRows, value: FieldValue<'_>) {
        let is_set = match (&mut self.values, value) {
            (ColumnValues::Unsigned(values), FieldValue::Unsigned(number)) => rows.fill(values, number),
            (ColumnValues::Signed(values), FieldValue::Signed(number)) => rows.fill(values, number),
            (ColumnValues::Float32(values), FieldValue::Float32(number)) => rows.fill(values, number),
            (ColumnValues::Float(values), FieldValue::Float(number)) => rows.fill(values, number),
            (ColumnValues::Bool(values), FieldValue::Bool(value)) => rows.fill(values, value),
            (ColumnValues::Text(texts), FieldValue::Text(text)) => texts.fill(rows, text),
            _ => false,
        };
        if !is_set {
            rows.iter().for_each(|row| self.valid.remove(row));
        }
    }

    /// Appends rows whose values are given as bits.
    pub(crate) fn push_bits(&mut self, bits: &[u64], reader: &ScalarReader, schema: &CompiledSchema) {
        if matches!(self.values, ColumnValues::Text(_)) {
            let rows = StridedRows { start: self.valid.rows, stride: 1, count: bits.len() };
            self.grow(bits.len());
            self.write_bits(rows, bits, reader, schema);
            return;
        }
        self.push_scalars(bits.iter().copied(), reader);
    }

    /// Appends a row whose value is given as bits. In a column of strings, the row has no value.
    #[inline]
    #[allow(clippy::cast_possible_truncation, reason = "bits of a float of four bytes")]
    pub(crate) fn push_scalar(&mut self, bits: u64, reader: &ScalarReader) {
        if reader.absent_bits() == Some(bits) {
            return self.push_absent();
        }
        match &mut self.values {
            ColumnValues::Unsigned(values) => values.push(bits),
            ColumnValues::Signed(values) => values.push(reader.signed(bits)),
            ColumnValues::Float32(values) => values.push(f32::from_bits(bits as u32)),
            ColumnValues::Float(values) => values.push(f64::from_bits(bits)),
            ColumnValues::Bool(values) => values.push(bits != 0),
            ColumnValues::Text(_) => return self.push_absent(),
        }
        self.valid.grow(1);
    }

    /// Appends rows whose values are given as bits. In a column of strings, the rows have no value.
    #[inline]
    #[allow(clippy::cast_possible_truncation, reason = "bits of a float of four bytes")]
    pub(crate) fn push_scalars(
        &mut self,
        bits: impl ExactSizeIterator<Item = u64> + Clone,
        reader: &ScalarReader,
    ) {
        let rows = StridedRows { start: self.valid.rows, stride: 1, count: bits.len() };
        let all = bits.clone();
        match &mut self.values {
            ColumnValues::Unsigned(values) => values.extend(all),
            ColumnValues::Signed(values) => values.extend(all.map(|bits| reader.signed(bits))),
            ColumnValues::Float32(values) => values.extend(all.map(|bits| f32::from_bits(bits as u32))),
            ColumnValues::Float(values) => values.extend(all.map(f64::from_bits)),
            ColumnValues::Bool(values) => values.extend(all.map(|bits| bits != 0)),
            ColumnValues::Text(_) => return all.for_each(|_| self.push_absent()),
        }
        self.valid.grow(rows.count);
        self.remove_absent(rows, bits, reader);
    }

    /// Writes values to rows that [`grow`](Self::grow) has appended. The values are given as bits.
    #[allow(clippy::cast_possible_truncation, reason = "bits of a float of four bytes")]
    pub(crate) fn write_bits(
        &mut self,
        rows: StridedRows,
        bits: &[u64],
        reader: &ScalarReader,
        schema: &CompiledSchema,
    ) {
        let all = bits.iter().copied();
        match &mut self.values {
            ColumnValues::Text(texts) => {
                for row in texts.write_names(rows, bits, reader, schema) {
                    self.valid.remove(row);
                }
                return;
            }
            ColumnValues::Unsigned(values) => rows.set(values, all),
            ColumnValues::Signed(values) => rows.set(values, all.map(|bits| reader.signed(bits))),
            ColumnValues::Float32(values) => rows.set(values, all.map(|bits| f32::from_bits(bits as u32))),
            ColumnValues::Float(values) => rows.set(values, all.map(f64::from_bits)),
            ColumnValues::Bool(values) => rows.set(values, all.map(|bits| bits != 0)),
        }
        self.remove_absent(rows, bits.iter().copied(), reader);
    }

    /// Marks a row as absent if its bits represent an absent value of the field.
    #[inline]
    fn remove_absent(
        &mut self,
        rows: StridedRows,
        bits: impl Iterator<Item = u64> + Clone,
        reader: &ScalarReader,
    ) {
        // For most fields that can be absent, no row has the bits that mean absence.
        let Some(absent) = reader.absent_bits() else { return };
        if bits.clone().any(|bits| bits == absent) {
            for (row, _) in rows.iter().zip(bits).filter(|(_, bits)| *bits == absent) {
                self.valid.remove(row);
                // Only integers use one of their values for absence, so only they are reset to 0.
                match &mut self.values {
                    ColumnValues::Unsigned(values) => set(values, row, 0),
                    ColumnValues::Signed(values) => set(values, row, 0),
                    _ => {}
                }
            }
        }
    }

    /// Appends `count` rows with strings.
    pub(crate) fn push_texts<'t>(&mut self, count: usize, texts: impl Iterator<Item = Cow<'t, str>>) {
        let start = self.valid.rows;
        self.grow(count);
        if let ColumnValues::Text(column) = &mut self.values {
            column.write((start, count), texts);
        }
    }

    /// Appends a row with a string. The row `distance` positions before the new row probably has
    /// the same string.
    pub(crate) fn push_text(&mut self, text: &str, distance: usize) {
        match &mut self.values {
            ColumnValues::Text(column) => {
                column.push_repeated(text, distance);
                self.valid.push(true);
            }
            _ => self.push_absent(),
        }
    }

    /// Returns the rows with these positions.
    pub(crate) fn select(&self, rows: &[usize]) -> Self {
        let values = match &self.values {
            ColumnValues::Unsigned(values) => ColumnValues::Unsigned(picked(values, rows)),
            ColumnValues::Signed(values) => ColumnValues::Signed(picked(values, rows)),
            ColumnValues::Float32(values) => ColumnValues::Float32(picked(values, rows)),
            ColumnValues::Float(values) => ColumnValues::Float(picked(values, rows)),
            ColumnValues::Bool(values) => ColumnValues::Bool(picked(values, rows)),
            ColumnValues::Text(texts) => ColumnValues::Text(texts.select(rows)),
        };
        let mut valid = ValidRows::default();
        for row in rows {
            valid.push(self.valid.has(*row));
        }
        Self { values, valid }
    }

    /// Splits off the rows from position `at` on. Reserves space for `rows` rows in the part that
    /// is split off.
    pub(crate) fn split_off(&mut self, at: usize, rows: usize) -> Self {
        let values = match &mut self.values {
            ColumnValues::Unsigned(values) => ColumnValues::Unsigned(split_off(values, at, rows)),
            ColumnValues::Signed(values) => ColumnValues::Signed(split_off(values, at, rows)),
            ColumnValues::Float32(values) => ColumnValues::Float32(split_off(values, at, rows)),
            ColumnValues::Float(values) => ColumnValues::Float(split_off(values, at, rows)),
            ColumnValues::Bool(values) => ColumnValues::Bool(split_off(values, at, rows)),
            ColumnValues::Text(texts) => ColumnValues::Text(texts.split_off(at, rows)),
        };
        Self { values, valid: self.valid.split_off(at) }
    }

    /// Keeps only the first `rows` rows.
    pub(crate) fn truncate(&mut self, rows: usize) {
        match &mut self.values {
            ColumnValues::Unsigned(values) => values.truncate(rows),
            ColumnValues::Signed(values) => values.truncate(rows),
            ColumnValues::Float32(values) => values.truncate(rows),
            ColumnValues::Float(values) => values.truncate(rows),
            ColumnValues::Bool(values) => values.truncate(rows),
            ColumnValues::Text(texts) => texts.truncate(rows),
        }
        self.valid.truncate(rows);
    }
}

impl PartialEq for ValidRows {
    fn eq(&self, other: &Self) -> bool {
        // A set without bits equals a set whose bits are all 1, so the bits cannot be compared.
        self.rows == other.rows && (0..self.rows).all(|row| self.has(row) == other.has(row))
    }
}

impl Eq for ValidRows {}

impl ValidRows {
    /// For a column with this number of rows, returns the set of all rows.
    pub fn all(rows: usize) -> Self {
        Self { bits: None, rows }
    }

    /// Returns whether the row is in the set.
    #[inline]
    pub fn has(&self, row: usize) -> bool {
        row < self.rows
            && self
                .bits
                .as_ref()
                .is_none_or(|bits| bits.get(row / 64).is_some_and(|word| word >> (row % 64) & 1 == 1))
    }

    /// Returns whether the set contains every row of the column.
    pub fn are_all(&self) -> bool {
        self.bits.is_none()
    }

    /// Appends a row to the column. If `is_valid` is true, adds the row to the set.
    pub(super) fn push(&mut self, is_valid: bool) {
        let row = self.rows;
        self.rows += 1;
        if !is_valid && self.bits.is_none() {
            // Until now all rows were in the set, so the set has no bits yet.
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

    /// Appends rows to the set.
    fn grow(&mut self, rows: usize) {
        let from = self.rows;
        self.rows += rows;
        if let Some(bits) = &mut self.bits {
            // The bits beyond the last row of the set do not belong to a row yet.
            if let Some(word) = bits.get_mut(from / 64) {
                *word |= u64::MAX << (from % 64);
            }
            bits.resize(self.rows.div_ceil(64), u64::MAX);
        }
    }

    /// Removes a row from the set.
    fn remove(&mut self, row: usize) {
        if row < self.rows {
            let words = self.rows.div_ceil(64);
            let bits = self.bits.get_or_insert_with(|| vec![u64::MAX; words]);
            if let Some(word) = bits.get_mut(row / 64) {
                *word &= !(1 << (row % 64));
            }
        }
    }

    /// Splits off the rows from position `at` on.
    fn split_off(&mut self, at: usize) -> Self {
        let mut later = Self::default();
        if self.are_all() {
            later = Self::all(self.rows.saturating_sub(at));
        } else {
            (at..self.rows).for_each(|row| later.push(self.has(row)));
        }
        self.truncate(at);
        later
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
    // even after rows were removed.
    #[test]
    fn columns_keep_their_values() {
        let mut column = ValueColumn::new(ColumnType::Unsigned, 0);
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

    // Proves that successive equal strings are stored only one time, and that a value of another
    // type is not stored.
    #[test]
    fn texts_are_stored_once() {
        let mut column = ValueColumn::new(ColumnType::Text, 0);
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
