//! The runs of samples in a stretch of bytes: what a reader takes in one step.
//!
//! A survey walks frames by their lengths and proves each by its checksum. It knows nothing of what stands in front of its
//! stretch: whether a run can be taken is for the reader to say, which alone knows what it has read before.

use std::ops::Range;

use crate::schema::envelope;
use crate::schema::frame::FrameHeader;
use crate::stream::{
    ChecksumDeframer, ChecksumKind, Crc16, Crc32, DefaultDeframer, Frame, KindDeframer, SliceDeframer,
    SliceReader, XxHash64,
};

/// A run ends when it is so long: one that is refused is read frame by frame.
const RUN_BYTES: usize = 256 << 10;
/// Most sources in one run; another one begins the next run.
const RUN_SOURCES_MAX: usize = 64;
/// Most runs in a survey; it ends there. With that its memory is bounded, whatever it walks.
const RUNS_MAX: usize = 1024;

/// Samples that stand one behind the other, intact, in their usual shape, the numbers of each source without a jump.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Run {
    /// Offset of the first one in the file.
    pub(super) offset: u64,
    /// Their length with headers, > 0.
    pub(super) bytes: u64,
    /// How many, > 0.
    pub(super) frames: u64,
    heads: Range<usize>,   // in those of the survey
    samples: Range<usize>, // likewise
}

/// The samples of one source in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RunSamples {
    /// The source's id.
    pub(super) source: u16,
    /// Number of the first one.
    pub(super) first_seq: u64,
    /// How many follow it, <= `u64::MAX - first_seq`.
    pub(super) more: u64,
    /// When the last one was taken, monotonic.
    pub(super) last_mono_ns: u64,
}

/// The runs of one stretch, in file order. Takes memory for a sixth of the stretch where samples are empty, far less where
/// they are not; made again and again in the same memory.
#[derive(Debug, Default)]
pub(super) struct Survey {
    runs: Vec<Run>,
    heads: Vec<u8>,
    samples: Vec<RunSamples>, // of one run by first appearance
    end: u64,
}

/// A run in the making.
struct Open {
    offset: usize,
    frames: u64,
    heads: usize,   // where its heads begin
    samples: usize, // where its samples begin
    latest: usize,  // in the samples: the source of the last frame
}

impl Run {
    /// Where it ends.
    pub(super) fn end(&self) -> u64 {
        self.offset + self.bytes
    }
}

impl RunSamples {
    /// The last number.
    pub(super) fn last_seq(&self) -> u64 {
        self.first_seq.saturating_add(self.more)
    }
}

impl Survey {
    /// Walks `bytes`, which stand at `offset` in the file and begin with a frame, up to the first one that is not intact or not
    /// whole. Forgets what it held before.
    pub(super) fn walk(&mut self, deframer: KindDeframer, bytes: &[u8], offset: u64) {
        // One compiled way each: what a call gives back through memory costs as much as the rest of a small frame.
        let max = deframer.max_frame_len();
        match deframer.kind() {
            ChecksumKind::None => {
                self.walk_by(DefaultDeframer::new().with_max_frame_len(max), bytes, offset);
            }
            ChecksumKind::Crc16 => {
                self.walk_by(ChecksumDeframer::new(Crc16).with_max_frame_len(max), bytes, offset);
            }
            ChecksumKind::Crc32 => {
                self.walk_by(ChecksumDeframer::new(Crc32).with_max_frame_len(max), bytes, offset);
            }
            ChecksumKind::Xxh3 => {
                self.walk_by(ChecksumDeframer::new(XxHash64).with_max_frame_len(max), bytes, offset);
            }
        }
    }

    fn walk_by<D: SliceDeframer>(&mut self, deframer: D, bytes: &[u8], offset: u64) {
        self.runs.clear();
        self.heads.clear();
        self.samples.clear();
        let mut reader = SliceReader::new(bytes, deframer);
        let mut open = self.begin(0);
        loop {
            let at = reader.offset();
            let next = if self.runs.len() < RUNS_MAX { reader.next_frame() } else { None };
            let Some(Ok(frame)) = next else {
                self.close(&open, at, offset);
                self.end = offset.saturating_add(at as u64);
                return;
            };
            let Some((header, _)) = envelope::split(frame.payload()) else {
                self.close(&open, at, offset);
                open = self.begin(reader.offset());
                continue;
            };
            if at - open.offset >= RUN_BYTES || !self.takes(&mut open, &header) {
                self.close(&open, at, offset);
                open = self.begin(at);
                // An empty run takes any sample.
                self.takes(&mut open, &header);
            }
            self.keep_head(frame);
            open.frames += 1;
        }
    }

