//! Splits the content of files in /proc into lines, fields and numbers. The functions do not
//! allocate, and they reject malformed numbers.

use crate::{Incomplete, odd_text};

/// Marks a value that is missing or cannot be read. Schemas mark such fields with `absent: "max"`.
pub(super) const ABSENT: u64 = u64::MAX;
/// Number of bytes that are converted to a number in one step.
const CHUNK: usize = 8;
/// Number of digits of the largest 64-bit number.
const DIGITS_MAX: usize = 20;

/// Returns those lines of a file that end in a newline. Also returns `CUT` if the file is empty or
/// does not end in a newline. Bytes after the last newline are ignored, because the last number
/// there may lack digits.
pub(super) fn whole_lines(content: &[u8]) -> (impl Iterator<Item = &[u8]>, Incomplete) {
    let end = content.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let (whole, rest) = content.split_at(end);
    let lines = whole.strip_suffix(b"\n").unwrap_or_default().split(|byte| *byte == b'\n');
    let incomplete = if rest.is_empty() && !whole.is_empty() { Incomplete::NONE } else { cut(rest) };
    (lines.filter(|line| !line.is_empty()), incomplete)
}

/// Returns the fields of a line, separated by spaces or tabs.
pub(super) fn fields(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(|byte| matches!(byte, b' ' | b'\t')).filter(|field| !field.is_empty())
}

/// Parses a number that has only decimal digits. Returns `None` if the number does not fit or is
/// `ABSENT`.
pub(super) fn number(field: &[u8]) -> Option<u64> {
    leading_number(field).filter(|(_, rest)| rest.is_empty()).map(|(value, _)| value)
}

/// Parses a number that has only lower-case hexadecimal digits, as the kernel writes them. Returns
/// `None` if the number does not fit or is `ABSENT`.
pub(super) fn hexadecimal(field: &[u8]) -> Option<u64> {
    if field.is_empty() || field.len() > 2 * size_of::<u64>() {
        return None;
    }
    field
        .iter()
        .try_fold(0_u64, |value, byte| {
            let digit = match byte {
                b'0'..=b'9' => byte - b'0',
                b'a'..=b'f' => byte - b'a' + 10,
                _ => return None,
            };
            Some((value << 4) | u64::from(digit))
        })
        .filter(|value| *value != ABSENT)
}

/// Parses an integer that may be negative. Returns the integer as an exact floating-point number,
/// because only floating-point values of a schema can be both absent and negative.
#[expect(clippy::cast_precision_loss, reason = "numbers that would lose digits are refused")]
pub(super) fn signed(field: &[u8]) -> Option<f64> {
    let digits = field.strip_prefix(b"-").unwrap_or(field);
    let magnitude = number(digits).filter(|value| *value <= 1 << f64::MANTISSA_DIGITS)? as f64;
    Some(if digits.len() < field.len() { -magnitude } else { magnitude })
}

/// Parses a number as a driver may write it, for example with a plus sign or with a fraction of
/// zeros.
pub(super) fn lenient_number(field: &[u8]) -> Option<u64> {
    let field = field.strip_prefix(b"+").unwrap_or(field);
    let (value, rest) = leading_number(field)?;
    let zeros = |rest: &[u8]| rest.first() == Some(&b'.') && rest.iter().skip(1).all(|byte| *byte == b'0');
    (rest.is_empty() || zeros(rest)).then_some(value)
}

/// Parses a number that may be negative, as a driver may write it, for example with a plus sign or
/// with a fraction.
pub(super) fn lenient_signed(field: &[u8]) -> Option<f64> {
    let field = field.strip_prefix(b"+").filter(|rest| !rest.starts_with(b"-")).unwrap_or(field);
    signed(field).or_else(|| {
        let is_fraction = field.contains(&b'.') && !field.iter().any(u8::is_ascii_alphabetic);
        finite(field).filter(|_| is_fraction)
    })
}

