//! The list of segments that retention has removed although older ones of their run are left.

use std::io::{self, IoSlice};

use flatcap_format::segment::{REMOVED_NAME, RemovedSegments};
use flatcap_format::storage::Storage;

/// Maximum size of the list, in bytes.
const REMOVED_BYTES_MAX: u64 = 1 << 20;

/// Reads the list; an empty one if there is none.
pub(super) fn read_removed(storage: &dyn Storage) -> RemovedSegments {
    let read = || {
        let file = storage.open(REMOVED_NAME)?;
        let length = file.length()?.min(REMOVED_BYTES_MAX);
        let mut text = vec![0; usize::try_from(length).unwrap_or_default()];
        let count = file.read_at(&mut text, 0)?;
        text.truncate(count);
        io::Result::Ok(RemovedSegments::parse(&String::from_utf8_lossy(&text)))
    };
    read().unwrap_or_default()
}

/// Writes the list.
///
/// # Errors
/// Errors of the storage; then the earlier list stays.
pub(super) fn write_removed(storage: &dyn Storage, removed: &RemovedSegments) -> io::Result<()> {
    let unfinished = format!("{REMOVED_NAME}.new");
    let _left_by_a_kill = storage.remove(&unfinished);
    let file = storage.create(&unfinished)?;
    file.append(&[IoSlice::new(removed.to_string().as_bytes())])?;
    storage.replace(&unfinished, REMOVED_NAME)
}
