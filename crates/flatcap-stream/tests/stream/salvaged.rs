//! Salvage of streams with every kind of damage.

use std::cell::Cell;
use std::collections::HashSet;
use std::ops::Range;

use flatcap_stream::{
    Checksum, ChecksumDeframer, ChecksumFramer, ChecksumKind, Framer, KindDeframer, RegionContent, Salvage,
    SalvagedRegion, SliceDeframer, XxHash64, salvage,
};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::test_streams::{Random, Stream};

/// The limit that recordings use.
const LIMIT: usize = 16 << 20;

fn deframer(kind: ChecksumKind) -> KindDeframer {
    KindDeframer::new(kind).with_max_frame_len(LIMIT)
}

/// Checks that all pieces cover the stream without gap or overlap, and returns them.
fn collect_tiled<'a, D: SliceDeframer>(bytes: &[u8], pieces: Salvage<'a, D>) -> Vec<SalvagedRegion<'a>> {
    let pieces: Vec<SalvagedRegion<'_>> = pieces.collect();
    let mut end = 0;
    for piece in &pieces {
        assert_eq!(piece.offset, end, "pieces follow one another: {pieces:?}");
        assert!(piece.length > 0);
        end += piece.length;
    }
    assert_eq!(end, bytes.len(), "pieces reach the end");
    pieces
}

fn pieces(bytes: &[u8], kind: ChecksumKind) -> Vec<SalvagedRegion<'_>> {
    collect_tiled(bytes, salvage(bytes, deframer(kind)))
}

fn frame_at<'a>(pieces: &[SalvagedRegion<'a>], offset: usize) -> Option<&'a [u8]> {
    let found = pieces.binary_search_by_key(&offset, |piece| piece.offset).ok()?;
    match pieces[found].content {
        RegionContent::Frame(payload) => Some(payload),
        _ => None,
    }
}

/// Checks that every salvaged payload was written to this stream.
fn assert_written(stream: &Stream, pieces: &[SalvagedRegion<'_>], what: &str) {
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

/// Flips every bit of a stream in turn. Checks that all other frames are salvaged, and that a frame
/// whose length was hit is repaired.
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
                let whole = SalvagedRegion {
                    offset: frame.start,
                    length: frame.len(),
                    content: RegionContent::Repaired(payload),
                };
                assert!(
                    found.contains(&whole),
                    "{what}: the frame at {} is repaired: {found:?}",
                    frame.start
                );
            }
        }
    }
}

/// Lengths of twelve frames with strides of 64 bytes or multiples of it, so that a flipped length
/// points exactly at a later frame.
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

// Proves that under XXH3 a flipped bit costs at most one frame, and none if it hits a length.
// Method: every bit of twelve frames of mixed sizes, of equal strides, of zeros and of ones.
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

// Proves the same under CRC-32.
#[test]
fn every_flip_under_crc32() {
    for lengths in aligned(ChecksumKind::Crc32).iter().map(Vec::as_slice).chain([&MIXED[..]]) {
        every_flip(ChecksumKind::Crc32, &Stream::of_lengths(ChecksumKind::Crc32, lengths, 1));
    }
}

// Proves the same under CRC-32 for uniform payloads, of zeros and of ones.
#[test]
fn every_flip_under_crc32_of_uniform_payloads() {
    for byte in [0, 0xFF] {
        let uniform = MIXED.map(|length| vec![byte; length]).to_vec();
        every_flip(ChecksumKind::Crc32, &Stream::new(&ChecksumKind::Crc32, uniform));
    }
}

// Proves that a flipped bit next to empty payloads costs no neighbouring frame, under XXH3. Method:
// every bit of twelve frames, half of them empty.
#[test]
fn every_flip_beside_empty_payloads_under_xxh3() {
    for lengths in [WITH_EMPTY, EMPTY_LAST] {
        every_flip(ChecksumKind::Xxh3, &Stream::of_lengths(ChecksumKind::Xxh3, &lengths, 1));
    }
}

