//! Where the samples of a run wait until they are written: memory that outlives a kill, if `run_dir` has room for it.

use std::io;
use std::sync::Arc;

use super::error::{DaemonError, start};
use super::plan::{anonymous_arena, kept_arena, run_dir};
use super::recovery::Recovery;
use super::run::Place;
use crate::config::Config;
use crate::os::clock::monotonic_ns;
use crate::slab::{Arena, Rescue};

/// A start waits at most this long for the memory of a killed run to be recovered and removed, if there is no room for two.
/// Sampling begins after it in any case. The recovery of what is in memory usually takes some ten milliseconds.
const ROOM_WAIT_MAX_NS: u64 = 1_000_000_000;

/// The memory of a run that is about to begin.
pub(super) struct RunMemory {
    pub(super) arena: Arena,
    /// Whether a kill leaves it behind.
    pub(super) is_kept: bool,
    /// The recovery of earlier runs, if it had to begin before this one.
    pub(super) recovery: Option<Recovery>,
}

/// Takes memory in `run_dir`, or, if there is none, memory that goes with the process. If `run_dir` is full, earlier runs are
/// recovered first, which removes theirs, and it is tried once more.
pub(super) fn take_memory(config: &Config, place: &Place, run_id: u64) -> Result<RunMemory, DaemonError> {
    let run_dir = run_dir(config);
    // What cannot be looked into is said by the recovery.
    let _is_looked_into = Rescue::remove_blank(&run_dir);
    let mut recovery = None;
    let mut kept = kept_arena(config, run_id, place.directory);
    if kept.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::StorageFull) {
        let storage = Arc::clone(&place.storage);
        let early = Recovery::start(storage, run_id, run_dir.clone(), place.directory)
            .map_err(start("the recovery of earlier runs"))?;
        early.wait_until(monotonic_ns() + ROOM_WAIT_MAX_NS);
        recovery = Some(early);
        kept = kept_arena(config, run_id, place.directory);
    }
    match kept {
        Ok(arena) => Ok(RunMemory { arena, is_kept: true, recovery }),
        Err(error) => {
            tracing::warn!(
                run_dir = %run_dir.display(),
                %error,
                "cannot keep samples there until they are written: if this process is killed, those of its last moments are lost"
            );
            Ok(RunMemory { arena: anonymous_arena(config)?, is_kept: false, recovery })
        }
    }
}
