//! Scans a chunk of a file for batches of samples. A reader processes a batch in one step.
//!
//! The scan uses the lengths of frames to find the next frame, and the checksum of each frame to
//! prove that it is intact. The scan does not read the bytes before its chunk. Only the reader has
//! read the frames before a batch, so the reader decides whether to accept the batch.

use std::ops::Range;

use flatcap_stream::{
    ChecksumDeframer, ChecksumKind, Crc16, Crc32, DefaultDeframer, Frame, KindDeframer, SliceDeframer,
    SliceReader, XxHash64,
};

use crate::schema::envelope;
use crate::schema::frame::FrameHeader;

/// Length in bytes at which a batch ends. The limit bounds the cost of a rejected batch, which is
/// read frame by frame.
const BATCH_BYTES: usize = 256 << 10;
/// Maximum number of sources in one batch. A sample of a further source begins the next batch.
const BATCH_SOURCES_MAX: usize = 64;
/// Maximum number of batches in a scan. At this number the scan ends, so that its memory is bounded
/// for any input.
const BATCHES_MAX: usize = 1024;

/// Consecutive intact samples with ordinary envelopes. The sequence numbers of each source are
/// consecutive too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::segment) struct SampleBatch {
    /// Offset of the first sample in the file.
    pub(in crate::segment) offset: u64,
    /// Total length of the frames, including their headers, in bytes (above 0).
    pub(in crate::segment) bytes: u64,
    /// Number of samples (above 0).
    pub(in crate::segment) frames: u64,
    headers: Range<usize>, // range in the headers of the scan
    samples: Range<usize>, // range in the samples of the scan
}

/// The samples of one source in a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::segment) struct BatchSamples {
    /// The source's id.
    pub(in crate::segment) source: u16,
    /// Sequence number of the first sample.
    pub(in crate::segment) first_seq: u64,
    /// Number of samples after the first one, at most `u64::MAX - first_seq`.
    pub(in crate::segment) more: u64,
    /// Time at which reading the source for the last sample began, in monotonic nanoseconds.
    pub(in crate::segment) last_mono_ns: u64,
}

/// The batches of one chunk, in file order. The batches take a sixth of the chunk's length in
/// memory if all samples are empty, and far less otherwise. The next scan reuses this memory.
#[derive(Debug, Default)]
pub(in crate::segment) struct BatchScan {
    batches: Vec<SampleBatch>,
    headers: Vec<u8>,
    samples: Vec<BatchSamples>, // of each batch, in the order of first appearance
    end: u64,
}

/// A batch to which further samples can be added.
struct OpenBatch {
    offset: usize,
    frames: u64,
    headers: usize, // start of the batch's frame headers
    samples: usize, // start of the batch's samples
    latest: usize,  // index in `samples` of the last frame's source
}

impl SampleBatch {
    /// Returns the offset of the end of the batch.
    pub(in crate::segment) fn end(&self) -> u64 {
        self.offset + self.bytes
    }
}

impl BatchSamples {
    /// Returns the sequence number of the last sample.
    pub(in crate::segment) fn last_seq(&self) -> u64 {
        self.first_seq.saturating_add(self.more)
    }
}

impl BatchScan {
    /// Scans `bytes` up to the first frame that is damaged or incomplete. `bytes` begins with a
    /// frame and is at `offset` in the file. Drops the results of the previous scan.
    pub(in crate::segment) fn scan(&mut self, deframer: KindDeframer, bytes: &[u8], offset: u64) {
        // The compiler generates one instance of the loop for each checksum kind. A function call
        // per frame would take as much time as the rest of the work for a small frame.
        let max = deframer.max_frame_len();
        match deframer.kind() {
            ChecksumKind::None => {
                self.scan_with(DefaultDeframer::new().with_max_frame_len(max), bytes, offset);
            }
            ChecksumKind::Crc16 => {
                self.scan_with(ChecksumDeframer::new(Crc16).with_max_frame_len(max), bytes, offset);
            }
            ChecksumKind::Crc32 => {
                self.scan_with(ChecksumDeframer::new(Crc32).with_max_frame_len(max), bytes, offset);
            }
            ChecksumKind::Xxh3 => {
                self.scan_with(ChecksumDeframer::new(XxHash64).with_max_frame_len(max), bytes, offset);
            }
        }
    }

