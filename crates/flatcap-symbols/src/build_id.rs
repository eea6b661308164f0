//! The build id, which identifies the code of a file.

use std::fmt;
use std::path::{Path, PathBuf};

/// Maximum length of a build id, in bytes. The kernel records at most 20 bytes
/// (`BUILD_ID_SIZE_MAX`).
const BYTES_MAX: usize = 20;

/// The build id of an executable, a library or a kernel. The linker has computed the id from the
/// contents of the file.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BuildId(Vec<u8>);

impl BuildId {
    /// Creates a build id from its bytes. Returns `None` for 0 or more than 20 bytes.
    pub fn new(bytes: &[u8]) -> Option<Self> {
        (1..=BYTES_MAX).contains(&bytes.len()).then(|| Self(bytes.to_vec()))
    }

    /// Parses hexadecimal digits.
    pub fn from_hex(text: &str) -> Option<Self> {
        let digit = |byte: &u8| char::from(*byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        let (pairs, rest) = text.as_bytes().as_chunks::<2>();
        let byte = |[high, low]: &[u8; 2]| Some(digit(high)? << 4 | digit(low)?);
        let bytes: Option<Vec<u8>> = pairs.iter().map(byte).collect();
        Self::new(&bytes?).filter(|_| rest.is_empty())
    }

    /// Returns the path of the file of this build id in a directory of debug information, for
    /// example `ab/cdef.debug` for the ending `.debug`.
    pub(crate) fn path_in(&self, tree: &Path, ending: &str) -> PathBuf {
        let hex = self.to_string();
        let (folder, name) = hex.split_at_checked(2).unwrap_or_default();
        tree.join(folder).join(format!("{name}{ending}"))
    }

    /// Returns whether a recorded build id is this build id. The kernel always records 20 bytes and
    /// fills shorter build ids with zeros.
    pub(crate) fn is_recorded_as(&self, recorded: &Self) -> bool {
        let (own, rest) = recorded.0.split_at_checked(self.0.len()).unwrap_or_default();
        own == self.0.as_slice() && rest.iter().all(|byte| *byte == 0)
    }
}

impl fmt::Display for BuildId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for BuildId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that digits are converted to bytes and back, that other strings are refused, and that
    // a padded id is recognized but a longer id is not.
    #[test]
    fn digits_become_an_id() {
        let id = BuildId::from_hex("00aBcD").unwrap();
        assert_eq!(
            (id.to_string().as_str(), id.clone()),
            ("00abcd", BuildId::new(&[0, 0xab, 0xcd]).unwrap())
        );
        assert_eq!(id.path_in(Path::new("/t"), ".debug"), Path::new("/t/00/abcd.debug"));
        for wrong in ["", "a", "abc", "0x12", "+1", "zz", &"00".repeat(21), "\u{e9}"] {
            assert_eq!(BuildId::from_hex(wrong), None, "{wrong}");
        }
        assert!(id.is_recorded_as(&BuildId::from_hex("00abcd0000").unwrap()));
        assert!(!id.is_recorded_as(&BuildId::from_hex("00abcd0001").unwrap()));
        assert!(!BuildId::from_hex("00abcd00").unwrap().is_recorded_as(&id));
    }
}
