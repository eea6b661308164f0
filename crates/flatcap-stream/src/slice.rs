//! Reads frames from bytes in memory or in a memory map, without copying (zero-copy).

use super::deframer::{DeframeStatus, Frame, SliceDeframer};
use super::error::{Error, Result};

/// Iterates over the payloads of a slice. The payloads borrow the slice, not the reader, so they
/// may outlive the iteration. The iteration ends after the last frame, or after the first error.
///
/// Reading may start at any frame ([`seek`](Self::seek)) and may be divided among threads
/// ([`split`](Self::split)).
#[derive(Debug, Clone)]
pub struct SliceReader<'a, D> {
    bytes: &'a [u8],
    /// The bytes from the next frame to the end. The slice is empty after an error.
    rest: &'a [u8],
    deframer: D,
    /// Length of the previous frame. The next frame probably has the same length, see
    /// [`advance`](Self::advance).
    stride: usize,
    /// Offset of the frame that caused the error.
    failed_at: Option<usize>,
}

impl<'a, D: SliceDeframer> SliceReader<'a, D> {
    /// Creates a reader at the start of `bytes`.
    pub const fn new(bytes: &'a [u8], deframer: D) -> Self {
        Self { bytes, rest: bytes, deframer, stride: 0, failed_at: None }
    }

    /// Returns the offset of the next frame, or of the frame that caused the error.
    pub fn offset(&self) -> usize {
        self.failed_at.unwrap_or(self.bytes.len() - self.rest.len())
    }

    /// Continues at `offset`, which must be the offset of a frame or the end of the slice. If
    /// `offset` is after the end, there are no more frames.
    pub fn seek(&mut self, offset: usize) {
        self.rest = self.bytes.get(offset..).unwrap_or_default();
        self.failed_at = None;
    }

    /// Returns the deframer.
    pub fn deframer(&self) -> &D {
        &self.deframer
    }

    /// Returns the next frame with its header, or `None` after the last frame and after an error.
    #[inline]
    pub fn next_frame(&mut self) -> Option<Result<Frame<'a>>> {
        if self.rest.is_empty() {
            return None;
        }
        match self.deframer.deframe(self.rest) {
            Ok(DeframeStatus::Frame(frame)) => {
                self.advance(frame.bytes().len());
                Some(Ok(frame))
            }
            Ok(DeframeStatus::Incomplete { .. }) => Some(Err(self.fail(Error::unexpected_eof()))),
            Err(error) => Some(Err(self.fail(error))),
        }
    }

    /// Skips the next frame and returns its offset, or `None` at the end. Reads only the header.
    /// Does not verify the checksum.
    ///
    /// # Errors
    /// `UnexpectedEof`, `InvalidFrame`.
    #[inline]
    pub fn skip_frame(&mut self) -> Result<Option<usize>> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        match self.deframer.frame_length(self.rest).checked() {
            Ok(Some(length)) if length <= self.rest.len() => {
                let offset = self.offset();
                self.advance(length);
                Ok(Some(offset))
            }
            Ok(_) => Err(self.fail(Error::unexpected_eof())),
            Err(error) => Err(self.fail(error)),
        }
    }

    /// Skips the frame that caused the error and returns the offset of this frame. The length of
    /// the frame is taken from its length field. Reading may continue if the frame was complete and
    /// was rejected because of its checksum or by a validator.
    ///
    /// # Errors
    /// `UnexpectedEof` or `InvalidFrame` if the length field is not valid. Reading cannot continue.
    pub fn skip_refused(&mut self) -> Result<Option<usize>> {
        self.seek(self.offset());
        self.skip_frame()
    }

    /// Divides the remaining frames among at most `parts` readers, for example one per thread. The
    /// readers are in the order of the frames, and their parts have about equal lengths. If there
    /// are fewer frames than `parts`, there are fewer readers. Reads each header exactly once. A
    /// frame that cannot be skipped belongs to the last part, whose reader returns the error.
    pub fn split(mut self, parts: usize) -> Vec<Self>
    where
        D: Clone,
    {
        let target_bytes = self.rest.len().div_ceil(parts.max(1)).max(1);
        let mut readers = Vec::with_capacity(parts.max(1));
        let mut from = self.offset();
        while let Ok(Some(_)) = self.skip_frame() {
            if self.offset() - from >= target_bytes && !self.rest.is_empty() {
                readers.push(self.part(from, self.offset()));
                from = self.offset();
            }
        }
        readers.push(self.part(from, self.bytes.len()));
        readers
    }

    /// Returns a reader of the frames between two offsets. The offsets of the returned reader are
    /// relative to the start of the original slice.
    fn part(&self, from: usize, to: usize) -> Self
    where
        D: Clone,
    {
        let mut part = Self::new(self.bytes.get(..to).unwrap_or_default(), self.deframer.clone());
        part.seek(from);
        part
    }

    /// Advances past a frame of `length` bytes.
    ///
    /// The position of the next header depends on the length in this header. This length must first
    /// be loaded from memory. Without prediction, the processor would wait for a cache miss at each
    /// frame before it can request the next header. Frames of one source mostly have the same
    /// length. So this method compares the length with the length of the previous frame. If the
    /// lengths are equal, this method adds the previous length. The processor predicts the result
    /// of the comparison and fetches the next header ahead.
    #[inline]
    fn advance(&mut self, length: usize) {
        if length != self.stride {
            self.set_stride(length);
        }
        self.rest = self.rest.get(self.stride..).unwrap_or_default();
    }

    /// Stores the length. This function is not inlined, so that the compiler does not see that both
    /// branches add the same length.
    #[inline(never)]
    fn set_stride(&mut self, length: usize) {
        self.stride = length;
    }

    #[cold]
    fn fail(&mut self, error: Error) -> Error {
        self.failed_at = Some(self.offset());
        self.rest = &[];
        error
    }
}

