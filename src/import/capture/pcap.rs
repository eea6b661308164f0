//! pcap: a header, then packets one behind the other (draft-ietf-opsawg-pcap).

use pcap_parser::PcapHeader;

use super::step::{Place, Step};
use crate::os::clock::NS_PER_S;

/// Bytes of the file's header.
const HEADER_BYTES: usize = 24;
/// Bytes in front of each packet.
const RECORD_HEADER_BYTES: usize = 16;
/// Longest packet: what libpcap takes at most (`MAXIMUM_SNAPLEN`). A longer one is damage.
pub(super) const PACKET_BYTES_MAX: u32 = 262_144;
/// Most that a packet was before it was cut: what the kernel hands over of segments that the card will cut.
const ORIGINAL_BYTES_MAX: u32 = 16 << 20;

/// How the packets of a file are written.
#[derive(Debug)]
pub(super) struct Pcap {
    is_big_endian: bool,
    units_per_second: u32,
    link: u32,
}

impl Pcap {
    /// From the first bytes of a file, if they are a header; it is passed then.
    pub(super) fn begin(bytes: &[u8]) -> Option<(Self, usize)> {
        let (_, header) = pcap_parser::parse_pcap_header(bytes).ok()?;
        // The modified format of a kernel of the nineties has records of another length.
        (!header.is_modified_format()).then(|| (Self::new(&header), HEADER_BYTES))
    }

    fn new(header: &PcapHeader) -> Self {
        Self {
            is_big_endian: header.is_bigendian(),
            units_per_second: if header.is_nanosecond_precision() { 1_000_000_000 } else { 1_000_000 },
            // The upper half may say how long the checksum of the link is.
            link: header.network.0.cast_unsigned() & 0xFFFF,
        }
    }

    /// What stands at the begin of these bytes.
    #[inline]
    pub(super) fn step(&self, bytes: &[u8]) -> Step {
        let Some(record) = self.record(bytes) else { return Step::Need(RECORD_HEADER_BYTES) };
        if let Some(what) = self.wrong(&record) {
            return Step::Damaged(what);
        }
        let end = RECORD_HEADER_BYTES + record.captured as usize;
        if bytes.len() < end {
            return Step::Need(end);
        }
        let ns_per_unit = NS_PER_S / u64::from(self.units_per_second);
        let wall_ns = u64::from(record.seconds) * NS_PER_S + u64::from(record.fraction) * ns_per_unit;
        Step::Packet(Place {
            wall_ns: wall_ns.cast_signed(),
            link: self.link,
            at: RECORD_HEADER_BYTES..end,
            end,
            is_cut: record.captured < record.original,
        })
    }

    /// Whether a packet may begin here, and another, or the end, behind it.
    pub(super) fn is_likely(&self, bytes: &[u8], is_end: bool) -> bool {
        let behind = |bytes: &[u8]| {
            let record = self.record(bytes).filter(|record| self.wrong(record).is_none())?;
            Some(RECORD_HEADER_BYTES + record.captured as usize)
        };
        let Some(end) = behind(bytes) else { return false };
        match bytes.get(end..) {
            Some([]) => is_end,
            Some(rest) => behind(rest).is_some(),
            None => false,
        }
    }

    #[inline]
    fn record(&self, bytes: &[u8]) -> Option<Record> {
        // Not by the library's function: it gives no lengths before the whole packet is there, and they are to be judged earlier.
        let (words, _) = bytes.get(..RECORD_HEADER_BYTES)?.as_chunks::<4>();
        let &[seconds, fraction, captured, original] = words else { return None };
        let number = |word| {
            let number = u32::from_le_bytes(word);
            if self.is_big_endian { number.swap_bytes() } else { number }
        };
        Some(Record {
            seconds: number(seconds),
            fraction: number(fraction),
            captured: number(captured),
            original: number(original),
        })
    }

    #[inline]
    fn wrong(&self, record: &Record) -> Option<&'static str> {
        if record.captured > PACKET_BYTES_MAX {
            Some("a packet is said to be longer than 262,144 bytes")
        } else if record.captured == 0 || record.captured > record.original {
            Some("a packet is said to be longer than it was, or to have no bytes")
        } else if record.original > ORIGINAL_BYTES_MAX {
            Some("a packet is said to have been longer than 16 MiB")
        } else if record.fraction >= self.units_per_second {
            Some("a packet's time has a second's fraction of a second or more")
        } else {
            None
        }
    }
}

struct Record {
    seconds: u32,
    fraction: u32,
    captured: u32, // bytes
    original: u32, // bytes
}
