//! Lists the segments that retention has removed although older segments of their run remain. The
//! samples of these segments are counted as removed, not as missing. The list is a file in the
//! directory of the segments.
//!
//! Each line contains the id of a run, and the first and last number of a range of segment numbers,
//! for example `0000000000000abc-0000000042-0000000045`. Readers skip lines that do not have this
//! form.

use std::collections::BTreeMap;
use std::io::Read;
use std::{fmt, io};

use crate::storage::Storage;

/// Name of the file that contains the list.
pub const REMOVED_NAME: &str = "flatcap.removed";

/// Maximum number of bytes of the list that readers read.
const LIST_BYTES_MAX: usize = 1 << 20;
/// Maximum length of a line, in bytes. A line has a run id of 16 digits, two numbers of up to 20
/// digits, and three other characters.
const LINE_BYTES_MAX: usize = 16 + 2 * 20 + 3;
/// Maximum number of ranges in a written list. Readers can read all of a list with this many
/// ranges.
const RANGES_MAX: usize = LIST_BYTES_MAX / LINE_BYTES_MAX;

/// Removed segments, as ranges of segment numbers for each run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RemovedSegments {
    runs: BTreeMap<u64, BTreeMap<u64, u64>>, // last by first number of ranges that do not touch
}

impl RemovedSegments {
    /// Reads the list of a directory. Returns an empty list if the file is missing.
    ///
    /// # Errors
    /// Returns any error of the storage.
    pub fn read(storage: &dyn Storage) -> io::Result<Self> {
        let file = match storage.open(REMOVED_NAME) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            opened => opened?,
        };
        let length = usize::try_from(file.length()?).unwrap_or(usize::MAX);
        let mut text = vec![0; length.min(LIST_BYTES_MAX)];
        let count = file.read_at(&mut text, 0)?;
        text.truncate(count);
        Ok(Self::parse(&String::from_utf8_lossy(&text)))
    }

    /// Reads the list in a file.
    ///
    /// # Errors
    /// Returns any error of reading the file.
    pub fn read_from(file: impl Read) -> io::Result<Self> {
        let mut text = Vec::new();
        file.take(LIST_BYTES_MAX as u64).read_to_end(&mut text)?;
        Ok(Self::parse(&String::from_utf8_lossy(&text)))
    }

    /// Reads the lines of a file. Skips a last line that is not complete.
    pub fn parse(text: &str) -> Self {
        let mut removed = Self::default();
        let lines = text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n'));
        for (run_id, first, last) in lines.filter_map(parse_line) {
            removed.add(run_id, first, last);
        }
        removed
    }

    /// Adds the segments of a run with the segment numbers from `first` to `last`.
    pub fn add(&mut self, run_id: u64, mut first: u64, mut last: u64) {
        let ranges = self.runs.entry(run_id).or_default();
        // Merges all ranges that overlap the new range or are directly next to it.
        while let Some((&from, &to)) = ranges.range(..=last.saturating_add(1)).next_back() {
            if to.saturating_add(1) < first {
                break;
            }
            (first, last) = (first.min(from), last.max(to));
            ranges.remove(&from);
        }
        ranges.insert(first, last);
    }

    /// Removes a segment from the list.
    pub fn remove(&mut self, run_id: u64, number: u64) {
        let Some(ranges) = self.runs.get_mut(&run_id) else { return };
        let Some((&first, &last)) = ranges.range(..=number).next_back().filter(|(_, last)| number <= **last)
        else {
            return;
        };
        ranges.remove(&first);
        if number < last {
            ranges.insert(number + 1, last);
        }
        if first < number {
            ranges.insert(first, number - 1);
        }
        if ranges.is_empty() {
            self.runs.remove(&run_id);
        }
    }

    /// Adds the segments of another list.
    pub(crate) fn extend(&mut self, other: &Self) {
        for (run_id, ranges) in &other.runs {
            for (first, last) in ranges {
                self.add(*run_id, *first, *last);
            }
        }
    }

    /// Keeps only the runs that still have a segment, that is, for which `is_there` returns true.
    pub fn retain_runs(&mut self, is_there: impl Fn(u64) -> bool) {
        self.runs.retain(|run_id, _| is_there(*run_id));
    }

    /// Joins neighboring ranges until the list is so short that readers read all of it. `stored`
    /// returns how many segments of a run exist between two segment numbers. Ranges are joined
    /// first if all segments between them exist. Joining such ranges does no harm, because a listed
    /// segment that exists is not counted as removed. Returns false if whole runs had to be left
    /// out.
    pub fn shorten(&mut self, stored: impl Fn(u64, u64, u64) -> u64) -> bool {
        let mut excess = self.count().saturating_sub(RANGES_MAX);
        if excess == 0 {
            return true;
        }
        let mut between = Vec::new();
        for (run_id, ranges) in &self.runs {
            for ((_, before), (after, _)) in ranges.iter().zip(ranges.iter().skip(1)) {
                let length = after - before - 1;
                let missing = length.saturating_sub(stored(*run_id, before + 1, after - 1));
                between.push((missing, length, *run_id, before + 1, after - 1));
            }
        }
        between.sort_unstable();
        for (_, _, run_id, first, last) in between.into_iter().take(excess) {
            self.add(run_id, first, last);
        }
        excess = self.count().saturating_sub(RANGES_MAX);
        for _ in 0..excess {
            self.runs.pop_first();
        }
        excess == 0
    }

    fn count(&self) -> usize {
        self.runs.values().map(BTreeMap::len).sum()
    }

    /// Returns the highest segment number below `number` that is listed for a run.
    pub(crate) fn last_before(&self, run_id: u64, number: u64) -> Option<u64> {
        let (_, last) = self.runs.get(&run_id)?.range(..number).next_back()?;
        Some((*last).min(number.saturating_sub(1)))
    }

    /// Returns whether there is a segment number between `after` and `before`, and the list
    /// contains all such numbers of the run.
    pub fn covers(&self, run_id: u64, after: u64, before: u64) -> bool {
        let Some(first) = after.checked_add(1).filter(|first| *first < before) else { return false };
        let range = self.runs.get(&run_id).and_then(|ranges| ranges.range(..=first).next_back());
        range.is_some_and(|(_, last)| before - 1 <= *last)
    }
}

