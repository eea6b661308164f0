//! A place in the text of /proc that moves on by words, numbers and lines: one pass, nothing looked at twice.

use super::text::ABSENT;
use crate::sampling::Shortfall;

/// Bytes that are turned into a number at once.
const CHUNK: usize = 8;
/// Digits of the largest number of 64 bits.
const DIGITS_MAX: usize = 20;

/// A place in whole lines.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cursor<'a> {
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    /// At the start of a file's lines, and `CUT` unless all end in a newline and there are some. What follows the last
    /// newline was cut off: its last number may lack digits, so none of it is believed.
    pub(super) fn of(content: &'a [u8]) -> (Self, Shortfall) {
        let end = memchr::memrchr(b'\n', content).map_or(0, |at| at + 1);
        let (whole, rest) = content.split_at(end);
        (Self { rest: whole }, Shortfall::CUT.unless(rest.is_empty() && !whole.is_empty()))
    }

    /// Whether no line is left.
    #[inline]
    pub(super) fn is_at_end(&self) -> bool {
        self.rest.is_empty()
    }

    /// Whether no word is left in this line.
    #[inline]
    pub(super) fn is_at_line_end(&mut self) -> bool {
        self.skip_spaces();
        matches!(self.rest.first(), None | Some(b'\n'))
    }

    /// Goes to the start of the next line.
    #[inline]
    pub(super) fn next_line(&mut self) {
        // In most lines nothing but a unit is left: no search.
        self.rest = match self.rest {
            [b'\n', behind @ ..] | [b' ', b'k', b'B', b'\n', behind @ ..] => behind,
            _ => memchr::memchr(b'\n', self.rest).and_then(|at| self.rest.get(at + 1..)).unwrap_or_default(),
        };
    }

    /// The next word of this line, up to a space or a tab.
    #[inline]
    pub(super) fn word(&mut self) -> Option<&'a [u8]> {
        self.skip_spaces();
        self.until(|byte| matches!(byte, b' ' | b'\t'))
    }

    /// What stands before the first byte of this line for which `is_end` holds, or the line's end. None if that is nothing.
    #[inline]
    pub(super) fn until(&mut self, is_end: impl Fn(u8) -> bool) -> Option<&'a [u8]> {
        let length = self.rest.iter().position(|byte| *byte == b'\n' || is_end(*byte));
        let (word, rest) = self.rest.split_at(length.unwrap_or(self.rest.len()));
        self.rest = rest;
        (!word.is_empty()).then_some(word)
    }

    /// What stands in this line before the last byte of this kind; the place is then behind that. None without one.
    #[inline]
    pub(super) fn up_to_last(&mut self, byte: u8) -> Option<&'a [u8]> {
        let end = memchr::memchr(b'\n', self.rest).unwrap_or(self.rest.len());
        let at = memchr::memrchr(byte, self.rest.get(..end)?)?;
        let (before, rest) = self.rest.split_at_checked(at)?;
        self.rest = rest.get(1..)?;
        Some(before)
    }

    /// Passes over this name, if it is the word that stands here, and over a colon behind it.
    #[inline]
    pub(super) fn pass_name(&mut self, name: &[u8]) -> bool {
        let behind = behind(self.rest, name).map(|behind| (behind, behind.split_first()));
        let behind = match behind {
            Some((behind, Some((b' ' | b'\t', _)))) => behind,
            Some((_, Some((b':', behind)))) if matches!(behind.first(), Some(b' ' | b'\t' | b'\n')) => behind,
            _ => return false,
        };
        self.rest = behind;
        true
    }

    /// The next word of this line as a number. Absent where there is none, with `CUT` added to `lacks`, or where the word is
    /// no number that fits, with `UNREADABLE`.
    #[inline]
    pub(super) fn number(&mut self, lacks: &mut Shortfall) -> u64 {
        self.skip_spaces();
        // Most counters of most hosts are 0.
        if let [digit @ b'0'..=b'9', b' ' | b'\n', ..] = self.rest {
            self.rest = self.rest.get(1..).unwrap_or_default();
            return u64::from(digit - b'0');
        }
        match leading_number(self.rest) {
            Some((value, behind)) if matches!(behind.first(), None | Some(b' ' | b'\t' | b'\n')) => {
                self.rest = behind;
                value
            }
            _ => self.absent(lacks),
        }
    }

    /// The next words of this line as numbers, one after the other.
    #[inline]
    pub(super) fn numbers<const COUNT: usize>(&mut self, lacks: &mut Shortfall) -> [u64; COUNT] {
        let mut values = [ABSENT; COUNT];
        for value in &mut values {
            *value = self.number(lacks);
        }
        values
    }

    #[inline]
    fn skip_spaces(&mut self) {
        while let Some((&[b' ', b' ', b' ', b' '], behind)) = self.rest.split_first_chunk() {
            self.rest = behind;
        }
        while let Some((b' ' | b'\t', behind)) = self.rest.split_first() {
            self.rest = behind;
        }
    }

    #[cold]
    fn absent(&mut self, lacks: &mut Shortfall) -> u64 {
        *lacks |= if self.word().is_some() { Shortfall::UNREADABLE } else { Shortfall::CUT };
        ABSENT
    }
}

/// What is behind `name`, if a text begins with it. Names are short: eight bytes at a time, without a call.
#[inline]
fn behind<'a>(text: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let (head, behind) = text.split_at_checked(name.len())?;
    let (chunks, rest) = name.as_chunks::<CHUNK>();
    let (head_chunks, head_rest) = head.as_chunks::<CHUNK>();
    let is_name = chunks.iter().zip(head_chunks).all(|(ours, theirs)| ours == theirs)
        && match (name.last_chunk::<CHUNK>(), head.last_chunk::<CHUNK>()) {
            (Some(ours), Some(theirs)) => ours == theirs,
            _ => rest.iter().eq(head_rest),
        };
    is_name.then_some(behind)
}

