//! Finds the segments of a run that can contain samples of a range of monotonic time, by reading a
//! few footers.
//!
//! Slabs are written in the order in which they were queued. After a storage stall, the recorder
//! may write a slab tens of seconds late. Then its samples are in a later segment than newer
//! samples of other sources. Therefore neither the start times nor the end times of successive
//! segments are monotonic. The samples of one source are in the order of time over the whole run,
//! so the search is done for each source separately.

use std::collections::BTreeMap;
use std::ops::Range;

use super::catalog::ListedSegment;
use crate::segment::format::footer::Footer;
use crate::segment::open::header_and_footer::read_footer;

/// Maximum number of segments that one search examines and that contain gaps but no samples of the
/// source. If there are more such segments, the source's next sample is treated as unknown.
const EMPTY_SEGMENTS_MAX: usize = 16;

/// The sealed segments of a run in order, and summaries of the footers that were read so far.
pub(in crate::segment) struct Timeline<'a> {
    segments: &'a [&'a ListedSegment],
    summaries: BTreeMap<usize, Option<FooterSummary>>, // by segment; `None` if it is unreadable
    // The latest result for each source. It consists of the segment at which the search began, and
    // the first segment at or after it with samples of the source. The result is kept because
    // successive searches are often close to each other.
    last_found: BTreeMap<u16, (usize, usize)>,
}

/// The times of each source in a footer, by source id.
struct FooterSummary(BTreeMap<u16, SourceTimes>);

#[derive(Clone, Copy)]
struct SourceTimes {
    next_seq: u64,               // next number at the start of the segment
    mono_ns: Option<(u64, u64)>, // times of the first and the last sample
}

/// The next segment that contains samples of a source.
enum NextSegment {
    At(usize),
    Never,
    /// The next segment is unknown, because a footer cannot be read, or because too many segments
    /// have no samples of the source.
    Unknown,
}

/// The first samples of a source in a segment or in the segments after it.
enum NextSamples {
    /// Index of the segment with the samples, and the times of the source's first and last sample
    /// in this segment.
    At(usize, (u64, u64)),
    Never,
    /// The samples are unknown, because a footer cannot be read, or because too many segments have
    /// no samples of the source.
    Unknown,
}

impl<'a> Timeline<'a> {
    pub(in crate::segment) fn new(segments: &'a [&'a ListedSegment]) -> Self {
        Self { segments, summaries: BTreeMap::new(), last_found: BTreeMap::new() }
    }

    /// Returns the indexes of all segments that can contain samples within `mono_ns`. The search
    /// begins at `guess`.
    pub(in crate::segment) fn overlapping(&mut self, mono_ns: &Range<u64>, guess: usize) -> Range<usize> {
        let all = 0..self.segments.len();
        // The last readable footer lists all sources. Segments after the segment with this footer
        // are always selected.
        let Some(known) = all.clone().rev().find(|place| self.summary(*place).is_some()) else { return all };
        let sources: Vec<u16> =
            self.summary(known).map(|summary| summary.0.keys().copied().collect()).unwrap_or_default();
        let end_of_known = known + 1;
        let (mut start, mut end) = (end_of_known, 0);
        let (mut near_start, mut near_end) = (guess, guess);
        for source in sources {
            near_start = self.first_with(source, mono_ns.start, near_start, end_of_known);
            start = start.min(near_start);
            near_end = self.index_after_last_with(source, mono_ns.end, near_end.max(start), end_of_known);
            end = end.max(near_end);
        }
        if end_of_known < all.end { start.min(end_of_known)..all.end } else { start..end.max(start) }
    }

    /// Returns the index of the first segment with a sample of `source` at or after `mono_ns`.
    fn first_with(&mut self, source: u16, mono_ns: u64, guess: usize, end: usize) -> usize {
        if mono_ns == 0 {
            return 0;
        }
        let place = partition_near(end, guess, |place| match self.next_samples(source, place, end) {
            NextSamples::At(_, (_, last_ns)) => last_ns < mono_ns,
            NextSamples::Never | NextSamples::Unknown => false,
        });
        match self.next_samples(source, place, end) {
            NextSamples::At(place, _) => place,
            NextSamples::Never => end,
            NextSamples::Unknown => place,
        }
    }

    /// Returns the index after the last segment with a sample of `source` before `mono_ns`.
    fn index_after_last_with(&mut self, source: u16, mono_ns: u64, guess: usize, end: usize) -> usize {
        if mono_ns == u64::MAX {
            return end;
        }
        partition_near(end, guess, |place| match self.next_samples(source, place, end) {
            NextSamples::At(_, (first_ns, _)) => first_ns < mono_ns,
            NextSamples::Never => false,
            NextSamples::Unknown => true,
        })
    }

    /// Returns the first samples of a source in the segments from index `place` to before index
    /// `end`.
    fn next_samples(&mut self, source: u16, place: usize, end: usize) -> NextSamples {
        let is_between = |(from, at): &(usize, usize)| (*from..=*at).contains(&place);
        let found = match self.last_found.get(&source).copied().filter(is_between) {
            Some((_, at)) => NextSegment::At(at),
            None => self.next_segment(source, place, end),
        };
        match found {
            NextSegment::At(at) => match self.summary(at).and_then(|summary| summary.span(source)) {
                Some(span) => NextSamples::At(at, span),
                None => NextSamples::Unknown,
            },
            NextSegment::Never => NextSamples::Never,
            NextSegment::Unknown => NextSamples::Unknown,
        }
    }

    /// Returns the next segment that contains samples of a source. The next sequence number of a
    /// source never decreases. Therefore, if two headers have the same next sequence number for a
    /// source, there is no sample of this source between them.
    fn next_segment(&mut self, source: u16, first: usize, end: usize) -> NextSegment {
        let mut place = first;
        for _ in 0..EMPTY_SEGMENTS_MAX {
            if place >= end {
                return NextSegment::Never;
            }
            let Some(summary) = self.summary(place) else { return NextSegment::Unknown };
            let next_seq = summary.next_seq(source);
            if summary.span(source).is_some() {
                self.last_found.insert(source, (first, place));
                return NextSegment::At(place);
            }
            let is_alike = |summary: &FooterSummary| summary.next_seq(source) == next_seq;
            if let Some((from, at)) = self.last_found.get(&source).copied().filter(|(from, _)| place < *from)
                && self.summary(from).is_some_and(is_alike)
            {
                self.last_found.insert(source, (first, at));
                return NextSegment::At(at);
            }
            if self.summary(end - 1).is_some_and(|last| is_alike(last) && last.span(source).is_none()) {
                return NextSegment::Never;
            }
            let from = place + 1;
            let later =
                from + partition_near(end - from, 0, |step| self.summary(from + step).is_some_and(is_alike));
            if later < end && self.summary(later).is_none() {
                return NextSegment::Unknown;
            }
            // This segment has no samples of the source. Continue with the next segment in which
            // the number may change.
            place = if later == from { later } else { later - 1 };
        }
        NextSegment::Unknown
    }

    fn summary(&mut self, place: usize) -> Option<&FooterSummary> {
        let segments = self.segments;
        let read = || Some(FooterSummary::of(&read_footer(&segments.get(place)?.path).ok()??));
        self.summaries.entry(place).or_insert_with(read).as_ref()
    }
}

