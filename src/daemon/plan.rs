//! What a configuration comes to for each room: one slice a room, and nothing else.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::error::{DaemonError, start};
use super::run::Shared;
use crate::block::{Codec, Way};
use crate::config::{Config, GroupName, LARGE_SLABS, Memory, RUN_SOURCES_MAX, SealSource, Sync};
use crate::metrics::GroupMetrics;
use crate::os::clock::ClockReading;
use crate::os::host::{HostIdentity, HostRoot, boot_number};
use crate::os::{shared_memory, storage};
use crate::recorder::{KeepFree, RetentionLimits, RunPlan, SyncPolicy};
use crate::seal::{self, Budget, NamedWays};
use crate::segment::{Attachment, Header, Packing, SourceInfo};
use crate::slab::{
    self, Arena, Geometry, HandOverSettings, OnFull, Owner, QueueReceiver, QueueSender, Slab, SlabPool,
    slab_queue,
};
use crate::stream::ChecksumKind;

/// Largest `frame_max` with which segments are packed while they are recorded: what is written at once, two such frames among it, fits into a block.
const ACTIVE_FRAME_MAX: u32 = 32 << 20;

/// Memory for the slabs that outlives a kill.
///
/// # Errors
/// As [`Arena::kept`].
pub(super) fn kept_arena(config: &Config, run_id: u64, directory: (u64, u64)) -> io::Result<Arena> {
    let frame_max = config.storage.frame_max;
    let owner = Owner { run_id, directory, checksum: checksum(config), frame_max, boot: boot_number() };
    Arena::kept(&run_dir(config), geometry(config), &owner)
}

/// Memory for the slabs that does not.
pub(super) fn anonymous_arena(config: &Config) -> Result<Arena, DaemonError> {
    Arena::anonymous(geometry(config)).map_err(start("the slabs"))
}

/// The slabs, and the numbers of as many sources as a run can have.
fn geometry(config: &Config) -> Geometry {
    let memory = config.memory();
    Geometry {
        sources: count(RUN_SOURCES_MAX),
        slabs: count(memory.slabs()),
        slab_bytes: count(memory.slab_bytes),
        large_slabs: count(LARGE_SLABS),
        large_slab_bytes: count(memory.large_slab_bytes),
    }
}

/// Where segments go.
pub fn data_dir(config: &Config) -> PathBuf {
    let given = &config.agent.data_dir;
    if given.as_os_str().is_empty() { storage::default_directory() } else { given.clone() }
}

/// Where runs keep what is not written yet.
pub fn run_dir(config: &Config) -> PathBuf {
    let given = &config.agent.run_dir;
    if given.as_os_str().is_empty() { shared_memory::default_directory() } else { given.clone() }
}

/// Removes a run's memory: nothing in it is missing elsewhere.
pub(super) fn forget_memory(config: &Config, run_id: u64) {
    shared_memory::remove_if_there(&run_dir(config).join(slab::file_name(run_id)));
}

/// A queue for each of these groups.
#[allow(clippy::type_complexity, reason = "two lists, each of one end")]
pub(super) fn queues(
    config: &Config,
    memory: &Memory,
    groups: impl Iterator<Item = GroupName>,
) -> (Vec<QueueSender<Box<Slab>>>, Vec<QueueReceiver<Box<Slab>>>) {
    groups.map(|name| slab_queue(count(memory.queue_of(name)), on_full(config, name))).unzip()
}

/// There is one slab for each place where one can be, so that one is free as long as any queue has room.
pub(super) fn assert_slabs(pool: &SlabPool, queues: &[QueueReceiver<Box<Slab>>], memory: &Memory) {
    let waiting: usize = queues.iter().map(QueueReceiver::capacity).sum();
    let of_group = 2; // the one that it fills, and the one that the recorder looks at
    let places = waiting + of_group * queues.len() + count(memory.writing);
    assert!(pool.free() >= places, "{} slabs for {places} places", pool.free());
}

pub(super) fn on_full(config: &Config, group: GroupName) -> OnFull {
    match config.groups.get(group).on_full {
        crate::config::OnFull::DropNewest => OnFull::DropNewest,
        crate::config::OnFull::DropOldest => OnFull::DropOldest,
        crate::config::OnFull::Block => OnFull::Block,
    }
}

pub(super) fn hand_over_settings(
    config: &Config,
    shared: &Shared,
    queue: QueueSender<Box<Slab>>,
    counters: &Arc<GroupMetrics>,
) -> HandOverSettings {
    HandOverSettings {
        pool: Arc::clone(&shared.pool),
        queue,
        ledger: Arc::clone(&shared.ledger),
        wake: Arc::clone(&shared.wake),
        checksum: checksum(config),
        frame_max: config.storage.frame_max,
        interval_ns: nanoseconds(config.handover.hand_over),
        begun: Arc::clone(&shared.begun),
        sources: shared.sources,
        metrics: Arc::clone(counters),
        stop: Arc::clone(&shared.stop),
    }
}

