//! Which bytes of a template's payload stay the same, and whether another payload has them: in the form in which that takes
//! least time.

use std::ops::Range;

use super::copy::equal;

/// How many bytes of a payload a piece must stand for on average, so that a comparison each takes less time than going
/// through the whole payload with a mask.
const PIECE_BYTES_MIN: usize = 32;

/// Bytes that a mask is applied to at once.
const BLOCK_BYTES: usize = 32;

/// The bytes that stay the same. A mask is all ones where a byte does, zero where it changes.
#[derive(Debug, Clone)]
pub(super) enum Fixed {
    /// None but among the first 16 and the last 8: root, vtable and its offset of a table of little but a structure.
    Short(Ends<2>),
    /// None but among the first 48 and the last 8: those of a table of up to a dozen fields.
    Long(Ends<6>),
    /// Others too.
    Anywhere(Pieces),
}

/// Where bytes stay the same, if that is in more places than both ends.
#[derive(Debug, Clone)]
pub(super) enum Pieces {
    /// All but these.
    Around(Range<usize>),
    /// Few long ones.
    Few(Box<[Range<usize>]>),
    /// Those of a mask as long as the payload.
    Mask(Box<[u8]>),
}

impl Fixed {
    /// From a model and its mask.
    pub(super) fn of(model: &[u8], mask: Vec<u8>) -> Self {
        let short = || Ends::of(model, &mask).map(Self::Short);
        let long = || Ends::of(model, &mask).map(Self::Long);
        short().or_else(long).unwrap_or_else(|| Self::Anywhere(Pieces::of(mask)))
    }

    /// Whether a payload of the model's length has the model's bytes where they are fixed.
    #[inline]
    pub(super) fn are_in(&self, payload: &[u8], model: &[u8]) -> bool {
        match self {
            Self::Short(ends) => ends.are_in(payload),
            Self::Long(ends) => ends.are_in_apart(payload),
            Self::Anywhere(pieces) => pieces.are_in(payload, model),
        }
    }
}

impl Pieces {
    fn of(mask: Vec<u8>) -> Self {
        let mut pieces = Vec::new();
        let mut end = 0;
        for piece in mask.chunk_by(|one, next| one == next) {
            if piece.first() == Some(&0xFF) {
                pieces.push(end..end + piece.len());
            }
            end += piece.len();
        }
        match &pieces[..] {
            [front, behind] if front.start == 0 && behind.end == mask.len() => {
                Self::Around(front.end..behind.start)
            }
            [front] if front.start == 0 => Self::Around(front.end..mask.len()),
            _ if mask.len() < PIECE_BYTES_MIN * pieces.len() => Self::Mask(mask.into()),
            _ => Self::Few(pieces.into()),
        }
    }

    /// Apart, so that what is inlined into a reader's loop stays short.
    #[inline(never)]
    fn are_in(&self, payload: &[u8], model: &[u8]) -> bool {
        let same = |piece: Range<usize>| {
            equal(payload.get(piece.clone()).unwrap_or_default(), model.get(piece).unwrap_or_default())
        };
        match self {
            // The values that change mostly stand side by side: compared is what is in front of them and behind.
            Self::Around(Range { start, end }) => same(0..*start) && same(*end..model.len()),
            Self::Few(pieces) => pieces.iter().all(|piece| same(piece.clone())),
            Self::Mask(mask) => are_same_under(mask, payload, model),
        }
    }
}

/// Whether two payloads agree where a mask has ones. All three are of one length.
fn are_same_under(mask: &[u8], payload: &[u8], model: &[u8]) -> bool {
    let (theirs, their_rest) = payload.as_chunks::<BLOCK_BYTES>();
    let (ours, our_rest) = model.as_chunks::<BLOCK_BYTES>();
    let (masks, mask_rest) = mask.as_chunks::<BLOCK_BYTES>();
    let mut difference = 0;
    for ((their, our), mask) in theirs.iter().zip(ours).zip(masks) {
        difference |= difference_under(mask, their, our);
    }
    // What is no whole block at the end is in the last block that there is, most of which is looked at once more.
    if let (Some(mask), Some(their), Some(our)) =
        (mask.last_chunk(), payload.last_chunk(), model.last_chunk())
    {
        return difference | difference_under(mask, their, our) == 0;
    }
    let rest = their_rest.iter().zip(our_rest).zip(mask_rest);
    rest.fold(0, |sum, ((their, our), mask)| sum | (their ^ our) & mask) == 0
}

