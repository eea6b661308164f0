//! How does a setting with a few named values read and print? Each value has one word, stated once.

/// A setting that is one of a few words.
pub(super) trait Word: Copy + 'static {
    /// Every value, in the order in which messages list them.
    const WORDS: &'static [Self];

    /// The value's word.
    fn word(self) -> &'static str;

    /// The value of a word.
    fn find(word: &str) -> Option<Self> {
        Self::WORDS.iter().copied().find(|value| value.word() == word)
    }

    /// Every word.
    fn words() -> Vec<&'static str> {
        Self::WORDS.iter().map(|value| value.word()).collect()
    }
}

/// An enum with one word a value: `ALL`, `as_str` and [`Word`] follow from it.
macro_rules! words {
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

            /// The word that stands for this value in a file.
            $visibility const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                }
            }
        }

        impl $crate::config::word::Word for $name {
            const WORDS: &'static [Self] = Self::ALL;

            fn word(self) -> &'static str {
                self.as_str()
            }
        }
    };
}

pub(super) use words;
