//! A position in the text of a file of /proc. The position advances by words, numbers and lines, in
//! one pass.

use super::text::{ABSENT, leading_number};
use crate::{Incomplete, odd_text};

/// Number of bytes of a name that are compared at a time.
const CHUNK: usize = 8;

/// A position in a text that consists of complete lines.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cursor<'a> {
    rest: &'a [u8],
    whole: &'a [u8], // the whole text, which ends with `rest`
}

impl<'a> Cursor<'a> {
    /// Starts at the first line of a file. Returns `CUT` if the file is empty or does not end in a
    /// newline. Bytes after the last newline are ignored, because the last number there may lack
    /// digits.
    pub(super) fn of(content: &'a [u8]) -> (Self, Incomplete) {
        let end = memchr::memrchr(b'\n', content).map_or(0, |at| at + 1);
        let (whole, rest) = content.split_at(end);
        if !rest.is_empty() {
            note(rest, whole);
        }
        (Self { rest: whole, whole }, Incomplete::CUT.unless(rest.is_empty() && !whole.is_empty()))
    }

    /// Returns whether no line is left.
    #[inline]
    pub(super) fn is_at_end(&self) -> bool {
        self.rest.is_empty()
    }

    /// Returns whether no word is left in this line.
    #[inline]
    pub(super) fn is_at_line_end(&mut self) -> bool {
        self.skip_spaces();
        matches!(self.rest.first(), None | Some(b'\n'))
    }

    /// Goes to the start of the next line.
    #[inline]
    pub(super) fn next_line(&mut self) {
        // Usually only a newline or a unit is left in the line, so no search is needed.
        self.rest = match self.rest {
            [b'\n', after @ ..] | [b' ', b'k', b'B', b'\n', after @ ..] => after,
            _ => memchr::memchr(b'\n', self.rest).and_then(|at| self.rest.get(at + 1..)).unwrap_or_default(),
        };
    }

    /// Calls `parse` with each remaining line and the number of the line. Returns the reasons why
    /// values are missing.
    #[inline]
    pub(super) fn each_line(&mut self, mut parse: impl FnMut(&mut Self, usize) -> Incomplete) -> Incomplete {
        let (mut at, mut incomplete) = (0, Incomplete::NONE);
        while !self.is_at_end() {
            incomplete |= parse(self, at);
            self.next_line();
            at += 1;
        }
        incomplete
    }

    /// Returns the next word of this line, up to a space or a tab.
    #[inline]
    pub(super) fn word(&mut self) -> Option<&'a [u8]> {
        self.skip_spaces();
        self.until(|byte| matches!(byte, b' ' | b'\t'))
    }

    /// Returns the text up to the first byte of this line for which `is_end` returns true, or up to
    /// the end of the line. Returns `None` if this text is empty.
    #[inline]
    pub(super) fn until(&mut self, is_end: impl Fn(u8) -> bool) -> Option<&'a [u8]> {
        let length = self.rest.iter().position(|byte| *byte == b'\n' || is_end(*byte));
        let (word, rest) = self.rest.split_at(length.unwrap_or(self.rest.len()));
        self.rest = rest;
        (!word.is_empty()).then_some(word)
    }

    /// Returns the text of this line before the last `byte`, and moves to the position after that
    /// byte. Returns `None` if the line does not contain `byte`.
    #[inline]
    pub(super) fn until_last(&mut self, byte: u8) -> Option<&'a [u8]> {
        let end = memchr::memchr(b'\n', self.rest).unwrap_or(self.rest.len());
        let at = memchr::memrchr(byte, self.rest.get(..end)?)?;
        let (before, rest) = self.rest.split_at_checked(at)?;
        self.rest = rest.get(1..)?;
        Some(before)
    }

    /// Skips the next word, and a colon after it, if the word is `name`.
    #[inline]
    pub(super) fn skip_name(&mut self, name: &[u8]) -> bool {
        let after = strip_name(self.rest, name).map(|behind| (behind, behind.split_first()));
        let after = match after {
            Some((after, Some((b' ' | b'\t', _)))) => after,
            Some((_, Some((b':', after)))) if matches!(after.first(), Some(b' ' | b'\t' | b'\n')) => after,
            _ => return false,
        };
        self.rest = after;
        true
    }

    /// Returns the next word of this line as a number. Returns `ABSENT` and adds `CUT` to `lacks`
    /// if there is no word, or adds `UNREADABLE` if the word is not a number that fits.
    #[inline]
    pub(super) fn number(&mut self, lacks: &mut Incomplete) -> u64 {
        self.skip_spaces();
        // This is a fast path, because on most hosts most counters are 0.
        if let [digit @ b'0'..=b'9', b' ' | b'\n', ..] = self.rest {
            self.rest = self.rest.get(1..).unwrap_or_default();
            return u64::from(digit - b'0');
        }
        match leading_number(self.rest) {
            Some((value, after)) if matches!(after.first(), None | Some(b' ' | b'\t' | b'\n')) => {
                self.rest = after;
                value
            }
            _ => self.mark_absent(lacks),
        }
    }

    /// Does the same as [`number`](Self::number) for a 32-bit count. Some kernels print such a
    /// count as a negative number when the count is above 2^31. The count is returned modulo 2^32.
    #[inline]
    pub(super) fn wrapped_number(&mut self, lacks: &mut Incomplete) -> u64 {
        self.skip_spaces();
        let Some(after) = self.rest.strip_prefix(b"-") else { return self.number(lacks) };
        match leading_number(after) {
            Some((value @ 1..=0x8000_0000, after))
                if matches!(after.first(), None | Some(b' ' | b'\t' | b'\n')) =>
            {
                self.rest = after;
                (1 << 32) - value
            }
            _ => self.mark_absent(lacks),
        }
    }

    /// Returns the next words of this line as numbers.
    #[inline]
    pub(super) fn numbers<const COUNT: usize>(&mut self, lacks: &mut Incomplete) -> [u64; COUNT] {
        let mut values = [ABSENT; COUNT];
        for value in &mut values {
            *value = self.number(lacks);
        }
        values
    }

    #[inline]
    fn skip_spaces(&mut self) {
        while let Some((&[b' ', b' ', b' ', b' '], after)) = self.rest.split_first_chunk() {
            self.rest = after;
        }
        while let Some((b' ' | b'\t', after)) = self.rest.split_first() {
            self.rest = after;
        }
    }

    /// Notes the line up to and including the next word, which is unexpected. Returns `UNREADABLE`.
    #[cold]
    pub(super) fn unreadable(&mut self) -> Incomplete {
        let mut lacks = Incomplete::UNREADABLE;
        self.mark_absent(&mut lacks);
        lacks
    }

    #[cold]
    fn mark_absent(&mut self, lacks: &mut Incomplete) -> u64 {
        let before = self.whole.get(..self.whole.len() - self.rest.len()).unwrap_or_default();
        // Takes the line up to and including the word.
        let begin = memchr::memrchr(b'\n', before).map_or(0, |at| at + 1);
        let word = self.word();
        let end = before.len() + word.map_or(0, <[u8]>::len);
        *lacks |= if word.is_some() { Incomplete::UNREADABLE } else { Incomplete::CUT };
        note(self.whole.get(begin..end).unwrap_or_default(), before);
        ABSENT
    }
}

