//! pcapng: blocks, some of which have packets (draft-ietf-opsawg-pcapng).

use pcap_parser::pcapng::{
    EnhancedPacketBlock, InterfaceDescriptionBlock, SimplePacketBlock, parse_enhancedpacketblock_be,
    parse_enhancedpacketblock_le, parse_interfacedescriptionblock_be, parse_interfacedescriptionblock_le,
    parse_simplepacketblock_be, parse_simplepacketblock_le,
};
use pcap_parser::traits::PcapNGPacketBlock;
use pcap_parser::{IDB_MAGIC, OptionCode};

use super::step::{Place, Step};
use super::window::WINDOW_BYTES;
use crate::os::clock::NS_PER_S;

/// Section Header Block: its type reads the same in both byte orders.
const SECTION: u32 = 0x0A0D_0D0A;
/// In a Section Header Block, in the byte order of the section.
const BYTE_ORDER: [u8; 4] = [0x4D, 0x3C, 0x2B, 0x1A];
/// The obsolete Packet Block, which nobody should write.
const OLD_PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
const ENHANCED_PACKET: u32 = 6;
/// Custom Block; all other types that are in use fit 16 bits, with the highest of 32 for local use.
const CUSTOM: u32 = 0x4000_0BAD;
/// Longest block with a packet or an interface, in bytes; a longer one is damage.
const BLOCK_BYTES_MAX: u32 = 300 << 10;
/// Longest block that is passed over, in bytes; a longer one is damage.
const OTHER_BYTES_MAX: u32 = 64 << 20;
/// Bytes of a block without a body.
const EMPTY_BYTES: u32 = 12;
/// Most interfaces in a section; packets of those beyond cannot be read.
const INTERFACES_MAX: usize = 4096;

const _: () = assert!(BLOCK_BYTES_MAX as usize + 8 <= WINDOW_BYTES);

/// The section that is being read.
#[derive(Debug, Default)]
pub(super) struct Pcapng {
    is_big_endian: bool,
    interfaces: Vec<Interface>, // <= INTERFACES_MAX
}

#[derive(Debug)]
struct Interface {
    link: u32,
    units_per_second: u64, // > 0
    offset_s: i64,
}

impl Pcapng {
    /// Whether a file with these first bytes is one.
    pub(super) fn is_begin(bytes: &[u8]) -> bool {
        bytes.starts_with(&SECTION.to_le_bytes()) && Self::order(bytes).is_some()
    }

    /// Whether the section that begins here is big-endian.
    fn order(bytes: &[u8]) -> Option<bool> {
        let order: [u8; 4] = *bytes.get(8..)?.first_chunk()?;
        match order {
            BYTE_ORDER => Some(false),
            _ => (u32::from_le_bytes(order).swap_bytes() == u32::from_le_bytes(BYTE_ORDER)).then_some(true),
        }
    }

    /// What stands at the begin of these bytes.
    pub(super) fn step(&mut self, bytes: &[u8]) -> Step {
        let Some((kind, length)) = self.head(bytes) else { return Step::Need(EMPTY_BYTES as usize) };
        if length < EMPTY_BYTES || !length.is_multiple_of(4) {
            return Step::Damaged("a block's length is less than 12 or no multiple of 4");
        }
        let is_read = matches!(kind, SECTION | IDB_MAGIC | OLD_PACKET | SIMPLE_PACKET | ENHANCED_PACKET);
        if length > if is_read { BLOCK_BYTES_MAX } else { OTHER_BYTES_MAX } {
            return Step::Damaged(
                "a block is said to be longer than 300 KiB, or one without packets than 64 MiB",
            );
        }
        if !is_read && (kind & 0x7FFF_0000 != 0 && kind != CUSTOM || kind == 0) {
            // No other types are in use; bytes of something else would be passed over unsaid.
            return Step::Damaged("a block of no known type");
        }
        if !is_read {
            return Step::Pass(length.into());
        }
        let end = length as usize;
        let Some(block) = bytes.get(..end) else { return Step::Need(end) };
        // Both are of one byte order, which a section has changed.
        if block.get(end - 4..) != block.get(4..8) {
            return Step::Damaged("a block's two lengths differ");
        }
        match kind {
            SECTION => match Self::order(block) {
                Some(is_big_endian) => {
                    *self = Self { is_big_endian, interfaces: Vec::new() };
                    Step::Pass(length.into())
                }
                None => Step::Damaged("a section without its byte order"),
            },
            IDB_MAGIC => self.interface(block),
            ENHANCED_PACKET => self.enhanced(block),
            OLD_PACKET => Step::Unreadable {
                end,
                what: "a packet in the obsolete Packet Block: write the capture anew, by editcap -F pcapng",
            },
            _ => self.simple(block),
        }
    }

    /// Whether a block that is known may begin here, with both its lengths; or, where the window ends before it does, with one.
    pub(super) fn is_likely(&self, bytes: &[u8]) -> bool {
        let Some((kind, length)) = self.head(bytes) else { return false };
        if !matches!(kind, SECTION | IDB_MAGIC | SIMPLE_PACKET | ENHANCED_PACKET)
            || !(EMPTY_BYTES + 4..=BLOCK_BYTES_MAX).contains(&length)
            || !length.is_multiple_of(4)
        {
            return false;
        }
        let end = length as usize;
        bytes.get(end - 4..end).is_some_and(|last| Some(last) == bytes.get(4..8))
    }

