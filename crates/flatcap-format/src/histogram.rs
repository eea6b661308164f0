//! Latency histograms, as a segment's footer stores them.

use hdrhistogram::Histogram;

/// Longest latency that is resolved, in nanoseconds: one minute. Longer ones count as this one.
pub const LATENCY_NS_MAX: u64 = 60_000_000_000;
/// Decimal digits of a recorded latency: an error of at most 1 %, and 15 KiB per histogram.
const SIGNIFICANT_DIGITS: u8 = 2;

/// Latencies of a run or of a segment, added up from intervals.
#[derive(Debug, Clone)]
pub struct TotalHistogram(Histogram<u64>);

impl Default for TotalHistogram {
    fn default() -> Self {
        Self(histogram())
    }
}

impl TotalHistogram {
    /// Memory of a histogram, in bytes: its counters have 64 bits.
    pub const BYTES: usize = 3_840 * size_of::<u64>();

    /// Adds `count` latencies of `value_ns`, from a bucket of another histogram.
    pub fn add_bucket(&mut self, value_ns: u64, count: u64) {
        self.0.saturating_record_n(value_ns, count);
    }

    /// Returns the non-empty buckets: highest value in nanoseconds, count.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> {
        self.0.iter_recorded().map(|bucket| (bucket.value_iterated_to(), bucket.count_since_last_iteration()))
    }

    /// Returns the total in four numbers.
    pub fn summary(&self) -> LatencySummary {
        LatencySummary::of(&self.0)
    }
}

/// A distribution in four numbers. All 0 when nothing was measured.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LatencySummary {
    /// Number of latencies.
    pub count: u64,
    /// The median, in nanoseconds.
    pub p50_ns: u64,
    /// The 99th percentile, in nanoseconds.
    pub p99_ns: u64,
    /// The longest latency, in nanoseconds.
    pub max_ns: u64,
}

impl LatencySummary {
    fn of(histogram: &Histogram<u64>) -> Self {
        Self {
            count: histogram.len(),
            p50_ns: histogram.value_at_quantile(0.5),
            p99_ns: histogram.value_at_quantile(0.99),
            max_ns: histogram.max(),
        }
    }
}

fn histogram() -> Histogram<u64> {
    let mut histogram = Histogram::new_with_bounds(1, LATENCY_NS_MAX, SIGNIFICANT_DIGITS)
        .expect("1 <= LATENCY_NS_MAX / 2 and 0 <= SIGNIFICANT_DIGITS <= 5");
    // Write to it once, so that its pages are mapped now and not at some later latency.
    histogram.reset();
    histogram
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that a histogram takes the stated memory.
    #[test]
    fn a_histogram_has_its_stated_size() {
        assert_eq!(TotalHistogram::default().0.distinct_values() * size_of::<u64>(), TotalHistogram::BYTES);
    }
}
