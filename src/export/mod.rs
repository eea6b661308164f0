//! How does a recording become foreign files? Payloads of chosen sources and times, written anew in another framing.
//!
//! Never: changes a recording; shows a file under its name before it is whole; replaces one unasked.

mod error;
mod stream;

pub use error::ExportError;
pub use stream::{SOURCES_MAX, to_streams};

use std::path::PathBuf;

use crate::replay::Notice;
use crate::stream::ChecksumKind;

/// Where files go, and what they are.
#[derive(Debug, Clone)]
pub struct Options {
    /// The directory; created where it is missing.
    pub directory: PathBuf,
    /// The checksum in front of each payload.
    pub checksum: ChecksumKind,
    /// Whether files of the same names are replaced.
    pub replaces: bool,
}

/// Something on the way, for whoever watches.
#[derive(Debug)]
pub enum Event {
    /// Something about the recording, for the user to know.
    Notice(Notice),
    /// So many frames have been written.
    Frames(u64),
}

/// What an export has come to.
#[derive(Debug, Default)]
pub struct Report {
    /// One a source, in the order in which the recording names them.
    pub files: Vec<ExportedFile>,
    /// It was told to stop: there are no files.
    pub stopped: bool,
}

/// A file that was written.
#[derive(Debug, Clone)]
pub struct ExportedFile {
    /// Name of the source.
    pub source: String,
    /// Where it is.
    pub path: PathBuf,
    /// Frames in it.
    pub frames: u64,
    /// Its length.
    pub bytes: u64,
}
