//! The list of segments that retention has removed although older segments of their run remain.
//! Their samples count as removed, not as missing. The list is a file in the directory of the
//! segments.
//!
//! Each line contains a run and the first and last of consecutive segment numbers, as in
//! `0000000000000abc-0000000042-0000000045`. Other lines are skipped.

use std::collections::BTreeMap;
use std::{fmt, io};

use crate::storage::Storage;

/// The name of the file.
pub const REMOVED_NAME: &str = "flatcap.removed";

/// Maximum size of the list, in bytes: more than 400,000 ranges of numbers.
const LIST_BYTES_MAX: u64 = 16 << 20;

/// Segments by run and number.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RemovedSegments {
    runs: BTreeMap<u64, Vec<(u64, u64)>>, // first and last, in order, with numbers between them
}

impl RemovedSegments {
    /// Reads the list of a directory. Returns an empty list if the file is missing.
    ///
    /// # Errors
    /// Errors of the storage.
    pub fn read(storage: &dyn Storage) -> io::Result<Self> {
        let file = match storage.open(REMOVED_NAME) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            opened => opened?,
        };
        let length = file.length()?.min(LIST_BYTES_MAX);
        let mut text = vec![0; usize::try_from(length).unwrap_or_default()];
        let count = file.read_at(&mut text, 0)?;
        text.truncate(count);
        Ok(Self::parse(&String::from_utf8_lossy(&text)))
    }

    /// Reads the lines of a file.
    pub fn parse(text: &str) -> Self {
        let mut removed = Self::default();
        for (run_id, first, last) in text.lines().filter_map(parse_line) {
            removed.add(run_id, first, last);
        }
        removed
    }

    /// Adds segments with consecutive numbers of a run.
    pub fn add(&mut self, run_id: u64, first: u64, last: u64) {
        let ranges = self.runs.entry(run_id).or_default();
        // The ranges that overlap or adjoin this one.
        let begin = ranges.partition_point(|(_, end)| end.saturating_add(1) < first);
        let end = ranges.partition_point(|(start, _)| *start <= last.saturating_add(1));
        let old = ranges.get(begin..end).unwrap_or_default();
        let first = old.first().map_or(first, |(start, _)| first.min(*start));
        let last = old.last().map_or(last, |(_, end)| last.max(*end));
        ranges.splice(begin..end, [(first, last)]);
    }

    /// Takes a segment off the list.
    pub fn remove(&mut self, run_id: u64, number: u64) {
        let Some(ranges) = self.runs.get_mut(&run_id) else { return };
        let Some(at) = ranges.iter().position(|(first, last)| (*first..=*last).contains(&number)) else {
            return;
        };
        let (first, last) = ranges.remove(at);
        if number < last {
            ranges.insert(at, (number + 1, last));
        }
        if first < number {
            ranges.insert(at, (first, number - 1));
        }
        if ranges.is_empty() {
            self.runs.remove(&run_id);
        }
    }

    /// Adds the segments of another list.
    pub fn extend(&mut self, other: &Self) {
        for (run_id, ranges) in &other.runs {
            for (first, last) in ranges {
                self.add(*run_id, *first, *last);
            }
        }
    }

    /// Keeps only the runs that still have a segment.
    pub fn retain_runs(&mut self, is_there: impl Fn(u64) -> bool) {
        self.runs.retain(|run_id, _| is_there(*run_id));
    }

    /// Returns the number of the last listed segment of a run below `number`.
    pub fn last_before(&self, run_id: u64, number: u64) -> Option<u64> {
        let ranges = self.runs.get(&run_id)?;
        let below = ranges.iter().filter(|(first, _)| *first < number);
        below.map(|(_, last)| (*last).min(number.saturating_sub(1))).max()
    }

    /// Returns whether there are segment numbers between these two of a run, and all of them are
    /// listed.
    pub fn covers(&self, run_id: u64, after: u64, before: u64) -> bool {
        let Some(first) = after.checked_add(1).filter(|first| *first < before) else { return false };
        let ranges = self.runs.get(&run_id).map(Vec::as_slice).unwrap_or_default();
        ranges.iter().any(|(from, to)| *from <= first && before - 1 <= *to)
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
    use super::*;

    // Proves that lists are read back as printed, that neighbours are joined, that incomplete lines
    // are skipped, and which missing segments a list explains.
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
