//! Formats numbers, names and commands for people.

use crate::units::{SECOND_UNITS, SIZE_UNITS, in_fitting_unit};

/// Returns a string as one word of a shell, quoted if necessary.
pub fn shell_word(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./:=,+%@".contains(&byte);
    if !text.is_empty() && text.bytes().all(is_plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// Shortens a string to a width. Three dots replace the part that is cut off at the end.
pub fn shortened(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let kept: String = text.chars().take(width.saturating_sub(ELLIPSIS.len())).collect();
    format!("{kept}{ELLIPSIS}").chars().take(width).collect()
}

/// Shortens the name of an element, such as `rustc[31337]`. The number in brackets is not shortened
/// if the width is sufficient for the number and a part of the name. Without the number, a reader
/// cannot identify the element.
pub fn shortened_element(name: &str, width: usize) -> String {
    let number = name.rfind('[').filter(|at| name.ends_with(']') && *at > 0);
    let (text, number) = number.map_or((name, ""), |at| name.split_at(at));
    let place = width.saturating_sub(number.chars().count());
    if number.is_empty() || place < ELLIPSIS.len() + NAME_CHARS_MIN {
        return shortened(name, width);
    }
    shortened(text, place) + number
}

/// The characters that replace the part that is cut off.
const ELLIPSIS: &str = "...";
/// Minimum number of characters that remain of a shortened name. A reader cannot recognize a name
/// of which fewer characters are left.
const NAME_CHARS_MIN: usize = 2;

/// Breaks a line at spaces where it exceeds the width, and indents the following lines. A word that
/// is longer than the width, such as a path, is not broken. Color codes take no width.
pub fn wrapped(line: &str, width: Option<usize>, indent: usize) -> String {
    let Some(width) = width.filter(|width| shown_width(line) > *width) else { return line.to_owned() };
    let (mut text, mut used) = (String::new(), 0);
    // Spaces belong to the word after them, so that the columns of the first line do not move.
    let mut rest = line;
    while !rest.is_empty() {
        let word_at = rest.find(|c: char| c != ' ').unwrap_or(rest.len());
        let end = rest.get(word_at..).and_then(|word| word.find(' ')).map_or(rest.len(), |end| word_at + end);
        let (word, after) = rest.split_at(end);
        let needed = shown_width(word);
        if used > indent && used + needed > width {
            text.push('\n');
            text.push_str(&" ".repeat(indent));
            text.push_str(word.trim_start());
            used = indent + shown_width(word.trim_start());
        } else {
            text.push_str(word);
            used += needed;
        }
        rest = after;
    }
    text
}

/// Returns the number of characters that a terminal shows. Does not count color codes.
fn shown_width(text: &str) -> usize {
    let mut parts = text.split('\x1b');
    let first = parts.next().map_or(0, |part| part.chars().count());
    let after_codes = parts.map(|part| part.split_once('m').map_or(0, |(_, shown)| shown.chars().count()));
    first + after_codes.sum::<usize>()
}

/// Formats nanoseconds with three digits and a unit, for example `1.23us`, `45.6ms` or `7.89s`.
pub fn latency(ns: u64) -> String {
    let unit = SECOND_UNITS.iter().skip(1).rev().find(|unit| ns >= unit.in_smallest());
    let Some(unit) = unit else { return format!("{ns}ns") };
    #[allow(clippy::cast_precision_loss, reason = "three digits for people")]
    let value = ns as f64 / unit.in_smallest() as f64;
    let decimals = if value < 9.995 { 2 } else { usize::from(value < 99.95) };
    format!("{value:.decimals$}{}", unit.name)
}

/// Formats a share as a percentage, for example `1.2%`. The result is `0.0%` if `whole` is 0.
pub fn percent(part: u64, whole: u64) -> String {
    #[allow(clippy::cast_precision_loss, reason = "one decimal for people")]
    let share = if whole == 0 { 0.0 } else { part as f64 / whole as f64 };
    format!("{:.1}%", share * 100.0)
}

/// Formats a number with three significant digits. A number above 999 keeps all digits before the
/// point. Examples are `1234`, `99.9` and `0.00123`.
pub fn significant(value: f64) -> String {
    /// Maximum number of decimals, for numbers that are nearly 0.
    const DECIMALS_MAX: i32 = 9;
    if value == 0.0 {
        return "0".to_owned();
    }
    // The exponent is computed after rounding, because 9.999 with three digits is 10.0.
    let rounded = format!("{value:.2e}");
    let exponent: i32 = rounded.split_once('e').and_then(|(_, exponent)| exponent.parse().ok()).unwrap_or(0);
    let decimals = usize::try_from((2 - exponent).clamp(0, DECIMALS_MAX)).unwrap_or(0);
    format!("{value:.decimals$}")
}

/// Formats bytes with three significant digits and a binary unit, for example `1.50 GiB`.
pub fn significant_size(bytes: f64) -> String {
    // A number that would be printed as 1024 gets the next larger unit.
    let (value, unit) = in_fitting_unit(&SIZE_UNITS, bytes, 1023.5 / 1024.0);
    format!("{} {unit}", significant(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that each unit starts where the previous one ends.
    #[test]
    fn units_change_where_they_should() {
        assert_eq!(
            [0, 999, 1000, 9994, 9995, 99_960].map(latency),
            ["0ns", "999ns", "1.00us", "9.99us", "10.0us", "100us"].map(String::from)
        );
        assert_eq!([1_500_000, 2_000_000_000].map(latency), ["1.50ms", "2.00s"].map(String::from));
    }

    // Proves that rates have three significant digits, and no digit before the point is rounded
    // away.
    #[test]
    fn numbers_have_three_significant_digits() {
        let numbers = [0.0, 78.373_277_972, 2743.064, 603_425.9, 9.999, 0.001_234, -1.5, 1e-12];
        let shown = ["0", "78.4", "2743", "603426", "10.0", "0.00123", "-1.50", "0.000000000"];
        assert_eq!(numbers.map(significant), shown);
    }

    // Proves that lines are broken only at spaces, are indented, and are never wider than the width
    // unless a word is wider. Also proves that color codes take no width.
    #[test]
    fn lines_are_broken_at_spaces() {
        let line = "disk     95 B of 100 B (95.0%), 10 B free; /a/very/long/path/of/a/directory end";
        assert_eq!(wrapped(line, None, 9), line);
        assert_eq!(wrapped(line, Some(line.len()), 9), line);
        let broken = wrapped(line, Some(30), 9);
        let expected = "disk     95 B of 100 B\n         (95.0%), 10 B free;\n         \
                        /a/very/long/path/of/a/directory\n         end";
        assert_eq!(broken, expected);
        assert_eq!(wrapped("\x1b[33mab cd\x1b[0m ef", Some(8), 2), "\x1b[33mab cd\x1b[0m ef");
        assert_eq!(wrapped("\x1b[33mab cd\x1b[0m ef", Some(7), 2), "\x1b[33mab cd\x1b[0m\n  ef");
    }
}
