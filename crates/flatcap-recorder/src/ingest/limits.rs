//! The limits of clients, and the layout of their lanes.

use flatcap_lane::{
    LANE_BYTES_MAX, LANE_BYTES_MIN, SLAB_BYTES_MIN, SLABS_MAX, SLABS_MIN, SourceRegistration,
};

/// Size of a lane's slab in bytes. The slabs of a lane are as large as the recorder's own slabs, so
/// that the largest lane does not exceed the maximum number of slabs.
pub const LANE_SLAB_BYTES: usize = 64 << 10;
/// Memory that the recorder needs for a pushed source in addition to the copies of its schema and
/// names, in bytes. This memory contains counters and a list of losses. The size is rounded up.
const SOURCE_BYTES_MIN: u64 = 8 << 10;
/// Number of copies of a source's schema in memory. One copy belongs to the run and one copy
/// belongs to the client. The other copies are in the plans and headers of two recorders.
const SCHEMA_COPIES: u64 = 6;

/// Each user may use at most 1 / `USER_SHARE` of the resources that applications share. Shared
/// resources are clients, lanes, memory, sources of the run and their descriptions.
pub(super) const USER_SHARE: u64 = 2;
/// Maximum number of lanes of killed runs that wait to be rescued. The service manager can store
/// the same number of lanes. Each user may have at most 1 / `USER_SHARE` of these lanes.
pub const LEFT_LANES_MAX: usize = 4096;
/// Size of a descriptor in bytes without its schema, its names and the client's labels. The size
/// includes the labels that come from the kernel, and is rounded up.
const DESCRIPTOR_BYTES: u64 = 1 << 10;
/// Size of a pushed source's totals in a footer in bytes, rounded up.
const TOTALS_BYTES: u64 = 512;

/// The limits of all clients.
#[derive(Debug, Clone, Copy)]
pub struct PushLimits {
    /// Maximum memory of all lanes and of the state of pushed sources, in bytes.
    pub memory_bytes: u64,
    /// Size of a lane's ring in bytes, unless the client requests another size.
    pub lane_bytes: u64,
    /// Maximum number of concurrent clients.
    pub clients: usize,
    /// Maximum number of concurrent lanes.
    pub lanes: usize,
    /// Maximum number of sources per client.
    pub sources: usize,
    /// Maximum number of bytes that one user may push per second, or 0 for no limit.
    pub user_bytes_per_second: u64,
    /// Maximum number of frames that one user may push per second, or 0 for no limit.
    pub user_frames_per_second: u64,
    /// Maximum size of a schema in bytes.
    pub schema_bytes: u64,
    /// Maximum size of the descriptors of all pushed sources in a segment, in bytes.
    pub description_bytes: u64,
    /// The configuration key of `description_bytes`.
    pub description_key: &'static str,
    /// Maximum number of pushed sources in a run.
    pub run_sources: u64,
}

/// The resources of a run that pushed sources use. A source uses its resources until the run ends,
/// because each segment of the run describes the source.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct DescribedSources {
    pub(super) bytes: u64,
    pub(super) memory_bytes: u64,
    pub(super) count: u64,
}

impl DescribedSources {
    /// Returns the resources of a new source.
    pub(super) fn of(registration: &SourceRegistration, schema_bytes: usize) -> Self {
        // The header and the footer of each segment both contain the description.
        let described = (name_bytes(registration) + schema_bytes) as u64 + DESCRIPTOR_BYTES;
        let memory_bytes = source_bytes(registration, schema_bytes);
        Self { bytes: 2 * described + TOTALS_BYTES, memory_bytes, count: 1 }
    }

    /// Adds the resources of other sources.
    pub(super) fn add(&mut self, others: Self) {
        self.bytes = self.bytes.saturating_add(others.bytes);
        self.memory_bytes = self.memory_bytes.saturating_add(others.memory_bytes);
        self.count = self.count.saturating_add(others.count);
    }

    /// Returns whether these resources are at most 1 / `parts` of the limits that apply to all
    /// pushed sources together.
    fn is_within(self, limits: &PushLimits, parts: u64) -> bool {
        self.bytes <= limits.description_bytes / parts
            && self.memory_bytes <= limits.memory_bytes / parts
            && self.count <= limits.run_sources / parts
    }

    /// Returns whether these resources are at most 1 / `parts` of the limits that apply to the
    /// sources of one user.
    pub(super) fn is_within_share(self, limits: &PushLimits, parts: u64) -> bool {
        self.is_within(limits, parts.saturating_mul(USER_SHARE))
    }

