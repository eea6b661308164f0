//! The bytes of an input that have been read and not passed yet.

use std::io::{self, BufRead};

use crate::import::{ImportError, Input};

/// A stretch of an input, from where reading stands on. Its memory follows what is asked for at once, never the input's length.
#[derive(Debug)]
pub(super) struct Window {
    input: Input,
    bytes: Vec<u8>,
    start: usize, // of what is not passed yet: <= bytes.len()
    offset: u64,  // of that in the input
    has_ended: bool,
    damage: Option<io::Error>, // of the packing: what comes behind it cannot be read
}

impl Window {
    pub(super) fn new(input: Input) -> Self {
        Self { input, bytes: Vec::new(), start: 0, offset: 0, has_ended: false, damage: None }
    }

    /// What has been read and not passed.
    #[inline]
    pub(super) fn rest(&self) -> &[u8] {
        self.bytes.get(self.start..).unwrap_or_default()
    }

    /// Where that begins in the input.
    #[inline]
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// What is wrong with the packing of the input, told once.
    pub(super) fn take_damage(&mut self) -> Option<io::Error> {
        self.damage.take()
    }

    /// Reads on until so many bytes are there, or the input ends. Returns whether they are there.
    #[inline]
    pub(super) fn fill(&mut self, bytes: usize) -> Result<bool, ImportError> {
        if self.rest().len() >= bytes {
            return Ok(true);
        }
        self.read(bytes)
    }

    /// Passes bytes that are there.
    #[inline]
    pub(super) fn pass(&mut self, bytes: usize) {
        let bytes = bytes.min(self.rest().len());
        self.start += bytes;
        self.offset += bytes as u64;
    }

    #[inline(never)]
    fn read(&mut self, bytes: usize) -> Result<bool, ImportError> {
        while self.rest().len() < bytes && !self.has_ended {
            // What was passed makes room once it is the larger part, so that each byte is moved once at most.
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
        Ok(self.rest().len() >= bytes)
    }
}
