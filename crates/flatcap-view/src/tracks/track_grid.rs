//! The pixels of the timeline of threads. Divides time intervals among the pixels.

use std::ops::RangeInclusive;

/// Pixels of equal length that start at multiples of that length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TrackGrid {
    /// Length of a pixel in nanoseconds, at least 1.
    pub(crate) pixel_ns: i64,
    /// Index of the first pixel: its start time divided by the length of a pixel.
    pub(crate) first: i64,
    /// Number of pixels.
    pub(crate) count: usize,
}

/// A time range clipped to a grid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct GridRange {
    /// Indices of the pixels that the range overlaps. Empty if the range is outside the grid.
    pub(super) pixels: RangeInclusive<usize>,
    /// Start in wall nanoseconds.
    begin_ns: i64,
    /// End in wall nanoseconds.
    end_ns: i64,
}

impl TrackGrid {
    /// Returns the start of a pixel, in wall nanoseconds.
    pub(crate) fn begin_ns(&self, index: usize) -> i64 {
        let index = i64::try_from(index).unwrap_or(i64::MAX);
        self.first.saturating_add(index).saturating_mul(self.pixel_ns)
    }

    /// Returns the index of the pixel that contains a time, or `None` if the time is outside the
    /// grid.
    pub(crate) fn index(&self, wall_ns: i64) -> Option<usize> {
        let number = wall_ns.div_euclid(self.pixel_ns).checked_sub(self.first)?;
        usize::try_from(number).ok().filter(|index| *index < self.count)
    }

    /// Clips a range to the grid. A range without length belongs to the pixel of its start.
    pub(super) fn range(&self, begin_ns: i64, end_ns: i64) -> Option<GridRange> {
        let (first_ns, after_ns) = (self.begin_ns(0), self.begin_ns(self.count));
        let is_outside =
            end_ns < first_ns || begin_ns >= after_ns || (end_ns == first_ns && begin_ns < first_ns);
        if is_outside {
            return None;
        }
        let (begin_ns, end_ns) = (begin_ns.max(first_ns), end_ns.min(after_ns));
        // The end is exclusive, but a range without length still belongs to the pixel of its start.
        let last_ns = end_ns.saturating_sub(1).max(begin_ns);
        Some(GridRange { pixels: self.index(begin_ns)?..=self.index(last_ns)?, begin_ns, end_ns })
    }

    /// Returns the part of a range that is in a pixel, in nanoseconds.
    pub(super) fn part_ns(&self, range: &GridRange, index: usize) -> u64 {
        let begin_ns = range.begin_ns.max(self.begin_ns(index));
        let end_ns = range.end_ns.min(self.begin_ns(index.saturating_add(1)));
        u64::try_from(end_ns.saturating_sub(begin_ns)).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that the parts of a range in its pixels add up to its length within the grid, and that
    // a range without length is in one pixel.
    #[test]
    fn parts_add_up() {
        let grid = TrackGrid { pixel_ns: 8, first: -2, count: 5 };
        assert_eq!((grid.begin_ns(0), grid.begin_ns(5)), (-16, 24));
        for begin_ns in -20..30_i64 {
            for end_ns in begin_ns..32 {
                let inside = end_ns.min(24).saturating_sub(begin_ns.max(-16)).max(0);
                let range = grid.range(begin_ns, end_ns);
                let parts = range
                    .iter()
                    .flat_map(|range| range.pixels.clone().map(move |index| grid.part_ns(range, index)));
                assert_eq!(parts.sum::<u64>(), inside.unsigned_abs(), "{begin_ns}..{end_ns}");
                if begin_ns == end_ns {
                    let pixels = range.map(|range| range.pixels);
                    assert_eq!(pixels, grid.index(begin_ns).map(|index| index..=index));
                }
            }
        }
    }
}
