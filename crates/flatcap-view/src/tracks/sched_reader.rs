//! Reads scheduler payloads in time order.

use std::path::PathBuf;

use flatcap_format::replay::{HostIdentity, MergedReader, Notice, ReplayFilter, ReplayItem};
use flatcap_format::segment::{ListedSegment, SegmentError, SelectedSegment, list, select};
use flatcap_tasks::{PAYLOAD_NS_MAX, SchedBatch, Timeline, schema};

use super::pixel_tracks::CPUS_MAX;
use super::stretches::{Stretch, StretchKind};
use super::wall_interval::{OnWallClock, TrackObserver};
use crate::ViewError;

/// The location of scheduler payloads.
#[derive(Debug, Clone)]
pub(crate) struct SchedSource {
    /// Segment files, or directories of segments.
    pub(crate) paths: Vec<PathBuf>,
    /// The host; `None` if all segments are from one host.
    pub(crate) host: Option<HostIdentity>,
    /// Name of the source.
    pub(crate) name: String,
}

/// Reads scheduler payloads forward from a time. Keeps the state of each thread at the end of the
/// data that was read.
#[derive(Debug)]
pub(crate) struct SchedReader {
    reader: MergedReader,
    timeline: Timeline,
    continuity: Continuity,
    has_wakeups: bool,
    unreadable: u64,
    cpus: usize,
}

/// State that shows whether the next payload directly follows the previous payload.
#[derive(Debug, Default)]
struct Continuity {
    /// Wall time minus monotonic time.
    offset_ns: i64,
    /// The last payload of the run; `None` at the start of a run.
    last: Option<LastBatch>,
    /// End of the previous run in wall nanoseconds; `None` after the first payload of the next run.
    run_end_ns: Option<i64>,
}

/// The fields of the previous payload that are compared with the next payload.
#[derive(Debug, Clone, Copy)]
struct LastBatch {
    seq: u64,
    end_ns: i64,
    lost: u64,
    stopped_ns: u64,
    is_stopped: bool,
}

impl SchedSource {
    /// Returns whether a root type is the type of scheduler payloads.
    pub(crate) fn is_root(name: &str) -> bool {
        name == schema::SCHED_ROOT
    }

    /// Returns the paths to read for a time range. For a recording that does not grow, these are
    /// only the segments with scheduler samples.
    fn paths(&self, from_ns: i64, until_ns: i64) -> Result<Vec<PathBuf>, SegmentError> {
        let listings = list(&self.paths)?;
        // A growing recording gets further segments, so its whole directories are read.
        if listings.iter().any(|listing| listing.live) {
            return Ok(self.paths.clone());
        }
        // The source may be recorded in only a few segments, and the time before the first sample
        // must be short.
        let selected = select(listings, Some(from_ns), Some(until_ns), None);
        let wanted = selected.into_iter().map(|SelectedSegment { listing, .. }| listing);
        Ok(wanted.filter(|listing| self.may_be_in(listing)).map(|listing| listing.path).collect())
    }

    fn may_be_in(&self, listing: &ListedSegment) -> bool {
        // A segment that cannot be opened may have samples, so it is kept, and the reader reports
        // the error.
        let Ok(Some(reader)) = listing.open() else { return true };
        let Some(footer) = reader.footer() else { return true };
        let sources = footer.header.sources.iter().filter(|source| source.name == self.name);
        let mut ids = sources.map(|source| source.id);
        ids.any(|id| footer.totals.iter().any(|totals| totals.source == id && totals.recorded > 0))
    }
}

impl SchedReader {
    /// Opens a reader for a time range.
    pub(crate) fn open(source: &SchedSource, from_ns: i64, until_ns: i64) -> Result<Self, ViewError> {
        // A sample is stamped when it is read, which is after its events.
        let until_ns = until_ns.saturating_add_unsigned(PAYLOAD_NS_MAX);
        let filter = ReplayFilter {
            sources: [source.name.clone()].into(),
            since_ns: Some(from_ns),
            until_ns: Some(until_ns),
            host: source.host.clone(),
            ..ReplayFilter::default()
        };
        Ok(Self {
            reader: MergedReader::open(&source.paths(from_ns, until_ns)?, filter)?,
            timeline: Timeline::new(),
            continuity: Continuity::default(),
            has_wakeups: false,
            unreadable: 0,
            cpus: 0,
        })
    }

