//! Finds a time range in a directory without reading the segments before it (docs/FORMAT.md, "Index
//! and digest").
//!
//! The last segment of a run has all clock pairings, which convert a range of wall time to
//! monotonic time. The segments of that range are found by their footers (`timeline`), and the
//! offset within a segment by its index.

use std::io;
use std::ops::Range;

use super::catalog::ListedSegment;
use super::header::SegmentHeader;
use super::header_and_footer::read_footer;
use super::index::IndexEntry;
use super::reader::SegmentReader;
use super::segment_name::SealState;
use super::timeline::Timeline;
use crate::block::SeekResult;
use crate::os::clock::ClockReading;

/// Widens a range of monotonic time at both ends: for samples taken before a step of the wall clock
/// was noticed, and for markers and gaps, which are written some time after the samples they refer
/// to.
const SLACK_NS: u64 = 10_000_000_000;

/// A segment to be read, and the range of monotonic time that is needed of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SelectedSegment {
    /// The segment.
    pub listing: ListedSegment,
    /// The range, in monotonic nanoseconds; none if it is not known.
    pub mono_ns: Option<Range<u64>>,
}

/// A range of time relative to the first sample of a recording.
///
/// It is measured by the monotonic clock, so that setting the wall clock does not change it. Only
/// for a run of another boot, whose monotonic clock is unrelated to the first one, the wall clocks
/// give the time since the first sample.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Elapsed {
    /// The first sample.
    pub start: RecordingStart,
    /// The range after it, in nanoseconds.
    pub ns: Range<u64>,
}

/// The first sample of a recording: its run and its time by both clocks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordingStart {
    /// Its run.
    pub run_id: u64,
    /// The host's boot id, if known.
    pub boot_id: Option<String>,
    /// Its monotonic time, in nanoseconds.
    pub mono_ns: u64,
    /// Its wall time, in nanoseconds.
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

/// Selects the segments, in their order, that can hold samples at or after wall time `since_ns`,
/// before `until_ns`, and within `elapsed`. Callers must still filter by time: a skipped segment
/// has no such samples, a selected one may have others too.
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
        // The clock may have been set within an unsealed segment, which only reading it would show.
        let is_open =
            |listing: &&ListedSegment| listing.name.is_some_and(|name| name.state == SealState::Active);
        let (open, run): (Vec<&ListedSegment>, Vec<&ListedSegment>) = run.iter().partition(is_open);
        // Names have the creation time, by a clock that may have been set: a good guess to start
        // from.
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

/// Splits listings at the borders of runs; a file that is not named as a segment is a group of its
/// own.
pub fn runs(listings: &[ListedSegment]) -> impl Iterator<Item = &[ListedSegment]> {
    listings.chunk_by(|one, next| match (one.name, next.name) {
        (Some(one), Some(next)) => one.run_id == next.run_id && one.number < next.number,
        _ => false,
    })
}

/// Returns the header of a segment with the clock pairings that it knows.
fn header_with_clocks(listing: &ListedSegment) -> Option<SegmentHeader> {
    // The name guarantees a single run. Other files may hold several.
    let name = listing.name?;
    let header: SegmentHeader = match name.state {
        SealState::Sealed => read_footer(&listing.path).ok()??.header,
        // Pairings within an unsealed segment are unknown until it is read.
        SealState::Active => listing.open().ok()??.header().clone(),
    };
    (!header.clock_table.is_empty()).then_some(header)
}

