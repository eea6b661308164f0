//! The period of a source.

/// The period of a source, derived from its samples.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct SourcePeriod {
    last_ns: Option<u64>,
    /// The shortest time between two successive samples of the last batch. Other samples may be
    /// further apart because of losses.
    pub(super) period_ns: u64,
}

impl SourcePeriod {
    /// Updates the period from the samples of a batch.
    pub(super) fn add(&mut self, mono_ns: &[u64]) {
        let times = self.last_ns.iter().chain(mono_ns);
        let least = times.clone().zip(times.skip(1)).map(|(one, next)| next.saturating_sub(*one)).min();
        self.period_ns = least.unwrap_or(self.period_ns);
        self.last_ns = mono_ns.last().copied().or(self.last_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that the period of a source is known from its first two samples on, and that losses
    // and batches of one sample do not change it.
    #[test]
    fn a_period_is_that_of_the_closest_samples() {
        let mut period = SourcePeriod::default();
        period.add(&[10]);
        assert_eq!(period.period_ns, 0);
        period.add(&[110, 410, 510]);
        assert_eq!(period.period_ns, 100);
        period.add(&[610]);
        assert_eq!((period.period_ns, period.last_ns), (100, Some(610)));
        period.add(&[]);
        assert_eq!(period.period_ns, 100);
    }
}
