//! Signals, turned into flags and a bell.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use signal_hook::iterator::{Handle, Signals};
use signal_hook::{flag, low_level};

use super::clock::monotonic_ns;
use super::event::{Event, Woken};
use super::thread;

/// Exit status of a second stop signal: what was not yet written is given up.
const FORCED_EXIT_STATUS: i32 = 1;

/// A verb that may be held up by others ends so long after it was asked to: long enough for what is on its way, and no supervisor
/// loses patience sooner.
const GRACE_NS: u64 = 2_000_000_000;

/// Watches signals while it lives.
#[derive(Debug)]
#[must_use = "signals are watched while this value lives"]
pub struct SignalWatch {
    wishes: Arc<Wishes>,
    handle: Handle,
    over: Arc<Event>, // nothing is watched any more
    thread: Option<JoinHandle<()>>,
}

/// What was asked for and not yet taken. However often it was asked, it is one wish.
#[derive(Debug, Default)]
struct Wishes {
    stop: AtomicBool,
    reload: AtomicBool,
    rotate: AtomicBool,
}

impl SignalWatch {
    /// For the agent. From here on each of these signals sets `bell`: SIGINT and SIGTERM ask for the end, and the second of
    /// them ends the process at once with status 1; SIGHUP asks for a reload, SIGUSR1 for a rotation.
    ///
    /// # Errors
    /// The kernel refuses a handler or a thread.
    pub fn all(bell: Arc<Event>) -> io::Result<Self> {
        Self::watch(&[SIGINT, SIGTERM, SIGHUP, SIGUSR1], bell, u64::MAX)
    }

    /// For everything else: SIGINT and SIGTERM set `stop`, and the second of them ends the process at once with status 1.
    ///
    /// # Errors
    /// The kernel refuses a handler or a thread.
    pub fn stop(stop: Arc<Event>) -> io::Result<Self> {
        Self::watch(&[SIGINT, SIGTERM], stop, u64::MAX)
    }

    /// The same for what may be held up by whoever takes its output, and leaves nothing half done: if it has not ended 2 s after the
    /// first signal, the process ends with status 1.
    ///
    /// # Errors
    /// The kernel refuses a handler or a thread.
    pub fn stop_soon(stop: Arc<Event>) -> io::Result<Self> {
        Self::watch(&[SIGINT, SIGTERM], stop, GRACE_NS)
    }

    fn watch(signals: &[i32], bell: Arc<Event>, grace_ns: u64) -> io::Result<Self> {
        let stopping = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            // The order matters: the first signal finds the flag down and only then raises it.
            flag::register_conditional_shutdown(signal, FORCED_EXIT_STATUS, Arc::clone(&stopping))?;
            flag::register(signal, Arc::clone(&stopping))?;
        }
        let mut signals = Signals::new(signals)?;
        let handle = signals.handle();
        let wishes = Arc::new(Wishes::default());
        let over = Arc::new(Event::new());
        let thread = thread::spawn("signals", {
            let (wishes, over) = (Arc::clone(&wishes), Arc::clone(&over));
            move || {
                for signal in signals.forever() {
                    let wish = match signal {
                        SIGHUP => &wishes.reload,
                        SIGUSR1 => &wishes.rotate,
                        _ => &wishes.stop,
                    };
                    wish.store(true, Ordering::Release);
                    bell.set();
                    let is_stop = wishes.stop.load(Ordering::Acquire) && grace_ns < u64::MAX;
                    if is_stop && over.wait_until(monotonic_ns().saturating_add(grace_ns)) == Woken::Deadline
                    {
                        low_level::exit(FORCED_EXIT_STATUS);
                    }
                }
            }
        })?;
        Ok(Self { wishes, handle, over, thread: Some(thread) })
    }

    /// Whether the end was asked for.
    pub fn is_stop_asked(&self) -> bool {
        self.wishes.stop.load(Ordering::Acquire)
    }

    /// Whether a reload was asked for since the last time.
    pub fn take_reload(&self) -> bool {
        self.wishes.reload.swap(false, Ordering::AcqRel)
    }

    /// Whether a rotation was asked for since the last time.
    pub fn take_rotate(&self) -> bool {
        self.wishes.rotate.swap(false, Ordering::AcqRel)
    }
}

impl Drop for SignalWatch {
    fn drop(&mut self) {
        self.over.set();
        self.handle.close();
        if let Some(thread) = self.thread.take() {
            // A panic in the watching thread was already reported by the panic hook.
            drop(thread.join());
        }
    }
}
