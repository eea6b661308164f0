//! Which files go when there is no room or they are too old: a decision on names, sizes and ages. No clock, no file.

use std::fmt;

use crate::os::storage::Space;
use crate::segment::SegmentName;

/// What the data directory may hold. Whatever it cannot keep, the oldest segments go first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetentionLimits {
    /// Allocated bytes of everything in the directory, the open segment, temporaries and set-aside files included.
    pub bytes: u64,
    /// Age at which a segment goes, in nanoseconds.
    pub age_ns: u64,
    /// What stays free of the file system.
    pub keep_free: KeepFree,
    /// So many bytes, the newest, are never given up for `keep_free`: below it each new byte takes the place of the oldest.
    pub least: u64,
}

/// What stays free of a file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeepFree {
    /// So many bytes.
    Bytes(u64),
    /// So many hundredths of a percent of all there is, at most 10,000.
    BasisPoints(u16),
}

impl RetentionLimits {
    /// Keeps everything.
    pub const NONE: Self =
        Self { bytes: u64::MAX, age_ns: u64::MAX, keep_free: KeepFree::Bytes(0), least: 0 };
}

impl KeepFree {
    pub(super) fn bytes(self, total: u64) -> u64 {
        match self {
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
    /// Whether it is a segment, open or closed, or lies beside one.
    pub(super) is_ours: bool,
    /// Its segment, if it may go: a sealed one, or what was set aside of one. No other file is ever removed.
    pub(super) removable: Option<SegmentName>,
    /// Since its segment was begun; none if that is not known.
    pub(super) age_ns: Option<u64>,
}

impl StoredFile {
    /// The order in which segments go. Numbers grow within a directory; equal ones are of different runs, brought together from elsewhere.
    pub(super) fn order(segment: &SegmentName) -> (u64, i64, u64) {
        (segment.number, segment.created_s, segment.run_id)
    }
}

/// What is known of the data directory and its file system.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stock<'a> {
    /// All files but the reserve.
    pub(super) files: &'a [StoredFile],
    /// Bytes that the reserve holds.
    pub(super) reserve: u64,
    pub(super) space: Space,
}

/// What makes room.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Choice {
    /// Files that go, the oldest first.
    pub(super) names: Vec<String>,
    /// Bytes that the reserve gives up.
    pub(super) from_reserve: u64,
}

/// Why there is no room although everything that may go would be gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shortage {
    Bytes { limit: u64, held: u64, more: u64 },
    Free { limit: u64, available: u64, more: u64 },
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let wanted =
            |more: &u64| if *more > 0 { format!(", and {more} more are wanted") } else { String::new() };
        match self {
            Self::Bytes { limit, held, more } => write!(
                f,
                "retain_bytes allows {limit} bytes; files that are not closed segments, or cannot be removed, hold {held}{}: raise \
                 retain_bytes or remove what does not belong into the directory",
                wanted(more)
            ),
            Self::Free { limit, available, more } => write!(
                f,
                "keep_free keeps {limit} bytes of the file system free; without any closed segment {available} were \
                 available{}: free space on it or lower keep_free",
                wanted(more)
            ),
        }
    }
}

impl std::error::Error for Shortage {}

/// Sums that change while room is made for `more` bytes.
#[derive(Debug, Clone, Copy)]
struct Sums {
    limits: RetentionLimits,
    keep_free: u64,
    more: u64,
    held: u64, // without the reserve
    reserve: u64,
    available: u64,
    freed: u64, // of what was held or reserved
}

impl Sums {
    /// Bytes missing of `retain_bytes`.
    fn over_cap(&self) -> u64 {
        (self.held.saturating_add(self.reserve).saturating_add(self.more)).saturating_sub(self.limits.bytes)
    }

