//! The segment file: a header, samples and gaps, and, once sealed, a footer and a trailer. Every
//! byte belongs to a frame (docs/FORMAT.md).
//!
//! This module never decides when to write, rotate, sync or delete. It knows neither slabs nor the
//! meaning of a payload. It leaves no thread running: the workers of a verification end before it
//! does. Readers never write.

mod appender;
mod batch_scan;
mod batch_source;
mod block_frame;
mod block_search;
mod block_table;
mod catalog;
mod completeness;
mod compressed;
mod compressed_writer;
mod control_frames;
mod damage;
mod digest;
mod digest_check;
mod directory_recovery;
mod error;
mod field_projection;
mod file_window;
mod footer;
mod footer_totals;
mod frame_kind;
mod frame_probe;
mod full_scan;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod hash_budget;
mod header;
mod header_and_footer;
mod header_copy;
mod index;
mod index_search;
mod leftovers;
mod live_compression;
mod payload_codec;
mod plausibility;
mod preallocation;
mod preview;
mod reader;
mod recover;
mod recovered;
mod resync;
mod scan;
mod scan_pool;
mod sealed;
mod seek;
mod segment_counts;
mod segment_name;
mod sequence_progress;
mod timeline;
mod torn_tail;
mod verification;
mod writer;

pub use catalog::{ListedSegment, list};
pub use completeness::{CompletenessCheck, SequenceFinding, SourceCompleteness};
pub use compressed::CompressedSegment;
pub use compressed_writer::CompressedWriter;
pub use control_frames::{Attachment, ClockCause, ClockSync, Gap, Marker, MarkerOrigin};
pub use damage::Damage;
pub use digest_check::DigestCheck;
pub use directory_recovery::{DirectoryRecovery, RunCompleteness};
pub use error::SegmentError;
pub use footer::{BlockEntry, Footer, Trailer};
pub use footer_totals::{FooterTotals, SampleSpan};
pub use frame_kind::{FrameKind, FrameLocation, RawFrameHeader, SampleView};
pub use header::{HostName, SegmentHeader, SourceInfo, SourceKind, VERSION};
pub use index::{Bounds, IndexEntry, IndexFrame, IndexedSource};
pub use leftovers::Leftovers;
pub use live_compression::LiveCompressor;
pub use reader::{Advance, SegmentReader};
pub use recover::{recover, resume};
pub use recovered::{RecoverError, Recovered};
pub use scan::{Predicate, Scan, ScanSummary};
pub use sealed::SealedSegment;
pub use seek::{Elapsed, RecordingStart, SelectedSegment, runs, select};
pub use segment_name::{SealState, SegmentName, SideFile};
pub use verification::{SegmentFlaw, UnexplainedGap, Verification, VerificationReport};
pub use writer::{Frames, SegmentOptions, SegmentWriter};
