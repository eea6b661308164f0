//! Holds frames back until all frames with earlier times have been returned.

/// A frame that is held back. Frames are ordered by time, then by arrival, so frames of one source
/// keep their order.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct HeldFrame {
    pub(super) mono_ns: u64,
    pub(super) arrival: u64,
    pub(super) kind: HeldKind,
    pub(super) frame: Vec<u8>,
    pub(super) header_bytes: usize,
}

/// The kind of a frame that is held back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum HeldKind {
    Sample,
    Gap,
    Attachment,
    ClockSync,
    Marker,
}
