//! Properties of every payload, every cut, every flipped bit and arbitrary bytes.

use flatcap_stream::{
    Checksum, ChecksumDeframer, ChecksumFramer, Crc16, Crc32, DefaultDeframer, DefaultFramer, DeframeStatus,
    Deframer, ErrorKind, FrameDecoder, SliceDeframer, SliceFramer, SliceReader, StreamReader, StreamWriter,
    XxHash64,
};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::test_streams::{Fold24, Random};

const LIMIT: usize = 4_096;

/// One result of a reader.
#[derive(Debug, Clone, PartialEq, Eq)]
enum ReadEvent {
    Payload(Vec<u8>),
    Mismatch,
    /// A clean end. It, an end within a frame, or a length above the limit is the last event.
    Clean,
    Torn,
    TooLong,
}

fn last_event(kind: &ErrorKind) -> ReadEvent {
    match kind {
        ErrorKind::UnexpectedEof => ReadEvent::Torn,
        ErrorKind::InvalidFrame { limit: Some(_), .. } => ReadEvent::TooLong,
        other => panic!("unexpected error of an in-memory reader: {other:?}"),
    }
}

/// Reads from a source and continues after wrong checksums.
fn by_source<D: Deframer>(bytes: &[u8], deframer: D) -> Vec<ReadEvent> {
    let mut events = Vec::new();
    let mut reader = StreamReader::new(bytes, deframer);
    loop {
        match reader.read_message() {
            Ok(Some(payload)) => events.push(ReadEvent::Payload(payload.to_vec())),
            Ok(None) => events.push(ReadEvent::Clean),
            Err(error) if error.is_checksum_mismatch() => events.push(ReadEvent::Mismatch),
            Err(error) => events.push(last_event(error.kind())),
        }
        if !matches!(events.last(), Some(ReadEvent::Payload(_) | ReadEvent::Mismatch)) {
            return events;
        }
    }
}

fn by_slice<D: SliceDeframer>(bytes: &[u8], deframer: D) -> Vec<ReadEvent> {
    let mut events = Vec::new();
    let mut reader = SliceReader::new(bytes, deframer);
    loop {
        match reader.next() {
            Some(Ok(payload)) => events.push(ReadEvent::Payload(payload.to_vec())),
            Some(Err(error)) if error.is_checksum_mismatch() => {
                events.push(ReadEvent::Mismatch);
                reader.skip_refused().unwrap().unwrap();
            }
            Some(Err(error)) => {
                events.push(last_event(error.kind()));
                return events;
            }
            None => {
                events.push(ReadEvent::Clean);
                return events;
            }
        }
    }
}

fn by_pieces<D: SliceDeframer>(bytes: &[u8], deframer: D, lengths: &[usize]) -> Vec<ReadEvent> {
    let mut events = Vec::new();
    let mut decoder = FrameDecoder::new(deframer);
    let mut lengths = lengths.iter().copied().cycle();
    let mut rest = bytes;
    while !rest.is_empty() {
        let (mut piece, remaining) = rest.split_at(lengths.next().unwrap_or(rest.len()).min(rest.len()));
        while !piece.is_empty() {
            let taken = match decoder.decode(piece) {
                Ok((taken, payload)) => {
                    events.extend(payload.map(|payload| ReadEvent::Payload(payload.to_vec())));
                    taken
                }
                Err(error) if error.is_checksum_mismatch() => {
                    events.push(ReadEvent::Mismatch);
                    decoder.consumed()
                }
                Err(error) => {
                    events.push(last_event(error.kind()));
                    return events;
                }
            };
            piece = &piece[taken..];
        }
        rest = remaining;
    }
    events.push(if decoder.is_between_frames() { ReadEvent::Clean } else { ReadEvent::Torn });
    events
}

