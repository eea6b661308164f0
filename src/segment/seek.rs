//! Where in a directory a stretch of time stands, found without reading what is in front of it (docs/FORMAT.md, "Index
//! and digest").
//!
//! A run's last segment knows all pairings of the clocks, so that a wall time becomes one or several monotonic ones. The
//! segments that can hold them are then searched for by their footers (`timeline`), and within a segment by its index.

use std::io;
use std::ops::Range;

use super::catalog::Listing;
use super::header::Header;
use super::index::IndexEntry;
use super::name::State;
use super::opening::footer_of;
use super::reader::SegmentReader;
use super::timeline::Timeline;
use crate::block::Next;
use crate::os::clock::ClockReading;

/// How far the stretch of monotonic time is widened at both ends: for stamps from before a step of the wall clock was noticed, and
/// for notes and gaps, which are written some time after the samples that they are about.
const SLACK_NS: u64 = 10_000_000_000;

/// A segment to be read, and the stretch of monotonic time that is wanted of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selected {
    /// The segment.
    pub listing: Listing,
    /// Where in monotonic time, in nanoseconds, everything wanted lies; none if that is not known.
    pub mono_ns: Option<Range<u64>>,
}

/// A stretch of time counted from the first sample of a recording.
///
/// It is counted by the monotonic clock, so that setting the wall clock neither stretches nor shortens it. Only where a run of another boot
/// begins, whose monotonic clock says nothing about the first one, the wall clocks say how long after the first sample that was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Elapsed {
    /// The first sample.
    pub start: Start,
    /// How long after it, in nanoseconds.
    pub ns: Range<u64>,
}

/// The first sample of a recording: when it was, and by whose clocks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Start {
    /// Its run.
    pub run_id: u64,
    /// The host's boot, if that is known.
    pub boot_id: Option<String>,
    /// Its monotonic time, in nanoseconds.
    pub mono_ns: u64,
    /// Its wall time, in nanoseconds.
    pub wall_ns: i64,
}

