//! The latencies of all threads, as median, tail latency and maximum. The latencies are collected
//! once a second and reported by the self source and the live line. The totals of the latencies are
//! in the segment's footer and the run's summary.

use std::sync::Arc;

use flatcap_format::histogram::{LatencySummary, TotalHistogram};
use flatcap_format::segment::SegmentWriter;
use flatcap_metrics::{Consumer, GroupLatencies, IntervalHistogram, Metrics};

/// The latencies of one run, without the latencies of its sources.
#[derive(Debug, Clone, Default)]
pub struct RunLatencies {
    /// Time to build a payload. Only one payload in 64 is timed.
    pub build: TotalHistogram,
    /// Time to queue a slab.
    pub enqueue: TotalHistogram,
    /// Time from the queueing of a slab until the recorder takes the slab.
    pub queue_wait: TotalHistogram,
    /// Duration of an append to a segment.
    pub write: TotalHistogram,
    /// Duration of an fdatasync.
    pub sync: TotalHistogram,
}

impl RunLatencies {
    /// Number of total histograms of a run.
    pub const TOTALS: usize = size_of::<Self>() / size_of::<TotalHistogram>();
    /// Number of total histograms of a source. The source has separate histograms for the run and
    /// for the open segment.
    pub const SOURCE_TOTALS: usize = 2 * size_of::<SourceLatencyTotals>() / size_of::<TotalHistogram>();
    /// Number of interval histograms of the recorder, for queue wait, write and sync.
    pub const INTERVALS: usize = 3;

    fn allocated() -> Self {
        Self {
            build: TotalHistogram::allocated(),
            enqueue: TotalHistogram::allocated(),
            queue_wait: TotalHistogram::allocated(),
            write: TotalHistogram::allocated(),
            sync: TotalHistogram::allocated(),
        }
    }
}

/// Latencies of one source.
#[derive(Debug, Clone)]
enum SourceAggregate {
    /// The latencies of the run, and of the open segment.
    Open { run: Box<SourceLatencyTotals>, segment: Box<SourceLatencyTotals> },
    /// The run latencies of a removed source whose last latencies have arrived.
    Closed(SourceLatencySummary),
}

#[derive(Debug, Clone, Default)]
pub(super) struct SourceLatencyTotals {
    pub(super) lateness: TotalHistogram,
    pub(super) read_duration: TotalHistogram,
}

impl SourceLatencyTotals {
    fn allocated() -> Self {
        Self { lateness: TotalHistogram::allocated(), read_duration: TotalHistogram::allocated() }
    }
}

/// The latencies of one source, summarized.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct SourceLatencySummary {
    pub(super) lateness: LatencySummary,
    pub(super) read_duration: LatencySummary,
}

impl SourceAggregate {
    /// Returns the aggregate of a source that may have no latencies.
    fn open() -> Self {
        Self::Open { run: Box::default(), segment: Box::default() }
    }

    /// Returns the empty aggregate of a source whose recording starts. The memory of the aggregate
    /// is already allocated.
    fn allocated() -> Self {
        let totals = || Box::new(SourceLatencyTotals::allocated());
        Self::Open { run: totals(), segment: totals() }
    }

    fn summary(&self) -> SourceLatencySummary {
        match self {
            Self::Open { run, .. } => SourceLatencySummary {
                lateness: run.lateness.summary(),
                read_duration: run.read_duration.summary(),
            },
            Self::Closed(summary) => *summary,
        }
    }
}

#[derive(Debug)]
pub(super) struct LatencyAggregator {
    consumers: Vec<Consumer<GroupLatencies>>,
    removed: Vec<u16>, // sources whose last latencies may still arrive
    metrics: Arc<Metrics>,
    sources: Vec<SourceAggregate>,
    /// The recorder's own latencies since the last collection.
    pub(super) queue_wait: IntervalHistogram,
    pub(super) write: IntervalHistogram,
    pub(super) sync: IntervalHistogram,
    run: RunLatencies,
}