/// Checks round trips with every way of writing and reading. Then cuts the stream at every byte.
fn check_round_trips_and_cuts<F, D>(
    framer: F,
    deframer: D,
    payloads: &[Vec<u8>],
    pieces: &[usize],
) -> Result<(), TestCaseError>
where
    F: SliceFramer + Copy,
    D: Deframer + SliceDeframer + Copy,
{
    let mut writer = StreamWriter::new(Vec::new(), framer);
    writer.write_payloads(payloads.iter().map(Vec::as_slice)).unwrap();
    let bytes = writer.into_inner();
    let mut sealed = Vec::new();
    for payload in payloads {
        let start = sealed.len();
        sealed.resize(start + framer.header_bytes(), 0);
        sealed.extend_from_slice(payload);
        framer.frame_in_place(&mut sealed[start..]).unwrap();
    }
    prop_assert_eq!(&sealed, &bytes);

    let mut expected: Vec<ReadEvent> = payloads.iter().cloned().map(ReadEvent::Payload).collect();
    expected.push(ReadEvent::Clean);
    prop_assert_eq!(&by_source(&bytes[..], deframer), &expected);
    prop_assert_eq!(&by_slice(&bytes, deframer), &expected);
    prop_assert_eq!(&by_pieces(&bytes, deframer, pieces), &expected);
    prop_assert_eq!(&by_pieces(&bytes, deframer, &[]), &expected);

    for cut in 0..bytes.len() {
        let events = by_slice(&bytes[..cut], deframer);
        let (last, whole) = events.split_last().unwrap();
        prop_assert_eq!(whole, &expected[..whole.len()]);
        prop_assert!(matches!(last, ReadEvent::Torn | ReadEvent::Clean));
        prop_assert_eq!(&by_source(&bytes[..cut], deframer), &events);
        prop_assert_eq!(&by_pieces(&bytes[..cut], deframer, pieces), &events);
    }
    Ok(())
}

/// Flips each bit of one frame. Checks that a flip after the length is detected and, if
/// `is_strong`, that a flip in the length yields no wrong payload.
fn check_flips<F, D>(framer: &F, deframer: &D, payload: &[u8], is_strong: bool) -> Result<(), TestCaseError>
where
    F: SliceFramer,
    D: SliceDeframer,
{
    let mut bytes = vec![0; framer.header_bytes() + payload.len()];
    framer.frame_into(&mut bytes, payload).unwrap();
    // Appends bytes after the frame, so that a longer length does not exceed the stream.
    bytes.extend_from_slice(&Random::new(3).bytes(300));
    let frame_bytes = framer.header_bytes() + payload.len();
    for bit in 0..8 * frame_bytes {
        bytes[bit / 8] ^= 1 << (bit % 8);
        let step = deframer.deframe(&bytes);
        if bit >= 32 {
            prop_assert!(step.unwrap_err().is_checksum_mismatch(), "bit {} of {}", bit, frame_bytes);
        } else if is_strong {
            prop_assert!(!matches!(step, Ok(DeframeStatus::Frame(_))), "length bit {}", bit);
        }
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
    Ok(())
}

fn checked<C: Checksum>(checksum: C) -> ChecksumDeframer<C> {
    ChecksumDeframer::new(checksum).with_max_frame_len(LIMIT)
}

fn plain() -> DefaultDeframer {
    DefaultDeframer::new().with_max_frame_len(LIMIT)
}

/// Generates lengths on both sides of every code path of copying and hashing, 0 included.
fn payload() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        1 => Just(Vec::new()),
        4 => vec(any::<u8>(), 0..40),
        1 => vec(any::<u8>(), 120..140),
        1 => vec(any::<u8>(), 230..260),
    ]
}

