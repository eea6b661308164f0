//! A flight recorder for Linux hosts.
//!
//! `cli` is the program with its verbs, their arguments and output. `daemon` assembles a run from
//! the crates of the workspace, `config` defines its configuration, and `export` writes frame
//! streams.
//!
//! ```text
//! tick -> flatcap_sampling -> flatcap_slab ==queue==> flatcap_recorder -> flatcap_format -> files
//! ```
//!
//! This package has no interface for other packages. Programs that read or write recordings use
//! [`flatcap_format`]. Programs that frame streams use [`flatcap_stream`]. docs/ARCHITECTURE.md
//! describes the whole project.

#![cfg_attr(
    not(feature = "manual"),
    allow(dead_code, reason = "the manual pages say what every setting means")
)]
#![cfg_attr(
    not(feature = "internals"),
    allow(
        unreachable_pub,
        unnameable_types,
        unused_imports,
        reason = "tests and benches of this package use what is public in the modules"
    )
)]

#[cfg(not(all(target_os = "linux", target_pointer_width = "64", target_endian = "little")))]
compile_error!(
    "the recorder is for 64-bit little-endian Linux; flatcap-format and flatcap-stream are for everything else"
);

#[cfg(not(feature = "internals"))]
mod cli;
#[cfg(feature = "internals")]
pub mod cli;
#[cfg(not(feature = "internals"))]
mod config;
#[cfg(feature = "internals")]
pub mod config;
#[cfg(not(feature = "internals"))]
mod daemon;
#[cfg(feature = "internals")]
pub mod daemon;
#[cfg(not(feature = "internals"))]
mod export;
#[cfg(feature = "internals")]
pub mod export;

/// Runs the program with the process's arguments and returns its exit status.
pub fn main() -> std::process::ExitCode {
    cli::main().into()
}
