//! Writes and reads the notes of a run. Notes are records that a run appends to its arena file
//! after the start. If this run was killed, a later run reads the notes.

use std::io;

use flatcap_os::shared_memory::SharedMemoryEnd;
use flatcap_stream::{ChecksumKind, DeframeStatus, KindDeframer, SliceDeframer, SliceFramer};

/// Maximum number of bytes of notes that a recovery reads. The limit bounds the memory of a
/// recovery, whatever the file contains. The descriptors of all sources of a run together are
/// smaller than this limit.
pub(super) const NOTES_BYTES_MAX: usize = 64 << 20;

/// A writer that appends the notes of a run to its arena file.
#[derive(Debug)]
pub struct RunNotes {
    end: SharedMemoryEnd,
    checksum: ChecksumKind,
}

impl RunNotes {
    pub(super) fn new(end: SharedMemoryEnd, checksum: ChecksumKind) -> Self {
        Self { end, checksum }
    }

    /// Adds a record. Never waits for a disk.
    ///
    /// # Errors
    /// Fails if tmpfs is full, or with any other error of the underlying system call. If there is
    /// an error, no part of the record is added.
    pub fn append(&mut self, record: &[u8]) -> io::Result<()> {
        let mut frame = vec![0; self.checksum.frame_bytes(record.len())];
        self.checksum.frame_into(&mut frame, record).map_err(io::Error::other)?;
        self.end.append(&frame)
    }
}

/// Returns the records before the first incomplete record.
pub(super) fn records(mut notes: &[u8], checksum: ChecksumKind) -> Vec<Vec<u8>> {
    let mut records = Vec::new();
    let deframer = KindDeframer::new(checksum);
    while let Ok(DeframeStatus::Frame(frame)) = deframer.deframe(notes) {
        records.push(frame.payload().to_vec());
        notes = notes.get(frame.bytes().len()..).unwrap_or_default();
    }
    records
}
