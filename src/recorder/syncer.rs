//! The thread for what may take long and is not the order of the data: bringing a file to the medium, and giving a
//! sealed segment its name.

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;

use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};

use super::capped::Capped;
use crate::os::clock::monotonic_ns;
use crate::os::storage::StorageFile;
use crate::os::thread;
use crate::segment::{SealedSegment, SegmentName, SegmentWriter};

/// Jobs that may wait: one sync, and segments sealed while the medium is slow.
const JOBS_MAX: usize = 16;

#[derive(Debug)]
enum Job {
    /// The file of a segment, its number, and its length now.
    Sync {
        file: Arc<dyn StorageFile>,
        number: u64,
        offset: u64,
    },
    Publish(SealedSegment),
    /// Keep the limits on room and age; the wall time in seconds.
    Tidy(i64),
}

/// What the syncer has done.
#[derive(Debug)]
pub(super) enum Done {
    /// A segment is on the medium up to an offset.
    Sync {
        duration_ns: u64,
        number: u64,
        offset: u64,
        result: io::Result<()>,
    },
    Publish {
        name: SegmentName,
        result: io::Result<()>,
    },
    Tidy(io::Result<()>),
}

/// The recorder's end of the syncer.
#[derive(Debug)]
pub(super) struct Syncer {
    jobs: Sender<Job>,
    done: Receiver<Done>,
    thread: JoinHandle<()>,
    unsent: Vec<SealedSegment>, // sealed while the queue of jobs was full
    syncing: bool,
}

impl Syncer {
    pub(super) fn start(storage: Arc<Capped>) -> io::Result<Self> {
        let (jobs, jobs_in) = bounded::<Job>(JOBS_MAX);
        // As many answers as there can be jobs, so that the syncer never waits for the recorder.
        let (done_out, done) = bounded(JOBS_MAX * 2);
        let thread = thread::spawn("syncer", move || {
            for job in jobs_in {
                let answer = match job {
                    Job::Sync { file, number, offset } => {
                        let begin = monotonic_ns();
                        let result = file.sync();
                        Done::Sync { duration_ns: monotonic_ns() - begin, number, offset, result }
                    }
                    Job::Publish(segment) => {
                        Done::Publish { name: segment.name(), result: segment.publish(&*storage) }
                    }
                    Job::Tidy(wall_s) => Done::Tidy(storage.tidy(wall_s)),
                };
                if done_out.send(answer).is_err() {
                    return;
                }
            }
        })?;
        Ok(Self { jobs, done, thread, unsent: Vec::new(), syncing: false })
    }

    /// Asks for a sync. Says whether it was taken; it is not while another one runs.
    pub(super) fn sync(&mut self, segment: &SegmentWriter) -> bool {
        if !self.syncing {
            let (number, offset) = (segment.name().number, segment.bytes());
            self.syncing = self.jobs.try_send(Job::Sync { file: segment.file(), number, offset }).is_ok();
            return self.syncing;
        }
        false
    }

    /// Asks for the limits on room and age to be kept. Busy as it may be, it will be asked again.
    pub(super) fn tidy(&mut self, wall_s: i64) {
        drop(self.jobs.try_send(Job::Tidy(wall_s)));
    }

    /// Asks for a sealed segment to be published; kept until the syncer can take it.
    pub(super) fn publish(&mut self, segment: SealedSegment) {
        self.unsent.push(segment);
        self.send_unsent();
    }

    /// What has been done since the last time.
    pub(super) fn poll(&mut self) -> Vec<Done> {
        let done: Vec<Done> = self.done.try_iter().collect();
        self.syncing &= !done.iter().any(|done| matches!(done, Done::Sync { .. }));
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
            drop(self.jobs.try_send(Job::Publish(self.unsent.remove(0))));
        }
    }
}
