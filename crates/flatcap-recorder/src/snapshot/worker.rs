//! The snapshot thread. The thread takes requests, waits for the ends of their windows, and copies
//! the windows.
//!
//! The directory is created as soon as the request arrives, and contains the request. So if this
//! process is killed, the next process completes the snapshot from the ring.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use flatcap_format::block::SourceCompression;
use flatcap_format::schema::to_visible_json;
use flatcap_format::segment::{Attachment, Marker, MarkerOrigin, SegmentHeader};
use flatcap_format::storage::Storage;
use flatcap_metrics::SnapshotMetrics;
use flatcap_os::clock::monotonic_ns;
use flatcap_os::host_log::{HostLog, LogWindow};

use super::order::{OrderError, OrderId, SnapshotOrder, SnapshotRequest, SnapshotRequests};
use super::pending_snapshot::PendingSnapshot;
use super::record::{
    CapturedLog, PARTIAL_SUFFIX, RECORD_NAME, REQUEST_NAME, SnapshotRecord, SnapshotRequestFile,
    directory_name, read_json, write_json,
};
use super::ring_segment::{RingSegment, follow_each_other, last_sample_ns, merged, open, ring_segments};
use super::store::{SnapshotFolder, SnapshotLimits, enforce_limits};
use super::window_copy::{WindowCopy, copy_window};

/// Maximum number of directory names that are tried for a snapshot. The names differ in a number
/// that is appended.
const NAMES_TRIED_MAX: usize = 100;

/// A function that reads the entries of a host log within a window, and returns them as text.
pub(super) type LogReader = dyn Fn(HostLog, &LogWindow) -> io::Result<Vec<u8>> + Send;

/// The settings of the thread.
pub struct SnapshotSettings {
    /// The directory that contains the directories of snapshots.
    pub folder: Arc<dyn SnapshotFolder>,
    /// The ring.
    pub ring: Arc<dyn Storage>,
    /// The run that records into the ring.
    pub run_id: u64,
    /// Limits of all snapshots.
    pub limits: SnapshotLimits,
    /// The function that returns the compression settings for a header.
    pub compression: Box<dyn Fn(&SegmentHeader) -> SourceCompression + Send>,
    /// Time after the end of a window at which the last samples of the window are in the ring, in
    /// nanoseconds.
    pub settle_ns: u64,
    /// The function that waits until the ring contains all queued samples. The function returns
    /// false on an error or after the time limit.
    pub settle: Box<dyn FnMut() -> bool + Send>,
    /// The function that returns the difference between wall time and monotonic time, in
    /// nanoseconds.
    pub wall_offset_ns: Box<dyn Fn() -> i64 + Send>,
    /// The function that reads the entries of a host log within a window.
    pub read_log: Box<LogReader>,
    /// The function that receives the total size of all snapshots whenever this size changes.
    pub note_bytes: Box<dyn Fn(u64) + Send>,
    /// The counters of snapshots.
    pub metrics: Arc<SnapshotMetrics>,
}

impl fmt::Debug for SnapshotSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SnapshotSettings").field("folder", &self.folder).finish_non_exhaustive()
    }
}

/// The thread's state.
#[derive(Debug)]
pub struct SnapshotWorker {
    settings: SnapshotSettings,
    requests: SnapshotRequests,
    stop: Arc<AtomicBool>,
    pending: Vec<PendingSnapshot>,
}

impl SnapshotWorker {
    /// Creates the thread's state. The thread ends when it is woken and `stop` is true. Windows
    /// that have not ended by then are copied up to that time.
    pub fn new(settings: SnapshotSettings, requests: SnapshotRequests, stop: Arc<AtomicBool>) -> Self {
        Self { settings, requests, stop, pending: Vec::new() }
    }

