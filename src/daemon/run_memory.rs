//! The memory that holds samples until they are written. The memory survives a kill of the
//! process if `run_dir` has enough free space.

use std::io;
use std::sync::Arc;

use flatcap_os::clock::monotonic_ns;
use flatcap_slab::{Arena, CrashedRun};

use super::error::{DaemonError, cannot_start};
use super::recovery::RecoveryThread;
use super::run::RunStorage;
use super::settings::{anonymous_arena, kept_arena, run_dir};
use crate::config::Config;

/// Maximum time that a start waits until the memory of a killed run is recovered and removed. A
/// start waits only if there is not enough space for the memory of both runs. After this time,
/// sampling starts in any case. Recovering the memory usually takes tens of milliseconds.
const SPACE_WAIT_MAX_NS: u64 = 1_000_000_000;

/// The memory of a run that is about to start.
pub(super) struct RunMemory {
    pub(super) arena: Arena,
    /// Whether the memory survives a kill of the process.
    pub(super) is_kept: bool,
    /// The recovery of earlier runs, if it had to start before this run.
    pub(super) recovery: Option<RecoveryThread>,
}

/// Allocates the memory in `run_dir`, or as anonymous memory if that fails. If `run_dir` is full,
/// first recovers earlier runs, which removes their memory, and tries again.
pub(super) fn allocate_memory(
    config: &Config,
    place: &RunStorage,
    run_id: u64,
) -> Result<RunMemory, DaemonError> {
    let run_dir = run_dir(config);
    // If the directory cannot be read, the recovery reports this.
    let _ignored = CrashedRun::remove_blank(&run_dir);
    let mut recovery = None;
    let mut kept = kept_arena(config, run_id, place.directory);
    if kept.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::StorageFull) {
        let storage = Arc::clone(&place.storage);
        let ring = place.ring.as_ref().map(|(storage, _)| Arc::clone(storage));
        let early = RecoveryThread::start(storage, ring, run_id, run_dir.clone(), place.directory)
            .map_err(cannot_start("the recovery of earlier runs"))?;
        early.wait_until(monotonic_ns() + SPACE_WAIT_MAX_NS);
        recovery = Some(early);
        kept = kept_arena(config, run_id, place.directory);
    }
    match kept {
        Ok(arena) => Ok(RunMemory { arena, is_kept: true, recovery }),
        Err(error) => {
            tracing::warn!(
                run_dir = %run_dir.display(),
                %error,
                "cannot keep unwritten samples in run_dir: if this process is killed, its last samples are lost"
            );
            let arena = anonymous_arena(config).map_err(cannot_start("the slabs"))?;
            Ok(RunMemory { arena, is_kept: false, recovery })
        }
    }
}
