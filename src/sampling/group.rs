//! One thread: sleeps until a source is due, reads it, builds its frame in the open slab, and hands slabs over.
//!
//! Two clock reads a sample, before and after the reading; everything else that needs a time uses one of them.

use std::sync::Arc;

use super::sampler::Sampler;
use super::schedule::{Due, Schedule};
use crate::config::Timing;
use crate::frame::{Builders, ENVELOPE_BYTES, Envelope, Stamp};
use crate::metrics::{GroupLatencies, Metrics, Producer};
use crate::os::clock::{NS_PER_S, WallOffset, monotonic_ns};
use crate::os::event::{Event, Woken};
use crate::os::thread;
use crate::slab::{Causes, HandOver, Reading};

/// One build in this many is timed: two clock reads cost more than a small build.
const BUILD_TIMED_EVERY: u64 = 64;
/// How often latencies are handed to the recorder.
const PUBLISH_INTERVAL_NS: u64 = NS_PER_S;

/// A source of a group, opened.
#[derive(Debug)]
pub struct GroupSource {
    /// Its id.
    pub id: u16,
    /// Its period, in nanoseconds.
    pub period_ns: u64,
    /// Its way from the kernel to a payload.
    pub sampler: Box<dyn Sampler>,
}

/// What a group works with. Shared things are shared with the recorder and the daemon.
#[derive(Debug)]
pub struct GroupSettings {
    /// What it samples.
    pub sources: Vec<GroupSource>,
    /// How punctually it is woken.
    pub timing: Timing,
    /// When the first ticks are due, in monotonic nanoseconds.
    pub start_ns: u64,
    /// What is added to monotonic time to get wall time.
    pub wall_offset: Arc<WallOffset>,
    /// Where frames go.
    pub hand_over: HandOver,
    /// Counters.
    pub metrics: Arc<Metrics>,
    /// Latencies, on their way to the recorder.
    pub latencies: Producer<GroupLatencies>,
    /// Ends the group.
    pub stop: Arc<Event>,
}

/// A sampler group at work.
#[derive(Debug)]
pub struct Group {
    sources: Vec<ActiveSource>,
    schedule: Schedule,
    timing: Timing,
    builders: Builders,
    wall_offset: Arc<WallOffset>,
    hand_over: HandOver,
    metrics: Arc<Metrics>,
    latencies: Producer<GroupLatencies>,
    publish_ns: u64,
    builds: u64,
    stop: Arc<Event>,
}

#[derive(Debug)]
struct ActiveSource {
    sampler: Box<dyn Sampler>,
    envelope: Envelope,
    next_seq: u64,
    payload_bytes: usize, // of its last payload: tells the size class of the next
}

impl Group {
    /// A group that is ready to run.
    pub fn new(settings: GroupSettings) -> Self {
        let GroupSettings { sources, timing, start_ns, wall_offset, hand_over, metrics, latencies, stop } =
            settings;
        Self {
            schedule: Schedule::new(sources.iter().map(|source| source.period_ns), start_ns),
            sources: sources
                .into_iter()
                .map(|source| ActiveSource {
                    sampler: source.sampler,
                    envelope: Envelope::new(source.id),
                    next_seq: 0,
                    payload_bytes: 0,
                })
                .collect(),
            timing,
            builders: Builders::default(),
            wall_offset,
            hand_over,
            metrics,
            latencies,
            publish_ns: start_ns + PUBLISH_INTERVAL_NS,
            builds: 0,
            stop,
        }
    }

    /// Samples until the stop event is set; then hands over what it has and drops its sender.
    pub fn run(mut self) {
        if self.timing == Timing::Precise
            && let Err(error) = thread::wake_precisely()
        {
            tracing::warn!(%error, "cannot set the timer slack: samples come up to 50 us later than they could");
        }
        let mut now = 0;
        while let Some(next) = self.schedule.next_ns() {
            let stopped =
                if next > now { self.stop.wait_until(next) == Woken::Set } else { self.stop.is_set() };
            if stopped {
                break;
            }
            now = self.tick();
        }
        // Before the sender goes: the recorder collects for the last time when it is gone.
        self.latencies.finish();
        self.hand_over.finish(monotonic_ns());
    }

    /// Makes the reading that is due, if there is one. Returns the time.
    pub fn tick(&mut self) -> u64 {
        let begin = monotonic_ns();
        let Some(due) = self.schedule.take_due(begin) else { return begin };
        let end = self.sample(due, begin);
        let next = self.schedule.next_ns().unwrap_or(u64::MAX);
        if self.hand_over.is_due(end, next) {
            let begin = monotonic_ns();
            self.hand_over.hand_over(begin);
            self.latencies.current().hand_over.record(monotonic_ns() - begin);
        }
        if end >= self.publish_ns {
            self.publish_ns = end + PUBLISH_INTERVAL_NS;
            self.latencies.publish();
        }
        end
    }

    fn sample(&mut self, due: Due, begin: u64) -> u64 {
        let Some(source) = self.sources.get_mut(due.index) else { return begin };
        let reading = Reading {
            source: source.envelope.source(),
            seq: source.next_seq,
            mono_ns: begin,
            wall_offset_ns: self.wall_offset.get(),
        };
        source.next_seq += 1;
        self.hand_over.begin(reading.source, reading.seq);
        if let Some(metrics) = self.metrics.sources.get(usize::from(reading.source)) {
            metrics.begun.set(source.next_seq);
            if due.missed > 0 {
                metrics.missed.add(due.missed);
            }
        }
        let result = source.sampler.read();
        let end = monotonic_ns();
        if let Some(latencies) = self.latencies.current().sources.get_mut(due.index) {
            latencies.lateness.record(due.lateness_ns);
            latencies.read_duration.record(end - begin);
        }
        if result.is_err() {
            self.hand_over.lose(reading, Causes::READ_FAILED);
            return end;
        }

        let builder = self.builders.for_size(source.payload_bytes);
        let timed = self.builds.is_multiple_of(BUILD_TIMED_EVERY);
        self.builds = self.builds.wrapping_add(1);
        let build_begin = if timed { monotonic_ns() } else { 0 };
        let shortfall = source.sampler.build(reading.seq, builder);
        if timed {
            self.latencies.current().build.record(monotonic_ns() - build_begin);
        }
        let payload = builder.finished_data();
        source.payload_bytes = payload.len();
        let stamp = Stamp {
            mono_ns: begin,
            wall_ns: reading.wall_offset_ns.wrapping_add_unsigned(begin),
            seq: reading.seq,
            shortfall,
            duration_ns: u32::try_from(end - begin).unwrap_or(u32::MAX),
        };
        self.hand_over.append(reading, ENVELOPE_BYTES + payload.len(), |frame| {
            source.envelope.write(frame, &stamp, payload);
        });
        end
    }
}
