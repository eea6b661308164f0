//! What earlier runs left when they were killed is completed, on a thread of its own beside the new recording.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

use crate::os::clock::monotonic_ns;
use crate::os::thread;
use crate::recorder::Capped;
use crate::segment::{Account, Completion, Leftovers, RecoverError, Recovered, SegmentName};
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

    /// Waits for it until a time.
    pub(super) fn wait_until(&self, deadline_ns: u64) {
        let _has_ended = thread::ends_by(&self.thread, deadline_ns, &mut |_now| {});
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
    let completion = Completion { storage, spare_run: Some(own_run), only: None, dry_run: false };
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

/// Completes the segments that crashed runs have left in a directory, with what their memory still holds. A memory is removed
/// once the files of its run count all that it tells; else it is kept, and a warning says so.
///
/// # Errors
/// The data directory cannot be listed. `each` gets the errors of single segments.
pub fn recover_all(
    completion: &Completion<'_>,
    memories: Vec<Rescue>,
    each: &mut dyn FnMut(SegmentName, Result<Recovered, RecoverError>),
) -> io::Result<()> {
    let mut results: BTreeMap<u64, bool> = BTreeMap::new();
    let mut leftovers = |run_id| {
        let memory = memories.iter().find(|memory| memory.run_id() == run_id);
        memory.map(read).transpose().map(Option::unwrap_or_default)
    };
    completion.run(&mut leftovers, &mut |name, result| {
        *results.entry(name.run_id).or_insert(true) &= result.is_ok();
        each(name, result);
    })?;
    for memory in memories {
        let is_asked = completion.only.is_none_or(|only| only.run_id == memory.run_id());
        let is_completed = results.get(&memory.run_id()).copied();
        if !completion.dry_run && is_asked && is_completed != Some(false) {
            let run_id = memory.run_id();
            if let Err(error) = forget(completion, memory, is_completed.is_some()) {
                tracing::warn!(run_id, %error, "cannot see whether the memory of a killed run is still needed; it is kept");
            }
        }
    }
    Ok(())
}

/// Removes the memory of a run, unless it holds what the files of the run do not count. `is_completed`: a segment of the run
/// was completed a moment ago.
fn forget(completion: &Completion<'_>, memory: Rescue, is_completed: bool) -> io::Result<()> {
    let run_id = memory.run_id();
    let begun = memory.begun()?;
    match completion.account(run_id, &begun)? {
        Account::All => memory.remove(),
        // Only its header could say what the samples are.
        Account::NoFile => {
            let frames = memory.frames().map_or(0, |frames| frames.len());
            if frames > 0 && !is_completed {
                tracing::warn!(
                    run_id,
                    frames,
                    "the memory of a killed run is removed: the data directory has no file of that run any more, and samples without \
                     the header of their segment cannot be read"
                );
            }
            memory.remove();
        }
        Account::Short if completion.only.is_some() => {}
        Account::Short => tracing::warn!(
            run_id,
            memory = %memory.path().display(),
            "the memory of a killed run is kept: it holds samples, or numbers of samples, that no sealed segment of the run counts; \
             run flatcap recover on the run's last segment, or remove the file to give them up"
        ),
    }
    Ok(())
}

fn read(memory: &Rescue) -> io::Result<Leftovers> {
    Ok(Leftovers { frames: memory.frames()?, begun: memory.begun()?, is_followed: false })
}