// Proves the same under CRC-32.
#[test]
fn every_flip_beside_empty_payloads_under_crc32() {
    for lengths in [WITH_EMPTY, EMPTY_LAST] {
        every_flip(ChecksumKind::Crc32, &Stream::of_lengths(ChecksumKind::Crc32, &lengths, 1));
    }
}

// Proves that CRC-16 needs only two frames in a row after the damage. A flip in one of twelve
// frames costs no other frame.
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

// Proves that, without a checksum, a length above the limit costs only its frame if four frames or
// the end of the stream follow. Method: the high bit of each length in turn is flipped, and no
// payload contains a possible length.
#[test]
fn lengths_above_the_limit_without_a_checksum() {
    let payloads = MIXED.map(|length| vec![0xEE; length]).to_vec();
    let stream = Stream::new(&ChecksumKind::None, payloads);
    for (hit, damaged) in stream.frames.iter().enumerate() {
        let bytes = stream.flipped(8 * damaged.start + 31);
        let found = pieces(&bytes, ChecksumKind::None);
        for (index, (frame, payload)) in stream.frames.iter().zip(&stream.payloads).enumerate() {
            // The last frame alone has 8 + 16 bits of evidence, which is not enough.
            let is_demanded = index != hit && !(hit == 10 && index == 11);
            if is_demanded {
                assert_eq!(frame_at(&found, frame.start), Some(&payload[..]), "hit {hit}, frame {index}");
            }
        }
    }
}

// Proves that one intact frame between two damaged ones is found under XXH3 and CRC-32, even a long
// one. Method: the first and third frame damaged, in length or payload.
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

// Proves that with landmarks (identifiers) one frame is enough under any checksum, and that
// payloads with other identifiers count as damage. Method: every second length is damaged. The
// payloads have two known identifiers and one unknown.
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
        let found =
            collect_tiled(&stream.bytes, salvage(&stream.bytes, deframer(kind)).with_identifiers(&landmarks));
        for (index, frame) in stream.frames.iter().enumerate().skip(1).step_by(2) {
            let expected = (index != 11).then_some(&stream.payloads[index][..]);
            assert_eq!(frame_at(&found, frame.start), expected, "{kind}: frame {index}");
        }
        for (index, frame) in stream.frames.iter().enumerate().step_by(2).filter(|_| kind.size() > 0) {
            // The end of the frame with the other identifier does not confirm a repair.
            if index < 10 {
                let repaired = RegionContent::Repaired(&stream.payloads[index]);
                let is_repaired =
                    |piece: &SalvagedRegion<'_>| piece.offset == frame.start && piece.content == repaired;
                assert!(found.iter().any(is_repaired), "{kind}: frame {index} is repaired");
            }
        }
    }
}

