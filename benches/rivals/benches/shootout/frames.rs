//! The payloads of a stream in memory, one deframed behind the other.
//!
//! `SliceReader` does this too, and expects each frame to be as long as the one before: best for the frames of one source. Here
//! every fourth frame is of another kind and length, and a wrong guess costs more than it saves.

use flatcap::stream::{DefaultDeframer, SliceDeframer, Step};

/// What is left of the stream.
pub struct Frames<'a>(pub &'a [u8]);

impl<'a> Iterator for Frames<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        let Ok(Step::Frame(frame)) = DefaultDeframer::new().deframe(self.0) else { return None };
        self.0 = self.0.get(frame.bytes().len()..)?;
        Some(frame.payload())
    }
}