    /// Bytes missing of free space. Within `least` it is enough that as much was freed as is wanted: others lose nothing by it, and gain nothing.
    fn over_free(&self) -> u64 {
        let missing = self.keep_free.saturating_add(self.more).saturating_sub(self.available);
        let is_least = self.limits.least > 0 && self.held.saturating_add(self.more) <= self.limits.least;
        if is_least { missing.min(self.more.saturating_sub(self.freed)) } else { missing }
    }

    fn free(&mut self, bytes: u64) {
        self.available = self.available.saturating_add(bytes);
        self.freed = self.freed.saturating_add(bytes);
    }
}

/// What goes so that `more` bytes find room, and the files that are too old: first what is reserved, then the oldest files, a segment's together.
pub(super) fn choose(stock: Stock<'_>, limits: &RetentionLimits, more: u64) -> Result<Choice, Shortage> {
    let Stock { files, reserve, space } = stock;
    let mut removable: Vec<_> =
        files.iter().filter_map(|file| Some((StoredFile::order(&file.removable?), file))).collect();
    removable
        .sort_by(|(order, file), (other, other_file)| (order, &file.name).cmp(&(other, &other_file.name)));
    let mut sums = Sums {
        limits: *limits,
        keep_free: limits.keep_free.bytes(space.total),
        more,
        held: held(files),
        reserve,
        available: space.available,
        freed: 0,
    };
    let from_reserve = reserve.min(sums.over_cap().max(sums.over_free()));
    sums.reserve -= from_reserve;
    sums.free(from_reserve);
    let mut names = Vec::new();
    let mut last_removed = None;
    for (order, file) in removable {
        let is_old = file.age_ns.is_some_and(|age| age > limits.age_ns);
        let has_room = sums.over_cap() == 0 && sums.over_free() == 0;
        // What was set aside of a segment goes with it.
        if has_room && !is_old && last_removed != Some(order) {
            continue;
        }
        last_removed = Some(order);
        sums.held = sums.held.saturating_sub(file.allocated);
        sums.free(file.allocated);
        names.push(file.name.clone());
    }
    if sums.over_cap() > 0 {
        let held = sums.held.saturating_add(sums.reserve);
        return Err(Shortage::Bytes { limit: limits.bytes, held, more });
    }
    if sums.over_free() > 0 {
        return Err(Shortage::Free { limit: sums.keep_free, available: sums.available, more });
    }
    Ok(Choice { names, from_reserve })
}

fn held(files: &[StoredFile]) -> u64 {
    files.iter().fold(0, |sum, file| sum.saturating_add(file.allocated))
}

/// How much the segments may hold, together with the reserve, as things stand: what `retain_bytes` leaves beside other files, and what the file system has
/// left to give.
pub(super) fn usable(stock: Stock<'_>, limits: &RetentionLimits) -> u64 {
    let Stock { files, reserve, space } = stock;
    let ours =
        files.iter().filter(|file| file.is_ours).fold(0_u64, |sum, file| sum.saturating_add(file.allocated));
    let others = held(files).saturating_sub(ours);
    let free = space.available.saturating_sub(limits.keep_free.bytes(space.total));
    limits.bytes.saturating_sub(others).min(ours.saturating_add(reserve).saturating_add(free))
}

/// Most of what is free that may be reserved: others must be able to go on, and so must the recorder if it is they who need it.
const RESERVE_SHARE: u64 = 4;
/// A reserve that differs by less than this part of `least` stays as it is: changing it each second is work for the file system.
const RESERVE_STEPS: u64 = 64;

