//! What a run notes after its start, in the file of its slabs: records that a later run reads if
//! this one was killed.

use std::io;

use flatcap_stream::{ChecksumKind, DeframeStatus, KindDeframer, SliceDeframer, SliceFramer};

use crate::os::shared_memory::SharedMemoryEnd;

/// Bytes that are read of a journal.
pub(super) const JOURNAL_BYTES_MAX: usize = 64 << 20;

/// The journal of a run.
#[derive(Debug)]
pub struct RunJournal {
    end: SharedMemoryEnd,
    checksum: ChecksumKind,
}

impl RunJournal {
    pub(super) fn new(end: SharedMemoryEnd, checksum: ChecksumKind) -> Self {
        Self { end, checksum }
    }

    /// Adds a record. Never waits for a disk.
    ///
    /// # Errors
    /// tmpfs is full, or any error of the underlying system call. Nothing was added.
    pub fn append(&mut self, record: &[u8]) -> io::Result<()> {
        let mut frame = vec![0; self.checksum.frame_bytes(record.len())];
        self.checksum.frame_into(&mut frame, record).map_err(io::Error::other)?;
        self.end.append(&frame)
    }
}

/// Returns the records of a journal, up to the first that is not whole.
pub(super) fn records(mut journal: &[u8], checksum: ChecksumKind) -> Vec<Vec<u8>> {
    let mut records = Vec::new();
    let deframer = KindDeframer::new(checksum);
    while let Ok(DeframeStatus::Frame(frame)) = deframer.deframe(journal) {
        records.push(frame.payload().to_vec());
        journal = journal.get(frame.bytes().len()..).unwrap_or_default();
    }
    records
}
