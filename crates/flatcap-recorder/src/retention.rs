//! Retention decides which files are removed (evicted) because of a lack of space or because of
//! their age. The decisions use names, sizes and ages. This module uses neither a clock nor files.

use flatcap_format::segment::SegmentName;
use flatcap_format::storage::DiskSpace;

/// Share of the file system that [`MinFree::Auto`] keeps free. The recorder must not fill a host's
/// disk. A higher share would stop the recorder on many healthy hosts.
const AUTO_BASIS_POINTS: u16 = 500;
/// Maximum of [`MinFree::Auto`]. The maximum is a fixed size, because other programs do not need
/// more space on a larger file system until someone intervenes. The `SystemKeepFree` of journald
/// has the same maximum.
const AUTO_BYTES_MAX: u64 = 4 << 30;

/// The limits of the data directory. To satisfy the limits, the oldest segments are removed first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetentionLimits {
    /// Maximum allocated size of all files in the directory, in bytes. The size includes the open
    /// segment, temporary files, and files that recovery has set aside.
    pub bytes: u64,
    /// Age at which a segment is removed, in nanoseconds.
    pub age_ns: u64,
    /// Minimum free space of the file system.
    pub min_free: MinFree,
    /// Number of newest bytes of the history that are kept even if another program has filled the
    /// file system. If the file system is full, new samples are lost instead.
    pub min_bytes: u64,
}

/// Minimum free space of a file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MinFree {
    /// 5 % of the file system, but at most 4 GiB.
    Auto,
    /// A number of bytes.
    Bytes(u64),
    /// A share of the file system in hundredths of a percent, at most 10,000.
    BasisPoints(u16),
}

impl RetentionLimits {
    /// Limits that remove no file.
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
    /// Whether the file is an open segment, a sealed segment, or data that recovery has set aside
    /// from a segment.
    pub(super) is_ours: bool,
    /// Whether the file is part of the history that `min_bytes` protects. The history consists of
    /// the recorder's files except snapshots.
    pub(super) is_history: bool,
    /// The segment of the file, or `None` if the file must never be removed. Only sealed segments
    /// and files that recovery has set aside from a sealed segment may be removed.
    pub(super) removable: Option<SegmentName>,
    /// The age of the file's segment, or `None` if the age is unknown.
    pub(super) age_ns: Option<u64>,
    /// Whether the file is held because its segment has no receipt. A held file is removed only if
    /// the removal of all other files does not free enough space.
    pub(super) is_held: bool,
}

impl StoredFile {
    /// Returns the sort key that determines the order of removal. Segment numbers increase within a
    /// directory. Equal segment numbers occur only if segments of different runs were copied into
    /// one directory.
    pub(super) fn order(segment: &SegmentName) -> (u64, i64, u64) {
        (segment.number, segment.created_s, segment.run_id)
    }
}

/// The known state of the data directory and its file system.
#[derive(Debug, Clone, Copy)]
pub(super) struct DirectorySnapshot<'a> {
    /// All files except the reserve.
    pub(super) files: &'a [StoredFile],
    /// Size of the reserve, in bytes.
    pub(super) reserve: u64,
    pub(super) space: DiskSpace,
    /// Largest size that the history and the reserve together could have reached so far in this
    /// run, in bytes.
    pub(super) capacity: u64,
}

/// The plan that makes space: the files to remove, and the changes of the reserve.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct EvictionPlan {
    /// Files to remove, oldest first.
    pub(super) names: Vec<String>,
    /// Number of bytes to take from the reserve.
    pub(super) from_reserve: u64,
    /// Number of bytes to move into the reserve right after the removal. Without this move, other
    /// programs could take the bytes that were freed in excess.
    pub(super) to_reserve: u64,
    /// Whether the free space stays below `min_free`, because the only files that are left to
    /// remove are protected history.
    pub(super) is_history_kept: bool,
}

/// At least 1 / `REPLACED_SHARE` of the space that the history can occupy stays unprotected. The
/// unprotected part is also at least twice as large as the longest segment. Within the unprotected
/// part, new segments replace the oldest segments.
const REPLACED_SHARE: u64 = 4;

