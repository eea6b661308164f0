//! The bytes of an input that were read but not consumed yet.

use std::io::{self, BufRead};

use crate::import::{ImportError, Input};

/// The unconsumed bytes of an input. Its memory follows the requested length, never the input's
/// length.
#[derive(Debug)]
pub(super) struct StreamWindow {
    input: Input,
    bytes: Vec<u8>,
    start: usize, // of the unconsumed bytes: <= bytes.len()
    offset: u64,  // of `start` in the input
    has_ended: bool,
    damage: Option<io::Error>, // of the compressed data: nothing can be read after it
}

impl StreamWindow {
    pub(super) fn new(input: Input) -> Self {
        Self { input, bytes: Vec::new(), start: 0, offset: 0, has_ended: false, damage: None }
    }

    /// Returns the unconsumed bytes.
    #[inline]
    pub(super) fn unconsumed(&self) -> &[u8] {
        self.bytes.get(self.start..).unwrap_or_default()
    }

    /// Returns their offset in the input.
    #[inline]
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns, once, the error in the compressed data.
    pub(super) fn take_damage(&mut self) -> Option<io::Error> {
        self.damage.take()
    }

    /// Reads until this many bytes are available or the input ends. Returns whether they are
    /// available.
    #[inline]
    pub(super) fn fill(&mut self, bytes: usize) -> Result<bool, ImportError> {
        if self.unconsumed().len() >= bytes {
            return Ok(true);
        }
        self.read(bytes)
    }

    /// Consumes available bytes.
    #[inline]
    pub(super) fn consume(&mut self, bytes: usize) {
        let bytes = bytes.min(self.unconsumed().len());
        self.start += bytes;
        self.offset += bytes as u64;
    }

    #[inline(never)]
    fn read(&mut self, bytes: usize) -> Result<bool, ImportError> {
        while self.unconsumed().len() < bytes && !self.has_ended {
            // Free the consumed bytes once they are the larger part, so that each byte is moved at
            // most once.
            if self.start >= self.bytes.len() - self.start {
                self.bytes.drain(..self.start);
                self.start = 0;
            }
            let more = self.input.fill_buf().map(|more| {
                self.bytes.extend_from_slice(more);
                more.len()
            });
            let read = match more {
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if self.input.is_damage(&error) => {
                    self.damage = Some(error);
                    0
                }
                Err(error) => return Err(ImportError::read(self.input.path())(error)),
            };
            self.input.consume(read);
            self.has_ended = read == 0;
        }
        Ok(self.unconsumed().len() >= bytes)
    }
}
