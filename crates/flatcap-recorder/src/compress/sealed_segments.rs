//! Finds, by their file names, the segments to compress.

use std::collections::BTreeSet;
use std::io::{self, ErrorKind};

use flatcap_format::segment::{SealState, SegmentName, SideFile};
use flatcap_format::storage::{FileEntry, Storage};

/// Returns the sealed segments of a directory, oldest first. Segments that are being recovered are
/// left out.
///
/// # Errors
/// The directory cannot be listed.
pub fn sealed_segments(storage: &dyn Storage) -> io::Result<Vec<SegmentName>> {
    let entries = storage.entries()?;
    Ok(sealed_names(entries.iter().map(|entry| entry.name.as_str())))
}

fn sealed_names<'a>(names: impl Iterator<Item = &'a str> + Clone) -> Vec<SegmentName> {
    let asides = names.clone().filter_map(SegmentName::parse_side_file);
    let recovering: BTreeSet<String> = asides
        .filter(|(_, aside)| *aside == SideFile::Recovering)
        .map(|(name, _)| name.to_string())
        .collect();
    let mut chosen: Vec<SegmentName> = names
        .filter(|name| !recovering.contains(*name))
        .filter_map(SegmentName::parse)
        .filter(|name| name.state == SealState::Sealed)
        .collect();
    chosen.sort_unstable_by_key(|name| (name.number, name.run_id));
    chosen
}

/// Removes the temporary files that a killed compression left, and returns the number of removed
/// files. The caller must hold the directory's lock, and compression must not have started yet.
///
/// # Errors
/// The directory cannot be listed, or a file cannot be removed.
pub fn remove_leftovers(storage: &dyn Storage) -> io::Result<usize> {
    let is_left = |entry: &FileEntry| {
        SegmentName::parse_side_file(&entry.name).is_some_and(|(_, aside)| aside == SideFile::Compressing)
    };
    let left: Vec<FileEntry> = storage.entries()?.into_iter().filter(is_left).collect();
    if !left.is_empty() {
        // The file to remove may be the raw file, if the compressed file already has the name of
        // the segment. The exchange of the names must be on disk before the raw file is removed.
        storage.sync_directory()?;
    }
    let mut removed = 0;
    for entry in left {
        match storage.remove(&entry.name) {
            // Retention has already removed the file.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            result => {
                result?;
                removed += 1;
            }
        }
    }
    Ok(removed)
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that exactly the sealed segments of all runs are found, oldest first.
    #[test]
    fn closed_segments_are_chosen() {
        let name = |number, run_id, state| SegmentName { number, created_s: 1_700_000_000, run_id, state };
        let (old, new) = (name(3, 9, SealState::Sealed), name(4, 2, SealState::Sealed));
        let mended = name(5, 2, SealState::Sealed);
        let open = name(6, 2, SealState::Active).to_string();
        let names = [
            new.to_string(),
            mended.to_string(),
            mended.side_file(SideFile::Recovering),
            old.side_file(SideFile::Compressing),
            old.side_file(SideFile::Cut),
            open,
            "notes.bin".to_owned(),
            old.to_string(),
        ];
        assert_eq!(sealed_names(names.iter().map(String::as_str)), [old, new]);
    }
}
