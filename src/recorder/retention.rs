//! Retention: decides which files to remove for lack of space or for their age, from names, sizes
//! and ages. No clock, no file.

use std::fmt;

use flatcap_format::segment::SegmentName;
use flatcap_format::storage::DiskSpace;

/// Share of [`MinFree::Auto`]: the recorder must not fill a host's disk; a higher share would stop
/// it on many healthy hosts.
const AUTO_BASIS_POINTS: u16 = 500;
/// Limit of [`MinFree::Auto`]: what other programs need until someone intervenes does not grow with
/// the file system. journald caps its `SystemKeepFree` at the same size.
const AUTO_BYTES_MAX: u64 = 4 << 30;

/// Limits of the data directory. To keep them, the oldest segments are removed first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetentionLimits {
    /// Allocated bytes of all files in the directory, including the open segment, temporary and
    /// set-aside files.
    pub bytes: u64,
    /// Age at which a segment is removed, in nanoseconds.
    pub age_ns: u64,
    /// Minimum free space of the file system.
    pub min_free: MinFree,
    /// This many bytes, the newest, are never removed for `min_free`: below it, each new byte
    /// replaces the oldest one.
    pub min_bytes: u64,
}

/// Minimum free space of a file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MinFree {
    /// 5 % of the file system, but at most 4 GiB.
    Auto,
    /// In bytes.
    Bytes(u64),
    /// In hundredths of a percent of the file system, at most 10,000.
    BasisPoints(u16),
}

impl RetentionLimits {
    /// Keeps everything.
    pub const NONE: Self =
        Self { bytes: u64::MAX, age_ns: u64::MAX, min_free: MinFree::Bytes(0), min_bytes: 0 };
}

impl MinFree {
    pub(super) fn bytes(self, total: u64) -> u64 {
        match self {
            Self::Auto => Self::BasisPoints(AUTO_BASIS_POINTS).bytes(total).min(AUTO_BYTES_MAX),
            Self::Bytes(bytes) => bytes,
            Self::BasisPoints(points) => {
                let bytes = u128::from(total) * u128::from(points) / 10_000;
                u64::try_from(bytes).unwrap_or(u64::MAX)
            }
        }
    }
}

/// A file in the data directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct StoredFile {
    pub(super) name: String,
    pub(super) allocated: u64,
    /// Whether it is a segment, open or closed, or was set aside from one.
    pub(super) is_ours: bool,
    /// Its segment, if it may be removed: a sealed segment, or a file set aside from one. No other
    /// file is ever removed.
    pub(super) removable: Option<SegmentName>,
    /// Age of its segment; none if unknown.
    pub(super) age_ns: Option<u64>,
    /// It is removed only when nothing else makes space, for no receipt says that it is elsewhere.
    pub(super) is_held: bool,
}

impl StoredFile {
    /// Returns the order of removal. Numbers grow within a directory; equal ones are of different
    /// runs, copied together from elsewhere.
    pub(super) fn order(segment: &SegmentName) -> (u64, i64, u64) {
        (segment.number, segment.created_s, segment.run_id)
    }
}

/// The known state of the data directory and its file system.
#[derive(Debug, Clone, Copy)]
pub(super) struct DirectorySnapshot<'a> {
    /// All files except the reserve.
    pub(super) files: &'a [StoredFile],
    /// Bytes of the reserve.
    pub(super) reserve: u64,
    pub(super) space: DiskSpace,
}

/// The steps that make space.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct EvictionPlan {
    /// Files to remove, the oldest first.
    pub(super) names: Vec<String>,
    /// Bytes to take from the reserve.
    pub(super) from_reserve: u64,
}

/// The limit that does not hold even if every removable file is removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shortage {
    Bytes { limit: u64, held: u64, more: u64 },
    Free { limit: u64, available: u64, more: u64 },
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let wanted =
            |more: &u64| if *more > 0 { format!(", and {more} more are needed") } else { String::new() };
        match self {
            Self::Bytes { limit, held, more } => write!(
                f,
                "retain_bytes is {limit} bytes; files that are not closed segments or cannot be removed occupy {held} \
                 bytes{}; raise retain_bytes or remove foreign files from the directory",
                wanted(more)
            ),
            Self::Free { limit, available, more } => write!(
                f,
                "min_free is {limit} bytes; without closed segments only {available} bytes of the file system would be \
                 free{}; free space on it or lower min_free",
                wanted(more)
            ),
        }
    }
}

