//! Latency histograms and their tail latencies. One thread fills a histogram during an interval.
//! Another thread adds this histogram to the histogram of the run.

use flatcap_format::histogram::{LATENCY_NS_MAX, LatencySummary, TotalHistogram};

use super::counter::Counter;

/// Latencies of one interval, filled by the thread that measures. The type has the same buckets as
/// an `hdrhistogram` of the same precision, and contains only their counts. With hdrhistogram,
/// counting the two latencies of a small sample took 121 of the 827 instructions of the sample.
/// This type needs a quarter of the 121 instructions. The library computes everything else from
/// these buckets.
#[derive(Debug, Clone)]
pub struct IntervalHistogram {
    counts: Box<[u32; BUCKETS]>,
    count: u64, // of all buckets
}

/// Number of buckets per power of two. This is the smallest power of two that gives the required
/// precision. The first group of buckets, for the smallest latencies, has twice this number.
const STEPS: u64 = 128;
const STEPS_BITS: u32 = STEPS.ilog2();
/// Number of buckets. The buckets cover latencies up to the next power of two after
/// [`LATENCY_NS_MAX`].
#[allow(clippy::cast_possible_truncation, reason = "128, in 64 bits")]
const BUCKETS: usize = (bucket_of(LATENCY_NS_MAX) + 1).next_multiple_of(STEPS as usize);

/// Returns the bucket of a latency of at most [`LATENCY_NS_MAX`]. The width of the bucket is
/// 2^power nanoseconds.
#[allow(clippy::cast_possible_truncation, reason = "at most BUCKETS, in 64 bits")]
#[inline]
const fn bucket_of(ns: u64) -> usize {
    let power = (ns | (2 * STEPS - 1)).ilog2() - STEPS_BITS;
    (((power as u64) << STEPS_BITS) + (ns >> power)) as usize
}

/// Returns the highest latency in a bucket, in nanoseconds.
fn longest_in(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    let power = (bucket >> STEPS_BITS).saturating_sub(1);
    ((bucket - (power << STEPS_BITS) + 1) << power) - 1
}

impl Default for IntervalHistogram {
    fn default() -> Self {
        Self { counts: Box::new([0; BUCKETS]), count: 0 }
    }
}

impl IntervalHistogram {
    /// Memory of a histogram, in bytes.
    pub const BYTES: usize = BUCKETS * size_of::<u32>();

    /// Counts one latency, in nanoseconds.
    #[inline]
    pub fn record(&mut self, ns: u64) {
        self.count += 1;
        if let Some(count) = self.counts.get_mut(bucket_of(ns.min(LATENCY_NS_MAX))) {
            *count = count.saturating_add(1);
        }
    }

    /// Resets all counts and keeps the memory.
    pub fn clear(&mut self) {
        if self.count > 0 {
            self.counts.fill(0);
            self.count = 0;
        }
    }

    /// Returns a summary of the interval: count, median, 99th percentile and maximum.
    pub fn summary(&self) -> LatencySummary {
        let mut summary = LatencySummary { count: self.count, ..LatencySummary::default() };
        let rank_p50 = self.count.div_ceil(2);
        let rank_p99 = (self.count * 99).div_ceil(100);
        let mut counted = 0;
        for (longest_ns, count) in self.buckets() {
            for (target, quantile) in [(&mut summary.p50_ns, rank_p50), (&mut summary.p99_ns, rank_p99)] {
                if (counted..counted + count).contains(&(quantile - 1)) {
                    *target = longest_ns;
                }
            }
            summary.max_ns = longest_ns;
            counted += count;
        }
        summary
    }

    /// Returns the non-empty buckets, each as its highest value in nanoseconds and its count.
    fn buckets(&self) -> impl Iterator<Item = (u64, u64)> {
        let counts = self.counts.iter().enumerate().filter(|_| self.count > 0);
        counts.filter(|(_, count)| **count > 0).map(|(at, count)| (longest_in(at), u64::from(*count)))
    }

    /// Adds the interval to a total. The sum is exact, because the interval and the total have the
    /// same buckets.
    pub fn add_to(&self, total: &mut TotalHistogram) {
        self.buckets().for_each(|(value_ns, count)| total.add_bucket(value_ns, count));
    }
}

