//! Signals, turned into flags and a bell.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use signal_hook::flag;
use signal_hook::iterator::{Handle, Signals};

use super::event::Event;
use super::thread;

/// Exit status of a second stop signal: what was not yet written is given up.
const FORCED_EXIT_STATUS: i32 = 1;

/// Watches signals while it lives.
#[derive(Debug)]
#[must_use = "signals are watched while this value lives"]
pub struct SignalWatch {
    wishes: Arc<Wishes>,
    handle: Handle,
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
        Self::watch(&[SIGINT, SIGTERM, SIGHUP, SIGUSR1], bell)
    }

    /// For everything else: SIGINT and SIGTERM set `stop`, and the second of them ends the process at once with status 1.
    ///
    /// # Errors
    /// The kernel refuses a handler or a thread.
    pub fn stop(stop: Arc<Event>) -> io::Result<Self> {
        Self::watch(&[SIGINT, SIGTERM], stop)
    }

    fn watch(signals: &[i32], bell: Arc<Event>) -> io::Result<Self> {
        let stopping = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            // The order matters: the first signal finds the flag down and only then raises it.
            flag::register_conditional_shutdown(signal, FORCED_EXIT_STATUS, Arc::clone(&stopping))?;
            flag::register(signal, Arc::clone(&stopping))?;
        }
        let mut signals = Signals::new(signals)?;
        let handle = signals.handle();
        let wishes = Arc::new(Wishes::default());
        let thread = thread::spawn("signals", {
            let wishes = Arc::clone(&wishes);
            move || {
                for signal in signals.forever() {
                    let wish = match signal {
                        SIGHUP => &wishes.reload,
                        SIGUSR1 => &wishes.rotate,
                        _ => &wishes.stop,
                    };
                    wish.store(true, Ordering::Release);
                    bell.set();
                }
            }
        })?;
        Ok(Self { wishes, handle, thread: Some(thread) })
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
        self.handle.close();
        if let Some(thread) = self.thread.take() {
            // A panic in the watching thread was already reported by the panic hook.
            drop(thread.join());
        }
    }
}
