//! Latency histograms: filled by one thread for an interval, added up by another for a run.

use hdrhistogram::Histogram;

use super::counter::Counter;

/// Longest latency that is told apart, in nanoseconds; longer ones count as this: one minute.
const LATENCY_NS_MAX: u64 = 60_000_000_000;
/// Decimal digits that a recorded latency keeps: an error of at most 1 %, and 15 KiB a histogram.
const SIGNIFICANT_DIGITS: u8 = 2;

/// Latencies of one interval, filled by the thread that measures: the counters of an `hdrhistogram` of these digits, and nothing
/// beside them. With that library counting its two latencies took 121 of a small sample's 827 instructions, and takes a quarter of
/// that this way (docs/BENCHMARKS.md, "Capture"); everything else is done by the library, from its buckets.
#[derive(Debug, Clone)]
pub struct Interval {
    counts: Box<[u32; BUCKETS]>,
    count: u64, // of all
}

/// Buckets of one power of two: as many as the digits need, rounded up to a power of two. The first power has twice as many.
const STEPS: u64 = 128;
const STEPS_BITS: u32 = STEPS.ilog2();
/// Buckets up to the longest latency, and to the end of its power of two.
#[allow(clippy::cast_possible_truncation, reason = "128, in 64 bits")]
const BUCKETS: usize = (bucket_of(LATENCY_NS_MAX) + 1).next_multiple_of(STEPS as usize);

/// Which bucket a latency of at most [`LATENCY_NS_MAX`] belongs to. Each has a width of 2^power nanoseconds.
#[allow(clippy::cast_possible_truncation, reason = "at most BUCKETS, in 64 bits")]
#[inline]
const fn bucket_of(ns: u64) -> usize {
    let power = (ns | (2 * STEPS - 1)).ilog2() - STEPS_BITS;
    (((power as u64) << STEPS_BITS) + (ns >> power)) as usize
}

/// The longest latency in a bucket, in nanoseconds.
fn longest_in(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    let power = (bucket >> STEPS_BITS).saturating_sub(1);
    ((bucket - (power << STEPS_BITS) + 1) << power) - 1
}

impl Default for Interval {
    fn default() -> Self {
        Self { counts: Box::new([0; BUCKETS]), count: 0 }
    }
}

impl Interval {
    /// Counts one latency, in nanoseconds.
    #[inline]
    pub fn record(&mut self, ns: u64) {
        self.count += 1;
        if let Some(count) = self.counts.get_mut(bucket_of(ns.min(LATENCY_NS_MAX))) {
            *count = count.saturating_add(1);
        }
    }

    /// Forgets everything, keeps the memory.
    pub fn clear(&mut self) {
        if self.count > 0 {
            self.counts.fill(0);
            self.count = 0;
        }
    }

    /// The interval in four numbers.
    pub fn summary(&self) -> LatencySummary {
        let mut summary = LatencySummary { count: self.count, ..LatencySummary::default() };
        let half = self.count.div_ceil(2);
        let most = (self.count * 99).div_ceil(100);
        let mut passed = 0;
        for (longest_ns, count) in self.buckets() {
            for (place, quantile) in [(&mut summary.p50_ns, half), (&mut summary.p99_ns, most)] {
                if (passed..passed + count).contains(&(quantile - 1)) {
                    *place = longest_ns;
                }
            }
            summary.max_ns = longest_ns;
            passed += count;
        }
        summary
    }

    /// The buckets that hold anything: highest value in nanoseconds, count.
    fn buckets(&self) -> impl Iterator<Item = (u64, u64)> {
        let counts = self.counts.iter().enumerate().filter(|_| self.count > 0);
        counts.filter(|(_, count)| **count > 0).map(|(at, count)| (longest_in(at), u64::from(*count)))
    }
}

/// What one sampler thread measures in an interval.
#[derive(Debug, Clone, Default)]
pub struct GroupLatencies {
    /// One a source of the group.
    pub sources: Vec<SourceLatencies>,
    /// Building a payload; one in 64 is timed.
    pub build: Interval,
    /// Handing a slab to the queue.
    pub hand_over: Interval,
}

