//! What earlier runs left when they were killed is completed, on a thread of its own beside the new recording.

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;

use crate::os::clock::monotonic_ns;
use crate::os::event::Event;
use crate::os::thread;
use crate::recorder::Capped;
use crate::segment::{Completion, Leftovers};

/// The end of a run waits so long for it; what is not done then is done by the next run, or by `recover`.
const STOP_MAX_NS: u64 = 10_000_000_000;

/// The thread at work.
#[derive(Debug)]
pub(super) struct Recovery {
    thread: JoinHandle<()>,
}

impl Recovery {
    /// Starts to complete the segments of all runs but `own_run`.
    pub(super) fn start(storage: Arc<Capped>, own_run: u64) -> io::Result<Self> {
        let thread = thread::spawn("recovery", move || complete(&storage, own_run))?;
        Ok(Self { thread })
    }

    /// Waits for it, up to a limit.
    pub(super) fn finish(self) {
        let never = Event::new();
        let deadline_ns = monotonic_ns() + STOP_MAX_NS;
        while !self.thread.is_finished() {
            if monotonic_ns() >= deadline_ns {
                tracing::warn!("the recovery of earlier runs is not finished; the next run goes on with it");
                return;
            }
            never.wait_until(monotonic_ns() + 1_000_000);
        }
        // A panic in there was reported by the panic hook; the segments stay as they are.
        let _panicked = self.thread.join();
    }
}

fn complete(storage: &Capped, own_run: u64) {
    let completion = Completion { storage, spare_run: Some(own_run), dry_run: false };
    let result = completion.run(&mut |_run| Leftovers::default(), &mut |name, result| match result {
        Ok(recovered) => tracing::info!(
            segment = %name,
            frames = recovered.frames,
            rescued = recovered.rescued,
            lost = recovered.lost,
            damaged_places = recovered.damage.len(),
            "an earlier run's segment is completed"
        ),
        Err(error) => tracing::error!(segment = %name, %error, "cannot complete an earlier run's segment"),
    });
    if let Err(error) = result {
        tracing::error!(%error, "cannot look for segments of earlier runs");
    }
}
