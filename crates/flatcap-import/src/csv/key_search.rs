//! Finds the key column, whose values identify devices. The values of a key column differ between
//! rows with the same time, and recur at the next time.

use std::collections::{BTreeMap, BTreeSet};

use super::cells::Cells;
use super::csv_type::{NumberClass, number_class};
use super::numeral::split_unit;
use super::titles::unit_of_title;
use crate::findings::Tally;

/// Maximum number of columns that are examined. Key columns are among the first columns.
const COLUMNS_MAX: usize = 64;
/// Maximum number of devices of a recognized key column.
const DEVICES_MAX: usize = 256;
/// Minimum number of points in time with several rows for each error in a key column. In a key
/// column, each error requires at least this many points in time with several rows. An error is a
/// point in time at which a value is repeated or empty, or a value that occurs only once in the
/// file.
const TIMES_PER_FAULT: u64 = 10;
/// Maximum number of different values in a numeric key column, as a multiple of the largest number
/// of rows at one time. A numeric column with more different values contains measurements, such as
/// percentages.
const NUMBERS_PER_ROW: usize = 8;
/// Maximum number of columns that the search combines into pairs.
const PAIRED_MAX: usize = 5;
/// Separator between the two cells of a pair of columns. The byte 0xFF does not occur in UTF-8.
const PART_SEPARATOR: [u8; 1] = [0xFF];
/// Usual titles of key columns, reduced to letters and digits.
const KEY_NAMES: [&str; 32] = [
    "index",
    "id",
    "device",
    "dev",
    "devicename",
    "deviceid",
    "host",
    "hostname",
    "node",
    "name",
    "instance",
    "cpu",
    "core",
    "gpu",
    "gpuid",
    "gpuindex",
    "iface",
    "interface",
    "disk",
    "sensor",
    "sensorid",
    "channel",
    "port",
    "uuid",
    "serial",
    "pid",
    "key",
    "tag",
    "metric",
    "mount",
    "partition",
    "unit",
];

/// A column, or a pair of columns, that may be the key.
#[derive(Debug)]
struct KeyCandidate {
    /// The positions of the column or the pair.
    positions: Vec<usize>,
    /// Whether the titles are usual for key columns.
    is_named: bool,
    values: BTreeMap<Vec<u8>, u64>,
    /// The values in the rows of the current time.
    current: BTreeSet<Vec<u8>>,
    /// Number of points in time with a repeated or empty value.
    faults: u64,
    is_repeated: bool,
    is_possible: bool,
}

/// A search for the key column.
#[derive(Debug, Default)]
pub(super) struct KeySearch {
    candidates: Vec<KeyCandidate>,
    last_time: Option<String>,
    /// Number of rows at the current time. The field `most_rows` is the largest number of rows with
    /// the same time.
    rows: u64,
    most_rows: u64,
    /// Tally of the points in time with several rows. The tally's line is the line of the second
    /// row at the first such point in time.
    several: Tally,
    times: u64,
}

impl KeySearch {
    /// Starts a search in these columns. Each column is given by its position and its title.
    pub(super) fn new<'t>(columns: impl Iterator<Item = (usize, &'t str)>) -> Self {
        let columns: Vec<(usize, bool)> =
            columns.take(COLUMNS_MAX).map(|(position, title)| (position, is_key_name(title))).collect();
        let candidate = |positions, is_named| KeyCandidate {
            positions,
            is_named,
            values: BTreeMap::new(),
            current: BTreeSet::new(),
            faults: 0,
            is_repeated: false,
            is_possible: true,
        };
        let mut candidates: Vec<KeyCandidate> =
            columns.iter().map(|(position, is_named)| candidate(vec![*position], *is_named)).collect();
        // Some devices are identified only by two columns, such as host and disk.
        let named: Vec<usize> =
            columns.iter().filter(|(_, is_named)| *is_named).map(|(position, _)| *position).collect();
        for (at, one) in named.iter().enumerate().take(PAIRED_MAX) {
            let others = named.iter().take(PAIRED_MAX).skip(at + 1);
            candidates.extend(others.map(|other| candidate(vec![*one, *other], true)));
        }
        Self { candidates, ..Self::default() }
    }

    /// Adds a row.
    pub(super) fn add(&mut self, time: &str, cells: &Cells, line: u64) {
        if self.last_time.as_deref() == Some(time) {
            self.rows += 1;
            if self.rows == 2 {
                self.several.add(line);
            }
        } else {
            self.end_time();
            self.last_time = Some(time.to_owned());
            (self.rows, self.times) = (1, self.times + 1);
        }
        self.most_rows = self.most_rows.max(self.rows);
        for candidate in self.candidates.iter_mut().filter(|candidate| candidate.is_possible) {
            let parts = candidate.positions.iter().map(|at| cells.get(*at).unwrap_or_default().trim_ascii());
            let parts: Vec<&[u8]> = parts.collect();
            let is_measured = parts.iter().any(|part| {
                let text = String::from_utf8_lossy(part);
                let has_unit = !split_unit(&text).1.is_empty();
                has_unit || matches!(number_class(&text), NumberClass::Number([false, false, true]))
            });
            let cell = parts.join(PART_SEPARATOR.as_slice());
            if parts.iter().any(|part| part.is_empty()) {
                candidate.is_repeated = true;
                continue;
            }
            *candidate.values.entry(cell.clone()).or_default() += 1;
            candidate.is_repeated |= !candidate.current.insert(cell);
            candidate.is_possible = candidate.values.len() <= DEVICES_MAX && !is_measured;
            if !candidate.is_possible {
                candidate.values.clear();
                candidate.current.clear();
            }
        }
    }

    fn end_time(&mut self) {
        for candidate in &mut self.candidates {
            candidate.faults += u64::from(std::mem::take(&mut candidate.is_repeated));
            candidate.current.clear();
        }
    }

    /// Returns the key columns and a tally of the points in time with several rows. Returns `None`
    /// if the rows do not belong to several devices.
    pub(super) fn finish(mut self) -> Option<(Vec<usize>, Tally)> {
        self.end_time();
        // If only a few points in time have several rows, the reason may be a clock with a low
        // resolution.
        if self.several.count < 2 || self.several.count * 2 <= self.times {
            return None;
        }
        let several = self.several;
        let is_key = |candidate: &&KeyCandidate| {
            let singles = candidate.values.values().filter(|count| **count == 1).count() as u64;
            candidate.is_possible
                && candidate.values.len() as u64 > singles + 1
                && (candidate.faults + singles) * TIMES_PER_FAULT <= several.count
        };
        let most_numbers =
            usize::try_from(self.most_rows).unwrap_or(usize::MAX).saturating_mul(NUMBERS_PER_ROW);
        let is_text = |candidate: &KeyCandidate| {
            candidate.values.keys().all(|value| {
                let text = String::from_utf8_lossy(value);
                number_class(&text) == NumberClass::Other
            })
        };
        let keys = self.candidates.iter().filter(is_key);
        let keys = keys.filter(|candidate| {
            is_text(candidate) || (candidate.is_named && candidate.values.len() <= most_numbers)
        });
        let rank = |candidate: &&KeyCandidate| {
            (candidate.positions.len(), !candidate.is_named, candidate.values.len())
        };
        keys.min_by_key(rank).map(|candidate| (candidate.positions.clone(), several))
    }
}

