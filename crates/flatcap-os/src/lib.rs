//! The interface of flatcap's programs to the Linux kernel: clocks, files, memory, threads,
//! signals, sockets, perf events. No other crate of flatcap calls the kernel directly.
//!
//! This crate does not depend on frames, segments or sources, and has no global state.

#![allow(
    clippy::host_endian_bytes,
    reason = "numbers of the kernel and of files as this host writes them, never stored"
)]

pub mod autogroup;
pub mod build_id;
pub mod clock;
pub mod control_group;
pub mod descriptor_store;
pub mod directory_handle;
pub mod directory_tree;
pub mod environment;
pub mod ethtool;
pub mod file_name;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
pub mod gpu_cards;
pub mod host;
pub mod host_log;
pub mod journal;
pub mod kernel_log;
pub mod kernel_symbols;
pub mod keyword;
pub mod local_socket;
pub mod memory;
#[cfg(flatcap_model)]
pub mod model;
pub mod mount;
pub mod nvidia;
#[cfg(feature = "nvidia")]
mod nvml;
pub mod packet_socket;
pub mod peer_descriptor;
pub mod peer_process;
pub mod perf;
pub mod perf_batch;
mod perf_event;
pub mod perf_record;
pub mod perf_ring;
pub mod poll_event;
pub mod process_events;
pub mod process_usage;
pub mod program;
pub mod program_guard;
pub mod ready_set;
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