/// What is measured of each reading of a source.
#[derive(Debug, Clone, Default)]
pub struct SourceLatencies {
    /// The source's id.
    pub source: u16,
    /// Begin of the reading minus its deadline.
    pub lateness: Interval,
    /// How long the reading took.
    pub read_duration: Interval,
}

impl GroupLatencies {
    /// Empty histograms for the sources with these ids.
    pub fn new(sources: impl IntoIterator<Item = u16>) -> Self {
        let source = |source| SourceLatencies { source, ..SourceLatencies::default() };
        Self { sources: sources.into_iter().map(source).collect(), ..Self::default() }
    }

    /// Forgets everything, keeps the memory.
    pub fn clear(&mut self) {
        for source in &mut self.sources {
            source.lateness.clear();
            source.read_duration.clear();
        }
        self.build.clear();
        self.hand_over.clear();
    }
}

/// Latencies of a run or of a segment, added up from intervals.
#[derive(Debug, Clone)]
pub struct Total(Histogram<u64>);

impl Default for Total {
    fn default() -> Self {
        Self(histogram())
    }
}

impl Total {
    /// Adds an interval. Exact: both have the same buckets.
    pub fn add(&mut self, interval: &Interval) {
        interval.buckets().for_each(|(value_ns, count)| self.add_bucket(value_ns, count));
    }

    /// Adds `count` latencies of `value_ns`, as a bucket of another histogram says.
    pub fn add_bucket(&mut self, value_ns: u64, count: u64) {
        self.0.saturating_record_n(value_ns, count);
    }

    /// The buckets that hold anything: highest value in nanoseconds, count.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> {
        self.0.iter_recorded().map(|bucket| (bucket.value_iterated_to(), bucket.count_since_last_iteration()))
    }

    /// Forgets everything, keeps the memory.
    pub fn clear(&mut self) {
        self.0.reset();
    }

    /// The total in four numbers.
    pub fn summary(&self) -> LatencySummary {
        LatencySummary::of(&self.0)
    }
}

/// A distribution in four numbers. All 0 when nothing was measured.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LatencySummary {
    /// How many latencies.
    pub count: u64,
    /// The median, in nanoseconds.
    pub p50_ns: u64,
    /// 99 of 100 are at most this, in nanoseconds.
    pub p99_ns: u64,
    /// The longest, in nanoseconds.
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

/// Upper bounds of the published buckets, in nanoseconds: 1 us to 10 s in steps of 1, 2.5 and 5. What is longer is in none.
pub const BOUNDS_NS: [u64; 22] = [
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

/// The last interval's summary and the run's distribution, for every thread to read. A reader may see two intervals mixed: for
/// display.
#[derive(Debug, Default)]
pub struct PublishedLatency {
    count: Counter,
    p50_ns: Counter,
    p99_ns: Counter,
    max_ns: Counter,
    buckets: [Counter; BOUNDS_NS.len() + 1], // the last one of what is longer than every bound
    sum_ns: Counter,
}

/// The distribution of a run in few buckets. A latency is taken for the longest one of its fine bucket: up to 1 % too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Distribution {
    /// How many latencies are above the bound before and at most at the one of [`BOUNDS_NS`] in this place; the last one: how many
    /// are longer than every bound.
    pub counts: [u64; BOUNDS_NS.len() + 1],
    /// All of them together, in nanoseconds.
    pub sum_ns: u64,
}

