//! Parses the format pcapng. It consists of blocks, some of which contain packets
//! (draft-ietf-opsawg-pcapng).

use flatcap_os::clock::NS_PER_S;
use pcap_parser::pcapng::{
    EnhancedPacketBlock, InterfaceDescriptionBlock, SimplePacketBlock, parse_enhancedpacketblock_be,
    parse_enhancedpacketblock_le, parse_interfacedescriptionblock_be, parse_interfacedescriptionblock_le,
    parse_simplepacketblock_be, parse_simplepacketblock_le,
};
use pcap_parser::traits::PcapNGPacketBlock;
use pcap_parser::{IDB_MAGIC, OptionCode};

use super::parse_step::{PacketLocation, ParseStep, SEARCH_BYTES};

/// Section Header Block, whose type has the same bytes in both byte orders.
const SECTION: u32 = 0x0A0D_0D0A;
/// Magic number of a Section Header Block, in the byte order of the section.
const BYTE_ORDER: [u8; 4] = [0x4D, 0x3C, 0x2B, 0x1A];
/// The obsolete Packet Block, which programs must not write any longer.
const OBSOLETE_PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
const ENHANCED_PACKET: u32 = 6;
/// Custom Block. All other block types in use fit into 16 bits. Block types for local use also have
/// the most significant of their 32 bits set.
const CUSTOM: u32 = 0x4000_0BAD;
/// Maximum length of a block that contains a packet or describes an interface, in bytes. A longer
/// block is treated as damage.
const BLOCK_BYTES_MAX: u32 = 300 << 10;
/// Maximum length of a block that is skipped, in bytes. A longer block is treated as damage.
const OTHER_BYTES_MAX: u32 = 64 << 20;
/// Length of a block without a body, in bytes.
const EMPTY_BYTES: u32 = 12;
/// Maximum number of interfaces in a section. Packets of interfaces beyond this limit cannot be
/// read.
const INTERFACES_MAX: usize = 4096;

const _: () = assert!(BLOCK_BYTES_MAX as usize + 8 <= SEARCH_BYTES);

/// The current section.
#[derive(Debug, Default)]
pub(super) struct Pcapng {
    is_big_endian: bool,
    interfaces: Vec<CaptureInterface>, // <= INTERFACES_MAX
}

#[derive(Debug)]
struct CaptureInterface {
    link: u32,
    units_per_second: u64, // > 0
    offset_s: i64,
}

impl Pcapng {
    /// Returns whether a file with these first bytes is a pcapng file.
    pub(super) fn is_pcapng(bytes: &[u8]) -> bool {
        bytes.starts_with(&SECTION.to_le_bytes()) && Self::is_section_big_endian(bytes).is_some()
    }

    /// Returns whether the section that starts here is big-endian.
    fn is_section_big_endian(bytes: &[u8]) -> Option<bool> {
        let order: [u8; 4] = *bytes.get(8..)?.first_chunk()?;
        match order {
            BYTE_ORDER => Some(false),
            _ => (u32::from_le_bytes(order).swap_bytes() == u32::from_le_bytes(BYTE_ORDER)).then_some(true),
        }
    }