    fn scan_with<D: SliceDeframer>(&mut self, deframer: D, bytes: &[u8], offset: u64) {
        self.batches.clear();
        self.headers.clear();
        self.samples.clear();
        let mut reader = SliceReader::new(bytes, deframer);
        let mut open = self.begin(0);
        loop {
            let at = reader.offset();
            let next = if self.batches.len() < BATCHES_MAX { reader.next_frame() } else { None };
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
            if at - open.offset >= BATCH_BYTES || !self.try_add(&mut open, &header) {
                self.close(&open, at, offset);
                open = self.begin(at);
                // This always succeeds, because an empty batch accepts any sample.
                self.try_add(&mut open, &header);
            }
            self.push_header(frame);
            open.frames += 1;
        }
    }

    /// Returns the batches.
    pub(in crate::segment) fn batches(&self) -> &[SampleBatch] {
        &self.batches
    }

    /// Returns the offset of the end of the scan. All frames up to this offset are intact.
    pub(in crate::segment) fn end(&self) -> u64 {
        self.end
    }

    /// Returns the concatenated headers of a batch's frames, as they are in the file.
    pub(in crate::segment) fn headers(&self, batch: &SampleBatch) -> &[u8] {
        self.headers.get(batch.headers.clone()).unwrap_or_default()
    }

    /// Returns the samples of a batch, with one entry per source, in the order in which the sources
    /// first appear.
    pub(in crate::segment) fn samples(&self, batch: &SampleBatch) -> &[BatchSamples] {
        self.samples.get(batch.samples.clone()).unwrap_or_default()
    }

    fn begin(&self, offset: usize) -> OpenBatch {
        let samples = self.samples.len();
        OpenBatch { offset, frames: 0, headers: self.headers.len(), samples, latest: samples }
    }

    fn close(&mut self, open: &OpenBatch, end: usize, offset: u64) {
        if open.frames > 0 {
            self.batches.push(SampleBatch {
                offset: offset.saturating_add(open.offset as u64),
                bytes: (end - open.offset) as u64,
                frames: open.frames,
                headers: open.headers..self.headers.len(),
                samples: open.samples..self.samples.len(),
            });
        }
    }

