//! Joins the samples of several sources on time, and makes rows from them.

use std::collections::BTreeMap;

use flatcap_format::schema::FieldValue;

use super::held_value::HeldValue;
use crate::names::elements::ElementName;

/// The time and element of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowStamp {
    /// Monotonic time, in nanoseconds.
    pub mono_ns: u64,
    /// Wall time, in nanoseconds.
    pub wall_ns: i64,
    /// The name of the element, for [`ElementNames`](crate::ElementNames). `None` if rows are not
    /// elements.
    pub element: Option<ElementName>,
}

/// A buffer of rows that all have the same number of values.
#[derive(Debug, Default)]
pub(super) struct RowBuffer {
    pub(super) stamps: Vec<RowStamp>,
    pub(super) values: Vec<HeldValue>,
}

impl RowBuffer {
    pub(super) fn clear(&mut self) {
        self.stamps.clear();
        self.values.clear();
    }
}

/// The values of the last sample of each source. Rows are made of these values.
///
/// A row contains the values of the sample from which it is made. In every other column, the row
/// has the last value of the column, if that value is not too old.
#[derive(Debug, Default)]
pub(super) struct SampleJoin {
    held: Vec<Held>,
    /// The index in `begun` of each pair of source and table.
    origins: BTreeMap<(u16, usize), usize>,
    /// The source and table of the previous sample, and the index of this pair.
    // The next sample usually has the same source and table.
    last: Option<((u16, usize), usize)>,
    /// For each pair of source and table, the number of samples that have begun.
    begun: Vec<u64>,
    /// Rows of the elements of the current sample. Each row has the element, and the column and
    /// value of each field.
    elements: Vec<(ElementName, Vec<(usize, HeldValue)>)>,
}

/// The last value of a column.
#[derive(Debug, Clone, Default)]
struct Held {
    value: HeldValue,
    mono_ns: u64,
    /// The index of the pair of source and table to which the value belongs, and the sequence
    /// number of the sample within this pair. The value is valid until this source begins its next
    /// sample in the table.
    origin: usize,
    sample: u64,
}

impl SampleJoin {
    /// Begins a sample of a table of a source. Values of the previous sample become invalid, unless
    /// the new sample sets them again. Returns the index of the pair of source and table, for
    /// [`set`](Self::set).
    pub(super) fn begin(&mut self, source: u16, table: usize) -> usize {
        let key = (source, table);
        let known = self.last.filter(|(last, _)| *last == key).map(|(_, origin)| origin);
        let origin = known.unwrap_or_else(|| {
            *self.origins.entry(key).or_insert_with(|| {
                self.begun.push(0);
                self.begun.len() - 1
            })
        });
        self.last = Some((key, origin));
        // A new sample number invalidates all values of the previous sample at once.
        if let Some(begun) = self.begun.get_mut(origin) {
            *begun += 1;
        }
        origin
    }

    /// Clears the values of a source.
    pub(super) fn forget(&mut self, source: u16) {
        let all = self.origins.range((source, 0)..=(source, usize::MAX));
        for (_, origin) in all {
            if let Some(begun) = self.begun.get_mut(*origin) {
                *begun += 1;
            }
        }
    }

    /// Sets the value of a column.
    pub(super) fn set(&mut self, place: usize, origin: usize, mono_ns: u64, value: FieldValue<'_>) {
        if self.held.len() <= place {
            self.held.resize_with(place + 1, Held::default);
        }
        if let Some(held) = self.held.get_mut(place) {
            held.value.set(value);
            let sample = self.begun.get(origin).copied().unwrap_or_default();
            (held.mono_ns, held.origin, held.sample) = (mono_ns, origin, sample);
        }
    }

    /// Begins the row of an element.
    pub(super) fn begin_element(&mut self, element: ElementName) {
        self.elements.push((element, Vec::new()));
    }

    /// Sets a value in the current element's row.
    pub(super) fn set_of_element(&mut self, place: usize, value: FieldValue<'_>) {
        if let Some((_, values)) = self.elements.last_mut() {
            values.push((place, value.into()));
        }
    }