impl fmt::Display for RemovedSegments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (run_id, ranges) in &self.runs {
            for (first, last) in ranges {
                writeln!(f, "{run_id:016x}-{first:010}-{last:010}")?;
            }
        }
        Ok(())
    }
}

/// Reads a line. Returns `None` for an incomplete or malformed line.
fn parse_line(line: &str) -> Option<(u64, u64, u64)> {
    let mut parts = line.split('-');
    let (run, first, last) = (parts.next()?, parts.next()?, parts.next()?);
    let is_whole = run.len() == 16 && first.len() >= 10 && last.len() >= 10 && parts.next().is_none();
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let line = (u64::from_str_radix(run, 16).ok()?, first.parse().ok()?, last.parse().ok()?);
    (is_whole && [run, first, last].into_iter().all(is_number) && line.1 <= line.2).then_some(line)
}

#[cfg(test)]
mod tests {
    use std::io::IoSlice;

    use proptest::prelude::*;

    use super::*;
    use crate::testing::simulated::SimulatedStorage;

    type Numbers = std::collections::BTreeSet<(u64, u64)>;

    fn numbers(removed: &RemovedSegments) -> Numbers {
        let ranges =
            removed.runs.iter().flat_map(|(run, ranges)| ranges.iter().map(move |range| (*run, range)));
        ranges.flat_map(|(run, (first, last))| (*first..=*last).map(move |number| (run, number))).collect()
    }

    proptest! {
        // Proves that a list contains the same numbers as a set, that it has the minimum number of
        // ranges, and that it is read back as it was printed. Method: random changes to a list and
        // to a set.
        #[test]
        fn a_list_is_a_set_of_numbers(
            changes in prop::collection::vec((0..3_u64, 0..40_u64, 0..6_u64, any::<bool>()), 0..60),
        ) {
            let (mut removed, mut model) = (RemovedSegments::default(), Numbers::new());
            for (run, first, more, is_added) in changes {
                if is_added {
                    removed.add(run, first, first + more);
                    model.extend((first..=first + more).map(|number| (run, number)));
                } else {
                    removed.remove(run, first);
                    model.remove(&(run, first));
                }
                prop_assert_eq!(&numbers(&removed), &model);
                let begins = |&&(run, number): &&(u64, u64)| number == 0 || !model.contains(&(run, number - 1));
                prop_assert_eq!(removed.count(), model.iter().filter(begins).count());
            }
            for (run, number) in (0..3).flat_map(|run| (0..50).map(move |number| (run, number))) {
                let last = model.range((run, 0)..(run, number)).next_back().map(|(_, number)| *number);
                prop_assert_eq!(removed.last_before(run, number), last);
                for before in number..50 {
                    let mut between = number + 1..before;
                    let are_listed = !between.is_empty() && between.all(|number| model.contains(&(run, number)));
                    prop_assert_eq!(removed.covers(run, number, before), are_listed);
                }
            }
            prop_assert_eq!(RemovedSegments::parse(&removed.to_string()), removed);
        }
    }