impl std::error::Error for Shortage {}

/// Sums that change while space is made for `more` bytes.
#[derive(Debug, Clone, Copy)]
struct EvictionSums {
    limits: RetentionLimits,
    min_free: u64,
    more: u64,
    held: u64, // without the reserve
    reserve: u64,
    available: u64,
    freed: u64, // of files and reserve
}

impl EvictionSums {
    /// Bytes above `retain_bytes`.
    fn over_quota(&self) -> u64 {
        (self.held.saturating_add(self.reserve).saturating_add(self.more)).saturating_sub(self.limits.bytes)
    }

    /// Bytes missing of the minimum free space. Within `min_bytes` it is enough to free as many
    /// bytes as are needed: other programs neither lose nor gain by it.
    fn missing_free(&self) -> u64 {
        let missing = self.min_free.saturating_add(self.more).saturating_sub(self.available);
        let is_protected =
            self.limits.min_bytes > 0 && self.held.saturating_add(self.more) <= self.limits.min_bytes;
        if is_protected { missing.min(self.more.saturating_sub(self.freed)) } else { missing }
    }

    fn free(&mut self, bytes: u64) {
        self.available = self.available.saturating_add(bytes);
        self.freed = self.freed.saturating_add(bytes);
    }
}

/// Plans the removal of files that are too old, and of enough to make `more` bytes fit: first from
/// the reserve, then the oldest files, all files of a segment together. Files that are held go
/// last, and never for their age.
pub(super) fn plan_eviction(
    stock: DirectorySnapshot<'_>,
    limits: &RetentionLimits,
    more: u64,
) -> Result<EvictionPlan, Shortage> {
    let DirectorySnapshot { files, reserve, space } = stock;
    let mut removable: Vec<_> =
        files.iter().filter_map(|file| Some((StoredFile::order(&file.removable?), file))).collect();
    removable.sort_by(|(order, file), (other, other_file)| {
        (file.is_held, order, &file.name).cmp(&(other_file.is_held, other, &other_file.name))
    });
    let mut sums = EvictionSums {
        limits: *limits,
        min_free: limits.min_free.bytes(space.total),
        more,
        held: allocated_bytes(files),
        reserve,
        available: space.available,
        freed: 0,
    };
    let from_reserve = reserve.min(sums.over_quota().max(sums.missing_free()));
    sums.reserve -= from_reserve;
    sums.free(from_reserve);
    let mut names = Vec::new();
    let mut last_removed = None;
    for (order, file) in removable {
        let is_old = !file.is_held && file.age_ns.is_some_and(|age| age > limits.age_ns);
        let has_space = sums.over_quota() == 0 && sums.missing_free() == 0;
        // A set-aside file is removed with its segment.
        if has_space && !is_old && last_removed != Some(order) {
            continue;
        }
        last_removed = Some(order);
        sums.held = sums.held.saturating_sub(file.allocated);
        sums.free(file.allocated);
        names.push(file.name.clone());
    }
    if sums.over_quota() > 0 {
        let held = sums.held.saturating_add(sums.reserve);
        return Err(Shortage::Bytes { limit: limits.bytes, held, more });
    }
    if sums.missing_free() > 0 {
        return Err(Shortage::Free { limit: sums.min_free, available: sums.available, more });
    }
    Ok(EvictionPlan { names, from_reserve })
}

fn allocated_bytes(files: &[StoredFile]) -> u64 {
    files.iter().fold(0, |sum, file| sum.saturating_add(file.allocated))
}