// Proves that a stream cut at any byte yields the frames before the cut and one damaged range,
// under all checksums.
#[test]
fn every_cut() {
    for &kind in ChecksumKind::ALL {
        for lengths in [&MIXED[..], &WITH_EMPTY, &EMPTY_LAST, &aligned(kind)[1]] {
            let stream = Stream::of_lengths(kind, lengths, 2);
            for cut in 0..=stream.bytes.len() {
                let found = pieces(&stream.bytes[..cut], kind);
                let whole = stream.frames.iter().filter(|frame| frame.end <= cut).count();
                let what = format!("{kind}, {lengths:?}, cut at {cut}");
                let is_hole = |piece: &SalvagedRegion<'_>| piece.content == RegionContent::Damaged;
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

/// Returns the frames that lie wholly in the remaining parts of a stream, with their new offsets.
/// `kept` are ranges of the original, in their new order.
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

/// Returns whether the frame at `offset` lies in the range that an earlier damaged frame declares.
/// The length of the damaged frame is intact and leads to an intact frame, so this range is
/// accepted as its payload.
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

    // Proves that removed, repeated or zeroed ranges cost only the frames that they touch. Method:
    // random streams and ranges of up to 600 bytes. The frames that are still whole are expected at
    // their new offsets.
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

    // Proves that the pieces cover any bytes without gap or overlap, and that every reported frame
    // is a frame. Method: rubbish of headers, frames and zeros, with and without landmarks and
    // rules.
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
                salvage(&bytes, plain).with_identifiers(&landmarks),
                salvage(&bytes, plain).with_payload_bytes_min(9),
                salvage(&bytes, plain).with_plausibility_check(|payload| payload.len() % 2 == 0),
                salvage(&bytes, KindDeframer::new(kind)),
            ];
            for search in searches {
                for piece in collect_tiled(&bytes, search) {
                    if let RegionContent::Frame(payload) = piece.content {
                        let frame = &bytes[piece.offset..piece.offset + piece.length];
                        prop_assert_eq!(&frame[kind.frame_bytes(0)..], payload);
                        prop_assert!(matches!(plain.deframe(frame), Ok(flatcap_stream::DeframeStatus::Frame(_))));
                    }
                }
            }
        }
    }

    // Proves that a search can begin at any offset, also after the end.
    #[test]
    fn a_search_begins_anywhere(lengths in vec(1..60_usize, 1..8), at in 0..600_usize) {
        let stream = Stream::of_lengths(ChecksumKind::Xxh3, &lengths, 11);
        let found: Vec<SalvagedRegion<'_>> = salvage(&stream.bytes, deframer(ChecksumKind::Xxh3)).starting_at(at).collect();
        prop_assert!(found.first().is_none_or(|piece| piece.offset == at));
        let length: usize = found.iter().map(|piece| piece.length).sum();
        prop_assert_eq!(length, stream.bytes.len().saturating_sub(at));
        for (frame, payload) in stream.frames.iter().zip(&stream.payloads).filter(|(frame, _)| frame.start >= at) {
            prop_assert_eq!(frame_at(&found, frame.start), Some(&payload[..]));
        }
    }
}

// Proves that the pieces cover every small input without gap or overlap. Method: all sequences of
// up to seven of the bytes 0, 1, 4 and 255, under every checksum.
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

/// Returns a stream whose fourth payload consists of frames.
fn with_inner_frames() -> (Stream, Vec<Vec<u8>>) {
    let inner = Stream::of_lengths(ChecksumKind::Xxh3, &[30, 52, 7], 21);
    let mut random = Random::new(22);
    let mut payloads: Vec<Vec<u8>> = [20, 52, 90].map(|length| random.bytes(length)).to_vec();
    payloads.push(inner.bytes.clone());
    payloads.extend([44, 52, 10].map(|length| random.bytes(length)));
    (Stream::new(&ChecksumKind::Xxh3, payloads), inner.payloads)
}

// Proves that frames in the payload of a damaged frame are not reported as frames of the stream.
// Method: every bit of the stream, except the length of the frame that contains them.
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

// Proves that a frame that contains frames is repaired like any other if its length is hit.
#[test]
fn a_frame_that_holds_frames_is_repaired() {
    let (stream, _) = with_inner_frames();
    let outer = stream.frames[3].clone();
    for bit in 8 * outer.start..8 * outer.start + 32 {
        let bytes = stream.flipped(bit);
        let found = pieces(&bytes, ChecksumKind::Xxh3);
        assert_written(&stream, &found, &format!("bit {}", bit - 8 * outer.start));
        let whole = SalvagedRegion {
            offset: outer.start,
            length: outer.len(),
            content: RegionContent::Repaired(&stream.payloads[3]),
        };
        assert!(found.contains(&whole), "bit {}", bit - 8 * outer.start);
    }
}

// Proves that damage spread over a long stream costs only the frames that it touches. Method: 1,000
// random bits of 50,000 frames.
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

/// XXH3 of the first bytes and the length. A match by chance is as unlikely as with XXH3 of the
/// whole payload, and hashing is fast for payloads of any length. The whole payload counts as
/// hashed.
#[derive(Debug, Clone, Copy)]
struct CountingXxh3;

