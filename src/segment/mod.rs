//! What is in a file? Segments: a header, telemetry and gaps, and, once sealed, a footer and a trailer, every byte of
//! them a frame (docs/FORMAT.md).
//!
//! Never: decides when to write, rotate, sync or delete; knows a slab or what a payload means; leaves a thread behind (a
//! verification's surveyors end before it does). Readers never write.

mod appender;
mod audit;
mod block_table;
mod catalog;
mod completion;
mod control;
mod crew;
mod damage;
mod digest;
mod error;
mod examine;
mod fields;
mod follow;
mod footer;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod header;
mod header_copy;
mod index;
mod kind;
mod leftovers;
mod mend;
mod name;
mod opening;
mod packed;
mod packed_search;
mod packed_writer;
mod packing;
mod preview;
mod progress;
mod proof;
mod reader;
mod recover;
mod recovered;
mod reserve;
mod runs;
mod scan;
mod sealed;
mod seek;
mod survey;
mod tail;
mod tally;
mod timeline;
mod totals;
mod verification;
mod walk;
mod window;
mod writer;

pub use audit::{Audit, Finding, SourceAudit};
pub use catalog::{Listing, list};
pub use completion::{Account, Completion};
pub use control::{Attachment, ClockCause, ClockSync, Gap, Marker, MarkerOrigin};
pub use error::SegmentError;
pub use footer::{BlockEntry, Footer, Trailer};
pub use header::{Header, HostName, SourceInfo, SourceKind, VERSION};
pub use index::{Bounds, Index, IndexEntry, IndexedSource};
pub use kind::{FrameAt, FrameKind, Head, Telemetry};
pub use leftovers::Leftovers;
pub use name::{Aside, SegmentName, State};
pub use packed::Packed;
pub use packed_writer::PackedWriter;
pub use packing::Packing;
pub use proof::Proof;
pub use reader::{Advance, Damage, SegmentReader};
pub use recover::{recover, resume};
pub use recovered::{RecoverError, Recovered};
pub use scan::{Condition, Scan, Scanned};
pub use sealed::SealedSegment;
pub use seek::{Elapsed, Selected, Start, runs, select};
pub use totals::{Span, Totals};
pub use verification::{Flaw, Hole, Verdict, Verification};
pub use writer::{Form, Frames, SegmentWriter};
