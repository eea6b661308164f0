//! IEX DEEP 1.0 and TOPS 1.6 from captures.

use std::path::PathBuf;

use super::{ImportError, Job, Report};

/// What is wanted.
#[derive(Debug, Clone, Default)]
pub struct Feed {}

/// Imports the files.
///
/// # Errors
/// Every kind of [`ImportError`].
pub fn import(_files: &[PathBuf], _options: &Feed, _job: Job<'_, '_>) -> Result<Report, ImportError> {
    Err(ImportError::Options("this kind cannot be imported yet".to_owned()))
}
