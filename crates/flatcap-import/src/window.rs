//! A window on an input. The window holds the bytes that were read but not yet consumed, and their
//! offset.

use std::io::{self, Read};
use std::ops::Range;

use super::error::ImportError;
use super::input::Input;

/// Read size, in bytes.
const READ_BYTES: usize = 512 << 10;

/// The unconsumed bytes of an input. The memory size depends on the requested lengths, never on the
/// input's length.
#[derive(Debug)]
pub(super) struct InputWindow {
    input: Input,
    bytes: Vec<u8>,
    start: usize, // of the unconsumed bytes: <= end
    end: usize,   // <= bytes.len()
    offset: u64,  // of `start`, in the decompressed content
    has_ended: bool,
    damage: Option<io::Error>,
}

impl InputWindow {
    pub(super) fn new(input: Input) -> Self {
        Self { input, bytes: Vec::new(), start: 0, end: 0, offset: 0, has_ended: false, damage: None }
    }

    pub(super) fn input(&self) -> &Input {
        &self.input
    }

    /// Returns the unconsumed bytes.
    #[inline]
    pub(super) fn unconsumed(&self) -> &[u8] {
        self.bytes.get(self.start..self.end).unwrap_or_default()
    }

    /// Returns the offset of the unconsumed bytes in the decompressed content.
    #[inline]
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns whether the input has no bytes after the window.
    pub(super) fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Returns the reason why a compressed input ended early. Only the first call returns the
    /// reason.
    pub(super) fn take_damage(&mut self) -> Option<String> {
        let error = self.damage.take()?;
        Some(format!("the gzip data is truncated or damaged here: {error}"))
    }

    /// Reads until `bytes` bytes are available or the input ends. Returns whether the bytes are
    /// available.
    #[inline]
    pub(super) fn fill(&mut self, bytes: usize) -> Result<bool, ImportError> {
        if self.end - self.start >= bytes {
            return Ok(true);
        }
        self.read(bytes)
    }

    /// Consumes available bytes.
    #[inline]
    pub(super) fn consume(&mut self, bytes: usize) {
        let bytes = bytes.min(self.end - self.start);
        self.start += bytes;
        self.offset += bytes as u64;
    }

    /// Consumes `end` bytes. Returns the range `at` converted to the form that
    /// [`consumed`](Self::consumed) accepts.
    #[inline]
    pub(super) fn consume_over(&mut self, at: Range<usize>, end: usize) -> Range<usize> {
        let at = self.start + at.start..self.start + at.end;
        self.consume(end);
        at
    }

    /// Returns consumed bytes. The range is valid until more bytes are read.
    #[inline]
    pub(super) fn consumed(&self, at: Range<usize>) -> &[u8] {
        self.bytes.get(at).unwrap_or_default()
    }

    /// Consumes bytes, whether or not they have already been read. Returns the number of consumed
    /// bytes, which is smaller if the input ends.
    pub(super) fn skip(&mut self, bytes: u64) -> Result<u64, ImportError> {
        let begin = self.offset;
        loop {
            let rest = bytes - (self.offset - begin);
            self.consume(usize::try_from(rest).unwrap_or(usize::MAX));
            if self.offset - begin == bytes || !self.fill(1)? {
                return Ok(self.offset - begin);
            }
        }
    }

    #[inline(never)]
    fn read(&mut self, bytes: usize) -> Result<bool, ImportError> {
        while self.end - self.start < bytes && !self.has_ended {
            let available = self.end - self.start;
            // Free the consumed bytes when they are at least half of the bytes, so that each byte
            // is moved at most once.
            if self.start >= available {
                self.bytes.copy_within(self.start..self.end, 0);
                (self.start, self.end) = (0, available);
            }
            if self.bytes.len() - self.end < READ_BYTES / 2 {
                self.bytes.resize(self.end + READ_BYTES, 0);
            }
            let free = self.bytes.get_mut(self.end..).unwrap_or_default();
            match self.input.read(free) {
                Ok(0) => self.has_ended = true,
                Ok(read) => self.end += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if self.input.is_damage(&error) => {
                    (self.has_ended, self.damage) = (true, Some(error));
                }
                Err(error) => return Err(ImportError::read(self.input.path())(error)),
            }
        }
        Ok(self.end - self.start >= bytes)
    }
}
