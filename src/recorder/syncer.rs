//! The thread for what may take long and is not the order of the data: bringing a file to the medium, and giving a
//! sealed segment its name.
//!
//! A file's first sync takes its name to the medium too: without one, nothing in it is found again. A file whose sync
//! has failed is never synced again: the second time the kernel may say that all is well without having written what
//! the first time was lost.

use std::io;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;

use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};

use super::capped::Capped;
use crate::os::clock::{NS_PER_S, monotonic_ns};
use crate::os::storage::{Storage, StorageFile};
use crate::os::thread;
use crate::segment::{SealedSegment, SegmentName, SegmentWriter};

/// A run that is shorter than this reserves nothing: it would only be work for the file system.
const RESERVE_AFTER_NS: u64 = 5 * NS_PER_S;

/// Jobs that may wait: one sync, and segments sealed while the medium is slow.
const JOBS_MAX: usize = 16;

#[derive(Debug)]
enum Job {
    Sync(Unsynced),
    Publish(SealedSegment),
    /// Keep the limits on room and age, and look whether the open segment is still in the directory.
    Tidy(Round),
}

/// What is looked after each second.
#[derive(Debug)]
struct Round {
    wall_s: i64,
    open: Option<(SegmentName, Arc<dyn StorageFile>)>,
}

impl Round {
    fn tidy(self, storage: &Capped, may_reserve: bool) -> Done {
        let mut result = storage.tidy(self.wall_s);
        if may_reserve && result.is_ok() {
            result = storage.adjust_reserve();
        }
        // Where it cannot be seen, it is not known to be gone.
        let is_gone = |(name, file): &(SegmentName, Arc<dyn StorageFile>)| {
            matches!(storage.leads_to(&name.to_string(), &**file), Ok(false))
        };
        let removed = self.open.filter(is_gone).map(|(_, file)| file);
        if removed.is_some()
            && let Err(error) = storage.renew()
        {
            result = Err(error);
        }
        Done::Tidy { result, removed }
    }
}

/// A file to be brought to the medium.
#[derive(Debug)]
struct Unsynced {
    file: Arc<dyn StorageFile>,
    offset: u64,  // its length when that was asked for
    is_new: bool, // its name is not on the medium
}

impl Unsynced {
    fn sync(self, storage: &dyn Storage) -> Done {
        let begin = monotonic_ns();
        let mut result = self.file.sync();
        if result.is_ok() && self.is_new {
            result = storage.sync_directory();
        }
        let duration_ns = monotonic_ns() - begin;
        Done::Sync { file: self.file, offset: self.offset, duration_ns, result }
    }
}

/// What the syncer has done.
#[derive(Debug)]
pub(super) enum Done {
    /// A file is on the medium up to an offset.
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
    Tidy {
        result: io::Result<()>,
        /// The open segment, if its name no longer leads to it.
        removed: Option<Arc<dyn StorageFile>>,
    },
}

/// The recorder's end of the syncer.
#[derive(Debug)]
pub(super) struct Syncer {
    storage: Arc<Capped>,
    jobs: Sender<Job>,
    done: Receiver<Done>,
    thread: JoinHandle<()>,
    unsent: Vec<SealedSegment>, // sealed while the queue of jobs was full
    syncing: bool,
    under_way: usize,                     // jobs that were sent and not answered
    named: Option<Weak<dyn StorageFile>>, // synced last, so its name need not be again
}

