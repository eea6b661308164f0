//! A reading that may be held up is sent on an errand: a thread of its own makes it, and the group goes on.
//!
//! The sampler itself travels there and back, so whoever has it is its only owner. A thread that never comes back is left
//! behind when the process ends.

use std::io;
use std::panic::resume_unwind;
use std::thread::JoinHandle;

use crossbeam_channel::{Receiver, Sender, TryRecvError, bounded};

use super::sampler::{Opened, ReadError};
use crate::os::clock::{monotonic_ns, thread_cpu_ns};
use crate::os::program::Leash;
use crate::os::thread;
use crate::slab::Reading;

/// The sampler is back.
#[derive(Debug)]
struct Return {
    sampler: Opened,
    made: Made,
}

/// What became of a reading.
#[derive(Debug)]
pub(super) struct Made {
    /// When it began and ended, in monotonic nanoseconds.
    pub(super) begin_ns: u64,
    pub(super) end_ns: u64,
    /// What it took of a core, in nanoseconds.
    pub(super) cpu_ns: u64,
    /// Whether there is something to build from.
    pub(super) result: Result<(), ReadError>,
}

/// One source's sampler, here or on its way.
#[derive(Debug)]
pub(super) struct Errand {
    to: Sender<Opened>,
    back: Receiver<Return>,
    sampler: Option<Opened>,        // here
    out: Option<Out>,               // on its way
    thread: Option<JoinHandle<()>>, // waited for only if it has panicked
    timeout_ns: u64,
    leash: Option<Leash>,
    is_retired: bool, // its source ends: nothing is read any more
}

#[derive(Debug)]
struct Out {
    reading: Reading,
    deadline_ns: u64,
    is_given_up: bool,
}

/// What is heard of an errand.
#[derive(Debug)]
pub(super) enum News {
    /// Nothing.
    None,
    /// The reading is made: build from the sampler, which is here again.
    Made(Reading, Made),
    /// The time for this reading is over. The sampler may yet come back, for the next one.
    TimedOut(Reading),
}

impl Errand {
    /// Starts the thread that will read this source, on these processors, or on all.
    ///
    /// # Errors
    /// The kernel refuses another thread.
    pub(super) fn start(name: &str, sampler: Opened, timeout_ns: u64, cpus: Vec<u32>) -> io::Result<Self> {
        let leash = sampler.leash();
        // At most one is under way: neither channel is ever full, and neither allocates later.
        let (to, orders) = bounded::<Opened>(1);
        let (returns, back) = bounded(1);
        // Ends when `to` is dropped; nobody waits for it, since it may be held up for ever.
        let thread = thread::spawn(name, move || {
            if !cpus.is_empty() {
                // What is wrong with them the group's own thread says, once for all.
                let _refused = thread::run_on(&cpus);
            }
            // As with a real-time priority: what waits for devices, and programs of commands, do not come before the host's own work.
            // Where the kernel refuses, they are read all the same.
            let _refused = thread::give_up_nice();
            for mut sampler in orders {
                let begin_ns = monotonic_ns();
                let cpu_begin_ns = thread_cpu_ns();
                let result = sampler.read();
                let cpu_ns = thread_cpu_ns().saturating_sub(cpu_begin_ns);
                let made = Made { begin_ns, end_ns: monotonic_ns(), cpu_ns, result };
                if returns.send(Return { sampler, made }).is_err() {
                    break;
                }
            }
        })?;
        Ok(Self {
            to,
            back,
            sampler: Some(sampler),
            out: None,
            thread: Some(thread),
            timeout_ns,
            leash,
            is_retired: false,
        })
    }

    /// Whether the last reading is still being made, or was given up and is still held up.
    pub(super) fn is_out(&self) -> bool {
        self.out.is_some()
    }

    /// Whether a reading is being made that was not given up.
    pub(super) fn is_awaited(&self) -> bool {
        self.out.as_ref().is_some_and(|out| !out.is_given_up)
    }

    /// Whether it can be sent for a reading: the sampler is here, and its source goes on.
    pub(super) fn is_ready(&self) -> bool {
        self.out.is_none() && !self.is_retired
    }

    /// Its source ends: the reading under way is the last one.
    pub(super) fn retire(&mut self) {
        self.is_retired = true;
    }

    /// Whether its last reading is still awaited.
    pub(super) fn is_retiring(&self) -> bool {
        self.is_retired && self.is_awaited()
    }

    /// Sends the sampler out for a reading. False if it is not here.
    ///
    /// # Panics
    /// Its thread has panicked.
    pub(super) fn send(&mut self, reading: Reading) -> bool {
        let Some(sampler) = self.sampler.take() else { return false };
        let deadline_ns = reading.mono_ns.saturating_add(self.timeout_ns);
        if self.to.try_send(sampler).is_err() {
            self.inherit_panic();
            return false;
        }
        self.out = Some(Out { reading, deadline_ns, is_given_up: false });
        true
    }

    /// Looks whether it has come back, or should have.
    ///
    /// # Panics
    /// Its thread has panicked.
    pub(super) fn news(&mut self, now_ns: u64) -> News {
        let Some(out) = &mut self.out else { return News::None };
        match self.back.try_recv() {
            Ok(Return { sampler, made }) => {
                self.sampler = Some(sampler);
                let Out { reading, is_given_up, .. } = *out;
                self.out = None;
                return if is_given_up { News::None } else { News::Made(reading, made) };
            }
            Err(TryRecvError::Disconnected) => self.inherit_panic(),
            Err(TryRecvError::Empty) => {}
        }
        if let Some(out) = &mut self.out
            && now_ns >= out.deadline_ns
            && !out.is_given_up
        {
            out.is_given_up = true;
            return News::TimedOut(out.reading);
        }
        News::None
    }

