//! Finds the recordings that a verb reads. These are the recordings that the user names, or else
//! the recordings in the directory to which `record` writes.

use std::path::{Path, PathBuf};

use flatcap_format::segment::{ListedSegment, SegmentName, list};
use flatcap_format::storage::file_names;
use flatcap_os::storage::default_directory;

use super::error::CliError;

/// The unit's `StateDirectory=`, which is used if the program is started outside the unit.
pub(super) const SERVICE_STATE: &str = "/var/lib/flatcap";

/// Maximum number of subdirectories that an error names, so that the line stays readable.
const NAMED_MAX: usize = 5;
/// Maximum number of entries of a directory that are examined to write an error message. Recordings
/// are not expected in a larger directory.
const EXAMINED_MAX: usize = 1_000;

/// Returns the directory that `record` uses if there is no configuration. If it does not exist,
/// returns the directory of the service. If that does not exist either, returns no path.
pub(super) fn default_recordings() -> Vec<PathBuf> {
    let places = [default_directory(), PathBuf::from(SERVICE_STATE)];
    places.into_iter().find(|place| place.is_dir()).into_iter().collect()
}

/// Returns the directory that `record` uses if there is no configuration; `None` if the directory
/// does not exist. A verb that changes files never chooses the directory of the service by itself.
pub(super) fn own_recordings() -> Option<PathBuf> {
    Some(default_directory()).filter(|place| place.is_dir())
}

/// Returns the error for a verb that changes files and was called without a path.
pub(super) fn no_own_recordings() -> CliError {
    CliError::Usage(format!(
        "no PATH is given, and there is no {}: name a segment or a directory of segments",
        default_directory().display()
    ))
}

/// Returns the error for a verb that needs a data directory and cannot find one.
pub(super) fn no_data_directory() -> CliError {
    CliError::Usage(format!(
        "there is neither {} nor {SERVICE_STATE}: name a data directory with --dir",
        default_directory().display()
    ))
}

/// Lists the segments in the given paths.
///
/// # Errors
/// There are no segments, or a path cannot be read.
pub(super) fn segments_of(paths: &[PathBuf]) -> Result<Vec<ListedSegment>, CliError> {
    let listings = list(paths)?;
    if listings.is_empty() { Err(no_segments(paths)) } else { Ok(listings) }
}

/// Returns the error for paths without segments. The error names the subdirectories that contain
/// segments.
pub(super) fn no_segments(paths: &[PathBuf]) -> CliError {
    if paths.is_empty() {
        return CliError::Usage(format!(
            "no PATH is given, and there is neither {} nor {SERVICE_STATE}: name a segment or a directory of segments",
            default_directory().display()
        ));
    }
    let listed =
        |paths: &[PathBuf]| -> Vec<String> { paths.iter().map(|path| path.display().to_string()).collect() };
    let mut found: Vec<PathBuf> = paths.iter().flat_map(|path| subdirectories_with_segments(path)).collect();
    let more = found.len().saturating_sub(NAMED_MAX);
    found.truncate(NAMED_MAX);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let hint = match listed(&found).join(", ") {
        names if names.is_empty() => String::new(),
        names => format!("; name those with segments: {names}{more}"),
    };
    CliError::NoSegments(listed(paths).join(", ") + &hint)
}

/// Returns the subdirectories that directly contain segments, sorted.
fn subdirectories_with_segments(path: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(path) else { return Vec::new() };
    let has_segments = |path: &PathBuf| {
        file_names(path).is_ok_and(|names| names.iter().any(|name| SegmentName::parse(name).is_some()))
    };
    let entries = entries.take(EXAMINED_MAX).filter_map(Result::ok).map(|entry| entry.path());
    let mut found: Vec<PathBuf> = entries.filter(|path| path.is_dir()).filter(has_segments).collect();
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that the error for a directory without segments names exactly the subdirectories that
    // contain segments.
    #[test]
    fn subdirectories_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let no_segments = || no_segments(&[folder.path().to_owned()]).to_string();
        let path = folder.path().display();
        assert_eq!(no_segments(), format!("no segments in {path}"));
        let segment = "0000000001-20231114T221320Z-0000000000000001.bin";
        for (name, file) in [("b", segment), ("a", segment), ("c", "notes.txt")] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
            std::fs::write(folder.path().join(name).join(file), b"").unwrap();
        }
        let said = format!("no segments in {path}; name those with segments: {path}/a, {path}/b");
        assert_eq!(no_segments(), said);
    }
}
