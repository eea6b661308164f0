//! Fuzz targets of the stream library. Tests also run the targets over the corpus.
//!
//! Each target accepts arbitrary bytes and panics if the library breaks a guarantee. Releases do
//! not contain this module. The module is compiled only for tests and with the feature `fuzzing`.

use super::checksum_kind::{ChecksumKind, KindDeframer};
use super::decoder::FrameDecoder;
use super::deframer::{DeframeStatus, FrameLength, SliceDeframer};
use super::error::{Error, ErrorKind};
use super::framer::{Framer, SliceFramer};
use super::reader::StreamReader;
use super::recover::{self, RecoveryEnd};
use super::salvage::{RegionContent, salvage};
use super::slice::SliceReader;

/// Limit on the length of payloads in bytes. The limit is small, so that a fuzzer produces payloads
/// below and above the limit.
const PAYLOAD_BYTES_MAX: usize = 4_096;

/// One result that a reader returns for a stream. The results of a reader are compared in order.
#[derive(Debug, Clone, PartialEq, Eq)]
enum ReadEvent {
    Payload(Vec<u8>),
    Mismatch,
    /// The end of the stream between frames. This variant and the next two variants are always the
    /// last result of a reader.
    Clean,
    /// The end of the stream within a frame.
    Torn,
    /// A length above the limit.
    TooLong,
}

impl ReadEvent {
    fn of(error: &Error) -> Self {
        match error.kind() {
            ErrorKind::ChecksumMismatch { .. } => Self::Mismatch,
            ErrorKind::UnexpectedEof => Self::Torn,
            ErrorKind::InvalidFrame { limit: Some(_), .. } => Self::TooLong,
            other => unreachable!("unexpected error for bytes in memory: {other}"),
        }
    }

    fn is_last(&self) -> bool {
        matches!(self, Self::Clean | Self::Torn | Self::TooLong)
    }
}

/// Reads `data` with each checksum and frames the payloads again. The new frames must have the same
/// bytes as `data`. Then frames all of `data` as one payload and reads the payload back.
///
/// # Panics
/// Panics if a reader or a framer breaks a guarantee.
pub fn deframe(data: &[u8]) {
    for &kind in ChecksumKind::ALL {
        let deframer = KindDeframer::new(kind).with_max_frame_len(PAYLOAD_BYTES_MAX);
        let mut reader = StreamReader::new(data, deframer);
        let mut again = Vec::new();
        while let Ok(Some(payload)) = reader.read_message() {
            assert!(payload.len() <= PAYLOAD_BYTES_MAX, "a payload above the limit");
            assert!(kind.frame_and_write(&mut again, payload).is_ok(), "a vector takes everything");
        }
        assert!(data.starts_with(&again), "payloads are framed as they were read");
        assert!(reader.buffer_capacity() <= PAYLOAD_BYTES_MAX, "the buffer stays within the limit");

        let mut output = vec![0xA5; kind.frame_bytes(data.len()) + 1];
        let framed = kind.frame_into(&mut output, data).ok();
        assert_eq!(framed, Some(output.len() - 1), "the buffer is large enough");
        assert_eq!(output.pop(), Some(0xA5), "nothing is written after the frame");
        let mut sealed = vec![0; kind.frame_bytes(0)];
        sealed.extend_from_slice(data);
        assert!(kind.frame_in_place(&mut sealed).is_ok() && sealed == output, "both ways of framing agree");
        match KindDeframer::new(kind).deframe(&output) {
            Ok(DeframeStatus::Frame(frame)) => {
                assert_eq!(frame.payload(), data, "what was framed is read back");
            }
            other => unreachable!("a whole frame is read as {other:?}"),
        }
    }
}

/// Reads `data` from a source, from a slice, by skipping, in parts, and in chunks whose lengths are
/// derived from the data. The results of all methods must agree.
///
/// # Panics
/// Panics if two readers disagree.
pub fn slice(data: &[u8]) {
    for &kind in ChecksumKind::ALL {
        let deframer = KindDeframer::new(kind).with_max_frame_len(PAYLOAD_BYTES_MAX);
        let events = by_source(data, deframer);
        assert_eq!(by_slice(data, deframer), events, "{kind}: slice and source");
        assert_eq!(by_pieces(data, deframer, &[]), events, "{kind}: one piece and source");
        assert_eq!(by_pieces(data, deframer, data), events, "{kind}: pieces and source");

        // Skipping reads only headers, so frames with wrong checksums are skipped too.
        let mut skipper = SliceReader::new(data, deframer);
        let mut count = 0;
        while let Ok(Some(offset)) = skipper.skip_frame() {
            let rest = data.get(offset..).unwrap_or_default();
            assert_eq!(
                deframer.frame_length(rest),
                FrameLength::Bytes(skipper.offset() - offset),
                "one frame per call"
            );
            count += 1;
        }
        assert_eq!(count, events.len() - 1, "{kind}: as many frames are count as read");

        let whole: Vec<&[u8]> = SliceReader::new(data, deframer).map_while(Result::ok).collect();
        let parts = SliceReader::new(data, deframer).split(data.first().map_or(0, |&parts| parts.into()));
        let mut from = 0;
        for part in &parts {
            assert_eq!(part.offset(), from, "{kind}: parts follow one another");
            let mut part = part.clone();
            while let Ok(Some(_)) = part.skip_frame() {}
            from = part.offset();
        }
        assert_eq!(from, skipper.offset(), "{kind}: parts end where the whole does");
        let split: Vec<&[u8]> = parts.into_iter().flatten().map_while(Result::ok).collect();
        assert_eq!(split, whole, "{kind}: parts and whole");
    }
}

