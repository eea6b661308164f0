//! The fixed layout of the bytes that precede the source's own payload in a telemetry frame's
//! payload (docs/FORMAT.md, "Telemetry frame").
//!
//! The envelope is a prefix of fixed size. Writers do not use the Rust code that flatc generates
//! for the envelope. The generated code ignores `force_align`, so it cannot align the payload. It
//! would also copy the payload once more. Writers fill in the values of the prefix. Readers compare
//! the prefix with the expected bytes. If the bytes are equal, the readers need no verifier.

use flatcap_lane::envelope;

use super::frame::FrameHeader;

pub use flatcap_lane::envelope::{ENVELOPE_BYTES, HEADER_AT, HEADER_BYTES, PAYLOAD_LENGTH_AT, PREFIX};

// The format is frozen, so a changed size of `FrameHeader` must cause a compile error.
const _: () = assert!(HEADER_BYTES == size_of::<FrameHeader>());

/// Flags of a sample that does not contain all existing elements. `CUT` means that a file ended
/// early. `TOO_MANY` means that there were more elements than the limit.
const CUT: u16 = 1 << 1;
const TOO_MANY: u16 = 1 << 4;
/// Flag of an incomplete sample. Higher bits state the reason.
const INCOMPLETE: u16 = 1;

/// Returns whether a sample with these flags may lack elements that exist. This is true if the
/// sample has the flag `CUT` or `TOO_MANY`, or if it is incomplete without a reason.
pub fn leaves_out_elements(flags: u16) -> bool {
    flags & (CUT | TOO_MANY) != 0 || flags == INCOMPLETE
}

/// Splits a telemetry frame's payload into its header and the source's payload. Returns `None` if
/// the payload does not have exactly this layout. Other layouts may be valid too, but they need the
/// verifier.
#[inline]
pub fn split(payload: &[u8]) -> Option<(FrameHeader, &[u8])> {
    let parts = envelope::split(payload)?;
    Some((FrameHeader(*parts.header), parts.body))
}
