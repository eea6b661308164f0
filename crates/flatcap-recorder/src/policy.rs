//! Decisions of the recorder as pure functions. These functions decide when to fsync, when to
//! rotate and how long a segment becomes. The functions use neither a clock nor files.

/// The policy that decides when data is synced from the kernel to the disk. With any policy, a
/// killed process loses no data that the kernel has accepted. A kernel crash or a power cut loses
/// unsynced data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SyncPolicy {
    /// The kernel decides when to sync, and commonly does so within 30 s. The recorder nevertheless
    /// syncs a segment when it seals the segment.
    Never,
    /// The recorder syncs at most this many nanoseconds after the first unsynced write.
    Interval(u64),
    /// The recorder syncs after each write, before the next write.
    Always,
}

/// The state of the open segment.
#[derive(Debug, Clone, Copy)]
pub(super) struct SegmentState {
    pub(super) bytes: u64,
    pub(super) created_ns: u64,
    pub(super) has_content: bool,
}

/// The limits at which a segment is rotated.
#[derive(Debug, Clone, Copy)]
pub(super) struct RotationLimits {
    pub(super) bytes: u64,
    pub(super) age_ns: u64,
}

/// Minimum number of segments that must fit into the usable space. Then the removal of the oldest
/// segment removes at most an eighth of the history.
const SEGMENTS_MIN: u64 = 8;
/// Minimum size to which segments are reduced if space is scarce. A smaller size cannot be
/// configured.
const SEGMENT_BYTES_MIN: u64 = 256 << 10;
/// Minimum size of a segment as a multiple of its preamble (header and configuration). The footer
/// repeats the preamble, so a shorter segment would contain little data in addition to its preamble
/// and footer.
const PREAMBLE_FACTOR: u64 = 8;
/// Minimum number of preallocation steps per segment.
const PREALLOCATE_STEPS: u64 = 4;

/// Returns the size at which a segment is sealed. The result is less than `configured` if the
/// usable space is small, and more than `configured` if the segment's preamble needs it.
pub(super) fn segment_bytes(configured: u64, usable: u64, preamble_bytes: u64) -> u64 {
    let fitting = (usable / SEGMENTS_MIN).max(SEGMENT_BYTES_MIN);
    configured.min(fitting).max(preamble_bytes.saturating_mul(PREAMBLE_FACTOR))
}

/// Returns the preallocation step for a segment of this size. As `configured` and as the result,
/// the value 0 means the default step.
pub(super) fn preallocate_step(configured: u64, segment_bytes: u64) -> u64 {
    let most = segment_bytes / PREALLOCATE_STEPS;
    if configured > 0 {
        configured.min(most)
    } else if most < SEGMENT_BYTES_MIN {
        most
    } else {
        0
    }
}

/// Returns whether to seal the segment before `next_bytes` more bytes are written at `now_ns`. A
/// segment without content is never sealed.
pub(super) fn should_rotate(
    segment: SegmentState,
    limits: RotationLimits,
    next_bytes: u64,
    now_ns: u64,
) -> bool {
    segment.has_content
        && (segment.bytes.saturating_add(next_bytes) > limits.bytes
            || now_ns.saturating_sub(segment.created_ns) >= limits.age_ns)
}

/// Returns whether to request a sync now. `first_unsynced_ns` is the time of the first write since
/// the last sync.
pub(super) fn should_sync(policy: SyncPolicy, first_unsynced_ns: Option<u64>, now_ns: u64) -> bool {
    match policy {
        // With `Always`, the recorder syncs each write inline. A second, concurrent sync could hide
        // the error of the inline sync.
        SyncPolicy::Never | SyncPolicy::Always => false,
        SyncPolicy::Interval(interval_ns) => {
            first_unsynced_ns.is_some_and(|first| now_ns.saturating_sub(first) >= interval_ns)
        }
    }
}

/// Size at which an index interval ends, in bytes.
const INDEX_BYTES: u64 = 4 << 20;
/// Age of the first frame of an index interval at which the interval ends, in nanoseconds.
const INDEX_NS: u64 = 1_000_000_000;