/// The part of the history that is kept even if other programs fill the file system.
#[derive(Debug, Clone, Copy)]
struct Protection {
    /// Bytes of segments that are protected from removal.
    kept: u64,
    /// Bytes of segments and reserve together that are protected. This size exceeds `kept` by two
    /// segments. The excess is needed because a new segment is recorded before the oldest segment
    /// is removed, and because more bytes are granted than needed.
    with_spare: u64,
}

impl Protection {
    fn of(stock: &DirectorySnapshot<'_>, limits: &RetentionLimits) -> Self {
        let history = stock.files.iter().filter(|file| file.is_history);
        let longest = history.map(|file| file.allocated).max().unwrap_or(0);
        let others = allocated_bytes(stock.files).saturating_sub(history_bytes(stock.files));
        let within_quota = limits.bytes.saturating_sub(others);
        let spare = longest.saturating_mul(2);
        let replaced = spare.max(stock.capacity / REPLACED_SHARE);
        let kept = limits.min_bytes.min(within_quota).min(stock.capacity.saturating_sub(replaced));
        let most = stock.capacity.min(within_quota);
        let with_spare = if kept > 0 { kept.saturating_add(spare).min(most) } else { 0 };
        Self { kept, with_spare }
    }
}

fn history_bytes(files: &[StoredFile]) -> u64 {
    let history = files.iter().filter(|file| file.is_history);
    history.fold(0, |sum, file| sum.saturating_add(file.allocated))
}

/// Returns the number of bytes of the history that are currently protected.
pub(super) fn kept_bytes(stock: &DirectorySnapshot<'_>, limits: &RetentionLimits) -> u64 {
    Protection::of(stock, limits).kept
}

/// The limit that would be exceeded even after the removal of every removable file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Shortage {
    #[error(
        "retain_bytes is {limit} bytes; files that are not closed segments or cannot be removed occupy {held} \
         bytes{}; raise retain_bytes or remove foreign files from the directory",
        wanted(*more)
    )]
    Bytes { limit: u64, held: u64, more: u64 },
    #[error(
        "min_free is {limit} bytes; without closed segments only {available} bytes of the file system would be \
         free{}; free space on it or lower min_free",
        wanted(*more)
    )]
    Free { limit: u64, available: u64, more: u64 },
    #[error(
        "only {available} bytes of the file system are free{}; retain_min protects {kept} bytes of the {history} \
         bytes of history, so new samples are lost instead; free space on it or lower retain_min",
        wanted(*more)
    )]
    History { kept: u64, history: u64, available: u64, more: u64 },
}

fn wanted(more: u64) -> String {
    if more > 0 { format!(", and {more} more are needed") } else { String::new() }
}

/// The sums that change during the search for the files to remove, to make space for `more` bytes.
#[derive(Debug, Clone, Copy)]
struct EvictionSums {
    bytes: u64,
    min_free: u64,
    protection: Protection,
    more: u64,
    held: u64, // without the reserve
    history: u64,
    reserve: u64,
    available: u64,
    freed: u64, // of files and reserve
}

impl EvictionSums {
    /// Returns the number of bytes by which `retain_bytes` would be exceeded.
    fn over_quota(&self) -> u64 {
        (self.held.saturating_add(self.reserve).saturating_add(self.more)).saturating_sub(self.bytes)
    }

    /// Returns the number of bytes that must be freed to reach the minimum free space.
    fn missing(&self) -> u64 {
        self.min_free.saturating_add(self.more).saturating_sub(self.available)
    }

    /// Returns the part of [`missing`](Self::missing) that must be freed because of the new bytes.
    /// If only this part is freed, the space of other programs does not change.
    fn missing_for_own(&self) -> u64 {
        self.missing().min(self.more.saturating_sub(self.freed))
    }

    /// Returns the number of bytes of the reserve that may be released to other programs.
    fn spare_reserve(&self) -> u64 {
        let ours = self.history.saturating_add(self.more).saturating_add(self.reserve);
        ours.saturating_sub(self.protection.with_spare).min(self.reserve)
    }

