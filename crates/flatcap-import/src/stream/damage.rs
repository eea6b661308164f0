//! A range without intact frames in a stream, and its description.

use flatcap_stream::{DeframeStatus, FrameLength, KindDeframer, SliceDeframer};

use super::search::StreamItem;
use crate::window::InputWindow;

/// A range without intact frames.
#[derive(Debug)]
pub(super) struct StreamDamage {
    pub(super) offset: u64,
    pub(super) bytes: u64,
    /// The problem at the start of the range.
    pub(super) reason: String,
    /// Number of frames in the range, if the length of the range determines this number.
    pub(super) count: Option<u64>,
    is_zeros: bool,
}

impl StreamDamage {
    /// Returns the damaged range at the start of a window, if `found` is a damaged range.
    pub(super) fn from_item(
        found: &StreamItem,
        window: &InputWindow,
        deframer: &KindDeframer,
    ) -> Option<Self> {
        let (is_zeros, length) = match *found {
            StreamItem::Damage(length) => (false, length),
            StreamItem::Zeros(length) => (true, length),
            StreamItem::Frame(_) | StreamItem::Repaired(_) => return None,
        };
        let (count, why) = if is_zeros {
            (Some(0), "zeros, space that was never written".to_owned())
        } else {
            describe(window.unconsumed(), length, deframer)
        };
        Some(Self { offset: window.offset(), bytes: length as u64, reason: why, count, is_zeros })
    }

    /// Returns whether `next` continues this range.
    pub(super) fn is_continued_by(&self, next: &Self) -> bool {
        self.is_zeros == next.is_zeros && self.offset + self.bytes == next.offset
    }

    /// Extends the range by `next`.
    pub(super) fn extend(&mut self, next: &Self) {
        self.bytes += next.bytes;
        self.count = self.count.filter(|_| self.is_zeros);
    }
}

/// Describes the problem in the first `length` bytes of `bytes`. Also returns the number of frames
/// in them, if known.
fn describe(bytes: &[u8], length: usize, deframer: &KindDeframer) -> (Option<u64>, String) {
    let is_one = deframer.frame_length(bytes) == FrameLength::Bytes(length);
    let count = is_one.then_some(1);
    match deframer.deframe(bytes) {
        // A frame is incomplete only at the end of the stream.
        Ok(DeframeStatus::Incomplete { needed }) if length == bytes.len() => {
            (Some(1), format!("the stream ends within a frame of {needed} bytes"))
        }
        Ok(DeframeStatus::Incomplete { needed }) => {
            (None, format!("a frame of {needed} bytes exceeds the end of the stream"))
        }
        // The start of `bytes` is in the middle of a damaged range.
        Ok(DeframeStatus::Frame(_)) => (count, "no intact frames".to_owned()),
        Err(error) if error.is_frame_too_large() => {
            (None, format!("{error}; the length is damaged, or --frame-max must be raised"))
        }
        Err(error) => (count, format!("a damaged frame: {error}")),
    }
}
