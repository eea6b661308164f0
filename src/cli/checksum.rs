//! The argument `--checksum` of the verbs for streams.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use flatcap_stream::ChecksumKind;

/// The keyword that requests detection of the kind of checksum.
#[cfg(feature = "import")]
const AUTO: &str = "auto";

/// A kind of checksum; `None` if the kind is to be detected.
#[cfg(feature = "import")]
#[derive(Debug, Clone, Copy)]
pub(super) struct DetectableChecksum(pub(super) Option<ChecksumKind>);

/// Returns the parser of a checksum's name.
pub(super) fn checksum() -> impl TypedValueParser<Value = ChecksumKind> {
    PossibleValuesParser::new(names()).try_map(|name| name.parse::<ChecksumKind>())
}

/// Returns the parser of a checksum's name or `auto`.
#[cfg(feature = "import")]
pub(super) fn checksum_or_auto() -> impl TypedValueParser<Value = DetectableChecksum> {
    PossibleValuesParser::new(std::iter::once(AUTO).chain(names()))
        .map(|name| DetectableChecksum(name.parse().ok()))
}

fn names() -> impl Iterator<Item = &'static str> {
    ChecksumKind::ALL.iter().map(|kind| kind.name())
}

#[cfg(all(test, feature = "import"))]
mod tests {
    use clap::Command;

    use super::*;

    // Proves that each name is parsed as its checksum, that auto means no fixed checksum, and that
    // other words are rejected.
    #[test]
    fn names_are_checksums() {
        let command = Command::new("test");
        for kind in ChecksumKind::ALL {
            let parsed = checksum().parse_ref(&command, None, kind.name().as_ref());
            assert_eq!(parsed.ok(), Some(*kind));
            let parsed = checksum_or_auto().parse_ref(&command, None, kind.name().as_ref());
            assert_eq!(parsed.unwrap().0, Some(*kind));
        }
        assert_eq!(checksum_or_auto().parse_ref(&command, None, AUTO.as_ref()).unwrap().0, None);
        for word in ["auto", "md5", ""] {
            assert!(checksum().parse_ref(&command, None, word.as_ref()).is_err(), "{word}");
        }
    }
}
