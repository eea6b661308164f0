//! Pixels are equal parts of wall time. Each pixel has a summary of its values.

use std::ops::Range;

/// Maximum number of pixels of an overview.
// This is more than any screen has.
const PIXELS_MAX: u32 = 1 << 14;
/// Binary logarithm of the maximum length of a pixel in nanoseconds. The maximum is 146 years.
// The range of all representable times has five such pixels.
const BITS_MAX: u32 = 62;

/// A row of an overview.
#[derive(Debug, Clone, PartialEq)]
pub enum OverviewRow {
    /// The summary of the values in a pixel.
    Pixel(PixelValues),
    /// The interval from the last value before a gap to the first value after the gap, in wall
    /// nanoseconds.
    Gap(Range<i64>),
}

/// The summary of the values of a series in a pixel. A summary covers at least one value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PixelValues {
    /// Time of the first value, in wall nanoseconds.
    pub first_ns: i64,
    /// Time of the last value, in wall nanoseconds.
    pub last_ns: i64,
    /// The smallest value.
    pub min: f64,
    /// The largest value.
    pub max: f64,
    /// The first value.
    pub first: f64,
    /// The last value.
    pub last: f64,
    /// The number of values.
    pub count: u64,
    /// Sum of the gaps between the values of this pixel, in nanoseconds.
    pub missing_ns: u64,
}

/// Adjacent pixels. Each pixel is 2^`bits` nanoseconds long, and begins at a multiple of its
/// length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PixelGrid {
    // Lengths are powers of two, so that the pixels of one overview consist of whole pixels of
    // another overview.
    pub(super) bits: u32,
    /// Index of the first pixel, which is the start time of the pixel divided by its length.
    pub(super) first: i64,
    pub(super) count: usize,
}

impl PixelValues {
    /// Returns the summary of one value.
    #[inline]
    pub(super) fn of(wall_ns: i64, value: f64) -> Self {
        Self {
            first_ns: wall_ns,
            last_ns: wall_ns,
            min: value,
            max: value,
            first: value,
            last: value,
            count: 1,
            missing_ns: 0,
        }
    }

    /// Adds further values. The added values are later than the previous ones, unless the clock was
    /// set back.
    #[inline]
    pub(super) fn add(&mut self, next: &Self, is_after_hole: bool) {
        if is_after_hole {
            let missing_ns = u64::try_from(next.first_ns.saturating_sub(self.last_ns)).unwrap_or(0);
            self.missing_ns = self.missing_ns.saturating_add(missing_ns);
        }
        self.min = self.min.min(next.min);
        self.max = self.max.max(next.max);
        // After the clock was set back, later values may have earlier times.
        if next.last_ns >= self.last_ns {
            (self.last_ns, self.last) = (next.last_ns, next.last);
        }
        if next.first_ns < self.first_ns {
            (self.first_ns, self.first) = (next.first_ns, next.first);
        }
        self.count += next.count;
        self.missing_ns = self.missing_ns.saturating_add(next.missing_ns);
    }
}

impl PixelGrid {
    /// Returns the pixels that cover a range. Their length is the smallest length at which at most
    /// `pixels` pixels, plus one at the edge, cover the range. Returns `None` for an empty range.
    pub(super) fn of(wall_ns: &Range<i64>, pixels: u32) -> Option<Self> {
        let length = u128::try_from(i128::from(wall_ns.end) - i128::from(wall_ns.start)).ok()?;
        let least = length.div_ceil(pixels.clamp(1, PIXELS_MAX).into()).max(1);
        let bits = least.next_power_of_two().trailing_zeros().min(BITS_MAX);
        let newest_ns = wall_ns.end.checked_sub(1).filter(|newest_ns| *newest_ns >= wall_ns.start)?;
        let first = wall_ns.start >> bits;
        let count = usize::try_from((newest_ns >> bits) - first + 1).ok()?;
        Some(Self { bits, first, count })
    }

    /// Returns the interval that the pixels cover. The last representable nanosecond is not in any
    /// range.
    pub(super) fn wall_ns(&self) -> Range<i64> {
        let end = i64::try_from(self.count).unwrap_or(i64::MAX).saturating_add(self.first);
        let end_ns = i128::from(end) << self.bits;
        self.first << self.bits..i64::try_from(end_ns).unwrap_or(i64::MAX)
    }

    /// Returns the pixel that contains a part of 2^`bits` nanoseconds. The part must not be longer
    /// than the pixel.
    pub(super) fn place(&self, number: i64, bits: u32) -> Option<usize> {
        let pixel = number >> self.bits.saturating_sub(bits);
        usize::try_from(pixel.checked_sub(self.first)?).ok().filter(|place| *place < self.count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that pixels cover the range, begin at multiples of their length, and exceed the
    // requested number by at most one. The tested ranges are short intervals and the interval of
    // all times.
    #[test]
    fn pixels_cover_the_range() {
        for (range, pixels, bits, count) in [
            (0..1000, 1000, 0, 1000),
            (1..1001, 999, 1, 501),
            (-5..5, 4, 2, 4),
            (i64::MIN..i64::MAX, 1, 62, 4),
            (7..8, 2000, 0, 1),
        ] {
            let grid = PixelGrid::of(&range, pixels).unwrap();
            assert_eq!((grid.bits, grid.count), (bits, count), "{range:?}");
            let all = grid.wall_ns();
            assert!(all.start <= range.start && all.end >= range.end, "{range:?} {all:?}");
            assert_eq!(grid.place(range.start, 0), Some(0));
            assert_eq!(grid.place(range.end - 1, 0), Some(count - 1));
        }
        assert_eq!(PixelGrid::of(&(5..5), 100), None);
        assert_eq!(PixelGrid::of(&Range { start: i64::MAX, end: i64::MIN }, 100), None);
        let grid = PixelGrid::of(&(64..128), 4).unwrap();
        assert_eq!((grid.place(63, 0), grid.place(128, 0), grid.place(9, 3)), (None, None, Some(0)));
    }
}