    /// Parses the block at the start of these bytes.
    pub(super) fn parse_block(&mut self, bytes: &[u8]) -> ParseStep {
        let Some((kind, length)) = self.block_header(bytes) else {
            return ParseStep::Need(EMPTY_BYTES as usize);
        };
        if length < EMPTY_BYTES || !length.is_multiple_of(4) {
            return ParseStep::Damaged("a block's length is less than 12 or not a multiple of 4");
        }
        let is_read = matches!(kind, SECTION | IDB_MAGIC | OBSOLETE_PACKET | SIMPLE_PACKET | ENHANCED_PACKET);
        if length > if is_read { BLOCK_BYTES_MAX } else { OTHER_BYTES_MAX } {
            return ParseStep::Damaged("a block's length exceeds 300 KiB, or 64 MiB for one without packets");
        }
        if !is_read && (kind & 0x7FFF_0000 != 0 && kind != CUSTOM || kind == 0) {
            // No other block types are in use. If blocks of unknown types were skipped, bytes that
            // do not belong to the capture could be skipped unnoticed.
            return ParseStep::Damaged("a block of no known type");
        }
        if !is_read {
            return ParseStep::Skip(length.into());
        }
        let end = length as usize;
        let Some(block) = bytes.get(..end) else { return ParseStep::Need(end) };
        // The two lengths of the block are compared as bytes. Both have the same byte order, which
        // may differ from the byte order of the previous section.
        if block.get(end - 4..) != block.get(4..8) {
            return ParseStep::Damaged("a block's two lengths differ");
        }
        match kind {
            SECTION => match Self::is_section_big_endian(block) {
                Some(is_big_endian) => {
                    *self = Self { is_big_endian, interfaces: Vec::new() };
                    ParseStep::Skip(length.into())
                }
                None => ParseStep::Damaged("a section without its byte order"),
            },
            IDB_MAGIC => self.parse_interface(block),
            ENHANCED_PACKET => self.parse_enhanced_packet(block),
            OBSOLETE_PACKET => ParseStep::Unreadable {
                end,
                what: "a packet in the obsolete Packet Block; convert the capture with editcap -F pcapng",
            },
            _ => self.parse_simple_packet(block),
        }
    }

    /// Returns whether a plausible block starts here. A plausible block has a known type, has the
    /// same length at its start and its end, and is completely within these bytes.
    pub(super) fn is_plausible(&self, bytes: &[u8]) -> bool {
        let Some((kind, length)) = self.block_header(bytes) else { return false };
        if !matches!(kind, SECTION | IDB_MAGIC | SIMPLE_PACKET | ENHANCED_PACKET)
            || !(EMPTY_BYTES + 4..=BLOCK_BYTES_MAX).contains(&length)
            || !length.is_multiple_of(4)
        {
            return false;
        }
        let end = length as usize;
        bytes.get(end - 4..end).is_some_and(|last| Some(last) == bytes.get(4..8))
    }

    /// Returns type and length of the block.
    fn block_header(&self, bytes: &[u8]) -> Option<(u32, u32)> {
        let kind = self.read_u32(bytes)?;
        if kind != SECTION {
            return Some((kind, self.read_u32(bytes.get(4..)?)?));
        }
        // The length of a section header is in the byte order of its own section.
        let length = u32::from_le_bytes(*bytes.get(4..)?.first_chunk()?);
        bytes.get(..EMPTY_BYTES as usize)?;
        let is_big_endian = Self::is_section_big_endian(bytes).unwrap_or(self.is_big_endian);
        Some((kind, if is_big_endian { length.swap_bytes() } else { length }))
    }

    fn read_u32(&self, bytes: &[u8]) -> Option<u32> {
        let number = u32::from_le_bytes(*bytes.first_chunk()?);
        Some(if self.is_big_endian { number.swap_bytes() } else { number })
    }

    fn parse_interface(&mut self, block: &[u8]) -> ParseStep {
        let end = block.len();
        let parse = if self.is_big_endian {
            parse_interfacedescriptionblock_be
        } else {
            parse_interfacedescriptionblock_le
        };
        let Ok((_, description)) = parse(block) else {
            return ParseStep::Unreadable { end, what: "an interface's description cannot be read" };
        };
        if self.interfaces.len() >= INTERFACES_MAX {
            return ParseStep::Unreadable { end, what: "a section with more than 4,096 interfaces" };
        }
        let Some(interface) = CaptureInterface::new(&description, self.is_big_endian) else {
            // The placeholder keeps the numbers of later interfaces correct. Because the resolution
            // of the interface is unknown, its packets have no time.
            self.interfaces.push(CaptureInterface { link: u32::MAX, units_per_second: 1, offset_s: 0 });
            return ParseStep::Unreadable { end, what: "an interface's time resolution exceeds 64 bits" };
        };
        self.interfaces.push(interface);
        ParseStep::Skip(end as u64)
    }