/// Recovers the intact prefix of `data`, and salvages all of `data`.
///
/// # Panics
/// Panics if the regions leave a gap or overlap, if a region is wrong, or if recovery and salvage
/// disagree on the intact prefix.
pub fn recover(data: &[u8]) {
    for &kind in ChecksumKind::ALL {
        let deframer = KindDeframer::new(kind).with_max_frame_len(PAYLOAD_BYTES_MAX);
        let header_bytes = deframer.header_bytes();
        let mut end = 0;
        let mut front = Some((0, 0)); // frames and bytes, `None` after anything else
        for region in salvage(data, deframer) {
            assert_eq!(region.offset, end, "{kind}: pieces follow one another");
            assert!(region.length > 0, "{kind}: a piece has bytes");
            end += region.length;
            let bytes = data.get(region.offset..end);
            let payload = bytes.and_then(|bytes| bytes.get(header_bytes..));
            match region.content {
                RegionContent::Frame(found) => {
                    assert_eq!(Some(found), payload, "{kind}: the payload is in its frame");
                    let step = deframer.deframe(bytes.unwrap_or_default());
                    assert!(matches!(step, Ok(DeframeStatus::Frame(_))), "{kind}: a frame region is a frame");
                    front = front.map(|(frames, _)| (frames + 1, end as u64));
                }
                RegionContent::Repaired(found) => {
                    assert_eq!(Some(found), payload, "{kind}: the payload is in its frame");
                    let header = bytes.and_then(|bytes| bytes.get(..header_bytes)).unwrap_or_default();
                    assert!(
                        deframer.checksum_matches(header, found),
                        "{kind}: the checksum of a repaired frame matches"
                    );
                    check_recovered_front(&mut front, data, deframer);
                }
                RegionContent::Zeros => {
                    assert!(bytes.is_some_and(|bytes| bytes.iter().all(|&byte| byte == 0)), "zeros are zero");
                    // Zeros may be empty frames, which recovery accepts and salvage does not.
                    front = None;
                }
                RegionContent::Damaged => check_recovered_front(&mut front, data, deframer),
            }
        }
        assert_eq!(end, data.len(), "{kind}: pieces reach the end");
        check_recovered_front(&mut front, data, deframer);
    }
}

/// Checks that recovery ends at the offset at which the leading frames end.
fn check_recovered_front(front: &mut Option<(u64, u64)>, data: &[u8], deframer: KindDeframer) {
    let Some((frames, bytes)) = front.take() else { return };
    if let Ok(report) = recover::recover(data, deframer) {
        assert_eq!((report.frames, report.last_good_offset), (frames, bytes), "the intact front");
        assert_eq!(report.end == RecoveryEnd::CleanEof, bytes == data.len() as u64, "the kind of end");
    } else {
        assert!(bytes < data.len() as u64, "an intact stream is no error");
    }
}

/// Reads from a source and continues after wrong checksums.
fn by_source(data: &[u8], deframer: KindDeframer) -> Vec<ReadEvent> {
    let mut reader = StreamReader::new(data, deframer);
    let mut events = Vec::new();
    loop {
        let event = match reader.read_message() {
            Ok(Some(payload)) => ReadEvent::Payload(payload.to_vec()),
            Ok(None) => ReadEvent::Clean,
            Err(error) => ReadEvent::of(&error),
        };
        let is_last = event.is_last();
        events.push(event);
        if is_last {
            return events;
        }
    }
}

fn by_slice(data: &[u8], deframer: KindDeframer) -> Vec<ReadEvent> {
    let mut reader = SliceReader::new(data, deframer);
    let mut events = Vec::new();
    loop {
        let event = match reader.next() {
            Some(Ok(payload)) => ReadEvent::Payload(payload.to_vec()),
            None => ReadEvent::Clean,
            Some(Err(error)) => ReadEvent::of(&error),
        };
        if event == ReadEvent::Mismatch {
            let refused = reader.offset();
            assert_eq!(reader.skip_refused().ok().flatten(), Some(refused), "a refused frame was whole");
        }
        let is_last = event.is_last();
        events.push(event);
        if is_last {
            return events;
        }
    }
}

