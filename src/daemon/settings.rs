//! Derives the settings of each module from the configuration.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use flatcap_format::block::{Codec, CompressionOptions};
use flatcap_format::segment::{Attachment, LiveCompressor, SegmentHeader, SourceInfo};
use flatcap_format::storage::Storage;
use flatcap_metrics::DirectoryMetrics;
use flatcap_os::clock::read_clocks;
use flatcap_os::host::{HostRoot, boot_id_number, host_name};
use flatcap_os::{shared_memory, storage};
use flatcap_recorder::compress::{self, CompressionBudget, NamedSourceCompression};
use flatcap_recorder::ingest::IDLE_INTERVAL_NS;
use flatcap_recorder::{QuotaStorage, RetentionLimits, RunPlan};
use flatcap_sampling::GroupName;
use flatcap_slab::{
    Arena, Geometry, Owner, QueueReceiver, QueueSender, Slab, SlabPool, arena_file_name, slab_queue,
};

use super::memory_budget::{LARGE_SLABS, MemoryBudget, RUN_SOURCES_MAX};
use crate::config::{Config, SourceCompressionConfig};

/// Maximum `frame_max` with which segments can be compressed while recording. A block must hold one
/// batch of frames, and a batch may contain two frames of this size.
const COMPRESS_FRAME_MAX: u32 = 32 << 20;

/// Allocates memory that survives a kill of the process, for the slabs.
///
/// # Errors
/// The same errors as [`Arena::file_backed`].
pub(super) fn kept_arena(config: &Config, run_id: u64, directory: (u64, u64)) -> io::Result<Arena> {
    let (checksum, frame_max) = (config.storage.checksum, config.storage.frame_max);
    let owner = Owner { run_id, directory, checksum, frame_max, boot: boot_id_number() };
    Arena::file_backed(&run_dir(config), geometry(config), &owner)
}

/// Allocates anonymous memory for the slabs. This memory is freed when the process ends.
///
/// # Errors
/// The same errors as [`Arena::anonymous`].
pub(super) fn anonymous_arena(config: &Config) -> io::Result<Arena> {
    Arena::anonymous(geometry(config))
}

/// Returns the layout of the arena. The arena contains the slabs, and a sequence number for each of
/// the sources that a run may have.
fn geometry(config: &Config) -> Geometry {
    let memory = MemoryBudget::of(config);
    Geometry {
        sources: count(RUN_SOURCES_MAX),
        slabs: count(memory.slabs()),
        slab_bytes: count(memory.slab_bytes),
        large_slabs: count(LARGE_SLABS),
        large_slab_bytes: count(memory.large_slab_bytes),
    }
}

/// Returns the directory of the segments.
pub fn data_dir(config: &Config) -> PathBuf {
    let given = &config.recorder.data_dir;
    if given.as_os_str().is_empty() { storage::default_directory() } else { given.clone() }
}

/// Returns the directory that holds samples until they are written.
pub fn run_dir(config: &Config) -> PathBuf {
    let given = &config.recorder.run_dir;
    if given.as_os_str().is_empty() { shared_memory::default_directory() } else { given.clone() }
}

/// Removes the memory of a run. All samples in it must already be in the files.
pub(super) fn remove_memory(config: &Config, run_id: u64) {
    shared_memory::remove_if_exists(&run_dir(config).join(arena_file_name(run_id)));
}

/// Creates one queue for each of these groups.
#[allow(clippy::type_complexity, reason = "two lists, one for each end")]
pub(super) fn queues(
    config: &Config,
    memory: &MemoryBudget,
    groups: impl Iterator<Item = GroupName>,
) -> (Vec<QueueSender<Box<Slab>>>, Vec<QueueReceiver<Box<Slab>>>) {
    groups.map(|name| slab_queue(count(memory.queue_of(name)), config.groups.get(name).on_full)).unzip()
}

/// Asserts that there are as many slabs as places that can hold one. So a slab is free as long as a
/// queue has space.
pub(super) fn assert_slabs(pool: &SlabPool, queues: &[QueueReceiver<Box<Slab>>], memory: &MemoryBudget) {
    // With a ring, there is a second queue, so its slabs count too.
    let waiting: usize = queues.iter().map(QueueReceiver::capacity).sum();
    let of_group = 2; // the open one, and the one that the recorder is reading
    let needed = waiting + of_group * queues.len() + count(memory.writing + memory.passed_on());
    assert!(pool.free() >= needed, "{} slabs for {needed} places", pool.free());
}

