//! The seam between the thread loop and what it measures.

use std::fmt::Debug;
use std::io;

use flatbuffers::FlatBufferBuilder;

use crate::frame::{FrameTemplate, Shortfall};
use crate::os::program::Leash;

/// One source, opened: its files, its buffers, its way from text to a payload that is built anew each time.
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

/// One source, opened, whose payloads all have one shape: each is a copy of one model with its values written over.
///
/// The loop copies the model to where the frame will stand and has the values written there: nothing is built, and nothing
/// copied twice.
pub trait FixedSampler: Debug + Send {
    /// As [`Sampler::read`].
    ///
    /// # Errors
    /// As [`Sampler::read`].
    fn read(&mut self) -> Result<(), ReadError>;

    /// The model, a finished FlatBuffer. It never changes.
    fn model(&self) -> &FrameTemplate;

    /// Parses what [`read`](Self::read) brought and writes it over a copy of the model. `seq` is the number of this reading.
    /// Returns what the sample lacks; that is marked absent in the payload.
    fn patch(&mut self, seq: u64, payload: &mut [u8]) -> Shortfall;
}

/// A source, opened: its sampler, by how payloads come to be.
#[derive(Debug)]
pub enum Opened {
    /// Built anew each time: their shape changes with what there is.
    Built(Box<dyn Sampler>),
    /// Copied from a model and patched.
    Fixed(Box<dyn FixedSampler>),
}

impl Opened {
    /// A source whose payloads are built.
    pub fn built(sampler: impl Sampler + 'static) -> Self {
        Self::Built(Box::new(sampler))
    }

    /// A source whose payloads have one shape.
    pub fn fixed(sampler: impl FixedSampler + 'static) -> Self {
        Self::Fixed(Box::new(sampler))
    }

    /// Fetches a reading.
    ///
    /// # Errors
    /// As [`Sampler::read`].
    #[inline]
    pub fn read(&mut self) -> Result<(), ReadError> {
        match self {
            Self::Built(sampler) => sampler.read(),
            Self::Fixed(sampler) => sampler.read(),
        }
    }

    /// As [`Sampler::leash`].
    pub fn leash(&self) -> Option<Leash> {
        match self {
            Self::Built(sampler) => sampler.leash(),
            Self::Fixed(_) => None,
        }
    }

    /// The payload of the last reading, in memory of its own, for whoever is not in a hurry: built in `builder`, which is
    /// empty and forces defaults.
    pub fn payload(&mut self, seq: u64, builder: &mut FlatBufferBuilder<'static>) -> (Vec<u8>, Shortfall) {
        match self {
            Self::Built(sampler) => {
                let shortfall = sampler.build(seq, builder);
                (builder.finished_data().to_vec(), shortfall)
            }
            Self::Fixed(sampler) => {
                let mut payload = sampler.model().payload().to_vec();
                let shortfall = sampler.patch(seq, &mut payload);
                (payload, shortfall)
            }
        }
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
