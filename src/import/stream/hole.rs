//! A place of a stream without frames, and what is said of it.

use super::search::Found;
use super::window::Window;
use crate::stream::{Extent, KindDeframer, SliceDeframer, Step};

/// A place without whole frames.
#[derive(Debug)]
pub(super) struct Hole {
    pub(super) offset: u64,
    pub(super) bytes: u64,
    /// What is wrong where it begins.
    pub(super) why: String,
    /// How many frames it was, where its length tells.
    pub(super) count: Option<u64>,
    is_zeros: bool,
}

impl Hole {
    /// The hole at the front of a window, if that was found there.
    pub(super) fn of(found: &Found, window: &Window, deframer: &KindDeframer) -> Option<Self> {
        let (is_zeros, length) = match *found {
            Found::Hole(length) => (false, length),
            Found::Zeros(length) => (true, length),
            Found::Frame(_) | Found::Repaired(_) => return None,
        };
        let (count, why) = if is_zeros {
            (Some(0), "zeros, space that was never written".to_owned())
        } else {
            damage(window.rest(), length, deframer)
        };
        Some(Self { offset: window.offset(), bytes: length as u64, why, count, is_zeros })
    }

    /// Whether the next one is the same place, found in pieces.
    pub(super) fn is_of(&self, next: &Self) -> bool {
        self.is_zeros == next.is_zeros && self.offset + self.bytes == next.offset
    }

    /// Adds the next piece of the same place.
    pub(super) fn add(&mut self, next: &Self) {
        self.bytes += next.bytes;
        self.count = self.count.filter(|_| self.is_zeros);
    }
}

/// How many frames the hole of `length` bytes at the front of `bytes` was, and what is wrong there.
fn damage(bytes: &[u8], length: usize, deframer: &KindDeframer) -> (Option<u64>, String) {
    let is_one = deframer.measure(bytes) == Extent::Bytes(length);
    let count = is_one.then_some(1);
    match deframer.deframe(bytes) {
        // Only where the stream ends is a frame incomplete.
        Ok(Step::Incomplete { needed }) if length == bytes.len() => {
            (Some(1), format!("the stream ends within a frame of {needed} bytes"))
        }
        Ok(Step::Incomplete { needed }) => {
            (None, format!("a frame of {needed} bytes would go beyond the end of the stream"))
        }
        // Reading went on in the middle of a hole.
        Ok(Step::Frame(_)) => (count, "no frames".to_owned()),
        Err(error) if error.is_frame_too_large() => {
            (None, format!("{error}: damage, or a frame for which --frame-max must be raised"))
        }
        Err(error) => (count, format!("a damaged frame: {error}")),
    }
}
