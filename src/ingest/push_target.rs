//! What the room needs of the run that it belongs to.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use flatcap_format::segment::SourceInfo;
use flatcap_lane::LaneHeader;

use super::left_lane::LeftLane;
use crate::metrics::SourceMetrics;

/// The run that takes pushed frames. No call waits.
pub trait PushTarget: Send {
    /// Whether a source of the host has this name.
    fn is_reserved(&self, name: &str) -> bool;

    /// Adds a source; the run gives the id. It is described in the recording before a frame that is
    /// queued from now on.
    ///
    /// # Errors
    /// Later, or not in this run.
    fn add_source(&self, source: SourceInfo) -> Result<AddedSource, SourceRefusal>;

    /// Marks the moment in the recording, and keeps the ring's window if there is a ring, for an
    /// application of this user.
    ///
    /// # Errors
    /// One line that says why not.
    fn trigger(&self, uid: u32, text: String) -> Result<(), String>;

    /// Takes over a lane of an earlier run, to be read later.
    ///
    /// # Errors
    /// One line that says why not.
    fn take_over(&self, lane: LeftLane) -> Result<(), String>;

    /// Keeps the memory of a new lane where it outlives this process, if there is such a place.
    fn keep_lane(&self, header: &LaneHeader, memory: BorrowedFd<'_>);

    /// Removes a lane from there: it has ended, and was read.
    fn forget_lane(&self, header: &LaneHeader);
}

/// A source that was added.
#[derive(Debug)]
pub struct AddedSource {
    /// Its id.
    pub id: u16,
    /// Its counters.
    pub counters: Arc<SourceMetrics>,
}

/// Why a source is not added.
#[derive(Debug)]
pub enum SourceRefusal {
    /// Sources are being added by others: ask again.
    Later,
    /// The run does not take it; one line for people.
    Refused(String),
}
