//! Invariants of an import that must hold for any bytes that are read as a capture. This module is
//! the entry point of `fuzz/` and of tests.
//!
//! The functions panic if the importer violates an invariant. Releases do not contain this module,
//! which is compiled only for tests and with the feature `fuzzing`.

use std::cell::Cell;
use std::io::Cursor;
use std::path::Path;
use std::rc::Rc;

use flatcap_format::segment::{Advance, FrameKind, SegmentReader, Verification};
use flatcap_format::testing::memory::MemoryStorage;
use flatcap_schemas::market::iex::Message;

use super::message::IexTemplates;
use super::{Feed, IexImport};
use crate::{ImportError, ImportLimits, ImportProgress, ImportReport, Input, RunWriter};

thread_local! {
    /// The templates are shared, because creating them takes longer than a small import.
    static MODELS: Rc<IexTemplates> = Rc::new(IexTemplates::new());
}

/// The number, capture time and payload of an imported sample.
type ImportedFrame = (u64, i64, Vec<u8>);

/// Imports bytes into memory, as a capture of this feed.
pub(super) fn import(data: &[u8], feed: Feed, shelf: &MemoryStorage) -> Result<ImportReport, ImportError> {
    let input = Input::new(Path::new("capture"), Box::new(Cursor::new(data.to_vec())), Rc::new(Cell::new(0)))
        .map_err(ImportError::read(Path::new("capture")))?;
    let mut watch = |_| true;
    let mut progress = ImportProgress::new(&mut watch);
    // The segments are small, so that an import writes several of them.
    let plan = ImportLimits { segment_bytes: 1 << 20, frame_max: 1 << 20 };
    let models = MODELS.with(Rc::clone);
    let mut import = IexImport::begin(feed, RunWriter::begin(shelf, plan)?, models);
    let result = import.read(input, &mut progress);
    import.finish(result)
}

/// Returns the samples of all segments and the number of lost samples. Asserts that the segments
/// are sealed and intact and that all losses are explained.
pub(super) fn frames(shelf: &MemoryStorage) -> (Vec<ImportedFrame>, u64) {
    let (mut frames, mut verification) = (Vec::new(), Verification::default());
    for name in shelf.names() {
        let open = || {
            let file = flatcap_format::storage::Storage::open(shelf, &name).expect("it is listed");
            SegmentReader::over(Path::new(&name), file).expect("a segment that was just published")
        };
        let mut reader = open();
        assert!(reader.is_sealed(), "an import seals what it has");
        verification.verify(&mut reader, false, &mut |_| {}).expect("memory can be read");
        let mut reader = open();
        while let Some(Advance::Frame(at)) = reader.advance().expect("memory can be read") {
            if let Some(sample) = reader.sample(at).filter(|_| at.kind == FrameKind::Telemetry) {
                frames.push((sample.seq, sample.wall_ns, sample.payload.to_vec()));
            }
        }
    }
    let verdict = verification.finish();
    assert!(verdict.is_intact() && verdict.unexplained() == 0, "{verdict:?}");
    (frames, verdict.lost())
}

/// Imports `data` as a capture of DEEP. Whatever the bytes are, all recorded samples must be intact
/// and match the schema, losses must be explained, and all input must be read or reported.
///
/// # Panics
/// Panics if an invariant of the import is violated.
pub fn capture(data: &[u8]) {
    let shelf = MemoryStorage::default();
    let report = match import(data, Feed::Deep, &shelf) {
        Ok(report) => report,
        Err(error) => {
            assert!(!error.to_string().is_empty(), "an error says something");
            return;
        }
    };
    let (frames, lost) = frames(&shelf);
    let recorded: u64 = report.totals.sources.iter().map(|source| source.recorded).sum();
    assert_eq!(recorded, frames.len() as u64, "what was said to be there is there");
    assert_eq!(report.totals.sources.iter().map(|source| source.lost).sum::<u64>(), lost);
    for (_, _, payload) in &frames {
        let message = flatbuffers::root::<Message<'_>>(payload);
        assert!(message.is_ok(), "a payload is of its schema: {message:?}");
    }
    let is_packed = data.starts_with(&[0x1F, 0x8B, 8]);
    assert!(is_packed || report.bytes == data.len() as u64, "all of the input was passed");
}
