//! A flight recorder for Linux hosts.
//!
//! ```text
//! tick -> sampling -> frame -> slab ==queue==> recorder -> segment -> files -> replay
//!            |                                    |
//!          os::host                          os::storage
//! ```
//!
//! The rooms in the order in which data passes through them: [`sampling`] reads the host on schedule, [`frame`] makes a
//! finished FlatBuffer of each reading, [`slab`] carries frames to the [`recorder`], which writes them as [`segment`]
//! files; [`replay`] reads those again, and [`schema`] says what their payloads mean. [`stream`] is the wire format, usable
//! alone (`default-features = false`). [`seal`] makes closed
//! segments small. [`import`] brings foreign recordings in. [`daemon`] puts a run together, [`control`] is how it is asked while it runs, [`config`] says how, [`metrics`] counts, [`os`] is the
//! only door to the kernel, [`cli`] is the program. docs/ARCHITECTURE.md has the whole picture.
//!
//! Reading a recording:
//!
//! ```no_run
//! use flatcap::replay::{Filter, Item, MergedReader};
//!
//! let mut reader = MergedReader::open(&["flatcap-data".into()], Filter::default())?;
//! while let Some(item) = reader.next()? {
//!     if let Item::Sample(sample) = item {
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
pub mod seal;

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
