//! The segment file. A segment contains a header, samples and gaps. A sealed segment also contains
//! a footer and a trailer. Every byte belongs to a frame (docs/FORMAT.md).
//!
//! This module does not decide when to write, rotate, sync or delete a segment. It does not use
//! slabs, and does not interpret the payloads of samples. No thread outlives a call, because a
//! verification ends its worker threads before it returns. Readers never write.

mod compressed;
mod format;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod open;
mod read;
mod recover;
mod resync;
mod verify;
mod write;

pub use compressed::compressed_segment::CompressedSegment;
pub use format::control_frames::{Attachment, ClockCause, ClockSync, Gap, Marker, MarkerOrigin};
pub use format::damage::Damage;
pub use format::error::SegmentError;
pub use format::footer::{BlockEntry, Footer, Trailer};
pub use format::footer_totals::{FooterTotals, SampleSpan};
pub use format::frame_kind::{FrameKind, FrameLocation, RawFrameHeader, SampleView};
pub use format::header::{SegmentHeader, SourceInfo, SourceKind, SourceSender};
pub use format::index::{Bounds, IndexEntry, IndexFrame, IndexedSource};
pub use format::segment_name::{SealState, SegmentName, SideFile};
pub use read::catalog::{ListedSegment, list};
pub use read::notes::{gaps, markers};
pub use read::reader::{Advance, SegmentReader};
pub use read::seek::{Elapsed, RecordingStart, SelectedSegment, runs, select};
pub use recover::directory_recovery::{DirectoryRecovery, RunCompleteness};
pub use recover::leftovers::Leftovers;
pub use recover::recovered::{RecoverError, Recovered};
pub use recover::segment_recovery::recover;
pub use recover::supplement::{last_segment, supplement};
pub use verify::completeness::{CompletenessCheck, SequenceFinding, SourceCompleteness};
pub use verify::digest_check::DigestCheck;
pub use verify::removed::{REMOVED_NAME, RemovedSegments};
pub use verify::verification::{SegmentFlaw, UnexplainedGap, Verification, VerificationReport};
pub use write::compressed_writer::CompressedWriter;
pub use write::live_compression::LiveCompressor;
pub use write::sealed::SealedSegment;
pub use write::writer::{Frames, SegmentOptions, SegmentWriter};