/// Pushes chunks of the given lengths in turn, or all bytes in one call if there are no lengths.
fn by_pieces(data: &[u8], deframer: KindDeframer, lengths: &[u8]) -> Vec<ReadEvent> {
    let mut decoder = FrameDecoder::new(deframer);
    let mut events = Vec::new();
    let mut lengths = lengths.iter().map(|&length| usize::from(length % 32) + 1).cycle();
    let mut rest = data;
    while !rest.is_empty() {
        let length = lengths.next().unwrap_or(rest.len()).min(rest.len());
        let (mut piece, after) = rest.split_at(length);
        while !piece.is_empty() {
            let consumed = match decoder.decode(piece) {
                Ok((taken, payload)) => {
                    assert!(
                        payload.is_some() || taken == piece.len(),
                        "without a payload all bytes are consumed"
                    );
                    events.extend(payload.map(|payload| ReadEvent::Payload(payload.to_vec())));
                    taken
                }
                Err(error) => {
                    let event = ReadEvent::of(&error);
                    let is_last = event.is_last();
                    events.push(event);
                    assert!(decoder.is_between_frames(), "between frames after an error");
                    if is_last {
                        return events;
                    }
                    decoder.consumed()
                }
            };
            piece = piece.get(consumed..).unwrap_or_default();
        }
        assert!(decoder.pending_bytes() <= deframer.header_bytes() + PAYLOAD_BYTES_MAX, "memory is bounded");
        rest = after;
    }
    events.push(if decoder.is_between_frames() { ReadEvent::Clean } else { ReadEvent::Torn });
    events
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;
    use std::path::{Path, PathBuf};

    use super::*;

    const SEED: u64 = 0x9E37_79B9_7F4A_7C15;
    /// Number of mutations of each file. In a debug build, all files and targets together take less
    /// than ten seconds.
    const MUTATIONS: u64 = 2_000;

    struct MutationRng(u64);

    impl MutationRng {
        fn next(&mut self) -> usize {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            usize::try_from(self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33).unwrap()
        }

        /// Applies one to four changes. A change flips bits, replaces bytes or lengths, truncates
        /// the data, removes or repeats a part, or writes zeros.
        fn mutate(&mut self, bytes: &mut Vec<u8>) {
            for _ in 0..=self.next() % 4 {
                if bytes.is_empty() {
                    bytes.extend([0; 5]);
                }
                let at = self.next() % bytes.len();
                let end = (at + 1 + self.next() % 48).min(bytes.len());
                match self.next() % 7 {
                    0 => bytes[at] ^= 1 << (self.next() % 8),
                    1 => bytes[at] = u8::try_from(self.next() % 256).unwrap(),
                    2 => bytes.truncate(at),
                    3 => drop(bytes.drain(at..end)),
                    4 => bytes.extend_from_within(at..end),
                    5 => bytes[at..end].fill(0),
                    _ => {
                        let length = u32::try_from(self.next() % 64).unwrap().to_le_bytes();
                        bytes.iter_mut().skip(at).zip(length).for_each(|(byte, new)| *byte = new);
                    }
                }
                bytes.truncate(4 * PAYLOAD_BYTES_MAX);
            }
        }
    }

    /// Returns the corpus files of one target, in order.
    fn corpus(target: &str) -> Vec<PathBuf> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
        let Ok(entries) = std::fs::read_dir(&folder) else {
            println!("skipped: no corpus in {}", folder.display());
            return Vec::new();
        };
        let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
        files.sort();
        files
    }

    fn run(target: &str, entry: fn(&[u8])) {
        let files = corpus(target);
        // Longer files get fewer mutations, to bound the time of the test. Short files get
        // thousands. scripts/damage.sh has time for all mutations.
        let is_full = std::env::var_os("FLATCAP_FULL").is_some();
        let rounds = if is_full { MUTATIONS } else { MUTATIONS / 4 };
        for (seed, file) in (SEED..).zip(&files) {
            let original = std::fs::read(file).unwrap();
            entry(&original);
            let mut random = MutationRng(seed);
            for round in 0..rounds.min(400_000 / (original.len() as u64 + 100)) {
                let mut bytes = original.clone();
                random.mutate(&mut bytes);
                let result = catch_unwind(|| entry(&bytes));
                assert!(
                    result.is_ok(),
                    "{target}, {}, seed {seed:#x}, round {round}: {bytes:02x?}",
                    file.display()
                );
            }
        }
    }

    // Proves that the readers keep their guarantees on the corpus and on mutations of it. The
    // mutations are the same in every run.
    #[test]
    fn deframe_holds_near_its_corpus() {
        run("deframe", deframe);
    }

    // Proves that all readers agree on the corpus and on mutations of it.
    #[test]
    fn slice_holds_near_its_corpus() {
        run("slice", slice);
    }

    // Proves that salvage covers every byte exactly once and agrees with recovery, on the corpus
    // and on mutations of it.
    #[test]
    fn recover_holds_near_its_corpus() {
        run("recover", recover);
    }
}