/// Returns whether an Index frame must end the open interval before anything else is written.
/// `unindexed_bytes` is the length of the interval, or `None` if it has no frames. `first_ns` is
/// the time at which the first frame of the interval was written.
pub(super) fn should_index(unindexed_bytes: Option<u64>, first_ns: Option<u64>, now_ns: u64) -> bool {
    unindexed_bytes.is_some_and(|bytes| {
        bytes >= INDEX_BYTES || first_ns.is_some_and(|first| now_ns.saturating_sub(first) >= INDEX_NS)
    })
}

/// Returns the back-off after this number of consecutive failures to open a segment, in
/// nanoseconds. The back-off starts at 100 ms and doubles up to 10 s.
pub(super) fn back_off_ns(failures: u32) -> u64 {
    const FIRST_NS: u64 = 100_000_000;
    const LONGEST_NS: u64 = 10_000_000_000;
    FIRST_NS.saturating_mul(1 << failures.saturating_sub(1).min(20)).min(LONGEST_NS)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: RotationLimits = RotationLimits { bytes: 1000, age_ns: 50 };

    // Proves that size and age cause the rotation of a segment, and that an empty segment is never
    // rotated.
    #[test]
    fn rotation_by_size_and_age() {
        let segment = SegmentState { bytes: 900, created_ns: 100, has_content: true };
        assert!(!should_rotate(segment, LIMITS, 100, 149));
        assert!(should_rotate(segment, LIMITS, 101, 100));
        assert!(should_rotate(segment, LIMITS, 0, 150));
        let empty = SegmentState { has_content: false, ..segment };
        assert!(!should_rotate(empty, LIMITS, 5000, 1000));
    }

    // Proves that at least eight segments fit into the usable space. The exceptions are segments
    // that would be smaller than the minimum size, or not much larger than the preamble.
    #[test]
    fn segments_fit() {
        const MIB: u64 = 1 << 20;
        assert_eq!(segment_bytes(256 * MIB, u64::MAX, 70_000), 256 * MIB);
        assert_eq!(segment_bytes(256 * MIB, 8 * MIB, 1000), MIB);
        assert_eq!(segment_bytes(256 * MIB, 10_000, 1000), SEGMENT_BYTES_MIN);
        assert_eq!(segment_bytes(SEGMENT_BYTES_MIN, u64::MAX, 70_000), 560_000, "of many sources");
        assert_eq!([16 * MIB, MIB, 0].map(|step| preallocate_step(step, MIB)), [MIB / 4, MIB / 4, 0]);
        assert_eq!(preallocate_step(0, 512 << 10), 128 << 10);
        assert_eq!(preallocate_step(16 * MIB, 256 * MIB), 16 * MIB);
    }

    // Proves that each policy syncs at the right time.
    #[test]
    fn syncing_by_policy() {
        assert!(!should_sync(SyncPolicy::Never, Some(0), u64::MAX));
        assert!(!should_sync(SyncPolicy::Interval(10), None, 100));
        assert!(!should_sync(SyncPolicy::Interval(10), Some(91), 100));
        assert!(should_sync(SyncPolicy::Interval(10), Some(90), 100));
        assert!(!should_sync(SyncPolicy::Always, Some(0), u64::MAX), "it syncs inline");
    }

    // Proves that an index interval ends by size or age, and never without frames.
    #[test]
    fn indexing_by_size_and_age() {
        assert!(!should_index(None, Some(0), u64::MAX));
        assert!(!should_index(Some(INDEX_BYTES - 1), Some(5), INDEX_NS + 4));
        assert!(should_index(Some(INDEX_BYTES), Some(5), 5));
        assert!(should_index(Some(1), Some(5), INDEX_NS + 5));
    }

    // Proves that the back-off grows and stays bounded.
    #[test]
    fn back_off_grows_to_its_limit() {
        assert_eq!([1, 2, 3].map(back_off_ns), [100_000_000, 200_000_000, 400_000_000]);
        assert_eq!(back_off_ns(u32::MAX), 10_000_000_000);
    }
}
