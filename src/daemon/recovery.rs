//! Recovery of killed earlier runs, on a separate thread while recording continues.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;

use flatcap_format::segment::{
    Advance, DirectoryRecovery, FrameKind, Leftovers, RecoverError, Recovered, RunCompleteness, SampleView,
    SegmentName, SegmentReader, SourceInfo,
};
use flatcap_format::storage::Storage;
use flatcap_os::clock::monotonic_ns;
use flatcap_os::thread;
use flatcap_recorder::QuotaStorage;
use flatcap_slab::CrashedRun;

/// Maximum time that the end of a run waits for the recovery. If the recovery takes longer, the
/// next run or `flatcap recover` completes it.
const STOP_MAX_NS: u64 = 10_000_000_000;
/// Number of segments of the ring whose samples complete the last segment of a killed run. They
/// cover at least 5 s, which is far more than `disk_period` and the delay until samples are on
/// disk.
const RING_SEGMENTS_READ: usize = 2;

/// The running thread.
#[derive(Debug)]
pub(super) struct RecoveryThread {
    thread: JoinHandle<()>,
    /// The ids of the runs that have left an open segment in the ring; set when the thread ends.
    crashed: Arc<OnceLock<Vec<u64>>>,
}

impl RecoveryThread {
    /// Starts the recovery of the segments of all runs except `own_run`. The recovery uses the
    /// memory of these runs in `run_dir`.
    pub(super) fn start(
        storage: Arc<QuotaStorage>,
        ring: Option<Arc<QuotaStorage>>,
        own_run: u64,
        run_dir: PathBuf,
        directory: (u64, u64),
    ) -> io::Result<Self> {
        let crashed = Arc::new(OnceLock::new());
        let found = Arc::clone(&crashed);
        let thread = thread::spawn("recovery", move || {
            let runs = recover(&storage, ring.as_deref(), own_run, (&run_dir, directory));
            // The cell is set only here, so this cannot fail.
            let _only_once = found.set(runs);
        })?;
        Ok(Self { thread, crashed })
    }

    /// Returns the ids of the runs that have left an open segment in the ring; empty until the
    /// recovery has ended.
    pub(super) fn crashed_runs(&self) -> &[u64] {
        self.crashed.get().map_or(&[], Vec::as_slice)
    }

    /// Returns the cell that is set when the recovery has ended.
    pub(super) fn ending(&self) -> Arc<OnceLock<Vec<u64>>> {
        Arc::clone(&self.crashed)
    }

    /// Returns whether the recovery is still running.
    pub(super) fn is_running(&self) -> bool {
        !self.thread.is_finished()
    }

    /// Waits until the recovery has ended or a deadline has passed.
    pub(super) fn wait_until(&self, deadline_ns: u64) {
        let _has_ended = thread::wait_for_exit(&self.thread, deadline_ns, &mut |_now| {});
    }

    /// Waits until the recovery has ended, up to a time limit. Calls `on_wait` again and again
    /// until then, with the current time.
    pub(super) fn finish(self, on_wait: &mut dyn FnMut(u64)) {
        if !thread::wait_for_exit(&self.thread, monotonic_ns() + STOP_MAX_NS, on_wait) {
            tracing::warn!("the recovery of earlier runs is not finished; the next run continues it");
            return;
        }
        // If the thread panicked, the panic hook has reported it. The segments that the thread was
        // to recover stay unrecovered.
        let _panicked = self.thread.join();
    }
}