    /// The runs.
    pub(super) fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// Where it ended: up to here all frames are intact.
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    /// The frames' headers of one of its runs, as they stand in the file, one behind the other.
    pub(super) fn heads(&self, run: &Run) -> &[u8] {
        self.heads.get(run.heads.clone()).unwrap_or_default()
    }

    /// The samples of one of its runs, one entry a source, in the order of their first ones.
    pub(super) fn samples(&self, run: &Run) -> &[RunSamples] {
        self.samples.get(run.samples.clone()).unwrap_or_default()
    }

    fn begin(&self, offset: usize) -> Open {
        let samples = self.samples.len();
        Open { offset, frames: 0, heads: self.heads.len(), samples, latest: samples }
    }

    fn close(&mut self, open: &Open, end: usize, offset: u64) {
        if open.frames > 0 {
            self.runs.push(Run {
                offset: offset.saturating_add(open.offset as u64),
                bytes: (end - open.offset) as u64,
                frames: open.frames,
                heads: open.heads..self.heads.len(),
                samples: open.samples..self.samples.len(),
            });
        }
    }

    /// Counts a sample, if its number is the next of its source.
    #[inline]
    fn takes(&mut self, open: &mut Open, header: &FrameHeader) -> bool {
        let source = header.source();
        if self.samples.get(open.latest).is_none_or(|latest| latest.source != source) {
            let known = self.samples.get(open.samples..).unwrap_or_default();
            match known.iter().position(|known| known.source == source) {
                Some(at) => open.latest = open.samples + at,
                None if known.len() == RUN_SOURCES_MAX => return false,
                None => {
                    let (first_seq, last_mono_ns) = (header.seq(), header.mono_ns());
                    open.latest = self.samples.len();
                    self.samples.push(RunSamples { source, first_seq, more: 0, last_mono_ns });
                    return true;
                }
            }
        }
        let Some(samples) = self.samples.get_mut(open.latest) else { return false };
        let is_next = header.seq().checked_sub(samples.first_seq) == Some(samples.more + 1);
        if is_next {
            samples.more += 1;
            samples.last_mono_ns = header.mono_ns();
        }
        is_next
    }