    /// Type and length of the block.
    fn head(&self, bytes: &[u8]) -> Option<(u32, u32)> {
        let kind = self.number(bytes)?;
        if kind != SECTION {
            return Some((kind, self.number(bytes.get(4..)?)?));
        }
        // A section brings its own byte order.
        let length = u32::from_le_bytes(*bytes.get(4..)?.first_chunk()?);
        bytes.get(..EMPTY_BYTES as usize)?;
        let is_big_endian = Self::order(bytes).unwrap_or(self.is_big_endian);
        Some((kind, if is_big_endian { length.swap_bytes() } else { length }))
    }

    fn number(&self, bytes: &[u8]) -> Option<u32> {
        let number = u32::from_le_bytes(*bytes.first_chunk()?);
        Some(if self.is_big_endian { number.swap_bytes() } else { number })
    }

    fn interface(&mut self, block: &[u8]) -> Step {
        let end = block.len();
        let parse = if self.is_big_endian {
            parse_interfacedescriptionblock_be
        } else {
            parse_interfacedescriptionblock_le
        };
        let Ok((_, description)) = parse(block) else {
            return Step::Unreadable { end, what: "an interface's description cannot be read" };
        };
        if self.interfaces.len() >= INTERFACES_MAX {
            return Step::Unreadable { end, what: "a section with more than 4,096 interfaces" };
        }
        let Some(interface) = Interface::new(&description, self.is_big_endian) else {
            // The numbers of those behind it depend on it; without a resolution its packets have no time.
            self.interfaces.push(Interface { link: u32::MAX, units_per_second: 1, offset_s: 0 });
            return Step::Unreadable { end, what: "an interface's resolution of time is beyond 64 bits" };
        };
        self.interfaces.push(interface);
        Step::Pass(end as u64)
    }

    fn enhanced(&self, block: &[u8]) -> Step {
        let end = block.len();
        let parse =
            if self.is_big_endian { parse_enhancedpacketblock_be } else { parse_enhancedpacketblock_le };
        // The library subtracts what a block of its kind has at least.
        let parsed = if end < 32 { None } else { parse(block).ok() };
        let Some((_, packet)) = parsed else {
            return Step::Unreadable { end, what: "a packet's block cannot be read" };
        };
        let EnhancedPacketBlock { if_id, ts_high, ts_low, caplen, origlen, .. } = packet;
        let Some(interface) = self.interfaces.get(if_id as usize) else {
            return Step::Unreadable { end, what: "a packet of an interface that is not described" };
        };
        let length = packet.packet_data().len();
        Step::Packet(Place {
            wall_ns: interface.wall_ns(u64::from(ts_high) << 32 | u64::from(ts_low)),
            link: interface.link,
            at: 28..28 + length,
            end,
            is_cut: caplen < origlen,
        })
    }

    /// A packet without a time: 0, as nobody knows it.
    fn simple(&self, block: &[u8]) -> Step {
        let end = block.len();
        let parse = if self.is_big_endian { parse_simplepacketblock_be } else { parse_simplepacketblock_le };
        let parsed = if end < 16 { None } else { parse(block).ok() };
        let Some((_, packet)) = parsed else {
            return Step::Unreadable { end, what: "a packet's block cannot be read" };
        };
        let SimplePacketBlock { origlen, .. } = packet;
        let Some(interface) = self.interfaces.first() else {
            return Step::Unreadable { end, what: "a packet of an interface that is not described" };
        };
        let length = packet.data.len().min(origlen as usize);
        let is_cut = length < origlen as usize;
        Step::Packet(Place { wall_ns: 0, link: interface.link, at: 12..12 + length, end, is_cut })
    }
}

impl Interface {
    fn new(description: &InterfaceDescriptionBlock<'_>, is_big_endian: bool) -> Option<Self> {
        // Not by the library, which takes every power of two for one beyond 64 bits (pcap-parser 0.17).
        let exponent = u32::from(description.if_tsresol & 0x7F);
        let base = if description.if_tsresol & 0x80 == 0 { 10_u64 } else { 2 };
        let units_per_second = base.checked_pow(exponent)?;
        let mut options = description.options.iter();
        let offset = options.find(|option| option.code == OptionCode::IfTsoffset);
        let offset =
            offset.and_then(|option| option.value.first_chunk().copied()).map_or(0, i64::from_le_bytes);
        // The library reads it as little-endian whatever the section is.
        let offset_s = if is_big_endian { offset.swap_bytes() } else { offset };
        let link = description.linktype.0.cast_unsigned() & 0xFFFF;
        Some(Self { link, units_per_second, offset_s })
    }

    /// In nanoseconds since 1970; what does not fit is at the end of what does.
    #[inline]
    fn wall_ns(&self, time: u64) -> i64 {
        let (seconds, rest) = (time / self.units_per_second, time % self.units_per_second);
        let rest_ns = u128::from(rest) * u128::from(NS_PER_S) / u128::from(self.units_per_second);
        let seconds = i128::from(seconds) + i128::from(self.offset_s);
        let wall_ns = seconds * i128::from(NS_PER_S) + rest_ns.cast_signed();
        i64::try_from(wall_ns.clamp(i64::MIN.into(), i64::MAX.into())).unwrap_or(0)
    }
}
