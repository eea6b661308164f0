//! What does the recorder ask of the kernel? The only door to clocks, files, threads and signals.
//!
//! Never: knows a frame, a segment or a source; keeps global state.

pub mod clock;
pub mod control_group;
pub mod current_directory;
pub mod directory;
pub mod environment;
pub mod ethtool;
pub mod event;
#[cfg(test)]
mod fault;
pub mod host;
pub mod host_node;
pub mod journal;
pub mod local_socket;
pub mod mapped_file;
#[cfg(test)]
mod medium;
pub mod memory;
pub mod mount;
pub mod nvml;
pub mod output;
pub mod perf;
pub mod process_events;
pub mod process_usage;
pub mod program;
mod rights;
pub mod service_manager;
pub mod shared_memory;
pub mod signal;
#[cfg(test)]
pub(crate) mod simulated;
pub mod sink;
pub mod storage;
pub mod thread;
