//! Reads the values of a column from payloads with the same structure, without a step for each
//! cell.

use flatcap_format::schema::{ColumnType, ScalarReader};

use super::table_rows::TableRows;
use crate::columns::column::ValueColumn;

/// The positions of the values of a column in a payload, one per row. All values are scalars of one
/// field.
#[derive(Debug)]
pub(super) struct ScalarCells {
    reader: ScalarReader,
    places: Box<[usize]>,
}

impl ScalarCells {
    /// Returns the positions of the values of a column in a template. Returns `None` for strings.
    /// Also returns `None` if the payload has no bytes for the value of some row.
    pub(super) fn of(rows: &TableRows, column: usize) -> Option<Self> {
        if rows.columns.get(column)?.column_type() == ColumnType::Text {
            return None;
        }
        let reader = rows.cell(0, column)?.reader?;
        let places = (0..rows.rows()).map(|row| {
            let cell = rows.cell(row, column)?;
            (cell.reader == Some(reader) && cell.bytes.len() == reader.bytes()).then_some(cell.bytes.start)
        });
        Some(Self { reader, places: places.collect::<Option<_>>()? })
    }

    /// Appends the values of a payload that fits the template.
    #[inline]
    pub(super) fn append(&self, payload: &[u8], column: &mut ValueColumn) {
        // There is one case for each length, so that each value is read by one load instruction.
        match self.reader.bytes() {
            1 => self.append_words::<1>(payload, column),
            2 => self.append_words::<2>(payload, column),
            4 => self.append_words::<4>(payload, column),
            _ => self.append_words::<8>(payload, column),
        }
    }

    #[inline]
    fn append_words<const BYTES: usize>(&self, payload: &[u8], column: &mut ValueColumn) {
        let bits = |place: &usize| {
            // A payload that fits the template has the same length as the template's payload, so it
            // has these bytes.
            let bytes = payload.get(*place..).and_then(<[u8]>::first_chunk::<BYTES>);
            bytes.map_or(0, zero_extended)
        };
        match &*self.places {
            [place] => column.push_scalar(bits(place), &self.reader),
            places => column.push_scalars(places.iter().map(bits), &self.reader),
        }
    }
}

#[inline]
fn zero_extended<const BYTES: usize>(bytes: &[u8; BYTES]) -> u64 {
    let mut word = [0; 8];
    if let Some(low) = word.first_chunk_mut() {
        *low = *bytes;
    }
    u64::from_le_bytes(word)
}