impl Elapsed {
    /// The stretch by the monotonic clock of the run with this header.
    pub fn mono_ns(&self, header: &Header) -> Range<u64> {
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

/// The segments of `listings` that can hold samples from wall time `since_ns` on and before `until_ns`, and within `elapsed`, in their
/// order. Each sample is still to be compared: what is left out holds none, what is given may.
pub fn select(
    listings: Vec<Listing>,
    since_ns: Option<i64>,
    until_ns: Option<i64>,
    elapsed: Option<&Elapsed>,
) -> Vec<Selected> {
    let everything = |listing| Selected { listing, mono_ns: None };
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
        // The clock may have been set in a segment that is not sealed, and only reading it would tell.
        let is_open = |listing: &&Listing| listing.name.is_some_and(|name| name.state == State::Active);
        let (open, run): (Vec<&Listing>, Vec<&Listing>) = run.iter().partition(is_open);
        // The names tell when segments were begun, by a clock that may have been set: a good place to begin the search.
        let first_second = wall_ns.start.div_euclid(1_000_000_000);
        let is_earlier = |listing: &&Listing| listing.name.is_some_and(|name| name.created_s <= first_second);
        let guess = run.partition_point(is_earlier).saturating_sub(1);
        let mono_ns = mono_ns.unwrap_or(0..0);
        let places = Timeline::new(&run).overlapping(&mono_ns, guess);
        let wanted = run.get(places).unwrap_or_default();
        let before = selected.len();
        let range =
            |listing: &&Listing| Selected { listing: (*listing).clone(), mono_ns: Some(mono_ns.clone()) };
        selected.extend(wanted.iter().map(range));
        selected.extend(open.into_iter().cloned().map(everything));
        let of_run = selected.get_mut(before..).unwrap_or_default();
        of_run.sort_by_key(|selected| selected.listing.name.map(|name| name.number));
    }
    selected
}

/// Listings cut where another run begins; a file under a name of its own stands alone.
pub fn runs(listings: &[Listing]) -> impl Iterator<Item = &[Listing]> {
    listings.chunk_by(|one, next| match (one.name, next.name) {
        (Some(one), Some(next)) => one.run_id == next.run_id && one.number < next.number,
        _ => false,
    })
}

/// The header of a segment with the pairings of the run as far as it knows them.
fn header_with_clocks(listing: &Listing) -> Option<Header> {
    // One run a file is what names promise. Other files may hold several.
    let name = listing.name?;
    let header: Header = match name.state {
        State::Sealed => footer_of(&listing.path).ok()??.header,
        // Pairings within an unsealed segment are not known before it is read.
        State::Active => listing.open().ok()??.header().clone(),
    };
    (!header.clock_table.is_empty()).then_some(header)
}

/// The stretch of monotonic time that holds everything within a stretch of wall time; none if nothing can.
fn mono_range(clocks: &[ClockReading], wall_ns: &Range<i64>) -> Option<Range<u64>> {
    let mut hull: Option<Range<u64>> = None;
    for (at, pairing) in clocks.iter().enumerate() {
        let offset_ns = pairing.wall_offset_ns();
        // Each pairing is in force from its own time to that of the next one. The first one is from the start.
        let from = if at == 0 { 0 } else { pairing.mono_ns };
        let to = clocks.get(at + 1).map_or(u64::MAX, |next| next.mono_ns);
        let first = mono(wall_ns.start, offset_ns).max(from);
        let last = mono(wall_ns.end, offset_ns).min(to);
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

fn mono(wall_ns: i64, offset_ns: i64) -> u64 {
    let mono = i128::from(wall_ns) - i128::from(offset_ns);
    u64::try_from(mono.max(0)).unwrap_or(u64::MAX)
}

impl SegmentReader {
    /// Goes back to the end of an unsealed file that has become shorter than what was read of it: a recorder took a write back. Returns where that
    /// is.
    pub fn go_back_if_cut(&mut self) -> Option<u64> {
        let end =
            self.window.file_bytes().ok().filter(|_| self.footer.is_none() && self.packed().is_none())?;
        if end >= self.offset() {
            return None;
        }
        self.window.forget();
        self.aside.forget();
        self.seek(end);
        Some(end)
    }

    /// Goes to the first interval that has samples from `mono_ns` on, if the footer's index knows it.
    pub fn seek_time(&mut self, mono_ns: u64) {
        let Some(footer) = self.footer() else { return };
        let has_later =
            |entry: &&IndexEntry| entry.bounds.is_some_and(|bounds| bounds.last_mono_ns >= mono_ns);
        // The first interval begins with the header, which a reader has read already.
        let entry = footer.index.iter().find(has_later).or(footer.index.last());
        if let Some(offset) = entry.map(|entry| entry.offset).filter(|offset| *offset > self.offset()) {
            self.seek(offset);
        }
    }

    /// The offset after the last interval that has samples of before `mono_ns`, as far as the footer's index knows.
    ///
    /// A slab that was written late puts old samples after younger ones, so a younger sample is not the end.
    pub fn end_of_time(&self, mono_ns: u64) -> u64 {
        let Some(footer) = self.footer() else { return u64::MAX };
        let has_earlier =
            |entry: &&IndexEntry| entry.bounds.is_some_and(|bounds| bounds.first_mono_ns < mono_ns);
        footer.index.iter().rev().find(has_earlier).map_or(0, IndexEntry::end)
    }

    /// From here on samples of before this wall time, in nanoseconds, may be left out: whole intervals by the index, and of a packed segment
    /// each one, which makes no frame of it, and the Index frames among them, which only repeat what the footer has. Frames of other kinds in
    /// what is read are given as ever. What is left out is not said; whoever asks compares.
    pub fn leave_out_before(&mut self, wall_ns: i64) {
        let Some(footer) = self.footer() else { return };
        let is_over = |entry: &IndexEntry| entry.bounds.is_none_or(|bounds| bounds.last_wall_ns < wall_ns);
        let at = footer.index.iter().take_while(|entry| is_over(entry)).count();
        // A frame of another kind may stand in front of the interval whose samples it belongs to.
        let from = footer.index.get(at.saturating_sub(1)).map(|entry| entry.offset);
        let has_earlier =
            |entry: &&IndexEntry| entry.bounds.is_some_and(|bounds| bounds.first_wall_ns < wall_ns);
        let until = footer.index.iter().rev().find(has_earlier).map_or(0, IndexEntry::end);
        if let Some(offset) = from.filter(|offset| *offset > self.offset()) {
            self.seek(offset);
        }
        self.leave_out = Some(LeaveOut { wall_ns, until });
    }

    /// Goes on behind samples that nobody wants, where that costs less than to read them: up to the first one that is wanted.
    #[inline]
    pub(super) fn pass_left_out(&mut self) -> io::Result<()> {
        let Some(LeaveOut { wall_ns, until }) = self.leave_out else { return Ok(()) };
        while self.offset() < until {
            if self.is_wary {
                return Ok(());
            }
            let Some(packed) = self.packed() else { break };
            match packed.next_from(self.offset(), wall_ns)? {
                Next::Behind(offset) => self.seek(offset),
                Next::Other(offset) if offset > self.offset() => self.seek(offset),
                Next::Other(_) => return Ok(()),
                Next::Wanted(offset) => {
                    self.seek(offset);
                    break;
                }
            }
        }
        self.leave_out = None;
        Ok(())
    }
}

/// Samples that nobody wants.
#[derive(Debug, Clone, Copy)]
pub(super) struct LeaveOut {
    /// Those of before this wall time, in nanoseconds.
    wall_ns: i64,
    /// Where none of them can be any more.
    until: u64,
}

#[cfg(test)]
mod tests {
    use super::super::fields::tests::{SAMPLES, raw_segment};
    use super::super::packed::tests::packed;
    use super::super::verification::tests::{Act, written};
    use super::super::{Advance, FrameKind};
    use super::*;

    const HOUR_NS: i64 = 3_600_000_000_000;

    fn pairing(mono_s: u64, wall_s: i64) -> ClockReading {
        const NS_PER_S: u64 = 1_000_000_000;
        ClockReading { mono_ns: mono_s * NS_PER_S, boot_ns: 0, wall_ns: wall_s * NS_PER_S.cast_signed() }
    }

    // Goal: leaving samples out leaves out nothing that is wanted, and in a packed segment almost all that is not. Method: every wall time of a segment and
    // beyond, raw and packed in small blocks; what a reader has given.
    #[test]
    fn nothing_wanted_is_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let path = raw_segment(folder.path());
        let read = |since: i64| {
            let mut reader = SegmentReader::open(&path).unwrap();
            reader.leave_out_before(since);
            let (mut wanted, mut others) = (Vec::new(), 0);
            while let Some(advance) = reader.advance().unwrap() {
                let Advance::Frame(at) = advance else { panic!("{advance:?}") };
                match reader.telemetry(at).filter(|_| at.kind == FrameKind::Telemetry) {
                    Some(sample) if sample.wall_ns >= since => wanted.push((sample.source, sample.seq)),
                    Some(_) => others += 1,
                    None => {}
                }
            }
            (wanted, others)
        };
        let times: Vec<i64> = (-1..=SAMPLES.cast_signed() + 1).collect();
        let of_raw: Vec<_> = times.iter().map(|since| read(*since).0).collect();
        std::fs::write(&path, packed(&path, 4096)).unwrap();
        for (since, of_raw) in times.into_iter().zip(of_raw) {
            let (wanted, others) = read(since);
            let expected = 2 * SAMPLES.saturating_sub(u64::try_from(since).unwrap_or_default());
            assert_eq!(wanted.len() as u64, expected, "{since}");
            assert_eq!(wanted, of_raw, "{since}");
            assert!(others < 20, "{since}: {others} that nobody wanted");
        }
    }

    /// What a reader gives of a segment, none of whose samples is wanted: kinds of frames, and where holes are.
    fn given(path: &std::path::Path) -> (Vec<FrameKind>, Vec<(u64, u64)>) {
        let mut reader = SegmentReader::open(path).unwrap();
        reader.leave_out_before(1);
        let (mut kinds, mut holes) = (Vec::new(), Vec::new());
        while let Some(advance) = reader.advance().unwrap() {
            match advance {
                Advance::Frame(at) => kinds.push(at.kind),
                Advance::Damage(damage) => holes.push((damage.offset, damage.offset + damage.length)),
            }
        }
        (kinds, holes)
    }

    // Goal: of what is left out only samples and Index frames are missing, and damage there is told. Method: a gap and a note among samples that nobody
    // wants, in blocks of many frames and of few; each of the blocks damaged.
    #[test]
    fn other_frames_and_damage_among_what_is_left_out_are_given() {
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
            let bytes = packed(&path, block_bytes);
            std::fs::write(&path, &bytes).unwrap();
            let (kinds, holes) = given(&path);
            assert_eq!((kinds.as_slice(), holes.is_empty()), (&expected[..], true), "{block_bytes}");
            let mut blocks = SegmentReader::open(&path).unwrap().packed().unwrap().blocks();
            blocks.pop(); // footer and trailer, which opening reads
            for block in blocks.iter().filter(|block| block.raw_end() > from) {
                let mut damaged = bytes.clone();
                damaged[usize::try_from(block.offset).unwrap() + block.bytes as usize / 2] ^= 0x40;
                std::fs::write(&path, &damaged).unwrap();
                let holes = given(&path).1;
                assert_eq!(holes, [(block.raw_offset.max(from), block.raw_end())], "{block_bytes}");
            }
        }
    }

    // Goal: wall times lead to the monotonic times that had them, before and behind steps of the clock. Method: a clock
    // that was set back by an hour after 100 s, looked up in front of, within and behind the repeated hour.
    #[test]
    fn wall_times_go_through_the_clock_table() {
        let clocks = [pairing(100, 10_000), pairing(4_000, 10_300)]; // 13,900 s when it was set back
        let at = |from_s: i64, to_s: i64| {
            let range = mono_range(&clocks, &(from_s * 1_000_000_000..to_s * 1_000_000_000));
            range.map(|range| (range.start / 1_000_000_000, range.end / 1_000_000_000))
        };
        assert_eq!(at(10_050, 10_060), Some((140, 170)), "in front: 10 s of slack on each side");
        assert_eq!(at(11_000, 11_001), Some((1090, 4711)), "twice: once before the step, once behind it");
        assert_eq!(at(20_000, 20_010), Some((13_690, 13_720)), "behind");
        assert_eq!(at(9_000, 9_100), None, "before the host was started");
        let all = mono_range(&clocks, &(i64::MIN..i64::MAX)).unwrap();
        assert!(all.start == 0 && all.end > i64::MAX.unsigned_abs() / 2);
        assert!(mono_range(&clocks, &(HOUR_NS..HOUR_NS)).is_none());
    }
}