/// The number that a text begins with, and what is behind it; none without a digit, or if the number is too large or the
/// one that stands for "absent".
///
/// Eight bytes at a time: which are digits is seen in all of them at once, and they are added up in pairs, fours and eights.
#[inline]
pub(super) fn leading_number(text: &[u8]) -> Option<(u64, &[u8])> {
    let Some(chunk) = text.first_chunk::<CHUNK>() else { return by_digits(text) };
    let (value, length) = leading_digits(*chunk);
    if length == 0 {
        return None;
    }
    let behind = text.get(length..)?;
    if length < CHUNK {
        return Some((value, behind));
    }
    match behind.first_chunk::<CHUNK>().map(|chunk| leading_digits(*chunk)) {
        // At most fifteen digits.
        Some((low, length)) if length < CHUNK => {
            let shift = POWERS.get(length).copied().unwrap_or(1);
            Some((value * shift + low, behind.get(length..)?))
        }
        _ => by_digits(text),
    }
}

/// 10 to the power of the place.
const POWERS: [u64; CHUNK] = [1, 10, 100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000];

/// The number that eight bytes begin with, and how many of them are its digits.
#[inline]
fn leading_digits(chunk: [u8; CHUNK]) -> (u64, usize) {
    const ZEROS: u64 = 0x3030_3030_3030_3030;
    const HIGH_BITS: u64 = 0x8080_8080_8080_8080;
    // A byte of 10 or more gets its high bit; a carry out of one reaches only those behind it.
    const ABOVE_NINE: u64 = 0x7676_7676_7676_7676;
    let digits = u64::from_le_bytes(chunk) ^ ZEROS;
    let others = (digits.wrapping_add(ABOVE_NINE) | digits) & HIGH_BITS;
    let length = others.trailing_zeros() / 8;
    // In front of them zeros, so that there are always eight.
    let digits = digits.checked_shl(u64::BITS - length * 8).unwrap_or(0);
    let pairs = (digits.wrapping_mul(10)).wrapping_add(digits >> 8) & 0x00FF_00FF_00FF_00FF;
    let fours = (pairs.wrapping_mul(100)).wrapping_add(pairs >> 16) & 0x0000_FFFF_0000_FFFF;
    let value = (fours.wrapping_mul(10_000)).wrapping_add(fours >> 32) & 0xFFFF_FFFF;
    (value, length as usize)
}

/// The same, digit by digit: at the end of a text, and for long numbers.
#[cold]
fn by_digits(text: &[u8]) -> Option<(u64, &[u8])> {
    let length = text.iter().take(DIGITS_MAX + 1).take_while(|byte| byte.is_ascii_digit()).count();
    let (digits, behind) = text.split_at_checked(length)?;
    let value = digits
        .iter()
        .try_fold(0_u64, |value, digit| value.checked_mul(10)?.checked_add(u64::from(digit - b'0')))?;
    ((1..=DIGITS_MAX).contains(&length) && value != ABSENT).then_some((value, behind))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(text: &[u8]) -> Option<(u64, usize)> {
        leading_number(text).map(|(value, behind)| (value, text.len() - behind.len()))
    }

    // Goal: numbers are exact or not there. Method: edges of 64 bits and of the chunks, and words that look like numbers.
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

    // Goal: words and numbers are those of their line alone. Method: a file by hand, with an empty line, a short one and
    // one that is cut.
    #[test]
    fn lines_are_kept_apart() {
        let (mut cursor, lacks) = Cursor::of(b"a  1 2\n\nb x 18446744073709551615 \nc 5");
        assert_eq!(lacks, Shortfall::CUT);
        let mut lacks = Shortfall::NONE;
        assert_eq!(cursor.word(), Some(&b"a"[..]));
        assert_eq!((cursor.numbers(&mut lacks), lacks), ([1, 2, ABSENT], Shortfall::CUT));
        assert!(cursor.is_at_line_end() && !cursor.is_at_end() && cursor.up_to_last(b'1').is_none());
        cursor.next_line();
        assert_eq!(cursor.word(), None);
        cursor.next_line();
        let mut lacks = Shortfall::NONE;
        assert!(!cursor.pass_name(b"") && cursor.pass_name(b"b") && !cursor.pass_name(b"x"));
        assert_eq!((cursor.numbers(&mut lacks), lacks), ([ABSENT; 2], Shortfall::UNREADABLE));
        assert!(cursor.is_at_line_end());
        cursor.next_line();
        assert!(cursor.is_at_end() && cursor.is_at_line_end() && cursor.word().is_none());
        cursor.next_line();
        assert!(cursor.is_at_end());
        assert_eq!(Cursor::of(b"").1, Shortfall::CUT);
        assert_eq!(Cursor::of(b"a\n").1, Shortfall::NONE);
    }

    proptest! {
        // Goal: any number is read as the standard library reads it, wherever it stands. Method: random numbers and
        // surroundings.
        #[test]
        fn numbers_agree_with_the_standard_library(value in 0..u64::MAX, shift in 0..64_u32, behind in "[ \nx:-]?[0-9 \n]{0,12}") {
            let digits = (value >> shift).to_string();
            let behind = if behind.starts_with(|byte: char| byte.is_ascii_digit()) { String::new() } else { behind };
            let text = digits.clone() + &behind;
            prop_assert_eq!(read(text.as_bytes()), Some((value >> shift, digits.len())));
        }

        // Goal: no bytes panic, and what is called a number is one. Method: random bytes of the kind.
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
