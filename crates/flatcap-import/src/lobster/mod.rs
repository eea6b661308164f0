//! Imports LOBSTER message and order-book files, which are plain, gzip, or in ZIP archives.
//!
//! Columns, event types and file names are defined at lobsterdata.com/info/DataStructure.php. The
//! first complete row shows whether a file has messages or order books. The symbol and the date
//! come from the file's name, because the content lacks them. A message file and an order-book file
//! with the same day in their names are a pair. Row k of the book then has the time of row k of the
//! messages. Each pair becomes a separate run, in which row k has number k in both sources. Design:
//! docs/ARCHITECTURE.md, "Import and export".

mod archive;
mod day_import;
mod file_name;
mod input_file;
mod lines;
mod pairing;
mod row;
mod templates;

use std::path::PathBuf;

pub use archive::ENTRIES_MAX;
pub use day_import::LobsterOptions;
pub use row::LEVELS_MAX;

use super::{ImportError, ImportJob, ImportReport};
use day_import::LobsterImport;
use input_file::LobsterFile;

/// Imports the files.
///
/// # Errors
/// Any [`ImportError`].
pub fn import(
    files: &[PathBuf],
    options: &LobsterOptions,
    job: ImportJob<'_, '_>,
) -> Result<ImportReport, ImportError> {
    if let Some(symbol) = options.symbol.as_deref().filter(|symbol| !file_name::is_symbol(symbol)) {
        let what = "not a symbol; a symbol is 1 to 32 visible ASCII characters except / and \\, and does not start with a dot";
        return Err(ImportError::Options(format!("--symbol {symbol:?}: {what}")));
    }
    let mut report = ImportReport::default();
    let mut parts = Vec::new();
    for path in files {
        match input_file::inspect_file(path, &job.progress, &mut parts, &mut report) {
            Err(ImportError::Stopped) => return Ok(ImportReport { stopped: true, ..report }),
            inspected => inspected?,
        }
    }
    if let Some(part) = pairing::find_duplicate(&parts) {
        let path = part.location.display_path();
        let what = format!(
            "{}: another file has the same rows by its name; import only one of them",
            path.display()
        );
        return Err(ImportError::Options(what));
    }
    let pairs = pairing::pairs(&parts);
    let midnight_ns = match options.date {
        Some(date) if pairs.len() > 1 => {
            let what = format!(
                "--date {date} is for one day, but the files contain {} days; import them one by one",
                pairs.len()
            );
            return Err(ImportError::Options(what));
        }
        Some(date) => Some(file_name::midnight_ns(date).ok_or_else(|| {
            ImportError::Options(format!("--date {date} is out of range; choose one from 1678 to 2261"))
        })?),
        None => None,
    };
    let mut parts: Vec<Option<LobsterFile>> = parts.into_iter().map(Some).collect();
    let mut take = |index: Option<usize>| index.and_then(|index| parts.get_mut(index)?.take());
    let mut work = LobsterImport { job, options, midnight_ns, report, frames: 0 };
    for (message, book) in pairs {
        if !work.report.stopped {
            work.import_day(take(message), take(book))?;
        }
    }
    Ok(work.report)
}
