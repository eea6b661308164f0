//! Why a file cannot be read as a segment at all. Damage inside a readable segment is not an error but a finding.

use std::io;
use std::path::PathBuf;

/// What keeps a file from being read as a segment.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SegmentError {
    /// The kernel refuses: mend the path or its rights.
    #[error("{}: {error}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        #[source]
        error: io::Error,
    },
    /// Nothing was written yet, or the file lost its content.
    #[error("{}: the file is empty", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// No header at its start and no footer at its end: another kind of file, or damaged at both ends.
    #[error("{}: not a flatcap segment: no header at its start and no footer at its end", path.display())]
    NotASegment {
        /// The file.
        path: PathBuf,
    },
    /// Written by a later version: read it with that version.
    #[error("{}: written in format version {version}; this program reads up to version {known}", path.display())]
    FutureVersion {
        /// The file.
        path: PathBuf,
        /// The version the header states.
        version: u16,
        /// The highest version this build reads.
        known: u16,
    },
    /// Uses features that a reader must know: read it with the version that wrote it.
    #[error("{}: uses features that this program does not know (incompatible bits {bits:#x})", path.display())]
    UnknownFeatures {
        /// The file.
        path: PathBuf,
        /// The unknown bits.
        bits: u64,
    },
    /// The header's bytes are intact but say something impossible.
    #[error("{}: its header says {what}", path.display())]
    BadHeader {
        /// The file.
        path: PathBuf,
        /// What it says.
        what: &'static str,
    },
}