    /// Runs the snapshot loop on the caller's thread until it is stopped.
    pub fn run(mut self) {
        self.keep_limits(None);
        loop {
            self.requests.wake.clear();
            let is_stopping = self.stop.load(Ordering::Acquire);
            while let Ok(request) = self.requests.receiver.try_recv() {
                self.take(request);
            }
            let now_ns = monotonic_ns();
            let settle_ns = self.settings.settle_ns;
            let is_due = |pending: &PendingSnapshot| is_stopping || pending.due_ns(settle_ns) <= now_ns;
            let (due, waiting) = std::mem::take(&mut self.pending).into_iter().partition(is_due);
            self.pending = waiting;
            for pending in due {
                self.finish(pending, now_ns, is_stopping);
            }
            self.settings.metrics.pending.set(self.pending.len() as u64);
            if is_stopping {
                return;
            }
            match self.pending.iter().map(|pending| pending.due_ns(settle_ns)).min() {
                Some(next_ns) => {
                    self.requests.wake.wait_until(next_ns);
                }
                None => self.requests.wake.wait(),
            }
        }
    }

    fn take(&mut self, request: SnapshotRequest) {
        match request {
            SnapshotRequest::Extend(id, last_mono_ns) => {
                let found = self.pending.iter_mut().find(|pending| pending.ids.contains(&id));
                if let Some(pending) = found {
                    pending.window.1 = pending.window.1.max(last_mono_ns);
                    // The failure was already logged. If the process is killed, the next start
                    // completes the snapshot with the shorter window.
                    let _shorter_after_a_kill = self.write_request_of(id);
                }
            }
            SnapshotRequest::CompleteInterrupted => self.complete_interrupted(),
            SnapshotRequest::KeepRun(run_id) => {
                if let Err(error) = self.keep_run(run_id) {
                    self.settings.metrics.failed.add(1);
                    tracing::error!(%error, "cannot keep what the ring has of a run that a crash has ended");
                }
            }
            SnapshotRequest::Order(id, order, reply) => {
                let begun = self.take_order(id, order);
                reply.send(begun.map_err(|error| OrderError::NotWritten(error.to_string())));
            }
        }
    }

    /// Accepts a request. Returns the name of the snapshot if the request is on disk. The snapshot
    /// is pending even if the request could not be written.
    fn take_order(&mut self, id: OrderId, order: SnapshotOrder) -> io::Result<String> {
        self.settings.metrics.ordered.add(1);
        let window = (order.first_mono_ns, order.last_mono_ns.max(order.first_mono_ns));
        let held = self.held_segments(self.settings.run_id, window.0);
        if let Some(pending) = self.pending.iter_mut().find(|pending| pending.joins(window, order.user)) {
            pending.window = (pending.window.0.min(window.0), pending.window.1.max(window.1));
            pending.ids.push(id);
            pending.orders.push(order);
            pending.held = merged(std::mem::take(&mut pending.held), held);
            let name = pending.name.clone();
            return self.write_request_of(id).map(|()| name);
        }
        let wall_offset_ns = (self.settings.wall_offset_ns)();
        let fired_wall_ns = wall_offset_ns.wrapping_add_unsigned(order.fired_mono_ns);
        let mut pending = PendingSnapshot {
            ids: vec![id],
            name: directory_name(&order, fired_wall_ns),
            orders: vec![order],
            run_id: self.settings.run_id,
            wall_offset_ns,
            window,
            held,
            ..PendingSnapshot::default()
        };
        let begun = self.begin(&mut pending);
        if let Err(error) = &begun {
            tracing::warn!(
                snapshot = pending.name.as_str(),
                %error,
                "cannot begin the directory of a snapshot; it is tried again at the end of its window, but a kill until \
                 then loses it"
            );
        }
        let name = pending.name.clone();
        self.pending.push(pending);
        begun.map(|()| name)
    }

    /// Opens the segments that the window needs. A segment that cannot be opened now may become
    /// readable before the window is copied.
    fn held_segments(&self, run_id: u64, first_mono_ns: u64) -> Vec<RingSegment> {
        let segments = ring_segments(&*self.settings.ring, run_id).unwrap_or_else(|error| {
            tracing::warn!(%error, "cannot read the ring for a snapshot; it is tried again at the end of its window");
            Vec::new()
        });
        let begin = segments.iter().rposition(|segment| segment.created_ns <= first_mono_ns).unwrap_or(0);
        segments.into_iter().skip(begin).collect()
    }

