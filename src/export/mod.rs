//! Exports a recording to foreign formats. The payloads of selected sources and times are written
//! with another framing.
//!
//! This module never changes a recording. A file gets its final name only when it is complete, and
//! replaces an existing file only if the user requests it.

mod error;
mod stream;

pub use error::ExportError;
pub use stream::{SOURCES_MAX, to_streams};

use std::path::PathBuf;

use flatcap_format::replay::Notice;
use flatcap_stream::ChecksumKind;
use serde::Serialize;

/// Options of an export.
#[derive(Debug, Clone)]
pub struct ExportOptions {
    /// The output directory; created if missing.
    pub directory: PathBuf,
    /// The kind of checksum before each payload.
    pub checksum: ChecksumKind,
    /// Whether existing files with the same names are replaced.
    pub should_replace: bool,
}

/// An event reported to the progress callback.
#[derive(Debug)]
pub enum ExportEvent {
    /// A notice about the recording, for the user.
    Notice(Notice),
    /// More frames have been written.
    Frames,
}

/// The result of an export, which lists its files as JSON.
#[derive(Debug, Default, Serialize)]
pub struct ExportReport {
    /// One entry per source, in the order in which the recording names them.
    pub files: Vec<ExportedFile>,
    /// Whether the export was stopped. If so, there are no files.
    #[serde(skip)]
    pub stopped: bool,
}

/// An exported file.
#[derive(Debug, Clone, Serialize)]
pub struct ExportedFile {
    /// Name of the source.
    pub source: String,
    /// Path of the file.
    pub path: PathBuf,
    /// Number of frames in the file.
    pub frames: u64,
    /// Length of the file, in bytes.
    pub bytes: u64,
}