    /// Checks `self` against the limits of all pushed sources, and `of_user` against the limits of
    /// one user.
    ///
    /// # Errors
    /// The message states the limit that is exceeded, and how to raise the limit or use less.
    pub(super) fn check(self, of_user: Self, limits: &PushLimits) -> Result<(), String> {
        let (who, sum, parts) = if of_user.is_within_share(limits, 1) {
            ("all users", self, 1)
        } else {
            ("this user", of_user, USER_SHARE)
        };
        if sum.is_within(limits, parts) {
            return Ok(());
        }
        let (bytes, count) = (limits.description_bytes / parts, limits.run_sources / parts);
        let memory_bytes = limits.memory_bytes / parts;
        Err(if sum.memory_bytes > memory_bytes {
            format!(
                "the pushed sources of {who} would take {} bytes of memory, more than {memory_bytes}: raise [push] \
                 memory_max, or use smaller schemas or fewer threads",
                sum.memory_bytes
            )
        } else if sum.count > count {
            format!(
                "the pushed sources of {who} would be {} in this run, more than {count}: use fewer threads, names or \
                 labels, or restart the recorder",
                sum.count
            )
        } else {
            format!(
                "the descriptions of the pushed sources of {who} would take {} bytes of each segment, more than {bytes}: \
                 raise {}, or use smaller schemas or fewer threads",
                sum.bytes, limits.description_key
            )
        })
    }
}

/// Returns the maximum number of clients or lanes of one user, which is at least one. `most` is the
/// maximum number for all users.
pub(super) fn user_share(most: usize) -> usize {
    most.div_ceil(usize::try_from(USER_SHARE).unwrap_or(usize::MAX))
}

/// Returns the number of slabs of a lane if the client requests a size of `bytes`. If `bytes` is 0,
/// the lane has the default size. `slab_bytes` is a power of two.
pub(super) fn slabs(limits: &PushLimits, slab_bytes: usize, bytes: u64) -> usize {
    let wanted = if bytes == 0 { limits.lane_bytes } else { bytes };
    let wanted = usize::try_from(wanted.clamp(LANE_BYTES_MIN, LANE_BYTES_MAX)).unwrap_or(usize::MAX);
    (wanted / slab_bytes.max(SLAB_BYTES_MIN)).clamp(SLABS_MIN, SLABS_MAX)
}

/// Returns the memory that the recorder needs for a new source, in bytes.
pub(super) fn source_bytes(registration: &SourceRegistration, schema_bytes: usize) -> u64 {
    SOURCE_BYTES_MIN + SCHEMA_COPIES * (schema_bytes + name_bytes(registration)) as u64
}

fn name_bytes(registration: &SourceRegistration) -> usize {
    let labels = registration.labels.iter().map(|(name, value)| name.len() + value.len());
    registration.name.len() + registration.root.len() + labels.sum::<usize>()
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
        description_key: "[storage] segment_size",
        run_sources: 3584,
    };

    // Proves that the size of each ring is within the limits of the protocol, whatever size is
    // requested.
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

    // Proves that a refusal says whether one user or all users have reached a limit, and that it
    // names the limit and the key that raises it. The refusal has the same form if there is a ring.
    #[test]
    fn a_refusal_names_its_key() {
        let limits = PushLimits {
            description_bytes: 1000,
            run_sources: 100,
            description_key: "[blackbox] memory_max",
            ..LIMITS
        };
        let described = |bytes, count| DescribedSources { bytes, memory_bytes: bytes, count };
        assert_eq!(described(1000, 100).check(described(500, 50), &limits), Ok(()));
        for (all, of_user, words) in [
            (described(600, 10), described(501, 1), ["this user", "[blackbox] memory_max", "501"]),
            (described(1001, 10), described(500, 1), ["all users", "[blackbox] memory_max", "1001"]),
            (described(10, 60), described(10, 51), ["this user", "restart", "51"]),
            (described(10, 101), described(10, 50), ["all users", "restart", "101"]),
            (
                DescribedSources { bytes: 1, memory_bytes: (32 << 20) + 1, count: 1 },
                DescribedSources { bytes: 1, memory_bytes: (32 << 20) + 1, count: 1 },
                ["this user", "[push] memory_max", "33554433"],
            ),
        ] {
            let refusal = all.check(of_user, &limits).unwrap_err();
            assert!(words.iter().all(|word| refusal.contains(word)), "{refusal}");
        }
    }
}
