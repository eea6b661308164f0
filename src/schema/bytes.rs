//! Where does an offset of a payload lead? Nowhere outside it.

use std::fmt;

use super::error::{DecodeError, Fault};

/// Bytes of an offset, and of the length in front of a list.
pub(super) const WORD: usize = 4;

/// A fixed number of bytes at an offset; no offset overflows or panics.
#[inline]
pub(super) fn take<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

/// Where the offset at `at` leads; whatever is read there is checked again.
#[inline]
pub(super) fn follow(payload: &[u8], at: usize) -> Result<usize, Failure> {
    let offset = length(payload, at)?;
    at.checked_add(offset).ok_or_else(|| out_of_bounds(at))
}

/// The length or offset that stands at `at`.
#[inline]
pub(super) fn length(payload: &[u8], at: usize) -> Result<usize, Failure> {
    let word = take(payload, at).map(u32::from_le_bytes);
    word.and_then(|word| usize::try_from(word).ok()).ok_or_else(|| out_of_bounds(at))
}

/// The slots of the table at `at`, their own two length words in front.
#[inline]
pub(super) fn vtable(payload: &[u8], at: usize) -> Result<&[u8], Failure> {
    let back = take(payload, at).map(i32::from_le_bytes).ok_or_else(|| out_of_bounds(at))?;
    let distance = usize::try_from(back.unsigned_abs()).unwrap_or(usize::MAX);
    let start = if back < 0 { at.checked_add(distance) } else { at.checked_sub(distance) };
    let found = start.and_then(|start| {
        let length = usize::from(take(payload, start).map(u16::from_le_bytes)?);
        let vtable = payload.get(start..)?.get(..length)?;
        (length >= WORD && length.is_multiple_of(2)).then_some(vtable)
    });
    found.ok_or_else(|| fail(at, Fault::Vtable))
}

/// Where in its table a field lies, by its slot; 0 stands for a field that is not there. A vtable ends behind the
/// last field that is.
#[inline]
pub(super) fn slot(vtable: &[u8], at: u16) -> usize {
    take(vtable, at.into()).map_or(0, u16::from_le_bytes).into()
}

/// A decode error on its way out. One word, so that success costs one compare.
#[derive(Debug)]
pub(super) struct Failure(pub(super) Box<DecodeError>);

impl Failure {
    /// The same, one step further out.
    #[cold]
    pub(super) fn within(mut self, segment: &dyn fmt::Display) -> Self {
        self.0.path = match self.0.path.as_str() {
            "" => segment.to_string(),
            path => format!("{segment}.{path}"),
        };
        self
    }

    /// The same with its path, unless it has one already.
    #[cold]
    pub(super) fn at_path(mut self, path: &str) -> Self {
        if self.0.path.is_empty() {
            path.clone_into(&mut self.0.path);
        }
        self
    }
}

#[cold]
pub(super) fn fail(offset: usize, fault: Fault) -> Failure {
    Failure(Box::new(DecodeError { path: String::new(), offset, fault }))
}

#[cold]
pub(super) fn out_of_bounds(offset: usize) -> Failure {
    fail(offset, Fault::OutOfBounds)
}
