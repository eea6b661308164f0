//! The part of a client that its threads share, that is, the setup, and the registry of each
//! process.

use std::sync::{Arc, OnceLock};

use super::registry::Registry;
use super::setup::ClientSetup;

/// A handle of a client. Dropping the last handle closes the client. Threads keep the shared part
/// as long as they live.
#[derive(Debug)]
pub(crate) struct ClientHandle {
    pub(crate) shared: Arc<ClientShared>,
}

/// The part that all threads use.
#[derive(Debug)]
pub(crate) struct ClientShared {
    pub(crate) setup: ClientSetup,
    first: ProcessState,
}

/// The part of a client in one process. A child does not use its parent's part, whose locks may be
/// held by threads that the child does not have.
#[derive(Debug)]
pub(crate) struct ProcessState {
    process: u32,
    pub(crate) registry: Registry,
    next: OnceLock<Box<ProcessState>>,
}

impl Drop for ClientHandle {
    fn drop(&mut self) {
        self.shared.process().registry.close();
    }
}

impl ClientShared {
    /// Creates the part of this process.
    pub(crate) fn new(setup: ClientSetup) -> Self {
        Self { setup, first: ProcessState::new() }
    }

    /// Returns the part of this process.
    pub(crate) fn process(&self) -> &ProcessState {
        let process = std::process::id();
        let mut state = &self.first;
        while state.process != process {
            // The part of the next generation: each fork that uses the client adds one.
            state = state.next.get_or_init(|| Box::new(ProcessState::new()));
        }
        state
    }
}

impl ProcessState {
    fn new() -> Self {
        Self { process: std::process::id(), registry: Registry::default(), next: OnceLock::new() }
    }
}
