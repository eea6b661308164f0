//! Time ranges in which the activity of the CPUs is not completely known.

/// Maximum number of ranges kept. After the limit is reached, the last range of a kind is extended
/// to include each further range of this kind.
const STRETCHES_MAX: usize = 256;

/// Reason why the activity in a range is not completely known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StretchKind {
    /// No sample covers the range.
    NotRecorded,
    /// The kernel dropped events, so the displayed activity may be wrong.
    Lost,
    /// The switches exceeded the CPU budget of the source, so the source recorded no switches.
    Stopped,
}

/// A time range in which the activity of the CPUs is not completely known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stretch {
    pub(crate) kind: StretchKind,
    /// Start in wall nanoseconds.
    pub(crate) begin_ns: i64,
    /// End in wall nanoseconds.
    pub(crate) end_ns: i64,
    /// Number of events that the kernel dropped.
    pub(crate) lost: u64,
}

/// A list of ranges in time order. Ranges of one kind whose distance is less than a pixel are
/// merged.
#[derive(Debug, Clone)]
pub(super) struct Stretches {
    pixel_ns: i64,
    found: Vec<Stretch>,
}

impl Stretches {
    pub(super) fn new(pixel_ns: i64) -> Self {
        Self { pixel_ns, found: Vec::new() }
    }

    pub(super) fn add(&mut self, next: Stretch) {
        let is_full = self.found.len() >= STRETCHES_MAX;
        let pixel_ns = self.pixel_ns;
        // Ranges of different kinds overlap, so the last range of the same kind is extended.
        let before = self.found.iter_mut().rev().find(|stretch| stretch.kind == next.kind);
        if let Some(before) = before
            && (is_full || next.begin_ns.saturating_sub(before.end_ns) < pixel_ns)
        {
            before.end_ns = before.end_ns.max(next.end_ns);
            before.lost = before.lost.saturating_add(next.lost);
        } else if !is_full {
            self.found.push(next);
        }
    }

    /// Returns the ranges that overlap a time range.
    pub(super) fn within(&self, from_ns: i64, to_ns: i64) -> Vec<Stretch> {
        let overlaps = |stretch: &&Stretch| stretch.begin_ns < to_ns && stretch.end_ns > from_ns;
        self.found.iter().filter(overlaps).copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that close ranges of a kind are merged and that their counts are added. The number of
    // ranges is bounded without leaving out any time.
    #[test]
    fn near_stretches_are_one() {
        let stretch = |kind, begin_ns, end_ns| Stretch { kind, begin_ns, end_ns, lost: 1 };
        let mut stretches = Stretches::new(10);
        stretches.add(stretch(StretchKind::Lost, 0, 5));
        stretches.add(stretch(StretchKind::Stopped, 5, 6));
        stretches.add(stretch(StretchKind::Lost, 9, 20));
        assert_eq!(stretches.within(0, 1)[0], Stretch { lost: 2, ..stretch(StretchKind::Lost, 0, 20) });
        assert_eq!(stretches.within(20, 30), vec![]);
        for at in 1..1000 {
            stretches.add(stretch(StretchKind::Stopped, at * 100, at * 100 + 1));
        }
        let all = stretches.within(0, i64::MAX);
        assert_eq!(all.len(), STRETCHES_MAX);
        assert!(all.iter().any(|stretch| stretch.end_ns == 99_901));
    }
}
