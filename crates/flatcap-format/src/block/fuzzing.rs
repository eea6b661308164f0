//! Properties that hold for any input. The functions are the entry points of `fuzz/`, and of the
//! tests that run the corpus of `fuzz/`.
//!
//! Each function takes untrusted bytes and panics if a property is violated. The module is compiled
//! only for tests and with the feature `fuzzing`, so a release does not contain it.

use std::collections::BTreeMap;

use flatcap_stream::{ChecksumKind, SliceFramer};

use super::{
    Block, BlockDecoder, BlockEncoder, BlockError, BlockFeatures, Codec, ColumnSelection, CompressionOptions,
    FieldRef, GroupRows, Layout, SourceCompression, ValueRange, ValueType,
};
use crate::schema::envelope::{ENVELOPE_BYTES, HEADER_AT, PAYLOAD_LENGTH_AT, PREFIX, split};

/// Maximum number of bytes that are copied out of an untrusted block. A limit is needed because a
/// block of a hundred bytes may claim to contain 128 MiB.
const COPIED_BYTES_MAX: usize = 1 << 20;
/// Every codec at its fastest level.
pub const CODECS: [Codec; 5] = [Codec::None, Codec::Lz4, Codec::Snappy, Codec::Zstd(1), Codec::Brotli(1)];

/// Decodes any bytes as the payload of a Block. Checks that all interfaces return an error, or that
/// all interfaces return the same frames.
///
/// # Panics
/// Panics if a property is violated.
pub fn decode(payload: &[u8]) {
    let mut decoder = BlockDecoder::default();
    let place = FieldRef { at: 24, bytes: 8, kind: ValueType::Unsigned };
    let within = ValueRange { field: place, lowest: 1, highest: u64::MAX - 1 };
    for source in [0, 1] {
        if let Ok(rows) = scanned(&mut decoder, payload, source, &[place], Some(within)) {
            let all = scanned(&mut decoder, payload, source, &[place], None);
            assert!(all.is_err() || all.is_ok_and(|all| rows.len() <= all.len()), "bounds only remove rows");
        }
    }
    let opened = decoder.open(payload, &ColumnSelection::ALL);
    let next = decoder.next_from(payload, 0, 1);
    let sizes = decoder.sizes(payload);
    let Ok(block) = opened else { return };
    let raw_bytes: u64 = sizes.iter().flatten().map(|size| size.raw_bytes).sum();
    assert!(sizes.is_ok() && raw_bytes <= block.raw_bytes() as u64, "the sources have at most the raw bytes");
    assert!(next.is_ok(), "an opened block can be searched");
    block.next_from(0, 1);
    let mut whole = vec![0; block.raw_bytes().min(COPIED_BYTES_MAX)];
    assert_eq!(block.copy(0, &mut whole), whole.len());
    let (from, to) = (whole.len() / 3, whole.len() / 3 * 2);
    compare(&block, &whole, from, to);
    // The output can be encoded again, unless it contains a frame that writers never make.
    if whole.len() == block.raw_bytes()
        && let Ok(again) = BlockEncoder::new(SourceCompression::default()).encode(
            &whole,
            block.raw_offset(),
            block.checksum(),
        )
    {
        let block = decoder.open(again, &ColumnSelection::ALL).expect("an encoded block decodes");
        compare(&block, &whole, 0, whole.len());
    }
}

/// Derives frames and options from the input, and checks that the frames round-trip byte for byte.
///
/// # Panics
/// Panics if a property is violated.
pub fn encode(data: &[u8]) {
    let Some((&[way, kind], data)) = data.split_first_chunk::<2>() else { return };
    let kinds = ChecksumKind::ALL;
    let checksum = kinds.get(usize::from(kind) % kinds.len()).copied().unwrap_or(ChecksumKind::None);
    round_trip(&frames(data, checksum), checksum, &compression(way));
}

/// Derives options from a number. Any layout may be combined with any codec. For some numbers, two
/// sources have separate options.
pub fn compression(number: u8) -> SourceCompression {
    let codec = |number: u8| CODECS.get(usize::from(number) % CODECS.len()).copied().unwrap_or(Codec::None);
    let way = |number: u8| CompressionOptions {
        layout: if number & 1 == 0 { Layout::Columnar } else { Layout::Row },
        codec: codec(number / 2),
    };
    let sources = if number >= 128 { vec![(1, way(number / 3)), (2, way(number / 5))] } else { Vec::new() };
    SourceCompression { general: way(number), sources }
}

