//! Turns signals into flags, and sets a wake-up event at each signal.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::{Handle, Signals};
use signal_hook::{flag, low_level};

use super::clock::monotonic_ns;
use super::thread;
use super::wake_event::{WakeEvent, WakeReason};

/// Exit status after a second stop signal. Unwritten data is discarded.
const FORCED_EXIT_STATUS: i32 = 1;

/// Time that a command may continue after the first signal, if the reader of its output or the
/// writer of its input can block it. It is long enough to finish pending work, and shorter than the
/// stop timeout of any supervisor.
const GRACE_NS: u64 = 2_000_000_000;

/// Handles signals until it is dropped.
#[derive(Debug)]
#[must_use = "signals are watched while this value lives"]
pub struct SignalWatch {
    pending: Arc<PendingSignals>,
    handle: Handle,
    stopped: Arc<WakeEvent>, // set when signal handling ends
    thread: Option<JoinHandle<()>>,
}

/// Requests that signals have made and that no method call has returned yet. Repeated signals count
/// as one request.
#[derive(Debug, Default)]
struct PendingSignals {
    stop: AtomicBool,
    reload: AtomicBool,
    rotate: AtomicBool,
    snapshot: AtomicBool,
}

impl SignalWatch {
    /// Handles the recorder's signals. Each signal sets `wake`. SIGINT and SIGTERM request a stop;
    /// the second of these signals ends the process immediately with status 1. SIGHUP requests a
    /// reload, and SIGUSR1 a rotation. If `has_snapshots` is true, SIGUSR2 requests a snapshot.
    ///
    /// # Errors
    /// The kernel rejects a handler or a thread.
    pub fn for_recorder(wake: Arc<WakeEvent>, has_snapshots: bool) -> io::Result<Self> {
        let signals: &[i32] = if has_snapshots {
            &[SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2]
        } else {
            &[SIGINT, SIGTERM, SIGHUP, SIGUSR1]
        };
        Self::watch(signals, wake, u64::MAX)
    }

    /// Handles stop signals for all other commands. SIGINT and SIGTERM set `stop`; the second of
    /// these signals ends the process immediately with status 1.
    ///
    /// # Errors
    /// The kernel rejects a handler or a thread.
    pub fn stop_only(stop: Arc<WakeEvent>) -> io::Result<Self> {
        Self::watch(&[SIGINT, SIGTERM], stop, u64::MAX)
    }

    /// Like [`stop_only`](Self::stop_only), but for commands that leave no partial work and that
    /// can be blocked by the reader of their output. Also ends the process with status 1 if it
    /// still runs 2 s after the first signal.
    ///
    /// # Errors
    /// The kernel rejects a handler or a thread.
    pub fn stop_with_grace_period(stop: Arc<WakeEvent>) -> io::Result<Self> {
        Self::watch(&[SIGINT, SIGTERM], stop, GRACE_NS)
    }

    fn watch(signals: &[i32], wake: Arc<WakeEvent>, grace_ns: u64) -> io::Result<Self> {
        let stopping = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            // The handlers are registered in this order, because the first handler must check the
            // flag before the second handler sets it.
            flag::register_conditional_shutdown(signal, FORCED_EXIT_STATUS, Arc::clone(&stopping))?;
            flag::register(signal, Arc::clone(&stopping))?;
        }
        let mut signals = Signals::new(signals)?;
        let handle = signals.handle();
        let wishes = Arc::new(PendingSignals::default());
        let over = Arc::new(WakeEvent::new());
        let thread = thread::spawn("signals", {
            let (wishes, over) = (Arc::clone(&wishes), Arc::clone(&over));
            move || {
                for signal in signals.forever() {
                    let flag = match signal {
                        SIGHUP => &wishes.reload,
                        SIGUSR1 => &wishes.rotate,
                        SIGUSR2 => &wishes.snapshot,
                        _ => &wishes.stop,
                    };
                    flag.store(true, Ordering::Release);
                    wake.set();
                    let is_stop = wishes.stop.load(Ordering::Acquire) && grace_ns < u64::MAX;
                    if is_stop
                        && over.wait_until(monotonic_ns().saturating_add(grace_ns)) == WakeReason::Deadline
                    {
                        low_level::exit(FORCED_EXIT_STATUS);
                    }
                }
            }
        })?;
        Ok(Self { pending: wishes, handle, stopped: over, thread: Some(thread) })
    }

    /// Returns whether a stop was requested.
    pub fn is_stop_requested(&self) -> bool {
        self.pending.stop.load(Ordering::Acquire)
    }

    /// Returns whether a reload was requested since the last call.
    pub fn take_reload(&self) -> bool {
        self.pending.reload.swap(false, Ordering::AcqRel)
    }

    /// Returns whether a snapshot was requested since the last call.
    pub fn take_snapshot(&self) -> bool {
        self.pending.snapshot.swap(false, Ordering::AcqRel)
    }

    /// Returns whether a rotation was requested since the last call.
    pub fn take_rotate(&self) -> bool {
        self.pending.rotate.swap(false, Ordering::AcqRel)
    }
}

impl Drop for SignalWatch {
    fn drop(&mut self) {
        self.stopped.set();
        self.handle.close();
        if let Some(thread) = self.thread.take() {
            // The panic hook has already reported a panic of the signal thread.
            drop(thread.join());
        }
    }
}
