//! The text of a document. While the text is read, lines are counted and decimal commas are
//! replaced by points.

use std::cell::Cell;
use std::io::{self, BufRead, Read};
use std::rc::Rc;

use crate::findings::Tally;

/// The number of the current line, counted from 1.
#[derive(Debug, Clone)]
pub(super) struct LineNumber(Rc<Cell<u64>>);

impl LineNumber {
    pub(super) fn new() -> Self {
        Self(Rc::new(Cell::new(1)))
    }

    pub(super) fn get(&self) -> u64 {
        self.0.get()
    }
}

/// The text of a JSON document.
///
/// In a locale with a decimal comma, sadf prints numbers such as 4,97. JSON has no comma between
/// two digits in an object, so such a comma is a decimal mark.
pub(super) struct SarText<R> {
    input: R,
    line: LineNumber,
    /// For each open bracket, whether it begins an object.
    objects: Vec<bool>,
    is_in_text: bool,
    is_escaped: bool,
    last: u8,
    /// Tally of the decimal commas.
    pub(super) commas: Tally,
}

/// Maximum number of open brackets whose kind is stored.
const LEVELS_MAX: usize = 256;

impl<R: BufRead> SarText<R> {
    pub(super) fn new(input: R, line: LineNumber) -> Self {
        let commas = Tally::default();
        Self { input, line, objects: Vec::new(), is_in_text: false, is_escaped: false, last: b' ', commas }
    }

    pub(super) fn input(&self) -> &R {
        &self.input
    }

    /// Returns whether the comma just read is between two digits in an object.
    fn is_decimal_comma(&mut self) -> io::Result<bool> {
        let may_be = self.last.is_ascii_digit() && self.objects.last() == Some(&true);
        Ok(may_be && self.input.fill_buf()?.first().is_some_and(u8::is_ascii_digit))
    }

    /// Returns the byte that the parser gets. A decimal comma becomes a point. Any other byte is
    /// unchanged.
    fn byte(&mut self, byte: u8) -> io::Result<u8> {
        if self.is_in_text {
            self.is_in_text = byte != b'"' || self.is_escaped;
            self.is_escaped = byte == b'\\' && !self.is_escaped;
        } else {
            match byte {
                b'"' => self.is_in_text = true,
                b'{' | b'[' if self.objects.len() < LEVELS_MAX => self.objects.push(byte == b'{'),
                b'}' | b']' => _ = self.objects.pop(),
                b',' if self.is_decimal_comma()? => {
                    self.commas.add(self.line.get());
                    self.last = b'.';
                    return Ok(b'.');
                }
                _ => {}
            }
        }
        if byte == b'\n' {
            self.line.0.set(self.line.get() + 1);
        }
        self.last = byte;
        Ok(byte)
    }
}

impl<R: BufRead> Read for SarText<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        // Returns one byte at a time, so that the line number belongs to the byte that is being
        // parsed.
        let (Some(place), Some(byte)) = (buffer.first_mut(), self.input.fill_buf()?.first().copied()) else {
            return Ok(0);
        };
        self.input.consume(1);
        *place = self.byte(byte)?;
        Ok(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that decimal commas in objects become points, that other commas stay, and that lines
    // are counted. Commas in lists, in strings and between members are not decimal.
    #[test]
    fn decimal_commas_become_points() {
        let text = "{\"a,1\": 4,97,\n\"b\": [1,2], \"c\": {\"d\": 61,66},\n\"e\": \"1,2\\\"3,4\"}";
        let mut input = SarText::new(text.as_bytes(), LineNumber::new());
        let mut found = String::new();
        input.read_to_string(&mut found).unwrap();
        assert_eq!(found, text.replace("4,97", "4.97").replace("61,66", "61.66"));
        assert_eq!(input.commas, Tally { line: 1, count: 2 });
        assert_eq!(input.line.get(), 3);
    }
}
