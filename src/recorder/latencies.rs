//! Latencies of all threads, collected once a second: published for the self source and the live line, added up for
//! the segment's footer and the run's summary.

use std::sync::Arc;

use crate::metrics::{Consumer, GroupLatencies, Interval, Metrics, Total};
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

/// Latencies of one source: of the run, and of the open segment.
#[derive(Debug, Clone, Default)]
struct SourceBook {
    run: SourceTotals,
    segment: SourceTotals,
}

#[derive(Debug, Clone, Default)]
pub(super) struct SourceTotals {
    pub(super) lateness: Total,
    pub(super) read_duration: Total,
}

#[derive(Debug)]
pub(super) struct LatencyBook {
    consumers: Vec<Consumer<GroupLatencies>>,
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
            sources: vec![SourceBook::default(); metrics.sources.len()],
            metrics,
            queue_wait: Interval::default(),
            write: Interval::default(),
            sync: Interval::default(),
            run: RunLatencies::default(),
        }
    }

    /// Takes everything measured since the last time.
    pub(super) fn collect(&mut self) {
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
                    for totals in [&mut book.run, &mut book.segment] {
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

    /// Gives the segment its share and starts the next one's.
    pub(super) fn settle(&mut self, segment: &mut SegmentWriter) {
        for (book, id) in self.sources.iter_mut().zip(0..) {
            if let Some(totals) = segment.totals_mut(id) {
                totals.lateness = std::mem::take(&mut book.segment.lateness);
                totals.read_duration = std::mem::take(&mut book.segment.read_duration);
            }
        }
    }

    /// The run's latencies: its own, and each source's in the order of ids.
    pub(super) fn finish(self) -> (RunLatencies, Vec<SourceTotals>) {
        (self.run, self.sources.into_iter().map(|book| book.run).collect())
    }
}
