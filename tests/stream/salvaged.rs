//! What salvage gives back of streams that were damaged in every way there is.

use std::cell::Cell;
use std::collections::HashSet;
use std::ops::Range;

use flatcap::stream::{
    Checksum, ChecksumDeframer, ChecksumFramer, ChecksumKind, Content, Framer, KindDeframer, Piece, Salvage,
    SliceDeframer, XxHash64, salvage,
};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::material::{Random, Stream};

/// As recordings have it.
const LIMIT: usize = 16 << 20;

fn deframer(kind: ChecksumKind) -> KindDeframer {
    KindDeframer::new(kind).with_max_frame_len(LIMIT)
}

/// All pieces, after a look whether they tile the stream.
fn tiled<'a, D: SliceDeframer>(bytes: &[u8], pieces: Salvage<'a, D>) -> Vec<Piece<'a>> {
    let pieces: Vec<Piece<'_>> = pieces.collect();
    let mut end = 0;
    for piece in &pieces {
        assert_eq!(piece.offset, end, "pieces follow one another: {pieces:?}");
        assert!(piece.length > 0);
        end += piece.length;
    }
    assert_eq!(end, bytes.len(), "pieces reach the end");
    pieces
}

fn pieces(bytes: &[u8], kind: ChecksumKind) -> Vec<Piece<'_>> {
    tiled(bytes, salvage(bytes, deframer(kind)))
}

fn frame_at<'a>(pieces: &[Piece<'a>], offset: usize) -> Option<&'a [u8]> {
    let found = pieces.binary_search_by_key(&offset, |piece| piece.offset).ok()?;
    match pieces[found].content {
        Content::Frame(payload) => Some(payload),
        _ => None,
    }
}