    /// Appends the rows of a sample to the buffer. Appends one row, or, if rows are elements, one
    /// row per element. `ages_max_ns` contains the maximum age of a value, for each column.
    pub(super) fn finish(
        &mut self,
        stamp: RowStamp,
        is_long: bool,
        ages_max_ns: &[u64],
        rows: &mut RowBuffer,
    ) {
        let (held, begun) = (&self.held, &self.begun);
        let append = |element: Option<ElementName>, rows: &mut RowBuffer| {
            rows.stamps.push(RowStamp { element, ..stamp });
            let first = rows.values.len();
            rows.values.extend(ages_max_ns.iter().enumerate().map(|(place, age_max_ns)| {
                let held = held.get(place);
                let is_there = |held: &&Held| {
                    begun.get(held.origin) == Some(&held.sample)
                        && stamp.mono_ns.saturating_sub(held.mono_ns) <= *age_max_ns
                };
                held.filter(is_there).map_or(HeldValue::Absent, |held| held.value.clone())
            }));
            first
        };
        if !is_long {
            append(None, rows);
            return;
        }
        for (element, values) in self.elements.drain(..) {
            let first = append(Some(element), rows);
            for (place, value) in values {
                if let Some(own) = rows.values.get_mut(first + place) {
                    *own = value;
                }
            }
        }
    }

    /// Clears all values.
    pub(super) fn clear(&mut self) {
        self.held.clear();
        self.origins.clear();
        self.last = None;
        self.begun.clear();
        self.elements.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(
        join: &mut SampleJoin,
        mono_ns: u64,
        is_long: bool,
        ages: &[u64],
    ) -> Vec<(Option<ElementName>, Vec<u64>)> {
        let mut rows = RowBuffer::default();
        let stamp = RowStamp { mono_ns, wall_ns: 0, element: None };
        join.finish(stamp, is_long, ages, &mut rows);
        let number = |value: &HeldValue| if let HeldValue::Unsigned(number) = value { *number } else { 0 };
        let values = rows.values.chunks(ages.len()).map(|row| row.iter().map(number).collect());
        rows.stamps.iter().map(|stamp| stamp.element).zip(values).collect()
    }

    // Proves that a row has the last value of each column, up to the column's maximum age.
    #[test]
    fn values_are_held_until_they_are_too_old() {
        let mut join = SampleJoin::default();
        let (one, other) = (join.begin(0, 0), join.begin(0, 1));
        join.set(0, one, 100, FieldValue::Unsigned(1));
        join.set(1, other, 100, FieldValue::Unsigned(2));
        assert_eq!(row(&mut join, 100, false, &[10, 50]), [(None, vec![1, 2])]);
        join.begin(0, 0);
        join.set(0, one, 150, FieldValue::Unsigned(3));
        assert_eq!(row(&mut join, 150, false, &[10, 50]), [(None, vec![3, 2])]);
        assert_eq!(row(&mut join, 151, false, &[10, 50]), [(None, vec![3, 0])]);
        join.begin(0, 0);
        assert_eq!(row(&mut join, 151, false, &[10, 50, 7]), [(None, vec![0, 0, 0])], "it is gone");
        join.clear();
        assert_eq!(row(&mut join, 151, false, &[1_000]), [(None, vec![0])]);
    }

    // Proves that the values of one source are removed, and that the values of another source in
    // the same table remain.
    #[test]
    fn the_values_of_a_source_are_forgotten() {
        let mut join = SampleJoin::default();
        for (place, source) in [(0, 3), (1, 4)] {
            let origin = join.begin(source, 0);
            join.set(place, origin, 5, FieldValue::Unsigned(source.into()));
        }
        join.forget(3);
        assert_eq!(row(&mut join, 5, false, &[1, 1]), [(None, vec![0, 4])]);
    }

    // Proves that each element of a sample has a row with the element's own values and the held
    // values, and that the next sample begins without elements.
    #[test]
    fn elements_have_rows_of_their_own() {
        let mut join = SampleJoin::default();
        let origin = join.begin(0, 0);
        join.set(0, origin, 5, FieldValue::Unsigned(9));
        for element in [7, 3] {
            join.begin_element(ElementName(element));
            join.set_of_element(1, FieldValue::Unsigned(element.into()));
        }
        let rows = row(&mut join, 5, true, &[1, 0]);
        assert_eq!(rows, [(Some(ElementName(7)), vec![9, 7]), (Some(ElementName(3)), vec![9, 3])]);
        assert_eq!(row(&mut join, 6, true, &[1, 0]), []);
    }
}