    #[inline]
    fn keep_head(&mut self, frame: Frame<'_>) {
        let header_bytes = frame.bytes().len() - frame.payload().len();
        match frame.bytes().first_chunk::<12>() {
            // Of a known length: two stores instead of a call.
            Some(head) if header_bytes == 12 => self.heads.extend_from_slice(head),
            _ => self.heads.extend_from_slice(frame.bytes().get(..header_bytes).unwrap_or_default()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{ENVELOPE_BYTES, Envelope, Shortfall, Stamp};
    use crate::stream::Framer;

    fn sample(kind: ChecksumKind, source: u16, seq: u64) -> Vec<u8> {
        let mut payload = vec![0; ENVELOPE_BYTES + 3];
        let stamp = Stamp { mono_ns: seq + 100, wall_ns: 0, seq, shortfall: Shortfall::NONE, duration_ns: 0 };
        Envelope::new(source).write(&mut payload, &stamp, &[1, 2, 3]);
        framed(kind, &payload)
    }

    fn framed(kind: ChecksumKind, payload: &[u8]) -> Vec<u8> {
        let mut frame = Vec::new();
        kind.frame_and_write(&mut frame, payload).unwrap();
        frame
    }

    /// Offset, frames and samples of each run: source, first and last number.
    type Seen = Vec<(u64, u64, Vec<(u16, u64, u64)>)>;

    fn surveyed(kind: ChecksumKind, bytes: &[u8]) -> (Seen, Survey) {
        let mut survey = Survey::default();
        survey.walk(KindDeframer::new(kind), bytes, 1000);
        let of = |samples: &RunSamples| {
            assert_eq!(samples.last_mono_ns, samples.last_seq() + 100);
            (samples.source, samples.first_seq, samples.last_seq())
        };
        let samples = |run| survey.samples(run).iter().map(of).collect();
        let seen = survey.runs().iter().map(|run| (run.offset, run.frames, samples(run))).collect();
        (seen, survey)
    }

    // Goal: a run holds what follows without a jump, and nothing else. Method: by hand under each checksum: two sources, other
    // frames between, a jump, a repetition, and at the end a frame that is damaged.
    #[test]
    fn runs_end_where_something_else_stands() {
        for &kind in ChecksumKind::ALL {
            let one = |source, seq| sample(kind, source, seq);
            let bytes = one(0, 0).len() as u64;
            let other = framed(kind, b"\x08\0\0\0FCMK");
            let mut last = one(0, 9);
            let cut = last.len() - 1;
            last.truncate(cut);
            let whole = [
                other.clone(),
                one(0, 1),
                one(1, 5),
                one(0, 2),
                one(1, 6),
                other.clone(),
                other.clone(),
                one(0, 3),
                one(0, 5),
                one(0, 6),
                one(0, 6),
                last,
            ]
            .concat();
            let (seen, survey) = surveyed(kind, &whole);
            let first = 1000 + other.len() as u64;
            let second = first + 4 * bytes + 2 * other.len() as u64;
            assert_eq!(
                seen,
                [
                    (first, 4, vec![(0, 1, 2), (1, 5, 6)]),
                    (second, 1, vec![(0, 3, 3)]),
                    (second + bytes, 2, vec![(0, 5, 6)]),
                    (second + 3 * bytes, 1, vec![(0, 6, 6)]),
                ]
            );
            assert_eq!(survey.end(), 1000 + (whole.len() - cut) as u64);
            let run = &survey.runs()[2];
            let heads: Vec<u8> =
                [5, 6].iter().flat_map(|seq| one(0, *seq)[..kind.frame_bytes(0)].to_vec()).collect();
            assert_eq!((survey.heads(run), run.end()), (&heads[..], second + 3 * bytes));
        }
    }

    // Goal: damage ends a survey, in front of the damaged frame. Method: a bit in the middle one of three.
    #[test]
    fn damage_ends_a_survey() {
        let mut whole: Vec<u8> = (0..3).flat_map(|seq| sample(ChecksumKind::Xxh3, 0, seq)).collect();
        let bytes = whole.len() / 3;
        whole[bytes + 50] ^= 1;
        let (seen, survey) = surveyed(ChecksumKind::Xxh3, &whole);
        assert_eq!(seen, [(1000, 1, vec![(0, 0, 0)])]);
        assert_eq!(survey.end(), 1000 + bytes as u64);
    }

    // Goal: memory is bounded whatever is walked. Method: a source each frame, more than a run takes; a jump each frame, more
    // than a survey takes; a run longer than one may be.
    #[test]
    fn runs_and_surveys_are_bounded() {
        let kind = ChecksumKind::Crc32;
        let walk = |frames: u64, of: &dyn Fn(u64) -> (u16, u64)| {
            let bytes: Vec<u8> = (0..frames)
                .flat_map(|at| {
                    let (source, seq) = of(at);
                    sample(kind, source, seq)
                })
                .collect();
            surveyed(kind, &bytes).1
        };
        let survey = walk(200, &|at| (u16::try_from(at).unwrap(), 0));
        let samples: Vec<usize> = survey.runs().iter().map(|run| survey.samples(run).len()).collect();
        assert_eq!(samples, [64, 64, 64, 8]);
        let survey = walk(3_000, &|at| (0, 2 * at));
        assert!(survey.runs().len() <= RUNS_MAX + 1, "{}", survey.runs().len());
        assert_eq!(survey.runs().iter().map(|run| run.frames).sum::<u64>(), RUNS_MAX as u64 + 1);
        let survey = walk(9_000, &|at| (0, at));
        assert!(
            survey.runs().iter().all(|run| run.bytes <= RUN_BYTES as u64 + 100) && survey.runs().len() == 3
        );
        assert_eq!(survey.runs().iter().map(|run| run.frames).sum::<u64>(), 9_000);
    }
}
