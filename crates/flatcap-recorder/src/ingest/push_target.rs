//! The interface between the `ingest` module and the run to which the pushed frames belong.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use flatcap_format::segment::SourceInfo;
use flatcap_lane::LaneHeader;
use flatcap_metrics::SourceMetrics;

use super::left_lane::LeftLane;

/// The run that accepts pushed frames. The functions of this trait never wait.
pub trait PushTarget: Send {
    /// Returns whether a source of the host has this name.
    fn is_reserved(&self, name: &str) -> bool;

    /// Adds a source, to which the run assigns an id. In the recording, the description of the
    /// source comes before any frame that is queued after this call.
    ///
    /// # Errors
    /// `Later` if the caller must repeat the call, or `Refused` if the run refuses the source.
    fn add_source(&self, source: SourceInfo) -> Result<AddedSource, SourceRefusal>;

    /// Writes a mark for an application of this user. If there is a ring, also requests a snapshot
    /// of its window.
    ///
    /// # Errors
    /// The trigger is refused. The message states the reason.
    fn trigger(&self, uid: u32, text: String) -> Result<(), String>;

    /// Takes over a lane of an earlier run, to read the lane later.
    ///
    /// # Errors
    /// The lane is refused. The message states the reason.
    fn take_over(&self, lane: LeftLane) -> Result<(), String>;

    /// Stores the memory of a new lane in a place where it outlives this process, if that is
    /// possible.
    fn keep_lane(&self, header: &LaneHeader, memory: BorrowedFd<'_>);

    /// Removes a lane from the store of [`keep_lane`](Self::keep_lane), after the lane has ended
    /// and was read.
    fn forget_lane(&self, header: &LaneHeader);
}

/// A source that was added to the run.
#[derive(Debug)]
pub struct AddedSource {
    /// The source's id.
    pub id: u16,
    /// The source's counters.
    pub counters: Arc<SourceMetrics>,
}

/// The reason why a source was not added.
#[derive(Debug)]
pub enum SourceRefusal {
    /// The source cannot be added at the moment, because other sources are being added. Try again.
    Later,
    /// The run refuses the source. The message is intended for people.
    Refused(String),
}