    /// Creates the directory, and writes the request into it.
    fn begin(&self, pending: &mut PendingSnapshot) -> io::Result<()> {
        let folder = &self.settings.folder;
        let taken = folder.names()?;
        let base = pending.name.clone();
        let is_free = |name: &String| !taken.contains(name) && !taken.contains(&partial_name(name));
        let numbered = (2..NAMES_TRIED_MAX).map(|number| format!("{base}-{number}"));
        pending.name = std::iter::once(base.clone())
            .chain(numbered)
            .find(is_free)
            .ok_or(io::ErrorKind::AlreadyExists)?;
        folder.create(&partial_name(&pending.name))?;
        self.write_request(pending)?;
        folder.sync()
    }

    fn write_request_of(&self, id: OrderId) -> io::Result<()> {
        let found = self.pending.iter().find(|pending| pending.ids.contains(&id));
        let Some(pending) = found else { return Ok(()) };
        self.write_request(pending).inspect_err(|error| {
            tracing::warn!(
                snapshot = pending.name.as_str(),
                %error,
                "cannot write the longer window of a snapshot down; a kill before its end makes it shorter"
            );
        })
    }

    fn write_request(&self, pending: &PendingSnapshot) -> io::Result<()> {
        let storage = self.settings.folder.open(&partial_name(&pending.name))?;
        let mut orders = pending.orders.clone();
        if let Some(order) = orders.first_mut() {
            (order.first_mono_ns, order.last_mono_ns) = pending.window;
        }
        let request =
            SnapshotRequestFile { run_id: pending.run_id, wall_offset_ns: pending.wall_offset_ns, orders };
        let next = format!("{REQUEST_NAME}.next");
        remove_if_there(&*storage, &next)?;
        write_json(&*storage, &next, &request)?;
        storage.replace(&next, REQUEST_NAME)?;
        storage.sync_directory()
    }

    /// Completes a snapshot whose window has ended. A failed copy is tried again. If the thread
    /// ends before a copy succeeds, the next start of the recorder tries again.
    fn finish(&mut self, mut pending: PendingSnapshot, now_ns: u64, is_last: bool) {
        self.settings.metrics.copies_begun.add(1);
        let is_settled = (self.settings.settle)();
        let is_whole = is_settled && pending.window.1 <= now_ns;
        pending.window.1 = pending.window.1.min(now_ns);
        let now = ring_segments(&*self.settings.ring, pending.run_id).unwrap_or_default();
        let segments = merged(std::mem::take(&mut pending.held), now);
        let kept = self.keep(&pending, &segments, is_whole);
        self.settings.metrics.copies_ended.add(1);
        if let Err(error) = &kept
            && !is_last
            && let Some(wait_ns) = pending.retry_after(now_ns)
        {
            tracing::warn!(
                snapshot = pending.name.as_str(),
                %error,
                "cannot copy the window of a snapshot; it is tried again in {} s",
                wait_ns / 1_000_000_000
            );
            pending.held = segments;
            self.pending.push(pending);
            return;
        }
        self.report(&pending.name, kept);
        self.keep_limits(Some(&pending.name));
    }

    fn report(&self, name: &str, kept: io::Result<SnapshotRecord>) {
        match kept {
            Ok(record) => {
                self.settings.metrics.published.add(1);
                self.settings.metrics.incomplete.add(u64::from(!record.complete));
                tracing::info!(
                    snapshot = name,
                    samples = record.samples,
                    lost = record.lost,
                    complete = record.complete,
                    "a snapshot is kept"
                );
            }
            Err(error) => {
                self.settings.metrics.failed.add(1);
                tracing::error!(snapshot = name, %error, "cannot keep a snapshot; free disk space or check data_dir");
            }
        }
    }