/// Encodes and decodes frames, and compares the results. Compares all bytes and some ranges of
/// bytes with the frames. Also compares the values that scans return with the values in the frames.
///
/// # Panics
/// Panics if a property is violated.
pub fn round_trip(frames: &[u8], checksum: ChecksumKind, compression: &SourceCompression) {
    let mut encoder = BlockEncoder::new(compression.clone());
    if frames.is_empty() {
        assert!(encoder.encode(frames, 0, checksum).is_err());
        return;
    }
    let Ok(payload) = encoder.encode(frames, 77, checksum).map(<[u8]>::to_vec) else {
        assert!(frames.windows(4).any(|bytes| bytes == b"FCBK"), "whole frames can be encoded");
        return;
    };
    let again = encoder.encode(frames, 77, checksum).expect("the same frames as before");
    assert_eq!(again, payload, "the same frames give the same block");
    assert!(encoder.sizes().iter().map(|size| size.stored_bytes).sum::<u64>() <= payload.len() as u64);
    let mut decoder = BlockDecoder::default();
    assert_eq!(decoder.sizes(&payload).as_deref(), Ok(encoder.sizes()), "sizes follow from the block alone");
    let block = decoder.open(&payload, &ColumnSelection::ALL).expect("an encoded block decodes");
    assert_eq!((block.raw_offset(), block.raw_bytes(), block.checksum()), (77, frames.len(), checksum));
    compare(&block, frames, 0, frames.len());
    for part in [1, 3, 64, 1000] {
        compare(&block, frames, frames.len() / part, frames.len() / part + frames.len() / 7 + part);
    }
    check_statements(frames, checksum, &payload, &encoder);
    check_seeks(frames, checksum, &block, &payload);
    decoder.reuse(block);
    let block = decoder.open(&payload, &ColumnSelection::ALL).expect("an encoded block decodes");
    compare(&block, frames, 0, frames.len());
    let mono = FieldRef { at: 24, bytes: 8, kind: ValueType::Unsigned };
    let body = |at, bytes, kind| FieldRef { at, bytes, kind };
    let odd = [
        body(69, 4, ValueType::Signed),
        mono,
        body(64, 8, ValueType::Float),
        body(71, 1, ValueType::Signed),
        body(77, 8, ValueType::Unsigned),
        body(90, 5, ValueType::Signed),
        body(109, 8, ValueType::Float),
    ];
    for source in [0, 1, 3] {
        let (lowest, highest) = (1_u64 << 8, 1 << 40);
        let places = [mono, body(72, 4, ValueType::Float), body(64, 4, ValueType::Signed)];
        for place in places.into_iter().chain(odd) {
            let within = ValueRange { field: place, lowest, highest };
            for within in [None, Some(within)] {
                let seen = scanned(&mut decoder, &payload, source, &odd, within);
                let seen = seen.expect("the groups of an encoded block can be read");
                assert_eq!(seen, expected_scan(frames, checksum, source, &odd, within), "{within:?}");
            }
        }
    }
}

/// Checks that a seek skips the same frames in an opened block and in a block of which only bounds
/// and wall times are read.
fn check_seeks(frames: &[u8], checksum: ChecksumKind, block: &Block, payload: &[u8]) {
    let mut times = vec![0];
    each_payload(frames, checksum, |payload| times.extend(split(payload).map(|(at, _)| at.wall_ns())));
    let lowest = times.iter().min().copied().unwrap_or_default();
    let highest = times.iter().max().copied().unwrap_or_default();
    let some = times.len() / 2;
    let mut decoder = BlockDecoder::default();
    // A seek also starts at the end of a frame in the middle of the block.
    let mut ends = vec![0];
    let header_bytes = checksum.frame_bytes(0);
    each_payload(frames, checksum, |payload| {
        ends.push(ends.last().copied().unwrap_or_default() + header_bytes + payload.len());
    });
    let middle = ends.get(ends.len() / 2).copied().unwrap_or_default();
    for wall_ns in times.drain(some..).take(3).chain([lowest, highest, highest.saturating_add(1), i64::MAX]) {
        for from in [0, middle] {
            let next = decoder.next_from(payload, from, wall_ns);
            assert_eq!(next, Ok(block.next_from(from, wall_ns)), "{from}: {wall_ns}");
        }
    }
}

