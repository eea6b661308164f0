//! Exports a recording to foreign formats: payloads of selected sources and times, written with
//! another framing.
//!
//! Never changes a recording, never shows a file under its name before it is complete, and never
//! replaces a file unless asked to.

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
    /// The checksum before each payload.
    pub checksum: ChecksumKind,
    /// Whether to replace files of the same names.
    pub should_replace: bool,
}

/// An event reported to the progress callback.
#[derive(Debug)]
pub enum ExportEvent {
    /// A notice about the recording, for the user.
    Notice(Notice),
    /// Some more frames are written.
    Frames,
}

/// The result of an export, as JSON: its files.
#[derive(Debug, Default, Serialize)]
pub struct ExportReport {
    /// One entry per source, in the order in which the recording names them.
    pub files: Vec<ExportedFile>,
    /// Whether it was stopped; there are no files then.
    #[serde(skip)]
    pub stopped: bool,
}

/// An exported file.
#[derive(Debug, Clone, Serialize)]
pub struct ExportedFile {
    /// Name of the source.
    pub source: String,
    /// Path.
    pub path: PathBuf,
    /// Number of frames in the file.
    pub frames: u64,
    /// Length, in bytes.
    pub bytes: u64,
}
