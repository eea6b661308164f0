//! The reasons why values of a sample are absent. The frame's flags contain these reasons
//! (docs/FORMAT.md, "Telemetry frame").

use std::fmt;
use std::ops::{BitOr, BitOrAssign};

/// The reasons why a sample is incomplete. Most samples are complete and have no reason. The
/// payload omits values that could not be read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Incomplete(u16);

impl Incomplete {
    /// The sample is complete.
    pub const NONE: Self = Self(0);
    /// A file ended in the middle of a line, or had too few lines or fields.
    pub const CUT: Self = Self(1 << 1);
    /// A value is not a number, or the value is too large for its field.
    pub const UNREADABLE: Self = Self(1 << 2);
    /// A file or a line that existed at an earlier sample no longer exists.
    pub const MISSING: Self = Self(1 << 3);
    /// The number of items exceeds the limit of the source. Items beyond the limit are skipped.
    pub const TOO_MANY: Self = Self(1 << 4);
    /// The kernel denied access to a part of the data.
    pub const DENIED: Self = Self(1 << 5);

    /// Bit 0 of a frame's flags. This bit means that the sample is incomplete. Each higher bit
    /// stands for one reason.
    const INCOMPLETE: u16 = 1;

    const REASONS: [(Self, &'static str); 5] = [
        (Self::CUT, "cut"),
        (Self::UNREADABLE, "unreadable"),
        (Self::MISSING, "missing"),
        (Self::TOO_MANY, "too-many"),
        (Self::DENIED, "denied"),
    ];

    /// Returns these reasons, or [`NONE`](Self::NONE) if `is_whole` is set.
    #[inline]
    #[must_use]
    pub fn unless(self, is_whole: bool) -> Self {
        if is_whole { Self::NONE } else { self }
    }

    /// Returns whether the sample is complete.
    #[inline]
    pub fn is_none(self) -> bool {
        self.0 == 0
    }

    /// Returns the frame flags.
    #[inline]
    pub fn flags(self) -> u16 {
        if self.is_none() { 0 } else { self.0 | Self::INCOMPLETE }
    }

    /// Reads frame flags. Ignores bits that this build does not know.
    pub fn of_flags(flags: u16) -> Self {
        Self::REASONS
            .iter()
            .filter(|(one, _)| flags & one.0 != 0)
            .fold(Self::NONE, |all, (one, _)| all | *one)
    }

    /// Returns the reasons in words.
    pub fn explanation(self) -> String {
        let words = |one: Self| match one {
            Self::CUT => "a file or a line ended before all its values",
            Self::UNREADABLE => "a value could not be read, or was no number",
            Self::MISSING => "a file, a line or an element could not be seen",
            Self::TOO_MANY => "there were more elements than the source records",
            _ => "the kernel refused access",
        };
        let reasons = Self::REASONS.iter().filter(|(one, _)| self.0 & one.0 != 0);
        reasons.map(|(one, _)| words(*one)).collect::<Vec<_>>().join("; ")
    }

    /// Returns the name of each reason.
    pub(crate) fn reasons(self) -> impl Iterator<Item = &'static str> {
        Self::REASONS.iter().filter(move |(one, _)| self.0 & one.0 != 0).map(|(_, word)| *word)
    }
}

impl BitOr for Incomplete {
    type Output = Self;

    #[inline]
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOrAssign for Incomplete {
    #[inline]
    fn bitor_assign(&mut self, other: Self) {
        *self = *self | other;
    }
}

impl fmt::Display for Incomplete {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, word) in self.reasons().enumerate() {
            write!(f, "{}{word}", if at > 0 { ", " } else { "" })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that all combinations of reasons survive the frame flags, and that unknown bits are
    // ignored.
    #[test]
    fn reasons_survive_the_flags() {
        assert_eq!(Incomplete::NONE.flags(), 0);
        for bits in (0..64_u16).map(|bits| bits & !1) {
            let incomplete = Incomplete::of_flags(bits);
            assert_eq!(Incomplete::of_flags(incomplete.flags() | 0xFF00), incomplete);
            assert_eq!(incomplete.flags() & 1 == 1, bits != 0);
        }
        assert_eq!((Incomplete::CUT | Incomplete::DENIED).to_string(), "cut, denied");
        assert_eq!(Incomplete::CUT.unless(true), Incomplete::NONE);
    }

    // Proves that each reason has a different description.
    #[test]
    fn reasons_have_words() {
        let words: Vec<String> = Incomplete::REASONS.iter().map(|(one, _)| one.explanation()).collect();
        let distinct: std::collections::BTreeSet<&String> = words.iter().collect();
        assert_eq!(distinct.len(), Incomplete::REASONS.len());
        let both = (Incomplete::CUT | Incomplete::DENIED).explanation();
        assert_eq!(both, format!("{}; {}", words[0], words[4]));
        assert_eq!(Incomplete::NONE.explanation(), "");
    }
}
