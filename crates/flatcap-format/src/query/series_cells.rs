//! Summarizes the values of one series in equal parts of time, and finds its holes.

use std::ops::Range;

use super::column::ValueColumn;
use super::elements::ElementIdentity;
use super::layout::RowColumn;
use super::pixel::PixelValues;
use super::thinned_numbers::ThinnedNumbers;
use super::whole_samples::{WholeTimes, extrema};
use crate::schema::{CountedValue, Growth};

/// A hole is a longer time without a value than so many periods: a source that is throttled to
/// every third tick has none.
const HOLE_PERIODS: u64 = 4;
/// Samples may leave out elements that sleep, but each second one has all of them.
const ELEMENT_HOLE_NS: u64 = 3_000_000_000;
/// A hole of a source without a period.
const EVENT_HOLE_NS: u64 = 300_000_000_000;

/// The series of one field, of one element if it is in a list, in one run of one segment.
#[derive(Debug)]
pub(super) struct SeriesCells {
    /// The path of the field, with all elements of its list.
    pub(super) field: Box<str>,
    pub(super) column: RowColumn,
    /// What tells elements apart; empty if the field is in no list.
    pub(super) element: Box<[u8]>,
    pub(super) label: Option<Box<str>>,
    pub(super) identity: Vec<ElementIdentity>,
    pub(super) limits: HoleLimits,
    /// Length of a cell: 2^`bits` nanoseconds.
    pub(super) bits: u32,
    pub(super) cells: Vec<TimeCell>,
    pub(super) ends: SeriesEnds,
}

/// The values of a part of wall time.
#[derive(Debug, Clone, Copy)]
pub(super) struct TimeCell {
    /// Its time divided by its length.
    pub(super) number: i64,
    pub(super) values: PixelValues,
    pub(super) is_after_hole: bool,
}

/// When a value counts as missing, and how far apart two values may be for a rate.
#[allow(clippy::struct_field_names, reason = "the unit belongs to each name")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct HoleLimits {
    /// Of samples at the source's own period.
    own_ns: u64,
    /// Of the source's samples.
    source_ns: u64,
    /// Of the values of the series.
    series_ns: u64,
}

/// A sample that has a value.
#[derive(Debug, Clone, Copy)]
pub(super) struct SamplePoint {
    pub(super) mono_ns: u64,
    pub(super) wall_ns: i64,
    /// Of a counter of which the rate is drawn.
    pub(super) counted: Option<CountedValue>,
}

/// Number and monotonic time of a sample of the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SampleNumber {
    pub(super) seq: u64,
    pub(super) mono_ns: u64,
}

/// The samples of a source in one run of one segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SourceSpan {
    pub(super) first: SampleNumber,
    pub(super) last: SampleNumber,
    /// Monotonic end of the last hole between them; 0 if there is none.
    pub(super) hole_end_ns: u64,
    /// A hole is a longer time without samples.
    pub(super) hole_ns: u64,
}

/// What joins the series of successive segments.
#[derive(Debug, Clone, Copy)]
pub(super) struct SeriesEnds {
    /// First and last sample with a value.
    pub(super) head: SamplePoint,
    pub(super) tail: SamplePoint,
    /// Samples of the source are missing between the first one and the head.
    pub(super) is_after_hole: bool,
    /// Values are missing before the tail, and no cell after them says so.
    pub(super) is_before_hole: bool,
}

/// Summarizes a series.
#[derive(Debug)]
pub(super) struct SeriesFold {
    bits: u32,
    is_rate: bool,
    cells: Vec<TimeCell>,
    ends: Option<(SamplePoint, SamplePoint)>,
    begins_after_hole: bool,
    has_hole: bool,
}

impl HoleLimits {
    pub(super) fn of(period_ns: u64, is_list: bool) -> Self {
        let source_ns = if period_ns == 0 { EVENT_HOLE_NS } else { period_ns.saturating_mul(HOLE_PERIODS) };
        let series_ns = if is_list { source_ns.max(ELEMENT_HOLE_NS) } else { source_ns };
        Self { own_ns: source_ns, source_ns, series_ns }
    }