    /// Returns whether this many bytes of history may be removed for lack of space in the file
    /// system.
    fn may_remove(&self, bytes: u64) -> bool {
        let Protection { kept, with_spare } = self.protection;
        let left = self.history.saturating_sub(bytes);
        if self.missing_for_own() > 0 {
            return kept == 0 || left >= kept;
        }
        let spare = left.saturating_add(self.reserve).saturating_add(self.more);
        self.missing() > 0 && (kept == 0 || (left >= kept && spare >= with_spare))
    }

    fn take_reserve(&mut self, bytes: u64) {
        let bytes = bytes.min(self.reserve);
        self.reserve -= bytes;
        self.free(bytes);
    }

    fn free(&mut self, bytes: u64) {
        self.available = self.available.saturating_add(bytes);
        self.freed = self.freed.saturating_add(bytes);
    }

    /// Returns the number of bytes to move into the reserve after the removal. The result is the
    /// larger of two amounts, within limits. One amount is the bytes freed beyond `min_free`, and
    /// the other amount is the bytes that the protected history lacks.
    fn left_for_reserve(&self, before: &Self) -> u64 {
        let from_reserve = before.reserve - self.reserve;
        let from_files = self.freed.saturating_sub(from_reserve);
        let left = from_files.saturating_sub(self.more.saturating_sub(from_reserve));
        let ours = self.history.saturating_add(self.more).saturating_add(self.reserve);
        let lacking = self.protection.with_spare.saturating_sub(ours);
        let rest = self.available.saturating_sub(self.more).saturating_sub(self.min_free);
        let in_vain = if before.missing() > 0 { rest } else { 0 };
        let within_quota =
            self.bytes.saturating_sub(self.held.saturating_add(self.reserve).saturating_add(self.more));
        if self.protection.kept == 0 { 0 } else { lacking.max(in_vain).min(left).min(within_quota) }
    }
}

/// Plans the removal of files that are too old, and of as many other files as are needed to make
/// `more` bytes fit. Space is taken from the reserve first and then from the oldest files. All
/// files of a segment are removed together. Files without a receipt are removed last, and never for
/// their age. If the file system lacks space, neither the protected part of the history nor any
/// newer file is removed.
pub(super) fn plan_eviction(
    stock: DirectorySnapshot<'_>,
    limits: &RetentionLimits,
    more: u64,
) -> Result<EvictionPlan, Shortage> {
    let DirectorySnapshot { files, reserve, space, .. } = stock;
    let mut removable: Vec<_> =
        files.iter().filter_map(|file| Some((StoredFile::order(&file.removable?), file))).collect();
    removable.sort_by(|(order, file), (other, other_file)| {
        (file.is_held, order, &file.name).cmp(&(other_file.is_held, other, &other_file.name))
    });
    let before = EvictionSums {
        bytes: limits.bytes,
        min_free: limits.min_free.bytes(space.total),
        protection: Protection::of(&stock, limits),
        more,
        held: allocated_bytes(files),
        history: history_bytes(files),
        reserve,
        available: space.available,
        freed: 0,
    };
    let mut sums = before;
    sums.take_reserve(sums.over_quota());
    sums.take_reserve(sums.missing_for_own());
    sums.take_reserve(sums.missing().min(sums.spare_reserve()));
    let mut names = Vec::new();
    let (mut last_removed, mut is_blocked) = (None, false);
    for (at, (order, file)) in removable.iter().enumerate() {
        let is_old = !file.is_held && file.age_ns.is_some_and(|age| age > limits.age_ns);
        // A set-aside file is removed together with the segment to which it belongs.
        let follows = last_removed == Some(*order);
        let is_wanted = sums.over_quota() > 0 || sums.missing() > 0;
        if !(is_old || follows || is_wanted) {
            continue;
        }
        if !is_old && !follows && sums.over_quota() == 0 {
            let of_segment = removable.iter().skip(at).take_while(|(other, _)| other == order);
            let bytes = of_segment.fold(0_u64, |sum, (_, file)| sum.saturating_add(file.allocated));
            is_blocked |= !sums.may_remove(bytes);
            if is_blocked {
                continue;
            }
        }
        last_removed = Some(*order);
        sums.held = sums.held.saturating_sub(file.allocated);
        sums.history = sums.history.saturating_sub(file.allocated);
        sums.free(file.allocated);
        names.push(file.name.clone());
    }
    if sums.over_quota() > 0 {
        let held = sums.held.saturating_add(sums.reserve);
        return Err(Shortage::Bytes { limit: limits.bytes, held, more });
    }
    let Protection { kept, with_spare } = sums.protection;
    let is_protected = kept > 0 && (is_blocked || sums.history <= with_spare);
    let available = sums.available;
    if sums.missing_for_own() > 0 && is_protected {
        return Err(Shortage::History { kept, history: sums.history, available, more });
    }
    if sums.missing() > 0 && !is_protected {
        return Err(Shortage::Free { limit: sums.min_free, available, more });
    }
    let to_reserve = sums.left_for_reserve(&before);
    sums.available = available.saturating_sub(to_reserve);
    let is_history_kept = kept > 0 && sums.missing() > 0;
    Ok(EvictionPlan { names, from_reserve: reserve - sums.reserve, to_reserve, is_history_kept })
}

