//! Defines the reasons why a file cannot be read as a segment. Damage inside a readable segment is
//! not an error. Readers report such damage as a finding.

use std::io::{self, ErrorKind};
use std::path::PathBuf;

/// Returns the numbers of the bits that are set, as a list.
fn bit_numbers(bits: u64) -> String {
    let numbers = (0..u64::BITS).filter(|number| bits >> number & 1 == 1);
    numbers.map(|number| number.to_string()).collect::<Vec<_>>().join(", ")
}

/// Returns advice for an error of the kernel.
fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        ErrorKind::NotFound => "; name a segment, or a directory of segments",
        ErrorKind::PermissionDenied => "; read it as its owner or as root, or change its permissions",
        _ => "",
    }
}

/// The reason why a file cannot be read as a segment.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SegmentError {
    /// The kernel reported an error. The user should check the path and its permissions.
    #[error("{}: {error}{}", path.display(), remedy(error))]
    Io {
        /// The file.
        path: PathBuf,
        /// The kernel's error.
        #[source]
        error: io::Error,
    },
    /// The file is empty, because nothing was written yet, or because the file lost its content.
    #[error("{}: the file is empty", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// The file has no header at its start and no footer at its end. The file is not a segment, or
    /// it is damaged at both ends.
    #[error("{}: not a flatcap segment: no header at its start and no footer at its end", path.display())]
    NotASegment {
        /// The file.
        path: PathBuf,
    },
    /// The file was written by a later version. The user should read the file with that version.
    #[error("{}: written in format version {version}; this program reads up to version {known}", path.display())]
    FutureVersion {
        /// The file.
        path: PathBuf,
        /// The version in the header.
        version: u16,
        /// The highest version that this build reads.
        known: u16,
    },
    /// The file uses features that this build does not know. The user should read the file with a
    /// later version.
    #[error(
        "{}: uses features that this program does not know (incompatible feature bits {}): read it with a later version",
        path.display(), bit_numbers(*bits)
    )]
    UnknownFeatures {
        /// The file.
        path: PathBuf,
        /// The unknown bits.
        bits: u64,
    },
    /// The header's bytes are intact, but a value is invalid.
    #[error("{}: invalid header: {what}", path.display())]
    BadHeader {
        /// The file.
        path: PathBuf,
        /// The invalid value.
        what: &'static str,
    },
}