pub(super) fn header(config: &Config, run_id: u64, sources: Vec<SourceInfo>) -> Header {
    // A slab waits for its interval, for the recorder to look, and in a backlog behind others: twice the two is what
    // a healthy run stays under. The footer says what it really was.
    let reorder_window = (config.handover.hand_over + config.handover.drain) * 2;
    let clocks = ClockReading::now();
    Header {
        segment: 0,
        run_id,
        host: HostIdentity::read(&HostRoot::new(&config.agent.host_root)),
        agent_version: env!("CARGO_PKG_VERSION").to_owned(),
        checksum: checksum(config),
        frame_max: config.storage.frame_max,
        clocks,
        reorder_window_ns: nanoseconds(reorder_window),
        sources,
        clock_table: vec![clocks],
    }
}

pub(super) fn run_plan(config: &Config, memory: &Memory, header: Header) -> RunPlan {
    let attachment = Attachment {
        name: "flatcap.toml".to_owned(),
        media_type: "application/toml".to_owned(),
        mono_ns: header.clocks.mono_ns,
        wall_ns: header.clocks.wall_ns,
        content: config.to_toml_redacted().into_bytes(),
    };
    RunPlan {
        packing: packing(config, &header),
        header,
        attachments: vec![attachment],
        segment_bytes: config.storage.segment_size,
        segment_age_ns: nanoseconds(config.storage.segment_age),
        sync: match config.storage.sync {
            Sync::Never => SyncPolicy::Never,
            Sync::Interval(interval) => SyncPolicy::Interval(nanoseconds(interval)),
            Sync::Always => SyncPolicy::Always,
        },
        preallocate: config.storage.preallocate,
        drain_ns: nanoseconds(config.handover.drain),
        batch_slabs: count(memory.writing),
    }
}

pub(super) fn retention(config: &Config) -> RetentionLimits {
    RetentionLimits {
        bytes: config.storage.retain_bytes,
        age_ns: nanoseconds(config.storage.retain_age),
        keep_free: match config.storage.keep_free {
            crate::config::KeepFree::Size(bytes) => KeepFree::Bytes(bytes),
            crate::config::KeepFree::Percent(percent) => KeepFree::BasisPoints(u16::from(percent) * 100),
        },
        least: config.storage.retain_min,
    }
}

/// What packs segments while they are recorded, if anything does.
fn packing(config: &Config, header: &Header) -> Option<Packing> {
    let codec = config.seal.active?;
    if config.storage.frame_max > ACTIVE_FRAME_MAX {
        tracing::warn!(
            "segments are not packed while they are recorded: [seal] active needs a frame_max of at most 32MiB, since a block holds whole frames"
        );
        return None;
    }
    let mut ways = seal_plan(config).ways.of(header);
    ways.general.codec = codec;
    // What is not worth packing later is not worth it now.
    ways.sources
        .iter_mut()
        .filter(|(_, way)| way.codec != Codec::None)
        .for_each(|(_, way)| way.codec = codec);
    Some(Packing::new(ways, header))
}

/// How closed segments are packed.
pub(super) fn seal_plan(config: &Config) -> seal::Plan {
    let seal = &config.seal;
    let general = Way { layout: seal.layout, codec: seal.codec };
    let way = |source: &SealSource| Way { layout: source.layout.unwrap_or(seal.layout), codec: source.codec };
    seal::Plan {
        enabled: seal.enabled,
        ways: NamedWays {
            general,
            sources: seal.sources.iter().map(|source| (source.name.clone(), way(source))).collect(),
        },
        block_bytes: seal.block_size,
        budget: Budget { cpu_basis_points: seal.cpu_budget.basis_points(), io_bytes: seal.io_budget },
    }
}

pub(super) fn checksum(config: &Config) -> ChecksumKind {
    use crate::config::Checksum;
    match config.storage.checksum {
        Checksum::Xxh3 => ChecksumKind::Xxh3,
        Checksum::Crc32 => ChecksumKind::Crc32,
        Checksum::Crc16 => ChecksumKind::Crc16,
        Checksum::None => ChecksumKind::None,
    }
}

/// Sizes and counts fit: the platform has 64 bits, and the configuration limits them.
pub(super) fn count(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

/// Durations of the configuration are at most days.
pub(super) fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recorder::LOSS_BYTES;
    use crate::slab::{HandOver, LossLedger};

    // Goal: what the configuration counts for a slab is what a slab takes. Method: sizes on both sides of its limits.
    #[test]
    fn slabs_take_what_is_counted() {
        for bytes in [1, 64, 16 << 10, 64 << 10, 256 << 10, 4 << 20, 1 << 30] {
            assert_eq!(Memory::slab_side_bytes(bytes as u64), Slab::side_bytes(bytes) as u64, "{bytes}");
        }
    }

    // Goal: what it counts for losses and gaps is what they take. Method: by what each says it takes.
    #[test]
    fn losses_take_what_is_counted() {
        let (of_source, of_slab) = LOSS_BYTES;
        let growing = count(RUN_SOURCES_MAX) * GroupName::ALL.len() * HandOver::SOURCE_BYTES;
        let taken = LossLedger::BYTES + 7 * of_source + growing;
        assert_eq!(Memory::losses_bytes(7), (taken as u64).next_multiple_of(1 << 10));
        assert_eq!(Memory::gaps_bytes(), of_slab as u64);
    }
}
