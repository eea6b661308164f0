//! The seam between the thread loop and what it measures.

use std::fmt::Debug;
use std::io;

use flatbuffers::FlatBufferBuilder;

use crate::frame::Shortfall;
use crate::os::program::Leash;

/// One source, opened: its files, its buffers, its way from text to payload.
///
/// The loop calls [`read`](Self::read), stamped by a clock read before and after it, then
/// [`build`](Self::build) at its leisure. Neither allocates once the sampler is warm.
pub trait Sampler: Debug + Send {
    /// Fetches the raw reading into the sampler's own buffers: the timed part, so it reads and does no more.
    ///
    /// # Errors
    /// The file that could not be read; the reading then counts as lost (`ReadFailed`).
    fn read(&mut self) -> Result<(), ReadError>;

    /// Parses what [`read`](Self::read) brought and finishes the source's FlatBuffer in `builder`, which is
    /// empty and forces defaults. `seq` is the number of this reading. Returns what the sample lacks; that is marked absent
    /// in the payload.
    fn build(&mut self, seq: u64, builder: &mut FlatBufferBuilder<'static>) -> Shortfall;

    /// By what another thread ends a reading that would outlast the run; none where nothing can.
    fn leash(&self) -> Option<Leash> {
        None
    }
}

/// A file that could not be read. One error of the kernel and a name: nothing is allocated.
#[derive(Debug, thiserror::Error)]
#[error("/{file}: {error}")]
pub struct ReadError {
    /// The file's path without the leading slash.
    pub file: &'static str,
    /// What the kernel said.
    #[source]
    pub error: io::Error,
}
