//! The interface of this module to the run that it belongs to.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use flatcap_format::segment::SourceInfo;
use flatcap_lane::LaneHeader;
use flatcap_metrics::SourceMetrics;

use super::left_lane::LeftLane;

/// The run that takes pushed frames. No call waits.
pub trait PushTarget: Send {
    /// Returns whether a source of the host has this name.
    fn is_reserved(&self, name: &str) -> bool;

    /// Adds a source; the run assigns the id. The recording describes the source before any frame
    /// that is queued from now on.
    ///
    /// # Errors
    /// `Later`, or refused for this run.
    fn add_source(&self, source: SourceInfo) -> Result<AddedSource, SourceRefusal>;

    /// Writes a mark for an application of this user and, if there is a ring, orders a snapshot of
    /// its window.
    ///
    /// # Errors
    /// The trigger is refused; the message says why.
    fn trigger(&self, uid: u32, text: String) -> Result<(), String>;

    /// Takes over a lane of an earlier run, to be read later.
    ///
    /// # Errors
    /// The lane is refused; the message says why.
    fn take_over(&self, lane: LeftLane) -> Result<(), String>;

    /// Stores the memory of a new lane where it outlives this process, if that is possible.
    fn keep_lane(&self, header: &LaneHeader, memory: BorrowedFd<'_>);

    /// Removes a lane from that store, once it has ended and was read.
    fn forget_lane(&self, header: &LaneHeader);
}

/// A source that was added.
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
    /// Other sources are being added: try again.
    Later,
    /// The run refuses the source; the message is for people.
    Refused(String),
}