/// Latencies that one sampler thread measures in an interval.
#[derive(Debug, Clone, Default)]
pub struct GroupLatencies {
    /// The latencies of each source of the group.
    pub sources: Vec<SourceLatencies>,
    /// Time to build a payload; one build in 64 is timed.
    pub build: IntervalHistogram,
    /// Time to queue a slab.
    pub enqueue: IntervalHistogram,
}

/// Latencies of each sample of a source.
#[derive(Debug, Clone, Default)]
pub struct SourceLatencies {
    /// The source's id.
    pub source: u16,
    /// Start time of the sample minus its deadline.
    pub lateness: IntervalHistogram,
    /// Duration of the read.
    pub read_duration: IntervalHistogram,
}

impl SourceLatencies {
    /// Number of histograms.
    pub const HISTOGRAMS: usize = 2;
}

impl GroupLatencies {
    /// Number of histograms in addition to the sources' histograms.
    pub const HISTOGRAMS: usize = 2;

    /// Creates empty histograms for the sources with these ids.
    pub fn new(sources: impl IntoIterator<Item = u16>) -> Self {
        let source = |source| SourceLatencies { source, ..SourceLatencies::default() };
        Self { sources: sources.into_iter().map(source).collect(), ..Self::default() }
    }

    /// Resets all counts and keeps the memory.
    pub fn clear(&mut self) {
        for source in &mut self.sources {
            source.lateness.clear();
            source.read_duration.clear();
        }
        self.build.clear();
        self.enqueue.clear();
    }
}

/// Upper bounds of the published buckets, in nanoseconds. The bounds go from 1 us to 10 s. In each
/// decade, they are 1, 2.5 and 5 times a power of ten. Longer latencies are in the last bucket,
/// which has no bound.
pub const BUCKET_BOUNDS_NS: [u64; 22] = [
    1_000,
    2_500,
    5_000,
    10_000,
    25_000,
    50_000,
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    25_000_000,
    50_000_000,
    100_000_000,
    250_000_000,
    500_000_000,
    1_000_000_000,
    2_500_000_000,
    5_000_000_000,
    10_000_000_000,
];

/// The summary of the last interval and the distribution of the run, which all threads can read. A
/// reader may see a mixture of the values of two intervals. This is acceptable for display.
#[derive(Debug, Default)]
pub struct PublishedLatency {
    count: Counter,
    p50_ns: Counter,
    p99_ns: Counter,
    max_ns: Counter,
    buckets: [Counter; BUCKET_BOUNDS_NS.len() + 1], // last: above all bounds
    sum_ns: Counter,
}

/// The latency distribution of a run, in few buckets. Each latency is counted with the highest
/// value of its bucket in the interval's histogram. This value is at most 1 % too high.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Distribution {
    /// The count at an index is the number of latencies above the previous bound of
    /// [`BUCKET_BOUNDS_NS`] and not above the bound at this index. The last count is the number of
    /// latencies above every bound.
    pub counts: [u64; BUCKET_BOUNDS_NS.len() + 1],
    /// Sum of all latencies, in nanoseconds.
    pub sum_ns: u64,
}

impl PublishedLatency {
    /// Makes an interval visible to readers. Must only be called by the single writer.
    pub fn publish(&self, interval: &IntervalHistogram) {
        for (longest_ns, count) in interval.buckets() {
            let index = BUCKET_BOUNDS_NS.partition_point(|bound| *bound < longest_ns);
            if let Some(bucket) = self.buckets.get(index) {
                bucket.add(count);
            }
            self.sum_ns.add(longest_ns.wrapping_mul(count));
        }
        let summary = interval.summary();
        self.count.set(summary.count);
        self.p50_ns.set(summary.p50_ns);
        self.p99_ns.set(summary.p99_ns);
        self.max_ns.set(summary.max_ns);
    }

    /// Returns the run's distribution up to the last published interval.
    pub fn distribution(&self) -> Distribution {
        let mut counts = [0; BUCKET_BOUNDS_NS.len() + 1];
        counts.iter_mut().zip(&self.buckets).for_each(|(count, bucket)| *count = bucket.get());
        Distribution { counts, sum_ns: self.sum_ns.get() }
    }

