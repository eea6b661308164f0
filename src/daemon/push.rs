//! The thread of pushed frames, which starts and ends with a run. If the thread cannot be started,
//! the run continues without it.

use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;

use flatcap_lane::{LaneBudget, LaneHeader, SLAB_BYTES_MIN};
use flatcap_metrics::{Metrics, SourceMetrics};
use flatcap_os::clock::{NS_PER_S, WallOffset};
use flatcap_os::host::boot_id_number;
use flatcap_os::packet_socket::PacketListener;
use flatcap_os::shared_memory::{create_private_directory, default_directory};
use flatcap_os::thread;
use flatcap_recorder::ingest::{
    AllowedAccounts, LANE_SLAB_BYTES, PushLimits, PushStop, PushWorker, PushWorkerSettings,
};
use flatcap_slab::SlabProducer;

use super::memory_budget::RUN_SOURCES_MAX;
use super::push_target::RunTarget;
use super::settings::{count, nanoseconds};
use crate::config::Config;

/// The socket's name in the runtime directory.
const SOCKET_NAME: &str = "push.sock";
/// Divisor of the segment size that gives the space for the descriptors of pushed sources. They may
/// take at most 1/4 of a segment, because header and footer repeat all of them.
const DESCRIPTION_SHARE: u64 = 4;
/// Number of a run's sources that are reserved for the host and for reloads.
const HOST_SOURCES: u64 = 512;

/// The running thread.
pub(super) struct PushThread {
    pub(super) stop: PushStop,
    pub(super) thread: JoinHandle<()>,
}

/// The thread's settings for this run.
pub(super) struct PushPlace {
    pub(super) run_id: u64,
    pub(super) directory: (u64, u64), // device and inode of the data directory
    pub(super) wall_offset: Arc<WallOffset>,
    pub(super) target: RunTarget,
}

impl PushThread {
    /// Opens the push socket and starts the thread. If either fails, recording continues without
    /// it.
    pub(super) fn start(
        config: &Config,
        place: PushPlace,
        producer: SlabProducer,
        (metrics, ring): (&Metrics, Option<&Metrics>),
    ) -> Option<Self> {
        let limits = limits(config);
        metrics.push.cpu_ns_max.set(cpu_ns_per_second(config));
        metrics.push.description_bytes_max.set(limits.description_bytes);
        metrics.push.memory_bytes_max.set(config.push.memory_max);
        metrics.push.user_frames_max.set(limits.user_frames_per_second);
        metrics.push.user_bytes_max.set(limits.user_bytes_per_second);
        let listener = open_socket(config)?;
        let (allowed, unknown) = AllowedAccounts::find(&config.push.allow);
        for name in unknown {
            tracing::warn!("[push] allow = {name}: this host has no such account; it lets nobody in");
        }
        let settings = PushWorkerSettings {
            listener,
            allowed,
            limits,
            check: config.push.verify,
            drain_ns: nanoseconds(config.push.drain_interval),
            lane_header: lane_header(config, place.run_id, place.directory),
            producer,
            wall_offset: place.wall_offset,
            target: Box::new(place.target),
            cpu_basis_points: config.push.cpu_budget.basis_points(),
            metrics: Arc::clone(&metrics.push),
            recorders: std::iter::once(metrics).chain(ring).map(|each| Arc::clone(&each.push)).collect(),
        };
        let started = PushWorker::new(settings).and_then(|(worker, stop)| {
            let run = move || {
                // A raised priority of the process is meant for the samplers, which must run first.
                // This thread therefore uses batch priority.
                if let Err(error) = thread::set_batch_priority() {
                    tracing::debug!(%error, "the thread of pushed frames keeps its priority");
                }
                worker.run();
            };
            Ok(Self { stop, thread: thread::spawn("push", run)? })
        });
        started
            .inspect_err(
                |error| tracing::warn!(%error, "cannot take frames of applications; recording continues without them"),
            )
            .ok()
    }
}

