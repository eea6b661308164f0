//! What a sample lacks of what its source promises, as the frame's flags say it (docs/FORMAT.md, "Telemetry frame").

use std::fmt;
use std::ops::{BitOr, BitOrAssign};

/// Reasons why a sample is not whole; nothing for most. What could not be read is marked absent in the payload.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Shortfall(u16);

impl Shortfall {
    /// Everything was read.
    pub const NONE: Self = Self(0);
    /// A file ended in the middle of a line, or had fewer lines or fields than it must have.
    pub const CUT: Self = Self(1 << 1);
    /// A value is no number, or too large for its field.
    pub const UNREADABLE: Self = Self(1 << 2);
    /// A file or a line that was there at an earlier sample is gone.
    pub const MISSING: Self = Self(1 << 3);
    /// More things than the source's limit; those beyond are left out.
    pub const TOO_MANY: Self = Self(1 << 4);
    /// The kernel refused a part for want of a privilege.
    pub const DENIED: Self = Self(1 << 5);

    /// Bit 0 of a frame's flags: there is a shortfall. The bits above say which.
    const PARTIAL: u16 = 1;

    const WORDS: [(Self, &'static str); 5] = [
        (Self::CUT, "cut"),
        (Self::UNREADABLE, "unreadable"),
        (Self::MISSING, "missing"),
        (Self::TOO_MANY, "too-many"),
        (Self::DENIED, "denied"),
    ];

    /// This one unless `is_whole`.
    #[inline]
    #[must_use]
    pub fn unless(self, is_whole: bool) -> Self {
        if is_whole { Self::NONE } else { self }
    }

    /// Whether everything was read.
    #[inline]
    pub fn is_none(self) -> bool {
        self.0 == 0
    }

    /// The flags of the frame.
    #[inline]
    pub fn flags(self) -> u16 {
        if self.is_none() { 0 } else { self.0 | Self::PARTIAL }
    }

    /// From the flags of a frame; bits that this build does not know are left out.
    pub fn of_flags(flags: u16) -> Self {
        Self::WORDS.iter().filter(|(one, _)| flags & one.0 != 0).fold(Self::NONE, |all, (one, _)| all | *one)
    }

    /// One word a reason.
    pub fn words(self) -> impl Iterator<Item = &'static str> {
        Self::WORDS.iter().filter(move |(one, _)| self.0 & one.0 != 0).map(|(_, word)| *word)
    }
}

impl BitOr for Shortfall {
    type Output = Self;

    #[inline]
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOrAssign for Shortfall {
    #[inline]
    fn bitor_assign(&mut self, other: Self) {
        *self = *self | other;
    }
}

impl fmt::Display for Shortfall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, word) in self.words().enumerate() {
            write!(f, "{}{word}", if at > 0 { ", " } else { "" })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: reasons survive the way through a frame's flags, and none of them is the whole. Method: all combinations,
    // with bits of later versions beside.
    #[test]
    fn reasons_survive_the_flags() {
        assert_eq!(Shortfall::NONE.flags(), 0);
        for bits in (0..64_u16).map(|bits| bits & !1) {
            let shortfall = Shortfall::of_flags(bits);
            assert_eq!(Shortfall::of_flags(shortfall.flags() | 0xFF00), shortfall);
            assert_eq!(shortfall.flags() & 1 == 1, bits != 0);
        }
        assert_eq!((Shortfall::CUT | Shortfall::DENIED).to_string(), "cut, denied");
        assert_eq!(Shortfall::CUT.unless(true), Shortfall::NONE);
    }
}