/// Parses a decimal fraction such as `12.34`. Signs, exponents and words are invalid.
pub(super) fn decimal(field: &[u8]) -> Option<f64> {
    if let Some((whole, [b'.', fraction @ ..])) = leading_number(field)
        && let Some((fraction, [])) = leading_number(fraction).filter(|_| fraction.len() == 2)
        && let Ok(hundredths) = u32::try_from(whole.saturating_mul(100).saturating_add(fraction))
    {
        // The kernel writes averages with two digits after the point. Both numbers are exact, so
        // the quotient is the nearest double.
        return Some(f64::from(hundredths) / 100.0);
    }
    let plain = field.iter().all(|byte| byte.is_ascii_digit() || *byte == b'.');
    let text = std::str::from_utf8(field).ok().filter(|_| plain)?;
    text.parse().ok()
}

/// Parses a decimal number with optional sign, fraction and exponent to the nearest double. Returns
/// `None` for words such as `inf`, and for a number that is so large that it would become infinite.
pub(super) fn finite(field: &[u8]) -> Option<f64> {
    let text = std::str::from_utf8(field).ok().filter(|_| is_plain(field))?;
    text.parse().ok().filter(|number: &f64| number.is_finite())
}

/// Returns whether all characters of a text can occur in decimal numbers.
pub(super) fn is_plain(text: &[u8]) -> bool {
    text.iter().all(|byte| byte.is_ascii_digit() || matches!(byte, b'+' | b'-' | b'.' | b'e' | b'E'))
}

/// Parses fields as numbers, in order. A number is absent for the reason `CUT` if there is no
/// field, and for the reason `UNREADABLE` if the field is invalid.
pub(super) fn numbers<'a, const COUNT: usize>(
    mut fields: impl Iterator<Item = &'a [u8]>,
) -> ([u64; COUNT], Incomplete) {
    let mut incomplete = Incomplete::NONE;
    let values = [(); COUNT].map(|()| value(fields.next(), &mut incomplete));
    (values, incomplete)
}

/// Parses a field as a number. If the field is not a valid number, returns `ABSENT` and adds the
/// reason to `incomplete`.
#[inline]
pub(super) fn value(field: Option<&[u8]>, incomplete: &mut Incomplete) -> u64 {
    field.and_then(number).unwrap_or_else(|| {
        *incomplete |= lack(field);
        ABSENT
    })
}

/// Notes a line that does not end in a newline.
#[cold]
fn cut(line: &[u8]) -> Incomplete {
    odd_text::note(line, 0);
    Incomplete::CUT
}

/// Returns the reason why the number of a field is absent.
#[cold]
fn lack(field: Option<&[u8]>) -> Incomplete {
    let Some(field) = field else { return Incomplete::CUT };
    odd_text::note(field, 0);
    Incomplete::UNREADABLE
}

/// Parses a field as a decimal fraction. If the field is not a valid fraction, returns NaN and adds
/// the reason to `incomplete`.
pub(super) fn fraction(field: Option<&[u8]>, incomplete: &mut Incomplete) -> f64 {
    field.and_then(decimal).unwrap_or_else(|| {
        *incomplete |= lack(field);
        f64::NAN
    })
}

/// Returns a name in an array of fixed size, padded with zero bytes, or `None` if the name does not
/// fit.
pub(super) fn name<const BYTES: usize>(text: &[u8]) -> Option<[u8; BYTES]> {
    let mut name = [0; BYTES];
    name.get_mut(..text.len())?.copy_from_slice(text);
    // The last byte must be zero.
    (text.len() < BYTES).then_some(name)
}

/// Returns the longest suffix of a text that fits with a terminating zero byte and does not split a
/// character.
pub(super) fn suffix<const BYTES: usize>(text: &[u8]) -> [u8; BYTES] {
    let first = text.len().saturating_sub(BYTES - 1);
    let is_inside = |at: &usize| text.get(*at).is_some_and(|byte| byte & 0xC0 == 0x80);
    let start = if first == 0 {
        0
    } else {
        (first..(first + 4).min(text.len())).find(|at| !is_inside(at)).unwrap_or(first)
    };
    let mut suffix = [0; BYTES];
    for (to, from) in suffix.iter_mut().zip(text.get(start..).unwrap_or_default()) {
        *to = *from;
    }
    suffix
}

