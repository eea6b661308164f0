//! The piece of a file that is looked at, and where it stands in it.

use std::io::{self, Read};
use std::ops::Range;

use crate::import::Input;

/// Bytes that are looked at together; as many are read at once.
pub(super) const WINDOW_BYTES: usize = 512 << 10;

/// The piece of a file that is looked at.
#[derive(Debug)]
pub(super) struct Window {
    input: Input,
    bytes: Vec<u8>,
    start: usize, // <= end
    end: usize,   // <= bytes'
    offset: u64,  // of start, in what is in the file
    is_end: bool, // nothing comes behind end
    damage: Option<String>,
}

impl Window {
    pub(super) fn new(input: Input) -> Self {
        let bytes = vec![0; WINDOW_BYTES];
        Self { input, bytes, start: 0, end: 0, offset: 0, is_end: false, damage: None }
    }

    pub(super) fn input(&self) -> &Input {
        &self.input
    }

    /// Where the window begins.
    #[inline]
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// Whether the file has no more bytes than those in the window.
    pub(super) fn is_end(&self) -> bool {
        self.is_end
    }

    /// Why a packed file ended before its end, told once.
    pub(super) fn take_damage(&mut self) -> Option<String> {
        self.damage.take()
    }

    #[inline]
    pub(super) fn bytes(&self) -> &[u8] {
        self.bytes.get(self.start..self.end).unwrap_or_default()
    }

    /// Reads until the window has so many bytes, or the file no more. More than [`WINDOW_BYTES`] it never has.
    pub(super) fn want(&mut self, bytes: usize) -> io::Result<()> {
        if self.end - self.start >= bytes || self.is_end {
            return Ok(());
        }
        self.bytes.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        while self.end < bytes.min(WINDOW_BYTES) && !self.is_end {
            let room = self.bytes.get_mut(self.end..).unwrap_or_default();
            match self.input.read(room) {
                Ok(0) => self.is_end = true,
                Ok(read) => self.end += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if self.input.is_damage(&error) => {
                    self.is_end = true;
                    self.damage = Some(format!("what gzip has packed is cut or damaged here: {error}"));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Goes on behind bytes that are in the window.
    #[inline]
    pub(super) fn pass(&mut self, bytes: usize) {
        let bytes = bytes.min(self.end - self.start);
        self.start += bytes;
        self.offset += bytes as u64;
    }

    /// Goes on behind `end` and tells where the bytes of `at` stand for [`passed`](Self::passed).
    #[inline]
    pub(super) fn pass_with(&mut self, at: Range<usize>, end: usize) -> Range<usize> {
        let at = self.start + at.start..self.start + at.end;
        self.pass(end);
        at
    }

    /// Bytes that were passed; they are there until more is wanted.
    #[inline]
    pub(super) fn passed(&self, at: Range<usize>) -> &[u8] {
        self.bytes.get(at).unwrap_or_default()
    }

    /// Goes on behind bytes that need not be in the window; how many there were.
    pub(super) fn pass_far(&mut self, bytes: u64) -> io::Result<u64> {
        let begin = self.offset;
        loop {
            let rest = bytes - (self.offset - begin);
            self.pass(usize::try_from(rest).unwrap_or(usize::MAX));
            if self.offset - begin == bytes || self.is_end {
                return Ok(self.offset - begin);
            }
            self.want(1)?;
        }
    }
}
