//! What earlier runs left when they were killed is completed, on a thread of its own beside the new recording.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

use crate::os::clock::monotonic_ns;
use crate::os::thread;
use crate::recorder::Capped;
use crate::segment::{Completion, Leftovers, RecoverError, Recovered, SegmentName};
use crate::slab::Rescue;

/// The end of a run waits so long for it; what is not done then is done by the next run, or by `recover`.
const STOP_MAX_NS: u64 = 10_000_000_000;

/// The thread at work.
#[derive(Debug)]
pub(super) struct Recovery {
    thread: JoinHandle<()>,
}

impl Recovery {
    /// Starts to complete the segments of all runs but `own_run`, with what is left of them in `run_dir`.
    pub(super) fn start(
        storage: Arc<Capped>,
        own_run: u64,
        run_dir: PathBuf,
        directory: (u64, u64),
    ) -> io::Result<Self> {
        let thread = thread::spawn("recovery", move || complete(&storage, own_run, &run_dir, directory))?;
        Ok(Self { thread })
    }

    /// Whether it is at work.
    pub(super) fn is_at_work(&self) -> bool {
        !self.thread.is_finished()
    }

    /// Waits for it, up to a limit. `meanwhile` is called with the time while that goes on.
    pub(super) fn finish(self, meanwhile: &mut dyn FnMut(u64)) {
        if !thread::ends_by(&self.thread, monotonic_ns() + STOP_MAX_NS, meanwhile) {
            tracing::warn!("the recovery of earlier runs is not finished; the next run goes on with it");
            return;
        }
        // A panic in there was reported by the panic hook; the segments stay as they are.
        let _panicked = self.thread.join();
    }
}

/// Completes what runs before `own_run` have left in the directory, with what is left of them in `run_dir`.
fn complete(storage: &Capped, own_run: u64, run_dir: &Path, directory: (u64, u64)) {
    let mut each = |name: SegmentName, result: Result<Recovered, RecoverError>| match result {
        Ok(recovered) => tracing::info!(
            segment = %name,
            frames = recovered.frames,
            rescued = recovered.rescued,
            lost = recovered.lost,
            damaged_places = recovered.damage.len(),
            "an earlier run's segment is completed"
        ),
        Err(error) => tracing::error!(segment = %name, %error, "cannot complete an earlier run's segment"),
    };
    let completion = Completion { storage, spare_run: Some(own_run), dry_run: false };
    let found = memories(run_dir, directory, Some(own_run));
    if let Err(error) = found.and_then(|memories| recover_all(&completion, memories, &mut each)) {
        tracing::error!(%error, "cannot look for what earlier runs have left");
    }
}

/// The memory of dead runs but `spare_run` of a data directory, told by its device and inode; none where somebody else may
/// have written what is in `run_dir`: no run of ours keeps anything there.
///
/// # Errors
/// `run_dir` cannot be read.
pub fn memories(run_dir: &Path, directory: (u64, u64), spare_run: Option<u64>) -> io::Result<Vec<Rescue>> {
    Rescue::find(run_dir, directory, spare_run).or_else(|error| match error.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::NotADirectory => {
            tracing::warn!(run_dir = %run_dir.display(), %error, "not looked into for what killed runs have left");
            Ok(Vec::new())
        }
        _ => Err(error),
    })
}

/// Completes every segment that crashed runs have left in a directory, with what their memory still holds, and removes that
/// memory once it is in the segments.
///
/// # Errors
/// The data directory cannot be listed. What goes wrong with one segment is told to `each`.
pub fn recover_all(
    completion: &Completion<'_>,
    memories: Vec<Rescue>,
    each: &mut dyn FnMut(SegmentName, Result<Recovered, RecoverError>),
) -> io::Result<()> {
    let mut asked = BTreeSet::new();
    let mut failed = BTreeSet::new();
    let mut leftovers = |run_id| {
        asked.insert(run_id);
        let memory = memories.iter().find(|memory| memory.run_id() == run_id);
        memory.map(read).transpose().unwrap_or_else(|error| {
            tracing::error!(%error, "cannot read the memory of a dead run");
            failed.insert(run_id);
            None
        })
    };
    let mut errors = BTreeSet::new();
    completion.run(&mut |run_id| leftovers(run_id).unwrap_or_default(), &mut |name, result| {
        if result.is_err() {
            errors.insert(name.run_id);
        }
        each(name, result);
    })?;
    for memory in memories {
        let run_id = memory.run_id();
        if completion.dry_run || failed.contains(&run_id) || errors.contains(&run_id) {
            continue;
        }
        if !asked.contains(&run_id) {
            let frames = memory.frames().map_or(0, |frames| frames.len());
            tracing::info!(run_id, frames, "memory of a run whose segments are all sealed, or gone: removed");
        }
        memory.remove();
    }
    Ok(())
}

fn read(memory: &Rescue) -> io::Result<Leftovers> {
    Ok(Leftovers { frames: memory.frames()?, begun: memory.begun()?, is_followed: false })
}
