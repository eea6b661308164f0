//! The thread that makes closed segments small, beside the recording.

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;

use super::plan::seal_plan;
use crate::config::Config;
use crate::metrics::Metrics;
use crate::os::clock::monotonic_ns;
use crate::os::storage::Storage;
use crate::os::thread;
use crate::seal::{Link, Worker, link};

/// The end of a run waits so long for it. A block of a slow codec may take longer, and may be left: what lies beside the segments then is
/// removed by the next start.
const STOP_MAX_NS: u64 = 1_000_000_000;

/// The sealer, and how it is told of new segments.
#[derive(Debug)]
pub(super) struct Sealing {
    link: Link,
    thread: JoinHandle<()>,
    sealed: u64, // segments closed by this run when last looked at
}

/// A sealer that has not begun yet, and the way to it.
pub(super) fn prepare(config: &Config, storage: Arc<dyn Storage>, metrics: &Metrics) -> (Link, Worker) {
    link(seal_plan(config), storage, Arc::clone(&metrics.sealer), Arc::clone(&metrics.directory))
}

impl Sealing {
    /// Has it begin.
    pub(super) fn start(link: Link, worker: Worker) -> io::Result<Self> {
        let thread = thread::spawn("sealer", move || worker.run())?;
        Ok(Self { link, thread, sealed: 0 })
    }

    /// Tells it of a segment that was closed since the last look.
    pub(super) fn look(&mut self, metrics: &Metrics) {
        let sealed = metrics.recorder.segments_sealed.get();
        if std::mem::replace(&mut self.sealed, sealed) != sealed {
            self.link.ring();
        }
        // Before the oldest go, what is closed becomes small.
        self.link.urge(metrics.directory.is_short.get() == 1);
    }

    /// Tells it to end.
    pub(super) fn stop(&self) {
        self.link.stop();
    }

    /// Waits for it, up to a limit. `meanwhile` is called with the time while that goes on.
    pub(super) fn finish(self, meanwhile: &mut dyn FnMut(u64)) {
        self.stop();
        if thread::ends_by(&self.thread, monotonic_ns() + STOP_MAX_NS, meanwhile) {
            // A panic in there was reported by the panic hook; the segments stay as they are.
            let _panicked = self.thread.join();
        }
    }
}
