//! The recorder's interface to the kernel: clocks, files, threads, signals. No other module calls
//! it directly.
//!
//! Never knows about frames, segments or sources; keeps no global state.

pub mod clock;
pub mod control_group;
pub mod directory;
pub mod directory_handle;
pub mod directory_tree;
pub mod environment;
pub mod ethtool;
pub mod host;
pub mod host_log;
pub mod journal;
pub mod local_socket;
pub mod memory;
pub mod mount;
pub mod nvml;
pub mod output;
mod owner_rights;
pub mod packet_socket;
pub mod peer_process;
pub mod perf;
pub mod poll_event;
pub mod process_events;
pub mod process_usage;
pub mod program;
pub mod program_guard;
pub mod reopening_directory;
pub mod sealed_memory;
pub mod service_manager;
pub mod shared_memory;
pub mod signal;
pub mod sink;
pub mod stoppable_input;
pub mod storage;
pub mod thread;
pub mod throttle;
pub mod wake_event;