/// Updates the metrics that are sums over all pushed sources.
pub(super) fn publish_sums(metrics: &Metrics) {
    let pushed = || metrics.sources.iter().filter(|source| source.is_pushed());
    let sum = |count: fn(&SourceMetrics) -> u64| pushed().map(|source| count(source)).sum();
    metrics.push.sources.set(pushed().count() as u64);
    metrics.push.begun.set(sum(|source| source.begun.get()));
    metrics.push.recorded.set(sum(|source| source.recorded.get()));
    metrics.push.bytes.set(sum(|source| source.bytes.get()));
    metrics.push.lost.set(sum(|source| source.lost.get()));
}

fn open_socket(config: &Config) -> Option<PacketListener> {
    let path = if config.push.socket.as_os_str().is_empty() {
        match default_socket() {
            Ok(path) => path,
            Err(error) => {
                tracing::warn!(%error, "no push socket: cannot use the directory; recording continues; set [push] socket");
                return None;
            }
        }
    } else {
        config.push.socket.clone()
    };
    let listener = PacketListener::listen(&path).inspect_err(|error| {
        tracing::warn!(
            socket = %path.display(),
            %error,
            "no push socket: recording continues, but applications cannot push; set [push] socket"
        );
    });
    let listener = listener.ok()?;
    tracing::info!(socket = %listener.path().display(), "applications may push");
    Some(listener)
}

/// Returns the path of the socket in the service's runtime directory, or else in this user's own
/// runtime directory, which is created if missing.
fn default_socket() -> std::io::Result<PathBuf> {
    let directory = default_directory();
    if !directory.is_dir() {
        create_private_directory(&directory)?;
    }
    Ok(directory.join(SOCKET_NAME))
}

fn limits(config: &Config) -> PushLimits {
    let push = &config.push;
    let (segment_bytes, description_key) = smallest_segment(config);
    PushLimits {
        memory_bytes: push.memory_max,
        lane_bytes: push.lane_size,
        clients: count(push.clients.into()),
        lanes: count(push.lanes.into()),
        sources: count(push.sources.into()),
        user_bytes_per_second: push.user_bytes_per_second,
        user_frames_per_second: push.user_frames_per_second.into(),
        schema_bytes: push.schema_max,
        description_bytes: segment_bytes / DESCRIPTION_SHARE,
        description_key,
        run_sources: RUN_SOURCES_MAX - HOST_SOURCES,
    }
}

/// Returns the size of the smallest kind of segment that describes pushed sources, and the name of
/// the key that sets this size.
fn smallest_segment(config: &Config) -> (u64, &'static str) {
    let of_disk = (config.storage.segment_size, "[storage] segment_size");
    let of_ring = || (super::ring::ring_segment_bytes(config), "[blackbox] memory_max");
    let of_ring = config.blackbox.is_on().then(of_ring).filter(|(bytes, _)| *bytes < of_disk.0);
    of_ring.unwrap_or(of_disk)
}

/// Returns the header that is common to all lanes, that is, without number, user and slabs.
pub(super) fn lane_header(config: &Config, run_id: u64, directory: (u64, u64)) -> LaneHeader {
    let half = |bits: u128| u64::try_from(bits & u128::from(u64::MAX)).unwrap_or_default();
    let boot = boot_id_number();
    // A frame of a lane must fit into a slab of the recorder.
    let slab_bytes = LANE_SLAB_BYTES.min(config.buffering.slab_size).max(SLAB_BYTES_MIN);
    LaneHeader {
        slabs: 0,
        slab_bytes: 1 << slab_bytes.ilog2(),
        checksum: config.storage.checksum,
        frame_max: config.storage.frame_max,
        run_id,
        directory,
        boot: (half(boot >> 64), half(boot)),
        lane: 0,
        uid: 0,
        budget: LaneBudget {
            cpu_ns_per_second: cpu_ns_per_second(config),
            user_frames_per_second: config.push.user_frames_per_second.into(),
            user_bytes_per_second: config.push.user_bytes_per_second,
        },
    }
}

/// Returns the CPU time that pushes may use in a second, in nanoseconds.
fn cpu_ns_per_second(config: &Config) -> u64 {
    u64::from(config.push.cpu_budget.basis_points()) * (NS_PER_S / 10_000)
}