    /// Copies a window into its directory, and gives the directory its final name.
    fn keep(
        &self,
        pending: &PendingSnapshot,
        segments: &[RingSegment],
        is_whole: bool,
    ) -> io::Result<SnapshotRecord> {
        let folder = &self.settings.folder;
        let partial = partial_name(&pending.name);
        match folder.create(&partial) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        let storage = folder.open(&partial)?;
        // Remove the partial result of an earlier attempt.
        for entry in storage.entries()?.iter().filter(|entry| entry.name != REQUEST_NAME) {
            storage.remove(&entry.name)?;
        }
        let order = pending.orders.first().cloned().unwrap_or_default();
        let mut record = SnapshotRecord {
            name: pending.name.clone(),
            rule: order.rule.clone(),
            reason: order.reason.clone(),
            values: order.values.clone(),
            fired_mono_ns: order.fired_mono_ns,
            fired_wall_ns: pending.wall_offset_ns.wrapping_add_unsigned(order.fired_mono_ns),
            window_mono_ns: pending.window,
            orders: pending.orders.clone(),
            ..SnapshotRecord::default()
        };
        let marker = Marker {
            mono_ns: record.fired_mono_ns,
            wall_ns: record.fired_wall_ns,
            origin: if record.rule.is_some() { MarkerOrigin::Trigger } else { MarkerOrigin::Person },
            text: record.marker_text(),
        };
        let attached = |name: String, media_type: &str, content: Vec<u8>| Attachment {
            name,
            media_type: media_type.to_owned(),
            mono_ns: record.fired_mono_ns,
            wall_ns: record.fired_wall_ns,
            content,
        };
        let orders = to_visible_json(&record.orders).map_err(io::Error::other)?.into_bytes();
        let mut attachments = vec![attached("order.json".to_owned(), "application/json", orders)];
        let (mut logs, window) = (Vec::new(), pending.log_window());
        for log in pending.captured() {
            let lines = (self.settings.read_log)(log, &window);
            let attachment = lines.is_ok().then(|| log.file_name());
            logs.push(CapturedLog { log, attachment, error: lines.as_ref().err().map(ToString::to_string) });
            attachments.extend(lines.map(|lines| attached(log.file_name(), "text/plain", lines)));
        }
        record.logs = logs;
        let copied = copy_window(
            &WindowCopy {
                segments,
                first_mono_ns: pending.window.0,
                last_mono_ns: pending.window.1,
                marker: Some(marker),
                attachments: &attachments,
                compression: &*self.settings.compression,
            },
            &*storage,
        )?;
        (record.samples, record.lost) = (copied.samples, copied.lost);
        (record.first_wall_ns, record.last_wall_ns) = copied.wall_ns.unwrap_or_default();
        let reaches_back = segments.first().is_some_and(|first| first.created_ns <= pending.window.0);
        record.complete = is_whole && reaches_back && follow_each_other(segments);
        write_json(&*storage, RECORD_NAME, &record)?;
        // The directory is synced before the request file is removed, so that a power cut cannot
        // destroy both files.
        storage.sync_directory()?;
        remove_if_there(&*storage, REQUEST_NAME)?;
        storage.sync_directory()?;
        folder.rename(&partial, &pending.name)?;
        folder.sync()?;
        Ok(record)
    }

    /// Completes the snapshots that were interrupted when earlier runs were killed. The samples
    /// come from the segments that the ring still contains. The caller must have recovered the
    /// segments of these runs in the ring.
    fn complete_interrupted(&self) {
        let names = match self.settings.folder.names() {
            Ok(names) => names,
            Err(error) => {
                tracing::warn!(%error, "cannot look for unfinished snapshots");
                return;
            }
        };
        for name in names.iter().filter_map(|name| name.strip_suffix(PARTIAL_SUFFIX)) {
            if let Err(error) = self.complete_one(name) {
                self.settings.metrics.failed.add(1);
                tracing::error!(snapshot = name, %error, "cannot complete the snapshot of a killed run; the next start tries again");
            }
        }
    }

