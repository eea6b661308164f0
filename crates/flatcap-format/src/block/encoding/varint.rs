//! Varints, which store small integers in few bytes.

use super::bits::width_of;

/// Maps small numbers of either sign to small unsigned numbers.
#[inline]
pub(in crate::block) fn zigzag(number: u64) -> u64 {
    let signed = number.cast_signed();
    (signed << 1 ^ signed >> 63).cast_unsigned()
}

/// Returns the number that [`zigzag`] maps to `number`.
#[inline]
pub(in crate::block) fn unzigzag(number: u64) -> u64 {
    number >> 1 ^ (number & 1).wrapping_neg()
}

/// Returns the length of a number as a varint, in bytes.
#[inline]
pub(in crate::block) fn varint_bytes(number: u64) -> usize {
    // The number 0 also takes one byte.
    width_of(number | 1).div_ceil(7) as usize
}

/// Appends a LEB128 varint. Each byte has seven bits of the number, the lowest bits first. The
/// highest bit of a byte is set if more bytes follow.
#[inline]
pub(in crate::block) fn put_varint(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push((number & 0x7F) as u8 | 0x80);
        number >>= 7;
    }
    out.push((number & 0x7F) as u8);
}

/// Decodes and removes the varint at the start of `bytes`, and returns its value. Returns `None` if
/// the varint does not end within ten bytes or within the input.
#[inline]
pub(in crate::block) fn take_varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0_u64;
    // A varint has at most ten bytes. Bits of the tenth byte beyond bit 63 are dropped.
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(byte & 0x7F) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}
