//! The argument `--checksum` of the verbs for streams.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use flatcap_stream::ChecksumKind;

/// Returns the parser of a checksum's name.
pub(super) fn checksum() -> impl TypedValueParser<Value = ChecksumKind> {
    let names = ChecksumKind::ALL.iter().map(|kind| kind.name());
    PossibleValuesParser::new(names).try_map(|name| name.parse::<ChecksumKind>())
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that each name is parsed as its checksum, and that other words are rejected.
    #[test]
    fn names_are_checksums() {
        let command = clap::Command::new("test");
        for kind in ChecksumKind::ALL {
            let parsed = checksum().parse_ref(&command, None, kind.name().as_ref());
            assert_eq!(parsed.ok(), Some(*kind));
        }
        for word in ["auto", "md5", ""] {
            assert!(checksum().parse_ref(&command, None, word.as_ref()).is_err(), "{word}");
        }
    }
}
