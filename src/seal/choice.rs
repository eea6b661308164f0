//! Which segments are there to be packed? Decided on names.

use std::collections::BTreeSet;
use std::io::{self, ErrorKind};

use crate::os::storage::{Entry, Storage};
use crate::segment::{Aside, SegmentName, State};

/// The closed segments of a directory, the oldest first. One that a recovery is at work on is none.
///
/// # Errors
/// The directory cannot be listed.
pub fn sealed(storage: &dyn Storage) -> io::Result<Vec<SegmentName>> {
    let entries = storage.entries()?;
    Ok(chosen(entries.iter().map(|entry| entry.name.as_str())))
}

fn chosen<'a>(names: impl Iterator<Item = &'a str> + Clone) -> Vec<SegmentName> {
    let asides = names.clone().filter_map(SegmentName::parse_aside);
    let recovering: BTreeSet<String> =
        asides.filter(|(_, aside)| *aside == Aside::Recovering).map(|(name, _)| name.to_string()).collect();
    let mut chosen: Vec<SegmentName> = names
        .filter(|name| !recovering.contains(*name))
        .filter_map(SegmentName::parse)
        .filter(|name| name.state == State::Sealed)
        .collect();
    chosen.sort_unstable_by_key(|name| (name.number, name.run_id));
    chosen
}

/// Removes what a kill in the middle of packing has left. Only for whoever holds the directory's lock, before it packs. Returns how many
/// files that were.
///
/// # Errors
/// The directory cannot be listed, or a file not removed.
pub fn clear(storage: &dyn Storage) -> io::Result<usize> {
    let is_left = |entry: &Entry| {
        SegmentName::parse_aside(&entry.name).is_some_and(|(_, aside)| aside == Aside::Packing)
    };
    let left: Vec<Entry> = storage.entries()?.into_iter().filter(is_left).collect();
    if !left.is_empty() {
        // One may be the raw file whose name the packed one has taken: that has to be on the medium first.
        storage.sync_directory()?;
    }
    let mut removed = 0;
    for entry in left {
        match storage.remove(&entry.name) {
            // Retention was faster.
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

    // Goal: closed segments by age, whoever wrote them, and nothing else. Method: names of every kind.
    #[test]
    fn closed_segments_are_chosen() {
        let name = |number, run_id, state| SegmentName { number, created_s: 1_700_000_000, run_id, state };
        let (old, new) = (name(3, 9, State::Sealed), name(4, 2, State::Sealed));
        let mended = name(5, 2, State::Sealed);
        let open = name(6, 2, State::Active).to_string();
        let names = [
            new.to_string(),
            mended.to_string(),
            mended.aside(Aside::Recovering),
            old.aside(Aside::Packing),
            old.aside(Aside::Cut),
            open,
            "notes.bin".to_owned(),
            old.to_string(),
        ];
        assert_eq!(chosen(names.iter().map(String::as_str)), [old, new]);
    }
}
