//! Lines of a file in constant memory, each with its place.

use std::io::Read;
use std::ops::Range;
use std::path::Path;

use super::row::LINE_BYTES_MAX;
use crate::import::error::ImportError;
use crate::import::input::Input;

/// How much is read at once, in bytes; a line of the greatest length fits in twice.
const BUFFER_BYTES: usize = 256 << 10;
const _: () = assert!(BUFFER_BYTES > 2 * LINE_BYTES_MAX, "a line and its end fit");

/// What a text file may begin with to say that it is UTF-8.
const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

/// One line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Line<'b> {
    /// Where it begins, in bytes from the start of what is in the file.
    pub(super) offset: u64,
    /// What it says.
    pub(super) text: Text<'b>,
}

/// What a line says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Text<'b> {
    /// Without its end.
    Whole(&'b [u8]),
    /// The last line of a file that ends without an end of line.
    Unended(&'b [u8]),
    /// Nothing, though more lines follow.
    Blank,
    /// More than [`LINE_BYTES_MAX`]; it was passed over.
    Long,
}

/// The lines of a file.
#[derive(Debug)]
pub(super) struct Lines {
    input: Input,
    buffer: Box<[u8]>,
    start: usize, // of what was not given out: <= end
    end: usize,   // of what was read: <= buffer's length
    offset: u64,  // of `start`
    blanks: u64,  // empty lines that were found and not given out
    blank_offset: u64,
    has_ended: bool,
    damage: Option<String>,
}

impl Lines {
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
        self.input.is_packed()
    }

    /// Up to where it has been read, in bytes from the start of what is in the file.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// Why what is packed in the file cannot be read any further. The line that this cut is not given out.
    pub(super) fn damage(&self) -> Option<&str> {
        self.damage.as_deref()
    }

    /// The first bytes of what was not given out: a buffer full, or all there is.
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

    /// The next line. Empty ones at the end of the file are none.
    ///
    /// # Errors
    /// [`ImportError::Read`].
    pub(super) fn next(&mut self) -> Result<Option<Line<'_>>, ImportError> {
        if self.offset == 0 {
            self.peek()?;
        }
        loop {
            let Some((line, behind, is_ended)) = self.find()? else { return Ok(None) };
            let length = line.len();
            let offset = self.offset;
            if length == 0 && is_ended {
                if self.blanks == 0 {
                    self.blank_offset = offset;
                }
                self.blanks += 1;
                self.advance(behind - self.start);
                continue;
            }
            if self.blanks > 0 {
                self.blanks -= 1;
                return Ok(Some(Line { offset: self.blank_offset, text: Text::Blank }));
            }
            if length > LINE_BYTES_MAX {
                self.pass_over_line()?;
                return Ok(Some(Line { offset, text: Text::Long }));
            }
            self.advance(behind - self.start);
            let text = self.buffer.get(line).unwrap_or_default();
            let text = if is_ended { Text::Whole(text) } else { Text::Unended(text) };
            return Ok(Some(Line { offset, text }));
        }
    }

    /// Where the next line lies in the buffer, where the one behind it begins, and whether it has an end; of a line that is too long what was
    /// read of it.
    fn find(&mut self) -> Result<Option<(Range<usize>, usize, bool)>, ImportError> {
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
                // Of what was damaged nobody knows how the last line went on.
                let is_line = searched > 0 && self.damage.is_none();
                return Ok(is_line.then_some((self.start..self.end, self.end, false)));
            }
            self.fill()?;
        }
    }

    /// Goes behind the end of the line that begins here.
    fn pass_over_line(&mut self) -> Result<(), ImportError> {
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

    /// Reads more behind what is there.
    #[cold]
    fn fill(&mut self) -> Result<(), ImportError> {
        self.buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        let room = self.buffer.get_mut(self.end..).unwrap_or_default();
        match self.input.read(room) {
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

    fn lines(content: &[u8]) -> Lines {
        Lines::new(Input::of(Path::new("a"), Box::new(std::io::Cursor::new(content.to_vec())), false))
    }

    fn all(content: &[u8]) -> Vec<(u64, Vec<u8>)> {
        let mut lines = lines(content);
        let mut found = Vec::new();
        while let Some(line) = lines.next().unwrap() {
            let text = match line.text {
                Text::Whole(text) => text.to_vec(),
                Text::Unended(text) => [text, b"|"].concat(),
                Text::Blank => b"blank".to_vec(),
                Text::Long => b"long".to_vec(),
            };
            found.push((line.offset, text));
        }
        assert_eq!(lines.offset(), content.len() as u64);
        found
    }

    // Goal: each line is given out once, with its place, whatever ends it. Method: all kinds of ends, blank lines in the middle and at the
    // end, a byte order mark, a last line without an end.
    #[test]
    fn lines_have_their_places() {
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

    // Goal: a line of the greatest length is a line, one beyond is passed over and what follows is not; memory does not grow. Method: lengths
    // around the limit and around the buffer, with and without an end.
    #[test]
    fn long_lines_are_passed_over() {
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

    // Goal: many lines over many buffers come out as they are. Method: lines of many lengths against `split`.
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
