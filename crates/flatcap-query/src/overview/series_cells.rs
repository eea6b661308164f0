//! Summarizes the values of one series in equal parts of time, and finds its holes.

use std::ops::Range;

use flatcap_format::schema::{CountedValue, Growth, MetricKind};

use super::pixel::PixelValues;
use super::thinned_numbers::ThinnedNumbers;
use super::whole_samples::{WholeTimes, extrema};
use crate::columns::column::ValueColumn;
use crate::names::elements::ElementIdentity;
use crate::rows::layout::RowColumn;

/// Number of periods. If a value is missing for more than this number of periods, the series has a
/// hole.
// With this number, a source that is throttled to every third tick causes no hole.
const HOLE_PERIODS: u64 = 4;
/// Minimum length of a hole in the values of an element, in nanoseconds.
// Samples may leave out sleeping elements, but one sample per second contains every element.
const ELEMENT_HOLE_NS: u64 = 3_000_000_000;
/// Minimum length of a hole in the values of a source that has no period, in nanoseconds.
const EVENT_HOLE_NS: u64 = 300_000_000_000;

/// The series of one field in one run of one segment. For a field in a list, the series of one
/// element.
#[derive(Debug)]
pub(super) struct SeriesCells {
    pub(super) field: SeriesField,
    pub(super) column: RowColumn,
    /// The key of the element, which distinguishes it from other elements. Empty if the field is
    /// not in a list.
    pub(super) element: Box<[u8]>,
    pub(super) label: Option<Box<str>>,
    pub(super) identity: Vec<ElementIdentity>,
    pub(super) limits: HoleLimits,
    /// Binary logarithm of the length of a cell in nanoseconds. A cell is 2^`bits` nanoseconds
    /// long.
    pub(super) bits: u32,
    pub(super) cells: Vec<TimeCell>,
    pub(super) ends: SeriesEnds,
}

/// The field of a series. If the unit or kind of a field differs between runs, each variant is a
/// separate field.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct SeriesField {
    pub(super) source: Box<str>,
    /// The path, with `[*]` after the list.
    pub(super) path: Box<str>,
    pub(super) unit: Option<Box<str>>,
    pub(super) kind: MetricKind,
}

/// A cell, which contains the summary of the values in a part of wall time.
#[derive(Debug, Clone, Copy)]
pub(super) struct TimeCell {
    /// Index of the cell, which is its start time divided by its length.
    pub(super) number: i64,
    pub(super) values: PixelValues,
    pub(super) is_after_hole: bool,
}

/// The time after which a value counts as missing, and the maximum time between two values whose
/// difference gives a rate.
#[allow(clippy::struct_field_names, reason = "the unit belongs to each name")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct HoleLimits {
    /// Maximum time between two samples that does not form a hole, if no samples are thinned, in
    /// nanoseconds.
    own_ns: u64,
    /// Maximum time between two samples of the source that does not form a hole, in nanoseconds.
    source_ns: u64,
    /// Maximum time between two values of the series that does not form a hole, in nanoseconds.
    series_ns: u64,
}

/// A sample that has a value.
#[derive(Debug, Clone, Copy)]
pub(super) struct SamplePoint {
    pub(super) mono_ns: u64,
    pub(super) wall_ns: i64,
    /// The value of the counter. `None` unless the series is drawn as the rate of a counter.
    pub(super) counted: Option<CountedValue>,
}

/// Sequence number and monotonic time of a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SampleNumber {
    pub(super) seq: u64,
    pub(super) mono_ns: u64,
}

/// The first and the last sample of a source, in one run of one segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SourceSpan {
    pub(super) first: SampleNumber,
    pub(super) last: SampleNumber,
    /// Monotonic time of the end of the last hole between the first and the last sample. 0 if there
    /// was no hole.
    pub(super) hole_end_ns: u64,
    /// Maximum time between two samples of the source, in nanoseconds. A longer time is a hole.
    pub(super) hole_ns: u64,
}

/// The data that is needed to join the series of successive segments.
#[derive(Debug, Clone, Copy)]
pub(super) struct SeriesEnds {
    /// The first and the last sample that have a value.
    pub(super) head: SamplePoint,
    pub(super) tail: SamplePoint,
    /// Whether samples of the source are missing between the source's first sample and `head`.
    pub(super) is_after_hole: bool,
    /// Whether values are missing before `tail` and no later cell records this hole.
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

/// Returns how long a value stays valid after its sample, given the period of the source. The time
/// is in nanoseconds. A longer time without a value is a gap.
pub fn held_ns(period_ns: u64, is_list: bool) -> u64 {
    HoleLimits::of(period_ns, is_list).series_ns()
}

impl HoleLimits {
    pub(super) fn of(period_ns: u64, is_list: bool) -> Self {
        let source_ns = if period_ns == 0 { EVENT_HOLE_NS } else { period_ns.saturating_mul(HOLE_PERIODS) };
        let series_ns = if is_list { source_ns.max(ELEMENT_HOLE_NS) } else { source_ns };
        Self { own_ns: source_ns, source_ns, series_ns }
    }