fn allocated_bytes(files: &[StoredFile]) -> u64 {
    files.iter().fold(0, |sum, file| sum.saturating_add(file.allocated))
}

/// Returns the number of bytes that segments and reserve may occupy now. The number is
/// `retain_bytes` minus the size of other files, but at most the size for which the file system has
/// space.
pub(super) fn usable_bytes(stock: DirectorySnapshot<'_>, limits: &RetentionLimits) -> u64 {
    let DirectorySnapshot { files, reserve, space, .. } = stock;
    let ours =
        files.iter().filter(|file| file.is_ours).fold(0_u64, |sum, file| sum.saturating_add(file.allocated));
    let others = allocated_bytes(files).saturating_sub(ours);
    let free = space.available.saturating_sub(limits.min_free.bytes(space.total));
    limits.bytes.saturating_sub(others).min(ours.saturating_add(reserve).saturating_add(free))
}

/// Limit on the growth of the reserve: at most 1 / `RESERVE_SHARE` of the free space. The rest
/// stays free for other programs, because the recorder may depend on these programs.
const RESERVE_SHARE: u64 = 4;
/// Changes of the reserve that are smaller than 1 / `RESERVE_STEPS` of `min_bytes` are skipped,
/// because changes every second would load the file system.
const RESERVE_STEPS: u64 = 64;

