//! The syncer thread. The syncer does operations that may take long and need not be done in order
//! with the writes. Examples are the fsync of a file and the rename of a sealed segment to its
//! final name.
//!
//! The first sync of a file also syncs the directory entry of the file, because data cannot be
//! found without a name. A file whose sync has failed is never synced again. A second sync could
//! report success although the data that the first sync lost is not on the disk.

use std::io;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;

use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};
use flatcap_format::segment::{SealedSegment, SegmentName, SegmentWriter};
use flatcap_format::storage::{Storage, StorageFile};
use flatcap_os::clock::{NS_PER_S, monotonic_ns};
use flatcap_os::thread;

use super::quota_storage::QuotaStorage;

/// Minimum age of a run before it allocates the reserve, in nanoseconds. In a shorter run, the
/// allocation of the reserve would only load the file system.
const RESERVE_AFTER_NS: u64 = 5 * NS_PER_S;

/// Maximum number of waiting jobs. Examples are syncs, and renames of segments that were sealed
/// while the disk was slow.
const JOBS_MAX: usize = 16;

#[derive(Debug)]
enum SyncerJob {
    Sync(SyncRequest),
    Publish(SealedSegment),
    /// Enforces the retention limits, and checks that the open segment is still in the directory.
    EnforceLimits(LimitCheck),
}

/// The check of the limits and of the open segment, which takes place once a second.
#[derive(Debug)]
struct LimitCheck {
    wall_s: i64,
    open: Option<(SegmentName, Arc<dyn StorageFile>)>,
}

impl LimitCheck {
    fn run(self, storage: &QuotaStorage, may_reserve: bool) -> SyncerResult {
        let mut result = storage.enforce_limits(self.wall_s);
        if may_reserve && result.is_ok() {
            result = storage.adjust_reserve();
        }
        // If the name cannot be checked, the segment is not assumed to be gone.
        let is_gone = |(name, file): &(SegmentName, Arc<dyn StorageFile>)| {
            matches!(storage.is_name_of(&name.to_string(), &**file), Ok(false))
        };
        let removed = self.open.filter(is_gone).map(|(_, file)| file);
        if removed.is_some()
            && let Err(error) = storage.reopen_if_moved()
        {
            result = Err(error);
        }
        SyncerResult::EnforceLimits { result, removed }
    }
}

/// A file to be synced.
#[derive(Debug)]
struct SyncRequest {
    file: Arc<dyn StorageFile>,
    offset: u64,  // its length at the time of the request
    is_new: bool, // its name is not on disk
}

impl SyncRequest {
    fn sync(self, storage: &dyn Storage) -> SyncerResult {
        let begin = monotonic_ns();
        let mut result = self.file.sync();
        if result.is_ok() && self.is_new {
            result = storage.sync_directory();
        }
        let duration_ns = monotonic_ns() - begin;
        SyncerResult::Sync { file: self.file, offset: self.offset, duration_ns, result }
    }
}

/// The result of a job.
#[derive(Debug)]
pub(super) enum SyncerResult {
    /// A file is on disk up to an offset.
    Sync {
        file: Arc<dyn StorageFile>,
        offset: u64,
        duration_ns: u64,
        result: io::Result<()>,
    },
    Publish {
        name: SegmentName,
        result: io::Result<()>,
    },
    EnforceLimits {
        result: io::Result<()>,
        /// The file of the open segment if the segment's name no longer leads to this file, or
        /// `None` otherwise.
        removed: Option<Arc<dyn StorageFile>>,
    },
}

/// The recorder's handle to the syncer thread.
#[derive(Debug)]
pub(super) struct Syncer {
    storage: Arc<QuotaStorage>,
    jobs: Sender<SyncerJob>,
    done: Receiver<SyncerResult>,
    thread: JoinHandle<()>,
    unsent: Vec<SealedSegment>, // sealed while the queue of jobs was full
    syncing: bool,
    in_flight: usize,                          // jobs sent and not answered
    named_file: Option<Weak<dyn StorageFile>>, // synced last: its name is on disk
}

impl Syncer {
    pub(super) fn start(storage: Arc<QuotaStorage>) -> io::Result<Self> {
        let (jobs, jobs_in) = bounded::<SyncerJob>(JOBS_MAX);
        // The queue has more space for results than there can be jobs, so the syncer never waits
        // for the recorder.
        let (done_out, done) = bounded(JOBS_MAX * 2);
        let disk = Arc::clone(&storage);
        let thread = thread::spawn("syncer", move || {
            let mut failed = FailedFiles::default();
            let reserve_ns = monotonic_ns() + RESERVE_AFTER_NS;
            for job in jobs_in {
                let answer = match job {
                    SyncerJob::Sync(unsynced) => unsynced.sync(&*disk),
                    SyncerJob::Publish(segment) => {
                        let result = failed.check(segment.file()).and_then(|()| segment.publish(&*disk));
                        SyncerResult::Publish { name: segment.name(), result }
                    }
                    SyncerJob::EnforceLimits(round) => round.run(&disk, monotonic_ns() >= reserve_ns),
                };
                if let SyncerResult::Sync { file, result: Err(_), .. } = &answer {
                    failed.add(file);
                }
                if done_out.send(answer).is_err() {
                    return;
                }
            }
        })?;
        Ok(Self {
            storage,
            jobs,
            done,
            thread,
            unsent: Vec::new(),
            syncing: false,
            in_flight: 0,
            named_file: None,
        })
    }