    // Proves that readers read all of a list that is written, for any number of ranges. Ranges with
    // existing segments between them are joined first, then ranges with the fewest other numbers
    // between them. Runs are left out only if each run has one range. A second shortening does not
    // change the list.
    #[test]
    fn a_shortened_list_is_read_to_its_end() {
        let written = |removed: &RemovedSegments| {
            let storage = SimulatedStorage::new(0);
            let text = removed.to_string();
            let file = storage.create(REMOVED_NAME).unwrap();
            file.append_all(&mut [IoSlice::new(text.as_bytes())]).unwrap();
            assert_eq!(RemovedSegments::read_from(text.as_bytes()).unwrap(), *removed);
            RemovedSegments::read(&storage).unwrap()
        };
        let large = u64::MAX - 1_000_000;
        let mut removed = RemovedSegments::default();
        // The segments between the ranges are stored, except some that were deleted by hand.
        let stored =
            |_: u64, first: u64, last: u64| (first..=last).filter(|number| number % 100 != 98).count() as u64;
        for number in 0..40_000 {
            removed.add(u64::MAX, large + 2 * number, large + 2 * number);
        }
        let before = removed.clone();
        assert!(removed.shorten(stored));
        assert_eq!((removed.count(), written(&removed)), (RANGES_MAX, removed.clone()));
        let added: Vec<u64> =
            numbers(&removed).difference(&numbers(&before)).map(|(_, number)| *number).collect();
        assert_eq!(added.len(), 40_000 - RANGES_MAX);
        assert!(added.iter().all(|number| number % 100 != 98), "someone else removed these");
        let mut again = removed.clone();
        for number in &added {
            again.remove(u64::MAX, *number);
        }
        assert_eq!(again, before);
        assert!(again.shorten(stored) && again == removed);
        let mut runs = RemovedSegments::default();
        (0..20_000).for_each(|run| runs.add(run, 7, 9));
        assert!(!runs.shorten(stored));
        assert_eq!((runs.count(), written(&runs)), (RANGES_MAX, runs.clone()));
    }

    // Proves that lists are read back as they were printed, that neighbouring ranges are joined,
    // and that incomplete lines are skipped. Also proves that a list explains exactly the missing
    // segments in it.
    #[test]
    fn lists_are_read_back() {
        let mut removed = RemovedSegments::default();
        for number in [7, 3, 4, 9] {
            removed.add(0xabc, number, number);
        }
        let text = removed.to_string();
        assert!(text.starts_with("0000000000000abc-0000000003-0000000004\n"), "{text}");
        assert_eq!(RemovedSegments::parse(&text), removed);
        assert_eq!(RemovedSegments::parse(&text[..text.len() - 4]).to_string().lines().count(), 2);
        assert_eq!(
            RemovedSegments::parse("\nx-1-2\n0000000000000abc-0000000009-0000000003"),
            RemovedSegments::default()
        );
        assert!(removed.covers(0xabc, 2, 5) && removed.covers(0xabc, 6, 8) && removed.covers(0xabc, 3, 5));
        assert!(!removed.covers(0xabc, 2, 6) && !removed.covers(0xabc, 3, 4) && !removed.covers(1, 2, 5));
        assert_eq!(
            [removed.last_before(0xabc, 9), removed.last_before(0xabc, 4), removed.last_before(0xabc, 3)],
            [Some(7), Some(3), None]
        );
        removed.add(0xabc, 10, 12);
        for number in [11, 3, 5, 9] {
            removed.remove(0xabc, number);
        }
        removed.remove(1, 4);
        let mut left = RemovedSegments::default();
        for number in [4, 7, 10, 12] {
            left.add(0xabc, number, number);
        }
        assert_eq!(removed, left);
        for number in [4, 7, 10, 12] {
            removed.remove(0xabc, number);
        }
        assert_eq!(removed, RemovedSegments::default());
    }
}