/// Returns the target size of the reserve. The target is the number of protected bytes plus the
/// size of two segments, minus the size of the history. The target is at most a quarter of the
/// usable free space. An existing reserve shrinks as the history grows. A reserve above its target
/// is reduced only if the usable free space is at least as large as the reserve.
pub(super) fn reserve_length(stock: DirectorySnapshot<'_>, limits: &RetentionLimits) -> u64 {
    let DirectorySnapshot { files, reserve, space, .. } = stock;
    let wanted = Protection::of(&stock, limits).with_spare.saturating_sub(history_bytes(files));
    let most = limits.bytes.saturating_sub(allocated_bytes(files));
    let beside = space.available.saturating_sub(limits.min_free.bytes(space.total));
    let free = space.available.saturating_add(reserve).saturating_sub(limits.min_free.bytes(space.total));
    if limits.min_bytes > 0 && reserve > wanted && beside < reserve {
        return reserve.min(most);
    }
    let target = wanted.min(reserve.max(free / RESERVE_SHARE));
    let is_near = target.abs_diff(reserve) < (limits.min_bytes / RESERVE_STEPS).max(1);
    (if is_near && target > 0 { reserve.min(wanted) } else { target }).min(most)
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
            is_history: true,
            removable: Some(name),
            age_ns: Some(age_ns),
            is_held: false,
        }
    }

    const SPACE: DiskSpace = DiskSpace { total: 1000, available: 500 };

    fn stock(files: &[StoredFile]) -> DirectorySnapshot<'_> {
        DirectorySnapshot { files, reserve: 0, space: SPACE, capacity: 10_000 }
    }

    fn go(names: &[&str]) -> EvictionPlan {
        EvictionPlan {
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            ..EvictionPlan::default()
        }
    }

    // Proves that the oldest files are removed first, that only as many files as needed are
    // removed, and that only removable files are removed.
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

    // Proves that the automatic minimum is a share of a small file system and a fixed size on a
    // large file system. Other minimums have no such maximum.
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

    // Proves that files without a receipt are removed last, and never for their age.
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

    // Proves that a set-aside file is removed together with its segment.
    #[test]
    fn set_aside_files_go_with_their_segment() {
        let cut = StoredFile { name: "1.cut".into(), ..file(1, 5, 0) };
        let limits = RetentionLimits { bytes: 205, ..RetentionLimits::NONE };
        let chosen = plan_eviction(stock(&[cut, file(2, 100, 0), file(1, 100, 0)]), &limits, 50);
        assert_eq!(chosen, Ok(go(&["1", "1.cut"])));
    }

    // Proves that the reserve is used first. Within `min_bytes`, no segment is removed for other
    // programs or for new samples. Bytes that are freed in excess go into the reserve.
    #[test]
    fn min_bytes_are_kept() {
        let files = [file(1, 100, 0), file(2, 100, 0), file(3, 100, 0)];
        let full = DiskSpace { total: 1000, available: 0 };
        let limits =
            RetentionLimits { min_free: MinFree::Bytes(50), min_bytes: 300, ..RetentionLimits::NONE };
        let chosen = |reserve, more, least| {
            plan_eviction(
                DirectorySnapshot { reserve, space: full, ..stock(&files) },
                &RetentionLimits { min_bytes: least, ..limits },
                more,
            )
        };
        let kept = EvictionPlan { is_history_kept: true, ..go(&[]) };
        assert_eq!(chosen(0, 0, 300), Ok(EvictionPlan { is_history_kept: true, ..go(&[]) }));
        let shortage = Shortage::History { kept: 330, history: 300, available: 0, more: 30 };
        assert_eq!(chosen(0, 30, 330), Err(shortage));
        assert_eq!(chosen(40, 30, 330), Ok(EvictionPlan { from_reserve: 30, ..kept }));
        assert_eq!(chosen(0, 0, 150), Ok(EvictionPlan { is_history_kept: true, ..go(&[]) }), "no spare");
        let more_files: Vec<StoredFile> = (1..6).map(|number| file(number, 100, 0)).collect();
        let of_five = DirectorySnapshot { space: full, ..stock(&more_files) };
        let plan = plan_eviction(of_five, &RetentionLimits { min_bytes: 100, ..limits }, 0);
        assert_eq!(plan, Ok(EvictionPlan { to_reserve: 50, ..go(&["1"]) }), "50 in vain");
        let replaced = EvictionPlan { to_reserve: 70, is_history_kept: true, ..go(&["1"]) };
        assert_eq!(chosen(0, 30, 200), Ok(replaced), "others get nothing of it");
        assert_eq!(chosen(0, 0, 0), Ok(go(&["1"])));
        assert_eq!(chosen(0, 60, 0), Ok(go(&["1", "2"])));
        // On a small disk, a quarter of the space is not protected, and the size of two segments is
        // not protected either.
        let small = DirectorySnapshot { capacity: 320, ..stock(&files) };
        assert_eq!(kept_bytes(&small, &RetentionLimits { min_bytes: 900, ..limits }), 120);
        let reserve = |reserve, available| {
            let space = DiskSpace { total: 1000, available };
            reserve_length(
                DirectorySnapshot { reserve, space, ..stock(&files) },
                &RetentionLimits { min_bytes: 300, ..limits },
            )
        };
        assert_eq!([reserve(0, 850), reserve(0, 250), reserve(60, 0), reserve(300, 0)], [200, 50, 60, 300]);
        assert_eq!(reserve(300, 500), 200, "others have enough");
    }

    // Proves that the usable space is the lower of two limits, minus the size of other files.
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
        // Proves that a plan consists of the oldest removable files, and that it is sufficient and
        // minimal. A plan keeps the protected history unless `retain_bytes` is exceeded. A plan
        // gives other programs no space that this history needs. A plan is refused only if no plan
        // would be sufficient.
        #[test]
        fn plans_are_sufficient(
            sizes in proptest::collection::vec((0_u64..100, any::<bool>()), 0..20),
            bytes in 0_u64..1000,
            (keep, least) in (0_u64..1000, 0_u64..1000),
            (reserve, more, capacity) in (0_u64..200, 0_u64..200, 0_u64..2000),
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
            let stock = DirectorySnapshot { reserve, capacity: capacity.max(all + reserve), ..stock(&files) };
            let Protection { kept, with_spare } = Protection::of(&stock, &limits);
            let may_go: Vec<&StoredFile> = files.iter().filter(|file| file.removable.is_some()).collect();
            let fits = |from_files: u64, from_reserve: u64| all + reserve - from_files - from_reserve + more <= bytes;
            let has_space = |freed: u64| freed >= more || SPACE.available + freed >= keep + more;
            let is_free = |freed: u64| SPACE.available + freed >= keep + more;
            #[allow(clippy::single_match_else, reason = "both arms matter equally")]
            match plan_eviction(stock, &limits, more) {
                Ok(EvictionPlan { names, from_reserve, to_reserve, is_history_kept }) => {
                    let sum = |files: &[&StoredFile]| files.iter().map(|file| file.allocated).sum::<u64>();
                    let freed = sum(&may_go[..names.len()]);
                    prop_assert!(may_go[..names.len()].iter().zip(&names).all(|(file, name)| file.name == *name));
                    prop_assert!(from_reserve <= reserve && fits(freed, from_reserve));
                    prop_assert!(has_space(freed + from_reserve));
                    let is_kept = kept > 0 && SPACE.available + freed + from_reserve < keep + more + to_reserve;
                    prop_assert_eq!(is_history_kept, is_kept);
                    prop_assert!(is_history_kept || is_free(freed + from_reserve));
                    prop_assert!(!is_history_kept || kept > 0);
                    let before_last = names.len().checked_sub(1).map(|last| sum(&may_go[..last]));
                    if let Some(before_last) = before_last {
                        let was_enough = fits(before_last, from_reserve) && is_free(before_last + from_reserve);
                        prop_assert!(!was_enough, "one file fewer would do");
                    }
                    let is_for_quota = before_last.is_some_and(|freed| !fits(freed, from_reserve));
                    let left = all - freed;
                    prop_assert!(names.is_empty() || is_for_quota || left >= kept, "{} of {}", left, kept);
                    // Other programs get no space that the protected history needs.
                    let ours = left + reserve - from_reserve + to_reserve + more;
                    let enough = with_spare.min(all + reserve).min(bytes);
                    prop_assert!(kept == 0 || ours >= enough, "{} of {}", ours, enough);
                    prop_assert!(to_reserve == 0 || ours <= bytes && to_reserve <= freed);
                }
                Err(Shortage::History { kept: limit, .. }) => {
                    prop_assert!(limit == kept && kept > 0 && !has_space(reserve));
                }
                Err(_) => {
                    let freed: u64 = may_go.iter().map(|file| file.allocated).sum();
                    prop_assert!(!fits(freed, reserve) || !is_free(freed + reserve));
                }
            }
        }

        // Proves that a reserve is either left unchanged or limited to its share of the free space.
        // The reserve is released to other programs only if at least as much space is free.
        #[test]
        fn reserves_are_bounded(
            (held, reserve, available) in (0_u64..1000, 0_u64..500, 0_u64..2000),
            (bytes, keep, least) in (0_u64..1000, 0_u64..500, 0_u64..1000),
        ) {
            let files = [file(1, held, 0)];
            let space = DiskSpace { total: 3000, available };
            let stock = DirectorySnapshot { reserve, space, ..stock(&files) };
            let limits = RetentionLimits { bytes, min_free: MinFree::Bytes(keep), min_bytes: least, ..RetentionLimits::NONE };
            let length = reserve_length(stock, &limits);
            let lacking = Protection::of(&stock, &limits).with_spare.saturating_sub(held);
            prop_assert!(length <= bytes.saturating_sub(held));
            prop_assert!(length <= reserve.max((available + reserve).saturating_sub(keep) / RESERVE_SHARE));
            prop_assert!(length <= reserve.max(lacking));
            let is_tight = available.saturating_sub(keep) < reserve;
            let least_length = if is_tight && least > 0 { reserve } else { reserve.min(lacking) };
            prop_assert!(length + least / RESERVE_STEPS + 1 >= least_length.min(bytes.saturating_sub(held)));
        }
    }
}
