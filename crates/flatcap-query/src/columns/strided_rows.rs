//! Writes, selects and splits off rows of a column, by their positions.

/// Rows at equal distances, such as the rows of one element in successive samples.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StridedRows {
    pub(crate) start: usize,
    pub(crate) stride: usize,
    pub(crate) count: usize,
}

impl StridedRows {
    pub(super) fn iter(self) -> impl Iterator<Item = usize> {
        // `step_by` panics if its argument is 0.
        (self.start..).step_by(self.stride.max(1)).take(self.count)
    }

    pub(super) fn fill<T: Clone>(self, values: &mut [T], value: T) -> bool {
        self.set(values, std::iter::repeat(value));
        true
    }

    /// Sets the values of the rows, in order, to the new values.
    pub(super) fn set<T>(self, values: &mut [T], new: impl Iterator<Item = T>) {
        let places = values.get_mut(self.start..).unwrap_or_default().iter_mut().step_by(self.stride.max(1));
        places.take(self.count).zip(new).for_each(|(place, value)| *place = value);
    }
}

/// Returns the values at these positions.
pub(super) fn picked<T: Copy>(values: &[T], places: &[usize]) -> Vec<T> {
    places.iter().filter_map(|place| values.get(*place).copied()).collect()
}

/// Splits off the values from position `at` on. Reserves space for `capacity` values in the part
/// that is split off.
pub(super) fn split_off<T: Copy>(values: &mut Vec<T>, at: usize, capacity: usize) -> Vec<T> {
    // The result of `Vec::split_off` has no space for further values.
    let later = values.get(at..).unwrap_or_default();
    let mut split = Vec::with_capacity(capacity.max(later.len()));
    split.extend_from_slice(later);
    values.truncate(at);
    split
}

pub(super) fn set<T>(values: &mut [T], row: usize, value: T) {
    if let Some(place) = values.get_mut(row) {
        *place = value;
    }
}

pub(super) fn set_last<T>(values: &mut [T], value: T) -> bool {
    values.last_mut().map(|last| *last = value).is_some()
}
