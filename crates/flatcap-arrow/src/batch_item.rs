//! The items that readers of batches return.

use arrow_array::RecordBatch;
use flatcap_format::replay::Notice;

/// A part of a recording.
#[derive(Debug)]
pub enum BatchItem {
    /// Rows.
    Batch(RecordBatch),
    /// A problem with a file. Reading continues after the notice.
    Notice(Notice),
}