    fn complete_one(&self, name: &str) -> io::Result<()> {
        let (folder, partial) = (&self.settings.folder, partial_name(name));
        let storage = folder.open(&partial)?;
        if read_json::<SnapshotRecord>(&*storage, RECORD_NAME).is_ok() {
            // The snapshot is complete. Only the last steps are missing, or a power cut has undone
            // them.
            remove_if_there(&*storage, REQUEST_NAME)?;
            storage.sync_directory()?;
            folder.rename(&partial, name)?;
            tracing::info!(snapshot = name, "the snapshot of a killed run is published");
            return folder.sync();
        }
        let request: SnapshotRequestFile = match read_json(&*storage, REQUEST_NAME) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                folder.remove(&partial)?;
                tracing::info!(
                    snapshot = name,
                    "a snapshot that a killed run had just begun is removed: it had no order yet"
                );
                return folder.sync();
            }
            request => request?,
        };
        if request.run_id == self.settings.run_id {
            return Ok(());
        }
        let segments = ring_segments(&*self.settings.ring, request.run_id)?;
        let order = request.orders.first().cloned().unwrap_or_default();
        let window = (order.first_mono_ns, order.last_mono_ns);
        if segments.is_empty() {
            folder.remove(&partial)?;
            self.settings.metrics.failed.add(1);
            tracing::error!(
                snapshot = name,
                reason = order.reason.as_str(),
                "a snapshot of a killed run is lost: the ring no longer has its samples (the host was restarted, or the \
                 ring has moved on)"
            );
            return folder.sync();
        }
        let pending = PendingSnapshot {
            orders: request.orders,
            name: name.to_owned(),
            run_id: request.run_id,
            wall_offset_ns: request.wall_offset_ns,
            window,
            ..PendingSnapshot::default()
        };
        // The run was killed before the end of the window, or shortly after it.
        let last = segments.last().map(open).transpose()?;
        let end_ns = last.as_ref().and_then(last_sample_ns);
        let is_whole = end_ns.is_some_and(|end_ns| end_ns >= window.1);
        let record = self.keep(&pending, &segments, is_whole)?;
        self.report(name, Ok(record));
        Ok(())
    }

    /// Takes a snapshot of all samples of a crashed run that the ring still contains.
    fn keep_run(&self, run_id: u64) -> io::Result<()> {
        let segments = ring_segments(&*self.settings.ring, run_id)?;
        // This snapshot was requested after the recovery of the run's segments, so the segments
        // existed at that time.
        let gone = || {
            let reason = format!("the segments of run {run_id:016x} in the ring are gone or cannot be read");
            io::Error::new(io::ErrorKind::NotFound, reason)
        };
        let first = segments.first().ok_or_else(gone)?;
        let wall_offset_ns = open(first)?.header().clocks.wall_offset_ns();
        let ends = segments.iter().map(|segment| open(segment).map(|reader| last_sample_ns(&reader)));
        let last_ns = ends.collect::<io::Result<Vec<_>>>()?.into_iter().flatten().max();
        let Some(last_mono_ns) = last_ns else { return Ok(()) };
        let order = SnapshotOrder {
            name: "crash".to_owned(),
            reason: "the host or the recorder crashed".to_owned(),
            fired_mono_ns: last_mono_ns,
            first_mono_ns: first.created_ns,
            last_mono_ns,
            ..SnapshotOrder::default()
        };
        let window = (order.first_mono_ns, order.last_mono_ns);
        let fired_wall_ns = wall_offset_ns.wrapping_add_unsigned(last_mono_ns);
        let name = directory_name(&order, fired_wall_ns);
        let orders = vec![order];
        let mut pending =
            PendingSnapshot { orders, name, run_id, wall_offset_ns, window, ..PendingSnapshot::default() };
        self.begin(&mut pending)?;
        let record = self.keep(&pending, &segments, true)?;
        self.report(&pending.name, Ok(record));
        self.keep_limits(Some(&pending.name));
        Ok(())
    }

    /// Removes the oldest snapshots beyond the limits, but not the snapshot that was just
    /// completed.
    fn keep_limits(&self, newest: Option<&str>) {
        match enforce_limits(&*self.settings.folder, self.settings.limits, newest) {
            Ok(bytes) => {
                self.settings.metrics.bytes.set(bytes);
                (self.settings.note_bytes)(bytes);
            }
            Err(error) => tracing::warn!(%error, "cannot list the snapshots to keep their limits"),
        }
    }
}

fn partial_name(name: &str) -> String {
    format!("{name}{PARTIAL_SUFFIX}")
}

fn remove_if_there(storage: &dyn Storage, name: &str) -> io::Result<()> {
    match storage.remove(name) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