    fn parse_enhanced_packet(&self, block: &[u8]) -> ParseStep {
        let end = block.len();
        let parse =
            if self.is_big_endian { parse_enhancedpacketblock_be } else { parse_enhancedpacketblock_le };
        // pcap-parser subtracts the minimum length of this block type without checking for
        // underflow.
        let parsed = if end < 32 { None } else { parse(block).ok() };
        let Some((_, packet)) = parsed else {
            return ParseStep::Unreadable { end, what: "a packet's block cannot be read" };
        };
        let EnhancedPacketBlock { if_id, ts_high, ts_low, .. } = packet;
        let Some(interface) = self.interfaces.get(if_id as usize) else {
            return ParseStep::Unreadable { end, what: "a packet of an interface without a description" };
        };
        let length = packet.packet_data().len();
        ParseStep::Packet(PacketLocation {
            wall_ns: interface.wall_ns(u64::from(ts_high) << 32 | u64::from(ts_low)),
            link: interface.link,
            range: 28..28 + length,
            end,
        })
    }

    /// Parses a Simple Packet Block. A Simple Packet Block has no time, so the time is set to 0,
    /// which means unknown.
    fn parse_simple_packet(&self, block: &[u8]) -> ParseStep {
        let end = block.len();
        let parse = if self.is_big_endian { parse_simplepacketblock_be } else { parse_simplepacketblock_le };
        let parsed = if end < 16 { None } else { parse(block).ok() };
        let Some((_, packet)) = parsed else {
            return ParseStep::Unreadable { end, what: "a packet's block cannot be read" };
        };
        let SimplePacketBlock { origlen, .. } = packet;
        let Some(interface) = self.interfaces.first() else {
            return ParseStep::Unreadable { end, what: "a packet of an interface without a description" };
        };
        let length = packet.data.len().min(origlen as usize);
        ParseStep::Packet(PacketLocation { wall_ns: 0, link: interface.link, range: 12..12 + length, end })
    }
}

impl CaptureInterface {
    fn new(description: &InterfaceDescriptionBlock<'_>, is_big_endian: bool) -> Option<Self> {
        // The function of pcap-parser 0.17 is not used, because it treats every power of two as
        // exceeding 64 bits.
        let exponent = u32::from(description.if_tsresol & 0x7F);
        let base = if description.if_tsresol & 0x80 == 0 { 10_u64 } else { 2 };
        let units_per_second = base.checked_pow(exponent)?;
        let mut options = description.options.iter();
        let offset = options.find(|option| option.code == OptionCode::IfTsoffset);
        let offset =
            offset.and_then(|option| option.value.first_chunk().copied()).map_or(0, i64::from_le_bytes);
        // pcap-parser reads the offset as little-endian, whatever the byte order of the section is.
        let offset_s = if is_big_endian { offset.swap_bytes() } else { offset };
        let link = description.linktype.0.cast_unsigned() & 0xFFFF;
        Some(Self { link, units_per_second, offset_s })
    }

    /// Converts a time to nanoseconds since 1970. The result saturates.
    #[inline]
    fn wall_ns(&self, time: u64) -> i64 {
        let (seconds, rest) = (time / self.units_per_second, time % self.units_per_second);
        let rest_ns = u128::from(rest) * u128::from(NS_PER_S) / u128::from(self.units_per_second);
        let seconds = i128::from(seconds) + i128::from(self.offset_s);
        let wall_ns = seconds * i128::from(NS_PER_S) + rest_ns.cast_signed();
        i64::try_from(wall_ns.clamp(i64::MIN.into(), i64::MAX.into())).unwrap_or(0)
    }
}
