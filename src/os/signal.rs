//! Signals, turned into events that threads can wait for.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread::JoinHandle;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use signal_hook::iterator::{Handle, Signals};

use super::event::Event;
use super::thread;

/// Exit status of a second stop signal: what was not yet written is given up.
const FORCED_EXIT_STATUS: i32 = 1;

/// Watches SIGINT, SIGTERM and SIGHUP while it lives.
#[derive(Debug)]
#[must_use = "signals are watched while this value lives"]
pub struct SignalWatch {
    handle: Handle,
    thread: Option<JoinHandle<()>>,
}

impl SignalWatch {
    /// SIGINT and SIGTERM set `stop`; the second of them ends the process at once with status 1. SIGHUP calls
    /// `on_hangup` on the watching thread.
    ///
    /// # Errors
    /// The kernel refuses a handler or a thread.
    pub fn start(stop: Arc<Event>, on_hangup: impl Fn() + Send + 'static) -> io::Result<Self> {
        let stopping = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            // The order matters: the first signal finds the flag down and only then raises it.
            flag::register_conditional_shutdown(signal, FORCED_EXIT_STATUS, Arc::clone(&stopping))?;
            flag::register(signal, Arc::clone(&stopping))?;
        }
        let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
        let handle = signals.handle();
        let thread = thread::spawn("signals", move || {
            for signal in signals.forever() {
                if signal == SIGHUP {
                    on_hangup();
                } else {
                    stop.set();
                }
            }
        })?;
        Ok(Self { handle, thread: Some(thread) })
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