/// Returns the bytes that segments and reserve may occupy now: the rest of `retain_bytes` after
/// other files, limited by the space of the file system.
pub(super) fn usable_bytes(stock: DirectorySnapshot<'_>, limits: &RetentionLimits) -> u64 {
    let DirectorySnapshot { files, reserve, space } = stock;
    let ours =
        files.iter().filter(|file| file.is_ours).fold(0_u64, |sum, file| sum.saturating_add(file.allocated));
    let others = allocated_bytes(files).saturating_sub(ours);
    let free = space.available.saturating_sub(limits.min_free.bytes(space.total));
    limits.bytes.saturating_sub(others).min(ours.saturating_add(reserve).saturating_add(free))
}

/// At most this fraction of the free space is reserved: other programs must be able to continue,
/// and so must the recorder if it depends on them.
const RESERVE_SHARE: u64 = 4;
/// The reserve is not changed by less than this fraction of `min_bytes`: a change every second
/// would load the file system.
const RESERVE_STEPS: u64 = 64;

/// Returns the target size of the reserve: the bytes that the history lacks of `min_bytes`, at most
/// a quarter of the free space that may be used. An existing reserve shrinks only as the history
/// grows.
pub(super) fn reserve_length(stock: DirectorySnapshot<'_>, limits: &RetentionLimits) -> u64 {
    let DirectorySnapshot { files, reserve, space } = stock;
    let wanted = limits.min_bytes.min(limits.bytes).saturating_sub(allocated_bytes(files));
    let free = space.available.saturating_add(reserve).saturating_sub(limits.min_free.bytes(space.total));
    let target = wanted.min(reserve.max(free / RESERVE_SHARE));
    let is_near = target.abs_diff(reserve) < (limits.min_bytes / RESERVE_STEPS).max(1);
    if is_near && target > 0 { reserve.min(wanted) } else { target }
}

#[cfg(test)]
mod tests {
    use flatcap_format::segment::SealState;
    use proptest::prelude::*;

    use super::*;

    fn file(number: u64, allocated: u64, age_ns: u64) -> StoredFile {
        let name = SegmentName { number, created_s: 0, run_id: 1, state: SealState::Sealed };
        let name_text = format!("{number}");
        StoredFile {
            name: name_text,
            allocated,
            is_ours: true,
            removable: Some(name),
            age_ns: Some(age_ns),
            is_held: false,
        }
    }

    const SPACE: DiskSpace = DiskSpace { total: 1000, available: 500 };

