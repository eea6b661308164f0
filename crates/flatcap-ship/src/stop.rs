//! The stop signal. The signal ends waits and requests on all threads.

use std::future::{Future, pending};
use std::io;
use std::pin::pin;
use std::thread::Builder;

use futures_util::future::{Either, select};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tokio::sync::watch;

/// The signal that tasks check to see whether the program must end.
#[derive(Debug, Clone)]
pub(crate) struct StopSignal(watch::Receiver<bool>);

/// The sender that sets a stop signal.
#[derive(Debug)]
pub(crate) struct StopSender(watch::Sender<bool>);

impl StopSignal {
    pub(crate) fn new() -> (StopSender, Self) {
        let (sender, receiver) = watch::channel(false);
        (StopSender(sender), Self(receiver))
    }

    /// Returns a signal that is set by SIGTERM and SIGINT. A second SIGTERM or SIGINT ends the
    /// process.
    ///
    /// # Errors
    /// Fails if the signal handlers or their thread cannot be installed.
    pub(crate) fn of_process() -> io::Result<Self> {
        let (sender, stop) = Self::new();
        let mut signals = Signals::new([SIGTERM, SIGINT])?;
        let wait = move || {
            if signals.forever().next().is_some() {
                sender.set();
            }
            if let Some(signal) = signals.forever().next() {
                // The objects are complete or absent at any time, so no cleanup is needed.
                let _ended = signal_hook::low_level::emulate_default_handler(signal);
            }
        };
        Builder::new().name("signals".to_owned()).spawn(wait)?;
        Ok(stop)
    }

    pub(crate) fn is_set(&self) -> bool {
        *self.0.borrow()
    }

    /// Returns the output of a future, or `None` if the signal is set before the future completes.
    pub(crate) async fn interrupt<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let mut stop = self.0.clone();
        let stopped = async move {
            // If the sender no longer exists, the work is never stopped.
            if stop.wait_for(|is_set| *is_set).await.is_err() {
                pending::<()>().await;
            }
        };
        match select(pin!(work), pin!(stopped)).await {
            Either::Left((result, _)) => Some(result),
            Either::Right(_) => None,
        }
    }
}

impl StopSender {
    pub(crate) fn set(&self) {
        self.0.send_replace(true);
    }
}
