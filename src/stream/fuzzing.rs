//! What must hold for any bytes at all: the entries of `fuzz/`, and of the tests that run its corpus.
//!
//! Each takes bytes of a stranger and panics where the stream library breaks a promise. None is in a release: the module
//! is there for tests and under the feature `fuzzing`.

use super::decoder::FrameDecoder;
use super::deframer::{Extent, SliceDeframer, Step};
use super::error::{Error, ErrorKind};
use super::framer::{Framer, SliceFramer};
use super::kind::{ChecksumKind, KindDeframer};
use super::reader::StreamReader;
use super::recover::{self, RecoveryEnd};
use super::salvage::{Content, salvage};
use super::slice::SliceReader;

/// Longest payload that the entries believe: small, so that a fuzzer finds both sides of the limit.
const PAYLOAD_BYTES_MAX: usize = 4_096;

/// What a reader says of a stream, one after the other.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Event {
    Payload(Vec<u8>),
    Mismatch,
    /// The last one of the three below: the end of the stream between frames.
    Clean,
    /// Its end within a frame.
    Torn,
    /// A length above the limit.
    TooLong,
}

impl Event {
    fn of(error: &Error) -> Self {
        match error.kind() {
            ErrorKind::ChecksumMismatch { .. } => Self::Mismatch,
            ErrorKind::UnexpectedEof => Self::Torn,
            ErrorKind::InvalidFrame { limit: Some(_), .. } => Self::TooLong,
            other => unreachable!("bytes in memory cannot fail so: {other}"),
        }
    }

    fn is_last(&self) -> bool {
        matches!(self, Self::Clean | Self::Torn | Self::TooLong)
    }
}

/// Reads `data` under each checksum, and frames what was read: the same bytes must come out. Then frames `data` itself
/// and reads it back.
///
/// # Panics
/// A promise of the readers or framers is broken.
pub fn deframe(data: &[u8]) {
    for &kind in ChecksumKind::ALL {
        let deframer = KindDeframer::new(kind).with_max_frame_len(PAYLOAD_BYTES_MAX);
        let mut reader = StreamReader::new(data, deframer);
        let mut again = Vec::new();
        while let Ok(Some(payload)) = reader.read_message() {
            assert!(payload.len() <= PAYLOAD_BYTES_MAX, "a payload above the limit");
            assert!(kind.frame_and_write(&mut again, payload).is_ok(), "a vector takes everything");
        }
        assert!(data.starts_with(&again), "what was read is framed as it stood");
        assert!(reader.buffer_capacity() <= PAYLOAD_BYTES_MAX, "memory for no more than the limit");

        let mut room = vec![0xA5; kind.frame_bytes(data.len()) + 1];
        let framed = kind.frame_into(&mut room, data).ok();
        assert_eq!(framed, Some(room.len() - 1), "the room is large enough");
        assert_eq!(room.pop(), Some(0xA5), "nothing is written behind the frame");
        let mut sealed = vec![0; kind.frame_bytes(0)];
        sealed.extend_from_slice(data);
        assert!(kind.seal(&mut sealed).is_ok() && sealed == room, "both ways of framing agree");
        match KindDeframer::new(kind).deframe(&room) {
            Ok(Step::Frame(frame)) => assert_eq!(frame.payload(), data, "what was framed is read back"),
            other => unreachable!("a whole frame is read as {other:?}"),
        }
    }
}

