//! Sums up the counts of a source of a run over all segments of the run.

use std::collections::BTreeMap;

use flatcap_format::segment::FooterTotals;

/// The counts of one source of one run, summed up over all segments.
pub(super) struct SourceSum {
    pub(super) name: String,
    pub(super) root: String,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) period_ns: u64,
    pub(super) totals: FooterTotals,
    /// `missed` and `incomplete`, summed up over the segments whose footers count them.
    pub(super) missed: Option<u64>,
    pub(super) incomplete: Option<u64>,
    /// Whether any segment with samples counts missed ticks and incomplete samples, and whether any
    /// segment with samples does not.
    pub(super) is_counted: (bool, bool),
    pub(super) compressed: (u64, u64), // bytes in compressed segments: raw, stored
}

impl SourceSum {
    /// Adds the counts of one segment. `counts_ticks` specifies whether the recorder that wrote the
    /// segment also sealed it. Only then does the footer count missed ticks. Footers of snapshots,
    /// imports and recovered segments do not count them.
    pub(super) fn add(&mut self, totals: &FooterTotals, counts_ticks: bool, counts_incomplete: bool) {
        self.totals.add(totals);
        let is_known = counts_ticks && self.period_ns > 0;
        let add = |sum: &mut Option<u64>, count: u64| *sum = Some(sum.unwrap_or(0).saturating_add(count));
        if is_known || totals.missed > 0 {
            add(&mut self.missed, totals.missed);
        }
        if is_known || counts_incomplete || totals.incomplete > 0 {
            add(&mut self.incomplete, totals.incomplete);
        }
        if totals.recorded > 0 {
            self.is_counted.0 |= is_known;
            self.is_counted.1 |= !is_known;
        }
    }
}