    /// Takes the time between two samples for the period, if all samples between them were left out
    /// on purpose: `ticks` is the difference of their numbers. Returns false if that does not
    /// explain the time.
    pub(super) fn follow(&mut self, between_ns: u64, ticks: u64) -> bool {
        if between_ns > self.own_ns.saturating_mul(ticks) {
            return false;
        }
        let source_ns = between_ns.saturating_mul(HOLE_PERIODS);
        self.source_ns = self.source_ns.max(source_ns);
        self.series_ns = self.series_ns.max(source_ns);
        true
    }

    /// Returns the longest time without a sample of the source that is no hole.
    pub(super) fn source_ns(self) -> u64 {
        self.source_ns
    }

    /// Returns the longest time without a value that is no hole.
    pub(super) fn series_ns(self) -> u64 {
        self.series_ns
    }

    /// The longest time that a value depends on one before.
    pub(super) fn reach_ns(self) -> u64 {
        // Where samples were lost, their rate is that of the time without them.
        self.series_ns.max(ELEMENT_HOLE_NS)
    }

    /// Returns whether values are missing between two, of which the later one follows a hole of the
    /// source that ended at `hole_end_ns`.
    #[inline]
    pub(super) fn is_hole(self, before_ns: u64, now_ns: u64, hole_end_ns: u64) -> bool {
        hole_end_ns > before_ns || now_ns.saturating_sub(before_ns) > self.series_ns
    }

    /// Returns the change per second between two samples.
    #[inline]
    pub(super) fn rate(self, before: &SamplePoint, now: &SamplePoint) -> Option<f64> {
        if now.mono_ns.saturating_sub(before.mono_ns) > self.reach_ns() {
            return None;
        }
        Growth::between((before.mono_ns, before.counted?), (now.mono_ns, now.counted?), None).rate()
    }
}

impl SampleNumber {
    /// Returns whether samples are missing, or too much time, between this one and the next.
    #[inline]
    pub(super) fn is_followed_by_hole(self, next: Self, hole_ns: u64) -> bool {
        self != next
            && (next.seq != self.seq.wrapping_add(1) || next.mono_ns.saturating_sub(self.mono_ns) > hole_ns)
    }
}

impl SourceSpan {
    pub(super) fn new(sample: SampleNumber, limits: HoleLimits) -> Self {
        Self { first: sample, last: sample, hole_end_ns: 0, hole_ns: limits.source_ns }
    }

    /// Includes the numbers right before and after that were left out on purpose.
    pub(super) fn widen(&mut self, thinned: &ThinnedNumbers) {
        self.first.seq = thinned.skip_back(self.first.seq);
        self.last.seq = thinned.skip(self.last.seq.wrapping_add(1)).wrapping_sub(1);
    }

    /// Adds what another table has of the source.
    pub(super) fn add(&mut self, other: &Self) {
        if other.first.seq < self.first.seq {
            self.first = other.first;
        }
        if other.last.seq > self.last.seq {
            self.last = other.last;
        }
        self.hole_end_ns = self.hole_end_ns.max(other.hole_end_ns);
        self.hole_ns = self.hole_ns.max(other.hole_ns);
    }
}

impl SeriesCells {
    /// Returns the memory that it takes, in bytes, roughly.
    pub(super) fn bytes(&self) -> usize {
        let texts =
            self.element.len() + self.column.name.len() + self.identity.len() * size_of::<ElementIdentity>();
        size_of::<Self>() + texts + self.cells.len() * size_of::<TimeCell>()
    }
}

impl SeriesFold {
    pub(super) fn new(bits: u32, is_rate: bool) -> Self {
        let (cells, ends) = (Vec::new(), None);
        Self { bits, is_rate, cells, ends, begins_after_hole: false, has_hole: false }
    }