/// What is called a frame was written: as a payload of this stream.
fn assert_written(stream: &Stream, pieces: &[Piece<'_>], what: &str) {
    let written: HashSet<&[u8]> = stream.payloads.iter().map(Vec::as_slice).collect();
    for piece in pieces {
        if let Some(payload) = piece.content.payload() {
            assert!(
                written.contains(payload),
                "{what}: {} at {} was not written",
                payload.len(),
                piece.offset
            );
        }
    }
}

/// Flips every bit of a stream in turn: the frames beside it are given back, and a frame whose length was hit is
/// repaired.
fn every_flip(kind: ChecksumKind, stream: &Stream) {
    for bit in 0..8 * stream.bytes.len() {
        let bytes = stream.flipped(bit);
        let found = pieces(&bytes, kind);
        let lengths: Vec<usize> = stream.payloads.iter().map(Vec::len).collect();
        let what = format!("{kind}, payloads of {lengths:?} bytes, bit {bit}");
        assert_written(stream, &found, &what);
        for (frame, payload) in stream.frames.iter().zip(&stream.payloads) {
            if !frame.contains(&(bit / 8)) {
                assert_eq!(
                    frame_at(&found, frame.start),
                    Some(&payload[..]),
                    "{what}: frame at {}",
                    frame.start
                );
            } else if bit / 8 < frame.start + 4 {
                let whole =
                    Piece { offset: frame.start, length: frame.len(), content: Content::Repaired(payload) };
                assert!(
                    found.contains(&whole),
                    "{what}: the frame at {} is repaired: {found:?}",
                    frame.start
                );
            }
        }
    }
}

/// Twelve frames whose strides are 64 bytes, or multiples, where a flipped length points exactly at a later frame.
fn aligned(kind: ChecksumKind) -> Vec<Vec<usize>> {
    let header = kind.frame_bytes(0);
    vec![
        vec![64 - header; 12],
        [64, 128, 64, 32, 64, 256, 64, 128, 64, 64, 32, 64].map(|s| s - header).to_vec(),
    ]
}

const MIXED: [usize; 12] = [1, 40, 300, 2, 17, 129, 8, 64, 3, 241, 33, 5];
const WITH_EMPTY: [usize; 12] = [0, 5, 0, 0, 40, 52, 0, 52, 52, 0, 0, 7];
const EMPTY_LAST: [usize; 12] = [3, 0, 9, 52, 52, 1, 0, 0, 0, 20, 0, 0];

// Goal: under XXH3 a flipped bit costs one frame at most, and none in a length. Method: every bit of twelve frames, of
// mixed sizes, of equal strides, of zeros and of ones.
#[test]
fn every_flip_under_xxh3() {
    for lengths in aligned(ChecksumKind::Xxh3).iter().map(Vec::as_slice).chain([&MIXED[..]]) {
        every_flip(ChecksumKind::Xxh3, &Stream::of_lengths(ChecksumKind::Xxh3, lengths, 1));
    }
    for byte in [0, 0xFF] {
        let uniform = MIXED.map(|length| vec![byte; length]).to_vec();
        every_flip(ChecksumKind::Xxh3, &Stream::new(&ChecksumKind::Xxh3, uniform));
    }
}

// Goal: the same under CRC-32. Method: the same.
#[test]
fn every_flip_under_crc32() {
    for lengths in aligned(ChecksumKind::Crc32).iter().map(Vec::as_slice).chain([&MIXED[..]]) {
        every_flip(ChecksumKind::Crc32, &Stream::of_lengths(ChecksumKind::Crc32, lengths, 1));
    }
}

// Goal: the same under CRC-32 where payloads are all ones, whose checksum a CRC knows best. Method: the same.
#[test]
fn every_flip_under_crc32_of_uniform_payloads() {
    for byte in [0, 0xFF] {
        let uniform = MIXED.map(|length| vec![byte; length]).to_vec();
        every_flip(ChecksumKind::Crc32, &Stream::new(&ChecksumKind::Crc32, uniform));
    }
}

// Goal: an empty payload costs its neighbours nothing, under XXH3. Method: every bit of twelve frames, half of them empty.
#[test]
fn every_flip_beside_empty_payloads_under_xxh3() {
    for lengths in [WITH_EMPTY, EMPTY_LAST] {
        every_flip(ChecksumKind::Xxh3, &Stream::of_lengths(ChecksumKind::Xxh3, &lengths, 1));
    }
}

// Goal: the same under CRC-32. Method: the same.
#[test]
fn every_flip_beside_empty_payloads_under_crc32() {
    for lengths in [WITH_EMPTY, EMPTY_LAST] {
        every_flip(ChecksumKind::Crc32, &Stream::of_lengths(ChecksumKind::Crc32, &lengths, 1));
    }
}

// Goal: CRC-16 needs two frames in a row behind the damage, no more. Method: every bit of twelve frames; all but the
// last frame in front of the end, which has no follower but the end itself.
#[test]
fn every_flip_under_crc16_keeps_the_frames_beside_it() {
    for lengths in aligned(ChecksumKind::Crc16).iter().map(Vec::as_slice).chain([&MIXED[..]]) {
        let stream = Stream::of_lengths(ChecksumKind::Crc16, lengths, 1);
        for bit in 0..8 * stream.bytes.len() {
            let bytes = stream.flipped(bit);
            let found = pieces(&bytes, ChecksumKind::Crc16);
            for (frame, payload) in stream.frames.iter().zip(&stream.payloads) {
                if !frame.contains(&(bit / 8)) {
                    let what = format!("{lengths:?}, bit {bit}, frame at {}", frame.start);
                    assert_eq!(frame_at(&found, frame.start), Some(&payload[..]), "{what}");
                }
            }
        }
    }
}

// Goal: without a checksum a length above the limit costs its frame alone where four frames follow, or the end does.
// Method: the high bit of each length in turn, payloads that look like no length.
#[test]
fn lengths_above_the_limit_without_a_checksum() {
    let payloads = MIXED.map(|length| vec![0xEE; length]).to_vec();
    let stream = Stream::new(&ChecksumKind::None, payloads);
    for (hit, damaged) in stream.frames.iter().enumerate() {
        let bytes = stream.flipped(8 * damaged.start + 31);
        let found = pieces(&bytes, ChecksumKind::None);
        for (index, (frame, payload)) in stream.frames.iter().zip(&stream.payloads).enumerate() {
            // The last frame alone has 8 + 16 bits of evidence.
            let is_demanded = index != hit && !(hit == 10 && index == 11);
            if is_demanded {
                assert_eq!(frame_at(&found, frame.start), Some(&payload[..]), "hit {hit}, frame {index}");
            }
        }
    }
}

// Goal: a single intact frame between two damaged ones is found under XXH3 and CRC-32, a long one too. Method: three
// frames of several lengths in front of others, the first and the third damaged in length or in payload.
#[test]
fn an_intact_frame_between_two_damaged_ones_is_found() {
    for kind in [ChecksumKind::Xxh3, ChecksumKind::Crc32] {
        for length in [20, 52, 300, 4_000, 5_000, 70_000] {
            let stream = Stream::of_lengths(kind, &[length, length, length, 40, 40], 6);
            for (first, third) in [(3, 3), (3, 12), (12, 3), (12, 12)] {
                let mut bytes = stream.bytes.clone();
                bytes[stream.frames[0].start + first] ^= 0x80;
                bytes[stream.frames[2].start + third] ^= 0x80;
                let found = pieces(&bytes, kind);
                for index in [1, 3, 4] {
                    let what =
                        format!("{kind}, {length} bytes, damage at {first} and {third}: frame {index}");
                    let is_found = frame_at(&found, stream.frames[index].start).is_some();
                    assert!(is_found, "{what}");
                }
            }
        }
    }
}

// Goal: with landmarks one frame is enough under any checksum, and foreign payloads are damage. Method: every second
// length damaged, payloads with two identifiers, and one with another.
#[test]
fn landmarks_are_evidence_enough() {
    for &kind in ChecksumKind::ALL {
        let mut random = Random::new(5);
        let payloads: Vec<Vec<u8>> = (0..13)
            .map(|index| {
                let mut payload = random.bytes(20 + index);
                payload[4..8].copy_from_slice(match index {
                    11 => b"else",
                    _ if index % 3 == 0 => b"one.",
                    _ => b"two.",
                });
                payload
            })
            .collect();
        let mut stream = Stream::new(&kind, payloads);
        for frame in stream.frames.iter().step_by(2) {
            stream.bytes[frame.start + 3] = 0x7F;
        }
        let landmarks = [*b"one.", *b"two."];
        let found = tiled(&stream.bytes, salvage(&stream.bytes, deframer(kind)).with_landmarks(&landmarks));
        for (index, frame) in stream.frames.iter().enumerate().skip(1).step_by(2) {
            let expected = (index != 11).then_some(&stream.payloads[index][..]);
            assert_eq!(frame_at(&found, frame.start), expected, "{kind}: frame {index}");
        }
        for (index, frame) in stream.frames.iter().enumerate().step_by(2).filter(|_| kind.size() > 0) {
            // The frame with the foreign identifier is no end that a repair could be believed by.
            if index < 10 {
                let repaired = Content::Repaired(&stream.payloads[index]);
                let is_repaired =
                    |piece: &Piece<'_>| piece.offset == frame.start && piece.content == repaired;
                assert!(found.iter().any(is_repaired), "{kind}: frame {index} is repaired");
            }
        }
    }
}

// Goal: every cut gives the whole frames in front of it and one hole. Method: all cuts, all checksums with evidence.
#[test]
fn every_cut() {
    for &kind in ChecksumKind::ALL {
        for lengths in [&MIXED[..], &WITH_EMPTY, &EMPTY_LAST, &aligned(kind)[1]] {
            let stream = Stream::of_lengths(kind, lengths, 2);
            for cut in 0..=stream.bytes.len() {
                let found = pieces(&stream.bytes[..cut], kind);
                let whole = stream.frames.iter().filter(|frame| frame.end <= cut).count();
                let what = format!("{kind}, {lengths:?}, cut at {cut}");
                let is_hole = |piece: &Piece<'_>| piece.content == Content::Hole;
                let is_torn = stream.frames.get(whole).is_some_and(|frame| frame.start < cut);
                assert_eq!(found.len(), whole + usize::from(is_torn), "{what}");
                assert_eq!(
                    found.iter().filter(|piece| is_hole(piece)).count(),
                    usize::from(is_torn),
                    "{what}"
                );
                for (piece, frame) in found.iter().zip(&stream.frames[..whole]) {
                    assert_eq!((piece.offset, piece.length), (frame.start, frame.len()), "{what}");
                }
            }
        }
    }
}

/// The frames that stand wholly in what is left of a stream, at their new places: `kept` are ranges of the original, in
/// the order in which they stand now.
fn expected<'s>(stream: &'s Stream, kept: &[Range<usize>]) -> Vec<(usize, &'s [u8])> {
    let (mut expected, mut at) = (Vec::new(), 0);
    for range in kept {
        for (frame, payload) in stream.frames.iter().zip(&stream.payloads) {
            if range.start <= frame.start && frame.end <= range.end {
                expected.push((at + frame.start - range.start, &payload[..]));
            }
        }
        at += range.len();
    }
    expected
}

