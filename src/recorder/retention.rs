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
    pub const NONE: Self = Self { bytes: u64::MAX, age_ns: u64::MAX, keep_free: KeepFree::Bytes(0) };
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

/// Why there is no room although everything that may go would be gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shortage {
    Bytes { limit: u64, held: u64, more: u64 },
    Free { limit: u64, available: u64, more: u64 },
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes { limit, held, more } => write!(
                f,
                "retain_bytes allows {limit} bytes; files that are not sealed segments hold {held}, and {more} more are \
                 wanted: raise retain_bytes or remove what does not belong into the directory"
            ),
            Self::Free { limit, available, more } => write!(
                f,
                "keep_free keeps {limit} bytes of the file system free; without any sealed segment {available} were \
                 available, and {more} more are wanted: make room on it or lower keep_free"
            ),
        }
    }
}

impl std::error::Error for Shortage {}

/// The files that go so that `more` bytes find room, and those that are too old: oldest first, a segment's files together.
pub(super) fn choose(
    files: &[StoredFile],
    limits: &RetentionLimits,
    space: Space,
    more: u64,
) -> Result<Vec<String>, Shortage> {
    let mut removable: Vec<_> =
        files.iter().filter_map(|file| Some((StoredFile::order(&file.removable?), file))).collect();
    removable
        .sort_by(|(order, file), (other, other_file)| (order, &file.name).cmp(&(other, &other_file.name)));
    let keep_free = limits.keep_free.bytes(space.total);
    let mut held = files.iter().fold(0_u64, |sum, file| sum.saturating_add(file.allocated));
    let mut available = space.available;
    let mut names = Vec::new();
    let has_room = |held: u64, available: u64| {
        held.saturating_add(more) <= limits.bytes && available >= keep_free.saturating_add(more)
    };
    let mut last_removed = None;
    for (order, file) in removable {
        let is_old = file.age_ns.is_some_and(|age| age > limits.age_ns);
        // What was set aside of a segment goes with it.
        if has_room(held, available) && !is_old && last_removed != Some(order) {
            continue;
        }
        last_removed = Some(order);
        held = held.saturating_sub(file.allocated);
        available = available.saturating_add(file.allocated);
        names.push(file.name.clone());
    }
    if held.saturating_add(more) > limits.bytes {
        return Err(Shortage::Bytes { limit: limits.bytes, held, more });
    }
    if available < keep_free.saturating_add(more) {
        return Err(Shortage::Free { limit: keep_free, available, more });
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::segment::State;

    fn file(number: u64, allocated: u64, age_ns: u64) -> StoredFile {
        let name = SegmentName { number, created_s: 0, run_id: 1, state: State::Sealed };
        StoredFile { name: format!("{number}"), allocated, removable: Some(name), age_ns: Some(age_ns) }
    }

    const SPACE: Space = Space { total: 1000, available: 500 };

    // Goal: the oldest go first, no more than needed, and nothing that may not. Method: by hand.
    #[test]
    fn the_oldest_go_first() {
        let active = StoredFile { removable: None, ..file(9, 100, 0) };
        let files = [file(3, 100, 10), active, file(1, 100, 30), file(2, 100, 20)];
        let limits = RetentionLimits { bytes: 400, age_ns: 25, keep_free: KeepFree::Bytes(0) };
        let chosen = |more, limits| choose(&files, &limits, SPACE, more);
        assert_eq!(chosen(0, limits), Ok(vec!["1".to_owned()]), "too old");
        let limits = RetentionLimits { age_ns: 100, ..limits };
        assert_eq!(chosen(0, limits), Ok(vec![]));
        assert_eq!(chosen(1, limits), Ok(vec!["1".to_owned()]));
        assert_eq!(chosen(200, limits), Ok(vec!["1".to_owned(), "2".to_owned()]));
        assert_eq!(chosen(301, limits), Err(Shortage::Bytes { limit: 400, held: 100, more: 301 }));
        let limits = RetentionLimits { keep_free: KeepFree::BasisPoints(5500), ..RetentionLimits::NONE };
        assert_eq!(chosen(0, limits), Ok(vec!["1".to_owned()]), "550 free of 1000");
        let limits = RetentionLimits { keep_free: KeepFree::Bytes(801), ..RetentionLimits::NONE };
        assert_eq!(chosen(0, limits), Err(Shortage::Free { limit: 801, available: 800, more: 0 }));
    }

    // Goal: what was set aside of a segment goes with it. Method: a segment with a tail beside it.
    #[test]
    fn set_aside_files_go_with_their_segment() {
        let cut = StoredFile { name: "1.cut".into(), ..file(1, 5, 0) };
        let limits = RetentionLimits { bytes: 205, ..RetentionLimits::NONE };
        let chosen = choose(&[cut, file(2, 100, 0), file(1, 100, 0)], &limits, SPACE, 50);
        assert_eq!(chosen, Ok(vec!["1".to_owned(), "1.cut".to_owned()]));
    }

    proptest! {
        // Goal: what is chosen is enough, is a row of the oldest, and is never a file that may not go. Method: random files
        // and limits.
        #[test]
        fn choices_are_enough(
            sizes in proptest::collection::vec((0_u64..100, any::<bool>()), 0..20),
            bytes in 0_u64..1000,
            keep in 0_u64..1000,
            more in 0_u64..200,
        ) {
            let files: Vec<StoredFile> = sizes
                .iter()
                .zip(0..)
                .map(|((allocated, removable), number)| StoredFile {
                    removable: file(number, 0, 0).removable.filter(|_| *removable),
                    ..file(number, *allocated, 0)
                })
                .collect();
            let limits = RetentionLimits { bytes, age_ns: u64::MAX, keep_free: KeepFree::Bytes(keep) };
            let held: u64 = files.iter().map(|file| file.allocated).sum();
            let may_go: Vec<&StoredFile> = files.iter().filter(|file| file.removable.is_some()).collect();
            #[allow(clippy::single_match_else, reason = "both sides say as much")]
            match choose(&files, &limits, SPACE, more) {
                Ok(names) => {
                    let freed: u64 = may_go[..names.len()].iter().map(|file| file.allocated).sum();
                    prop_assert!(may_go[..names.len()].iter().zip(&names).all(|(file, name)| file.name == *name));
                    prop_assert!(held - freed + more <= bytes && SPACE.available + freed >= keep + more);
                    if let Some(last) = names.len().checked_sub(1) {
                        let but_one = freed - may_go[last].allocated;
                        prop_assert!(held - but_one + more > bytes || SPACE.available + but_one < keep + more);
                    }
                }
                Err(_) => {
                    let freed: u64 = may_go.iter().map(|file| file.allocated).sum();
                    prop_assert!(held - freed + more > bytes || SPACE.available + freed < keep + more);
                }
            }
        }
    }
}
