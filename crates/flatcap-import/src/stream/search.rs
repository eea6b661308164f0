//! Finds the next item in a stream. An item is a frame, a damaged range, or zeros.

use flatcap_stream::resync::ZEROS_MIN;
use flatcap_stream::{DeframeStatus, KindDeframer, RegionContent, SliceDeframer, salvage};

use crate::ImportError;
use crate::window::InputWindow;

/// The item at the start of a window, with its length in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StreamItem {
    /// A frame.
    Frame(usize),
    /// A frame whose checksum proves that only its length field was damaged.
    Repaired(usize),
    /// A range without an intact frame.
    Damage(usize),
    /// Space that was never written.
    Zeros(usize),
}

impl StreamItem {
    pub(super) fn length(self) -> usize {
        let (Self::Frame(length) | Self::Repaired(length) | Self::Damage(length) | Self::Zeros(length)) =
            self;
        length
    }
}

/// Returns the item at the start of a non-empty window.
pub(super) fn next_item(
    window: &mut InputWindow,
    deframer: &KindDeframer,
) -> Result<StreamItem, ImportError> {
    let needed = match deframer.deframe(window.unconsumed()) {
        Ok(DeframeStatus::Frame(frame)) => return intact_frame(window, deframer, frame.bytes().len()),
        Ok(DeframeStatus::Incomplete { needed }) => needed,
        Err(_) => return resync(window, deframer),
    };
    // `needed` may at first be the length of the header, because the length of the frame is not
    // known yet.
    if window.fill(needed)? { next_item(window, deframer) } else { resync(window, deframer) }
}

/// Returns an intact frame, unless it is one of many empty frames in a range of zeros.
fn intact_frame(
    window: &mut InputWindow,
    deframer: &KindDeframer,
    length: usize,
) -> Result<StreamItem, ImportError> {
    let is_empty = length == deframer.header_bytes();
    if is_empty
        && window.fill(ZEROS_MIN)?
        && window.unconsumed().iter().take(ZEROS_MIN).all(|byte| *byte == 0)
    {
        return resync(window, deframer);
    }
    Ok(StreamItem::Frame(length))
}

/// Searches for the next intact frame after damage, in a range that holds two frames of maximum
/// length.
#[cold]
fn resync(window: &mut InputWindow, deframer: &KindDeframer) -> Result<StreamItem, ImportError> {
    let longest_frame = deframer.header_bytes() + deframer.max_frame_len();
    let has_more = window.fill(longest_frame.saturating_mul(2))?;
    let rest = window.unconsumed();
    let Some(salvaged) = salvage(rest, *deframer).next() else { return Ok(StreamItem::Damage(rest.len())) };
    // A range without frames that reaches the end of the window may continue after the window, and
    // a frame may begin in the last part of the range.
    let reaches_end = salvaged.length == rest.len() && has_more;
    let header_bytes = deframer.header_bytes();
    Ok(match salvaged.content {
        RegionContent::Frame(payload) => StreamItem::Frame(header_bytes + payload.len()),
        RegionContent::Repaired(payload) => StreamItem::Repaired(header_bytes + payload.len()),
        RegionContent::Damaged if reaches_end => StreamItem::Damage(salvaged.length - longest_frame),
        RegionContent::Damaged => StreamItem::Damage(salvaged.length),
        RegionContent::Zeros if reaches_end => StreamItem::Zeros(salvaged.length - ZEROS_MIN),
        RegionContent::Zeros => StreamItem::Zeros(salvaged.length),
    })
}
