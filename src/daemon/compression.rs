//! The thread that compresses sealed segments while recording continues.

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;

use flatcap_format::storage::Storage;
use flatcap_metrics::Metrics;
use flatcap_os::clock::monotonic_ns;
use flatcap_os::thread;
use flatcap_recorder::compress::{CompressWorker, CompressWorkerHandle, new_worker};

use super::settings::compression_plan;
use crate::config::Config;

/// Maximum time for which the end of a run waits for the compression thread. Compressing a block
/// with a slow codec may take longer. The thread is then abandoned, and the next start removes its
/// temporary file.
const STOP_MAX_NS: u64 = 1_000_000_000;

/// The compressor and the link that notifies it of new segments.
#[derive(Debug)]
pub(super) struct CompressionThread {
    link: CompressWorkerHandle,
    thread: JoinHandle<()>,
    sealed: u64, // segments sealed by this run as of the last update
}

/// Creates a compressor that has not started, and the link to it.
pub(super) fn prepare(
    config: &Config,
    storage: Arc<dyn Storage>,
    metrics: &Metrics,
) -> (CompressWorkerHandle, CompressWorker) {
    new_worker(
        compression_plan(config),
        storage,
        Arc::clone(&metrics.compression),
        Arc::clone(&metrics.directory),
    )
}

impl CompressionThread {
    /// Starts the thread.
    pub(super) fn start(name: &str, link: CompressWorkerHandle, worker: CompressWorker) -> io::Result<Self> {
        let thread = thread::spawn(name, move || worker.run())?;
        Ok(Self { link, thread, sealed: 0 })
    }

    /// Notifies the compressor of segments sealed since the previous call.
    pub(super) fn notify(&mut self, metrics: &Metrics) {
        let sealed = metrics.recorder.segments_sealed.get();
        if std::mem::replace(&mut self.sealed, sealed) != sealed {
            self.link.notify();
        }
    }

    /// Notifies the compressor of segments sealed since the previous call, and of low disk space.
    pub(super) fn update(&mut self, metrics: &Metrics) {
        self.notify(metrics);
        // If disk space is low, sealed segments are compressed before old segments are removed.
        self.link.set_urgent(metrics.directory.is_space_low.get() == 1);
    }

    /// Asks the thread to end.
    pub(super) fn stop(&self) {
        self.link.stop();
    }

    /// Waits until the thread ends, up to a time limit. Calls `on_wait` again and again until
    /// then, with the current time.
    pub(super) fn finish(self, on_wait: &mut dyn FnMut(u64)) {
        self.stop();
        if thread::wait_for_exit(&self.thread, monotonic_ns() + STOP_MAX_NS, on_wait) {
            // If the thread panicked, the panic hook has reported it. The segment that the thread
            // was compressing stays uncompressed.
            let _panicked = self.thread.join();
        }
    }
}