    /// Adds the value of a sample, before which the source's last hole ended at `hole_end_ns`.
    ///
    /// `is_new` says that the element had ended since its value before.
    #[inline]
    pub(super) fn add(
        &mut self,
        point: SamplePoint,
        value: f64,
        (limits, hole_end_ns): (HoleLimits, u64),
        is_new: bool,
    ) {
        let mut drawn = Some(value);
        if is_new {
            self.end();
        }
        if let Some((_, tail)) = &mut self.ends {
            self.has_hole |= limits.is_hole(tail.mono_ns, point.mono_ns, hole_end_ns);
            if self.is_rate {
                drawn = limits.rate(tail, &point);
            }
            *tail = point;
        } else {
            self.begins_after_hole = hole_end_ns > 0;
            let head = SamplePoint { counted: point.counted.filter(|_| !is_new), ..point };
            self.ends = Some((head, point));
            if self.is_rate {
                drawn = None;
            }
        }
        let Some(value) = drawn else { return };
        self.push(point.wall_ns >> self.bits, &PixelValues::of(point.wall_ns, value));
    }

    /// Adds the values of samples of which nothing is missing, all at once. Returns false if that
    /// would be another result than adding them one by one; then nothing was added.
    pub(super) fn add_whole(
        &mut self,
        times: &WholeTimes<'_>,
        (column, rows): (&ValueColumn, Range<usize>),
        place: (HoleLimits, u64),
    ) -> bool {
        let drawn = if self.is_rate {
            times.rates_after_first(column, rows.clone())
        } else {
            times.values_after_first(column, rows.clone())
        };
        let (Some(drawn), Some(first)) = (drawn, column.number(rows.start)) else { return false };
        let point = |at: usize| {
            let counted = if self.is_rate { CountedValue::of(column.get(rows.start + at)) } else { None };
            Some(SamplePoint { mono_ns: *times.mono_ns.get(at)?, wall_ns: *times.wall_ns.get(at)?, counted })
        };
        let (Some(head), Some(tail)) = (point(0), point(rows.len() - 1)) else { return false };
        self.add(head, first, place, false);
        let (mut wall_ns, mut values) = (times.wall_ns.get(1..).unwrap_or_default(), drawn.as_slice());
        while let Some(first_ns) = wall_ns.first() {
            let number = first_ns >> self.bits;
            let count = wall_ns.partition_point(|ns| ns >> self.bits == number);
            let (own_ns, later_ns) = wall_ns.split_at(count);
            let (own, later) = values.split_at(count);
            if let (Some(last_ns), Some(first), Some(last)) = (own_ns.last(), own.first(), own.last()) {
                let (min, max) = extrema(own);
                let (first_ns, last_ns, count) = (*first_ns, *last_ns, count as u64);
                let (first, last, missing_ns) = (*first, *last, 0);
                self.push(
                    number,
                    &PixelValues { first_ns, last_ns, min, max, first, last, count, missing_ns },
                );
            }
            (wall_ns, values) = (later_ns, later);
        }
        if let Some((_, own)) = &mut self.ends {
            *own = tail;
        }
        true
    }

    /// Ends the element: no rate is computed from its last value.
    pub(super) fn end(&mut self) {
        if let Some((_, tail)) = &mut self.ends {
            tail.counted = None;
        }
    }

    /// Adds values to their cell.
    #[inline]
    fn push(&mut self, number: i64, values: &PixelValues) {
        match self.cells.last_mut() {
            Some(last) if last.number == number => last.values.add(values, self.has_hole),
            _ => self.cells.push(TimeCell { number, values: *values, is_after_hole: self.has_hole }),
        }
        self.has_hole = false;
    }

    /// Removes all cells, and returns them with what joins them to those of other segments.
    pub(super) fn take(&mut self) -> Option<(Vec<TimeCell>, SeriesEnds)> {
        let ends = self.ends()?;
        Some((std::mem::take(&mut self.cells), ends))
    }

    /// Removes the cells below a number, and returns them, or `None` if there are no such cells.
    pub(super) fn take_before(&mut self, number: i64) -> Option<(Vec<TimeCell>, SeriesEnds)> {
        if !self.cells.iter().any(|cell| cell.number < number) {
            return None;
        }
        let (taken, kept) = self.take()?.0.into_iter().partition(|cell| cell.number < number);
        self.cells = kept;
        Some((taken, self.ends()?))
    }

    fn ends(&self) -> Option<SeriesEnds> {
        let (head, tail) = self.ends?;
        let (is_after_hole, is_before_hole) = (self.begins_after_hole, self.has_hole);
        Some(SeriesEnds { head, tail, is_after_hole, is_before_hole })
    }
}
