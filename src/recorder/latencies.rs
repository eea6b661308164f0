//! Latencies of all threads, collected once a second: published for the self source and the live line, added up for
//! the segment's footer and the run's summary.

use std::sync::Arc;

use crate::metrics::{Consumer, GroupLatencies, Interval, LatencySummary, Metrics, Total};
use crate::segment::SegmentWriter;

/// Latencies of one run beside those of its sources.
#[derive(Debug, Clone, Default)]
pub struct RunLatencies {
    /// Building a payload; one in 64 is timed.
    pub build: Total,
    /// Handing a slab to the queue.
    pub hand_over: Total,
    /// From the hand-over of a slab to the recorder taking it.
    pub queue_wait: Total,
    /// One append to a segment.
    pub write: Total,
    /// One fdatasync.
    pub sync: Total,
}

/// Latencies of one source.
#[derive(Debug, Clone)]
enum SourceBook {
    /// Of the run, and of the open segment.
    Open { run: Box<SourceTotals>, segment: Box<SourceTotals> },
    /// Of the run, of a source that was removed: nothing comes any more.
    Closed(SourceSummary),
}

#[derive(Debug, Clone, Default)]
pub(super) struct SourceTotals {
    pub(super) lateness: Total,
    pub(super) read_duration: Total,
}

/// What one source's latencies have come to.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct SourceSummary {
    pub(super) lateness: LatencySummary,
    pub(super) read_duration: LatencySummary,
}

impl SourceBook {
    fn open() -> Self {
        Self::Open { run: Box::default(), segment: Box::default() }
    }

    fn summary(&self) -> SourceSummary {
        match self {
            Self::Open { run, .. } => {
                SourceSummary { lateness: run.lateness.summary(), read_duration: run.read_duration.summary() }
            }
            Self::Closed(summary) => *summary,
        }
    }
}

#[derive(Debug)]
pub(super) struct LatencyBook {
    consumers: Vec<Consumer<GroupLatencies>>,
    removed: Vec<u16>, // sources of which something may still come
    metrics: Arc<Metrics>,
    sources: Vec<SourceBook>,
    /// The recorder's own, since the last collection.
    pub(super) queue_wait: Interval,
    pub(super) write: Interval,
    pub(super) sync: Interval,
    run: RunLatencies,
}

impl LatencyBook {
    pub(super) fn new(consumers: Vec<Consumer<GroupLatencies>>, metrics: Arc<Metrics>) -> Self {
        Self {
            consumers,
            removed: Vec::new(),
            sources: vec![SourceBook::open(); metrics.sources.len()],
            metrics,
            queue_wait: Interval::default(),
            write: Interval::default(),
            sync: Interval::default(),
            run: RunLatencies::default(),
        }
    }

    /// So many sources from now on, measured by these too; of some nothing comes any more once it is drained who measured them.
    pub(super) fn change(
        &mut self,
        sources: usize,
        consumers: Vec<Consumer<GroupLatencies>>,
        removed: Vec<u16>,
    ) {
        self.sources.resize_with(sources.max(self.sources.len()), SourceBook::open);
        self.consumers.extend(consumers);
        self.removed.extend(removed);
    }

    /// Takes everything measured since the last time.
    pub(super) fn collect(&mut self) {
        let is_last: Vec<bool> = self.consumers.iter_mut().map(Consumer::is_last).collect();
        let (sources, run, metrics) = (&mut self.sources, &mut self.run, &self.metrics);
        for consumer in &self.consumers {
            consumer.drain(|group| {
                for measured in &group.sources {
                    let id = usize::from(measured.source);
                    let (Some(book), Some(published)) = (sources.get_mut(id), metrics.sources.get(id)) else {
                        continue;
                    };
                    published.lateness.publish(&measured.lateness);
                    published.read_duration.publish(&measured.read_duration);
                    let SourceBook::Open { run, segment } = book else { continue };
                    for totals in [run, segment] {
                        totals.lateness.add(&measured.lateness);
                        totals.read_duration.add(&measured.read_duration);
                    }
                }
                metrics.recorder.build.publish(&group.build);
                metrics.recorder.hand_over.publish(&group.hand_over);
                run.build.add(&group.build);
                run.hand_over.add(&group.hand_over);
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
            total.add(interval);
            interval.clear();
        }
    }

    /// Gives the segment its share and starts the next one's. Returns the sources of which nothing comes any more.
    pub(super) fn settle(&mut self, writer: &mut SegmentWriter) -> Vec<u16> {
        for (book, id) in self.sources.iter_mut().zip(0..) {
            if let (Some(totals), SourceBook::Open { segment, .. }) = (writer.totals_mut(id), book) {
                totals.lateness = std::mem::take(&mut segment.lateness);
                totals.read_duration = std::mem::take(&mut segment.read_duration);
            }
        }
        if self.consumers.len() > self.metrics.groups.len() {
            return Vec::new();
        }
        let closed = std::mem::take(&mut self.removed);
        for id in &closed {
            if let Some(book) = self.sources.get_mut(usize::from(*id)) {
                *book = SourceBook::Closed(book.summary());
            }
        }
        closed
    }

    /// The run's latencies: its own, and each source's in the order of ids.
    pub(super) fn finish(self) -> (RunLatencies, Vec<SourceSummary>) {
        (self.run, self.sources.iter().map(SourceBook::summary).collect())
    }
}
