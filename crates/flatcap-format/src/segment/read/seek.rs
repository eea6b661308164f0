//! Finds the segments of a directory that contain a time range, without reading the segments before
//! them (docs/FORMAT.md, "Index and digest").
//!
//! The last segment of a run has all clock pairings, which convert a range of wall time to
//! monotonic time. The footers of the segments determine which segments contain this range
//! (`timeline`), and the index of a segment determines the offset within the segment
//! (`index_search`).

use std::ops::Range;

use super::catalog::ListedSegment;
use super::timeline::Timeline;
use crate::host::ClockReading;
use crate::segment::format::header::SegmentHeader;
use crate::segment::format::segment_name::SealState;
use crate::segment::open::header_and_footer::read_footer;

/// Time in nanoseconds by which a range of monotonic time is extended at both ends. The extension
/// includes samples that were taken after a step of the wall clock and before the recorder noticed
/// the step. It also includes markers and gaps, which are written some time after the samples to
/// which they refer.
const SLACK_NS: u64 = 10_000_000_000;

/// A segment to be read, and the range of monotonic time that the reader needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SelectedSegment {
    /// The segment.
    pub listing: ListedSegment,
    /// The range, in monotonic nanoseconds, or `None` if it is not known.
    pub mono_ns: Option<Range<u64>>,
}

/// A range of time relative to the first sample of a recording.
///
/// The monotonic clock measures the time since the first sample, so setting the wall clock does not
/// change the range. After a reboot, the monotonic clock starts again. Therefore, for runs after a
/// reboot, the wall clock measures the time since the first sample.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Elapsed {
    /// The first sample.
    pub start: RecordingStart,
    /// The range, in nanoseconds after the first sample.
    pub ns: Range<u64>,
}

/// The run and the times of the first sample of a recording.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordingStart {
    /// The run of the sample.
    pub run_id: u64,
    /// The host's boot id, if it is known.
    pub boot_id: Option<String>,
    /// The monotonic time of the sample, in nanoseconds.
    pub mono_ns: u64,
    /// The wall time of the sample, in nanoseconds.
    pub wall_ns: i64,
}

impl Elapsed {
    /// Converts the range to the monotonic clock of the run with this header.
    pub fn mono_ns(&self, header: &SegmentHeader) -> Range<u64> {
        let start = &self.start;
        let is_same_boot = start.boot_id.is_some() && start.boot_id == header.host.boot_id;
        let start_ns = if start.run_id == header.run_id || is_same_boot {
            i128::from(start.mono_ns)
        } else {
            let first = header.clock_table.first().unwrap_or(&header.clocks);
            i128::from(start.wall_ns) - i128::from(first.wall_offset_ns())
        };
        let at = |ns: u64| match ns {
            u64::MAX => u64::MAX,
            ns => u64::try_from((start_ns + i128::from(ns)).max(0)).unwrap_or(u64::MAX),
        };
        at(self.ns.start)..at(self.ns.end)
    }
}

/// Selects the segments that can contain samples at or after wall time `since_ns`, before
/// `until_ns`, and within `elapsed`. Keeps the order of the segments. Callers must still filter by
/// time, because a selected segment may also have other samples. Skipped segments have no samples
/// in the range.
pub fn select(
    listings: Vec<ListedSegment>,
    since_ns: Option<i64>,
    until_ns: Option<i64>,
    elapsed: Option<&Elapsed>,
) -> Vec<SelectedSegment> {
    let everything = |listing| SelectedSegment { listing, mono_ns: None };
    if since_ns.is_none() && until_ns.is_none() && elapsed.is_none() {
        return listings.into_iter().map(everything).collect();
    }
    let wall_ns = since_ns.unwrap_or(i64::MIN)..until_ns.unwrap_or(i64::MAX);
    let mut selected = Vec::new();
    for run in runs(&listings) {
        let Some(header) = run.iter().rev().find_map(header_with_clocks) else {
            selected.extend(run.iter().cloned().map(everything));
            continue;
        };
        let mono_ns = mono_range(&header.clock_table, &wall_ns).and_then(|mono_ns| match elapsed {
            None => Some(mono_ns),
            Some(elapsed) => {
                let elapsed = elapsed.mono_ns(&header);
                let start = mono_ns.start.max(elapsed.start.saturating_sub(SLACK_NS));
                let end = mono_ns.end.min(elapsed.end.saturating_add(SLACK_NS));
                (start < end).then_some(start..end)
            }
        });
        // All unsealed segments are selected. The clock may have been set while such a segment was
        // recorded, and only reading the segment would show this.
        let is_open =
            |listing: &&ListedSegment| listing.name.is_some_and(|name| name.state == SealState::Active);
        let (open, run): (Vec<&ListedSegment>, Vec<&ListedSegment>) = run.iter().partition(is_open);
        // The creation time in the name of a segment is a good first guess. It may be wrong,
        // because the clock may have been set.
        let first_second = wall_ns.start.div_euclid(1_000_000_000);
        let is_earlier =
            |listing: &&ListedSegment| listing.name.is_some_and(|name| name.created_s <= first_second);
        let guess = run.partition_point(is_earlier).saturating_sub(1);
        let mono_ns = mono_ns.unwrap_or(0..0);
        let indexes = Timeline::new(&run).overlapping(&mono_ns, guess);
        let overlapping = run.get(indexes).unwrap_or_default();
        let before = selected.len();
        let range = |listing: &&ListedSegment| SelectedSegment {
            listing: (*listing).clone(),
            mono_ns: Some(mono_ns.clone()),
        };
        selected.extend(overlapping.iter().map(range));
        selected.extend(open.into_iter().cloned().map(everything));
        let of_run = selected.get_mut(before..).unwrap_or_default();
        of_run.sort_by_key(|selected| selected.listing.name.map(|name| name.number));
    }
    selected
}

