//! Compares the bytes that are the same in all payloads of a template. They are stored in the form
//! that is fastest to compare with another payload.

use std::ops::Range;

use flatcap_stream::short_bytes::equal;

/// Minimum average length of the fixed ranges, in bytes, at which they are compared range by range.
/// If the ranges are shorter, one pass over the whole payload with a mask is faster.
const RANGE_BYTES_MIN: usize = 32;

/// Number of bytes that are compared under the mask at once.
const BLOCK_BYTES: usize = 32;

/// The bytes that are the same in all payloads of a template. A mask has 0xFF for each fixed byte
/// and 0 for each byte that changes.
#[derive(Debug, Clone)]
pub(super) enum FixedBytes {
    /// All fixed bytes are among the first 16 bytes and the last 8 bytes. Such a payload is a table
    /// that contains little more than one struct. Its fixed bytes are the root offset, the vtable
    /// and the vtable offset.
    Short(FixedEnds<2>),
    /// All fixed bytes are among the first 48 bytes and the last 8 bytes, as in a table with up to
    /// a dozen fields.
    Long(FixedEnds<6>),
    /// Any other case.
    Anywhere(FixedRanges),
}

/// Fixed bytes that are not all at the two ends of the payload.
#[derive(Debug, Clone)]
pub(super) enum FixedRanges {
    /// All bytes except the bytes in this range.
    Around(Range<usize>),
    /// A few long ranges.
    Few(Box<[Range<usize>]>),
    /// The bytes for which a mask has ones. The mask is as long as the payload.
    Mask(Box<[u8]>),
}

impl FixedBytes {
    /// Chooses the form for a template's payload and its mask.
    pub(super) fn of(model: &[u8], mask: Vec<u8>) -> Self {
        let short = || FixedEnds::of(model, &mask).map(Self::Short);
        let long = || FixedEnds::of(model, &mask).map(Self::Long);
        short().or_else(long).unwrap_or_else(|| Self::Anywhere(FixedRanges::of(mask)))
    }

    /// Returns whether a payload equals the model in all fixed bytes. The payload must have the
    /// model's length.
    #[inline]
    pub(super) fn matches(&self, payload: &[u8], model: &[u8]) -> bool {
        match self {
            Self::Short(ends) => ends.matches(payload),
            Self::Long(ends) => ends.matches_outlined(payload),
            Self::Anywhere(pieces) => pieces.matches(payload, model),
        }
    }
}

impl FixedRanges {
    fn of(mask: Vec<u8>) -> Self {
        let mut ranges = Vec::new();
        let mut end = 0;
        for piece in mask.chunk_by(|one, next| one == next) {
            if piece.first() == Some(&0xFF) {
                ranges.push(end..end + piece.len());
            }
            end += piece.len();
        }
        match &ranges[..] {
            [front, back] if front.start == 0 && back.end == mask.len() => {
                Self::Around(front.end..back.start)
            }
            [front] if front.start == 0 => Self::Around(front.end..mask.len()),
            _ if mask.len() < RANGE_BYTES_MIN * ranges.len() => Self::Mask(mask.into()),
            _ => Self::Few(ranges.into()),
        }
    }

    /// Compares like `FixedBytes::matches`. The function is not inlined, because its caller is
    /// inlined into the loop of a reader, which must stay short.
    #[inline(never)]
    fn matches(&self, payload: &[u8], model: &[u8]) -> bool {
        let same = |piece: Range<usize>| {
            equal(payload.get(piece.clone()).unwrap_or_default(), model.get(piece).unwrap_or_default())
        };
        match self {
            // The values that change are mostly adjacent, so only the bytes before and after these
            // values are compared.
            Self::Around(Range { start, end }) => same(0..*start) && same(*end..model.len()),
            Self::Few(pieces) => pieces.iter().all(|piece| same(piece.clone())),
            Self::Mask(mask) => equal_under_mask(mask, payload, model),
        }
    }
}

/// Returns whether two payloads are equal in all bits that a mask selects. The payloads and the
/// mask must have the same length.
fn equal_under_mask(mask: &[u8], payload: &[u8], model: &[u8]) -> bool {
    let (theirs, their_rest) = payload.as_chunks::<BLOCK_BYTES>();
    let (ours, our_rest) = model.as_chunks::<BLOCK_BYTES>();
    let (masks, mask_rest) = mask.as_chunks::<BLOCK_BYTES>();
    let mut difference = 0;
    for ((their, our), mask) in theirs.iter().zip(ours).zip(masks) {
        difference |= masked_difference(mask, their, our);
    }
    // The bytes after the last whole block are among the last 32 bytes. So the last 32 bytes are
    // compared, although most of them were already compared before.
    if let (Some(mask), Some(their), Some(our)) =
        (mask.last_chunk(), payload.last_chunk(), model.last_chunk())
    {
        return difference | masked_difference(mask, their, our) == 0;
    }
    let rest = their_rest.iter().zip(our_rest).zip(mask_rest);
    rest.fold(0, |sum, ((their, our), mask)| sum | (their ^ our) & mask) == 0
}

