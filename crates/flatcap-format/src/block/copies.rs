//! Byte ranges of payloads that are copies of ranges in the first block of the same segment.
//! Schemas are an example, because a footer contains a copy of the header. The segment stores these
//! bytes only once.

use std::collections::HashMap;

use flatcap_stream::ChecksumKind;

use super::encoding::varint::{put_varint, take_varint};
use super::error::BlockError;

/// Minimum length of a copied range. Because of this minimum, the decoder can refuse a list that
/// has more ranges than the copied bytes can contain.
const COPY_BYTES_MIN: usize = 64;
/// `FlatBuffers` aligns long values to four bytes or more, so copied ranges begin at multiples of
/// four bytes.
const STEP_BYTES: usize = 4;

/// A range of bytes that the first block also contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CopiedRange {
    /// Offset in the payload bytes.
    at: usize,
    /// Offset in the first block.
    from: usize,
    bytes: usize,
}

/// Finds long ranges of `bytes` that the first block also contains. The frame in the first block
/// has a header of `header_bytes` bytes.
pub(super) fn find_copies(bytes: &[u8], first_block: &[u8], header_bytes: usize) -> Vec<CopiedRange> {
    let hash = |window: &[u8]| ChecksumKind::Xxh3.calculate(window);
    let windows = first_block.get(header_bytes..).unwrap_or_default().chunks_exact(COPY_BYTES_MIN);
    // If several windows are equal, the first one is used.
    let mut known: HashMap<u64, usize> = HashMap::new();
    for (number, window) in windows.enumerate() {
        known.entry(hash(window)).or_insert(header_bytes + number * COPY_BYTES_MIN);
    }
    let mut copies = Vec::new();
    let (mut at, mut end) = (0, 0);
    while let Some(window) = bytes.get(at..at + COPY_BYTES_MIN) {
        let from = known.get(&hash(window)).copied();
        let Some(from) =
            from.filter(|from| first_block.get(*from..).is_some_and(|rest| rest.starts_with(window)))
        else {
            at += STEP_BYTES;
            continue;
        };
        let equal = |(one, other): &(&u8, &u8)| one == other;
        let (before, after) = (bytes.get(end..at), bytes.get(at..));
        let (from_before, from_after) = first_block.split_at(from);
        let backwards =
            before.unwrap_or_default().iter().rev().zip(from_before.iter().rev()).take_while(equal).count();
        let forwards = after.unwrap_or_default().iter().zip(from_after).take_while(equal).count();
        copies.push(CopiedRange { at: at - backwards, from: from - backwards, bytes: backwards + forwards });
        end = at + forwards;
        at = end.next_multiple_of(STEP_BYTES);
    }
    copies
}

/// Splits bytes into the list of their copies and the remaining bytes.
pub(super) fn encode_copies(bytes: &[u8], copies: &[CopiedRange]) -> (Vec<u8>, Vec<u8>) {
    let (mut list, mut rest, mut end) = (Vec::new(), Vec::new(), 0);
    for copy in copies {
        for number in [copy.at - end, copy.from, copy.bytes] {
            put_varint(number as u64, &mut list);
        }
        rest.extend_from_slice(bytes.get(end..copy.at).unwrap_or_default());
        end = copy.at + copy.bytes;
    }
    rest.extend_from_slice(bytes.get(end..).unwrap_or_default());
    (list, rest)
}

/// Restores and appends the bytes that [`encode_copies`] split into a list and the remaining bytes.
/// `bytes` is the number of restored bytes. The caller must have checked `bytes` against a limit.
pub(super) fn decode_copies(
    mut list: &[u8],
    mut rest: &[u8],
    first_block: &[u8],
    bytes: usize,
    out: &mut Vec<u8>,
) -> Result<(), BlockError> {
    const LENGTH: BlockError = BlockError::Group("does not have the length that its frames need");
    let end = out.len() + bytes;
    out.reserve_exact(bytes);
    while !list.is_empty() {
        let mut number = || {
            let number = take_varint(&mut list).and_then(|number| usize::try_from(number).ok());
            number.ok_or(BlockError::Group("has a list of copies that ends too early"))
        };
        let (own_bytes, from, copied_bytes) = (number()?, number()?, number()?);
        let (own, after) = rest.split_at_checked(own_bytes).ok_or(LENGTH)?;
        let copied = first_block.get(from..).and_then(|rest| rest.get(..copied_bytes));
        let copied = copied.ok_or(BlockError::Group("copies bytes that the first block does not have"))?;
        if copied_bytes < COPY_BYTES_MIN || out.len() + own_bytes + copied_bytes > end {
            return Err(LENGTH);
        }
        out.extend_from_slice(own);
        out.extend_from_slice(copied);
        rest = after;
    }
    if out.len() + rest.len() != end {
        return Err(LENGTH);
    }
    out.extend_from_slice(rest);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[allow(clippy::cast_possible_truncation, reason = "the highest byte")]
    #[test]
    fn copied_ranges_come_back() {
        // Proves that ranges of the first block are found at any offset, are stored in a few bytes,
        // and are restored. Also proves that decoding with a wrong list or with another first block
        // returns an error or other bytes, and never panics.
        let noise = |seed: u64| {
            let mut state = seed;
            std::iter::repeat_with(move || {
                state = state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(1);
                (state >> 56) as u8
            })
        };
        let first: Vec<u8> = noise(1).take(3000).collect();
        let own: Vec<u8> = noise(2).take(500).collect();
        for at in [0, 4, 12, 400] {
            let bytes = [&own[..at], &first[112..2012], &own[at..], &first[2500..2800]].concat();
            let copies = find_copies(&bytes, &first, 12);
            let (list, rest) = encode_copies(&bytes, &copies);
            assert!(rest.len() <= own.len() && list.len() < 16, "{at}: {copies:?}");
            let decoded = |list: &[u8], first: &[u8], length| {
                let mut out = vec![7];
                decode_copies(list, &rest, first, length, &mut out).map(|()| out.split_off(1))
            };
            assert_eq!(decoded(&list, &first, bytes.len()).as_deref(), Ok(&bytes[..]));
            assert!(decoded(&list, &first[..2700], bytes.len()).is_err());
            for length in [0, bytes.len() - 1, bytes.len() + 1] {
                assert!(decoded(&list, &first, length).is_err());
            }
            for cut in 0..list.len() {
                assert!(decoded(&list[..cut], &first, bytes.len()).is_err(), "{cut}");
            }
        }
        assert!(find_copies(&own, &first, 12).is_empty() && find_copies(&own, &[], 12).is_empty());
    }
}
