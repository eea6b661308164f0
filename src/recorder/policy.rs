//! Decisions of the recorder as functions of what it knows. No clock, no file.

/// When data is brought from the kernel to the medium. A killed process loses nothing that the kernel has taken,
/// whatever the policy; a crash of the kernel or a power cut loses what was not synced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SyncPolicy {
    /// The kernel decides (commonly within 30 s); a segment is still synced when it is sealed.
    Never,
    /// At the latest this many nanoseconds after the first unsynced write.
    Interval(u64),
    /// After each write, before the next one.
    Always,
}

/// What the open segment has come to.
#[derive(Debug, Clone, Copy)]
pub(super) struct SegmentState {
    pub(super) bytes: u64,
    pub(super) created_ns: u64,
    pub(super) has_content: bool,
}

/// Limits of a segment.
#[derive(Debug, Clone, Copy)]
pub(super) struct RotationLimits {
    pub(super) bytes: u64,
    pub(super) age_ns: u64,
}

/// So many segments fit at least into what they may use: removing the oldest one costs an eighth of the history.
const SEGMENTS_MIN: u64 = 8;
/// No segment is smaller for want of space, as none can be configured smaller.
const SEGMENT_BYTES_MIN: u64 = 256 << 10;
/// A segment is at least so many times as long as what it begins with (header, configuration), which its footer repeats: else it would hold little
/// else.
const BEGIN_SHARE: u64 = 8;
/// A segment is reserved in so many steps at least.
const PREALLOCATE_STEPS: u64 = 4;

/// The size at which a segment is sealed: `configured`, less where the segments may use little, more where `begin_bytes` alone would fill it.
pub(super) fn segment_bytes(configured: u64, usable: u64, begin_bytes: u64) -> u64 {
    let fitting = (usable / SEGMENTS_MIN).max(SEGMENT_BYTES_MIN);
    configured.min(fitting).max(begin_bytes.saturating_mul(BEGIN_SHARE))
}

/// The step in which space is reserved for a segment of this size; 0 for the usual one.
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

/// Whether the segment should be sealed before `next_bytes` more are written at `now_ns`. One without content never
/// is: there would be nothing in it.
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

/// Whether the syncer should be asked now. `first_unsynced_ns`: when the first write since the last sync happened.
pub(super) fn should_sync(policy: SyncPolicy, first_unsynced_ns: Option<u64>, now_ns: u64) -> bool {
    match policy {
        // Under `Always` each write is synced where it happens; a second sync beside it could hide the first one's error.
        SyncPolicy::Never | SyncPolicy::Always => false,
        SyncPolicy::Interval(interval_ns) => {
            first_unsynced_ns.is_some_and(|first| now_ns.saturating_sub(first) >= interval_ns)
        }
    }
}

/// An interval ends when it has so many bytes...
const INDEX_BYTES: u64 = 4 << 20;
/// ...or its first frame was written so long ago.
const INDEX_NS: u64 = 1_000_000_000;

/// Whether an Index frame should end the open interval before anything more is written. `unindexed_bytes`: its length, none
/// without frames. `first_ns`: when the first of them was written.
pub(super) fn should_index(unindexed_bytes: Option<u64>, first_ns: Option<u64>, now_ns: u64) -> bool {
    unindexed_bytes.is_some_and(|bytes| {
        bytes >= INDEX_BYTES || first_ns.is_some_and(|first| now_ns.saturating_sub(first) >= INDEX_NS)
    })
}

/// How long to wait after the `failures`th failure in a row before a segment is tried again: from 100 ms, doubling,
/// to 10 s, in nanoseconds.
pub(super) fn back_off_ns(failures: u32) -> u64 {
    const FIRST_NS: u64 = 100_000_000;
    const LONGEST_NS: u64 = 10_000_000_000;
    FIRST_NS.saturating_mul(1 << failures.saturating_sub(1).min(20)).min(LONGEST_NS)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: RotationLimits = RotationLimits { bytes: 1000, age_ns: 50 };

    // Goal: size and age rotate, an empty segment never does. Method: both sides of each limit.
    #[test]
    fn rotation_by_size_and_age() {
        let segment = SegmentState { bytes: 900, created_ns: 100, has_content: true };
        assert!(!should_rotate(segment, LIMITS, 100, 149));
        assert!(should_rotate(segment, LIMITS, 101, 100));
        assert!(should_rotate(segment, LIMITS, 0, 150));
        let empty = SegmentState { has_content: false, ..segment };
        assert!(!should_rotate(empty, LIMITS, 5000, 1000));
    }

    // Goal: at least eight segments fit into what they may use, none is smaller than the smallest, and none is little but its header. Method: both
    // sides of each bound.
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

    // Goal: each policy syncs when it says. Method: both sides of the interval.
    #[test]
    fn syncing_by_policy() {
        assert!(!should_sync(SyncPolicy::Never, Some(0), u64::MAX));
        assert!(!should_sync(SyncPolicy::Interval(10), None, 100));
        assert!(!should_sync(SyncPolicy::Interval(10), Some(91), 100));
        assert!(should_sync(SyncPolicy::Interval(10), Some(90), 100));
        assert!(!should_sync(SyncPolicy::Always, Some(0), u64::MAX), "it syncs inline");
    }

    // Goal: an interval ends by size or age, and never without frames. Method: both sides of each limit.
    #[test]
    fn indexing_by_size_and_age() {
        assert!(!should_index(None, Some(0), u64::MAX));
        assert!(!should_index(Some(INDEX_BYTES - 1), Some(5), INDEX_NS + 4));
        assert!(should_index(Some(INDEX_BYTES), Some(5), 5));
        assert!(should_index(Some(1), Some(5), INDEX_NS + 5));
    }

    // Goal: waiting grows and stays bounded. Method: the first, some, and very many failures.
    #[test]
    fn back_off_grows_to_its_limit() {
        assert_eq!([1, 2, 3].map(back_off_ns), [100_000_000, 200_000_000, 400_000_000]);
        assert_eq!(back_off_ns(u32::MAX), 10_000_000_000);
    }
}