    /// Requests a sync. Returns whether the request was accepted. A request is refused while
    /// another sync is running.
    pub(super) fn sync(&mut self, segment: &SegmentWriter) -> bool {
        if self.syncing {
            return false;
        }
        self.syncing = self.send(SyncerJob::Sync(self.sync_request(segment)));
        self.syncing
    }

    /// Returns whether no request is pending.
    pub(super) fn is_idle(&self) -> bool {
        self.in_flight == 0 && self.unsent.is_empty()
    }

    /// Sends a job. Returns false if the syncer is busy. In that case the job is dropped.
    fn send(&mut self, job: SyncerJob) -> bool {
        let is_sent = self.jobs.try_send(job).is_ok();
        self.in_flight += usize::from(is_sent);
        is_sent
    }

    /// Syncs on the caller's thread.
    pub(super) fn sync_inline(&mut self, segment: &SegmentWriter) -> SyncerResult {
        let done = self.sync_request(segment).sync(&*self.storage);
        self.note_synced(&done);
        done
    }

    fn note_synced(&mut self, done: &SyncerResult) {
        if let SyncerResult::Sync { file, result: Ok(()), .. } = done {
            self.named_file = Some(Arc::downgrade(file));
        }
    }

    fn sync_request(&self, segment: &SegmentWriter) -> SyncRequest {
        let (file, offset) = (segment.file(), segment.bytes());
        let is_named = self.named_file.as_ref().is_some_and(|named| named.ptr_eq(&Arc::downgrade(&file)));
        SyncRequest { file, offset, is_new: !is_named }
    }

    /// Requests that the syncer enforces the retention limits and checks the open segment. The
    /// request is dropped if the syncer is busy, because the next request follows after a second.
    pub(super) fn enforce_limits(&mut self, wall_s: i64, open: Option<&SegmentWriter>) {
        let open = open.map(|segment| (segment.name(), segment.file()));
        self.send(SyncerJob::EnforceLimits(LimitCheck { wall_s, open }));
    }

    /// Requests the rename of a sealed segment to its final name. The segment waits until the
    /// syncer can accept the job.
    pub(super) fn publish(&mut self, segment: SealedSegment) {
        self.unsent.push(segment);
        self.send_unsent();
    }

    /// Returns the results that have arrived since the last call.
    pub(super) fn poll(&mut self) -> Vec<SyncerResult> {
        let done: Vec<SyncerResult> = self.done.try_iter().collect();
        self.in_flight -= done.len();
        self.syncing &= !done.iter().any(|done| matches!(done, SyncerResult::Sync { .. }));
        for done in &done {
            self.note_synced(done);
        }
        self.send_unsent();
        done
    }

    /// Ends the thread after all jobs are done. Returns the remaining results.
    pub(super) fn finish(self) -> Vec<SyncerResult> {
        let Self { jobs, done, thread, unsent, .. } = self;
        let mut answers = Vec::new();
        for segment in unsent {
            let mut job = SyncerJob::Publish(segment);
            // Receiving results lets the syncer continue, which makes space for jobs.
            while let Err(TrySendError::Full(back)) = jobs.try_send(job) {
                job = back;
                answers.extend(done.recv());
            }
        }
        drop(jobs);
        answers.extend(done.iter());
        // If the thread has panicked, the panic hook has reported it. The results of its jobs are
        // missing.
        let _panicked = thread.join();
        answers
    }

    fn send_unsent(&mut self) {
        while !self.unsent.is_empty() && !self.jobs.is_full() {
            // The recorder is the only sender, so a queue that is not full accepts the job.
            let segment = self.unsent.remove(0);
            self.send(SyncerJob::Publish(segment));
        }
    }
}

/// Files whose sync has failed. A file stays in the list as long as the recorder could still seal
/// the file. The recorder may not have received the failure yet.
#[derive(Debug, Default)]
struct FailedFiles(Vec<Weak<dyn StorageFile>>);

impl FailedFiles {
    fn add(&mut self, file: &Arc<dyn StorageFile>) {
        self.0.retain(|file| file.strong_count() > 0);
        self.0.push(Arc::downgrade(file));
    }

    fn check(&self, file: &Arc<dyn StorageFile>) -> io::Result<()> {
        if self.0.iter().any(|failed| failed.ptr_eq(&Arc::downgrade(file))) {
            return Err(io::Error::other(
                "an earlier sync of this file failed; its content on disk is unknown",
            ));
        }
        Ok(())
    }
}
