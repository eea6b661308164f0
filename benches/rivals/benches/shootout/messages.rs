//! The messages given to all formats: trades and price level updates of IEX DEEP 1.0, from a pcap
//! capture.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use flate2::read::MultiGzDecoder;

use super::iex::{self, Feed, File as Form, Shape, Wrapping};

/// One message, with every field that a format has to carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message {
    /// Nanoseconds since 1970-01-01 UTC.
    pub timestamp: i64,
    pub sequence: u64,
    /// ASCII, padded with spaces.
    pub symbol: [u8; 8],
    /// In 1/10000 US dollar.
    pub price: i64,
    pub size: u32,
    pub flags: u8,
    pub kind: Kind,
}

/// The kind of a message, with its specific field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    LevelUpdate(Side),
    Trade { id: i64 },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    Buy,
    Sell,
}

// Header sizes of a little-endian pcap file, Ethernet, IPv4 without options, UDP, and IEX-TP 1.25.
const FILE_HEADER_BYTES: usize = 24;
const PACKET_HEADER_BYTES: usize = 16;
const NETWORK_BYTES: usize = 14 + 20 + 8;
const SEGMENT_HEADER_BYTES: usize = 40;

/// The trades and price level updates of a capture, up to its end or a truncated record.
pub fn of_capture(capture: &[u8]) -> Vec<Message> {
    let mut messages = Vec::new();
    let mut rest = capture.get(FILE_HEADER_BYTES..).unwrap_or_default();
    while let Some((header, behind)) = rest.split_at_checked(PACKET_HEADER_BYTES) {
        let captured = u32::from_le_bytes(field(header, 8)) as usize;
        let Some((packet, behind)) = behind.split_at_checked(captured) else { break };
        rest = behind;
        if let Some(segment) = packet.get(NETWORK_BYTES..)
            && segment.len() >= SEGMENT_HEADER_BYTES
        {
            of_segment(segment, &mut messages);
        }
    }
    messages
}

fn of_segment(segment: &[u8], messages: &mut Vec<Message>) {
    let count = u16::from_le_bytes(field(segment, 14));
    let first = u64::from_le_bytes(field(segment, 24));
    let mut rest = &segment[SEGMENT_HEADER_BYTES..];
    for sequence in (first..).take(count.into()) {
        let (bytes, behind) = rest[2..].split_at(u16::from_le_bytes(field(rest, 0)).into());
        rest = behind;
        let kind = match bytes[0] {
            b'8' => Kind::LevelUpdate(Side::Buy),
            b'5' => Kind::LevelUpdate(Side::Sell),
            b'T' => Kind::Trade { id: i64::from_le_bytes(field(bytes, 30)) },
            _ => continue,
        };
        messages.push(Message {
            timestamp: i64::from_le_bytes(field(bytes, 2)),
            sequence,
            symbol: field(bytes, 10),
            price: i64::from_le_bytes(field(bytes, 22)),
            size: u32::from_le_bytes(field(bytes, 18)),
            flags: bytes[1],
            kind,
        });
    }
}

fn field<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes[at..at + N].try_into().unwrap()
}

/// The capture of real data, decompressed; if it is missing, prints one line and returns none.
pub fn real_capture() -> Option<Vec<u8>> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data");
    let folder = std::env::var_os("FLATCAP_SHARED_DATA").map_or(beside, PathBuf::from);
    let path = folder.join("iex/DEEP10.pcap.gz");
    let Ok(file) = File::open(&path) else {
        println!("skipped, not found: {}", path.display());
        return None;
    };
    let mut capture = Vec::new();
    MultiGzDecoder::new(file).read_to_end(&mut capture).unwrap();
    Some(capture)
}

/// A generated capture of the real one's shape, available everywhere: about as many messages of the
/// two kinds, but of many more symbols.
pub fn made_up_capture() -> Vec<u8> {
    let packets = iex::packets(&Shape::real(Feed::Deep, 392_000, 1));
    iex::capture(&packets, Form::Pcap, Wrapping::default())
}
