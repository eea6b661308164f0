//! The ring buffer of recent samples, which holds the last seconds of every source at its own rate.
//! It is a directory of segments on tmpfs, or on disk if configured.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use flatcap_format::segment::{SegmentHeader, SourceInfo};
use flatcap_format::storage::Storage;
use flatcap_metrics::{Metrics, SourceMetrics};
use flatcap_os::clock::monotonic_ns;
use flatcap_os::shared_memory;
use flatcap_os::storage::DataDirectory;
use flatcap_recorder::compress::{
    CompressSettings, CompressWorker, CompressWorkerHandle, CompressionBudget, new_worker,
};
use flatcap_recorder::{MinFree, QuotaStorage, RetentionLimits, RunPlan, SourceThinning, SyncPolicy};
use flatcap_sampling::BatchMode;

use super::compression::CompressionThread;
use super::error::DaemonError;
use super::settings::{compression_plan, nanoseconds, run_dir};
use crate::config::Config;

/// Age at which a segment of the ring is sealed. It is short, because an open segment is
/// uncompressed and only whole segments are removed from the ring. 5 s of six sources at 1 kHz are
/// a few megabytes.
const SEGMENT_AGE_NS: u64 = 5_000_000_000;
/// Time from the start of a run until the age of the segments of earlier runs begins to count. In
/// this time, earlier runs are recovered and their snapshots are completed from the ring.
const COMPLETION_NS: u64 = 60_000_000_000;
/// Divisor of the ring's memory that gives the maximum size of a segment. Two segments are
/// uncompressed at a time, the open one and the one that is being compressed.
const SEGMENT_SHARE: u64 = 16;
/// Uncompressed size of a block, in bytes. A block of this size holds about 0.3 s of six sources at
/// 1 kHz, or a few seconds of the default sources. The size matters, because a snapshot
/// decompresses whole blocks at the start and the end of its window.
const BLOCK_BYTES: usize = 1 << 20;
/// Share of one core that the compression of the ring may use, in basis points. This is several
/// times the need of six sources at 1 kHz. Without compression no samples are lost, but the window
/// is shorter.
const CPU_BASIS_POINTS: u32 = 2_000;
/// Maximum number of bytes per second that compression may read and write. The ring is in memory,
/// so this is in effect unlimited.
const IO_BYTES: u64 = 4 << 30;
/// Name of the link to the ring in the data directory.
pub(super) const LINK_NAME: &str = "ring";

/// The ring of a run that is about to start.
pub(super) struct Ring {
    /// The directory, limited in bytes and age.
    pub(super) storage: Arc<QuotaStorage>,
    /// The ring's path.
    pub(super) path: PathBuf,
    /// The counters of the ring's recorder, directory and compression.
    pub(super) metrics: Arc<Metrics>,
    compressor: (CompressWorkerHandle, CompressWorker),
}

/// Returns the directory of the ring of a data directory. The name of the ring's directory contains
/// the device and inode of the data directory, because all recorders of a user share `run_dir`.
fn ring_path(run_dir: &Path, (device, inode): (u64, u64)) -> PathBuf {
    run_dir.join(format!("ring-{device:x}-{inode:x}"))
}

impl Ring {
    /// Opens the ring of a data directory. Returns `None` if no ring is configured, or if `run_dir`
    /// cannot hold the ring. If `run_dir` cannot hold the ring, everything is recorded in the data
    /// directory, without thinning.
    pub(super) fn open(config: &Config, directory: &DataDirectory, metrics: &Metrics) -> Option<Self> {
        if !config.blackbox.is_on() {
            return None;
        }
        let is_on_disk = config.blackbox.window_on_disk;
        let (path, opened) =
            if is_on_disk { open_on_disk(directory) } else { open_in_memory(config, directory) };
        let storage = match opened {
            Ok(storage) => storage,
            Err(error) => {
                tracing::error!(
                    ring = %path.display(),
                    %error,
                    "cannot open the ring of [blackbox]: there is none, and data_dir gets every sample"
                );
                return None;
            }
        };
        if !is_on_disk && !storage.is_in_memory() {
            tracing::warn!(
                ring = %path.display(),
                "run_dir is not on tmpfs: the ring of [blackbox] is written to a disk"
            );
        }
        if !is_on_disk && let Err(error) = directory.set_link(LINK_NAME, &path) {
            tracing::warn!(%error, ring = %path.display(), "cannot link the ring into data_dir; read it by its path");
        }
        let sources = metrics
            .sources
            .iter()
            .map(|source| SourceMetrics::new(source.name.clone(), source.period_ns.get()));
        let groups = metrics.groups.clone();
        let ring_metrics = Arc::new(Metrics::new(sources, metrics.sources.capacity(), groups));
        let storage: Arc<dyn Storage> = Arc::new(storage);
        let compressor = new_worker(
            ring_compression(config),
            Arc::clone(&storage),
            Arc::clone(&ring_metrics.compression),
            Arc::clone(&ring_metrics.directory),
        );
        let quota =
            QuotaStorage::with_metrics(storage, ring_limits(config), Arc::clone(&ring_metrics.directory))
                .quiet()
                .with_earlier_runs_from(monotonic_ns().saturating_add(COMPLETION_NS));
        Some(Self { storage: Arc::new(quota), path, metrics: ring_metrics, compressor })
    }

