//! Reads lines with their offsets, in constant memory.

use std::io::Read;
use std::ops::Range;
use std::path::Path;

use super::row::LINE_BYTES_MAX;
use crate::error::ImportError;
use crate::input::Input;

/// Size of the buffer, in bytes. The buffer holds two lines of the maximum length.
const BUFFER_BYTES: usize = 256 << 10;
const _: () = assert!(BUFFER_BYTES > 2 * LINE_BYTES_MAX, "a line and its end fit");

/// The UTF-8 byte order mark, which a text file may begin with.
const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

/// A line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TextLine<'b> {
    /// Offset of the start of the line in the decompressed content, in bytes.
    pub(super) offset: u64,
    /// The line's content.
    pub(super) text: LineText<'b>,
}

/// The content of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LineText<'b> {
    /// The text without the end of line.
    Complete(&'b [u8]),
    /// The last line of a file, if it has no line terminator.
    Unended(&'b [u8]),
    /// An empty line that is followed by further lines.
    Blank,
    /// A line of more than [`LINE_BYTES_MAX`] bytes, which was skipped.
    TooLong,
}

/// Reads the lines of a file.
#[derive(Debug)]
pub(super) struct LineReader {
    input: Input,
    buffer: Box<[u8]>,
    start: usize, // of the unread bytes: <= end
    end: usize,   // of the bytes read: <= buffer.len()
    offset: u64,  // of `start`
    blanks: u64,  // empty lines found but not returned yet
    blank_offset: u64,
    has_ended: bool,
    damage: Option<String>,
}

impl LineReader {
    pub(super) fn new(input: Input) -> Self {
        Self {
            input,
            buffer: vec![0; BUFFER_BYTES].into(),
            start: 0,
            end: 0,
            offset: 0,
            blanks: 0,
            blank_offset: 0,
            has_ended: false,
            damage: None,
        }
    }

    pub(super) fn path(&self) -> &Path {
        self.input.path()
    }

    pub(super) fn is_packed(&self) -> bool {
        self.input.is_compressed()
    }

    /// Returns the current offset in the decompressed content, in bytes.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns the reason why the compressed content cannot be read further. The line at that point
    /// is not returned.
    pub(super) fn damage(&self) -> Option<&str> {
        self.damage.as_deref()
    }

    /// Returns the first unread bytes, which are at most a full buffer. Unless the file ends, at
    /// least half a buffer is returned.
    ///
    /// # Errors
    /// [`ImportError::Read`].
    pub(super) fn peek(&mut self) -> Result<&[u8], ImportError> {
        while !self.has_ended && self.end - self.start < BUFFER_BYTES / 2 {
            self.fill()?;
        }
        if self.offset == 0 && self.unread().starts_with(BYTE_ORDER_MARK) {
            self.advance(BYTE_ORDER_MARK.len());
        }
        Ok(self.unread())
    }

    /// Returns the next line. Skips empty lines at the end of the file.
    ///
    /// # Errors
    /// [`ImportError::Read`].
    pub(super) fn next(&mut self) -> Result<Option<TextLine<'_>>, ImportError> {
        if self.offset == 0 {
            self.peek()?;
        }
        loop {
            let Some((line, next_start, is_ended)) = self.find_line()? else { return Ok(None) };
            let length = line.len();
            let offset = self.offset;
            if length == 0 && is_ended {
                if self.blanks == 0 {
                    self.blank_offset = offset;
                }
                self.blanks += 1;
                self.advance(next_start - self.start);
                continue;
            }
            if self.blanks > 0 {
                self.blanks -= 1;
                return Ok(Some(TextLine { offset: self.blank_offset, text: LineText::Blank }));
            }
            if length > LINE_BYTES_MAX {
                self.skip_line()?;
                return Ok(Some(TextLine { offset, text: LineText::TooLong }));
            }
            self.advance(next_start - self.start);
            let text = self.buffer.get(line).unwrap_or_default();
            let text = if is_ended { LineText::Complete(text) } else { LineText::Unended(text) };
            return Ok(Some(TextLine { offset, text }));
        }
    }

    /// Returns the range of the next line in the buffer, the start of the line after it, and
    /// whether the next line has a line terminator. For a line that is too long, returns the part
    /// that was read so far.
    fn find_line(&mut self) -> Result<Option<(Range<usize>, usize, bool)>, ImportError> {
        let mut searched = 0;
        loop {
            let unread = self.unread();
            if let Some(at) = memchr::memchr(b'\n', unread.get(searched..).unwrap_or_default()) {
                let length = searched + at;
                let has_return = unread.get(..length).is_some_and(|line| line.ends_with(b"\r"));
                let line = self.start..self.start + length - usize::from(has_return);
                return Ok(Some((line, self.start + length + 1, true)));
            }
            searched = unread.len();
            if searched > LINE_BYTES_MAX + 1 {
                return Ok(Some((self.start..self.end, self.end, false)));
            }
            if self.has_ended {
                // After damage, the rest of the last line is unknown, so this line is not returned.
                let is_line = searched > 0 && self.damage.is_none();
                return Ok(is_line.then_some((self.start..self.end, self.end, false)));
            }
            self.fill()?;
        }
    }

    /// Skips to the end of the current line.
    fn skip_line(&mut self) -> Result<(), ImportError> {
        loop {
            let unread = self.unread();
            if let Some(at) = memchr::memchr(b'\n', unread) {
                self.advance(at + 1);
                return Ok(());
            }
            self.advance(unread.len());
            if self.has_ended {
                return Ok(());
            }
            self.fill()?;
        }
    }

    #[inline]
    fn unread(&self) -> &[u8] {
        self.buffer.get(self.start..self.end).unwrap_or_default()
    }

    #[inline]
    fn advance(&mut self, bytes: usize) {
        self.start += bytes;
        self.offset += bytes as u64;
    }

    /// Reads more bytes and appends them to the bytes in the buffer.
    #[cold]
    fn fill(&mut self) -> Result<(), ImportError> {
        self.buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        let free = self.buffer.get_mut(self.end..).unwrap_or_default();
        match self.input.read(free) {
            Ok(read) => {
                self.end += read;
                self.has_ended = read == 0;
            }
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) if self.input.is_damage(&error) => {
                self.has_ended = true;
                self.damage = Some(error.to_string());
            }
            Err(error) => return Err(ImportError::read(self.input.path())(error)),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(content: &[u8]) -> LineReader {
        LineReader::new(Input::from_reader(
            Path::new("a"),
            Box::new(std::io::Cursor::new(content.to_vec())),
            false,
        ))
    }

    fn all(content: &[u8]) -> Vec<(u64, Vec<u8>)> {
        let mut lines = lines(content);
        let mut found = Vec::new();
        while let Some(line) = lines.next().unwrap() {
            let text = match line.text {
                LineText::Complete(text) => text.to_vec(),
                LineText::Unended(text) => [text, b"|"].concat(),
                LineText::Blank => b"blank".to_vec(),
                LineText::TooLong => b"long".to_vec(),
            };
            found.push((line.offset, text));
        }
        assert_eq!(lines.offset(), content.len() as u64);
        found
    }

    // Proves that each line is returned exactly once with its offset, whatever its line ending is.
    #[test]
    fn lines_have_their_offsets() {
        let texts = |content: &[u8]| {
            let found = all(content).into_iter();
            found.map(|(at, text)| (at, String::from_utf8(text).unwrap())).collect::<Vec<_>>()
        };
        let line = |at: u64, text: &str| (at, text.to_owned());
        assert_eq!(texts(b""), []);
        assert_eq!(texts(b"\n\r\n\n"), []);
        assert_eq!(texts(b"ab\nc\r\n\r\n"), [line(0, "ab"), line(3, "c")]);
        assert_eq!(texts(b"ab\nc"), [line(0, "ab"), line(3, "c|")]);
        assert_eq!(
            texts(b"\nab\n\n\r\nc\n"),
            [line(0, "blank"), line(1, "ab"), line(4, "blank"), line(4, "blank"), line(7, "c")]
        );
        assert_eq!(texts(b"\xEF\xBB\xBFab\nc\n"), [line(3, "ab"), line(6, "c")]);
        assert_eq!(texts(b"a\rb\n"), [line(0, "a\rb")]);
    }

    // Proves that a line of the maximum length is returned, that a longer line is skipped in
    // constant memory, and that the lines after it are read.
    #[test]
    fn long_lines_are_skipped() {
        for length in [
            LINE_BYTES_MAX - 1,
            LINE_BYTES_MAX,
            LINE_BYTES_MAX + 1,
            LINE_BYTES_MAX + 2,
            BUFFER_BYTES - 1,
            BUFFER_BYTES,
            BUFFER_BYTES + 1,
            5 * BUFFER_BYTES + 3,
        ] {
            let long = vec![b'7'; length];
            let is_line = length <= LINE_BYTES_MAX;
            let found = all(&[b"first\n", long.as_slice(), b"\nlast\n"].concat());
            assert_eq!(found.len(), 3, "{length}");
            assert_eq!((found[1].0, found[1].1 == b"long", found[1].1 == long), (6, !is_line, is_line));
            assert_eq!(found[2], (6 + length as u64 + 1, b"last".to_vec()));
            let found = all(&[b"first\n", long.as_slice()].concat());
            assert_eq!((found.len(), found[1].1 == b"long"), (2, !is_line), "{length}");
        }
    }

    // Proves that lines across buffer boundaries are read correctly.
    #[test]
    fn lines_cross_buffers() {
        let content: Vec<u8> =
            (1..3000_usize).flat_map(|n| [vec![b'x'; n % 977 + 1], vec![b'\n']].concat()).collect();
        let expected: Vec<&[u8]> =
            content.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).collect();
        let found = all(&content);
        assert_eq!(found.len(), expected.len());
        for ((at, found), expected) in found.iter().zip(&expected) {
            assert!(found == expected && content[usize::try_from(*at).unwrap()..].starts_with(expected));
        }
    }
}
