//! What stands at a place of a capture.

use std::ops::Range;

/// What stands at a place of a capture, as its format reads it.
#[derive(Debug)]
pub(super) enum Step {
    /// So many bytes must be seen to tell.
    Need(usize),
    /// Nothing with a packet, of so many bytes.
    Pass(u64),
    /// A packet.
    Packet(Place),
    /// A whole block whose packet cannot be read.
    Unreadable {
        /// Its bytes.
        end: usize,
        /// What is wrong.
        what: &'static str,
    },
    /// Nothing that can be here.
    Damaged(&'static str),
}

/// A packet and its place.
#[derive(Debug)]
pub(super) struct Place {
    /// When it was captured, in nanoseconds since 1970, UTC.
    pub(super) wall_ns: i64,
    /// Its `LINKTYPE_`.
    pub(super) link: u32,
    /// Where its bytes stand.
    pub(super) at: Range<usize>,
    /// Where the next place begins.
    pub(super) end: usize,
    /// It was longer than what was captured of it.
    pub(super) is_cut: bool,
}
