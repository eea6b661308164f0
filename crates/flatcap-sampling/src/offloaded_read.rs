//! Offloads reads that may block to a separate thread, so that the group continues.
//!
//! The sampler is moved to the thread and back, so it always has exactly one owner. If the thread
//! never returns from a read, the thread is abandoned when the process ends.

use std::io;
use std::panic::resume_unwind;
use std::thread::JoinHandle;

use crossbeam_channel::{Receiver, Sender, TryRecvError, bounded};
use flatcap_os::clock::{monotonic_ns, thread_cpu_ns};
use flatcap_os::program::KillHandle;
use flatcap_os::thread;
use flatcap_slab::SampleMeta;

use super::sampler::{OpenedSampler, ReadError};

/// A sampler that the reading thread has returned.
#[derive(Debug)]
struct FinishedRead {
    sampler: OpenedSampler,
    outcome: ReadOutcome,
}

/// The outcome of a read.
#[derive(Debug)]
pub(super) struct ReadOutcome {
    /// Begin and end of the read, in monotonic nanoseconds.
    pub(super) begin_ns: u64,
    pub(super) end_ns: u64,
    /// The CPU time of the read, in nanoseconds.
    pub(super) cpu_ns: u64,
    /// The result of the read. After success, the sampler can build a payload.
    pub(super) result: Result<(), ReadError>,
}

/// The sampler of one source, together with the separate thread that reads the source.
#[derive(Debug)]
pub(super) struct OffloadedRead {
    requests: Sender<OpenedSampler>,
    results: Receiver<FinishedRead>,
    sampler: Option<OpenedSampler>,  // None while a read is in flight
    in_flight: Option<ReadInFlight>, // the read in flight
    thread: Option<JoinHandle<()>>,  // joined only after it has panicked
    timeout_ns: u64,
    kill_handle: Option<KillHandle>,
    is_retired: bool, // the source is removed, so there are no further reads
}

#[derive(Debug)]
struct ReadInFlight {
    reading: SampleMeta,
    deadline_ns: u64,
    is_timed_out: bool,
}

/// The result of polling an offloaded read.
#[derive(Debug)]
pub(super) enum ReadPoll {
    /// The state has not changed since the last poll.
    Nothing,
    /// The read has finished and the thread has returned the sampler, so the payload can be built.
    Finished(SampleMeta, ReadOutcome),
    /// The read has timed out. The thread may still return the sampler, which then serves later
    /// reads.
    TimedOut(SampleMeta),
}

impl OffloadedRead {
    /// Starts the thread that reads this source on `cpus`, or on all CPUs if the list is empty.
    ///
    /// # Errors
    /// Fails if the kernel refuses to start another thread.
    pub(super) fn start(
        name: &str,
        sampler: OpenedSampler,
        timeout_ns: u64,
        cpus: Vec<u32>,
    ) -> io::Result<Self> {
        let leash = sampler.kill_handle();
        // At most one read is in flight, so neither channel is ever full. The channels do not
        // allocate memory after their creation.
        let (requests, samplers) = bounded::<OpenedSampler>(1);
        let (returns, back) = bounded(1);
        // The thread ends when the sender is dropped. The thread is not joined, since it may block
        // for ever.
        let thread = thread::spawn(name, move || {
            if !cpus.is_empty() {
                // The group's own thread reports invalid CPUs, only one time for all threads.
                let _refused = thread::pin_to_cpus(&cpus);
            }
            // Threads that wait for devices or run commands must not have priority over the host's
            // own work. Therefore they keep neither a real-time priority nor a negative nice value.
            // If the kernel refuses to reset the nice value, the source is read nevertheless.
            let _refused = thread::reset_negative_nice();
            for mut sampler in samplers {
                let begin_ns = monotonic_ns();
                let cpu_begin_ns = thread_cpu_ns();
                let result = sampler.read();
                let cpu_ns = thread_cpu_ns().saturating_sub(cpu_begin_ns) + sampler.helper_cpu_ns();
                let outcome = ReadOutcome { begin_ns, end_ns: monotonic_ns(), cpu_ns, result };
                if returns.send(FinishedRead { sampler, outcome }).is_err() {
                    break;
                }
            }
        })?;
        Ok(Self {
            requests,
            results: back,
            sampler: Some(sampler),
            in_flight: None,
            thread: Some(thread),
            timeout_ns,
            kill_handle: leash,
            is_retired: false,
        })
    }