/// Splits listings into runs. A file whose name is not a segment name forms a group by itself.
pub fn runs(listings: &[ListedSegment]) -> impl Iterator<Item = &[ListedSegment]> {
    listings.chunk_by(|one, next| match (one.name, next.name) {
        (Some(one), Some(next)) => one.run_id == next.run_id && one.number < next.number,
        _ => false,
    })
}

/// Returns the header of a segment, with all clock pairings of the segment that can be read without
/// a scan.
fn header_with_clocks(listing: &ListedSegment) -> Option<SegmentHeader> {
    // A file with the name of a segment contains only one run. Other files may contain several
    // runs.
    let name = listing.name?;
    let header: SegmentHeader = match name.state {
        SealState::Sealed => read_footer(&listing.path).ok()??.header,
        // The clock pairings after the header of an unsealed segment are not known until the
        // segment is read.
        SealState::Active => listing.open().ok()??.header().clone(),
    };
    (!header.clock_table.is_empty()).then_some(header)
}

/// Returns a range of monotonic time that contains all samples in a range of wall time. Returns
/// `None` if no sample can be in the range.
fn mono_range(clocks: &[ClockReading], wall_ns: &Range<i64>) -> Option<Range<u64>> {
    let mut hull: Option<Range<u64>> = None;
    for (at, pairing) in clocks.iter().enumerate() {
        let offset_ns = pairing.wall_offset_ns();
        // A pairing is valid until the time of the next pairing. The first pairing is also valid
        // before its own time.
        let from = if at == 0 { 0 } else { pairing.mono_ns };
        let to = clocks.get(at + 1).map_or(u64::MAX, |next| next.mono_ns);
        let first = to_mono_ns(wall_ns.start, offset_ns).max(from);
        let last = to_mono_ns(wall_ns.end, offset_ns).min(to);
        if first < last {
            let first = first.saturating_sub(SLACK_NS);
            let last = last.saturating_add(SLACK_NS);
            hull = Some(match hull {
                Some(hull) => hull.start.min(first)..hull.end.max(last),
                None => first..last,
            });
        }
    }
    hull
}

fn to_mono_ns(wall_ns: i64, offset_ns: i64) -> u64 {
    let mono = i128::from(wall_ns) - i128::from(offset_ns);
    u64::try_from(mono.max(0)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR_NS: i64 = 3_600_000_000_000;

    fn pairing(mono_s: u64, wall_s: i64) -> ClockReading {
        const NS_PER_S: u64 = 1_000_000_000;
        ClockReading { mono_ns: mono_s * NS_PER_S, boot_ns: 0, wall_ns: wall_s * NS_PER_S.cast_signed() }
    }

    // Proves that wall times are converted to the correct monotonic times before, within and after
    // an hour that the wall clock repeated.
    #[test]
    fn wall_times_go_through_the_clock_table() {
        // The wall clock was at 13,900 s when it was set back.
        let clocks = [pairing(100, 10_000), pairing(4_000, 10_300)];
        let at = |from_s: i64, to_s: i64| {
            let range = mono_range(&clocks, &(from_s * 1_000_000_000..to_s * 1_000_000_000));
            range.map(|range| (range.start / 1_000_000_000, range.end / 1_000_000_000))
        };
        assert_eq!(at(10_050, 10_060), Some((140, 170)), "before: 10 s of slack on each side");
        assert_eq!(at(11_000, 11_001), Some((1090, 4711)), "twice: once before the step, once after it");
        assert_eq!(at(20_000, 20_010), Some((13_690, 13_720)), "after");
        assert_eq!(at(9_000, 9_100), None, "before the host was started");
        let all = mono_range(&clocks, &(i64::MIN..i64::MAX)).unwrap();
        assert!(all.start == 0 && all.end > i64::MAX.unsigned_abs() / 2);
        assert!(mono_range(&clocks, &(HOUR_NS..HOUR_NS)).is_none());
    }
}
