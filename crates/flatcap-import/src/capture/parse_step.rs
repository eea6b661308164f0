//! The result of parsing a capture at one offset.

use std::ops::Range;

/// Number of bytes in the window during the search for a packet. This number is enough for the
/// longest packet or block and the header of its successor.
pub(super) const SEARCH_BYTES: usize = 512 << 10;

/// The result of parsing a capture at one offset.
#[derive(Debug)]
pub(super) enum ParseStep {
    /// The parser needs at least this many bytes to continue.
    Need(usize),
    /// A part of the file that contains no packet, with its length in bytes.
    Skip(u64),
    /// A packet.
    Packet(PacketLocation),
    /// A complete block whose packet cannot be read.
    Unreadable {
        /// Length of the block.
        end: usize,
        /// The problem.
        what: &'static str,
    },
    /// No valid packet or block begins here, for the given reason.
    Damaged(&'static str),
}

/// A packet and its location.
#[derive(Debug)]
pub(super) struct PacketLocation {
    /// Capture time in nanoseconds since 1970, UTC.
    pub(super) wall_ns: i64,
    /// The packet's link type (`LINKTYPE_`).
    pub(super) link: u32,
    /// The range of the packet's bytes.
    pub(super) range: Range<usize>,
    /// The end of the packet's record.
    pub(super) end: usize,
}