    /// If all samples between two samples were thinned, sets the period to the time between these
    /// two samples. The parameter `ticks` is the difference between the sequence numbers of the two
    /// samples. Returns false if the thinned samples do not explain the time between the two
    /// samples.
    pub(super) fn follow(&mut self, between_ns: u64, ticks: u64) -> bool {
        if between_ns > self.own_ns.saturating_mul(ticks) {
            return false;
        }
        let source_ns = between_ns.saturating_mul(HOLE_PERIODS);
        self.source_ns = self.source_ns.max(source_ns);
        self.series_ns = self.series_ns.max(source_ns);
        true
    }

    /// Returns the maximum time between two samples of the source that does not count as a hole, in
    /// nanoseconds.
    pub(super) fn source_ns(self) -> u64 {
        self.source_ns
    }

    /// Returns the maximum time between two values that does not count as a hole, in nanoseconds.
    pub(super) fn series_ns(self) -> u64 {
        self.series_ns
    }

    /// Returns the maximum distance in time between a value and an earlier value on which it
    /// depends, in nanoseconds.
    pub(super) fn reach_ns(self) -> u64 {
        // If samples were lost, the rate covers the time of the lost samples.
        self.series_ns.max(ELEMENT_HOLE_NS)
    }

    /// Returns whether there is a hole between two values. `hole_end_ns` is the end time of the
    /// source's last hole before the later value.
    #[inline]
    pub(super) fn is_hole(self, before_ns: u64, now_ns: u64, hole_end_ns: u64) -> bool {
        // A hole of the source is also a hole of its series.
        hole_end_ns > before_ns || now_ns.saturating_sub(before_ns) > self.series_ns
    }

    /// Returns the change per second between two samples, or `None` if the change is unknown.
    #[inline]
    pub(super) fn rate(self, before: &SamplePoint, now: &SamplePoint) -> Option<f64> {
        if now.mono_ns.saturating_sub(before.mono_ns) > self.reach_ns() {
            return None;
        }
        Growth::between((before.mono_ns, before.counted?), (now.mono_ns, now.counted?), None).rate()
    }
}

impl SampleNumber {
    /// Returns whether samples are missing between this sample and the next one, or the time
    /// between the two samples is longer than `hole_ns`.
    #[inline]
    pub(super) fn is_followed_by_hole(self, next: Self, hole_ns: u64) -> bool {
        // The first sample of a source is compared with itself, and this is not a hole.
        self != next
            && (next.seq != self.seq.wrapping_add(1) || next.mono_ns.saturating_sub(self.mono_ns) > hole_ns)
    }
}

impl SourceSpan {
    pub(super) fn new(sample: SampleNumber, limits: HoleLimits) -> Self {
        Self { first: sample, last: sample, hole_end_ns: 0, hole_ns: limits.source_ns }
    }

    /// Extends the range of sequence numbers by the thinned samples that directly precede or follow
    /// it.
    pub(super) fn widen(&mut self, thinned: &ThinnedNumbers) {
        self.first.seq = thinned.skip_back(self.first.seq);
        self.last.seq = thinned.skip(self.last.seq.wrapping_add(1)).wrapping_sub(1);
    }

    /// Extends the range by the samples that the source has in another table.
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
    /// Returns the approximate memory use of the series, in bytes.
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

    /// Adds the value of a sample. `hole_end_ns` is the end time of the source's last hole before
    /// this sample.
    ///
    /// `is_new` means that the element had ended since its previous value.
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
            // If several samples have the same time, the next rate also contains the growth between
            // these samples.
            if !self.is_rate || tail.mono_ns != point.mono_ns {
                *tail = point;
            }
        } else {
            self.begins_after_hole = hole_end_ns > 0;
            // The growth up to the first sample of a new element is not used, because it belongs to
            // an earlier element.
            let head = SamplePoint { counted: point.counted.filter(|_| !is_new), ..point };
            self.ends = Some((head, point));
            if self.is_rate {
                drawn = None;
            }
        }
        let Some(value) = drawn else { return };
        self.push(point.wall_ns >> self.bits, &PixelValues::of(point.wall_ns, value));
    }

    /// Adds the values of several samples in one step. There must be no hole between these samples.
    /// Adds nothing and returns false if adding the values one by one would give another result.
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
            // In these samples, wall times never decrease, so the values of a cell are adjacent.
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

    /// Ends the element, so that no rate is computed from its last value.
    pub(super) fn end(&mut self) {
        if let Some((_, tail)) = &mut self.ends {
            tail.counted = None;
        }
    }

    /// Adds a summary of values to the cell with this index.
    #[inline]
    fn push(&mut self, number: i64, values: &PixelValues) {
        match self.cells.last_mut() {
            Some(last) if last.number == number => last.values.add(values, self.has_hole),
            _ => self.cells.push(TimeCell { number, values: *values, is_after_hole: self.has_hole }),
        }
        self.has_hole = false;
    }

    /// Removes all cells. Returns the cells, and the ends that join them to the series of other
    /// segments.
    pub(super) fn take(&mut self) -> Option<(Vec<TimeCell>, SeriesEnds)> {
        let ends = self.ends()?;
        Some((std::mem::take(&mut self.cells), ends))
    }

    /// Removes all cells whose index is below a limit, and returns them. Returns `None` if there
    /// are no such cells.
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
