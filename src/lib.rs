//! A flight recorder for Linux hosts.
//!
//! ```text
//! tick -> sampling -> frame -> slab ==queue==> recorder -> segment -> files -> replay
//!            |                                    |
//!          os::host                          os::storage
//! ```
//!
//! Modules, in the order of the data: `sampling` reads the host on schedule and makes frames of the
//! samples, `ingest` takes the frames of applications, `slab` carries frames to the `recorder`,
//! which writes them to segment files, `compress` rewrites sealed segments, and `snapshot` keeps
//! the full rate around a moment. `import` and `export` convert other formats. `daemon` assembles a
//! run, `control` answers requests to it, `config` configures it, `metrics` counts, `view` shows
//! recordings, `os` is the only interface to the kernel, and `cli` is the program.
//!
//! This package is the program; it has no interface for others. Programs that read or write
//! recordings use [`flatcap_format`], those that frame streams [`flatcap_stream`].
//! docs/ARCHITECTURE.md describes the whole.

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
