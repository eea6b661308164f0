//! The list of segments that retention has removed while older segments of their run remain.

use std::io::{self, IoSlice};

use flatcap_format::segment::{REMOVED_NAME, RemovedSegments};
use flatcap_format::storage::Storage;

/// Writes the list.
///
/// # Errors
/// Errors of the storage; then the previous list stays.
pub(super) fn write_removed(storage: &dyn Storage, removed: &RemovedSegments) -> io::Result<()> {
    let unfinished = format!("{REMOVED_NAME}.new");
    let _left_by_a_kill = storage.remove(&unfinished);
    let file = storage.create(&unfinished)?;
    file.append(&[IoSlice::new(removed.to_string().as_bytes())])?;
    storage.replace(&unfinished, REMOVED_NAME)
}