    /// Reads up to a wall time while `may_go_on` returns true. Returns whether the reader reached
    /// that time or the end of the recording.
    pub(crate) fn advance(
        &mut self,
        to_ns: i64,
        observer: &mut impl TrackObserver,
        may_go_on: &mut dyn FnMut() -> bool,
    ) -> Result<bool, ViewError> {
        loop {
            if self.reached_ns().is_some_and(|reached_ns| reached_ns >= to_ns) {
                return Ok(true);
            }
            if !may_go_on() {
                return Ok(false);
            }
            match self.reader.next()? {
                None => return Ok(true),
                Some(ReplayItem::Header(..)) => {
                    let offset_ns = self.continuity.offset_ns;
                    self.timeline.begin_run(&mut OnWallClock { offset_ns, observer: &mut *observer });
                    self.continuity.begin_run();
                }
                Some(ReplayItem::Sample(sample)) => {
                    let sample = sample.telemetry;
                    let Ok(batch) = SchedBatch::read(sample.payload) else {
                        self.unreadable = self.unreadable.saturating_add(1);
                        continue;
                    };
                    let offset_ns = sample.wall_ns.wrapping_sub_unsigned(sample.mono_ns);
                    self.continuity.offset_ns = offset_ns;
                    let mut on_wall_clock = OnWallClock { offset_ns, observer: &mut *observer };
                    self.timeline.add(sample.seq, &batch, &mut on_wall_clock);
                    self.cpus = self.cpus.max(batch.running().count().min(CPUS_MAX));
                    self.has_wakeups |= batch.has_wakeups();
                    for stretch in self.continuity.follow(sample.seq, &batch).into_iter().flatten() {
                        observer.stretch(stretch);
                    }
                }
                Some(ReplayItem::Notice(Notice::Damaged(..) | Notice::Unreadable(_))) => {
                    self.unreadable = self.unreadable.saturating_add(1);
                }
                Some(_) => {}
            }
        }
    }

    /// Checks for segments that were started since the last call.
    pub(crate) fn refresh(&mut self) -> Result<(), ViewError> {
        Ok(self.reader.refresh()?)
    }

    /// Passes to `observer` the open intervals of the threads that run or are ready at the end of
    /// the data that was read.
    pub(crate) fn open_intervals(&self, observer: &mut impl TrackObserver) {
        let mut observer = OnWallClock { offset_ns: self.continuity.offset_ns, observer };
        for interval in self.timeline.active() {
            observer.pass(&interval);
        }
    }

    /// Returns the end of the last payload in wall nanoseconds, or `None` before the first payload.
    pub(crate) fn reached_ns(&self) -> Option<i64> {
        self.continuity.last.map(|last| last.end_ns)
    }

    /// Returns whether any payload had wakeups.
    pub(crate) fn has_wakeups(&self) -> bool {
        self.has_wakeups
    }

    /// Returns the number of damaged ranges, unreadable segments and invalid payloads.
    pub(crate) fn unreadable(&self) -> u64 {
        self.unreadable
    }

    /// Returns the number of CPUs listed at the start of payloads, at most [`CPUS_MAX`].
    pub(crate) fn cpus(&self) -> usize {
        self.cpus
    }
}

impl Continuity {
    fn begin_run(&mut self) {
        // A run without payloads keeps the end of the previous run.
        self.run_end_ns = self.last.take().map(|last| last.end_ns).or(self.run_end_ns);
    }

    /// Records a payload. Returns the ranges since the previous payload. In these ranges, the
    /// activity is not completely known.
    fn follow(&mut self, seq: u64, batch: &SchedBatch<'_>) -> [Option<Stretch>; 3] {
        let wall_ns = |mono_ns: u64| self.offset_ns.saturating_add_unsigned(mono_ns);
        let (begin_ns, end_ns) = (wall_ns(batch.begin_ns()), wall_ns(batch.end_ns()));
        let before = self.last;
        let follows = before.filter(|last| last.seq.wrapping_add(1) == seq);
        let stretch = |kind, begin_ns, end_ns, lost| Stretch { kind, begin_ns, end_ns, lost };
        let missing = match before {
            Some(last) => (begin_ns > last.end_ns).then_some(last.end_ns),
            None => self.run_end_ns.take().filter(|run_end_ns| begin_ns > *run_end_ns),
        };
        let missing = missing.map(|from_ns| stretch(StretchKind::NotRecorded, from_ns, begin_ns, 0));
        // The payload's count is a total since the start of the run.
        let dropped = before.map_or(0, |last| batch.lost().saturating_sub(last.lost));
        let lost = (dropped > 0).then(|| stretch(StretchKind::Lost, begin_ns, end_ns, dropped));
        // As in the timeline, a stopped time is at the end of the payload, at its start, or covers
        // the whole payload.
        let stopped_ns = before.map_or(0, |last| batch.stopped_ns().saturating_sub(last.stopped_ns));
        let was_stopped = follows.is_some_and(|last| last.is_stopped);
        let (is_stopped, stopped) = (batch.is_stopped(), StretchKind::Stopped);
        let stopped = match (was_stopped, is_stopped) {
            (false, false) => None,
            (false, true) => {
                let from_ns = end_ns.saturating_sub_unsigned(stopped_ns).max(begin_ns);
                Some(stretch(stopped, from_ns, end_ns, 0))
            }
            (true, false) => {
                let to_ns = begin_ns.saturating_add_unsigned(stopped_ns).min(end_ns);
                Some(stretch(stopped, begin_ns, to_ns, 0))
            }
            (true, true) => Some(stretch(stopped, begin_ns, end_ns, 0)),
        };
        self.last = Some(LastBatch {
            seq,
            end_ns: before.map_or(end_ns, |last| last.end_ns.max(end_ns)),
            lost: batch.lost(),
            stopped_ns: batch.stopped_ns(),
            is_stopped,
        });
        [missing, lost, stopped.filter(|stretch| stretch.begin_ns < stretch.end_ns)]
    }
}
