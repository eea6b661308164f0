//! Reads the offsets, lengths and vtables of a payload with bounds checks.

use std::fmt;

use super::error::{DecodeError, DecodeFault};

/// Length in bytes of an offset, which is also the length of a list's length field.
// Offsets of 64 bits do not occur, because `compile` rejects schemas that have such offsets.
pub(super) const UOFFSET_BYTES: usize = 4;

/// Returns the N bytes at `at`, or `None` if they are out of bounds. No value of `at` causes an
/// overflow or a panic.
#[inline]
pub(super) fn bytes_at<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

/// Follows the offset at `at`. The result may be out of bounds. The next read at the resulting
/// offset checks the bounds.
#[inline]
pub(super) fn follow(payload: &[u8], at: usize) -> Result<usize, BoxedDecodeError> {
    let offset = read_length(payload, at)?;
    // Offsets are unsigned and lead only forward, so a chain of tables cannot contain a cycle.
    at.checked_add(offset).ok_or_else(|| out_of_bounds(at))
}

/// Returns the length or offset stored at `at`.
#[inline]
pub(super) fn read_length(payload: &[u8], at: usize) -> Result<usize, BoxedDecodeError> {
    let word = bytes_at(payload, at).map(u32::from_le_bytes);
    // `try_from` cannot fail on 64-bit targets. On narrower targets, a cast would truncate
    // silently.
    word.and_then(|word| usize::try_from(word).ok()).ok_or_else(|| out_of_bounds(at))
}

/// Returns the vtable of the table at `at`. The result includes the two length fields at the start
/// of the vtable.
#[inline]
pub(super) fn vtable(payload: &[u8], at: usize) -> Result<&[u8], BoxedDecodeError> {
    let back = bytes_at(payload, at).map(i32::from_le_bytes).ok_or_else(|| out_of_bounds(at))?;
    // The offset to a vtable is signed and is subtracted, because a shared vtable may be before or
    // after a table. `unsigned_abs` does not overflow for `i32::MIN`.
    let distance = usize::try_from(back.unsigned_abs()).unwrap_or(usize::MAX);
    let start = if back < 0 { at.checked_add(distance) } else { at.checked_sub(distance) };
    let found = start.and_then(|start| {
        let length = usize::from(bytes_at(payload, start).map(u16::from_le_bytes)?);
        let vtable = payload.get(start..)?.get(..length)?;
        // Entries have two bytes. The length of the table, which is the second field, is not used,
        // because each read of a value is checked against the payload.
        (length >= UOFFSET_BYTES && length.is_multiple_of(2)).then_some(vtable)
    });
    found.ok_or_else(|| decode_error(at, DecodeFault::Vtable))
}

/// Returns the offset of a field in its table. `at` is the offset of the field's slot in the
/// vtable. The offset is 0 if the field is absent. A vtable ends after the last field that is
/// present, so it may have no slot for later fields.
#[inline]
pub(super) fn field_offset(vtable: &[u8], at: u16) -> usize {
    // If a slot is after the end of the vtable, the field is omitted. This is not damage, because
    // writers trim the vtable.
    bytes_at(vtable, at.into()).map_or(0, u16::from_le_bytes).into()
}

/// A boxed decode error. The box takes only one machine word, so that the check for success is one
/// comparison.
#[derive(Debug)]
pub(super) struct BoxedDecodeError(pub(super) Box<DecodeError>);

impl BoxedDecodeError {
    /// Prepends a segment to the path.
    #[cold]
    pub(super) fn prefix_path(mut self, segment: &dyn fmt::Display) -> Self {
        self.0.path = match self.0.path.as_str() {
            "" => segment.to_string(),
            path => format!("{segment}.{path}"),
        };
        self
    }
}

#[cold]
pub(super) fn decode_error(offset: usize, fault: DecodeFault) -> BoxedDecodeError {
    BoxedDecodeError(Box::new(DecodeError { path: String::new(), offset, fault }))
}

#[cold]
pub(super) fn out_of_bounds(offset: usize) -> BoxedDecodeError {
    decode_error(offset, DecodeFault::OutOfBounds)
}
