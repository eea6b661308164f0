//! What is in a file? Segments: a header, telemetry and gaps, and, once sealed, a footer and a trailer, every byte of
//! them a frame (docs/FORMAT.md).
//!
//! Never: decides when to write, rotate, sync or delete; knows a slab, a thread or what a payload means. Readers
//! never write.

mod audit;
mod catalog;
mod control;
mod error;
mod header;
mod name;
mod reader;
mod totals;
mod window;
mod writer;

pub use audit::{Audit, Finding, SourceAudit};
pub use catalog::{Listing, list};
pub use control::{Footer, Gap, Trailer};
pub use error::SegmentError;
pub use header::{Header, HostName, SourceInfo, SourceKind, VERSION};
pub use name::{SegmentName, State};
pub use reader::{Advance, Damage, FrameAt, FrameKind, SegmentReader, Telemetry};
pub use totals::{Span, Totals};
pub use writer::{SealedSegment, SegmentWriter};
