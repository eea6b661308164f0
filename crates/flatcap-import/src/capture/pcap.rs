//! Parses the format pcap, in which a file header is followed by a sequence of packets
//! (draft-ietf-opsawg-pcap).

use flatcap_os::clock::NS_PER_S;
use pcap_parser::PcapHeader;

use super::parse_step::{PacketLocation, ParseStep};

/// Length of the file header, in bytes.
const HEADER_BYTES: usize = 24;
/// Length of the header before each packet, in bytes.
const RECORD_HEADER_BYTES: usize = 16;
/// Maximum packet length in bytes, which is libpcap's limit (`MAXIMUM_SNAPLEN`). A longer packet is
/// treated as damage.
pub(super) const PACKET_BYTES_MAX: u32 = 262_144;
/// Maximum original length of a truncated packet, in bytes. The limit exceeds the length of the
/// longest packet that the kernel passes to a network card for segmentation.
const ORIGINAL_BYTES_MAX: u32 = 16 << 20;

/// The properties of a pcap file that determine how its packets are parsed.
#[derive(Debug)]
pub(super) struct Pcap {
    is_big_endian: bool,
    units_per_second: u32,
    link: u32,
}

impl Pcap {
    /// Parses a file header. Also returns the length of the header.
    pub(super) fn parse_header(bytes: &[u8]) -> Option<(Self, usize)> {
        let (_, header) = pcap_parser::parse_pcap_header(bytes).ok()?;
        // The modified pcap format of a Linux kernel of the 1990s has record headers of a different
        // length.
        (!header.is_modified_format()).then(|| (Self::new(&header), HEADER_BYTES))
    }

    fn new(header: &PcapHeader) -> Self {
        Self {
            is_big_endian: header.is_bigendian(),
            units_per_second: if header.is_nanosecond_precision() { 1_000_000_000 } else { 1_000_000 },
            // The upper 16 bits may contain the length of the frame check sequence of the link.
            link: header.network.0.cast_unsigned() & 0xFFFF,
        }
    }

    /// Parses the record at the start of these bytes.
    #[inline]
    pub(super) fn parse_record(&self, bytes: &[u8]) -> ParseStep {
        let Some(record) = self.record(bytes) else { return ParseStep::Need(RECORD_HEADER_BYTES) };
        if let Some(what) = self.find_error(&record) {
            return ParseStep::Damaged(what);
        }
        let end = RECORD_HEADER_BYTES + record.captured as usize;
        if bytes.len() < end {
            return ParseStep::Need(end);
        }
        let ns_per_unit = NS_PER_S / u64::from(self.units_per_second);
        let wall_ns = u64::from(record.seconds) * NS_PER_S + u64::from(record.fraction) * ns_per_unit;
        ParseStep::Packet(PacketLocation {
            wall_ns: wall_ns.cast_signed(),
            link: self.link,
            range: RECORD_HEADER_BYTES..end,
            end,
        })
    }

    /// Returns whether a plausible packet starts here and is followed by another packet or the end
    /// of the file.
    pub(super) fn is_plausible(&self, bytes: &[u8], is_end: bool) -> bool {
        let plausible_end = |bytes: &[u8]| {
            let record = self.record(bytes).filter(|record| self.find_error(record).is_none())?;
            Some(RECORD_HEADER_BYTES + record.captured as usize)
        };
        let Some(end) = plausible_end(bytes) else { return false };
        match bytes.get(end..) {
            Some([]) => is_end,
            Some(rest) => plausible_end(rest).is_some(),
            None => false,
        }
    }

    #[inline]
    fn record(&self, bytes: &[u8]) -> Option<PcapRecord> {
        // The function of pcap-parser is not used, because it returns the lengths only if the whole
        // packet is present. The lengths must be checked before the whole packet is present.
        let (words, _) = bytes.get(..RECORD_HEADER_BYTES)?.as_chunks::<4>();
        let &[seconds, fraction, captured, original] = words else { return None };
        let number = |word| {
            let number = u32::from_le_bytes(word);
            if self.is_big_endian { number.swap_bytes() } else { number }
        };
        Some(PcapRecord {
            seconds: number(seconds),
            fraction: number(fraction),
            captured: number(captured),
            original: number(original),
        })
    }

    #[inline]
    fn find_error(&self, record: &PcapRecord) -> Option<&'static str> {
        if record.captured > PACKET_BYTES_MAX {
            Some("a packet's length exceeds 262,144 bytes")
        } else if record.captured == 0 || record.captured > record.original {
            Some("a packet's captured length is 0 or exceeds its original length")
        } else if record.original > ORIGINAL_BYTES_MAX {
            Some("a packet's original length exceeds 16 MiB")
        } else if record.fraction >= self.units_per_second {
            Some("the fraction of a packet's time is one second or more")
        } else {
            None
        }
    }
}

struct PcapRecord {
    seconds: u32,
    fraction: u32,
    captured: u32, // bytes
    original: u32, // bytes
}
