//! The thread of pushed frames, started and ended with a run. If it cannot be started, the run
//! continues without it.

use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;

use flatcap_lane::{LaneHeader, SLAB_BYTES_MIN};

use super::push_target::RunTarget;
use super::settings::{count, nanoseconds};
use crate::config::Config;
use crate::ingest::{AllowedAccounts, LANE_SLAB_BYTES, PushLimits, PushStop, PushWorker, PushWorkerSettings};
use crate::metrics::{Metrics, SourceMetrics};
use crate::os::clock::WallOffset;
use crate::os::host::boot_id_number;
use crate::os::packet_socket::PacketListener;
use crate::os::shared_memory::{create_private_directory, default_directory};
use crate::os::thread;
use crate::slab::SlabProducer;

/// The socket's name in the runtime directory.
const SOCKET_NAME: &str = "push.sock";
/// The descriptors of pushed sources take at most this part of a segment: header and footer repeat
/// all of them.
const DESCRIPTION_SHARE: u64 = 4;

/// The running thread.
pub(super) struct PushThread {
    pub(super) stop: PushStop,
    pub(super) thread: JoinHandle<()>,
}

/// What the thread works with.
pub(super) struct PushPlace {
    pub(super) run_id: u64,
    pub(super) directory: (u64, u64), // device and inode of the data directory
    pub(super) wall_offset: Arc<WallOffset>,
    pub(super) target: RunTarget,
}

impl PushThread {
    /// Opens the push socket and starts the thread. Without it, recording goes on.
    pub(super) fn start(
        config: &Config,
        place: PushPlace,
        producer: SlabProducer,
        metrics: &Metrics,
    ) -> Option<Self> {
        metrics.push.memory_bytes_max.set(config.push.memory_max);
        let listener = open_socket(config)?;
        let (allowed, unknown) = AllowedAccounts::find(&config.push.allow);
        for name in unknown {
            tracing::warn!("[push] allow = {name}: this host has no such account; it lets nobody in");
        }
        let settings = PushWorkerSettings {
            listener,
            allowed,
            limits: limits(config),
            check: config.push.verify,
            drain_ns: nanoseconds(config.push.drain_interval),
            lane_header: lane_header(config, place.run_id, place.directory),
            producer,
            wall_offset: place.wall_offset,
            target: Box::new(place.target),
            metrics: Arc::clone(&metrics.push),
        };
        let started = PushWorker::new(settings).and_then(|(worker, stop)| {
            Ok(Self { stop, thread: thread::spawn("push", move || worker.run())? })
        });
        started
            .inspect_err(
                |error| tracing::warn!(%error, "cannot take frames of applications; recording continues without them"),
            )
            .ok()
    }
}

/// Publishes the sums over all pushed sources.
pub(super) fn publish_sums(metrics: &Metrics) {
    let pushed = || metrics.sources.iter().filter(|source| source.is_pushed);
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

/// Returns the path of the socket in the service's runtime directory, or in this user's own one,
/// which is created if missing.
fn default_socket() -> std::io::Result<PathBuf> {
    let directory = default_directory();
    if !directory.is_dir() {
        create_private_directory(&directory)?;
    }
    Ok(directory.join(SOCKET_NAME))
}

fn limits(config: &Config) -> PushLimits {
    let push = &config.push;
    let ring = &config.blackbox;
    let of_ring = if ring.is_on() { super::ring::ring_segment_bytes(config) } else { u64::MAX };
    PushLimits {
        memory_bytes: push.memory_max,
        lane_bytes: push.lane_size,
        clients: count(push.clients.into()),
        lanes: count(push.lanes.into()),
        sources: count(push.sources.into()),
        user_bytes_per_second: push.user_bytes_per_second,
        user_frames_per_second: push.user_frames_per_second.into(),
        schema_bytes: push.schema_max,
        description_bytes: config.storage.segment_size.min(of_ring) / DESCRIPTION_SHARE,
    }
}

/// Returns the header of each lane; its number, user and slabs are given with the lane.
pub(super) fn lane_header(config: &Config, run_id: u64, directory: (u64, u64)) -> LaneHeader {
    let half = |bits: u128| u64::try_from(bits & u128::from(u64::MAX)).unwrap_or_default();
    let boot = boot_id_number();
    // A frame of a lane fits into a slab of the recorder.
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
    }
}