    /// Returns whether a read is in flight, including a read that has timed out and is still
    /// blocked.
    pub(super) fn is_in_flight(&self) -> bool {
        self.in_flight.is_some()
    }

    /// Returns whether there is a read in flight that has not timed out.
    pub(super) fn is_awaited(&self) -> bool {
        self.in_flight.as_ref().is_some_and(|out| !out.is_timed_out)
    }

    /// Returns whether a read can begin, that is, the sampler has been returned and the source is
    /// not retired.
    pub(super) fn is_ready(&self) -> bool {
        self.in_flight.is_none() && !self.is_retired
    }

    /// Retires the source, so that no read begins after a read that is in flight.
    pub(super) fn retire(&mut self) {
        self.is_retired = true;
    }

    /// Returns whether a retired source still has a read in flight that has not timed out.
    pub(super) fn is_retiring(&self) -> bool {
        self.is_retired && self.is_awaited()
    }

    /// Begins a read. Returns false if a read is already in flight.
    ///
    /// # Panics
    /// Panics if the thread has panicked.
    pub(super) fn begin(&mut self, sample: SampleMeta) -> bool {
        let Some(sampler) = self.sampler.take() else { return false };
        let deadline_ns = sample.mono_ns.saturating_add(self.timeout_ns);
        if self.requests.try_send(sampler).is_err() {
            self.propagate_panic();
            return false;
        }
        self.in_flight = Some(ReadInFlight { reading: sample, deadline_ns, is_timed_out: false });
        true
    }

    /// Checks whether the read in flight has finished or timed out.
    ///
    /// # Panics
    /// Panics if the thread has panicked.
    pub(super) fn poll(&mut self, now_ns: u64) -> ReadPoll {
        let Some(out) = &mut self.in_flight else { return ReadPoll::Nothing };
        match self.results.try_recv() {
            Ok(FinishedRead { sampler, outcome: made }) => {
                self.sampler = Some(sampler);
                let ReadInFlight { reading, is_timed_out: is_given_up, .. } = *out;
                self.in_flight = None;
                return if is_given_up { ReadPoll::Nothing } else { ReadPoll::Finished(reading, made) };
            }
            Err(TryRecvError::Disconnected) => self.propagate_panic(),
            Err(TryRecvError::Empty) => {}
        }
        if let Some(out) = &mut self.in_flight
            && now_ns >= out.deadline_ns
            && !out.is_timed_out
        {
            out.is_timed_out = true;
            return ReadPoll::TimedOut(out.reading);
        }
        ReadPoll::Nothing
    }

    /// Propagates the panic of the reading thread to the caller's thread, because the recorder
    /// notices only the end of the caller's thread. Only a panic ends the reading thread before its
    /// channel is closed.
    #[cold]
    fn propagate_panic(&mut self) {
        if let Some(thread) = self.thread.take()
            && let Err(panic) = thread.join()
        {
            resume_unwind(panic);
        }
    }

    /// Returns the sampler, or `None` if a read is in flight.
    pub(super) fn sampler(&mut self) -> Option<&mut OpenedSampler> {
        self.sampler.as_mut()
    }

    /// Interrupts the read in flight, if the source supports interruption. The read then returns
    /// soon.
    pub(super) fn interrupt(&self) {
        if let Some(leash) = self.kill_handle.as_ref().filter(|_| self.is_in_flight()) {
            leash.kill();
        }
    }

