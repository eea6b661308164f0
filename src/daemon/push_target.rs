//! Connects the thread of pushed frames to the run.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::Sender;
use flatcap_format::segment::{Marker, MarkerOrigin, SourceInfo};
use flatcap_lane::LaneHeader;
use flatcap_os::clock::{WallOffset, monotonic_ns};
use flatcap_recorder::ingest::{AddedSource, LeftLane, PushTarget, SourceRefusal};
use flatcap_recorder::snapshot::SnapshotHandle;
use flatcap_recorder::{RecorderCommand, RecorderHandle};
use flatcap_sampling::sources::is_reserved;

use super::lane_store::{LaneStore, StoredLane};
use super::memory_budget::RUN_SOURCES_MAX;
use super::run_sources::{AddSourceError, RunSources};
use super::snapshots::{self, OrderedWindow};

/// Adds sources to the run, and fires triggers of applications.
pub(super) struct RunTarget {
    pub(super) sources: Arc<RunSources>,
    /// The recorders that receive the marks of triggers.
    pub(super) recorders: Vec<RecorderHandle>,
    pub(super) snapshots: Option<SnapshotHandle>,
    /// Length of the ring's window.
    pub(super) window: Duration,
    pub(super) wall_offset: Arc<WallOffset>,
    /// The queue for the lanes of killed runs.
    pub(super) left_lanes: Sender<LeftLane>,
    /// The service manager's store for the memory of lanes.
    pub(super) lane_store: Arc<LaneStore>,
}

impl PushTarget for RunTarget {
    fn is_reserved(&self, name: &str) -> bool {
        is_reserved(name)
    }

    fn add_source(&self, source: SourceInfo) -> Result<AddedSource, SourceRefusal> {
        self.sources.add_pushed(source).map(|(id, counters)| AddedSource { id, counters }).map_err(|error| {
            match error {
                AddSourceError::Busy => SourceRefusal::Later,
                AddSourceError::TooMany => SourceRefusal::Refused(format!(
                    "this run has had {RUN_SOURCES_MAX} sources, the limit; restart the recorder"
                )),
            }
        })
    }

    fn trigger(&self, uid: u32, text: String) -> Result<(), String> {
        let mono_ns = monotonic_ns();
        let wall_ns = self.wall_offset.get().wrapping_add_unsigned(mono_ns);
        for recorder in &self.recorders {
            let marker = Marker { mono_ns, wall_ns, origin: MarkerOrigin::Trigger, text: text.clone() };
            recorder.send(RecorderCommand::CopyMarker(Box::new(marker)), drop);
        }
        if self.snapshots.is_some() {
            let window = OrderedWindow { last: self.window, after: Duration::ZERO, user: Some(uid) };
            snapshots::order(self.snapshots.as_ref(), window, &text, move |result| match result {
                Ok(done) => tracing::info!(uid, "{done}"),
                // This is not an error of the recorder. The mark is written, and the snapshot is
                // refused only because too many requests are queued.
                Err(refusal) => {
                    tracing::warn!(uid, "no snapshot for the trigger of an application: {}", refusal.message);
                }
            });
        }
        Ok(())
    }

    fn take_over(&self, lane: LeftLane) -> Result<(), String> {
        let sent = self.left_lanes.try_send(lane);
        sent.map_err(|_| "too many lanes wait to be rescued".to_owned())
    }

    fn keep_lane(&self, header: &LaneHeader, memory: BorrowedFd<'_>) {
        self.lane_store.keep(header, memory);
    }

    fn forget_lane(&self, header: &LaneHeader) {
        self.lane_store.forget(StoredLane::of(header));
    }
}
