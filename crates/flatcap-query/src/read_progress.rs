//! Computes the wall time up to which the results of a query were read.

use super::results::QueryItem;

/// Tracks the progress of a query by observing the items that the query returns.
#[allow(clippy::struct_field_names, reason = "the unit belongs to each name")]
#[derive(Debug)]
pub struct ReadProgress {
    /// Wall time minus monotonic time at the last sample.
    offset_ns: i64,
    /// Wall time of the last sample.
    newest_ns: i64,
    complete_ns: i64,
}

impl Default for ReadProgress {
    fn default() -> Self {
        Self { offset_ns: 0, newest_ns: i64::MIN, complete_ns: i64::MIN }
    }
}

impl ReadProgress {
    /// Adds the next item.
    pub fn observe(&mut self, item: &QueryItem) {
        match item {
            // The clock may have been set back since the previous run, so the progress begins
            // again.
            QueryItem::Run(run) => (self.offset_ns, self.complete_ns) = (run.wall_offset_ns, i64::MIN),
            QueryItem::Batch(batch) => {
                if let Some((wall_ns, mono_ns)) = batch.times.wall_ns.last().zip(batch.times.mono_ns.last()) {
                    self.offset_ns = wall_ns.wrapping_sub_unsigned(*mono_ns);
                    self.newest_ns = self.newest_ns.max(*wall_ns);
                }
            }
            // The run has ended, and all following samples belong to a later run.
            QueryItem::Complete(u64::MAX) => self.complete_ns = self.newest_ns,
            QueryItem::Complete(mono_ns) => self.complete_ns = self.wall_ns(*mono_ns),
            QueryItem::Gap(..) | QueryItem::Marker(_) | QueryItem::Notice(_) => {}
        }
    }

    /// Returns a wall time. All rows before this wall time were read.
    pub fn complete_ns(&self) -> i64 {
        self.complete_ns
    }

    /// Converts a monotonic time of the run to wall time.
    pub(super) fn wall_ns(&self, mono_ns: u64) -> i64 {
        self.offset_ns.saturating_add_unsigned(mono_ns)
    }
}