    /// Returns the last published summary.
    pub fn get(&self) -> LatencySummary {
        LatencySummary {
            count: self.count.get(),
            p50_ns: self.p50_ns.get(),
            p99_ns: self.p99_ns.get(),
            max_ns: self.max_ns.get(),
        }
    }
}

#[cfg(test)]
mod tests {
    use hdrhistogram::Histogram;
    use proptest::prelude::*;

    use super::*;

    // Proves that no counts are lost when intervals are added, and that the error stays within the
    // stated limit.
    #[test]
    fn intervals_add_up() {
        let mut total = TotalHistogram::default();
        let mut interval = IntervalHistogram::default();
        for ns in [0, 100, 100, 5_000_000] {
            interval.record(ns);
        }
        interval.add_to(&mut total);
        interval.clear();
        interval.record(u64::MAX);
        interval.add_to(&mut total);
        let summary = total.summary();
        assert_eq!(summary.count, 5);
        assert_eq!(summary.p50_ns, 100);
        assert!(summary.max_ns >= LATENCY_NS_MAX && summary.max_ns < LATENCY_NS_MAX / 100 * 102);
        let mut copy = TotalHistogram::default();
        total.buckets().for_each(|(value_ns, count)| copy.add_bucket(value_ns, count));
        assert_eq!(copy.summary(), summary);
    }

    // Proves that a distribution counts every latency exactly once, in the bucket of its bound, and
    // that the sum is at most 1 % too high.
    #[test]
    fn distributions_grow_by_intervals() {
        let published = PublishedLatency::default();
        let mut interval = IntervalHistogram::default();
        let latencies = [0, 999, 1_000, 1_010, 2_450, 9_800_000_000, 11_000_000_000];
        for _ in 0..2 {
            for ns in latencies {
                interval.record(ns);
            }
            published.publish(&interval);
            interval.clear();
        }
        let distribution = published.distribution();
        let filled: Vec<(usize, u64)> =
            distribution.counts.iter().copied().enumerate().filter(|(_, count)| *count > 0).collect();
        // The latency of 1,000 ns is in a fine bucket that ends at 1,003 ns.
        assert_eq!(filled, [(0, 4), (1, 6), (21, 2), (22, 2)]);
        let exact = 2 * latencies.iter().sum::<u64>();
        assert!((exact..=exact + exact / 100).contains(&distribution.sum_ns), "{distribution:?}");
        assert_eq!(published.get().count, 7, "the summary is the last interval's");
    }

    // Proves that a histogram takes the stated memory.
    #[test]
    fn a_histogram_has_its_stated_size() {
        assert_eq!(size_of_val(&*IntervalHistogram::default().counts), IntervalHistogram::BYTES);
    }

    proptest! {
        // Proves that an interval has the same buckets and summary as the library, for latencies of
        // all magnitudes.
        #[test]
        fn an_interval_counts_as_the_library(
            latencies in proptest::collection::vec((any::<u64>(), 0..64_u32).prop_map(|(ns, bits)| ns >> bits), 1..200),
        ) {
            let (mut interval, mut library, mut total) = (IntervalHistogram::default(), Histogram::<u64>::new_with_bounds(1, LATENCY_NS_MAX, 2).unwrap(), TotalHistogram::default());
            for ns in latencies {
                interval.record(ns);
                library.saturating_record(ns.min(LATENCY_NS_MAX));
            }
            let expected: Vec<_> = library
                .iter_recorded()
                .map(|bucket| (bucket.value_iterated_to(), bucket.count_since_last_iteration()))
                .collect();
            prop_assert_eq!(interval.buckets().collect::<Vec<_>>(), expected);
            let summary = LatencySummary {
                count: library.len(),
                p50_ns: library.value_at_quantile(0.5),
                p99_ns: library.value_at_quantile(0.99),
                max_ns: library.max(),
            };
            prop_assert_eq!(interval.summary(), summary);
            interval.add_to(&mut total);
            prop_assert_eq!(total.summary(), interval.summary());
        }
    }

    // Proves that all values of an empty histogram are zero.
    #[test]
    fn empty_is_zero() {
        assert_eq!(IntervalHistogram::default().summary(), LatencySummary::default());
    }
}