    /// Gives up the read in flight, because the run ends or the source is removed. Returns the
    /// sample of the read, or `None` if the read has already timed out.
    pub(super) fn abandon(&mut self) -> Option<SampleMeta> {
        self.in_flight.take().filter(|out| !out.is_timed_out).map(|out| out.reading)
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::{Arc, Mutex};

    use flatbuffers::FlatBufferBuilder;
    use flatcap_format::frame::Incomplete;

    use super::*;
    use crate::Sampler;

    const TIMEOUT_NS: u64 = 1_000;

    /// Blocks in `read` until the lock is free.
    #[derive(Debug)]
    struct LockedSampler(Arc<Mutex<()>>);

    impl Sampler for LockedSampler {
        fn read(&mut self) -> Result<(), ReadError> {
            drop(self.0.lock());
            Ok(())
        }

        fn build(&mut self, _seq: u64, _builder: &mut FlatBufferBuilder<'static>) -> Incomplete {
            Incomplete::NONE
        }
    }

    fn reading(seq: u64) -> SampleMeta {
        SampleMeta { source: 0, seq, mono_ns: 5_000, wall_offset_ns: 0 }
    }

    /// Polls with a time before the deadline until the read has finished.
    fn poll_until_finished(read: &mut OffloadedRead) -> ReadPoll {
        loop {
            match read.poll(5_000) {
                ReadPoll::Nothing if read.is_in_flight() => std::thread::yield_now(),
                news => return news,
            }
        }
    }

    // Proves that a blocked read times out exactly once, at its deadline. A sampler that is
    // returned late serves the next read, and the two samples are not confused.
    #[test]
    fn a_late_reading_is_given_up_once() {
        let lock = Arc::new(Mutex::new(()));
        let mut read = OffloadedRead::start(
            "offloaded",
            OpenedSampler::built(LockedSampler(Arc::clone(&lock))),
            TIMEOUT_NS,
            Vec::new(),
        )
        .unwrap();
        let held = lock.lock().unwrap();
        assert!(read.begin(reading(7)) && read.sampler().is_none() && !read.begin(reading(8)));
        assert!(read.is_awaited());
        assert!(matches!(read.poll(5_999), ReadPoll::Nothing));
        assert!(matches!(read.poll(6_000), ReadPoll::TimedOut(SampleMeta { seq: 7, .. })));
        assert!(matches!(read.poll(9_000), ReadPoll::Nothing) && read.is_in_flight() && !read.is_awaited());
        drop(held);
        assert!(matches!(poll_until_finished(&mut read), ReadPoll::Nothing) && read.sampler().is_some());
        assert!(read.begin(reading(8)));
        let ReadPoll::Finished(SampleMeta { seq: 8, .. }, made) = poll_until_finished(&mut read) else {
            panic!("no sample")
        };
        assert!(made.result.is_ok() && made.begin_ns <= made.end_ns && read.sampler().is_some());
    }

    // Proves that a read in flight at the end of a run is reported exactly once.
    #[test]
    fn a_read_in_flight_at_the_end_is_reported() {
        let lock = Arc::new(Mutex::new(()));
        let mut read = OffloadedRead::start(
            "offloaded",
            OpenedSampler::built(LockedSampler(Arc::clone(&lock))),
            TIMEOUT_NS,
            Vec::new(),
        )
        .unwrap();
        let _held = lock.lock().unwrap();
        assert!(read.begin(reading(3)));
        assert_eq!(read.abandon(), Some(reading(3)));
        assert_eq!(read.abandon(), None);
    }

    // Proves that a panic in the reading thread is not mistaken for a timeout, but is raised on the
    // group's thread, where the recorder notices it.
    #[test]
    fn a_panic_comes_back() {
        #[derive(Debug)]
        struct Broken;
        impl Sampler for Broken {
            fn read(&mut self) -> Result<(), ReadError> {
                panic!("broken on purpose");
            }

            fn build(&mut self, _seq: u64, _builder: &mut FlatBufferBuilder<'static>) -> Incomplete {
                Incomplete::NONE
            }
        }
        let mut read =
            OffloadedRead::start("offloaded", OpenedSampler::built(Broken), TIMEOUT_NS, Vec::new()).unwrap();
        assert!(read.begin(reading(0)));
        let begin = monotonic_ns();
        let result = catch_unwind(AssertUnwindSafe(|| {
            while monotonic_ns() - begin < 120_000_000_000 {
                poll_once(&mut read);
            }
        }));
        let panic = result.expect_err("the panic was not raised");
        assert_eq!(panic.downcast_ref(), Some(&"broken on purpose"));
    }

    fn poll_once(read: &mut OffloadedRead) {
        assert!(matches!(read.poll(5_000), ReadPoll::Nothing));
        std::thread::yield_now();
    }
}
