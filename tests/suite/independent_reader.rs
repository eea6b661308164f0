//! An independent reader of `[length][checksum][payload]`, as a program in any language could
//! implement it.

use std::path::Path;

use flatbuffers::root;
use flatcap_format::schema::frame::TelemetryFrame;
use flatcap_format::schema::segment::{
    Attachment, Block, BlockLayout, ClockSync, Footer, Gap, Index, SegmentHeader, SourceDescriptor, Trailer,
};

use crate::rig::{Rig, finish};

pub struct Sample<'a> {
    pub source: u16,
    pub seq: u64,
    pub payload: &'a [u8],
}

/// Returns every payload of a file framed with XXH3-64. Fails if a byte belongs to no frame or a
/// checksum is wrong.
pub fn payloads(bytes: &[u8]) -> Vec<&[u8]> {
    let mut payloads = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let length = u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
        let checksum = u64::from_le_bytes(bytes[at + 4..at + 12].try_into().unwrap());
        let payload = &bytes[at + 12..at + 12 + length];
        assert_eq!(xxhash_rust::xxh3::xxh3_64(payload), checksum, "at {at}");
        payloads.push(payload);
        at += 12 + length;
    }
    assert_eq!(at, bytes.len());
    payloads
}

/// Passes the samples of a sealed segment to `take`, in file order.
pub fn samples(path: &Path, mut take: impl FnMut(Sample<'_>)) {
    let bytes = std::fs::read(path).unwrap();
    for payload in payloads(&bytes) {
        if &payload[4..8] == b"FCTF" {
            let frame = root::<TelemetryFrame<'_>>(payload).unwrap();
            let header = frame.header();
            take(Sample { source: header.source(), seq: header.seq(), payload: frame.payload().bytes() });
        }
    }
}

/// A sample as tests/conformance lists it.
pub struct ListedSample {
    pub source: String,
    pub seq: u64,
    pub mono_ns: u64,
    pub wall_ns: i64,
    pub duration_ns: u32,
    pub flags: u16,
    pub payload: Vec<u8>,
}

/// The bits of `incompatible` that this reader knows: blocks of rows.
const KNOWN: u64 = 1;

/// Returns the length of each checksum in a file, by the place of `FCSH` in its first frame.
fn checksum_bytes(bytes: &[u8]) -> usize {
    let is_header = |count: &usize| bytes[4 + count + 4..].starts_with(b"FCSH");
    [8, 4, 2, 0].into_iter().find(is_header).expect("a header")
}

/// Returns the checksum of a payload in this number of bytes.
fn checksum(payload: &[u8], count: usize) -> Vec<u8> {
    match count {
        8 => xxhash_rust::xxh3::xxh3_64(payload).to_le_bytes().to_vec(),
        4 => crc::Crc::<u32>::new(&crc::CRC_32_ISO_HDLC).checksum(payload).to_le_bytes().to_vec(),
        2 => crc::Crc::<u16>::new(&crc::CRC_16_XMODEM).checksum(payload).to_le_bytes().to_vec(),
        _ => Vec::new(),
    }
}

/// Returns the payloads of a file, with any checksum.
fn all_payloads(bytes: &[u8]) -> Vec<&[u8]> {
    let count = checksum_bytes(bytes);
    let (mut payloads, mut rest) = (Vec::new(), bytes);
    while !rest.is_empty() {
        let length = u32::from_le_bytes(rest[..4].try_into().unwrap()) as usize;
        let (frame, after) = rest.split_at(4 + count + length);
        assert_eq!(frame[4..4 + count], checksum(&frame[4 + count..], count));
        payloads.push(&frame[4 + count..]);
        rest = after;
    }
    payloads
}

/// Takes a LEB128 varint.
fn varint(bytes: &mut &[u8]) -> usize {
    let end = bytes.iter().position(|byte| byte & 0x80 == 0).unwrap() + 1;
    let (own, rest) = bytes.split_at(end);
    *bytes = rest;
    own.iter().rev().fold(0, |number, byte| number << 7 | usize::from(byte & 0x7F))
}

/// Decodes a block of rows into whole frames. `first` are those of the segment's first block.
fn frames_of_block(payload: &[u8], first: &[u8]) -> Vec<u8> {
    let block = root::<Block<'_>>(payload).unwrap();
    let mut data = block.data().bytes();
    let mut parts = Vec::new();
    for part in block.parts() {
        let (stored, rest) = data.split_at(part.stored_bytes() as usize);
        data = rest;
        parts.push(match part.codec() {
            0 => stored.to_vec(),
            3 => zstd::bulk::decompress(stored, part.bytes() as usize).unwrap(),
            codec => panic!("codec {codec}"),
        });
        assert_eq!(parts.last().unwrap().len(), part.bytes() as usize);
    }
    // Of each group the payloads that are left, the next one last.
    let mut groups: Vec<Vec<Vec<u8>>> = Vec::new();
    for group in block.groups() {
        let part = |number: usize| parts[group.first_part() as usize + number].as_slice();
        let lengths = part(0);
        let lowest = u32::from_le_bytes(lengths[..4].try_into().unwrap()) as usize;
        let width = usize::from(lengths[4]);
        let mut bytes = match group.layout() {
            BlockLayout::Payloads => part(1).to_vec(),
            BlockLayout::Copies => {
                let (mut list, mut rest, mut out) = (part(1), part(2), Vec::new());
                while !list.is_empty() {
                    let (own, from, length) = (varint(&mut list), varint(&mut list), varint(&mut list));
                    out.extend_from_slice(&rest[..own]);
                    out.extend_from_slice(&first[from..from + length]);
                    rest = &rest[own..];
                }
                [out.as_slice(), rest].concat()
            }
            layout => panic!("{layout:?}"),
        };
        let mut payloads: Vec<Vec<u8>> = (0..group.frames() as usize)
            .map(|number| {
                let above = &lengths[5 + number * width..5 + (number + 1) * width];
                let above = above.iter().rev().fold(0, |length, byte| length << 8 | usize::from(*byte));
                let rest = bytes.split_off(lowest + above);
                std::mem::replace(&mut bytes, rest)
            })
            .collect();
        assert!(bytes.is_empty());
        payloads.reverse();
        groups.push(payloads);
    }
    let count = [0, 2, 4, 8][usize::from(block.checksum().0)];
    let mut frames = Vec::new();
    let order = if groups.len() == 1 { vec![0; block.frames() as usize] } else { parts.swap_remove(0) };
    assert_eq!(order.len(), block.frames() as usize);
    for group in order {
        let payload = groups[usize::from(group)].pop().unwrap();
        frames.extend_from_slice(&u32::try_from(payload.len()).unwrap().to_le_bytes());
        frames.extend(checksum(&payload, count));
        frames.extend(payload);
    }
    assert_eq!(frames.len() as u64, block.raw_bytes());
    frames
}

/// Returns the samples of a file of level 0 or 1 in the order in which a reader lists them. The
/// error is the bits of another file, of the header's copy in the footer.
pub fn all_samples(bytes: &[u8]) -> Result<Vec<ListedSample>, u64> {
    let payloads = all_payloads(bytes);
    let header = root::<SegmentHeader<'_>>(payloads[0]).unwrap();
    let mut raw = bytes.to_vec();
    if header.incompatible() != 0 {
        let footer = root::<Footer<'_>>(payloads[payloads.len() - 2]).unwrap();
        let bits = footer.header().incompatible();
        if bits & !KNOWN != 0 {
            return Err(bits);
        }
        raw.clear();
        let mut first = Vec::new();
        for payload in payloads.iter().filter(|payload| &payload[4..8] == b"FCBK") {
            let frames = frames_of_block(payload, &first);
            if first.is_empty() {
                first.clone_from(&frames);
            }
            raw.extend(frames);
        }
    }
    let payloads = all_payloads(&raw);
    let footer = payloads.iter().find(|payload| &payload[4..8] == b"FCFT");
    let window_ns = match footer {
        Some(footer) => root::<Footer<'_>>(footer).unwrap().reorder_window_ns(),
        None => root::<SegmentHeader<'_>>(payloads[0]).unwrap().reorder_window_ns(),
    };
    let mut names = Vec::new();
    let mut samples = Vec::new();
    for payload in payloads {
        let mut add = |source: SourceDescriptor<'_>| names.push((source.id(), source.name().to_owned()));
        match &payload[4..8] {
            b"FCSH" => root::<SegmentHeader<'_>>(payload).unwrap().sources().iter().for_each(add),
            b"FCSD" => add(root::<SourceDescriptor<'_>>(payload).unwrap()),
            b"FCTF" => {
                let frame = root::<TelemetryFrame<'_>>(payload).unwrap();
                let header = frame.header();
                let name = names.iter().find(|(id, _)| *id == header.source()).unwrap();
                samples.push(ListedSample {
                    source: name.1.clone(),
                    seq: header.seq(),
                    mono_ns: header.mono_ns(),
                    wall_ns: header.wall_ns(),
                    duration_ns: header.duration_ns(),
                    flags: header.flags(),
                    payload: frame.payload().bytes().to_vec(),
                });
            }
            _ => {}
        }
    }
    Ok(in_order(samples, window_ns))
}

/// Orders samples by time: each waits until one has come that is more than the window younger.
fn in_order(samples: Vec<ListedSample>, window_ns: u64) -> Vec<ListedSample> {
    let (mut held, mut ordered): (Vec<ListedSample>, Vec<ListedSample>) = (Vec::new(), Vec::new());
    let mut newest_ns = 0;
    for sample in samples {
        newest_ns = newest_ns.max(sample.mono_ns);
        // After samples of the same time.
        let at = held.partition_point(|other| other.mono_ns <= sample.mono_ns);
        held.insert(at, sample);
        let ready = held.partition_point(|sample| sample.mono_ns + window_ns < newest_ns);
        ordered.extend(held.drain(..ready));
    }
    ordered.extend(held);
    ordered
}

// Proves that every byte of a segment belongs to a frame, that every payload passes its verifier,
// and that the order is header, configuration, content, footer, trailer. Method: a recording of
// this host.
#[test]
fn every_byte_belongs_to_a_verified_frame() {
    let rig = Rig::new();
    let recorder = rig.start(&["record", "--for", "500ms"]);
    let pid = recorder.id();
    assert_eq!(finish(recorder).status, Some(0));
    let bytes = std::fs::read(&rig.segments("bin")[0]).unwrap();
    let payloads = payloads(&bytes);
    let mut order = String::new();
    for payload in &payloads {
        let (verified, letter) = match &payload[4..8] {
            b"FCSH" => (root::<SegmentHeader<'_>>(payload).is_ok(), 'H'),
            b"FCTF" => (root::<TelemetryFrame<'_>>(payload).is_ok(), 't'),
            b"FCAT" => (root::<Attachment<'_>>(payload).is_ok(), 'A'),
            b"FCGP" => (root::<Gap<'_>>(payload).is_ok(), 't'),
            b"FCCS" => (root::<ClockSync<'_>>(payload).is_ok(), 't'),
            b"FCIX" => (root::<Index<'_>>(payload).is_ok(), 't'),
            b"FCFT" => (root::<Footer<'_>>(payload).is_ok(), 'F'),
            b"FCTR" => (root::<Trailer<'_>>(payload).is_ok(), 'T'),
            other => panic!("unknown identifier {other:?}"),
        };
        assert!(verified, "{letter}");
        order.push(letter);
    }
    let content = payloads.len() - 4;
    assert!(content > 100);
    assert_eq!(order, format!("HA{}FT", "t".repeat(content)));
    let attachment = root::<Attachment<'_>>(payloads[1]).unwrap();
    assert_eq!(attachment.name(), "flatcap.toml");
    let kept = std::str::from_utf8(attachment.content().bytes()).unwrap();
    flatcap::config::Config::parse("flatcap.toml", kept).unwrap();

    let trailer = root::<Trailer<'_>>(payloads.last().unwrap()).unwrap();
    let footer_at = trailer.footer_offset() as usize;
    let footer =
        root::<Footer<'_>>(&bytes[footer_at + 12..footer_at + 12 + trailer.footer_length() as usize])
            .unwrap();
    assert_eq!(footer.bytes(), trailer.footer_offset());
    assert_eq!(footer.frames(), payloads.len() as u64 - 2);
    let header = root::<SegmentHeader<'_>>(payloads[0]).unwrap();
    assert_eq!(header.run_id(), footer.header().run_id());
    // This machine's /proc is also the recorder's.
    assert_eq!(header.recorder().map(|recorder| recorder.pid()), Some(pid));
    // Each sample's payload is 8-byte aligned within its frame's payload, for any source.
    for payload in payloads.iter().filter(|payload| &payload[4..8] == b"FCTF") {
        let inner = root::<TelemetryFrame<'_>>(payload).unwrap().payload().bytes();
        assert_eq!((inner.as_ptr().addr() - payload.as_ptr().addr()) % 8, 0);
    }
}