/// Recovers all runs except `own_run` in the directory. Uses the memory that these runs left in
/// `run_dir`. Returns the runs that have left an open segment in the ring.
fn recover(
    storage: &QuotaStorage,
    ring: Option<&QuotaStorage>,
    own_run: u64,
    (run_dir, directory): (&Path, (u64, u64)),
) -> Vec<u64> {
    let mut each = |name: SegmentName, result: Result<Recovered, RecoverError>| match result {
        Ok(recovered) => tracing::info!(
            segment = %name,
            frames = recovered.frames,
            rescued = recovered.from_memory,
            lost = recovered.lost,
            damaged_places = recovered.damage.len(),
            "an earlier run's segment is completed"
        ),
        Err(error) => tracing::error!(segment = %name, %error, "cannot complete an earlier run's segment"),
    };
    let completion = DirectoryRecovery { storage, skip_run: Some(own_run), only: None, dry_run: false };
    let found = crashed_runs(run_dir, directory, Some(own_run));
    let recovered = found.and_then(|memories| {
        recover_all(&completion, ring.map(|ring| ring as &dyn Storage), memories, &mut each)
    });
    recovered.unwrap_or_else(|error| {
        tracing::error!(%error, "cannot look for unfinished segments of earlier runs");
        Vec::new()
    })
}

/// Completes the segments that crashed runs have left open in the ring. Returns these runs.
fn recover_ring(ring: &dyn Storage, skip_run: Option<u64>, memories: &[CrashedRun]) -> Vec<u64> {
    let mut crashed = Vec::new();
    let completion = DirectoryRecovery { storage: ring, skip_run, only: None, dry_run: false };
    let mut leftovers = |run_id| {
        let memory = memories.iter().find(|memory| memory.run_id() == run_id);
        memory.map(read_for_ring).transpose().map(Option::unwrap_or_default)
    };
    let mut each = |name: SegmentName, result: Result<Recovered, RecoverError>| match result {
        Ok(recovered) => {
            if !crashed.contains(&name.run_id) {
                crashed.push(name.run_id);
            }
            tracing::info!(
                segment = %name,
                frames = recovered.frames,
                rescued = recovered.from_memory,
                "an earlier run's segment of the ring is completed"
            );
        }
        Err(error) => tracing::error!(segment = %name, %error, "cannot complete a segment of the ring"),
    };
    if let Err(error) = completion.run(&mut leftovers, &mut each) {
        tracing::error!(%error, "cannot look for unfinished segments in the ring");
    }
    crashed
}

/// Adds the newest samples of a run that are only in its ring. Without them, the last segment in
/// the data directory would end before the crash, and the samples between the last thinned one and
/// the crash would count as lost.
fn add_ring_frames(ring: &dyn Storage, run_id: u64, leftovers: &mut Leftovers) -> io::Result<()> {
    let entries = ring.entries()?;
    let mut names: Vec<SegmentName> = entries
        .iter()
        .filter_map(|entry| SegmentName::parse(&entry.name))
        .filter(|name| name.run_id == run_id)
        .collect();
    names.sort_unstable_by_key(|name| std::cmp::Reverse(name.number));
    let mut header_bytes = None;
    for name in names.into_iter().take(RING_SEGMENTS_READ) {
        let file = ring.open(&name.to_string())?;
        let reader = SegmentReader::over(Path::new(&name.to_string()), file);
        let mut reader = reader.map_err(io::Error::other)?;
        header_bytes = Some(reader.header().checksum.frame_bytes(0));
        while let Some(advance) = reader.advance().map_err(io::Error::other)? {
            if let Advance::Frame(at) = advance
                && at.kind == FrameKind::Telemetry
            {
                let mut frame = Vec::with_capacity(at.bytes);
                reader.copy_frame(at, &mut frame);
                leftovers.frames.push(frame);
            }
        }
    }
    // All segments of a run have the same checksum kind, so one header suffices.
    if let Some(header_bytes) = header_bytes {
        leftovers.frames.sort_by_cached_key(|frame| {
            frame.get(header_bytes..).and_then(SampleView::read).map_or(0, |sample| sample.mono_ns)
        });
    }
    Ok(())
}

/// Returns the memory that crashed runs, except `spare_run`, left for a data directory. The data
/// directory is identified by device and inode. Returns an empty list if other users may have
/// written to `run_dir`, because flatcap keeps no memory in such a directory.
///
/// # Errors
/// `run_dir` cannot be read.
pub fn crashed_runs(
    run_dir: &Path,
    directory: (u64, u64),
    spare_run: Option<u64>,
) -> io::Result<Vec<CrashedRun>> {
    CrashedRun::find(run_dir, directory, spare_run).or_else(|error| match error.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::NotADirectory => {
            tracing::warn!(run_dir = %run_dir.display(), %error, "cannot search run_dir for the memory of killed runs");
            Ok(Vec::new())
        }
        _ => Err(error),
    })
}