/// How long the reserve should be: what the history lacks of `least`, and no more than a quarter of what is free and may be taken. Once reserved it
/// shrinks only as the history grows.
pub(super) fn reserve_length(stock: Stock<'_>, limits: &RetentionLimits) -> u64 {
    let Stock { files, reserve, space } = stock;
    let wanted = limits.least.min(limits.bytes).saturating_sub(held(files));
    let free = space.available.saturating_add(reserve).saturating_sub(limits.keep_free.bytes(space.total));
    let target = wanted.min(reserve.max(free / RESERVE_SHARE));
    let is_near = target.abs_diff(reserve) < (limits.least / RESERVE_STEPS).max(1);
    if is_near && target > 0 { reserve.min(wanted) } else { target }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::segment::State;

    fn file(number: u64, allocated: u64, age_ns: u64) -> StoredFile {
        let name = SegmentName { number, created_s: 0, run_id: 1, state: State::Sealed };
        let name_text = format!("{number}");
        StoredFile { name: name_text, allocated, is_ours: true, removable: Some(name), age_ns: Some(age_ns) }
    }

    const SPACE: Space = Space { total: 1000, available: 500 };

    fn stock(files: &[StoredFile]) -> Stock<'_> {
        Stock { files, reserve: 0, space: SPACE }
    }

    fn go(names: &[&str]) -> Choice {
        Choice { names: names.iter().map(|name| (*name).to_owned()).collect(), from_reserve: 0 }
    }

    // Goal: the oldest go first, no more than needed, and nothing that may not. Method: by hand.
    #[test]
    fn the_oldest_go_first() {
        let active = StoredFile { removable: None, ..file(9, 100, 0) };
        let files = [file(3, 100, 10), active, file(1, 100, 30), file(2, 100, 20)];
        let limits = RetentionLimits { bytes: 400, age_ns: 25, ..RetentionLimits::NONE };
        let chosen = |more, limits| choose(stock(&files), &limits, more);
        assert_eq!(chosen(0, limits), Ok(go(&["1"])), "too old");
        let limits = RetentionLimits { age_ns: 100, ..limits };
        assert_eq!(chosen(0, limits), Ok(go(&[])));
        assert_eq!(chosen(1, limits), Ok(go(&["1"])));
        assert_eq!(chosen(200, limits), Ok(go(&["1", "2"])));
        assert_eq!(chosen(301, limits), Err(Shortage::Bytes { limit: 400, held: 100, more: 301 }));
        let limits = RetentionLimits { keep_free: KeepFree::BasisPoints(5500), ..RetentionLimits::NONE };
        assert_eq!(chosen(0, limits), Ok(go(&["1"])), "550 free of 1000");
        let limits = RetentionLimits { keep_free: KeepFree::Bytes(801), ..RetentionLimits::NONE };
        assert_eq!(chosen(0, limits), Err(Shortage::Free { limit: 801, available: 800, more: 0 }));
    }

    // Goal: what was set aside of a segment goes with it. Method: a segment with a tail beside it.
    #[test]
    fn set_aside_files_go_with_their_segment() {
        let cut = StoredFile { name: "1.cut".into(), ..file(1, 5, 0) };
        let limits = RetentionLimits { bytes: 205, ..RetentionLimits::NONE };
        let chosen = choose(stock(&[cut, file(2, 100, 0), file(1, 100, 0)]), &limits, 50);
        assert_eq!(chosen, Ok(go(&["1", "1.cut"])));
    }

    // Goal: what is reserved gives way first; below the least that is kept the oldest make room for the newest and for nobody else. Method: a file system
    // that others have filled, by hand.
    #[test]
    fn the_least_is_kept_from_others() {
        let files = [file(1, 100, 0), file(2, 100, 0), file(3, 100, 0)];
        let full = Space { total: 1000, available: 0 };
        let limits = RetentionLimits { keep_free: KeepFree::Bytes(50), least: 300, ..RetentionLimits::NONE };
        let chosen = |reserve, more, least| {
            choose(Stock { files: &files, reserve, space: full }, &RetentionLimits { least, ..limits }, more)
        };
        assert_eq!(chosen(0, 0, 300), Ok(go(&[])), "others have filled it: nothing goes for them");
        assert_eq!(chosen(0, 30, 330), Ok(go(&["1"])), "as much as comes");
        assert_eq!(chosen(40, 30, 330), Ok(Choice { names: vec![], from_reserve: 30 }));
        assert_eq!(chosen(0, 0, 250), Ok(go(&["1"])), "what is beyond it is given up");
        assert_eq!(chosen(0, 0, 0), Ok(go(&["1"])));
        assert_eq!(chosen(0, 60, 0), Ok(go(&["1", "2"])));
        let reserve = |reserve, available| {
            let space = Space { total: 1000, available };
            reserve_length(Stock { files: &files, reserve, space }, &RetentionLimits { least: 400, ..limits })
        };
        assert_eq!([reserve(0, 850), reserve(0, 250), reserve(60, 0), reserve(180, 0)], [100, 50, 60, 100]);
    }

    // Goal: the space that segments may use is what the nearer limit leaves beside other files. Method: each limit, by hand.
    #[test]
    fn what_is_usable_is_the_nearer_limit() {
        let notes = StoredFile { is_ours: false, removable: None, ..file(9, 70, 0) };
        let files = [file(1, 100, 0), notes];
        let of = |bytes, keep| {
            let limits = RetentionLimits { bytes, keep_free: KeepFree::Bytes(keep), ..RetentionLimits::NONE };
            usable(Stock { reserve: 20, ..stock(&files) }, &limits)
        };
        assert_eq!([of(u64::MAX, 0), of(u64::MAX, 450), of(u64::MAX, 900), of(300, 0)], [620, 170, 120, 230]);
    }

    proptest! {
        // Goal: what is chosen is enough, is no more than needed, is a row of the oldest, and is never a file that may not go; nothing is given up to
        // others below the least. Method: random files and limits.
        #[test]
        fn choices_are_enough(
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
            let limits = RetentionLimits { bytes, age_ns: u64::MAX, keep_free: KeepFree::Bytes(keep), least };
            let all: u64 = files.iter().map(|file| file.allocated).sum();
            let may_go: Vec<&StoredFile> = files.iter().filter(|file| file.removable.is_some()).collect();
            let is_enough = |from_files: u64, from_reserve: u64| {
                let (held, freed) = (all - from_files, from_files + from_reserve);
                let is_free = SPACE.available + freed >= keep + more;
                let is_least = least > 0 && held + more <= least && freed >= more;
                held + reserve - from_reserve + more <= bytes && (is_free || is_least)
            };
            #[allow(clippy::single_match_else, reason = "both sides say as much")]
            match choose(Stock { reserve, ..stock(&files) }, &limits, more) {
                Ok(Choice { names, from_reserve }) => {
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
                        prop_assert!(but_last <= needed, "the oldest went for others");
                    }
                }
                Err(_) => {
                    let freed: u64 = may_go.iter().map(|file| file.allocated).sum();
                    prop_assert!(!is_enough(freed, reserve));
                }
            }
        }

        // Goal: a reserve takes no more than its share of what is free, no more than is lacking, and is not given up to others. Method: random stocks.
        #[test]
        fn reserves_are_modest(
            (held, reserve, available) in (0_u64..1000, 0_u64..500, 0_u64..2000),
            (bytes, keep, least) in (0_u64..1000, 0_u64..500, 0_u64..1000),
        ) {
            let files = [file(1, held, 0)];
            let stock = Stock { files: &files, reserve, space: Space { total: 3000, available } };
            let limits = RetentionLimits { bytes, keep_free: KeepFree::Bytes(keep), least, ..RetentionLimits::NONE };
            let length = reserve_length(stock, &limits);
            prop_assert!(length <= least.min(bytes).saturating_sub(held));
            prop_assert!(length <= reserve.max((available + reserve).saturating_sub(keep) / RESERVE_SHARE));
            let lacking = least.min(bytes).saturating_sub(held);
            prop_assert!(length + least / RESERVE_STEPS + 1 >= reserve.min(lacking));
        }
    }
}