impl<'a, D: SliceDeframer> Iterator for SliceReader<'a, D> {
    type Item = Result<&'a [u8]>;

    #[inline]
    fn next(&mut self) -> Option<Result<&'a [u8]>> {
        self.next_frame().map(|frame| frame.map(|frame| frame.payload()))
    }
}

impl<D: SliceDeframer> std::iter::FusedIterator for SliceReader<'_, D> {}

#[cfg(feature = "flatstream")]
#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::checksum_kind::{ChecksumKind, KindDeframer};
    use crate::writer::StreamWriter;

    fn stream(kind: ChecksumKind, lengths: &[usize]) -> (Vec<u8>, Vec<usize>) {
        let mut writer = StreamWriter::new(Vec::new(), kind);
        let mut ends = vec![0];
        for &length in lengths {
            writer.write_payload(&vec![7; length]).unwrap();
            ends.push(writer.get_ref().len());
        }
        (writer.into_inner(), ends)
    }

    // Proves that a stream that is truncated at any byte gives its whole frames, then one error,
    // and then the end.
    #[test]
    fn a_cut_gives_whole_frames_then_one_error() {
        for &kind in ChecksumKind::ALL {
            let (bytes, ends) = stream(kind, &[3, 0, 5, 5, 5, 1]);
            for cut in 0..=bytes.len() {
                let mut reader = SliceReader::new(&bytes[..cut], KindDeframer::new(kind));
                let whole = reader.by_ref().take_while(Result::is_ok).count();
                assert_eq!(whole, ends.iter().filter(|&&end| end <= cut).count() - 1);
                assert_eq!(reader.offset(), ends[whole], "the reader is at the frame that failed");
                assert!(reader.next().is_none());
                assert!(reader.skip_frame().unwrap().is_none());
            }
        }
    }

    proptest! {
        // Proves that the parts of any division contain every frame exactly once and in order, and
        // that offsets are relative to the whole stream.
        #[test]
        fn parts_add_up(lengths in proptest::collection::vec(0..60_usize, 0..40), parts in 0..9_usize) {
            for &kind in ChecksumKind::ALL {
                let (bytes, ends) = stream(kind, &lengths);
                let readers = SliceReader::new(&bytes, KindDeframer::new(kind)).split(parts);
                prop_assert!(readers.len() <= parts.max(1));
                let mut offsets = Vec::new();
                for mut reader in readers {
                    let mut offset = reader.offset();
                    while let Some(frame) = reader.next_frame() {
                        frame.unwrap();
                        offsets.push(offset);
                        offset = reader.offset();
                    }
                }
                prop_assert_eq!(&offsets, &ends[..ends.len() - 1]);
            }
        }
    }

    // Proves that reading can continue at any frame, also after an error.
    #[cfg(feature = "xxhash")]
    #[test]
    fn seeking() {
        let (mut bytes, ends) = stream(ChecksumKind::Xxh3, &[9, 8, 7, 6]);
        bytes[ends[1] + 13] ^= 1;
        let mut reader = SliceReader::new(&bytes, KindDeframer::new(ChecksumKind::Xxh3));
        assert_eq!(reader.by_ref().flatten().count(), 1);
        assert_eq!(reader.offset(), ends[1]);
        assert_eq!(reader.skip_frame().unwrap(), None, "an error is the end until a seek");
        assert_eq!(reader.skip_refused().unwrap(), Some(ends[1]));
        assert_eq!(reader.by_ref().flatten().count(), 2);
        reader.seek(bytes.len() + 1);
        assert!(reader.next().is_none());
    }
}