    /// Returns the handle of the ring's compressor.
    pub(super) fn compressor(&self) -> CompressWorkerHandle {
        self.compressor.0.clone()
    }

    /// Starts the thread that compresses the ring's sealed segments.
    pub(super) fn start_compression(self) -> io::Result<CompressionThread> {
        let (link, worker) = self.compressor;
        // On a busy host, an idle-priority thread may get no CPU time for minutes. In that time,
        // the ring would hold only a fraction of its window.
        link.set_urgent(true);
        CompressionThread::start("compress-ring", link, worker)
    }
}

type OpenedRing = (PathBuf, io::Result<DataDirectory>);

fn open_in_memory(config: &Config, directory: &DataDirectory) -> OpenedRing {
    let run_dir = run_dir(config);
    let path = ring_path(&run_dir, directory.identity());
    let opened = shared_memory::create_private_directory(&run_dir)
        .and_then(|()| DataDirectory::open(&path).map_err(io::Error::other));
    (path, opened)
}

/// Opens the ring that an earlier run left in `run_dir` or in the data directory, if there is such
/// a ring.
///
/// # Errors
/// The ring is in use, or cannot be opened. This is an error because, without the ring, the samples
/// in it would count as lost.
pub fn existing_ring(
    run_dir: &Path,
    directory: &DataDirectory,
) -> Result<Option<DataDirectory>, DaemonError> {
    let in_memory = ring_path(run_dir, directory.identity());
    let on_disk = directory.path().join(LINK_NAME);
    // The name in the data directory is a link to the ring in memory, or the ring itself.
    let is_there = |path: &PathBuf| std::fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_dir());
    let path = [in_memory, on_disk].into_iter().find(is_there);
    path.map(|path| DataDirectory::open_existing(&path)).transpose().map_err(DaemonError::from)
}

/// Opens the ring in the data directory, replacing the link to an earlier ring in memory.
fn open_on_disk(directory: &DataDirectory) -> OpenedRing {
    let path = directory.path().join(LINK_NAME);
    let opened =
        directory.remove_link(LINK_NAME).and_then(|()| DataDirectory::open(&path).map_err(io::Error::other));
    (path, opened)
}

/// Returns the limits of the ring.
pub(super) fn ring_limits(config: &Config) -> RetentionLimits {
    RetentionLimits {
        bytes: config.blackbox.memory_max,
        // A segment may be removed only when its last sample has left the window.
        age_ns: nanoseconds(config.blackbox.window).saturating_add(SEGMENT_AGE_NS),
        // If the ring is on the disk of `data_dir`, the data directory maintains `min_free`. It
        // removes its own oldest segments before the newest samples of the ring are removed.
        min_free: if config.blackbox.window_on_disk { MinFree::Bytes(0) } else { MinFree::Auto },
        min_bytes: 0,
    }
}

/// Returns the compression settings of the ring.
pub(super) fn ring_compression(config: &Config) -> CompressSettings {
    let usual = compression_plan(config);
    CompressSettings {
        enabled: true,
        block_bytes: usual.block_bytes.min(BLOCK_BYTES),
        budget: CompressionBudget { cpu_basis_points: CPU_BASIS_POINTS, io_bytes: IO_BYTES },
        is_quiet: true,
        ..usual
    }
}

/// Returns the size at which a segment of the ring is sealed.
pub(super) fn ring_segment_bytes(config: &Config) -> u64 {
    config.blackbox.memory_max / SEGMENT_SHARE
}

/// Returns the plan of the ring's recorder. `plan` is the plan of the data directory before
/// thinning.
pub(super) fn ring_plan(config: &Config, plan: &RunPlan) -> RunPlan {
    RunPlan {
        segment_bytes: ring_segment_bytes(config),
        segment_age_ns: SEGMENT_AGE_NS,
        // A ring in memory needs no sync.
        sync: if config.blackbox.window_on_disk { plan.sync } else { SyncPolicy::Never },
        preallocate: 0,
        compression: None,
        batches: batches(config, &plan.header),
        ..plan.clone()
    }
}

/// Returns the sources whose samples are batches of events, by id. For each, also returns whether
/// it is recorded in the data directory.
fn batches(config: &Config, header: &SegmentHeader) -> Vec<(u16, SourceThinning)> {
    let thinning = |info: &SourceInfo| {
        let source = config.sources.iter().find(|source| source.full_name() == info.name)?;
        Some((
            info.id,
            match source.mode? {
                BatchMode::Always => SourceThinning::All,
                BatchMode::Armed => SourceThinning::None,
            },
        ))
    };
    header.sources.iter().filter_map(thinning).collect()
}

/// Returns the plan of the data directory, in which sources have their thinned periods.
pub(super) fn thinned_plan(config: &Config, mut plan: RunPlan) -> RunPlan {
    let disk_period_ns = nanoseconds(config.blackbox.disk_period);
    let batches = batches(config, &plan.header);
    let is_thinned =
        |source: &&mut SourceInfo| source.period_ns > 0 && !batches.iter().any(|(id, _)| *id == source.id);
    for source in plan.header.sources.iter_mut().filter(is_thinned) {
        source.period_ns = source.period_ns.max(disk_period_ns);
    }
    plan
}
