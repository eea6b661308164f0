//! Aggregates over the samples of a time window. An aggregate takes amortized constant time per
//! sample, and rounding errors do not accumulate.

use std::collections::VecDeque;

use flatcap_query::quantile_rank;

/// An aggregate. The aggregate of a window can be computed from the aggregates of any two parts of
/// the window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fold {
    Sum,
    Smallest,
    Largest,
}

impl Fold {
    const fn start(self) -> f64 {
        match self {
            Self::Sum => 0.0,
            Self::Smallest => f64::INFINITY,
            Self::Largest => f64::NEG_INFINITY,
        }
    }

    fn combine(self, one: f64, other: f64) -> f64 {
        match self {
            Self::Sum => one + other,
            Self::Smallest => one.min(other),
            Self::Largest => one.max(other),
        }
    }
}

/// The samples of a window as two stacks. One stack has the older samples. Each older sample is
/// stored with the aggregate of this sample and all younger samples in the same stack. The other
/// stack has the younger samples.
#[derive(Debug, Clone)]
// A running sum from which old samples are subtracted would accumulate rounding errors.
pub(crate) struct FoldedWindow {
    fold: Fold,
    older: Vec<(u64, f64)>, // the oldest last; value: the aggregate from here to the stack's bottom
    younger: Vec<(u64, f64)>, // the youngest last; value: as observed
    of_younger: f64,
}

impl FoldedWindow {
    pub(crate) fn new(fold: Fold) -> Self {
        Self { fold, older: Vec::new(), younger: Vec::new(), of_younger: fold.start() }
    }

    /// Adds a sample.
    pub(crate) fn push(&mut self, mono_ns: u64, value: f64) {
        self.younger.push((mono_ns, value));
        self.of_younger = self.fold.combine(self.of_younger, value);
    }

    /// Removes the samples at or before this time.
    pub(crate) fn remove_until(&mut self, mono_ns: u64) {
        loop {
            while self.older.pop_if(|(time, _)| *time <= mono_ns).is_some() {}
            // The older stack is refilled only when it is empty, so each sample moves only once.
            // This keeps the time per sample constant on average.
            if !self.older.is_empty() || self.younger.first().is_none_or(|(time, _)| *time > mono_ns) {
                return;
            }
            let mut aggregate = self.fold.start();
            while let Some((time, value)) = self.younger.pop() {
                aggregate = self.fold.combine(aggregate, value);
                self.older.push((time, aggregate));
            }
            self.of_younger = self.fold.start();
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.older.len() + self.younger.len()
    }

    /// Returns the aggregate of all samples. Without samples, a sum is 0, and a minimum or maximum
    /// is infinite.
    pub(crate) fn aggregate(&self) -> f64 {
        let of_older = self.older.last().map_or(self.fold.start(), |(_, aggregate)| *aggregate);
        self.fold.combine(of_older, self.of_younger)
    }
}

/// The samples of a window, ordered both by time and by value.
#[derive(Debug, Clone, Default)]
pub(crate) struct SortedWindow {
    samples: VecDeque<(u64, f64)>,
    sorted: Vec<f64>,
}

impl SortedWindow {
    /// Adds a sample.
    pub(crate) fn push(&mut self, mono_ns: u64, value: f64) {
        self.samples.push_back((mono_ns, value));
        let at = self.sorted.partition_point(|other| other.total_cmp(&value).is_lt());
        self.sorted.insert(at, value);
    }

    /// Removes the samples at or before this time.
    pub(crate) fn remove_until(&mut self, mono_ns: u64) {
        while let Some((_, value)) = self.samples.front().copied().filter(|(time, _)| *time <= mono_ns) {
            self.samples.pop_front();
            // The sample is found by its value, because each insertion changes the positions.
            let at = self.sorted.partition_point(|other| other.total_cmp(&value).is_lt());
            if at < self.sorted.len() {
                self.sorted.remove(at);
            }
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.samples.len()
    }

    /// Returns the smallest value such that at least the fraction `share` of the samples is less
    /// than or equal to it. Returns `None` if there are no samples.
    pub(crate) fn quantile(&self, share: f64) -> Option<f64> {
        self.sorted.get(quantile_rank(share, self.sorted.len()) - 1).copied()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        // Proves that the aggregates of a window equal the aggregates computed from all of its
        // samples, for any times and values.
        #[test]
        fn aggregates_are_those_of_the_samples(
            samples in prop::collection::vec((0..4_u64, -50..50_i32), 1..200),
            window in 1..20_u64,
            percent in 1..=100_u32,
        ) {
            let mut folded = [Fold::Sum, Fold::Smallest, Fold::Largest].map(FoldedWindow::new);
            let mut sorted = SortedWindow::default();
            let (mut now, mut all) = (100, Vec::new());
            for (step, value) in samples {
                now += step;
                let value = f64::from(value);
                all.push((now, value));
                for window_of in &mut folded {
                    window_of.push(now, value);
                    window_of.remove_until(now - window);
                }
                sorted.push(now, value);
                sorted.remove_until(now - window);
                let mut inside: Vec<f64> =
                    all.iter().filter(|(time, _)| *time > now - window).map(|(_, value)| *value).collect();
                inside.sort_by(f64::total_cmp);
                let expected = [inside.iter().sum(), inside[0], inside[inside.len() - 1]];
                for (window_of, expected) in folded.iter().zip(expected) {
                    prop_assert!((window_of.aggregate() - expected).abs() < 1e-9);
                    prop_assert_eq!(window_of.len(), inside.len());
                }
                let rank = (inside.len() * percent as usize).div_ceil(100).max(1);
                prop_assert_eq!(sorted.quantile(f64::from(percent) / 100.0), Some(inside[rank - 1]));
            }
        }
    }
}