/// Recovers the segments of crashed runs in a directory, using the memory of these runs. If a run
/// had a ring, the segments of the ring are completed first, and then used too. The memory of a run
/// is removed once the files of the run account for all samples in the memory. Otherwise the memory
/// is kept, with a warning. Returns the runs that have left an open segment in the ring.
///
/// # Errors
/// The data directory cannot be listed. Errors of single segments are passed to `each`.
pub fn recover_all(
    completion: &DirectoryRecovery<'_>,
    ring: Option<&dyn Storage>,
    memories: Vec<CrashedRun>,
    each: &mut dyn FnMut(SegmentName, Result<Recovered, RecoverError>),
) -> io::Result<Vec<u64>> {
    let crashed = match ring.filter(|_| !completion.dry_run) {
        Some(ring) => recover_ring(ring, completion.skip_run, &memories),
        None => Vec::new(),
    };
    let mut results: BTreeMap<u64, bool> = BTreeMap::new();
    let mut leftovers = |run_id| {
        let memory = memories.iter().find(|memory| memory.run_id() == run_id);
        let mut leftovers: Leftovers = memory.map(read).transpose()?.unwrap_or_default();
        if let Some(ring) = ring.filter(|_| memory.is_some())
            && let Err(error) = add_ring_frames(ring, run_id, &mut leftovers)
        {
            tracing::warn!(%error, "cannot read the ring of a killed run; its last samples may count as lost");
        }
        Ok(leftovers)
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
            if let Err(error) = remove_if_counted(completion, memory, is_completed.is_some()) {
                tracing::warn!(run_id, %error, "cannot determine whether the memory of a killed run is still needed; it is kept");
            }
        }
    }
    Ok(crashed)
}

/// Removes the memory of a run, unless the memory has samples that the files of the run do not
/// account for. `is_completed` is true if a segment of the run has just been recovered.
fn remove_if_counted(
    completion: &DirectoryRecovery<'_>,
    memory: CrashedRun,
    is_completed: bool,
) -> io::Result<()> {
    let run_id = memory.run_id();
    let begun = memory.begun()?;
    match completion.run_completeness(run_id, &begun)? {
        RunCompleteness::Complete => memory.remove(),
        // Without a segment header, the samples cannot be read.
        RunCompleteness::NoFile => {
            let frames = memory.frames().map_or(0, |frames| frames.len());
            if frames > 0 && !is_completed {
                tracing::warn!(
                    run_id,
                    frames,
                    "the memory of a killed run is removed: the data directory has no file of that run, and samples cannot be read without \
                     the header of their segment"
                );
            }
            memory.remove();
        }
        RunCompleteness::Incomplete if completion.only.is_some() => {}
        RunCompleteness::Incomplete => tracing::warn!(
            run_id,
            memory = %memory.path().display(),
            "the memory of a killed run is kept: it holds samples, or sequence numbers, that no sealed segment of the run counts; \
             run flatcap recover on the run's last segment, or remove the file to discard them"
        ),
    }
    Ok(())
}

/// Reads the memory of a run to recover its segments in the data directory. If a source has two
/// notes, the first note describes it in the data directory.
fn read(memory: &CrashedRun) -> io::Result<Leftovers> {
    Ok(Leftovers {
        frames: memory.frames()?,
        begun: memory.begun()?,
        sources: memory.records()?.iter().map_while(|record| SourceInfo::decode(record)).collect(),
        ..Leftovers::default()
    })
}

/// Reads the memory of a run to recover its segments in the ring. If a source has two notes, the
/// last note describes it in the ring.
fn read_for_ring(memory: &CrashedRun) -> io::Result<Leftovers> {
    let mut leftovers = read(memory)?;
    leftovers.sources.reverse();
    leftovers.sources.sort_by_key(|source| source.id);
    Ok(leftovers)
}
