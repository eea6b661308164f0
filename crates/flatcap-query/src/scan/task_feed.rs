//! Computes the samples of the source `tasks` in one run, from the events of the scheduler, while
//! other sources are read.

use std::path::PathBuf;

use flatcap_format::frame::Incomplete;
use flatcap_format::replay::{MergedReader, ReplayFilter, ReplayItem, WantedTimes};
use flatcap_format::segment::{SampleView, SegmentError, SelectedSegment, SourceInfo};
use flatcap_tasks::{SchedBatch, TaskSample, TaskSteps, Timeline};

use crate::computed::{TASKS_ID, TASKS_STEP_NS};

/// Events are also read in an interval before and an interval after the requested times. Each
/// interval has this length, in nanoseconds, plus two periods of the source.
// These events show which threads were ready when the wanted time began.
const LEAD_NS: u64 = 1_000_000_000;

/// The location of the events from which samples are computed.
#[derive(Debug)]
pub(crate) struct EventPlace<'p> {
    /// The paths of the recording. The list is empty if only `segments` are read.
    pub(crate) paths: &'p [PathBuf],
    pub(crate) segments: &'p [SelectedSegment],
    pub(crate) run_id: u64,
    /// The source whose samples contain the events.
    pub(crate) source: &'p SourceInfo,
    /// The filter of the query, and the times of the run that the query requests.
    pub(crate) filter: &'p ReplayFilter,
    pub(crate) times: &'p WantedTimes,
}

/// Computes the samples of one run.
#[derive(Debug)]
pub(crate) struct TaskFeed {
    reader: MergedReader,
    run_id: u64,
    is_of_run: bool,
    source: u16,
    times: WantedTimes,
    timeline: Timeline,
    steps: TaskSteps,
    /// Whether the time of each sample is set one nanosecond earlier. The time is then within the
    /// step of wall time that ends with the sample.
    is_in_steps: bool,
    has_begun: bool,
    /// Wall time minus monotonic time.
    offset_ns: i64,
    reached_ns: u64,
}

/// The result of reading a part of the events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FeedStep {
    /// An item of the recording was read.
    Read,
    /// A payload of events could not be decoded. The missing events cause a hole in the computed
    /// samples.
    Undecodable,
    /// All events that exist were read.
    End,
}

impl TaskFeed {
    /// Opens the events of a run. With `step_ns`, wall time is divided into steps of this length.
    /// Each step has a sample one nanosecond before the end of the step.
    ///
    /// # Errors
    /// The error `Io` means that a path is missing or unreadable.
    pub(crate) fn open(place: &EventPlace<'_>, step_ns: Option<u64>) -> Result<Self, SegmentError> {
        let around_ns = place.source.period_ns.saturating_mul(2).saturating_add(LEAD_NS);
        let mut filter = ReplayFilter { sources: [place.source.name.clone()].into(), ..place.filter.clone() };
        filter.since_ns = filter.since_ns.map(|since| since.saturating_sub_unsigned(around_ns));
        filter.until_ns = filter.until_ns.map(|until| until.saturating_add_unsigned(around_ns));
        if let Some(elapsed) = &mut filter.elapsed {
            elapsed.ns.start = elapsed.ns.start.saturating_sub(around_ns);
            elapsed.ns.end = elapsed.ns.end.saturating_add(around_ns);
        }
        let is_own =
            |segment: &&SelectedSegment| segment.listing.name.is_none_or(|name| name.run_id == place.run_id);
        // The time range of the segments for the query is too narrow for the events, so the
        // segments are read without it.
        let whole = |segment: &SelectedSegment| SelectedSegment { mono_ns: None, ..segment.clone() };
        let segments = place.segments.iter().filter(is_own).map(whole).collect();
        Ok(Self {
            reader: MergedReader::of_run(place.run_id, (place.paths, segments), filter)?,
            run_id: place.run_id,
            is_of_run: false,
            source: place.source.id,
            times: place.times.clone(),
            timeline: Timeline::new(),
            steps: TaskSteps::new(step_ns.unwrap_or(TASKS_STEP_NS)),
            is_in_steps: step_ns.is_some(),
            has_begun: false,
            offset_ns: 0,
            reached_ns: 0,
        })
    }

