//! The state that the threads of a client share. It consists of the setup and of one registry per
//! process.

use std::sync::{Arc, OnceLock};

use super::registry::Registry;
use super::setup::ClientSetup;

/// A handle of a client. Dropping the last handle closes the client. A thread keeps the shared
/// state alive until the thread ends.
#[derive(Debug)]
pub(crate) struct ClientHandle {
    pub(crate) shared: Arc<ClientShared>,
}

/// The state that all threads of a client use.
#[derive(Debug)]
pub(crate) struct ClientShared {
    pub(crate) setup: ClientSetup,
    first: ProcessState,
}

/// The state of a client in one process. A child process does not use its parent's state. The locks
/// in that state may be held by threads that do not exist in the child.
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
    /// Creates the state of a client in this process.
    pub(crate) fn new(setup: ClientSetup) -> Self {
        Self { setup, first: ProcessState::new() }
    }

    /// Returns the state of the client in the calling process.
    pub(crate) fn process(&self) -> &ProcessState {
        let process = std::process::id();
        let mut state = &self.first;
        while state.process != process {
            // This is the state of the next process: each forked process that uses the client adds
            // one state.
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