impl PublishedLatency {
    /// Publishes an interval. Only for the one writer.
    pub fn publish(&self, interval: &Interval) {
        for (longest_ns, count) in interval.buckets() {
            let place = BOUNDS_NS.partition_point(|bound| *bound < longest_ns);
            if let Some(bucket) = self.buckets.get(place) {
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

    /// The run's distribution up to the last published interval.
    pub fn distribution(&self) -> Distribution {
        let mut counts = [0; BOUNDS_NS.len() + 1];
        counts.iter_mut().zip(&self.buckets).for_each(|(count, bucket)| *count = bucket.get());
        Distribution { counts, sum_ns: self.sum_ns.get() }
    }

    /// The last published summary.
    pub fn get(&self) -> LatencySummary {
        LatencySummary {
            count: self.count.get(),
            p50_ns: self.p50_ns.get(),
            p99_ns: self.p99_ns.get(),
            max_ns: self.max_ns.get(),
        }
    }
}

fn histogram() -> Histogram<u64> {
    let mut histogram = Histogram::new_with_bounds(1, LATENCY_NS_MAX, SIGNIFICANT_DIGITS)
        .expect("1 <= LATENCY_NS_MAX / 2 and 0 <= SIGNIFICANT_DIGITS <= 5");
    // Written to once, so that it is in memory now and not at some later latency.
    histogram.reset();
    histogram
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    // Goal: adding intervals up loses nothing and keeps the stated error. Method: known latencies, two intervals.
    #[test]
    fn intervals_add_up() {
        let mut total = Total::default();
        let mut interval = Interval::default();
        for ns in [0, 100, 100, 5_000_000] {
            interval.record(ns);
        }
        total.add(&interval);
        interval.clear();
        interval.record(u64::MAX);
        total.add(&interval);
        let summary = total.summary();
        assert_eq!(summary.count, 5);
        assert_eq!(summary.p50_ns, 100);
        assert!(summary.max_ns >= LATENCY_NS_MAX && summary.max_ns < LATENCY_NS_MAX / 100 * 102);
        let mut copy = Total::default();
        total.buckets().for_each(|(value_ns, count)| copy.add_bucket(value_ns, count));
        assert_eq!(copy.summary(), summary);
    }

    // Goal: a distribution counts every latency once, in the bucket that its bound says, up to 1 % early; the sum is that near.
    // Method: latencies on both sides of bounds, two intervals.
    #[test]
    fn distributions_grow_by_intervals() {
        let published = PublishedLatency::default();
        let mut interval = Interval::default();
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
        // 1,000 is in a fine bucket that ends at 1,003.
        assert_eq!(filled, [(0, 4), (1, 6), (21, 2), (22, 2)]);
        let exact = 2 * latencies.iter().sum::<u64>();
        assert!((exact..=exact + exact / 100).contains(&distribution.sum_ns), "{distribution:?}");
        assert_eq!(published.get().count, 7, "the summary is the last interval's");
    }

    // Goal: a histogram takes the memory that the configuration counts. Method: the number of its counters.
    #[test]
    fn a_histogram_has_its_stated_size() {
        assert_eq!(size_of_val(&*Interval::default().counts), 15 << 10);
        assert_eq!(Total::default().0.distinct_values() * size_of::<u64>(), 30 << 10);
    }

    proptest! {
        // Goal: an interval counts as the library does, bucket by bucket, and sums up alike. Method: any latencies, of all magnitudes.
        #[test]
        fn an_interval_counts_as_the_library(
            latencies in proptest::collection::vec((any::<u64>(), 0..64_u32).prop_map(|(ns, bits)| ns >> bits), 1..200),
        ) {
            let (mut interval, mut library, mut total) = (Interval::default(), histogram(), Total::default());
            for ns in latencies {
                interval.record(ns);
                library.saturating_record(ns.min(LATENCY_NS_MAX));
            }
            let expected: Vec<_> = library
                .iter_recorded()
                .map(|bucket| (bucket.value_iterated_to(), bucket.count_since_last_iteration()))
                .collect();
            prop_assert_eq!(interval.buckets().collect::<Vec<_>>(), expected);
            prop_assert_eq!(interval.summary(), LatencySummary::of(&library));
            total.add(&interval);
            prop_assert_eq!(total.summary(), interval.summary());
        }
    }

    // Goal: nothing measured reads as zeros. Method: an empty histogram.
    #[test]
    fn empty_is_zero() {
        assert_eq!(Interval::default().summary(), LatencySummary::default());
    }
}