    /// Adds a sample if its sequence number follows the last sequence number of its source.
    #[inline]
    fn try_add(&mut self, open: &mut OpenBatch, header: &FrameHeader) -> bool {
        let source = header.source();
        if self.samples.get(open.latest).is_none_or(|latest| latest.source != source) {
            let known = self.samples.get(open.samples..).unwrap_or_default();
            match known.iter().position(|known| known.source == source) {
                Some(at) => open.latest = open.samples + at,
                None if known.len() == BATCH_SOURCES_MAX => return false,
                None => {
                    let (first_seq, last_mono_ns) = (header.seq(), header.mono_ns());
                    open.latest = self.samples.len();
                    self.samples.push(BatchSamples { source, first_seq, more: 0, last_mono_ns });
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
    fn push_header(&mut self, frame: Frame<'_>) {
        let header_bytes = frame.bytes().len() - frame.payload().len();
        match frame.bytes().first_chunk::<12>() {
            // A fixed length compiles to two stores instead of a call.
            Some(head) if header_bytes == 12 => self.headers.extend_from_slice(head),
            _ => self.headers.extend_from_slice(frame.bytes().get(..header_bytes).unwrap_or_default()),
        }
    }
}

#[cfg(test)]
mod tests {
    use flatcap_stream::Framer;

    use super::*;
    use crate::frame::{ENVELOPE_BYTES, Envelope, Incomplete, Stamp};

    fn sample(kind: ChecksumKind, source: u16, seq: u64) -> Vec<u8> {
        let mut payload = vec![0; ENVELOPE_BYTES + 3];
        let stamp =
            Stamp { mono_ns: seq + 100, wall_ns: 0, seq, incomplete: Incomplete::NONE, duration_ns: 0 };
        Envelope::new(source).write(&mut payload, &stamp, &[1, 2, 3]);
        framed(kind, &payload)
    }

    fn framed(kind: ChecksumKind, payload: &[u8]) -> Vec<u8> {
        let mut frame = Vec::new();
        kind.frame_and_write(&mut frame, payload).unwrap();
        frame
    }

    /// For each batch: its offset, its number of frames, and the id, the first sequence number and
    /// the last sequence number of each of its sources.
    type BatchSummary = Vec<(u64, u64, Vec<(u16, u64, u64)>)>;

    fn scan_of(kind: ChecksumKind, bytes: &[u8]) -> (BatchSummary, BatchScan) {
        let mut scan = BatchScan::default();
        scan.scan(KindDeframer::new(kind), bytes, 1000);
        let of = |samples: &BatchSamples| {
            assert_eq!(samples.last_mono_ns, samples.last_seq() + 100);
            (samples.source, samples.first_seq, samples.last_seq())
        };
        let samples = |run| scan.samples(run).iter().map(of).collect();
        let seen = scan.batches().iter().map(|run| (run.offset, run.frames, samples(run))).collect();
        (seen, scan)
    }

    // Proves that a batch ends before frames of other kinds, jumps, repetitions and damage, under
    // each checksum kind.
    #[test]
    fn batches_end_at_other_frames() {
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
            let (seen, scan) = scan_of(kind, &whole);
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
            assert_eq!(scan.end(), 1000 + (whole.len() - cut) as u64);
            let batch = &scan.batches()[2];
            let headers: Vec<u8> =
                [5, 6].iter().flat_map(|seq| one(0, *seq)[..kind.frame_bytes(0)].to_vec()).collect();
            assert_eq!((scan.headers(batch), batch.end()), (&headers[..], second + 3 * bytes));
        }
    }

    // Proves that a scan ends before a damaged frame.
    #[test]
    fn damage_ends_a_scan() {
        let mut whole: Vec<u8> = (0..3).flat_map(|seq| sample(ChecksumKind::Xxh3, 0, seq)).collect();
        let bytes = whole.len() / 3;
        whole[bytes + 50] ^= 1;
        let (seen, scan) = scan_of(ChecksumKind::Xxh3, &whole);
        assert_eq!(seen, [(1000, 1, vec![(0, 0, 0)])]);
        assert_eq!(scan.end(), 1000 + bytes as u64);
    }

    // Proves that memory is bounded. Cases: a new source in each frame, a jump in the numbers in
    // each frame, and more bytes than a batch may have.
    #[test]
    fn batches_and_scans_are_bounded() {
        let kind = ChecksumKind::Crc32;
        let scan_samples = |frames: u64, of: &dyn Fn(u64) -> (u16, u64)| {
            let bytes: Vec<u8> = (0..frames)
                .flat_map(|at| {
                    let (source, seq) = of(at);
                    sample(kind, source, seq)
                })
                .collect();
            scan_of(kind, &bytes).1
        };
        let scan = scan_samples(200, &|at| (u16::try_from(at).unwrap(), 0));
        let samples: Vec<usize> = scan.batches().iter().map(|run| scan.samples(run).len()).collect();
        assert_eq!(samples, [64, 64, 64, 8]);
        let scan = scan_samples(3_000, &|at| (0, 2 * at));
        assert!(scan.batches().len() <= BATCHES_MAX + 1, "{}", scan.batches().len());
        assert_eq!(scan.batches().iter().map(|run| run.frames).sum::<u64>(), BATCHES_MAX as u64 + 1);
        let scan = scan_samples(9_000, &|at| (0, at));
        assert!(
            scan.batches().iter().all(|run| run.bytes <= BATCH_BYTES as u64 + 100)
                && scan.batches().len() == 3
        );
        assert_eq!(scan.batches().iter().map(|run| run.frames).sum::<u64>(), 9_000);
    }
}
