//! The stop signal: ends waiting and requests, on any thread.

use std::future::{Future, pending};
use std::io;
use std::pin::pin;
use std::thread::Builder;

use futures_util::future::{Either, select};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tokio::sync::watch;

/// A signal that the program shall end.
#[derive(Debug, Clone)]
pub(crate) struct StopSignal(watch::Receiver<bool>);

/// Sets a stop signal.
#[derive(Debug)]
pub(crate) struct StopSender(watch::Sender<bool>);

impl StopSignal {
    pub(crate) fn new() -> (StopSender, Self) {
        let (sender, receiver) = watch::channel(false);
        (StopSender(sender), Self(receiver))
    }

    /// Returns a signal that SIGTERM and SIGINT set. A second one ends the process.
    ///
    /// # Errors
    /// The handlers or the thread cannot be installed.
    pub(crate) fn of_process() -> io::Result<Self> {
        let (sender, stop) = Self::new();
        let mut signals = Signals::new([SIGTERM, SIGINT])?;
        let wait = move || {
            if signals.forever().next().is_some() {
                sender.set();
            }
            if let Some(signal) = signals.forever().next() {
                // The objects are complete or absent at any point, so no cleanup is needed.
                let _ended = signal_hook::low_level::emulate_default_handler(signal);
            }
        };
        Builder::new().name("signals".to_owned()).spawn(wait)?;
        Ok(stop)
    }

    pub(crate) fn is_set(&self) -> bool {
        *self.0.borrow()
    }

    /// Returns the result of some work, or `None` if the signal is set before it ends.
    pub(crate) async fn interrupt<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let mut stop = self.0.clone();
        let stopped = async move {
            // Without a sender, the work is never stopped.
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
