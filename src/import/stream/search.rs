//! What comes next in a stream, whole or not.

use super::window::Window;
use crate::import::ImportError;
use crate::stream::{Content, KindDeframer, SliceDeframer, Step, salvage};

/// From so many zeros on, a place where a frame should begin is space that was never written (docs/ARCHITECTURE.md, "Salvage").
const ZEROS_MIN: usize = 64;

/// What stands at the front of a window, and how long it is in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    /// A frame.
    Frame(usize),
    /// A frame whose length was damaged, as its checksum proves.
    Repaired(usize),
    /// No whole frame.
    Hole(usize),
    /// Space that was never written.
    Zeros(usize),
}

impl Found {
    pub(super) fn length(self) -> usize {
        let (Self::Frame(length) | Self::Repaired(length) | Self::Hole(length) | Self::Zeros(length)) = self;
        length
    }
}

/// Looks at what stands at the front of a window, which is not at its end.
pub(super) fn next(window: &mut Window, deframer: &KindDeframer) -> Result<Found, ImportError> {
    let needed = match deframer.deframe(window.rest()) {
        Ok(Step::Frame(frame)) => return whole(window, deframer, frame.bytes().len()),
        Ok(Step::Incomplete { needed }) => needed,
        Err(_) => return search(window, deframer),
    };
    // The header may come before the length is known.
    if window.fill(needed)? { next(window, deframer) } else { search(window, deframer) }
}

/// An intact frame, unless it is one of many that are nothing but zeros.
fn whole(window: &mut Window, deframer: &KindDeframer, length: usize) -> Result<Found, ImportError> {
    let is_empty = length == deframer.header_bytes();
    if is_empty && window.fill(ZEROS_MIN)? && window.rest().iter().take(ZEROS_MIN).all(|byte| *byte == 0) {
        return search(window, deframer);
    }
    Ok(Found::Frame(length))
}

/// Searches what can be read behind damage, in a stretch that holds two of the longest frames.
#[cold]
fn search(window: &mut Window, deframer: &KindDeframer) -> Result<Found, ImportError> {
    let longest = deframer.header_bytes() + deframer.max_frame_len();
    let goes_on = window.fill(longest.saturating_mul(2))?;
    let rest = window.rest();
    let Some(piece) = salvage(rest, *deframer).next() else { return Ok(Found::Hole(rest.len())) };
    // What reaches the end of the stretch may end behind it: a frame may begin in its last part.
    let reaches_end = piece.length == rest.len() && goes_on;
    let header_bytes = deframer.header_bytes();
    Ok(match piece.content {
        Content::Frame(payload) => Found::Frame(header_bytes + payload.len()),
        Content::Repaired(payload) => Found::Repaired(header_bytes + payload.len()),
        Content::Hole if reaches_end => Found::Hole(piece.length - longest),
        Content::Hole => Found::Hole(piece.length),
        Content::Zeros if reaches_end => Found::Zeros(piece.length - ZEROS_MIN),
        Content::Zeros => Found::Zeros(piece.length),
    })
}