/// Returns the range of monotonic time that covers a range of wall time; none if nothing can be in
/// it.
fn mono_range(clocks: &[ClockReading], wall_ns: &Range<i64>) -> Option<Range<u64>> {
    let mut hull: Option<Range<u64>> = None;
    for (at, pairing) in clocks.iter().enumerate() {
        let offset_ns = pairing.wall_offset_ns();
        // A pairing is valid up to the next one. The first one is valid from the start.
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

impl SegmentReader {
    /// Seeks back to the end of an unsealed file that has become shorter because a recorder took a
    /// write back. Returns that offset, or none if the file was not truncated.
    pub fn rewind_if_truncated(&mut self) -> Option<u64> {
        let end =
            self.window.file_bytes().ok().filter(|_| self.footer.is_none() && self.compressed().is_none())?;
        if end >= self.offset() {
            return None;
        }
        self.window.forget();
        self.probe_window.forget();
        self.seek(end);
        Some(end)
    }

    /// Seeks to the first interval with samples at or after `mono_ns`, if the footer's index has
    /// one.
    pub fn seek_time(&mut self, mono_ns: u64) {
        let Some(footer) = self.footer() else { return };
        let has_later =
            |entry: &&IndexEntry| entry.bounds.is_some_and(|bounds| bounds.last_mono_ns >= mono_ns);
        // The first interval begins with the header, which the reader has already read.
        let entry = footer.index.iter().find(has_later).or(footer.index.last());
        if let Some(offset) = entry.map(|entry| entry.offset).filter(|offset| *offset > self.offset()) {
            self.seek(offset);
        }
    }

    /// Returns the offset after the last interval with samples before `mono_ns`, by the footer's
    /// index.
    ///
    /// A slab that was written late puts older samples after newer ones, so a newer sample is not
    /// the end.
    pub fn offset_after_time(&self, mono_ns: u64) -> u64 {
        let Some(footer) = self.footer() else { return u64::MAX };
        let has_earlier =
            |entry: &&IndexEntry| entry.bounds.is_some_and(|bounds| bounds.first_mono_ns < mono_ns);
        footer.index.iter().rev().find(has_earlier).map_or(0, IndexEntry::end)
    }

    /// From here on skips samples older than `wall_ns` where that is cheap: whole intervals by the
    /// index, and in a compressed segment single samples and the Index frames between them, which
    /// the footer repeats. Other frames are returned as usual. Skipped samples are not reported;
    /// callers must still filter by time.
    pub fn skip_before(&mut self, wall_ns: i64) {
        let Some(footer) = self.footer() else { return };
        let is_over = |entry: &IndexEntry| entry.bounds.is_none_or(|bounds| bounds.last_wall_ns < wall_ns);
        let at = footer.index.iter().take_while(|entry| is_over(entry)).count();
        // A frame of another kind may precede the interval with the samples that it belongs to.
        let from = footer.index.get(at.saturating_sub(1)).map(|entry| entry.offset);
        let has_earlier =
            |entry: &&IndexEntry| entry.bounds.is_some_and(|bounds| bounds.first_wall_ns < wall_ns);
        let until = footer.index.iter().rev().find(has_earlier).map_or(0, IndexEntry::end);
        if let Some(offset) = from.filter(|offset| *offset > self.offset()) {
            self.seek(offset);
        }
        self.skip = Some(SkipBefore { wall_ns, until });
    }

    /// Skips to the first sample that is needed, where that costs less than reading.
    #[inline]
    pub(super) fn skip_unneeded(&mut self) -> io::Result<()> {
        let Some(SkipBefore { wall_ns, until }) = self.skip else { return Ok(()) };
        while self.offset() < until {
            if self.is_resyncing {
                return Ok(());
            }
            let Some(compressed) = self.compressed() else { break };
            match compressed.next_from(self.offset(), wall_ns)? {
                SeekResult::End(offset) => self.seek(offset),
                SeekResult::Other(offset) if offset > self.offset() => self.seek(offset),
                SeekResult::Other(_) => return Ok(()),
                SeekResult::Sample(offset) => {
                    self.seek(offset);
                    break;
                }
            }
        }
        self.skip = None;
        Ok(())
    }
}

/// Samples to skip.
#[derive(Debug, Clone, Copy)]
pub(super) struct SkipBefore {
    /// Those older than this wall time, in nanoseconds.
    wall_ns: i64,
    /// Offset after the last of them.
    until: u64,
}

#[cfg(test)]
mod tests {
    use super::super::compressed::tests::compressed;
    use super::super::field_projection::tests::{SAMPLES, raw_segment};
    use super::super::verification::tests::{Act, written};
    use super::super::{Advance, FrameKind};
    use super::*;

    const HOUR_NS: i64 = 3_600_000_000_000;

    fn pairing(mono_s: u64, wall_s: i64) -> ClockReading {
        const NS_PER_S: u64 = 1_000_000_000;
        ClockReading { mono_ns: mono_s * NS_PER_S, boot_ns: 0, wall_ns: wall_s * NS_PER_S.cast_signed() }
    }

    // Proves that skipping never skips a sample that is needed, and skips almost all others in a
    // compressed segment, for every wall time of a segment.
    #[test]
    fn needed_samples_are_never_skipped() {
        let folder = tempfile::tempdir().unwrap();
        let path = raw_segment(folder.path());
        let read = |since: i64| {
            let mut reader = SegmentReader::open(&path).unwrap();
            reader.skip_before(since);
            let (mut needed, mut others) = (Vec::new(), 0);
            while let Some(advance) = reader.advance().unwrap() {
                let Advance::Frame(at) = advance else { panic!("{advance:?}") };
                match reader.sample(at).filter(|_| at.kind == FrameKind::Telemetry) {
                    Some(sample) if sample.wall_ns >= since => needed.push((sample.source, sample.seq)),
                    Some(_) => others += 1,
                    None => {}
                }
            }
            (needed, others)
        };
        let times: Vec<i64> = (-1..=SAMPLES.cast_signed() + 1).collect();
        let of_raw: Vec<_> = times.iter().map(|since| read(*since).0).collect();
        std::fs::write(&path, compressed(&path, 4096)).unwrap();
        for (since, of_raw) in times.into_iter().zip(of_raw) {
            let (needed, others) = read(since);
            let expected = 2 * SAMPLES.saturating_sub(u64::try_from(since).unwrap_or_default());
            assert_eq!(needed.len() as u64, expected, "{since}");
            assert_eq!(needed, of_raw, "{since}");
            assert!(others < 20, "{since}: {others} samples not skipped");
        }
    }

    /// Reads a segment none of whose samples is needed. Returns kinds of frames, and damaged
    /// ranges.
    fn read_skipping(path: &std::path::Path) -> (Vec<FrameKind>, Vec<(u64, u64)>) {
        let mut reader = SegmentReader::open(path).unwrap();
        reader.skip_before(1);
        let (mut kinds, mut ranges) = (Vec::new(), Vec::new());
        while let Some(advance) = reader.advance().unwrap() {
            match advance {
                Advance::Frame(at) => kinds.push(at.kind),
                Advance::Damage(damage) => ranges.push((damage.offset, damage.offset + damage.length)),
            }
        }
        (kinds, ranges)
    }

    // Proves that only samples and Index frames are skipped, and that damage among them is
    // reported.
    #[test]
    fn other_frames_and_damage_are_not_skipped() {
        let samples = Act::Samples { source: 0, count: 60, body: 200 };
        let lose = Act::Lose { source: 0, count: 3, is_said: true };
        let acts = [samples.clone(), Act::Index, samples.clone(), lose, samples.clone(), Act::Note, samples];
        let expected = [FrameKind::Gap, FrameKind::Marker, FrameKind::Footer, FrameKind::Trailer];
        let folder = tempfile::tempdir().unwrap();
        let path = written(folder.path(), &acts);
        let raw = std::fs::read(&path).unwrap();
        let from = SegmentReader::open(&path).unwrap().footer().unwrap().index.last().unwrap().offset;
        for block_bytes in [1 << 20, 4096] {
            std::fs::write(&path, &raw).unwrap();
            let bytes = compressed(&path, block_bytes);
            std::fs::write(&path, &bytes).unwrap();
            let (kinds, ranges) = read_skipping(&path);
            assert_eq!((kinds.as_slice(), ranges.is_empty()), (&expected[..], true), "{block_bytes}");
            let mut blocks = SegmentReader::open(&path).unwrap().compressed().unwrap().blocks();
            blocks.pop(); // footer and trailer, which are read on opening
            for block in blocks.iter().filter(|block| block.raw_end() > from) {
                let mut damaged = bytes.clone();
                damaged[usize::try_from(block.offset).unwrap() + block.bytes as usize / 2] ^= 0x40;
                std::fs::write(&path, &damaged).unwrap();
                let ranges = read_skipping(&path).1;
                assert_eq!(ranges, [(block.raw_offset.max(from), block.raw_end())], "{block_bytes}");
            }
        }
    }

    // Proves that wall times map to the right monotonic times before, within and after an hour that
    // the clock repeated.
    #[test]
    fn wall_times_go_through_the_clock_table() {
        // The clock was at 13,900 s when it was set back.
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
