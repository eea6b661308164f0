//! A flight recorder for Linux hosts.
//!
//! ```text
//! tick -> sampling -> frame -> slab ==queue==> recorder -> segment -> files -> replay
//!            |                                    |
//!          os::host                          os::storage
//! ```
//!
//! Modules, in the order of the data: [`sampling`] reads the host on schedule, [`frame`] makes
//! FlatBuffer frames of the samples, [`slab`] carries frames to the [`recorder`], which writes them
//! to [`segment`] files, and [`compress`] rewrites sealed segments as [`block`]s. [`replay`] reads
//! segments, [`schema`] interprets their payloads, [`import`] and [`export`] convert other formats.
//!
//! [`daemon`] assembles a run, [`control`] answers requests to it, [`config`] configures it,
//! [`metrics`] counts, [`os`] is the only interface to the kernel, and [`cli`] is the program.
//! [`stream`] is the wire format, usable alone (`default-features = false`).
//!
//! docs/ARCHITECTURE.md describes the whole.
//!
//! Reading a recording:
//!
//! ```no_run
//! use flatcap::replay::{MergedReader, ReplayFilter, ReplayItem};
//!
//! let mut reader = MergedReader::open(&["flatcap-data".into()], ReplayFilter::default())?;
//! while let Some(item) = reader.next()? {
//!     if let ReplayItem::Sample(sample) = item {
//!         println!("source {} sample {}", sample.telemetry.source, sample.telemetry.seq);
//!     }
//! }
//! # Ok::<(), flatcap::segment::SegmentError>(())
//! ```

#[cfg(all(
    feature = "agent",
    not(all(target_os = "linux", target_pointer_width = "64", target_endian = "little"))
))]
compile_error!("the recorder is for 64-bit little-endian Linux; `stream` alone is for everything else");

pub mod stream;

#[cfg(feature = "agent")]
pub mod sampling;

#[cfg(feature = "agent")]
pub mod frame;

#[cfg(feature = "agent")]
pub mod slab;

#[cfg(feature = "agent")]
pub mod recorder;

#[cfg(feature = "agent")]
pub mod segment;

#[cfg(feature = "agent")]
pub mod replay;

#[cfg(feature = "agent")]
pub mod block;

#[cfg(feature = "agent")]
pub mod compress;

#[cfg(feature = "agent")]
pub mod import;

#[cfg(feature = "agent")]
pub mod export;

#[cfg(feature = "agent")]
pub mod schema;

#[cfg(feature = "agent")]
pub mod config;

#[cfg(feature = "agent")]
pub mod metrics;

#[cfg(feature = "agent")]
pub mod os;

#[cfg(feature = "agent")]
pub mod control;

#[cfg(feature = "agent")]
pub mod daemon;

#[cfg(feature = "agent")]
pub mod cli;

#[cfg(test)]
mod effort;
#[cfg(all(test, flatcap_model))]
mod model;