    /// The thread has ended in front of its order, which only a panic of ours can bring about: that becomes the caller's, whose end is
    /// noticed.
    #[cold]
    fn inherit_panic(&mut self) {
        if let Some(thread) = self.thread.take()
            && let Err(panic) = thread.join()
        {
            resume_unwind(panic);
        }
    }

    /// The sampler, while it is here.
    pub(super) fn sampler(&mut self) -> Option<&mut Opened> {
        self.sampler.as_mut()
    }

    /// Ends what the reading under way waits for, where anything can: it is back soon.
    pub(super) fn cut_short(&self) {
        if let Some(leash) = self.leash.as_ref().filter(|_| self.is_out()) {
            leash.pull();
        }
    }

    /// A reading that nobody will learn about: the run ends, or the source.
    pub(super) fn abandon(&mut self) -> Option<Reading> {
        self.out.take().filter(|out| !out.is_given_up).map(|out| out.reading)
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::{Arc, Mutex};

    use flatbuffers::FlatBufferBuilder;

    use super::*;
    use crate::frame::Shortfall;
    use crate::sampling::Sampler;

    const TIMEOUT_NS: u64 = 1_000;

    /// Waits for a word before it has read.
    #[derive(Debug)]
    struct HeldUp(Arc<Mutex<()>>);

    impl Sampler for HeldUp {
        fn read(&mut self) -> Result<(), ReadError> {
            drop(self.0.lock());
            Ok(())
        }

        fn build(&mut self, _seq: u64, _builder: &mut FlatBufferBuilder<'static>) -> Shortfall {
            Shortfall::NONE
        }
    }

    fn reading(seq: u64) -> Reading {
        Reading { source: 0, seq, mono_ns: 5_000, wall_offset_ns: 0 }
    }

    /// Looks before the deadline until there is news.
    fn awaited(errand: &mut Errand) -> News {
        loop {
            match errand.news(5_000) {
                News::None if errand.is_out() => std::thread::yield_now(),
                news => return news,
            }
        }
    }

    // Goal: a reading that is held up is given up once, at its deadline; the sampler that comes back late serves the next
    // reading, and nothing of the late one is taken for it. Method: a lock that is held while the deadline passes.
    #[test]
    fn a_late_reading_is_given_up_once() {
        let lock = Arc::new(Mutex::new(()));
        let mut errand =
            Errand::start("errand", Opened::built(HeldUp(Arc::clone(&lock))), TIMEOUT_NS, Vec::new())
                .unwrap();
        let held = lock.lock().unwrap();
        assert!(errand.send(reading(7)) && errand.sampler().is_none() && !errand.send(reading(8)));
        assert!(errand.is_awaited());
        assert!(matches!(errand.news(5_999), News::None));
        assert!(matches!(errand.news(6_000), News::TimedOut(Reading { seq: 7, .. })));
        assert!(matches!(errand.news(9_000), News::None) && errand.is_out() && !errand.is_awaited());
        drop(held);
        assert!(matches!(awaited(&mut errand), News::None) && errand.sampler().is_some());
        assert!(errand.send(reading(8)));
        let News::Made(Reading { seq: 8, .. }, made) = awaited(&mut errand) else { panic!("no reading") };
        assert!(made.result.is_ok() && made.begin_ns <= made.end_ns && errand.sampler().is_some());
    }

    // Goal: what is on its way when a run ends is named once. Method: abandon, twice.
    #[test]
    fn what_is_out_at_the_end_is_named() {
        let lock = Arc::new(Mutex::new(()));
        let mut errand =
            Errand::start("errand", Opened::built(HeldUp(Arc::clone(&lock))), TIMEOUT_NS, Vec::new())
                .unwrap();
        let _held = lock.lock().unwrap();
        assert!(errand.send(reading(3)));
        assert_eq!(errand.abandon(), Some(reading(3)));
        assert_eq!(errand.abandon(), None);
    }

    // Goal: a panic in an errand is not taken for a server that does not answer: it becomes the group's, whose end is noticed.
    // Method: a sampler that panics.
    #[test]
    fn a_panic_comes_back() {
        #[derive(Debug)]
        struct Broken;
        impl Sampler for Broken {
            fn read(&mut self) -> Result<(), ReadError> {
                panic!("broken on purpose");
            }

            fn build(&mut self, _seq: u64, _builder: &mut FlatBufferBuilder<'static>) -> Shortfall {
                Shortfall::NONE
            }
        }
        let mut errand = Errand::start("errand", Opened::built(Broken), TIMEOUT_NS, Vec::new()).unwrap();
        assert!(errand.send(reading(0)));
        let begin = monotonic_ns();
        let heard = catch_unwind(AssertUnwindSafe(|| {
            while monotonic_ns() - begin < 120_000_000_000 {
                awaited_once(&mut errand);
            }
        }));
        let panic = heard.expect_err("the panic was not heard of");
        assert_eq!(panic.downcast_ref(), Some(&"broken on purpose"));
    }

    fn awaited_once(errand: &mut Errand) {
        assert!(matches!(errand.news(5_000), News::None));
        std::thread::yield_now();
    }
}