#[inline]
fn difference_under(mask: &[u8; BLOCK_BYTES], their: &[u8; BLOCK_BYTES], our: &[u8; BLOCK_BYTES]) -> u64 {
    let words = their.as_chunks().0.iter().zip(our.as_chunks().0).zip(mask.as_chunks().0);
    words.fold(0, |sum, ((their, our), mask)| sum | word_under(*mask, *their, *our))
}

/// Zero if two words agree where a mask has ones.
#[inline]
fn word_under(mask: [u8; 8], their: [u8; 8], our: [u8; 8]) -> u64 {
    (u64::from_le_bytes(their) ^ u64::from_le_bytes(our)) & u64::from_le_bytes(mask)
}

/// The first words of a model and its last, which have all that is fixed in it: the same few vector instructions for each such
/// model, whichever of their bytes those are.
#[derive(Debug, Clone)]
pub(super) struct Ends<const WORDS: usize> {
    front: [[u8; 8]; WORDS],
    front_mask: [[u8; 8]; WORDS],
    back: [u8; 8],
    back_mask: [u8; 8],
}

impl<const WORDS: usize> Ends<WORDS> {
    /// None if other bytes are fixed too, or if there are too few for a front.
    fn of(model: &[u8], mask: &[u8]) -> Option<Self> {
        let between = mask.get(8 * WORDS..mask.len().saturating_sub(8)).unwrap_or_default();
        if between.iter().any(|&byte| byte != 0) {
            return None;
        }
        let (front, front_mask) = (*words(model)?, *words(mask)?);
        Some(Self { front, front_mask, back: *model.last_chunk()?, back_mask: *mask.last_chunk()? })
    }

    /// As [`are_in`](Self::are_in), not inlined.
    #[inline(never)]
    fn are_in_apart(&self, payload: &[u8]) -> bool {
        self.are_in(payload)
    }

    #[inline]
    fn are_in(&self, payload: &[u8]) -> bool {
        let (Some(front), Some(back)) = (words::<WORDS>(payload), payload.last_chunk()) else { return false };
        let words = front.iter().zip(&self.front).zip(&self.front_mask);
        words.fold(0, |sum, ((their, our), mask)| sum | word_under(*mask, *their, *our)) == 0
            && word_under(self.back_mask, *back, self.back) == 0
    }
}

/// The first words of some bytes.
#[inline]
fn words<const WORDS: usize>(bytes: &[u8]) -> Option<&[[u8; 8]; WORDS]> {
    bytes.as_chunks().0.first_chunk()
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: what is fixed is compared, and nothing else, whatever form it has. Method: masks of every form and many lengths;
    // each byte of the model changed in turn; the forms that were met are counted.
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
                let fixed = Fixed::of(&model, mask.clone());
                forms[match fixed {
                    Fixed::Short(_) => 0,
                    Fixed::Long(_) => 1,
                    Fixed::Anywhere(Pieces::Around(_)) => 2,
                    Fixed::Anywhere(Pieces::Few(_)) => 3,
                    Fixed::Anywhere(Pieces::Mask(_)) => 4,
                }] += 1;
                assert!(fixed.are_in(&model, &model));
                for at in 0..length {
                    let mut payload = model.clone();
                    payload[at] ^= 0x40;
                    assert_eq!(
                        fixed.are_in(&payload, &model),
                        mask[at] == 0,
                        "{fixed:?}: {length} bytes, byte {at}"
                    );
                }
            }
        }
        assert!(forms.iter().all(|&met| met > 20), "{forms:?}");
    }
}
