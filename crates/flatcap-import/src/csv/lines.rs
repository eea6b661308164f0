//! Lines of a file, with their numbers and offsets.

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader};

use super::text_encoding::DecodedInput;

/// A line of a file.
#[derive(Debug, Clone, Default)]
pub(super) struct Line {
    /// The bytes without the line ending.
    pub(super) bytes: Vec<u8>,
    /// The line ending, which is a line feed, a carriage return or both. The line ending may be
    /// empty in the last line of the file.
    pub(super) end: &'static [u8],
    /// The line number, counted from 1.
    pub(super) number: u64,
    /// The offset in the decompressed and decoded content, in bytes.
    pub(super) offset: u64,
}

/// Reads lines one by one. The caller can give lines back, to read them again.
pub(super) struct Lines {
    reader: BufReader<DecodedInput>,
    returned: VecDeque<Line>,
    number: u64,
    offset: u64,
}

impl Lines {
    pub(super) fn new(input: DecodedInput, buffer_bytes: usize) -> Self {
        let offset = input.skipped();
        let reader = BufReader::with_capacity(buffer_bytes, input);
        Self { reader, returned: VecDeque::new(), number: 0, offset }
    }

    pub(super) fn input(&self) -> &DecodedInput {
        self.reader.get_ref()
    }

    /// Returns the offset of the next line.
    pub(super) fn offset(&self) -> u64 {
        self.returned.front().map_or(self.offset, |line| line.offset)
    }

    /// Returns the next line, or `None` at the end of the file.
    ///
    /// # Errors
    /// The input cannot be read.
    pub(super) fn next(&mut self) -> io::Result<Option<Line>> {
        if let Some(line) = self.returned.pop_front() {
            return Ok(Some(line));
        }
        self.input().renew_budget();
        let mut line = Line { number: self.number + 1, offset: self.offset, ..Line::default() };
        loop {
            let buffer = self.reader.fill_buf()?;
            if buffer.is_empty() {
                if line.bytes.is_empty() {
                    return Ok(None);
                }
                break;
            }
            let end = memchr::memchr2(b'\n', b'\r', buffer);
            let text = buffer.get(..end.unwrap_or(buffer.len())).unwrap_or_default();
            line.bytes.extend_from_slice(text);
            let is_return = end.and_then(|end| buffer.get(end)) == Some(&b'\r');
            let used = text.len() + usize::from(end.is_some());
            self.reader.consume(used);
            if end.is_none() {
                continue;
            }
            line.end = if !is_return {
                b"\n"
            } else if self.reader.fill_buf()?.first() == Some(&b'\n') {
                self.reader.consume(1);
                b"\r\n"
            } else {
                b"\r"
            };
            break;
        }
        self.number += 1;
        self.offset += (line.bytes.len() + line.end.len()) as u64;
        Ok(Some(line))
    }

    /// Returns whether `next` still has to return lines that were given back.
    pub(super) fn has_returned(&self) -> bool {
        !self.returned.is_empty()
    }

    /// Gives lines back. `next` returns these lines again, in the same order.
    pub(super) fn give_back(&mut self, lines: Vec<Line>) {
        for line in lines.into_iter().rev() {
            self.returned.push_front(line);
        }
    }
}
