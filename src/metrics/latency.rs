//! Latency histograms: filled by one thread for an interval, added up by another for a run.

use hdrhistogram::Histogram;

use super::counter::Counter;

/// Longest latency that is told apart, in nanoseconds; longer ones count as this: one minute.
const LATENCY_NS_MAX: u64 = 60_000_000_000;
/// Decimal digits that a recorded latency keeps: an error of at most 1 %, and 15 KiB a histogram.
const SIGNIFICANT_DIGITS: u8 = 2;

/// Latencies of one interval, filled by the thread that measures.
#[derive(Debug, Clone)]
pub struct Interval(Histogram<u32>);

impl Default for Interval {
    fn default() -> Self {
        Self(histogram())
    }
}

impl Interval {
    /// Counts one latency, in nanoseconds.
    #[inline]
    pub fn record(&mut self, ns: u64) {
        self.0.saturating_record(ns);
    }

    /// Forgets everything, keeps the memory.
    pub fn clear(&mut self) {
        if !self.0.is_empty() {
            self.0.reset();
        }
    }

    /// The interval in four numbers.
    pub fn summary(&self) -> LatencySummary {
        LatencySummary::of(&self.0)
    }

    fn buckets(&self) -> impl Iterator<Item = (u64, u64)> {
        self.0.iter_recorded().map(|bucket| (bucket.value_iterated_to(), bucket.count_since_last_iteration()))
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
    fn of<C: hdrhistogram::Counter>(histogram: &Histogram<C>) -> Self {
        Self {
            count: histogram.len(),
            p50_ns: histogram.value_at_quantile(0.5),
            p99_ns: histogram.value_at_quantile(0.99),
            max_ns: histogram.max(),
        }
    }
}

/// The last interval's summary, for every thread to read. A reader may see two intervals mixed: for display.
#[derive(Debug, Default)]
pub struct PublishedLatency {
    count: Counter,
    p50_ns: Counter,
    p99_ns: Counter,
    max_ns: Counter,
}

impl PublishedLatency {
    /// Publishes a summary. Only for the one writer.
    pub fn publish(&self, summary: LatencySummary) {
        self.count.set(summary.count);
        self.p50_ns.set(summary.p50_ns);
        self.p99_ns.set(summary.p99_ns);
        self.max_ns.set(summary.max_ns);
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

fn histogram<C: hdrhistogram::Counter>() -> Histogram<C> {
    let mut histogram = Histogram::new_with_bounds(1, LATENCY_NS_MAX, SIGNIFICANT_DIGITS)
        .expect("1 <= LATENCY_NS_MAX / 2 and 0 <= SIGNIFICANT_DIGITS <= 5");
    // Written to once, so that it is in memory now and not at some later latency.
    histogram.reset();
    histogram
}

#[cfg(test)]
mod tests {
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

    // Goal: a histogram takes the memory that the configuration counts. Method: the number of its counters.
    #[test]
    fn a_histogram_has_its_stated_size() {
        assert_eq!(Interval::default().0.distinct_values() * size_of::<u32>(), 15 << 10);
        assert_eq!(Total::default().0.distinct_values() * size_of::<u64>(), 30 << 10);
    }

    // Goal: nothing measured reads as zeros. Method: an empty histogram.
    #[test]
    fn empty_is_zero() {
        assert_eq!(Interval::default().summary(), LatencySummary::default());
    }
}
