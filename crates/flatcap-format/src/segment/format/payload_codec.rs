//! Encodes payloads, and decodes payloads with verification. All frames of a segment except sample
//! frames use these functions.

use flatbuffers::{FlatBufferBuilder, Verifiable, VerifierOptions};

use crate::host::ClockReading;
use crate::schema::segment as wire;

/// Maximum number of sources in one segment.
pub(in crate::segment) const SOURCES_MAX: usize = 4096;
/// Maximum number of index entries in a footer. If there are more intervals, neighbouring intervals
/// are joined.
pub(in crate::segment) const ENTRIES_MAX: usize = 4096;
/// Maximum length of a header or footer that readers accept, in bytes.
pub(in crate::segment) const HEADER_BYTES_MAX: u32 = 64 << 20;

/// Returns a builder that also writes default values, so that the size of a frame does not depend
/// on its values.
pub(in crate::segment) fn fixed_size_builder() -> FlatBufferBuilder<'static> {
    let mut builder = FlatBufferBuilder::new();
    builder.force_defaults(true);
    builder
}

/// Verifies a payload and returns its root table. The limits of the verifier allow a footer with
/// [`SOURCES_MAX`] sources and a full index.
pub(in crate::segment) fn verified<'a, T: flatbuffers::Follow<'a> + Verifiable + 'a>(
    payload: &'a [u8],
) -> Option<T::Inner> {
    let options = VerifierOptions {
        max_depth: 8,
        max_tables: 4 * SOURCES_MAX + ENTRIES_MAX,
        max_apparent_size: HEADER_BYTES_MAX as usize,
        ..VerifierOptions::default()
    };
    flatbuffers::root_with_opts::<T>(&options, payload).ok()
}

pub(in crate::segment) fn pairing_to_wire(clocks: &ClockReading) -> wire::ClockPairing {
    wire::ClockPairing::new(clocks.mono_ns, clocks.boot_ns, clocks.wall_ns)
}

pub(in crate::segment) fn pairing_from_wire(clocks: &wire::ClockPairing) -> ClockReading {
    ClockReading { mono_ns: clocks.mono_ns(), boot_ns: clocks.boot_ns(), wall_ns: clocks.wall_ns() }
}
