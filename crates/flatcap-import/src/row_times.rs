//! The row times of a file, or the statistics times of a host, with their order, steps and gaps.

use flatcap_os::clock::NS_PER_S;
use serde::Serialize;

use crate::findings::{FindingKind, ImportFindings, Tally};

/// Maximum number of different step lengths that are counted.
const STEPS_MAX: usize = 64;
/// Maximum number of long steps that are listed.
const LONGEST_MAX: usize = 5;
/// Minimum length of a gap, as a multiple of the usual step.
const GAP_STEPS: i64 = 3;
/// The options that are named in the finding about sorted rows.
const SORTED_OPTION: &str = "--order time, --order file to keep their order, or --key COLUMN if the rows of each \
                             device are in a block";

/// The order in which rows are imported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RowOrder {
    /// The order of the file. A backward step of the time then means that the clock was set back.
    File,
    /// Sorted by time.
    Time,
}

/// A long step between two rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(super) struct LongStep {
    /// The line of the row after the step.
    pub(super) line: u64,
    pub(super) step_ns: i64,
}

/// The times of the rows of a file.
#[derive(Debug, Default)]
pub(super) struct RowTimes {
    first_line: Option<u64>,
    last_ns: Option<i64>,
    before_last_ns: Option<i64>,
    pub(super) earliest_ns: Option<i64>,
    pub(super) latest_ns: Option<i64>,
    rises: Tally,
    falls: Tally,
    /// Number of backward steps of at least one second.
    long_falls: u64,
    /// The longest backward step, and its line.
    longest_fall: (i64, u64),
    /// Whether a backward step is due to a misplaced row, and not to a clock that was set back.
    is_row_misplaced: bool,
    latest_before_fall_ns: Option<i64>,
    steps: Vec<(i64, u64)>,
    longest: Vec<LongStep>,
}

impl RowTimes {
    /// Adds the next row.
    pub(super) fn add(&mut self, ns: i64, line: u64) {
        if let Some(latest) = self.latest_before_fall_ns.take() {
            self.is_row_misplaced |= ns >= latest;
        }
        if let Some(last) = self.last_ns {
            if ns > last {
                self.rises.add(line);
            }
            if ns < last {
                self.falls.add(line);
                let fall = last.saturating_sub(ns);
                self.long_falls += u64::from(fall >= NS_PER_S.cast_signed());
                self.longest_fall = self.longest_fall.max((fall, line));
                self.is_row_misplaced |= self.before_last_ns.is_some_and(|before| ns >= before);
                self.latest_before_fall_ns = Some(last);
            }
            self.add_step(ns.saturating_sub(last).saturating_abs(), line);
        }
        self.before_last_ns = self.last_ns.replace(ns);
        self.first_line.get_or_insert(line);
        self.earliest_ns = Some(self.earliest_ns.map_or(ns, |own| own.min(ns)));
        self.latest_ns = Some(self.latest_ns.map_or(ns, |own| own.max(ns)));
    }

    fn add_step(&mut self, step_ns: i64, line: u64) {
        if step_ns == 0 {
            return;
        }
        if let Some((_, count)) = self.steps.iter_mut().find(|(own, _)| *own == step_ns) {
            *count += 1;
        } else if self.steps.len() < STEPS_MAX {
            self.steps.push((step_ns, 1));
        } else {
            // By the algorithm of Misra and Gries, a frequent step keeps a positive count.
            self.steps.iter_mut().for_each(|(_, count)| *count -= 1);
            self.steps.retain(|(_, count)| *count > 0);
        }
        let is_short = self.longest.last().is_some_and(|last| last.step_ns >= step_ns);
        if is_short && self.longest.len() == LONGEST_MAX {
            return;
        }
        self.longest.push(LongStep { line, step_ns });
        self.longest.sort_by_key(|long| std::cmp::Reverse(long.step_ns));
        self.longest.truncate(LONGEST_MAX);
    }

    /// Returns the line of the first row, or 0 if there are no rows.
    pub(super) fn first_line(&self) -> u64 {
        self.first_line.unwrap_or(0)
    }

    /// Returns whether the newest row is first, so that most steps go backward. A clock that was
    /// set back causes only one backward step.
    pub(super) fn are_newest_first(&self) -> bool {
        self.long_falls > self.rises.count
    }

    /// Returns the usual step between two rows, in nanoseconds.
    pub(super) fn usual_step_ns(&self) -> Option<i64> {
        self.steps
            .iter()
            .max_by_key(|(step, count)| (*count, std::cmp::Reverse(*step)))
            .map(|(step, _)| *step)
    }

