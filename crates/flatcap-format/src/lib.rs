//! Reads and writes the segment files of flatcap, a flight recorder for Linux hosts.
//!
//! A segment is one file of a recording. It consists of frames with checksums, and contains the
//! schemas to decode them. A telemetry frame contains one sample of a source as a FlatBuffer.
//! docs/FORMAT.md specifies the format.
//!
//! | to | use |
//! |---|---|
//! | ask for values of fields, as columns | `flatcap_query::Recording` |
//! | read the kernel's events: scheduler, stacks, log | `flatcap_query::Recording::kernel_events` |
//! | name fields as metrics of Prometheus | `flatcap_query::metric::metrics` |
//! | read a recording in the order of time | [`replay::MergedReader`] |
//! | read one segment frame by frame | [`segment::SegmentReader`] |
//! | decode a payload by the schema in the file | [`schema::CompiledSchema`] |
//! | check a segment | [`segment::Verification`] |
//! | check a payload by its schema | [`schema::PayloadVerifier`] |
//! | write a segment | [`segment::SegmentWriter`], to a [`storage::Storage`] |
//! | make a frame of a sample | [`frame::Envelope`], [`frame::FrameTemplate`] |
//! | compress frames | [`block::BlockEncoder`] |
//!
//! ```no_run
//! use flatcap_format::replay::{MergedReader, ReplayFilter, ReplayItem};
//!
//! let mut reader = MergedReader::open(&["flatcap-data".into()], ReplayFilter::default())?;
//! while let Some(item) = reader.next()? {
//!     if let ReplayItem::Sample(sample) = item {
//!         println!("source {} sample {}", sample.telemetry.source, sample.telemetry.seq);
//!     }
//! }
//! # Ok::<(), flatcap_format::segment::SegmentError>(())
//! ```

pub mod block;
pub mod consumer_names;
pub mod duration;
pub mod frame;
pub mod histogram;
pub mod host;
mod mapped_file;
pub mod replay;
pub mod schema;
pub mod segment;
pub mod storage;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod units;

#[cfg(test)]
mod fixtures;