    fn stock(files: &[StoredFile]) -> DirectorySnapshot<'_> {
        DirectorySnapshot { files, reserve: 0, space: SPACE }
    }

    fn go(names: &[&str]) -> EvictionPlan {
        EvictionPlan { names: names.iter().map(|name| (*name).to_owned()).collect(), from_reserve: 0 }
    }

    // Proves that the oldest files are removed first, not more than needed, and only removable
    // ones.
    #[test]
    fn the_oldest_go_first() {
        let active = StoredFile { removable: None, ..file(9, 100, 0) };
        let files = [file(3, 100, 10), active, file(1, 100, 30), file(2, 100, 20)];
        let limits = RetentionLimits { bytes: 400, age_ns: 25, ..RetentionLimits::NONE };
        let chosen = |more, limits| plan_eviction(stock(&files), &limits, more);
        assert_eq!(chosen(0, limits), Ok(go(&["1"])), "too old");
        let limits = RetentionLimits { age_ns: 100, ..limits };
        assert_eq!(chosen(0, limits), Ok(go(&[])));
        assert_eq!(chosen(1, limits), Ok(go(&["1"])));
        assert_eq!(chosen(200, limits), Ok(go(&["1", "2"])));
        assert_eq!(chosen(301, limits), Err(Shortage::Bytes { limit: 400, held: 100, more: 301 }));
        let limits = RetentionLimits { min_free: MinFree::BasisPoints(5500), ..RetentionLimits::NONE };
        assert_eq!(chosen(0, limits), Ok(go(&["1"])), "550 free of 1000");
        let limits = RetentionLimits { min_free: MinFree::Bytes(801), ..RetentionLimits::NONE };
        assert_eq!(chosen(0, limits), Err(Shortage::Free { limit: 801, available: 800, more: 0 }));
    }

    // Proves that the automatic minimum is a share of a small file system and a fixed size of a
    // large one, and that other minimums have no such cap.
    #[test]
    fn the_automatic_minimum_has_a_cap() {
        let gib = |count: u64| count << 30;
        for (total, least) in
            [(0, 0), (gib(40), gib(2)), (gib(80), gib(4)), (gib(252), gib(4)), (u64::MAX, gib(4))]
        {
            assert_eq!(MinFree::Auto.bytes(total), least, "{total}");
        }
        assert_eq!(MinFree::BasisPoints(500).bytes(gib(400)), gib(20));
        assert_eq!(MinFree::Bytes(gib(9)).bytes(gib(1)), gib(9));
    }

    // Proves that files which are held go last, and never for their age.
    #[test]
    fn held_files_go_last() {
        let held = |number, age_ns| StoredFile { is_held: true, ..file(number, 100, age_ns) };
        let files = [held(1, 90), file(2, 100, 80), held(3, 70), file(4, 100, 10)];
        let limits = RetentionLimits { bytes: 400, age_ns: 50, ..RetentionLimits::NONE };
        let chosen = |more| plan_eviction(stock(&files), &limits, more);
        assert_eq!(chosen(0), Ok(go(&["2"])), "too old");
        assert_eq!(chosen(200), Ok(go(&["2", "4"])));
        assert_eq!(chosen(300), Ok(go(&["2", "4", "1"])));
    }

    // Proves that a set-aside file is removed with its segment.
    #[test]
    fn set_aside_files_go_with_their_segment() {
        let cut = StoredFile { name: "1.cut".into(), ..file(1, 5, 0) };
        let limits = RetentionLimits { bytes: 205, ..RetentionLimits::NONE };
        let chosen = plan_eviction(stock(&[cut, file(2, 100, 0), file(1, 100, 0)]), &limits, 50);
        assert_eq!(chosen, Ok(go(&["1", "1.cut"])));
    }

    // Proves that the reserve is used first, and that within `min_bytes` the oldest segments are
    // removed for the newest and for no other program.
    #[test]
    fn min_bytes_are_kept_from_others() {
        let files = [file(1, 100, 0), file(2, 100, 0), file(3, 100, 0)];
        let full = DiskSpace { total: 1000, available: 0 };
        let limits =
            RetentionLimits { min_free: MinFree::Bytes(50), min_bytes: 300, ..RetentionLimits::NONE };
        let chosen = |reserve, more, least| {
            plan_eviction(
                DirectorySnapshot { files: &files, reserve, space: full },
                &RetentionLimits { min_bytes: least, ..limits },
                more,
            )
        };
        assert_eq!(chosen(0, 0, 300), Ok(go(&[])), "filled by others: nothing is removed for them");
        assert_eq!(chosen(0, 30, 330), Ok(go(&["1"])), "as much as is added");
        assert_eq!(chosen(40, 30, 330), Ok(EvictionPlan { names: vec![], from_reserve: 30 }));
        assert_eq!(chosen(0, 0, 250), Ok(go(&["1"])), "segments beyond min_bytes are removed");
        assert_eq!(chosen(0, 0, 0), Ok(go(&["1"])));
        assert_eq!(chosen(0, 60, 0), Ok(go(&["1", "2"])));
        let reserve = |reserve, available| {
            let space = DiskSpace { total: 1000, available };
            reserve_length(
                DirectorySnapshot { files: &files, reserve, space },
                &RetentionLimits { min_bytes: 400, ..limits },
            )
        };
        assert_eq!([reserve(0, 850), reserve(0, 250), reserve(60, 0), reserve(180, 0)], [100, 50, 60, 100]);
    }

    // Proves that the usable space is that of the nearer limit, after other files.
    #[test]
    fn usable_bytes_follow_the_nearer_limit() {
        let notes = StoredFile { is_ours: false, removable: None, ..file(9, 70, 0) };
        let files = [file(1, 100, 0), notes];
        let of = |bytes, keep| {
            let limits = RetentionLimits { bytes, min_free: MinFree::Bytes(keep), ..RetentionLimits::NONE };
            usable_bytes(DirectorySnapshot { reserve: 20, ..stock(&files) }, &limits)
        };
        assert_eq!([of(u64::MAX, 0), of(u64::MAX, 450), of(u64::MAX, 900), of(300, 0)], [620, 170, 120, 230]);
    }

    proptest! {
        // Proves that a plan is sufficient and minimal, consists of the oldest files, includes only
        // removable ones, and removes nothing for other programs within `min_bytes`.
        #[test]
        fn plans_are_sufficient(
            sizes in proptest::collection::vec((0_u64..100, any::<bool>()), 0..20),
            bytes in 0_u64..1000,
            (keep, least) in (0_u64..1000, 0_u64..1000),
            (reserve, more) in (0_u64..200, 0_u64..200),
        ) {
            let files: Vec<StoredFile> = sizes
                .iter()
                .zip(0..)
                .map(|((allocated, removable), number)| StoredFile {
                    removable: file(number, 0, 0).removable.filter(|_| *removable),
                    ..file(number, *allocated, 0)
                })
                .collect();
            let limits = RetentionLimits { bytes, age_ns: u64::MAX, min_free: MinFree::Bytes(keep), min_bytes: least };
            let all: u64 = files.iter().map(|file| file.allocated).sum();
            let may_go: Vec<&StoredFile> = files.iter().filter(|file| file.removable.is_some()).collect();
            let is_enough = |from_files: u64, from_reserve: u64| {
                let (held, freed) = (all - from_files, from_files + from_reserve);
                let is_free = SPACE.available + freed >= keep + more;
                let is_least = least > 0 && held + more <= least && freed >= more;
                held + reserve - from_reserve + more <= bytes && (is_free || is_least)
            };
            #[allow(clippy::single_match_else, reason = "both arms matter equally")]
            match plan_eviction(DirectorySnapshot { reserve, ..stock(&files) }, &limits, more) {
                Ok(EvictionPlan { names, from_reserve }) => {
                    let freed: u64 = may_go[..names.len()].iter().map(|file| file.allocated).sum();
                    prop_assert!(may_go[..names.len()].iter().zip(&names).all(|(file, name)| file.name == *name));
                    prop_assert!(from_reserve <= reserve && is_enough(freed, from_reserve));
                    if let Some(last) = names.len().checked_sub(1) {
                        prop_assert!(!is_enough(freed - may_go[last].allocated, from_reserve));
                    } else if let Some(less) = from_reserve.checked_sub(1) {
                        prop_assert!(!is_enough(0, less));
                    }
                    if least >= all + more && all + reserve + more <= bytes {
                        let needed = more.saturating_sub(from_reserve);
                        let but_last: u64 = may_go[..names.len().saturating_sub(1)].iter().map(|file| file.allocated).sum();
                        prop_assert!(but_last <= needed, "the oldest was removed for others");
                    }
                }
                Err(_) => {
                    let freed: u64 = may_go.iter().map(|file| file.allocated).sum();
                    prop_assert!(!is_enough(freed, reserve));
                }
            }
        }

        // Proves that a reserve is at most its share of the free space, at most the bytes lacking,
        // and is not released to other programs.
        #[test]
        fn reserves_are_bounded(
            (held, reserve, available) in (0_u64..1000, 0_u64..500, 0_u64..2000),
            (bytes, keep, least) in (0_u64..1000, 0_u64..500, 0_u64..1000),
        ) {
            let files = [file(1, held, 0)];
            let stock = DirectorySnapshot { files: &files, reserve, space: DiskSpace { total: 3000, available } };
            let limits = RetentionLimits { bytes, min_free: MinFree::Bytes(keep), min_bytes: least, ..RetentionLimits::NONE };
            let length = reserve_length(stock, &limits);
            prop_assert!(length <= least.min(bytes).saturating_sub(held));
            prop_assert!(length <= reserve.max((available + reserve).saturating_sub(keep) / RESERVE_SHARE));
            let lacking = least.min(bytes).saturating_sub(held);
            prop_assert!(length + least / RESERVE_STEPS + 1 >= reserve.min(lacking));
        }
    }
}
