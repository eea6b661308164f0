//! The thread that takes snapshots, and the requests for snapshots by people and signals.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::bounded;
use flatcap_control::{Refusal, RefusalKind};
use flatcap_format::storage::Storage;
use flatcap_metrics::Metrics;
use flatcap_os::clock::{monotonic_ns, read_clocks};
use flatcap_os::directory_tree::DirectoryTree;
use flatcap_os::host_log::HostLog;
use flatcap_os::storage::DataDirectory;
use flatcap_os::thread;
use flatcap_os::wake_event::WakeEvent;
use flatcap_recorder::snapshot::{
    OrderError, SNAPSHOTS_NAME, SnapshotHandle, SnapshotLimits, SnapshotOrder, SnapshotRequests,
    SnapshotSettings, SnapshotWorker,
};
use flatcap_recorder::{CommandError, QuotaStorage, RecorderCommand, RecorderHandle};

use super::settings::{compression_plan, count, nanoseconds};
use crate::config::{Config, format_duration};

/// Maximum time that a snapshot waits until all queued samples are in the ring. After this time,
/// the snapshot is taken anyway and marked as incomplete.
const SETTLE_MAX: Duration = Duration::from_secs(5);
/// Time added to the delay until samples are in the ring, because threads may run late.
const SETTLE_EXTRA_NS: u64 = 20_000_000;
/// Maximum time that the end of a run waits for the last snapshots. If they take longer, the next
/// start completes them.
const STOP_MAX_NS: u64 = 10_000_000_000;

/// The running thread.
pub(super) struct SnapshotThread {
    stop: Arc<AtomicBool>,
    wake: Arc<WakeEvent>,
    thread: JoinHandle<()>,
}

/// The directories and the recorder that the snapshot thread uses.
pub(super) struct SnapshotPlace<'a> {
    pub(super) directory: &'a DataDirectory,
    /// The storage of the data directory, which counts the bytes of snapshots.
    pub(super) storage: Arc<QuotaStorage>,
    pub(super) ring: Arc<QuotaStorage>,
    pub(super) ring_recorder: RecorderHandle,
    pub(super) run_id: u64,
}

impl SnapshotThread {
    /// Starts the thread. If the thread cannot be started, recording continues and snapshot
    /// requests are refused.
    pub(super) fn start(
        config: &Config,
        place: SnapshotPlace<'_>,
        requests: SnapshotRequests,
        metrics: &Metrics,
    ) -> Option<Self> {
        Self::try_start(config, place, requests, metrics)
            .inspect_err(
                |error| tracing::error!(%error, "cannot keep snapshots in data_dir; recording goes on"),
            )
            .ok()
    }

    fn try_start(
        config: &Config,
        place: SnapshotPlace<'_>,
        requests: SnapshotRequests,
        metrics: &Metrics,
    ) -> io::Result<Self> {
        let SnapshotPlace { directory, storage, ring, ring_recorder, run_id } = place;
        let folder = DirectoryTree::create_all(&directory.path().join(SNAPSHOTS_NAME))?;
        let compression = compression_plan(config).compression;
        let buffering = &config.buffering;
        let settings = SnapshotSettings {
            folder: Arc::new(folder),
            ring: ring as Arc<dyn Storage>,
            run_id,
            limits: SnapshotLimits {
                bytes: config.blackbox.keep_bytes,
                count: count(u64::from(config.blackbox.keep_count)),
            },
            compression: Box::new(move |header| compression.for_segment(header)),
            settle_ns: nanoseconds((buffering.flush_interval + buffering.poll_interval) * 2)
                + SETTLE_EXTRA_NS,
            settle: Box::new(move || settle(&ring_recorder)),
            wall_offset_ns: Box::new(|| read_clocks().wall_offset_ns()),
            read_log: Box::new(HostLog::read),
            note_bytes: Box::new(move |bytes| storage.set_snapshot_bytes(bytes)),
            metrics: Arc::clone(&metrics.snapshots),
        };
        let stop = Arc::new(AtomicBool::new(false));
        let wake = requests.wake();
        let worker = SnapshotWorker::new(settings, requests, Arc::clone(&stop));
        let thread = thread::spawn("snapshots", move || worker.run())?;
        Ok(Self { stop, wake, thread })
    }

    /// Copies the existing part of each window that has not yet ended, and ends the thread. The
    /// recorder of the ring must already have ended. While waiting, calls `meanwhile` with the
    /// current time.
    pub(super) fn finish(self, meanwhile: &mut dyn FnMut(u64)) {
        self.stop.store(true, Ordering::Release);
        self.wake.set();
        if thread::wait_for_exit(&self.thread, monotonic_ns() + STOP_MAX_NS, meanwhile) {
            // If the thread panicked, the panic hook has reported it.
            let _panicked = self.thread.join();
        } else {
            tracing::warn!("a snapshot is not finished; the next start completes it");
        }
    }
}

/// Waits until the ring contains all queued samples. Returns false on an error or after the time
/// limit.
fn settle(ring: &RecorderHandle) -> bool {
    let (reply, answer) = bounded(1);
    // The receiver may have stopped waiting, so an error of this send is ignored.
    ring.send(RecorderCommand::Flush, move |result| drop(reply.send(result)));
    // A recorder that has ended has written all its samples.
    matches!(answer.recv_timeout(SETTLE_MAX), Ok(Ok(_) | Err(CommandError::Ending)))
}

/// The window of a requested snapshot.
#[derive(Debug, Clone, Copy)]
pub(super) struct OrderedWindow {
    /// Length of the part of the window before the request.
    pub(super) last: Duration,
    /// Length of the part of the window after the request.
    pub(super) after: Duration,
    /// The user whose application requests the snapshot, or `None` if a person or a signal requests
    /// it.
    pub(super) user: Option<u32>,
}

/// Requests a snapshot. `answer` receives one line when the request is on disk.
pub(super) fn order(
    handle: Option<&SnapshotHandle>,
    OrderedWindow { last, after, user }: OrderedWindow,
    reason: &str,
    answer: impl FnOnce(Result<String, Refusal>) + Send + 'static,
) {
    let Some(handle) = handle else {
        let message = "there is no ring to take a snapshot of: set [blackbox] window and restart";
        return answer(Err(Refusal { kind: RefusalKind::Invalid, message: message.to_owned() }));
    };
    let now_ns = monotonic_ns();
    let reason = if reason.is_empty() { "ordered" } else { reason };
    let order = SnapshotOrder {
        name: reason.to_owned(),
        rule: None,
        user,
        reason: reason.to_owned(),
        values: Vec::new(),
        capture: HostLog::ALL.to_vec(),
        fired_mono_ns: now_ns,
        first_mono_ns: now_ns.saturating_sub(nanoseconds(last)),
        last_mono_ns: now_ns.saturating_add(nanoseconds(after)),
    };
    let ordered = move |begun: Result<String, OrderError>| {
        let done = begun.map(|name| {
            format!(
                "ordered snapshot {name} of the last {} and the next {}; flatcap snapshots --dir DATA_DIR lists it when it is kept",
                format_duration(last),
                format_duration(after)
            )
        });
        answer(done.map_err(|error| {
            let kind = match error {
                OrderError::Busy | OrderError::Ending => RefusalKind::Busy,
                OrderError::NotWritten(_) => RefusalKind::Failed,
            };
            Refusal { kind, message: error.to_string() }
        }));
    };
    // If the request is refused, `answer` receives the reason.
    let _answered = handle.order(order, ordered);
}
