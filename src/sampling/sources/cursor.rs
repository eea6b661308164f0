//! A position in the text of /proc that advances by words, numbers and lines, in one pass.

use super::text::ABSENT;
use crate::sampling::Incomplete;

/// Bytes converted to a number at once.
const CHUNK: usize = 8;
/// Digits of the largest 64-bit number.
const DIGITS_MAX: usize = 20;

/// A position in complete lines.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cursor<'a> {
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    /// Starts at the first line of a file. Returns `CUT` if the file is empty or does not end in a
    /// newline. Bytes after the last newline are ignored: the last number there may lack digits.
    pub(super) fn of(content: &'a [u8]) -> (Self, Incomplete) {
        let end = memchr::memrchr(b'\n', content).map_or(0, |at| at + 1);
        let (whole, rest) = content.split_at(end);
        (Self { rest: whole }, Incomplete::CUT.unless(rest.is_empty() && !whole.is_empty()))
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
        // On most lines only a unit is left: no search is needed.
        self.rest = match self.rest {
            [b'\n', after @ ..] | [b' ', b'k', b'B', b'\n', after @ ..] => after,
            _ => memchr::memchr(b'\n', self.rest).and_then(|at| self.rest.get(at + 1..)).unwrap_or_default(),
        };
    }

    /// Returns the next word of this line, up to a space or a tab.
    #[inline]
    pub(super) fn word(&mut self) -> Option<&'a [u8]> {
        self.skip_spaces();
        self.until(|byte| matches!(byte, b' ' | b'\t'))
    }

    /// Returns the text up to the first byte of this line for which `is_end` holds, or up to the
    /// end of the line. None if it is empty.
    #[inline]
    pub(super) fn until(&mut self, is_end: impl Fn(u8) -> bool) -> Option<&'a [u8]> {
        let length = self.rest.iter().position(|byte| *byte == b'\n' || is_end(*byte));
        let (word, rest) = self.rest.split_at(length.unwrap_or(self.rest.len()));
        self.rest = rest;
        (!word.is_empty()).then_some(word)
    }

    /// Returns the text of this line before the last `byte`, and moves after that byte. None if the
    /// line does not contain it.
    #[inline]
    pub(super) fn until_last(&mut self, byte: u8) -> Option<&'a [u8]> {
        let end = memchr::memchr(b'\n', self.rest).unwrap_or(self.rest.len());
        let at = memchr::memrchr(byte, self.rest.get(..end)?)?;
        let (before, rest) = self.rest.split_at_checked(at)?;
        self.rest = rest.get(1..)?;
        Some(before)
    }

    /// Skips `name`, and a colon after it, if it is the next word.
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
    /// if there is no word, or `UNREADABLE` if the word is not a number that fits.
    #[inline]
    pub(super) fn number(&mut self, lacks: &mut Incomplete) -> u64 {
        self.skip_spaces();
        // Most counters of most hosts are 0.
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

    #[cold]
    fn mark_absent(&mut self, lacks: &mut Incomplete) -> u64 {
        *lacks |= if self.word().is_some() { Incomplete::UNREADABLE } else { Incomplete::CUT };
        ABSENT
    }
}

/// Returns the rest of a text that begins with `name`. Names are short, so eight bytes are compared
/// at a time, without a function call.
#[inline]
fn strip_name<'a>(text: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let (head, after) = text.split_at_checked(name.len())?;
    let (chunks, rest) = name.as_chunks::<CHUNK>();
    let (head_chunks, head_rest) = head.as_chunks::<CHUNK>();
    let is_name = chunks.iter().zip(head_chunks).all(|(ours, theirs)| ours == theirs)
        && match (name.last_chunk::<CHUNK>(), head.last_chunk::<CHUNK>()) {
            (Some(ours), Some(theirs)) => ours == theirs,
            _ => rest.iter().eq(head_rest),
        };
    is_name.then_some(after)
}

/// Returns the number that a text begins with, and the rest. None without a digit, or if the number
/// is too large or is `ABSENT`.
///
/// Works on eight bytes at a time: all are checked for digits at once, and added up in pairs, fours
/// and eights.
#[inline]
pub(super) fn leading_number(text: &[u8]) -> Option<(u64, &[u8])> {
    let Some(chunk) = text.first_chunk::<CHUNK>() else { return parse_by_digits(text) };
    let (value, length) = leading_digits(*chunk);
    if length == 0 {
        return None;
    }
    let after = text.get(length..)?;
    if length < CHUNK {
        return Some((value, after));
    }
    match after.first_chunk::<CHUNK>().map(|chunk| leading_digits(*chunk)) {
        // At most fifteen digits.
        Some((low, length)) if length < CHUNK => {
            let shift = POWERS.get(length).copied().unwrap_or(1);
            Some((value * shift + low, after.get(length..)?))
        }
        _ => parse_by_digits(text),
    }
}