/// Returns whether a title is usual for key columns. A column with a unit contains measurements, so
/// it is not a key column.
pub(super) fn is_key_name(title: &str) -> bool {
    if title.contains('%') || unit_of_title(title).is_some() {
        return false;
    }
    let plain: String = title.chars().filter(char::is_ascii_alphanumeric).collect();
    KEY_NAMES.iter().any(|name| plain.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(titles: &[&str], lines: &[&str]) -> Option<(Vec<usize>, u64)> {
        let mut search = KeySearch::new(titles.iter().copied().enumerate().skip(1));
        for (line, number) in lines.iter().zip(2..) {
            let cells = super::super::cells::split_line(line.as_bytes(), b',').unwrap();
            search.add(&cells.text(0), &cells, number);
        }
        search.finish().map(|(columns, of)| (columns, of.line))
    }

    // Proves that the key column is found even if one row has an unknown, repeated or empty device.
    #[test]
    fn one_row_changes_no_key() {
        let mut rows: Vec<String> = (0..40).map(|at| format!("{},{},5", at / 2, at % 2)).collect();
        let find = |rows: &[String]| {
            found(&["time", "gpu", "v"], &rows.iter().map(String::as_str).collect::<Vec<_>>())
        };
        assert_eq!(find(&rows), Some((vec![1], 3)));
        for bad in ["10,7,5", "10,,5", "10,0,5"] {
            rows[21] = bad.to_owned();
            assert_eq!(find(&rows), Some((vec![1], 3)), "{bad}");
        }
    }

    // Proves that key columns are found by title or by text values. Tables without devices, and
    // tables whose values repeat by chance, have no key column.
    #[test]
    fn columns_of_devices_are_found() {
        let titles = ["time", "index", "load", "name"];
        let rows = ["1,0,50,a", "1,1,90,a", "2,0,50,a", "2,1,90,b"];
        assert_eq!(found(&titles, &rows), Some((vec![1], 3)));
        assert_eq!(
            found(&["time", "v", "x"], &["1,5,sda", "1,6,sdb", "2,5,sda", "2,5,sdb"]),
            Some((vec![2], 3))
        );
        // The loads of two hosts are not key columns. Either their cells or their title have a
        // percent sign, or they have too many different values.
        let hosts = |title: &str, cell: &dyn Fn(usize) -> String| {
            let rows: Vec<String> = (0..120).map(|row| format!("{},{}", row / 2, cell(row))).collect();
            found(&["time", title], &rows.iter().map(String::as_str).collect::<Vec<_>>())
        };
        assert_eq!(hosts("cpu", &|row| format!("{} %", row % 8)), None);
        assert_eq!(hosts("cpu %", &|row| (row % 8).to_string()), None);
        assert_eq!(hosts("cpu [%]", &|row| (row % 8).to_string()), None);
        assert_eq!(hosts("cpu", &|row| (row * 7 % 40).to_string()), None);
        assert_eq!(hosts("cpu", &|row| (row % 2).to_string()), Some((vec![1], 3)));
        assert_eq!(
            found(&["time", "v", "w"], &["1,5,1", "1,6,1", "2,5,2", "2,6,2"]),
            None,
            "no name, no text"
        );
        assert_eq!(found(&titles, &["1,0,1,a", "2,0,2,a", "2,1,3,a", "3,0,4,a", "4,0,1,a"]), None);
        assert_eq!(found(&titles, &["1,0,1,a", "1,1,3,b", "2,2,4,c", "2,3,1,d"]), None, "never again");
    }
}