    /// Returns the longest steps that are gaps, in the order of the file.
    pub(super) fn gaps(&self) -> Vec<LongStep> {
        let Some(usual) = self.usual_step_ns() else { return Vec::new() };
        let is_gap = |long: &&LongStep| long.step_ns >= usual.saturating_mul(GAP_STEPS);
        let mut gaps: Vec<LongStep> = self.longest.iter().filter(is_gap).copied().collect();
        gaps.sort_by_key(|long| long.line);
        gaps
    }

    /// Adds a finding for backward steps in rows that keep the order of the file. `option` names
    /// the option that changes the order.
    pub(super) fn report_kept(&self, findings: &mut ImportFindings, option: Option<&str>) {
        let what = "the time falls here; taken for a clock that was set back";
        findings.add(FindingKind::Order, self.falls, what, option.map(str::to_owned));
    }

    /// Returns the order in which the rows are imported, and adds a finding if this order is an
    /// assumption.
    pub(super) fn order(&self, stated: Option<RowOrder>, findings: &mut ImportFindings) -> RowOrder {
        if let Some(stated) = stated {
            return stated;
        }
        let Tally { count, .. } = self.falls;
        if count == 0 {
            return RowOrder::File;
        }
        if self.are_newest_first() {
            let what = "the newest row is first, but the time rises here; the rows are sorted by time";
            findings.add(FindingKind::Order, self.rises, what, Some(SORTED_OPTION.to_owned()));
            return RowOrder::Time;
        }
        let fall = jiff::SignedDuration::from_nanos(self.longest_fall.0);
        if count == 1 && self.long_falls == 1 && !self.is_row_misplaced {
            let what = format!("the time falls by {fall:#}; taken for a clock that was set back");
            let option = "--order file, or --order time to sort the rows".to_owned();
            findings.add(FindingKind::Order, self.falls, what, Some(option));
            return RowOrder::File;
        }
        let what = format!("the time falls, by up to {fall:#}; the rows are sorted by time");
        findings.add(FindingKind::Order, self.falls, what, Some(SORTED_OPTION.to_owned()));
        RowOrder::Time
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn order(seconds: &[i64]) -> (RowOrder, Vec<u64>) {
        let mut times = RowTimes::default();
        seconds.iter().zip(2..).for_each(|(at, line)| times.add(at * 1_000_000_000, line));
        let mut findings = ImportFindings::new(Path::new("a"));
        let order = times.order(None, &mut findings);
        (order, findings.into_sorted().iter().map(|found| found.line).collect())
    }

    // Proves that a clock that was set back, unordered rows, and one misplaced row are
    // distinguished, and reported with their line. Rows with the newest first are sorted without a
    // finding, unless the file has several blocks of such rows.
    #[test]
    fn falls_of_the_time_are_told_apart() {
        assert_eq!(order(&[1, 2, 2, 3]), (RowOrder::File, vec![]));
        assert_eq!(order(&[100, 101, 102, 50, 51, 52]), (RowOrder::File, vec![5]));
        assert_eq!(order(&[1, 5, 2, 8, 3, 9]), (RowOrder::Time, vec![4]));
        assert_eq!(order(&[100, 101, 0, 102, 103]), (RowOrder::Time, vec![4]), "a row from 1970");
        assert_eq!(order(&[100, 101, 900, 102, 103]), (RowOrder::Time, vec![5]), "a row of the future");
        assert_eq!(order(&[5, 4, 3, 2]), (RowOrder::Time, vec![]));
        assert_eq!(order(&[5, 4, 4, 3, 5, 4, 3, 5, 4, 3]), (RowOrder::Time, vec![6]), "blocks of devices");
    }

    // Proves that the most frequent step is found, and that each long step is returned as a gap
    // with the line of the row after the step.
    #[test]
    fn gaps_are_long_steps() {
        let mut times = RowTimes::default();
        let mut at = 0;
        for row in 0..1000_i64 {
            at += if row == 500 { 60 } else { 10 + i64::from(row % 7 == 0) * row };
            times.add(at, row.cast_unsigned());
        }
        assert_eq!(times.usual_step_ns(), Some(10));
        let gaps: Vec<u64> = times.gaps().iter().map(|gap| gap.line).collect();
        assert_eq!(gaps, [966, 973, 980, 987, 994]);
    }
}