/// Reads `data` by source, by slice, by skipping, in parts and in pieces that the data choose: all agree.
///
/// # Panics
/// Two readers disagree.
pub fn slice(data: &[u8]) {
    for &kind in ChecksumKind::ALL {
        let deframer = KindDeframer::new(kind).with_max_frame_len(PAYLOAD_BYTES_MAX);
        let events = by_source(data, deframer);
        assert_eq!(by_slice(data, deframer), events, "{kind}: slice and source");
        assert_eq!(by_pieces(data, deframer, &[]), events, "{kind}: one piece and source");
        assert_eq!(by_pieces(data, deframer, data), events, "{kind}: pieces and source");

        // Only the header counts in stepping over, so wrong checksums are stepped over too.
        let mut skipper = SliceReader::new(data, deframer);
        let mut stepped_over = 0;
        while let Ok(Some(offset)) = skipper.skip_frame() {
            let rest = data.get(offset..).unwrap_or_default();
            assert_eq!(deframer.measure(rest), Extent::Bytes(skipper.offset() - offset), "one frame a step");
            stepped_over += 1;
        }
        assert_eq!(stepped_over, events.len() - 1, "{kind}: as many frames are stepped over as read");

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

/// Looks for the intact front of `data`, and for all that is intact in it.
///
/// # Panics
/// The pieces leave a gap or overlap; a frame is none; the intact front is not what salvage gives first.
pub fn recover(data: &[u8]) {
    for &kind in ChecksumKind::ALL {
        let deframer = KindDeframer::new(kind).with_max_frame_len(PAYLOAD_BYTES_MAX);
        let header_bytes = deframer.header_bytes();
        let mut end = 0;
        let mut front = Some((0, 0)); // frames and bytes, while nothing else has come
        for piece in salvage(data, deframer) {
            assert_eq!(piece.offset, end, "{kind}: pieces follow one another");
            assert!(piece.length > 0, "{kind}: a piece has bytes");
            end += piece.length;
            let bytes = data.get(piece.offset..end);
            let payload = bytes.and_then(|bytes| bytes.get(header_bytes..));
            match piece.content {
                Content::Frame(found) => {
                    assert_eq!(Some(found), payload, "{kind}: a payload stands in its frame");
                    let step = deframer.deframe(bytes.unwrap_or_default());
                    assert!(matches!(step, Ok(Step::Frame(_))), "{kind}: a frame is one");
                    front = front.map(|(frames, _)| (frames + 1, end as u64));
                }
                Content::Repaired(found) => {
                    assert_eq!(Some(found), payload, "{kind}: a payload stands in its frame");
                    let header = bytes.and_then(|bytes| bytes.get(..header_bytes)).unwrap_or_default();
                    assert!(deframer.is_proven(header, found), "{kind}: a repaired frame is proven");
                    break_off(&mut front, data, deframer);
                }
                Content::Zeros => {
                    assert!(bytes.is_some_and(|bytes| bytes.iter().all(|&byte| byte == 0)), "zeros are zero");
                    // Zeros may be empty frames, which the intact front has and salvage does not believe.
                    front = None;
                }
                Content::Hole => break_off(&mut front, data, deframer),
            }
        }
        assert_eq!(end, data.len(), "{kind}: pieces reach the end");
        break_off(&mut front, data, deframer);
    }
}

/// Where the leading frames end, recovery ends too.
fn break_off(front: &mut Option<(u64, u64)>, data: &[u8], deframer: KindDeframer) {
    let Some((frames, bytes)) = front.take() else { return };
    if let Ok(report) = recover::recover(data, deframer) {
        assert_eq!((report.frames, report.last_good_offset), (frames, bytes), "the intact front");
        assert_eq!(report.end == RecoveryEnd::CleanEof, bytes == data.len() as u64, "how it ends");
    } else {
        assert!(bytes < data.len() as u64, "an intact stream is no error");
    }
}

/// Reads on behind wrong checksums.
fn by_source(data: &[u8], deframer: KindDeframer) -> Vec<Event> {
    let mut reader = StreamReader::new(data, deframer);
    let mut events = Vec::new();
    loop {
        let event = match reader.read_message() {
            Ok(Some(payload)) => Event::Payload(payload.to_vec()),
            Ok(None) => Event::Clean,
            Err(error) => Event::of(&error),
        };
        let is_last = event.is_last();
        events.push(event);
        if is_last {
            return events;
        }
    }
}

fn by_slice(data: &[u8], deframer: KindDeframer) -> Vec<Event> {
    let mut reader = SliceReader::new(data, deframer);
    let mut events = Vec::new();
    loop {
        let event = match reader.next() {
            Some(Ok(payload)) => Event::Payload(payload.to_vec()),
            None => Event::Clean,
            Some(Err(error)) => Event::of(&error),
        };
        if event == Event::Mismatch {
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

/// Pushes pieces whose lengths are those numbers in turn; all at once without any.
fn by_pieces(data: &[u8], deframer: KindDeframer, lengths: &[u8]) -> Vec<Event> {
    let mut decoder = FrameDecoder::new(deframer);
    let mut events = Vec::new();
    let mut lengths = lengths.iter().map(|&length| usize::from(length % 32) + 1).cycle();
    let mut rest = data;
    while !rest.is_empty() {
        let length = lengths.next().unwrap_or(rest.len()).min(rest.len());
        let (mut piece, behind) = rest.split_at(length);
        while !piece.is_empty() {
            let taken = match decoder.decode(piece) {
                Ok((taken, payload)) => {
                    assert!(payload.is_some() || taken == piece.len(), "all is taken without a payload");
                    events.extend(payload.map(|payload| Event::Payload(payload.to_vec())));
                    taken
                }
                Err(error) => {
                    let event = Event::of(&error);
                    let is_last = event.is_last();
                    events.push(event);
                    assert!(decoder.is_between_frames(), "between frames after an error");
                    if is_last {
                        return events;
                    }
                    decoder.taken()
                }
            };
            piece = piece.get(taken..).unwrap_or_default();
        }
        assert!(decoder.pending_bytes() <= deframer.header_bytes() + PAYLOAD_BYTES_MAX, "memory is bounded");
        rest = behind;
    }
    events.push(if decoder.is_between_frames() { Event::Clean } else { Event::Torn });
    events
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;
    use std::path::{Path, PathBuf};

    use super::*;
    use crate::effort;

    const SEED: u64 = 0x9E37_79B9_7F4A_7C15;
    /// Of each file; all files and entries together stay below ten seconds in a debug build.
    const MUTATIONS: u64 = 2_000;

    struct Random(u64);

    impl Random {
        fn next(&mut self) -> usize {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            usize::try_from(self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33).unwrap()
        }

        /// One to four changes: bits, bytes, lengths, cuts, removals, repetitions, zeros.
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

    /// The files of one target, in order.
    fn corpus(target: &str) -> Vec<PathBuf> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target);
        let Ok(entries) = std::fs::read_dir(&folder) else {
            println!("passed over: no corpus in {}", folder.display());
            return Vec::new();
        };
        let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
        files.sort();
        files
    }

    fn run(target: &str, entry: fn(&[u8])) {
        let files = corpus(target);
        // Long files cost more: as many mutations as fit into the time, and thousands of every short one.
        for (seed, file) in (SEED..).zip(&files) {
            let original = std::fs::read(file).unwrap();
            entry(&original);
            let mut random = Random(seed);
            for round in 0..effort::of(MUTATIONS / 4, MUTATIONS).min(400_000 / (original.len() as u64 + 100))
            {
                let mut bytes = original.clone();
                random.mutate(&mut bytes);
                let held = catch_unwind(|| entry(&bytes));
                assert!(
                    held.is_ok(),
                    "{target}, {}, seed {seed:#x}, round {round}: {bytes:02x?}",
                    file.display()
                );
            }
        }
    }

    // Goal: the readers keep their promises on the whole corpus and near it. Method: every file and some thousand
    // mutations of it, the same in every run.
    #[test]
    fn deframe_holds_near_its_corpus() {
        run("deframe", deframe);
    }

    // Goal: all readers agree on the whole corpus and near it. Method: as above.
    #[test]
    fn slice_holds_near_its_corpus() {
        run("slice", slice);
    }

    // Goal: salvage tiles and agrees with recovery on the whole corpus and near it. Method: as above.
    #[test]
    fn recover_holds_near_its_corpus() {
        run("recover", recover);
    }
}
