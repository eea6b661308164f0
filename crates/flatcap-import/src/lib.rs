//! Importers for recordings of other formats. Each importer reads files of one format as a stream,
//! in bounded memory, and writes intact records through one [`RunWriter`]. Damaged or missing input
//! is listed in the [`ImportReport`] of the importer.
//!
//! An importer never invents a time or value that the input does not contain, and never skips
//! damage without reporting it. Only the importer of LOBSTER files uses the names of files, because
//! no other place has the symbol and the date.

mod batch;
pub mod capture;
pub mod command;
pub mod csv;
mod error;
mod field_name;
mod findings;
pub mod iex;
mod input;
mod limited_input;
pub mod lobster;
mod local_clock;
mod payload;
mod progress;
mod report;
mod row_times;
mod run_clock;
mod run_writer;
pub mod sar;
mod source_name;
pub mod stream;
mod window;
mod zone_name;

pub use error::ImportError;
pub use findings::{FindingKind, ImportFinding};
pub use input::Input;
pub use progress::{ImportProgress, ProgressUpdate};
pub use report::{ImportFlaw, ImportReport};
pub use run_writer::{ImportLimits, ImportSource, ImportTotals, ImportedSource, RunWriter};

use flatcap_format::storage::Storage;

/// The common arguments of all importers.
#[derive(Debug)]
pub struct ImportJob<'a, 'w> {
    /// The storage for the segments.
    pub storage: &'a dyn Storage,
    /// Limits of segments and frames.
    pub limits: ImportLimits,
    /// The object that opens the files and reports progress.
    pub progress: ImportProgress<'w>,
}
