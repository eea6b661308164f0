//! Latency histograms and their percentiles. A segment's footer stores such histograms.

use hdrhistogram::Histogram;

/// Maximum latency that a histogram distinguishes, in nanoseconds. The maximum is one minute.
/// Longer latencies count as one minute.
pub const LATENCY_NS_MAX: u64 = 60_000_000_000;
/// Number of significant decimal digits of a recorded latency. With two digits, the error is at
/// most 1 %, and a histogram takes 15 KiB.
const SIGNIFICANT_DIGITS: u8 = 2;

/// Latencies of a run or of a segment, added up from intervals. The default value takes no memory
/// before the first recorded latency. Sources whose samples are pushed by applications have no
/// latencies, so they need no such memory.
#[derive(Debug, Clone, Default)]
pub struct TotalHistogram(Option<Box<Histogram<u64>>>);

impl TotalHistogram {
    /// Memory of a histogram with latencies, in bytes. The counters of the histogram have 64 bits.
    pub const BYTES: usize = 3_840 * size_of::<u64>();

    /// Creates an empty histogram. The memory is allocated at once, so that recording does not
    /// allocate later.
    pub fn allocated() -> Self {
        Self(Some(Box::new(histogram())))
    }

    /// Adds `count` latencies of `value_ns` nanoseconds each, from a bucket of another histogram.
    pub fn add_bucket(&mut self, value_ns: u64, count: u64) {
        self.0.get_or_insert_with(|| Box::new(histogram())).saturating_record_n(value_ns, count);
    }

    /// Iterates over the non-empty buckets. Each item is the highest value of a bucket in
    /// nanoseconds, and the bucket's count.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> {
        let buckets = self.0.iter().flat_map(|histogram| histogram.iter_recorded());
        buckets.map(|bucket| (bucket.value_iterated_to(), bucket.count_since_last_iteration()))
    }

    /// Returns the count, the median, the 99th percentile and the maximum of all latencies.
    pub fn summary(&self) -> LatencySummary {
        self.0.as_deref().map(LatencySummary::of).unwrap_or_default()
    }
}

/// The count, the median, the 99th percentile and the maximum of a distribution. All four values
/// are 0 if nothing was measured.
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
    // The reset writes to the whole histogram, so its pages are mapped now and not during later
    // recording.
    histogram.reset();
    histogram
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that a histogram takes the stated memory, and takes no memory before the first
    // latency.
    #[test]
    fn a_histogram_has_its_stated_size() {
        assert_eq!(super::histogram().distinct_values() * size_of::<u64>(), TotalHistogram::BYTES);
        let mut total = TotalHistogram::default();
        assert_eq!((total.buckets().count(), total.summary()), (0, LatencySummary::default()));
        total.add_bucket(1000, 3);
        assert_eq!((total.buckets().count(), total.summary().count), (1, 3));
    }
}