#[inline]
fn masked_difference(mask: &[u8; BLOCK_BYTES], their: &[u8; BLOCK_BYTES], our: &[u8; BLOCK_BYTES]) -> u64 {
    let words = their.as_chunks().0.iter().zip(our.as_chunks().0).zip(mask.as_chunks().0);
    words.fold(0, |sum, ((their, our), mask)| sum | masked_word_difference(*mask, *their, *our))
}

/// Returns zero if two words are equal in all bits that a mask selects.
#[inline]
fn masked_word_difference(mask: [u8; 8], their: [u8; 8], our: [u8; 8]) -> u64 {
    (u64::from_le_bytes(their) ^ u64::from_le_bytes(our)) & u64::from_le_bytes(mask)
}

/// The first words and the last word of a model. They contain all fixed bytes of the model. For
/// every such model, the comparison takes the same few vector instructions.
#[derive(Debug, Clone)]
pub(super) struct FixedEnds<const WORDS: usize> {
    front: [[u8; 8]; WORDS],
    front_mask: [[u8; 8]; WORDS],
    back: [u8; 8],
    back_mask: [u8; 8],
}

impl<const WORDS: usize> FixedEnds<WORDS> {
    /// Returns `None` if the bytes between the first words and the last word contain fixed bytes,
    /// or if the model is too short.
    fn of(model: &[u8], mask: &[u8]) -> Option<Self> {
        let between = mask.get(8 * WORDS..mask.len().saturating_sub(8)).unwrap_or_default();
        if between.iter().any(|&byte| byte != 0) {
            return None;
        }
        let (front, front_mask) = (*words(model)?, *words(mask)?);
        Some(Self { front, front_mask, back: *model.last_chunk()?, back_mask: *mask.last_chunk()? })
    }

    /// Does the same as [`matches`](Self::matches), but is not inlined.
    #[inline(never)]
    fn matches_outlined(&self, payload: &[u8]) -> bool {
        self.matches(payload)
    }

    #[inline]
    fn matches(&self, payload: &[u8]) -> bool {
        let (Some(front), Some(back)) = (words::<WORDS>(payload), payload.last_chunk()) else { return false };
        let words = front.iter().zip(&self.front).zip(&self.front_mask);
        words.fold(0, |sum, ((their, our), mask)| sum | masked_word_difference(*mask, *their, *our)) == 0
            && masked_word_difference(self.back_mask, *back, self.back) == 0
    }
}

/// Returns the first words of some bytes.
#[inline]
fn words<const WORDS: usize>(bytes: &[u8]) -> Option<&[[u8; 8]; WORDS]> {
    bytes.as_chunks().0.first_chunk()
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that all fixed bytes and no other bytes are compared, in every form and for many
    // lengths.
    #[test]
    fn every_fixed_byte_counts_and_no_other() {
        let mut forms = [0; 5];
        for length in 0..140_usize {
            let model: Vec<u8> = (1..=200).take(length).collect();
            let all = |is_fixed: &dyn Fn(usize) -> bool| -> Vec<u8> {
                (0..length).map(|at| if is_fixed(at) { 0xFF } else { 0 }).collect()
            };
            let masks = [
                all(&|at| at < 16),
                all(&|at| at < 13 || at + 3 >= length),
                all(&|at| at < 32 && at % 3 > 0 || at + 1 == length),
                all(&|at| at < 60 || at + 9 >= length),
                all(&|at| at / 20 % 2 == 1),
                all(&|at| at / 50 % 2 == 1),
                all(&|at| at % 2 == 0),
                all(&|_| true),
                all(&|_| false),
            ];
            for mask in masks {
                let fixed = FixedBytes::of(&model, mask.clone());
                forms[match fixed {
                    FixedBytes::Short(_) => 0,
                    FixedBytes::Long(_) => 1,
                    FixedBytes::Anywhere(FixedRanges::Around(_)) => 2,
                    FixedBytes::Anywhere(FixedRanges::Few(_)) => 3,
                    FixedBytes::Anywhere(FixedRanges::Mask(_)) => 4,
                }] += 1;
                assert!(fixed.matches(&model, &model));
                for at in 0..length {
                    let mut payload = model.clone();
                    payload[at] ^= 0x40;
                    assert_eq!(
                        fixed.matches(&payload, &model),
                        mask[at] == 0,
                        "{fixed:?}: {length} bytes, byte {at}"
                    );
                }
            }
        }
        assert!(forms.iter().all(|&met| met > 20), "{forms:?}");
    }
}
