//! The fixed layout of a telemetry frame's payload before the source's own payload (docs/FORMAT.md,
//! "Telemetry frame").
//!
//! It is a prefix of fixed size because the code that flatc generates for Rust cannot align a byte
//! vector (it ignores `force_align`) and would copy the payload once more. Writers fill it in;
//! readers compare it and need no verifier if it is equal.

use flatcap_lane::envelope;

use super::frame::FrameHeader;

pub use flatcap_lane::envelope::{ENVELOPE_BYTES, HEADER_AT, HEADER_BYTES, PAYLOAD_LENGTH_AT, PREFIX};

// The format is frozen, so a changed `FrameHeader` must not compile.
const _: () = assert!(HEADER_BYTES == size_of::<FrameHeader>());

/// Flag of a sample that lacks existing elements, because a file ended early, or because there were
/// more than the limit.
const CUT: u16 = 1 << 1;
const TOO_MANY: u16 = 1 << 4;
/// Flag of an incomplete sample. Higher bits state the reason.
const INCOMPLETE: u16 = 1;

/// Returns whether a sample with these flags may lack elements that exist: it has the flag `CUT`,
/// or it is incomplete without a stated reason.
pub fn leaves_out_elements(flags: u16) -> bool {
    flags & (CUT | TOO_MANY) != 0 || flags == INCOMPLETE
}

/// Splits a telemetry frame's payload into its header and the source's payload if it has exactly
/// this layout. Other layouts may be valid too and need the verifier.
#[inline]
pub fn split(payload: &[u8]) -> Option<(FrameHeader, &[u8])> {
    let parts = envelope::split(payload)?;
    Some((FrameHeader(*parts.header), parts.body))
}
