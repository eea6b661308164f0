//! Frames of a byte slice, without copying a byte.

use super::checksum::ChecksumKind;
use super::deframer::{Deframer, Frame, Step};
use super::error::{ErrorKind, Result};

/// Iterates over the frames of a slice. Payloads borrow the slice and outlive the iteration. Ends behind the last
/// frame, or with one error.
#[derive(Debug, Clone)]
pub struct SliceReader<'a> {
    bytes: &'a [u8],
    offset: usize,
    deframer: Deframer,
}

impl<'a> SliceReader<'a> {
    /// A reader at the start of `bytes`.
    pub fn new(bytes: &'a [u8], kind: ChecksumKind) -> Self {
        Self { bytes, offset: 0, deframer: Deframer::new(kind) }
    }

    /// The same, refusing payloads above `frame_max` bytes.
    #[must_use]
    pub fn with_frame_max(mut self, frame_max: u32) -> Self {
        self.deframer = self.deframer.with_frame_max(frame_max);
        self
    }

    /// Offset of the next frame, or of the frame that failed.
    pub fn offset(&self) -> usize {
        self.offset
    }
}

impl<'a> Iterator for SliceReader<'a> {
    type Item = Result<Frame<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        let rest = self.bytes.get(self.offset..).filter(|rest| !rest.is_empty())?;
        match self.deframer.step(rest) {
            Ok(Step::Frame(frame)) => {
                self.offset += frame.bytes().len();
                Some(Ok(frame))
            }
            Ok(Step::Incomplete { needed }) => {
                self.bytes = &[];
                Some(Err(ErrorKind::UnexpectedEof { missing: (needed - rest.len()) as u64 }.into()))
            }
            Err(error) => {
                self.bytes = &[];
                Some(Err(error))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stream::writer::StreamWriter;

    // Goal: a cut stream gives its whole frames, then one error, then ends. Method: every cut of three frames.
    #[test]
    fn a_cut_gives_whole_frames_then_one_error() {
        for &kind in ChecksumKind::ALL {
            let mut writer = StreamWriter::new(Vec::new(), kind);
            let mut ends = vec![0];
            for payload in [&b"one"[..], b"", b"three"] {
                writer.write_payload(payload).unwrap();
                ends.push(writer.get_ref().len());
            }
            let bytes = writer.into_inner();
            for cut in 0..=bytes.len() {
                let mut reader = SliceReader::new(&bytes[..cut], kind);
                let whole = reader.by_ref().take_while(Result::is_ok).count();
                assert_eq!(whole, ends.iter().filter(|&&end| end <= cut).count() - 1);
                assert_eq!(reader.offset(), ends[whole], "the reader stands at the frame that failed");
                assert!(reader.next().is_none());
            }
        }
    }
}