    /// Returns a monotonic time, in nanoseconds. All samples before this time were returned.
    pub(crate) fn reached_ns(&self) -> u64 {
        self.reached_ns
    }

    /// Reads a part of the events. Passes the samples that these events complete to `take`.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn step(&mut self, take: &mut dyn FnMut(&SampleView<'_>)) -> Result<FeedStep, SegmentError> {
        let Self { reader, timeline, steps, times, .. } = self;
        match reader.next()? {
            None => {
                // A segment that is still being written may get more events for the last sample, so
                // the last sample is computed only if no segment is being written.
                if !reader.is_live() {
                    self.finish(take);
                }
                self.reached_ns = u64::MAX;
                return Ok(FeedStep::End);
            }
            Some(ReplayItem::Header(header, _)) => self.is_of_run = header.run_id == self.run_id,
            Some(ReplayItem::Sample(sample)) if self.is_of_run && sample.telemetry.source == self.source => {
                let sample = &sample.telemetry;
                let Ok(batch) = SchedBatch::read(sample.payload) else { return Ok(FeedStep::Undecodable) };
                self.offset_ns = sample.wall_ns.wrapping_sub_unsigned(sample.mono_ns);
                // All steps use the clock offset of the first sample, so that they have equal
                // lengths even if the wall clock is set during the run.
                if self.is_in_steps && !std::mem::replace(&mut self.has_begun, true) {
                    steps.set_offset(self.offset_ns);
                }
                let clock = SampleClock { offset_ns: self.offset_ns, early_ns: u64::from(self.is_in_steps) };
                timeline.add(sample.seq, &batch, steps);
                steps.reach(timeline, |sample| clock.pass_on(sample, times, take));
                self.reached_ns = steps.complete_ns().saturating_sub(clock.early_ns);
            }
            Some(_) => {}
        }
        Ok(FeedStep::Read)
    }

    /// Passes the last sample of the run to `take`.
    pub(crate) fn finish(&mut self, take: &mut dyn FnMut(&SampleView<'_>)) {
        let clock = SampleClock { offset_ns: self.offset_ns, early_ns: u64::from(self.is_in_steps) };
        let Self { steps, times, .. } = self;
        steps.finish(|sample| clock.pass_on(sample, times, take));
    }

    /// Looks for new segments of the run.
    ///
    /// # Errors
    /// The error `Io` means that a path is missing or unreadable.
    pub(crate) fn refresh(&mut self) -> Result<(), SegmentError> {
        self.reached_ns = self.steps.complete_ns().saturating_sub(u64::from(self.is_in_steps));
        self.reader.refresh()
    }
}

/// The times of samples.
#[derive(Clone, Copy)]
struct SampleClock {
    /// Wall time minus monotonic time.
    offset_ns: i64,
    /// How much earlier the reported time of a sample is than its actual time, in nanoseconds.
    early_ns: u64,
}

impl SampleClock {
    /// Passes a sample to the function `take` if the query requests its time.
    fn pass_on(self, sample: &TaskSample<'_>, times: &WantedTimes, take: &mut dyn FnMut(&SampleView<'_>)) {
        let early_ns = if sample.is_begin { 0 } else { self.early_ns };
        let mono_ns = sample.time_ns.saturating_sub(early_ns);
        let wall_ns = self.offset_ns.wrapping_add_unsigned(mono_ns);
        if times.contains(wall_ns, mono_ns) {
            take(&SampleView {
                source: TASKS_ID,
                seq: sample.number,
                mono_ns,
                wall_ns,
                flags: Incomplete::TOO_MANY.unless(!sample.is_cut).flags(),
                duration_ns: 0,
                payload: sample.payload,
            });
        }
    }
}