/// Checks the statements of a block about its contents, that is, the bounds, the features, and the
/// bytes of each source.
fn check_statements(frames: &[u8], checksum: ChecksumKind, block: &[u8], encoder: &BlockEncoder) {
    let mut decoder = BlockDecoder::default();
    let opened = decoder.open(block, &ColumnSelection::ALL);
    assert_eq!(opened.map(|block| block.wrong_bounds()), Ok(None), "bounds are those of the values");
    // The block needs exactly these features, so a decoder that lacks one of them must refuse the
    // block.
    let needed = encoder.features();
    for missing in [BlockFeatures::NONE, BlockFeatures::ROWS, BlockFeatures::COLUMNS, BlockFeatures::ALL] {
        decoder.set_announced(BlockFeatures::from_bits(needed.bits() & !missing.bits()));
        let is_complete = needed.bits() & missing.bits() == 0;
        assert_eq!(decoder.open(block, &ColumnSelection::ALL).is_ok(), is_complete, "{needed:?} {missing:?}");
    }
    let mut expected = BTreeMap::<u16, u64>::new();
    each_payload(frames, checksum, |payload| {
        if let Some(source) = super::layout::grouping::source_of(payload) {
            *expected.entry(source).or_default() += checksum.frame_bytes(payload.len()) as u64;
        }
    });
    let sizes: BTreeMap<u16, u64> =
        encoder.sizes().iter().map(|size| (size.source, size.raw_bytes)).collect();
    assert_eq!(sizes, expected, "each source has its frames");
}

/// Checks a range of a block against the frames.
fn compare(block: &Block, frames: &[u8], from: usize, to: usize) {
    let mut part = vec![0xA5; to.saturating_sub(from)];
    let length = block.copy(from, &mut part);
    let expected = frames.get(from..to.min(frames.len())).unwrap_or_default();
    if to <= frames.len() {
        assert_eq!(length, expected.len());
    }
    assert!(part.starts_with(expected), "bytes {from} to {to} of {}", frames.len());
}

/// Returns the values of some fields in the frames of a source, in the order of the frames. Reads
/// the values group by group, as a scan does. Loads only the columns of these fields. Loads no
/// columns if the bounds exclude all rows. Frames that are too short for a field are left out.
pub(super) fn scanned(
    decoder: &mut BlockDecoder,
    payload: &[u8],
    source: u16,
    fields: &[FieldRef],
    within: Option<ValueRange>,
) -> Result<Vec<u64>, BlockError> {
    let mut groups = decoder.groups(payload)?;
    let needed: Vec<FieldRef> = fields.iter().copied().chain(within.map(|within| within.field)).collect();
    let fits = |bytes: usize| needed.iter().all(|field| field.range().end <= bytes);
    let mut opened = Vec::new();
    for number in 0..groups.count() {
        let is_other = groups.source(number).is_some_and(|own| own != source);
        let mut rows = if is_other { GroupRows::Other } else { groups.open(number)? };
        if let GroupRows::Matrix(matrix) = &mut rows {
            let is_out = within.is_some_and(|within| matrix.excludes(&within));
            if is_out || !fits(matrix.first().len()) {
                rows = GroupRows::Other;
            } else {
                groups.load(matrix, &needed)?;
            }
        }
        opened.push((rows, 0));
    }
    let mut values = Vec::new();
    for group in groups.order()? {
        let Some((rows, next)) = opened.get_mut(usize::from(group)) else { continue };
        let row = *next;
        *next += 1;
        let read: Vec<u64> = match rows {
            GroupRows::Matrix(matrix) => {
                needed.iter().flat_map(|field| matrix.values(*field, row..row + 1).to_vec()).collect()
            }
            GroupRows::Payloads(rows) => {
                let payload = rows.payload(row);
                if super::layout::grouping::source_of(payload) != Some(source) || !fits(payload.len()) {
                    continue;
                }
                needed.iter().map(|field| super::layout::directory::value_at(payload, *field)).collect()
            }
            GroupRows::Other => continue,
        };
        let tested = read.last().copied().unwrap_or_default();
        if within.is_none_or(|within| within.contains(tested)) {
            values.extend(read.into_iter().take(fields.len()));
        }
    }
    Ok(values)
}

/// Returns the values that [`scanned`] must return. They are read directly from the frames.
fn expected_scan(
    frames: &[u8],
    checksum: ChecksumKind,
    source: u16,
    places: &[FieldRef],
    within: Option<ValueRange>,
) -> Vec<u64> {
    let mut values = Vec::new();
    let value = |payload: &[u8], place: FieldRef| {
        let bytes = payload.get(place.at as usize..)?.get(..usize::from(place.bytes))?;
        Some(bytes.iter().rev().fold(0_u64, |value, byte| value << 8 | u64::from(*byte)))
    };
    each_payload(frames, checksum, |payload| {
        if super::layout::grouping::source_of(payload) != Some(source) {
            return;
        }
        let own: Option<Vec<u64>> = places.iter().map(|place| value(payload, *place)).collect();
        let is_within = within.is_none_or(|within| {
            value(payload, within.field).is_some_and(|bits| {
                let key = |bits| within.field.kind.key(bits, within.field.bytes);
                (key(within.lowest)..=key(within.highest)).contains(&key(bits))
            })
        });
        if let Some(own) = own.filter(|_| is_within) {
            values.extend(own);
        }
    });
    values
}

