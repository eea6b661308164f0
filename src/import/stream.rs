//! Streams of plain frames (flatstream).

use std::path::PathBuf;

use super::{ImportError, Job, Report};

/// What is wanted.
#[derive(Debug, Clone, Default)]
pub struct Options {}

/// Imports the files.
///
/// # Errors
/// Every kind of [`ImportError`].
pub fn import(_files: &[PathBuf], _options: &Options, _job: Job<'_, '_>) -> Result<Report, ImportError> {
    Err(ImportError::Options("this kind cannot be imported yet".to_owned()))
}
