//! What must hold for any bytes that are taken for a capture: the entry of `fuzz/`, and of tests.
//!
//! It takes bytes of a stranger and panics where this room breaks a promise. None of it is in a release: the module is
//! there for tests and under the feature `fuzzing`.

use std::cell::Cell;
use std::io::Cursor;
use std::path::Path;
use std::rc::Rc;

use super::message::Models;
use super::{Feed, Import};
use crate::import::{Course, ImportError, Input, Plan, Recording, Report};
use crate::schema::market::iex::Message;
use crate::segment::fuzzing::Shelf;
use crate::segment::{Advance, FrameKind, SegmentReader, Verification};

thread_local! {
    /// They take longer than a small import.
    static MODELS: Rc<Models> = Rc::new(Models::new());
}

/// A frame of an import: number, time of capture, payload.
type Frame = (u64, i64, Vec<u8>);

/// Imports bytes, as a file of this feed, into memory.
pub(super) fn import(data: &[u8], feed: Feed, shelf: &Shelf) -> Result<Report, ImportError> {
    let input = Input::new(Path::new("capture"), Box::new(Cursor::new(data.to_vec())), Rc::new(Cell::new(0)))
        .map_err(ImportError::read(Path::new("capture")))?;
    let mut watch = |_| true;
    let mut course = Course::new(&mut watch);
    // Small segments, so that there are several.
    let plan = Plan { segment_bytes: 1 << 20, frame_max: 1 << 20 };
    let models = MODELS.with(Rc::clone);
    let mut import = Import::begin(feed, Recording::begin(shelf, plan)?, models);
    let result = import.read(input, &mut course);
    import.finish(result)
}

/// The frames of all segments, which must be sealed, intact and explained.
pub(super) fn frames(shelf: &Shelf) -> (Vec<Frame>, u64) {
    let (mut frames, mut verification) = (Vec::new(), Verification::default());
    for name in shelf.names() {
        let open = || {
            let file = crate::os::storage::Storage::open(shelf, &name).expect("it is listed");
            SegmentReader::over(Path::new(&name), file).expect("a segment that was just published")
        };
        let mut reader = open();
        assert!(reader.is_sealed(), "an import seals what it has");
        verification.segment(&mut reader, false, &mut |_| {}).expect("memory can be read");
        let mut reader = open();
        while let Some(Advance::Frame(at)) = reader.advance().expect("memory can be read") {
            if let Some(sample) = reader.telemetry(at).filter(|_| at.kind == FrameKind::Telemetry) {
                frames.push((sample.seq, sample.wall_ns, sample.payload.to_vec()));
            }
        }
    }
    let verdict = verification.finish();
    assert!(verdict.is_intact() && verdict.unexplained() == 0, "{verdict:?}");
    (frames, verdict.lost())
}

/// Imports `data` as a capture of DEEP: whatever it is, what is recorded is whole, explained, and of the schema; and everything of
/// the input is read or told of.
///
/// # Panics
/// A promise of the import is broken.
pub fn capture(data: &[u8]) {
    let shelf = Shelf::default();
    let report = match import(data, Feed::Deep, &shelf) {
        Ok(report) => report,
        Err(error) => {
            assert!(!error.to_string().is_empty(), "an error says something");
            return;
        }
    };
    let (frames, lost) = frames(&shelf);
    let recorded: u64 = report.written.sources.iter().map(|source| source.recorded).sum();
    assert_eq!(recorded, frames.len() as u64, "what was said to be there is there");
    assert_eq!(report.written.sources.iter().map(|source| source.lost).sum::<u64>(), lost);
    for (_, _, payload) in &frames {
        let message = flatbuffers::root::<Message<'_>>(payload);
        assert!(message.is_ok(), "a payload is of its schema: {message:?}");
    }
    let is_packed = data.starts_with(&[0x1F, 0x8B, 8]);
    assert!(is_packed || report.bytes == data.len() as u64, "all of the input was passed");
}