impl Syncer {
    pub(super) fn start(storage: Arc<Capped>) -> io::Result<Self> {
        let (jobs, jobs_in) = bounded::<Job>(JOBS_MAX);
        // As many answers as there can be jobs, so that the syncer never waits for the recorder.
        let (done_out, done) = bounded(JOBS_MAX * 2);
        let medium = Arc::clone(&storage);
        let thread = thread::spawn("syncer", move || {
            let mut failed = FailedFiles::default();
            let reserve_ns = monotonic_ns() + RESERVE_AFTER_NS;
            for job in jobs_in {
                let answer = match job {
                    Job::Sync(unsynced) => unsynced.sync(&*medium),
                    Job::Publish(segment) => {
                        let result = failed.check(segment.file()).and_then(|()| segment.publish(&*medium));
                        Done::Publish { name: segment.name(), result }
                    }
                    Job::Tidy(round) => round.tidy(&medium, monotonic_ns() >= reserve_ns),
                };
                if let Done::Sync { file, result: Err(_), .. } = &answer {
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
            under_way: 0,
            named: None,
        })
    }

    /// Asks for a sync. Says whether it was taken; it is not while another one runs.
    pub(super) fn sync(&mut self, segment: &SegmentWriter) -> bool {
        if self.syncing {
            return false;
        }
        self.syncing = self.send(Job::Sync(self.unsynced(segment)));
        self.syncing
    }

    /// Whether it has done all that it was asked for.
    pub(super) fn is_idle(&self) -> bool {
        self.under_way == 0 && self.unsent.is_empty()
    }

    /// False if it is busy: the job is dropped then.
    fn send(&mut self, job: Job) -> bool {
        let is_sent = self.jobs.try_send(job).is_ok();
        self.under_way += usize::from(is_sent);
        is_sent
    }

    /// Syncs here and now.
    pub(super) fn sync_inline(&mut self, segment: &SegmentWriter) -> Done {
        let done = self.unsynced(segment).sync(&*self.storage);
        self.learn(&done);
        done
    }

    fn learn(&mut self, done: &Done) {
        if let Done::Sync { file, result: Ok(()), .. } = done {
            self.named = Some(Arc::downgrade(file));
        }
    }

    fn unsynced(&self, segment: &SegmentWriter) -> Unsynced {
        let (file, offset) = (segment.file(), segment.bytes());
        let is_named = self.named.as_ref().is_some_and(|named| named.ptr_eq(&Arc::downgrade(&file)));
        Unsynced { file, offset, is_new: !is_named }
    }

    /// Asks for the limits on room and age to be kept, and for a look at the open segment. If it is busy, it will be asked again.
    pub(super) fn tidy(&mut self, wall_s: i64, open: Option<&SegmentWriter>) {
        let open = open.map(|segment| (segment.name(), segment.file()));
        self.send(Job::Tidy(Round { wall_s, open }));
    }

    /// Asks for a sealed segment to be published; kept until the syncer can take it.
    pub(super) fn publish(&mut self, segment: SealedSegment) {
        self.unsent.push(segment);
        self.send_unsent();
    }

    /// What has been done since the last time.
    pub(super) fn poll(&mut self) -> Vec<Done> {
        let done: Vec<Done> = self.done.try_iter().collect();
        self.under_way -= done.len();
        self.syncing &= !done.iter().any(|done| matches!(done, Done::Sync { .. }));
        for done in &done {
            self.learn(done);
        }
        self.send_unsent();
        done
    }

    /// Ends the thread once every job is done.
    pub(super) fn finish(self) -> Vec<Done> {
        let Self { jobs, done, thread, unsent, .. } = self;
        let mut answers = Vec::new();
        for segment in unsent {
            let mut job = Job::Publish(segment);
            // Taking answers makes room for jobs.
            while let Err(TrySendError::Full(back)) = jobs.try_send(job) {
                job = back;
                answers.extend(done.recv());
            }
        }
        drop(jobs);
        answers.extend(done.iter());
        // A panic in there was reported by the panic hook; its jobs are missing among the answers.
        let _panicked = thread.join();
        answers
    }

    fn send_unsent(&mut self) {
        while !self.unsent.is_empty() && !self.jobs.is_full() {
            // The recorder is the only sender, so a queue that is not full takes the job.
            let segment = self.unsent.remove(0);
            self.send(Job::Publish(segment));
        }
    }
}

/// Files whose sync has failed, while the recorder does not know yet and may still seal them.
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
                "an earlier sync of it has failed, what is on the medium is unknown",
            ));
        }
        Ok(())
    }
}