/// Returns the bytes of a row of the schema. The row consists of numbers, a name, and more numbers.
#[inline]
pub(super) fn row<const BYTES: usize>(before: &[u64], name: &[u8], after: &[u64]) -> [u8; BYTES] {
    let mut row = [0; BYTES];
    let (front, rest) = row.split_at_mut(size_of_val(before));
    let (middle, back) = rest.split_at_mut(name.len());
    middle.copy_from_slice(name);
    for (part, numbers) in [(front, before), (back, after)] {
        for (bytes, number) in part.as_chunks_mut().0.iter_mut().zip(numbers) {
            *bytes = number.to_le_bytes();
        }
    }
    row
}

/// Returns the number at the start of a text, and the text after the number. Returns `None` if the
/// text does not begin with a digit, or if the number is too large or is `ABSENT`.
///
/// The function processes eight bytes at a time. The function checks all eight bytes for digits in
/// one step, and then combines the digits into pairs, fours and eights.
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
        // The number has at most fifteen digits, so the sum cannot overflow.
        Some((low, length)) if length < CHUNK => {
            let shift = POWERS.get(length).copied().unwrap_or(1);
            Some((value * shift + low, after.get(length..)?))
        }
        _ => parse_by_digits(text),
    }
}

/// Powers of ten by exponent.
const POWERS: [u64; CHUNK] = [1, 10, 100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000];

/// Returns the value of the digits at the start of eight bytes, and the number of these digits.
#[inline]
fn leading_digits(chunk: [u8; CHUNK]) -> (u64, usize) {
    const ZEROS: u64 = 0x3030_3030_3030_3030;
    const HIGH_BITS: u64 = 0x8080_8080_8080_8080;
    // The addition sets the high bit of each byte that is 10 or more. A carry reaches only the
    // bytes after that byte.
    const ABOVE_NINE: u64 = 0x7676_7676_7676_7676;
    let digits = u64::from_le_bytes(chunk) ^ ZEROS;
    let others = (digits.wrapping_add(ABOVE_NINE) | digits) & HIGH_BITS;
    let length = others.trailing_zeros() / 8;
    // The shift inserts zeros before the digits, so that there are always eight digits.
    let digits = digits.checked_shl(u64::BITS - length * 8).unwrap_or(0);
    let pairs = (digits.wrapping_mul(10)).wrapping_add(digits >> 8) & 0x00FF_00FF_00FF_00FF;
    let fours = (pairs.wrapping_mul(100)).wrapping_add(pairs >> 16) & 0x0000_FFFF_0000_FFFF;
    let value = (fours.wrapping_mul(10_000)).wrapping_add(fours >> 32) & 0xFFFF_FFFF;
    (value, length as usize)
}

