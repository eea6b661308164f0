//! The state of a slab. A state consists of the number of the slab's use, the number of bytes of
//! complete frames, and a flag for whether more frames may follow. One word contains all three, so
//! that they are always consistent.

/// Number of bits for the number of committed bytes. These bits suffice for the length of the
/// largest slab.
const BYTES_BITS: u32 = 23;
const CLOSED: u64 = 1 << BYTES_BITS;
const USE_SHIFT: u32 = BYTES_BITS + 1;
const USE_BITS: u32 = u64::BITS - USE_SHIFT;
const USE_MASK: u64 = (1 << USE_BITS) - 1;
/// Maximum number of uses of a lane. No writer can reach this number of uses, and sums of such
/// numbers are far from an overflow.
pub(crate) const USES_MAX: u64 = 1 << 60;

/// The stored state of a slab.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SlabState(pub(crate) u64);

/// The relation of a slab's state to a use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SlabUse {
    /// The state belongs to this use.
    This,
    /// The state belongs to an earlier use, so this use has not begun.
    Earlier,
    /// The state belongs to a later use with this number, so this use was overwritten.
    Later(u64),
    /// The state belongs to a use that this slab cannot have.
    Impossible,
}

impl SlabState {
    /// Creates the state of a slab in this use. `bytes` is the number of bytes of whole frames, at
    /// most 2^23 - 1.
    #[inline]
    pub(crate) fn new(use_number: u64, bytes: usize, is_closed: bool) -> Self {
        let closed = if is_closed { CLOSED } else { 0 };
        Self(use_number << USE_SHIFT | closed | bytes as u64)
    }

    /// Returns the number of bytes of whole frames.
    #[inline]
    #[allow(clippy::cast_possible_truncation, reason = "23 bits")]
    pub(crate) fn bytes(self) -> usize {
        (self.0 & (CLOSED - 1)) as usize
    }

    /// Returns whether no frame will be added.
    pub(crate) fn is_closed(self) -> bool {
        self.0 & CLOSED != 0
    }

    /// Returns whether both states belong to the same use.
    pub(crate) fn is_same_use(self, other: Self) -> bool {
        self.0 >> USE_SHIFT == other.0 >> USE_SHIFT
    }

    /// Compares the state of slab `expected % slabs` with the use `expected`.
    pub(crate) fn compare(self, expected: u64, slabs: u64) -> SlabUse {
        let ahead = (self.0 >> USE_SHIFT).wrapping_sub(expected) & USE_MASK;
        match ahead {
            0 => SlabUse::This,
            // The slab has not been used yet.
            _ if self.0 == 0 && expected < slabs => SlabUse::Earlier,
            _ if ahead == slabs.wrapping_neg() & USE_MASK && expected >= slabs => SlabUse::Earlier,
            _ if ahead <= USE_MASK / 2 && ahead.is_multiple_of(slabs) => {
                let later = Some(expected + ahead).filter(|uses| *uses <= USES_MAX);
                later.map_or(SlabUse::Impossible, SlabUse::Later)
            }
            _ => SlabUse::Impossible,
        }
    }
}