/// Returns the part of a text after `name`, if the text begins with `name`. Names are short, so
/// eight bytes are compared at a time, without a function call. Loops are used instead of
/// iterators, because the methods of iterators are not always inlined in a build of several codegen
/// units.
#[inline]
fn strip_name<'a>(text: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let (mut head, after) = text.split_at_checked(name.len())?;
    let mut name = name;
    while let (Some((ours, next_ours)), Some((theirs, next_theirs))) =
        (name.split_first_chunk::<CHUNK>(), head.split_first_chunk::<CHUNK>())
    {
        if ours != theirs {
            return None;
        }
        (name, head) = (next_ours, next_theirs);
    }
    while let ([ours, next_ours @ ..], [theirs, next_theirs @ ..]) = (name, head) {
        if ours != theirs {
            return None;
        }
        (name, head) = (next_ours, next_theirs);
    }
    Some(after)
}

/// Notes the text of a line that lacks a value. `before` is the text before that line, from which
/// the line number is computed.
#[cold]
fn note(line: &[u8], before: &[u8]) {
    if !line.is_empty() {
        odd_text::note(line, memchr::memchr_iter(b'\n', before).count() + 1);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    // Proves that words and numbers never extend across lines, for an empty line, a short line and
    // a truncated line.
    #[test]
    fn lines_are_kept_apart() {
        let (mut cursor, lacks) = Cursor::of(b"a  1 2\n\nb x 18446744073709551615 \nc 5");
        assert_eq!(lacks, Incomplete::CUT);
        let mut lacks = Incomplete::NONE;
        assert_eq!(cursor.word(), Some(&b"a"[..]));
        assert_eq!((cursor.numbers(&mut lacks), lacks), ([1, 2, ABSENT], Incomplete::CUT));
        assert!(cursor.is_at_line_end() && !cursor.is_at_end() && cursor.until_last(b'1').is_none());
        cursor.next_line();
        assert_eq!(cursor.word(), None);
        cursor.next_line();
        let mut lacks = Incomplete::NONE;
        assert!(!cursor.skip_name(b"") && cursor.skip_name(b"b") && !cursor.skip_name(b"x"));
        assert_eq!((cursor.numbers(&mut lacks), lacks), ([ABSENT; 2], Incomplete::UNREADABLE));
        assert!(cursor.is_at_line_end());
        cursor.next_line();
        assert!(cursor.is_at_end() && cursor.is_at_line_end() && cursor.word().is_none());
        cursor.next_line();
        assert!(cursor.is_at_end());
        assert_eq!(Cursor::of(b"").1, Incomplete::CUT);
        assert_eq!(Cursor::of(b"a\n").1, Incomplete::NONE);
    }

    // Proves that the line that lacks a value is noted, for the log and for `status`.
    #[test]
    fn the_line_of_a_missing_value_is_noted() {
        let _earlier = odd_text::take();
        let noted = || odd_text::take().map(|odd| odd.to_string());
        let (mut cursor, _) = Cursor::of(b"a 1\nb 2\nc 5");
        assert_eq!(noted().as_deref(), Some("line 3: \"c 5\""));
        cursor.next_line();
        cursor.word();
        let mut lacks = Incomplete::NONE;
        let _: [u64; 2] = cursor.numbers(&mut lacks);
        assert_eq!((noted().as_deref(), lacks), (Some("line 2: \"b 2\""), Incomplete::CUT));
        let (mut cursor, _) = Cursor::of(b"");
        cursor.number(&mut lacks);
        assert_eq!(noted(), None);
    }

    proptest! {
        // Proves that no input causes a panic.
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(prop_oneof![b'0'..=b'9', Just(b' '), Just(b'\n'), any::<u8>()], 0..40)) {
            let (mut cursor, mut lacks) = Cursor::of(&bytes);
            for _ in 0..50 {
                let _ = cursor.number(&mut lacks);
                if cursor.is_at_line_end() {
                    cursor.next_line();
                }
            }
        }
    }
}
