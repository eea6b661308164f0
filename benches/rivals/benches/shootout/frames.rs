//! The payloads of a stream in memory, deframed one after the other.
//!
//! `SliceReader` does this, too, but predicts that each frame is as long as the one before, which
//! is best for frames of one source. Here every fourth frame is of another kind and length, and a
//! wrong prediction costs more than the right ones save.

use flatcap_stream::{DefaultDeframer, DeframeStatus, SliceDeframer};

/// The rest of the stream.
pub struct Frames<'a>(pub &'a [u8]);

impl<'a> Iterator for Frames<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        let Ok(DeframeStatus::Frame(frame)) = DefaultDeframer::new().deframe(self.0) else { return None };
        self.0 = self.0.get(frame.bytes().len()..)?;
        Some(frame.payload())
    }
}