impl FooterSummary {
    fn of(footer: &Footer) -> Self {
        let described = footer
            .header
            .sources
            .iter()
            .map(|source| (source.id, SourceTimes { next_seq: source.next_seq, mono_ns: None }));
        let mut sources: BTreeMap<u16, SourceTimes> = described.collect();
        for totals in &footer.totals {
            if let (Some(source), Some(span)) = (sources.get_mut(&totals.source), totals.span) {
                source.mono_ns = Some((span.first_mono_ns, span.last_mono_ns));
            }
        }
        Self(sources)
    }

    fn span(&self, source: u16) -> Option<(u64, u64)> {
        self.0.get(&source)?.mono_ns
    }

    fn next_seq(&self, source: u16) -> Option<u64> {
        self.0.get(&source).map(|source| source.next_seq)
    }
}

/// Finds the partition point of `0..length`, like `partition_point` of a slice. Tries `guess`
/// first, and then moves away from `guess` in steps that double in length, because each call of
/// `holds` reads a file.
fn partition_near(length: usize, guess: usize, mut holds: impl FnMut(usize) -> bool) -> usize {
    let at = guess.min(length);
    let (mut low, mut high) = (at, at);
    let mut step = 1;
    if at < length && holds(at) {
        // `holds` is true for all indexes below `low`.
        low = at + 1;
        high = low;
        while high < length && holds(high) {
            low = high + 1;
            high += step;
            step *= 2;
        }
    } else {
        while let Some(below) = low.checked_sub(1)
            && !holds(below)
        {
            high = below;
            low = low.saturating_sub(step);
            step *= 2;
        }
    }
    high = high.min(length);
    while low < high {
        let middle = low.midpoint(high);
        if holds(middle) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that the search finds the same index as a linear search from any guess, with few calls
    // if the guess is close.
    #[test]
    fn partitions_are_found_from_any_guess() {
        for length in 0..40_usize {
            for border in 0..=length {
                for guess in 0..=length + 1 {
                    let questions = std::cell::Cell::new(0);
                    let holds = |place: usize| {
                        questions.set(questions.get() + 1);
                        place < border
                    };
                    assert_eq!(partition_near(length, guess, holds), border, "{length} {guess}");
                    let far = guess.abs_diff(border);
                    let most = 4 + 2 * (usize::BITS - far.leading_zeros());
                    assert!(questions.get() <= most, "{} for {length} {border} {guess}", questions.get());
                }
            }
        }
    }
}