/// Whether the frame at `offset` lies in what a damaged frame in front of it claims: its length is intact and leads to
/// an intact frame, so that its claim is believed.
fn is_claimed(bytes: &[u8], expected: &[(usize, &[u8])], kind: ChecksumKind, offset: usize) -> bool {
    (0..offset).any(|start| {
        let Some(length) = bytes.get(start..).and_then(<[u8]>::first_chunk) else { return false };
        let end = start + kind.frame_bytes(u32::from_le_bytes(*length) as usize);
        let leads = end == bytes.len() || expected.iter().any(|&(at, _)| at == end);
        let is_frame = expected.iter().any(|&(at, _)| at == start);
        end > offset && leads && !is_frame
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    // Goal: what is removed, repeated or zeroed costs the frames it touches and no other. Method: random streams, ranges
    // of up to a page; the frames that are still whole, at their new places.
    #[test]
    fn ranges(
        lengths in vec(1..200_usize, 1..30),
        seed in any::<u64>(),
        from in any::<prop::sample::Index>(),
        count in 1..600_usize,
        is_crc in any::<bool>(),
    ) {
        let kind = if is_crc { ChecksumKind::Crc32 } else { ChecksumKind::Xxh3 };
        let stream = Stream::of_lengths(kind, &lengths, seed);
        let all = stream.bytes.len();
        let from = from.index(all);
        let to = (from + count).min(all);
        let removed = [&stream.bytes[..from], &stream.bytes[to..]].concat();
        let repeated = [&stream.bytes[..to], &stream.bytes[from..]].concat();
        let mut zeroed = stream.bytes.clone();
        zeroed[from..to].fill(0);
        let zeroed_kept = expected(&stream, &[0..from, to..to, to..all]);
        let cases = [
            (removed, expected(&stream, &[0..from, to..all])),
            (repeated, expected(&stream, &[0..to, from..all])),
            (zeroed, zeroed_kept.into_iter().map(|(at, payload)| (if at < from { at } else { at + to - from }, payload)).collect()),
        ];
        for (case, (bytes, expected)) in ["removed", "repeated", "zeroed"].iter().zip(&cases) {
            let mut found = pieces(bytes, kind);
            let everything = found.clone();
            // Eight zeros are an empty frame under CRC-32.
            found.retain(|piece| !is_crc || piece.content.payload() != Some(&[]));
            assert_written(&stream, &found, case);
            let found = everything;
            for &(at, payload) in expected {
                if !is_claimed(bytes, expected, kind, at) {
                    prop_assert_eq!(frame_at(&found, at), Some(payload), "{} {}..{}: frame at {}", case, from, to, at);
                }
            }
        }
    }

    // Goal: any bytes are tiled, and what is called a frame is one. Method: rubbish made of headers, frames and zeros,
    // with and without landmarks and rules.
    #[test]
    fn rubbish_is_tiled(parts in vec((0..6_u8, 0..40_usize, any::<u64>()), 0..12)) {
        for &kind in ChecksumKind::ALL {
            let mut bytes = Vec::new();
            for &(part, length, seed) in &parts {
                let noise = Random::new(seed).bytes(length);
                match part {
                    0 => kind.frame_and_write(&mut bytes, &noise).unwrap(),
                    1 => bytes.extend(noise),
                    2 => bytes.extend(vec![0; 3 * length]),
                    3 => bytes.extend((length as u32).to_le_bytes()),
                    4 => {
                        kind.frame_and_write(&mut bytes, &noise).unwrap();
                        let last = bytes.len() - 1;
                        bytes[last] ^= 1;
                    }
                    _ => bytes.extend(vec![0xFF; length]),
                }
            }
            let plain = deframer(kind);
            let landmarks = [[0; 4], [0xFF; 4]];
            let searches = [
                salvage(&bytes, plain),
                salvage(&bytes, plain).with_landmarks(&landmarks),
                salvage(&bytes, plain).with_payload_bytes_min(9),
                salvage(&bytes, plain).with_plausible(|payload| payload.len() % 2 == 0),
                salvage(&bytes, KindDeframer::new(kind)),
            ];
            for search in searches {
                for piece in tiled(&bytes, search) {
                    if let Content::Frame(payload) = piece.content {
                        let frame = &bytes[piece.offset..piece.offset + piece.length];
                        prop_assert_eq!(&frame[kind.frame_bytes(0)..], payload);
                        prop_assert!(matches!(plain.deframe(frame), Ok(flatcap::stream::Step::Frame(_))));
                    }
                }
            }
        }
    }

    // Goal: a search may begin anywhere. Method: from every kind of place of a stream, and behind its end.
    #[test]
    fn a_search_begins_anywhere(lengths in vec(1..60_usize, 1..8), at in 0..600_usize) {
        let stream = Stream::of_lengths(ChecksumKind::Xxh3, &lengths, 11);
        let found: Vec<Piece<'_>> = salvage(&stream.bytes, deframer(ChecksumKind::Xxh3)).starting_at(at).collect();
        prop_assert!(found.first().is_none_or(|piece| piece.offset == at));
        let length: usize = found.iter().map(|piece| piece.length).sum();
        prop_assert_eq!(length, stream.bytes.len().saturating_sub(at));
        for (frame, payload) in stream.frames.iter().zip(&stream.payloads).filter(|(frame, _)| frame.start >= at) {
            prop_assert_eq!(frame_at(&found, frame.start), Some(&payload[..]));
        }
    }
}

// Goal: any four bytes in a row, whatever they are, are tiled. Method: all sequences of five bytes that matter, three
// to eight long, under every checksum.
#[test]
fn small_inputs_are_tiled() {
    const BYTES: [u8; 4] = [0, 1, 4, 0xFF];
    for count in 0..8_u32 {
        for number in 0..4_usize.pow(count) {
            let bytes: Vec<u8> = (0..count).map(|digit| BYTES[number >> (2 * digit) & 3]).collect();
            for &kind in ChecksumKind::ALL {
                pieces(&bytes, kind);
            }
        }
    }
}

/// A stream whose fourth payload is made of frames.
fn with_inner_frames() -> (Stream, Vec<Vec<u8>>) {
    let inner = Stream::of_lengths(ChecksumKind::Xxh3, &[30, 52, 7], 21);
    let mut random = Random::new(22);
    let mut payloads: Vec<Vec<u8>> = [20, 52, 90].map(|length| random.bytes(length)).to_vec();
    payloads.push(inner.bytes.clone());
    payloads.extend([44, 52, 10].map(|length| random.bytes(length)));
    (Stream::new(&ChecksumKind::Xxh3, payloads), inner.payloads)
}

// Goal: frames in the payload of a damaged frame are not taken for frames of the stream. Method: every bit of checksum
// and payload of the frame that holds them, and every bit of all others.
#[test]
fn frames_in_payloads_are_payload() {
    let (stream, inner) = with_inner_frames();
    let outer = stream.frames[3].clone();
    for bit in (0..8 * stream.bytes.len()).filter(|bit| !(outer.start..outer.start + 4).contains(&(bit / 8)))
    {
        let bytes = stream.flipped(bit);
        let found = pieces(&bytes, ChecksumKind::Xxh3);
        assert!(
            found
                .iter()
                .filter_map(|piece| piece.content.payload())
                .all(|payload| !inner.iter().any(|p| p == payload)),
            "bit {bit}"
        );
        for (frame, payload) in stream.frames.iter().zip(&stream.payloads) {
            if !frame.contains(&(bit / 8)) {
                assert_eq!(frame_at(&found, frame.start), Some(&payload[..]), "bit {bit}");
            }
        }
    }
}

// Goal: a frame that holds frames is repaired as any other when its length is hit. Method: every bit of that length.
#[test]
fn a_frame_that_holds_frames_is_repaired() {
    let (stream, _) = with_inner_frames();
    let outer = stream.frames[3].clone();
    for bit in 8 * outer.start..8 * outer.start + 32 {
        let bytes = stream.flipped(bit);
        let found = pieces(&bytes, ChecksumKind::Xxh3);
        assert_written(&stream, &found, &format!("bit {}", bit - 8 * outer.start));
        let whole = Piece {
            offset: outer.start,
            length: outer.len(),
            content: Content::Repaired(&stream.payloads[3]),
        };
        assert!(found.contains(&whole), "bit {}", bit - 8 * outer.start);
    }
}

// Goal: damage that is spread over a long stream costs the frames it touches. Method: 1,000 random bits of 50,000
// frames.
#[test]
fn a_thousand_flips_in_a_long_stream() {
    let mut random = Random::new(99);
    let lengths: Vec<usize> = (0..50_000).map(|_| 1 + random.below(80)).collect();
    let stream = Stream::of_lengths(ChecksumKind::Xxh3, &lengths, 98);
    let mut bytes = stream.bytes.clone();
    let mut flipped = Vec::new();
    for _ in 0..1_000 {
        let bit = random.below(8 * bytes.len());
        bytes[bit / 8] ^= 1 << (bit % 8);
        flipped.push(bit / 8);
    }
    flipped.sort_unstable();
    let found = pieces(&bytes, ChecksumKind::Xxh3);
    assert_written(&stream, &found, "1,000 flips");
    for (frame, payload) in stream.frames.iter().zip(&stream.payloads) {
        let next = flipped.partition_point(|&at| at < frame.start);
        if flipped.get(next).is_none_or(|&at| at >= frame.end) {
            assert_eq!(frame_at(&found, frame.start), Some(&payload[..]), "frame at {}", frame.start);
        }
    }
}

thread_local! {
    /// Bytes that were hashed on this thread.
    static HASHED: Cell<u64> = const { Cell::new(0) };
}

/// XXH3 of the first bytes and the length: as good against chance, and quick however long a payload is. Counts all of
/// it.
#[derive(Debug, Clone, Copy)]
struct Counted;

impl Checksum for Counted {
    const SIZE: usize = 8;

    fn calculate(&self, payload: &[u8]) -> u64 {
        HASHED.set(HASHED.get() + payload.len() as u64);
        let mut front = [0; 40];
        let length = payload.len().min(32);
        front[..length].copy_from_slice(&payload[..length]);
        front[32..].copy_from_slice(&(payload.len() as u64).to_le_bytes());
        XxHash64.calculate(&front)
    }
}

/// Salvages `bytes`, and says how many bytes were hashed: no more than is linear in them.
fn work<'a>(bytes: &'a [u8], landmarks: &'a [[u8; 4]]) -> Vec<Piece<'a>> {
    HASHED.set(0);
    let deframer = ChecksumDeframer::new(Counted).with_max_frame_len(LIMIT);
    let search = salvage(bytes, deframer);
    let search = if landmarks.is_empty() { search } else { search.with_landmarks(landmarks) };
    let found = tiled(bytes, search);
    // What is read in order, what is hashed in vain, and the last candidate, which may be as long as the limit.
    let most = (80 << 20) + 24 * bytes.len() as u64;
    assert!(HASHED.get() <= most, "{} bytes hashed for {}", HASHED.get(), bytes.len());
    found
}

// Goal: no input makes the search take more than linear time. Method: bytes that are hashed are counted while every four
// bytes claim a long frame, with and without a landmark at each, in 1 and 3 MiB.
#[test]
fn lengths_everywhere_cost_linear_work() {
    for size in [1_usize << 20, 3 << 20] {
        for claim in [100_u32, 70_000, (1 << 20) - 100] {
            let bytes = claim.to_le_bytes().repeat(size / 4);
            work(&bytes, &[]);
            work(&bytes, &[claim.to_le_bytes()]);
        }
    }
}

// Goal: the same where true frames stand between. Method: valid tiny frames in turn with headers that claim 16 MiB.
#[test]
fn tiny_frames_between_long_claims_cost_linear_work() {
    let mut bytes = Vec::new();
    while bytes.len() < 17 << 20 {
        ChecksumFramer::new(Counted).frame_and_write(&mut bytes, b"x").unwrap();
        bytes.extend_from_slice(&((16_u32 << 20) - 64).to_le_bytes());
        bytes.extend_from_slice(&[7; 8]);
    }
    let found = work(&bytes, &[]);
    assert!(found.iter().any(|piece| piece.content.payload().is_some()));
}

// Goal: short claims, which are always looked at, cost a bounded amount each. Method: valid tiny frames in turn with
// headers that claim what is short, or just not, in sizes far apart: the work a byte stays the same.
#[test]
fn tiny_frames_between_short_claims_cost_linear_work() {
    for claim in [200_u32, 250, 4_000, 4_084, 5_000] {
        let work_a_byte = [1_usize << 20, 4 << 20].map(|size| {
            let mut bytes = Vec::new();
            while bytes.len() < size {
                ChecksumFramer::new(Counted).frame_and_write(&mut bytes, b"x").unwrap();
                bytes.extend_from_slice(&claim.to_le_bytes());
                bytes.extend_from_slice(&[7; 8]);
            }
            HASHED.set(0);
            let deframer = ChecksumDeframer::new(Counted).with_max_frame_len(LIMIT);
            tiled(&bytes, salvage(&bytes, deframer));
            HASHED.get() / bytes.len() as u64
        });
        println!("{claim}: {work_a_byte:?}");
        assert!(
            work_a_byte[1] <= work_a_byte[0] + 1,
            "claims of {claim}: {work_a_byte:?} bytes hashed a byte"
        );
        assert!(work_a_byte[0] < 1_000, "claims of {claim}: {work_a_byte:?} bytes hashed a byte");
    }
}

// Goal: claims of long frames hide no short ones: beyond the bounded work only a long candidate is not believed. Method:
// as above; every tiny frame is given back.
#[test]
fn long_claims_hide_no_tiny_frames() {
    let tiny = 700_000;
    let (mut bytes, mut offsets) = (Vec::new(), Vec::new());
    while offsets.len() < tiny {
        offsets.push(bytes.len());
        ChecksumFramer::new(Counted).frame_and_write(&mut bytes, b"x").unwrap();
        bytes.extend_from_slice(&((16_u32 << 20) - 64).to_le_bytes());
        bytes.extend_from_slice(&[7; 8]);
    }
    let found = work(&bytes, &[]);
    let given_back = offsets.iter().filter(|&&offset| frame_at(&found, offset).is_some()).count();
    assert_eq!(given_back, tiny);
}

// Goal: an empty list of landmarks asks nothing of a payload. Method: payloads too short for an identifier.
#[test]
fn no_landmarks_ask_for_nothing() {
    let stream = Stream::of_lengths(ChecksumKind::Xxh3, &[1, 2, 3], 4);
    let found =
        tiled(&stream.bytes, salvage(&stream.bytes, deframer(ChecksumKind::Xxh3)).with_landmarks(&[]));
    assert_eq!(found.iter().filter(|piece| matches!(piece.content, Content::Frame(_))).count(), 3);
}

// Goal: the same where each candidate is true. Method: a payload full of intact frames, its own header damaged, with
// its length intact and without.
#[test]
fn true_candidates_cost_linear_work() {
    let mut inner = Vec::new();
    while inner.len() < 8 << 20 {
        ChecksumFramer::new(Counted).frame_and_write(&mut inner, b"inner").unwrap();
    }
    let mut bytes = Vec::new();
    ChecksumFramer::new(Counted).frame_and_write(&mut bytes, &inner).unwrap();
    ChecksumFramer::new(Counted).frame_and_write(&mut bytes, b"behind").unwrap();
    bytes[5] ^= 1;
    work(&bytes, &[]);
    bytes[3] ^= 0x80;
    work(&bytes, &[]);
}

// Goal: one damaged frame full of small numbers does not hide the frames behind it: they cost no search. Method: a
// payload of 4-byte numbers that are all possible lengths, one bit of it flipped, 3 MiB of intact frames behind it.
#[test]
fn a_damaged_payload_of_plausible_lengths_hides_nothing() {
    let mut payloads = vec![1_000_000_u32.to_le_bytes().repeat(128)];
    payloads.extend((0..3_000).map(|seed| Random::new(seed).bytes(1_000)));
    let mut stream = Stream::new(&ChecksumFramer::new(Counted), payloads);
    stream.bytes[20] ^= 1;
    let found = work(&stream.bytes, &[]);
    let given_back =
        stream.frames.iter().skip(1).filter(|frame| frame_at(&found, frame.start).is_some()).count();
    assert_eq!(given_back, 3_000, "frames behind the damaged one");
}

// Goal: a few damaged frames do not hide a long stream behind them. Two bytes in front of each header of a small frame
// claim 64 KiB for each byte of its payload. Method: one bit of twenty-four of 100,000 equal frames of 64 bytes.
#[test]
fn a_few_flips_in_small_equal_frames_hide_nothing() {
    let mut random = Random::new(8);
    let payloads = (0..100_000).map(|_| random.bytes(52)).collect();
    let mut stream = Stream::new(&ChecksumFramer::new(Counted), payloads);
    let is_hit = |index: usize| index < 48 && index.is_multiple_of(2);
    for (_, frame) in stream.frames.iter().enumerate().filter(|&(index, _)| is_hit(index)) {
        stream.bytes[frame.start + 20] ^= 1;
    }
    let found = work(&stream.bytes, &[]);
    let untouched = stream.frames.iter().enumerate().filter(|&(index, _)| !is_hit(index));
    let given_back = untouched.filter(|(_, frame)| frame_at(&found, frame.start).is_some()).count();
    assert_eq!(given_back, 100_000 - 24);
}

// Goal: the same where the length is what was damaged. Method: as above.
#[test]
fn a_damaged_length_before_plausible_lengths_hides_nothing() {
    let mut payloads = vec![1_000_000_u32.to_le_bytes().repeat(128)];
    payloads.extend((0..3_000).map(|seed| Random::new(seed).bytes(1_000)));
    let mut stream = Stream::new(&ChecksumFramer::new(Counted), payloads);
    stream.bytes[3] ^= 0x80;
    let found = work(&stream.bytes, &[]);
    let given_back =
        stream.frames.iter().skip(1).filter(|frame| frame_at(&found, frame.start).is_some()).count();
    assert_eq!(given_back, 3_000, "frames behind the damaged one");
}
