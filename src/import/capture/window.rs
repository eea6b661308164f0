//! The buffered part of a file, with its offset.

use std::io::{self, Read};
use std::ops::Range;

use crate::import::Input;

/// Maximum length of the window, in bytes; also the read size.
pub(super) const WINDOW_BYTES: usize = 512 << 10;

/// The buffered part of a file.
#[derive(Debug)]
pub(super) struct CaptureWindow {
    input: Input,
    bytes: Vec<u8>,
    start: usize, // <= end
    end: usize,   // <= bytes.len()
    offset: u64,  // of `start`, in the decompressed content
    is_end: bool, // the file has no bytes after `end`
    damage: Option<String>,
}

impl CaptureWindow {
    pub(super) fn new(input: Input) -> Self {
        let bytes = vec![0; WINDOW_BYTES];
        Self { input, bytes, start: 0, end: 0, offset: 0, is_end: false, damage: None }
    }

    pub(super) fn input(&self) -> &Input {
        &self.input
    }

    /// Returns the offset of the window.
    #[inline]
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns whether the file has no bytes after the window.
    pub(super) fn is_end(&self) -> bool {
        self.is_end
    }

    /// Returns, once, the reason why a compressed file ended early.
    pub(super) fn take_damage(&mut self) -> Option<String> {
        self.damage.take()
    }

    #[inline]
    pub(super) fn bytes(&self) -> &[u8] {
        self.bytes.get(self.start..self.end).unwrap_or_default()
    }

    /// Reads until the window has this many bytes or the file ends; at most [`WINDOW_BYTES`].
    pub(super) fn fill(&mut self, bytes: usize) -> io::Result<()> {
        if self.end - self.start >= bytes || self.is_end {
            return Ok(());
        }
        self.bytes.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        while self.end < bytes.min(WINDOW_BYTES) && !self.is_end {
            let free = self.bytes.get_mut(self.end..).unwrap_or_default();
            match self.input.read(free) {
                Ok(0) => self.is_end = true,
                Ok(read) => self.end += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if self.input.is_damage(&error) => {
                    self.is_end = true;
                    self.damage = Some(format!("the gzip data is truncated or damaged here: {error}"));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Advances over bytes in the window.
    #[inline]
    pub(super) fn advance(&mut self, bytes: usize) {
        let bytes = bytes.min(self.end - self.start);
        self.start += bytes;
        self.offset += bytes as u64;
    }

    /// Advances over `end` bytes. Returns the range `at` in the form that
    /// [`consumed`](Self::consumed) takes.
    #[inline]
    pub(super) fn advance_over(&mut self, at: Range<usize>, end: usize) -> Range<usize> {
        let at = self.start + at.start..self.start + at.end;
        self.advance(end);
        at
    }

    /// Returns bytes that were advanced over; valid until more are read.
    #[inline]
    pub(super) fn consumed(&self, at: Range<usize>) -> &[u8] {
        self.bytes.get(at).unwrap_or_default()
    }

    /// Advances over bytes that need not be in the window. Returns how many there were.
    pub(super) fn skip(&mut self, bytes: u64) -> io::Result<u64> {
        let begin = self.offset;
        loop {
            let rest = bytes - (self.offset - begin);
            self.advance(usize::try_from(rest).unwrap_or(usize::MAX));
            if self.offset - begin == bytes || self.is_end {
                return Ok(self.offset - begin);
            }
            self.fill(1)?;
        }
    }
}