/// Does the same as [`leading_number`], digit by digit. This function handles the end of a text,
/// and long numbers.
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

    // Proves that numbers are exact or absent, including at the limits of 64 bits and of chunks.
    #[test]
    fn leading_numbers_are_exact_or_absent() {
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

    // Proves that numbers are read exactly or not at all.
    #[test]
    fn numbers_are_exact_or_absent() {
        assert_eq!(number(b"0"), Some(0));
        assert_eq!(number(b"18446744073709551614"), Some(u64::MAX - 1));
        for wrong in [&b""[..], b"18446744073709551615", b"18446744073709551616", b"-1", b"1x", b" 1", b"0x1"]
        {
            assert_eq!(number(wrong), None);
        }
        assert_eq!(hexadecimal(b"00fe09"), Some(0xFE09));
        assert_eq!(hexadecimal(b"fffffffffffffffe"), Some(u64::MAX - 1));
        for wrong in [&b""[..], b"ffffffffffffffff", b"00000000000000001", b"-1", b"1g", b"A", b"0x1"] {
            assert_eq!(hexadecimal(wrong), None);
        }
        assert_eq!((signed(b"-1"), signed(b"12")), (Some(-1.0), Some(12.0)));
        assert_eq!(signed(b"-9007199254740992"), Some(-9_007_199_254_740_992.0));
        for wrong in [&b""[..], b"-", b"--1", b"9007199254740993", b"1-", b"+1", b"1.0"] {
            assert_eq!(signed(wrong), None);
        }
        assert_eq!(decimal(b"12.25"), Some(12.25));
        for wrong in [&b""[..], b".", b"1e9", b"nan", b"inf", b"-1.0"] {
            assert_eq!(decimal(wrong), None);
        }
    }

    // Proves that a line without its newline is ignored.
    #[test]
    fn a_cut_line_is_left_out() {
        let (lines, lacks) = whole_lines(b"a 1\nb 2\n");
        assert_eq!((lines.collect::<Vec<_>>(), lacks), (vec![&b"a 1"[..], b"b 2"], Incomplete::NONE));
        let (lines, lacks) = whole_lines(b"a 1\nb 2");
        assert_eq!((lines.collect::<Vec<_>>(), lacks), (vec![&b"a 1"[..]], Incomplete::CUT));
        let (lines, lacks) = whole_lines(b"");
        assert_eq!((lines.count(), lacks), (0, Incomplete::CUT));
    }

    // Proves that the end of a text fits with its terminating zero byte, and begins at the start of
    // a character.
    #[test]
    fn ends_of_texts_fit() {
        assert_eq!(suffix::<4>(b""), *b"\0\0\0\0");
        assert_eq!((suffix::<4>(b"abc"), suffix::<4>(b"abcdef")), (*b"abc\0", *b"def\0"));
        assert_eq!(suffix::<4>("a\u{e4}bc".as_bytes()), *b"bc\0\0");
        assert_eq!(suffix::<4>(&[0x80; 9]), [0x80, 0x80, 0x80, 0]);
    }

    // Proves that names that do not fit with their terminating zero byte are refused.
    #[test]
    fn names_keep_their_end() {
        assert_eq!(name::<4>(b"abc"), Some(*b"abc\0"));
        assert_eq!(name::<4>(b"abcd"), None);
        assert_eq!(name::<4>(b"abcde"), None);
    }

    proptest! {
        // Proves that any number is parsed as the standard library parses it, whatever text follows
        // the number.
        #[test]
        fn leading_numbers_agree_with_the_standard_library(value in 0..u64::MAX, shift in 0..64_u32, behind in "[ \nx:-]?[0-9 \n]{0,12}") {
            let digits = (value >> shift).to_string();
            let after = if behind.starts_with(|byte: char| byte.is_ascii_digit()) { String::new() } else { behind };
            let text = digits.clone() + &after;
            prop_assert_eq!(read(text.as_bytes()), Some((value >> shift, digits.len())));
        }

        // Proves that no input causes a panic, and that only numbers are read as numbers.
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(prop_oneof![b'0'..=b'9', Just(b' '), Just(b'\n'), any::<u8>()], 0..40)) {
            if let Some((value, length)) = read(&bytes) {
                let digits = std::str::from_utf8(&bytes[..length]).unwrap();
                prop_assert_eq!(digits.parse::<u64>().unwrap(), value);
                prop_assert!(!bytes.get(length).is_some_and(u8::is_ascii_digit));
            }
        }

        // Proves that any fraction is parsed as the standard library parses it.
        #[test]
        fn fractions_agree_with_the_standard_library(whole in 0..u64::from(u32::MAX), fraction in "[0-9]{1,4}") {
            let text = format!("{whole}.{fraction}");
            prop_assert_eq!(decimal(text.as_bytes()), text.parse().ok());
        }

        // Proves that any number is parsed as the standard library parses it.
        #[test]
        fn numbers_agree_with_the_standard_library(value in 0..u64::MAX) {
            prop_assert_eq!(number(value.to_string().as_bytes()), Some(value));
        }
    }
}