/// Generates plausible rubbish, which is random bytes and small lengths with frames of each kind
/// between them.
fn rubbish() -> impl Strategy<Value = Vec<u8>> {
    let framed = (payload(), 0..5_u8).prop_map(|(payload, kind)| {
        let mut frame = vec![0; 12 + payload.len()];
        let length = match kind {
            0 => DefaultFramer.frame_into(&mut frame, &payload),
            1 => ChecksumFramer::new(Crc16).frame_into(&mut frame, &payload),
            2 => ChecksumFramer::new(Crc32).frame_into(&mut frame, &payload),
            3 => ChecksumFramer::new(Fold24).frame_into(&mut frame, &payload),
            _ => ChecksumFramer::new(XxHash64).frame_into(&mut frame, &payload),
        };
        frame.truncate(length.unwrap());
        frame
    });
    let small = (0..20_u32).prop_map(|length| length.to_le_bytes().to_vec());
    let part = prop_oneof![3 => framed, 2 => small, 1 => vec(any::<u8>(), 0..12)];
    vec(part, 0..8).prop_map(|parts| parts.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    // Proves that every reader reads back every framer's bytes, and that a stream cut at any byte
    // yields the frames before the cut. Method: random payloads, every cut, random pieces.
    #[test]
    fn round_trips_and_cuts(payloads in vec(payload(), 0..6), pieces in vec(1..50_usize, 1..8)) {
        check_round_trips_and_cuts(DefaultFramer, plain(), &payloads, &pieces)?;
        check_round_trips_and_cuts(ChecksumFramer::new(Crc16), checked(Crc16), &payloads, &pieces)?;
        check_round_trips_and_cuts(ChecksumFramer::new(Crc32), checked(Crc32), &payloads, &pieces)?;
        check_round_trips_and_cuts(ChecksumFramer::new(XxHash64), checked(XxHash64), &payloads, &pieces)?;
        check_round_trips_and_cuts(ChecksumFramer::new(Fold24), checked(Fold24), &payloads, &pieces)?;
    }

    // Proves that every flipped bit after the length is detected, and that a flipped length yields
    // no wrong payload under XXH3.
    #[test]
    fn flipped_bits(payload in payload()) {
        check_flips(&ChecksumFramer::new(Crc16), &checked(Crc16), &payload, false)?;
        check_flips(&ChecksumFramer::new(Crc32), &checked(Crc32), &payload, false)?;
        check_flips(&ChecksumFramer::new(XxHash64), &checked(XxHash64), &payload, true)?;
    }
}

/// Checks that the readers agree on arbitrary `bytes`.
fn check_readers_agree<D>(bytes: &[u8], deframer: D, pieces: &[usize]) -> Result<(), TestCaseError>
where
    D: Deframer + SliceDeframer + Copy,
{
    let events = by_source(bytes, deframer);
    prop_assert_eq!(&by_slice(bytes, deframer), &events);
    prop_assert_eq!(&by_pieces(bytes, deframer, &[]), &events);
    prop_assert_eq!(&by_pieces(bytes, deframer, pieces), &events);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    // Proves that all readers return the same results for the same bytes. Method: rubbish that
    // contains frames, every deframer, pieces of all lengths.
    #[test]
    fn readers_agree(bytes in rubbish(), pieces in vec(1..30_usize, 1..8)) {
        check_readers_agree(&bytes, plain(), &pieces)?;
        check_readers_agree(&bytes, checked(Crc16), &pieces)?;
        check_readers_agree(&bytes, checked(Crc32), &pieces)?;
        check_readers_agree(&bytes, checked(XxHash64), &pieces)?;
        check_readers_agree(&bytes, checked(Fold24), &pieces)?;
    }
}

// Proves that the result does not depend on how the input is split, even in the last frame. Method:
// a length above the limit at the end of the input, in one piece and byte by byte.
#[test]
fn a_length_above_the_limit_is_refused_in_any_pieces() {
    let bytes = [0xFF; 4];
    assert_eq!(by_slice(&bytes, checked(XxHash64)), [ReadEvent::TooLong]);
    assert_eq!(by_pieces(&bytes, checked(XxHash64), &[4]), [ReadEvent::TooLong]);
    assert_eq!(by_pieces(&bytes, checked(XxHash64), &[1]), [ReadEvent::TooLong]);
}