impl LatencyAggregator {
    pub(super) fn new(consumers: Vec<Consumer<GroupLatencies>>, metrics: Arc<Metrics>) -> Self {
        Self {
            consumers,
            removed: Vec::new(),
            sources: metrics.sources.iter().map(|_| SourceAggregate::allocated()).collect(),
            metrics,
            queue_wait: IntervalHistogram::default(),
            write: IntervalHistogram::default(),
            sync: IntervalHistogram::default(),
            run: RunLatencies::allocated(),
        }
    }

    /// Extends the aggregator to `sources` sources. The additional `consumers` deliver the
    /// latencies of the new sources. The sources in `removed` get no more latencies once their
    /// consumers are drained.
    pub(super) fn update_sources(
        &mut self,
        sources: usize,
        consumers: Vec<Consumer<GroupLatencies>>,
        removed: Vec<u16>,
    ) {
        self.sources.resize_with(sources.max(self.sources.len()), SourceAggregate::open);
        self.consumers.extend(consumers);
        self.removed.extend(removed);
    }

    /// Collects all latencies that were measured since the last call.
    pub(super) fn collect(&mut self) {
        let is_last: Vec<bool> = self.consumers.iter_mut().map(Consumer::is_last).collect();
        let (sources, run, metrics) = (&mut self.sources, &mut self.run, &self.metrics);
        for consumer in &self.consumers {
            consumer.drain(|group| {
                for measured in &group.sources {
                    let id = usize::from(measured.source);
                    let (Some(aggregate), Some(published)) = (sources.get_mut(id), metrics.sources.get(id))
                    else {
                        continue;
                    };
                    published.lateness.publish(&measured.lateness);
                    published.read_duration.publish(&measured.read_duration);
                    let SourceAggregate::Open { run, segment } = aggregate else { continue };
                    for totals in [run, segment] {
                        measured.lateness.add_to(&mut totals.lateness);
                        measured.read_duration.add_to(&mut totals.read_duration);
                    }
                }
                metrics.recorder.build.publish(&group.build);
                metrics.recorder.enqueue.publish(&group.enqueue);
                group.build.add_to(&mut run.build);
                group.enqueue.add_to(&mut run.enqueue);
                group.clear();
            });
        }
        let mut is_last = is_last.into_iter();
        self.consumers.retain(|_| !is_last.next().unwrap_or(false));
        for (interval, total, published) in [
            (&mut self.queue_wait, &mut run.queue_wait, &metrics.recorder.queue_wait),
            (&mut self.write, &mut run.write, &metrics.recorder.write),
            (&mut self.sync, &mut run.sync, &metrics.recorder.sync),
        ] {
            published.publish(interval);
            interval.add_to(total);
            interval.clear();
        }
    }

    /// Moves the segment's latencies into its writer, and resets them for the next segment. Returns
    /// the removed sources whose latencies are now complete.
    pub(super) fn finish_segment(&mut self, writer: &mut SegmentWriter) -> Vec<u16> {
        for (aggregate, id) in self.sources.iter_mut().zip(0..) {
            if let (Some(totals), SourceAggregate::Open { segment, .. }) = (writer.totals_mut(id), aggregate)
            {
                totals.lateness = std::mem::take(&mut segment.lateness);
                totals.read_duration = std::mem::take(&mut segment.read_duration);
            }
        }
        if self.consumers.len() > self.metrics.groups.len() {
            return Vec::new();
        }
        let closed = std::mem::take(&mut self.removed);
        for id in &closed {
            if let Some(aggregate) = self.sources.get_mut(usize::from(*id)) {
                *aggregate = SourceAggregate::Closed(aggregate.summary());
            }
        }
        closed
    }

    /// Returns the latencies of the run, and the latencies of each source in the order of ids.
    pub(super) fn finish(self) -> (RunLatencies, Vec<SourceLatencySummary>) {
        (self.run, self.sources.iter().map(SourceAggregate::summary).collect())
    }
}