/// Calls `each` with every frame's payload.
fn each_payload(frames: &[u8], checksum: ChecksumKind, mut each: impl FnMut(&[u8])) {
    let header_bytes = checksum.frame_bytes(0);
    let mut at = 0;
    while let Some(length) = frames.get(at..).and_then(|rest| rest.first_chunk::<4>()) {
        let end = at + header_bytes + u32::from_le_bytes(*length) as usize;
        let frame = frames.get(at..end).unwrap_or_default();
        at = end;
        each(frame.get(header_bytes..).unwrap_or_default());
    }
}

/// Generates frames from input in a small language. Four bytes of the input are one step. A step
/// makes one of four things: a copy of the source's last frame with some changed bytes, a frame of
/// another length, a frame without a source, or many frames.
///
/// # Panics
/// The payloads are short, so framing does not fail, and this function never panics.
pub fn frames(data: &[u8], checksum: ChecksumKind) -> Vec<u8> {
    let mut out = Vec::new();
    let mut bodies: [Vec<u8>; 4] = Default::default();
    for (number, step) in data.as_chunks::<4>().0.iter().enumerate().take(512) {
        let [what, how, place, change] = *step;
        let source = usize::from(what & 3);
        let Some(body) = bodies.get_mut(source) else { continue };
        if body.is_empty() || what & 0x1C == 0x1C {
            body.resize(usize::from(how), change);
        }
        for repeat in 0..if what & 0x20 == 0 { 1 } else { 1 + usize::from(how) / 4 } {
            let count = body.len().max(1);
            let byte = (usize::from(place) + repeat * usize::from(what >> 6)) % count;
            if let Some(byte) = body.get_mut(byte) {
                *byte = byte.wrapping_add(change);
            }
            if let Some(word) = body.get_mut(8..).and_then(|rest| rest.first_chunk_mut()) {
                let next = u64::from_le_bytes(*word).wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(1);
                *word = next.to_le_bytes();
            }
            if change >= 0xC0 {
                fill_with_text(body, repeat + number);
            } else if change >= 0x80
                && let Some(word) = body.get_mut(40..).and_then(|rest| rest.first_chunk_mut())
            {
                *word =
                    (u64::from(what >> 6).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (repeat % 7)).to_le_bytes();
            }
            let payload = if how == 255 { body.clone() } else { telemetry(source, number + repeat, body) };
            let start = out.len();
            out.resize(start + checksum.frame_bytes(payload.len()), 0);
            let frame_space = out.get_mut(start..).unwrap_or_default();
            checksum.frame_into(frame_space, &payload).expect("a short payload");
        }
    }
    out
}

/// Fills a body with words and noise, starting at its 17th byte.
fn fill_with_text(body: &mut [u8], number: usize) {
    const WORDS: [&[u8]; 8] = [
        b"segment ",
        b"of ",
        b"flushed in ",
        b"ms ",
        b"worker ",
        b"lease ",
        b"accepted from ",
        b"127.0.0.1:",
    ];
    let mut state = number as u64;
    let mut rest = body.get_mut(16..).unwrap_or_default();
    while !rest.is_empty() {
        state = (state ^ state >> 31).wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(1);
        let noise = (state >> 20).to_le_bytes();
        let word = WORDS.get((state >> 60) as usize).copied().unwrap_or(noise.get(..3).unwrap_or_default());
        let (to, after) = rest.split_at_mut(word.len().min(rest.len()));
        to.iter_mut().zip(word).for_each(|(to, from)| *to = *from);
        rest = after;
    }
}

/// Returns the payload of a telemetry frame.
fn telemetry(source: usize, number: usize, body: &[u8]) -> Vec<u8> {
    let mut payload = PREFIX.to_vec();
    let number = number as u64;
    let stamps = [1000 * number + number % 3, 77_000 + 1000 * number + number % 3, number];
    for (place, value) in
        payload.get_mut(HEADER_AT..).unwrap_or_default().as_chunks_mut().0.iter_mut().zip(stamps)
    {
        *place = value.to_le_bytes();
    }
    let put = |payload: &mut Vec<u8>, at: usize, bytes: &[u8]| {
        payload.iter_mut().skip(at).zip(bytes).for_each(|(to, from)| *to = *from);
    };
    put(&mut payload, HEADER_AT + 24, &u16::try_from(source).unwrap_or_default().to_le_bytes());
    let length = u32::try_from(body.len()).unwrap_or_default();
    put(&mut payload, PAYLOAD_LENGTH_AT, &length.to_le_bytes());
    payload.resize(ENVELOPE_BYTES, 0);
    payload.extend_from_slice(body);
    payload
}
