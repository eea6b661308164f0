//! The interface between a sampler thread and the sources that it reads.

use std::fmt::Debug;
use std::io;

use flatbuffers::FlatBufferBuilder;
use flatcap_format::frame::{FrameTemplate, Incomplete};
use flatcap_os::program::KillHandle;

/// An open source whose payloads are built from scratch each time. A sampler owns its files and
/// buffers.
///
/// The group reads the clock before and after it calls [`read`](Self::read). Then the group calls
/// [`build`](Self::build), which is not time-critical. Neither call allocates memory after the
/// first samples.
pub trait Sampler: Debug + Send {
    /// Reads the source into the sampler's own buffers. Only this call is timed, so it must do
    /// nothing except read.
    ///
    /// # Errors
    /// Names the file that could not be read. The sample then counts as lost (`ReadFailed`).
    fn read(&mut self) -> Result<(), ReadError>;

    /// Parses the data of the last [`read`](Self::read) and finishes the source's FlatBuffer in
    /// `builder`. The builder is empty, and writes fields even if they have the default value.
    /// `seq` is the sequence number of this sample. The payload is built from scratch for each
    /// sample. Returns the reasons why values are missing. Missing values are marked absent in the
    /// payload.
    fn build(&mut self, seq: u64, builder: &mut FlatBufferBuilder<'static>) -> Incomplete;

    /// Returns the CPU time in nanoseconds that the last [`read`](Self::read) took in threads other
    /// than the caller's.
    fn helper_cpu_ns(&self) -> u64 {
        0
    }

    /// Returns a handle with which another thread can interrupt a read that would continue after
    /// the end of the run. Returns `None` if the source does not support this.
    fn kill_handle(&self) -> Option<KillHandle> {
        None
    }
}

/// An open source whose payloads all have the same shape. Each payload is a copy of a template
/// whose values are overwritten.
///
/// The group copies the template to the frame's final location, and the sampler writes the values
/// into this copy. So no payload is built and no byte is copied twice.
pub trait FixedSampler: Debug + Send {
    /// Reads the source, as [`Sampler::read`] does.
    ///
    /// # Errors
    /// Returns the same errors as [`Sampler::read`].
    fn read(&mut self) -> Result<(), ReadError>;

    /// Returns the template, which is a finished FlatBuffer. The template never changes.
    fn template(&self) -> &FrameTemplate;

    /// Parses the data of the last [`read`](Self::read), and writes the values into a copy of the
    /// template. `seq` is the sequence number of this sample. Returns the reasons why values are
    /// missing. Missing values are marked absent in the payload.
    fn patch(&mut self, seq: u64, payload: &mut [u8]) -> Incomplete;
}

/// An open source, that is, its sampler. The variants differ in the way in which payloads are made.
#[derive(Debug)]
pub enum OpenedSampler {
    /// Payloads are built from scratch, because their shape changes with the host's devices.
    Built(Box<dyn Sampler>),
    /// Payloads are copied from a template and patched.
    Fixed(Box<dyn FixedSampler>),
}

impl OpenedSampler {
    /// Wraps the sampler of a source whose payloads are built from scratch.
    pub fn built(sampler: impl Sampler + 'static) -> Self {
        Self::Built(Box::new(sampler))
    }

    /// Wraps the sampler of a source whose payloads all have the same shape.
    pub fn fixed(sampler: impl FixedSampler + 'static) -> Self {
        Self::Fixed(Box::new(sampler))
    }

    /// Reads the source.
    ///
    /// # Errors
    /// Returns the same errors as [`Sampler::read`].
    #[inline]
    pub fn read(&mut self) -> Result<(), ReadError> {
        match self {
            Self::Built(sampler) => sampler.read(),
            Self::Fixed(sampler) => sampler.read(),
        }
    }

    /// Returns the same as [`Sampler::helper_cpu_ns`].
    pub(crate) fn helper_cpu_ns(&self) -> u64 {
        match self {
            Self::Built(sampler) => sampler.helper_cpu_ns(),
            Self::Fixed(_) => 0,
        }
    }

    /// Returns the same as [`Sampler::kill_handle`].
    pub fn kill_handle(&self) -> Option<KillHandle> {
        match self {
            Self::Built(sampler) => sampler.kill_handle(),
            Self::Fixed(_) => None,
        }
    }

    /// Returns the payload of the last read in newly allocated memory, for callers that are not
    /// time-critical. The payload is built in `builder`, which is empty and writes fields even if
    /// they have the default value.
    pub fn payload(&mut self, seq: u64, builder: &mut FlatBufferBuilder<'static>) -> (Vec<u8>, Incomplete) {
        match self {
            Self::Built(sampler) => {
                let shortfall = sampler.build(seq, builder);
                (builder.finished_data().to_vec(), shortfall)
            }
            Self::Fixed(sampler) => {
                let mut payload = sampler.template().payload().to_vec();
                let shortfall = sampler.patch(seq, &mut payload);
                (payload, shortfall)
            }
        }
    }
}

/// The error of a file that could not be read. The file is identified by a static name, so that the
/// error needs no allocation.
#[derive(Debug, thiserror::Error)]
#[error("/{file}: {error}")]
pub struct ReadError {
    /// The file's path without the leading slash.
    pub file: &'static str,
    /// The kernel's error.
    #[source]
    pub error: io::Error,
}