/// Powers of ten by exponent.
const POWERS: [u64; CHUNK] = [1, 10, 100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000];

/// Returns the number that eight bytes begin with, and the number of its digits.
#[inline]
fn leading_digits(chunk: [u8; CHUNK]) -> (u64, usize) {
    const ZEROS: u64 = 0x3030_3030_3030_3030;
    const HIGH_BITS: u64 = 0x8080_8080_8080_8080;
    // A byte of 10 or more gets its high bit; a carry reaches only the bytes after it.
    const ABOVE_NINE: u64 = 0x7676_7676_7676_7676;
    let digits = u64::from_le_bytes(chunk) ^ ZEROS;
    let others = (digits.wrapping_add(ABOVE_NINE) | digits) & HIGH_BITS;
    let length = others.trailing_zeros() / 8;
    // Shifts zeros in before the digits, so that there are always eight.
    let digits = digits.checked_shl(u64::BITS - length * 8).unwrap_or(0);
    let pairs = (digits.wrapping_mul(10)).wrapping_add(digits >> 8) & 0x00FF_00FF_00FF_00FF;
    let fours = (pairs.wrapping_mul(100)).wrapping_add(pairs >> 16) & 0x0000_FFFF_0000_FFFF;
    let value = (fours.wrapping_mul(10_000)).wrapping_add(fours >> 32) & 0xFFFF_FFFF;
    (value, length as usize)
}

/// The same digit by digit: at the end of a text, and for long numbers.
#[cold]
fn parse_by_digits(text: &[u8]) -> Option<(u64, &[u8])> {
    let length = text.iter().take(DIGITS_MAX + 1).take_while(|byte| byte.is_ascii_digit()).count();
    let (digits, after) = text.split_at_checked(length)?;
    let value = digits
        .iter()
        .try_fold(0_u64, |value, digit| value.checked_mul(10)?.checked_add(u64::from(digit - b'0')))?;
    ((1..=DIGITS_MAX).contains(&length) && value != ABSENT).then_some((value, after))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(text: &[u8]) -> Option<(u64, usize)> {
        leading_number(text).map(|(value, after)| (value, text.len() - after.len()))
    }

    // Proves that numbers are exact or absent, at the limits of 64 bits and of chunks.
    #[test]
    fn numbers_are_exact_or_absent() {
        for text in [
            "0",
            "7 ",
            "12345678",
            "12345678 ",
            "123456789012345",
            "1234567890123456\n",
            "18446744073709551614",
        ] {
            let expected = text.trim_end();
            assert_eq!(read(text.as_bytes()), Some((expected.parse().unwrap(), expected.len())), "{text}");
        }
        for text in [
            "",
            " 1",
            "x",
            "18446744073709551615",
            "18446744073709551616",
            "99999999999999999999999 ",
            "-1234567",
            ":2345678",
        ] {
            assert_eq!(read(text.as_bytes()), None, "{text}");
        }
        assert_eq!(read(b"00000000000000000000007 "), None, "no file of the kernel pads like this");
    }

    // Proves that words and numbers never cross lines: an empty line, a short one and a cut one.
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

    proptest! {
        // Proves that any number is read as by the standard library, whatever follows it.
        #[test]
        fn numbers_agree_with_the_standard_library(value in 0..u64::MAX, shift in 0..64_u32, behind in "[ \nx:-]?[0-9 \n]{0,12}") {
            let digits = (value >> shift).to_string();
            let after = if behind.starts_with(|byte: char| byte.is_ascii_digit()) { String::new() } else { behind };
            let text = digits.clone() + &after;
            prop_assert_eq!(read(text.as_bytes()), Some((value >> shift, digits.len())));
        }

        // Proves that no bytes panic, and that only numbers are read as numbers.
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(prop_oneof![b'0'..=b'9', Just(b' '), Just(b'\n'), any::<u8>()], 0..40)) {
            if let Some((value, length)) = read(&bytes) {
                let digits = std::str::from_utf8(&bytes[..length]).unwrap();
                prop_assert_eq!(digits.parse::<u64>().unwrap(), value);
                prop_assert!(!bytes.get(length).is_some_and(u8::is_ascii_digit));
            }
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
