//! What clients may take, and the shape of their lanes.

use flatcap_lane::{
    LANE_BYTES_MAX, LANE_BYTES_MIN, SLAB_BYTES_MIN, SLABS_MAX, SLABS_MIN, SourceRegistration,
};

/// Bytes of a lane's slab: as the recorder's own, so that the largest lane has not more slabs than
/// a lane can have.
pub const LANE_SLAB_BYTES: usize = 64 << 10;
/// What the recorder keeps of a pushed source besides its schema, in bytes: counters, a list of
/// losses, names and labels, rounded up.
pub(super) const SOURCE_BYTES_MIN: u64 = 8 << 10;
/// Copies of a source's schema that the recorder keeps: the run's, those of the plans and headers
/// of two recorders, and the client's.
const SCHEMA_COPIES: u64 = 6;

/// The limits of all clients.
#[derive(Debug, Clone, Copy)]
pub struct PushLimits {
    /// Memory of all lanes and of what is kept of pushed sources, in bytes.
    pub memory_bytes: u64,
    /// Bytes of a lane's ring, unless its client asks for others.
    pub lane_bytes: u64,
    /// Clients at a time.
    pub clients: usize,
    /// Lanes at a time.
    pub lanes: usize,
    /// Sources of a client.
    pub sources: usize,
    /// Bytes that one user may push in a second; 0 for no limit.
    pub user_bytes_per_second: u64,
    /// Frames that one user may push in a second; 0 for no limit.
    pub user_frames_per_second: u64,
    /// Bytes of a schema.
    pub schema_bytes: u64,
    /// Bytes that the descriptors of all pushed sources may take in a segment.
    pub description_bytes: u64,
}

/// Returns the number of slabs of a lane for which a client asks for `bytes`; 0 stands for the
/// default. `slab_bytes` is a power of two.
pub(super) fn slabs(limits: &PushLimits, slab_bytes: usize, bytes: u64) -> usize {
    let wanted = if bytes == 0 { limits.lane_bytes } else { bytes };
    let wanted = usize::try_from(wanted.clamp(LANE_BYTES_MIN, LANE_BYTES_MAX)).unwrap_or(usize::MAX);
    (wanted / slab_bytes.max(SLAB_BYTES_MIN)).clamp(SLABS_MIN, SLABS_MAX)
}

/// Returns the memory that the recorder needs for a new source, in bytes.
pub(super) fn source_bytes(registration: &SourceRegistration, schema_bytes: usize) -> u64 {
    let labels = registration.labels.iter().map(|(name, value)| name.len() + value.len());
    let names = registration.name.len() + registration.root.len() + labels.sum::<usize>();
    SOURCE_BYTES_MIN + SCHEMA_COPIES * (schema_bytes + names) as u64
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::ingest) const LIMITS: PushLimits = PushLimits {
        memory_bytes: 64 << 20,
        lane_bytes: 1 << 20,
        clients: 64,
        lanes: 1024,
        sources: 64,
        user_bytes_per_second: 0,
        user_frames_per_second: 0,
        schema_bytes: 1 << 20,
        description_bytes: 64 << 20,
    };

    // Proves that each ring is within the limits of the protocol, whatever is asked for.
    #[test]
    fn rings_are_within_the_limits() {
        let slabs = |slab_bytes, bytes| slabs(&LIMITS, slab_bytes, bytes);
        assert_eq!(
            [0, 1, 1 << 19, 16 << 20, u64::MAX].map(|bytes| slabs(65_536, bytes)),
            [16, 4, 8, 256, 256]
        );
        assert_eq!([0, u64::MAX].map(|bytes| slabs(4096, bytes)), [256, 256]);
        assert_eq!(slabs(4 << 20, 1), 2);
    }
}