impl Checksum for CountingXxh3 {
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

/// Salvages `bytes` and checks that the number of hashed bytes is linear in their number.
fn salvage_counting<'a>(bytes: &'a [u8], landmarks: &'a [[u8; 4]]) -> Vec<SalvagedRegion<'a>> {
    HASHED.set(0);
    let deframer = ChecksumDeframer::new(CountingXxh3).with_max_frame_len(LIMIT);
    let search = salvage(bytes, deframer);
    let search = if landmarks.is_empty() { search } else { search.with_identifiers(landmarks) };
    let found = collect_tiled(bytes, search);
    // The limit covers bytes read in order, bytes hashed without result, and the last candidate,
    // which may be as long as the maximum length.
    let most = (80 << 20) + 24 * bytes.len() as u64;
    assert!(HASHED.get() <= most, "{} bytes hashed for {}", HASHED.get(), bytes.len());
    found
}

// Proves that no input makes the search take more than linear time. Method: the hashed bytes are
// counted while every four bytes declare a long frame, with and without a landmark at each, in 1
// and 3 MiB.
#[test]
fn lengths_everywhere_cost_linear_work() {
    for size in [1_usize << 20, 3 << 20] {
        for claim in [100_u32, 70_000, (1 << 20) - 100] {
            let bytes = claim.to_le_bytes().repeat(size / 4);
            salvage_counting(&bytes, &[]);
            salvage_counting(&bytes, &[claim.to_le_bytes()]);
        }
    }
}

// Proves the same for valid tiny frames that alternate with headers that declare 16 MiB.
#[test]
fn tiny_frames_between_long_claims_cost_linear_work() {
    let mut bytes = Vec::new();
    while bytes.len() < 17 << 20 {
        ChecksumFramer::new(CountingXxh3).frame_and_write(&mut bytes, b"x").unwrap();
        bytes.extend_from_slice(&((16_u32 << 20) - 64).to_le_bytes());
        bytes.extend_from_slice(&[7; 8]);
    }
    let found = salvage_counting(&bytes, &[]);
    assert!(found.iter().any(|piece| piece.content.payload().is_some()));
}

// Proves that each short declared length, which is always checked, costs a bounded amount of work.
// Method: valid tiny frames between lengths of about the short limit. The work per byte must not
// grow with the size.
#[test]
fn tiny_frames_between_short_claims_cost_linear_work() {
    for claim in [200_u32, 250, 4_000, 4_084, 5_000] {
        let work_a_byte = [1_usize << 20, 4 << 20].map(|size| {
            let mut bytes = Vec::new();
            while bytes.len() < size {
                ChecksumFramer::new(CountingXxh3).frame_and_write(&mut bytes, b"x").unwrap();
                bytes.extend_from_slice(&claim.to_le_bytes());
                bytes.extend_from_slice(&[7; 8]);
            }
            HASHED.set(0);
            let deframer = ChecksumDeframer::new(CountingXxh3).with_max_frame_len(LIMIT);
            collect_tiled(&bytes, salvage(&bytes, deframer));
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

// Proves that declared long frames hide no short ones, because beyond the bounded work only long
// candidates are rejected. Method: valid tiny frames alternate with headers that declare almost 16
// MiB. Every tiny frame must be salvaged.
#[test]
fn long_claims_hide_no_tiny_frames() {
    let tiny = 700_000;
    let (mut bytes, mut offsets) = (Vec::new(), Vec::new());
    while offsets.len() < tiny {
        offsets.push(bytes.len());
        ChecksumFramer::new(CountingXxh3).frame_and_write(&mut bytes, b"x").unwrap();
        bytes.extend_from_slice(&((16_u32 << 20) - 64).to_le_bytes());
        bytes.extend_from_slice(&[7; 8]);
    }
    let found = salvage_counting(&bytes, &[]);
    let given_back = offsets.iter().filter(|&&offset| frame_at(&found, offset).is_some()).count();
    assert_eq!(given_back, tiny);
}

// Proves that an empty list of landmarks requires nothing of a payload, even one too short for an
// identifier.
#[test]
fn an_empty_list_of_landmarks_requires_nothing() {
    let stream = Stream::of_lengths(ChecksumKind::Xxh3, &[1, 2, 3], 4);
    let found = collect_tiled(
        &stream.bytes,
        salvage(&stream.bytes, deframer(ChecksumKind::Xxh3)).with_identifiers(&[]),
    );
    assert_eq!(found.iter().filter(|piece| matches!(piece.content, RegionContent::Frame(_))).count(), 3);
}

// Proves that true candidates cost linear work too. Method: a payload full of intact frames whose
// own header is damaged, with its length intact and with its length damaged.
#[test]
fn true_candidates_cost_linear_work() {
    let mut inner = Vec::new();
    while inner.len() < 8 << 20 {
        ChecksumFramer::new(CountingXxh3).frame_and_write(&mut inner, b"inner").unwrap();
    }
    let mut bytes = Vec::new();
    ChecksumFramer::new(CountingXxh3).frame_and_write(&mut bytes, &inner).unwrap();
    ChecksumFramer::new(CountingXxh3).frame_and_write(&mut bytes, b"behind").unwrap();
    bytes[5] ^= 1;
    salvage_counting(&bytes, &[]);
    bytes[3] ^= 0x80;
    salvage_counting(&bytes, &[]);
}

// Proves that one damaged frame full of small numbers does not hide the frames after it. Method: a
// payload of 4-byte numbers that are all possible lengths, one flipped bit, 3 MiB of intact frames.
#[test]
fn a_damaged_payload_of_plausible_lengths_hides_nothing() {
    let mut payloads = vec![1_000_000_u32.to_le_bytes().repeat(128)];
    payloads.extend((0..3_000).map(|seed| Random::new(seed).bytes(1_000)));
    let mut stream = Stream::new(&ChecksumFramer::new(CountingXxh3), payloads);
    stream.bytes[20] ^= 1;
    let found = salvage_counting(&stream.bytes, &[]);
    let given_back =
        stream.frames.iter().skip(1).filter(|frame| frame_at(&found, frame.start).is_some()).count();
    assert_eq!(given_back, 3_000, "frames after the damaged one");
}

// Proves that a few damaged frames do not hide a long stream after them. The two bytes before each
// header of a small frame declare 64 KiB for each byte of its payload. Method: 24 bits in 100,000
// frames.
#[test]
fn a_few_flips_in_small_equal_frames_hide_nothing() {
    let mut random = Random::new(8);
    let payloads = (0..100_000).map(|_| random.bytes(52)).collect();
    let mut stream = Stream::new(&ChecksumFramer::new(CountingXxh3), payloads);
    let is_hit = |index: usize| index < 48 && index.is_multiple_of(2);
    for (_, frame) in stream.frames.iter().enumerate().filter(|&(index, _)| is_hit(index)) {
        stream.bytes[frame.start + 20] ^= 1;
    }
    let found = salvage_counting(&stream.bytes, &[]);
    let untouched = stream.frames.iter().enumerate().filter(|&(index, _)| !is_hit(index));
    let given_back = untouched.filter(|(_, frame)| frame_at(&found, frame.start).is_some()).count();
    assert_eq!(given_back, 100_000 - 24);
}

// Proves the same for a damaged length.
#[test]
fn a_damaged_length_before_plausible_lengths_hides_nothing() {
    let mut payloads = vec![1_000_000_u32.to_le_bytes().repeat(128)];
    payloads.extend((0..3_000).map(|seed| Random::new(seed).bytes(1_000)));
    let mut stream = Stream::new(&ChecksumFramer::new(CountingXxh3), payloads);
    stream.bytes[3] ^= 0x80;
    let found = salvage_counting(&stream.bytes, &[]);
    let given_back =
        stream.frames.iter().skip(1).filter(|frame| frame_at(&found, frame.start).is_some()).count();
    assert_eq!(given_back, 3_000, "frames after the damaged one");
}
