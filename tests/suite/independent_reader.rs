//! An independent reader of `[length][checksum][payload]`, as a program in any language could
//! implement it.

use std::path::Path;

use flatbuffers::root;
use flatcap_format::schema::frame::TelemetryFrame;
use flatcap_format::schema::segment::{Attachment, ClockSync, Footer, Gap, Index, SegmentHeader, Trailer};

use crate::rig::Rig;

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

// Proves that every byte of a segment belongs to a frame, that every payload passes its verifier,
// and that the order is header, configuration, content, footer, trailer. Method: a recording of
// this host.
#[test]
fn every_byte_belongs_to_a_verified_frame() {
    let rig = Rig::new();
    rig.record(&["--for", "500ms"]);
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
    // Each sample's payload is 8-byte aligned within its frame's payload, for any source.
    for payload in payloads.iter().filter(|payload| &payload[4..8] == b"FCTF") {
        let inner = root::<TelemetryFrame<'_>>(payload).unwrap().payload().bytes();
        assert_eq!((inner.as_ptr().addr() - payload.as_ptr().addr()) % 8, 0);
    }
}