pub(super) fn header(config: &Config, run_id: u64, sources: Vec<SourceInfo>) -> SegmentHeader {
    // A slab waits for its flush interval and for the next poll of the recorder. During a backlog,
    // it also waits until the slabs before it are written. In a healthy run, a slab waits for less
    // than twice the sum of the two intervals. The footer has the actual maximum.
    let mut reorder_window = (config.buffering.flush_interval + config.buffering.poll_interval) * 2;
    if config.push.enabled {
        // A pushed frame first waits in its lane.
        reorder_window += config.push.drain_interval.max(Duration::from_nanos(IDLE_INTERVAL_NS));
    }
    let clocks = read_clocks();
    let root = HostRoot::new(&config.recorder.host_root);
    let mut host = host_name(&root);
    let labels = config.recorder.labels.iter();
    host.labels = labels.map(|(name, value)| (name.clone(), value.clone())).collect();
    SegmentHeader {
        segment: 0,
        run_id,
        host,
        agent_version: env!("CARGO_PKG_VERSION").to_owned(),
        checksum: config.storage.checksum,
        frame_max: config.storage.frame_max,
        clocks,
        reorder_window_ns: nanoseconds(reorder_window),
        sources,
        clock_table: vec![clocks],
        recorder_pid: root.own_pid().unwrap_or_default(),
    }
}

pub(super) fn run_plan(config: &Config, memory: &MemoryBudget, header: SegmentHeader) -> RunPlan {
    let attachment = Attachment {
        name: "flatcap.toml".to_owned(),
        media_type: "application/toml".to_owned(),
        mono_ns: header.clocks.mono_ns,
        wall_ns: header.clocks.wall_ns,
        content: config.to_toml_redacted().into_bytes(),
    };
    RunPlan {
        compression: compress_while_recording(config, &header),
        header,
        attachments: vec![attachment],
        segment_bytes: config.storage.segment_size,
        segment_age_ns: nanoseconds(config.storage.segment_age),
        sync: config.storage.sync,
        preallocate: config.storage.preallocate,
        batches: Vec::new(),
        poll_interval_ns: nanoseconds(config.buffering.poll_interval),
        batch_slabs: count(memory.writing),
    }
}

/// Locks memory against swapping, if configured. Returns whether the memory is locked.
pub(super) fn lock_memory(config: &Config, lock: fn() -> io::Result<()>) -> bool {
    if !config.recorder.lock_memory {
        return false;
    }
    let result = lock();
    if let Err(error) = &result {
        tracing::warn!(
            %error,
            "[recorder] lock_memory = true: the kernel refuses to lock all memory, some may be swapped out; grant CAP_IPC_LOCK, or set \
             LimitMEMLOCK=infinity for the service"
        );
    }
    result.is_ok()
}

/// Returns the storage of the data directory with the configured quota.
pub(super) fn quota_storage(
    config: &Config,
    directory: Arc<dyn Storage>,
    metrics: Arc<DirectoryMetrics>,
) -> QuotaStorage {
    let quota = QuotaStorage::with_metrics(directory, retention(config), metrics);
    let receipts = &config.storage.keep_until_shipped;
    if receipts.as_os_str().is_empty() { quota } else { quota.with_receipts(receipts.clone()) }
}

pub(super) fn retention(config: &Config) -> RetentionLimits {
    RetentionLimits {
        bytes: config.storage.retain_bytes,
        age_ns: nanoseconds(config.storage.retain_age),
        min_free: config.storage.min_free,
        min_bytes: config.storage.retain_min,
    }
}

/// Returns the settings for compression while recording; `None` if this compression is disabled.
fn compress_while_recording(config: &Config, header: &SegmentHeader) -> Option<LiveCompressor> {
    let codec = config.compress.while_recording?;
    if config.storage.frame_max > COMPRESS_FRAME_MAX {
        tracing::warn!(
            "segments are not compressed while recording: [compress] while_recording needs a frame_max of at most 32MiB, since a block holds whole frames"
        );
        return None;
    }
    let mut options = compression_plan(config).compression.for_segment(header);
    options.general.codec = codec;
    // Sources that are not compressed in sealed segments are also not compressed here.
    options
        .sources
        .iter_mut()
        .filter(|(_, way)| way.codec != Codec::None)
        .for_each(|(_, way)| way.codec = codec);
    Some(LiveCompressor::new(options, header))
}

/// Returns the compression of all sources, which is `general` except for the given sources.
pub fn source_compression(
    general: CompressionOptions,
    sources: &[SourceCompressionConfig],
) -> NamedSourceCompression {
    let own = |source: &SourceCompressionConfig| {
        let layout = source.layout.unwrap_or(general.layout);
        (source.name.clone(), CompressionOptions { layout, codec: source.codec })
    };
    NamedSourceCompression { general, sources: sources.iter().map(own).collect() }
}

/// Returns the compression settings of sealed segments.
pub(super) fn compression_plan(config: &Config) -> compress::CompressSettings {
    let compress = &config.compress;
    let general = CompressionOptions { layout: compress.layout, codec: compress.codec };
    compress::CompressSettings {
        enabled: compress.enabled,
        compression: source_compression(general, &compress.sources),
        block_bytes: compress.block_size,
        budget: CompressionBudget {
            cpu_basis_points: compress.cpu_budget.basis_points(),
            io_bytes: compress.io_budget,
        },
        is_quiet: false,
    }
}

/// Converts a size or a count to `usize`. The conversion cannot fail, because the platform has 64
/// bits, and the configuration limits the values.
pub(super) fn count(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

/// Converts a duration. The durations in the configuration are short enough to fit into 64 bits.
pub(super) fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
