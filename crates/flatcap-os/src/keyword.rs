//! Settings with a few named values. Each value has one keyword, which is stated in one place.
//!
//! This module does not depend on any particular setting.

/// A setting whose values are keywords.
pub trait Keyword: Copy + PartialEq + 'static {
    /// Every value, in the order in which messages list them.
    const VALUES: &'static [Self];

    /// Returns the keyword of the value.
    fn keyword(self) -> &'static str;

    /// Returns the value of a keyword.
    fn find(word: &str) -> Option<Self> {
        Self::VALUES.iter().copied().find(|value| value.keyword() == word)
    }

    /// Returns all keywords.
    fn keywords() -> Vec<&'static str> {
        Self::VALUES.iter().map(|value| value.keyword()).collect()
    }
}

/// Defines an enum with one keyword per variant. The enum has `ALL` and `as_str` and implements
/// [`Keyword`].
// This is a macro because the enum, the list of values and the keywords would otherwise be three
// lists that must be kept equal.
#[macro_export]
macro_rules! keywords {
    (
        $(#[$about:meta])*
        $visibility:vis enum $name:ident { $($(#[$doc:meta])* $variant:ident = $word:literal,)+ }
    ) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        $visibility enum $name {
            $($(#[$doc])* $variant,)+
        }

        impl $name {
            /// Every value, in the order of the documentation.
            $visibility const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// Returns the keyword that files contain for this value.
            $visibility const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                }
            }
        }

        impl $crate::keyword::Keyword for $name {
            const VALUES: &'static [Self] = Self::ALL;

            fn keyword(self) -> &'static str {
                self.as_str()
            }
        }
    };
}
