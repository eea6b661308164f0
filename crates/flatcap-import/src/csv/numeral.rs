//! Numbers in cells, with a decimal mark, digits in groups, and a unit.

use std::borrow::Cow;
use std::str::FromStr;

use serde::Serialize;

/// Maximum length of a unit, in characters.
const UNIT_CHARS_MAX: usize = 10;
/// Units that may follow a number without a space. Units that are also hexadecimal digits, such as
/// A, are excluded.
const ATTACHED_UNITS: [&str; 40] = [
    "%", "s", "ms", "us", "\u{b5}s", "\u{3bc}s", "ns", "min", "h", "k", "M", "G", "kB", "KB", "KiB", "MB",
    "MiB", "GB", "GiB", "TB", "TiB", "kb", "Mb", "Gb", "W", "mW", "kW", "V", "mV", "mA", "Hz", "kHz", "MHz",
    "GHz", "rpm", "RPM", "\u{b0}C", "\u{b0}F", "m", "K",
];

/// The character between the integer part and the fraction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DecimalMark {
    /// `1,234.5`
    #[default]
    Point,
    /// `1.234,5`
    Comma,
}

impl FromStr for DecimalMark {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        match text {
            "." | "point" => Ok(Self::Point),
            "," | "comma" => Ok(Self::Comma),
            _ => Err("no such decimal mark; use . or ,"),
        }
    }
}

impl DecimalMark {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Point => "point",
            Self::Comma => "comma",
        }
    }

    fn marks(self) -> (char, char) {
        match self {
            Self::Point => ('.', ','),
            Self::Comma => (',', '.'),
        }
    }
}

/// A number in a cell, with its unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Numeral<'c> {
    /// The number with a decimal point and without digit groups, for example -1234.5.
    pub(super) number: Cow<'c, str>,
    /// The unit after the number, or an empty string.
    pub(super) unit: &'c str,
}

/// Splits a cell such as `50 %`, `81.25 W` or `12ms` into number and unit. The unit may be empty.
pub(super) fn split_unit(cell: &str) -> (&str, &str) {
    let end = cell.rfind(|character: char| character.is_ascii_digit()).map_or(0, |at| at + 1);
    let (number, rest) = cell.split_at_checked(end).unwrap_or((cell, ""));
    let unit = rest.trim_start();
    if number.is_empty() || unit.is_empty() {
        return (cell, "");
    }
    let is_unit = unit.chars().count() <= UNIT_CHARS_MAX
        && unit.chars().all(|character| {
            character.is_alphabetic() || matches!(character, '%' | '/' | '\u{b0}' | '\u{b5}' | '\u{3a9}')
        });
    let is_apart = unit.len() < rest.len();
    if is_unit && (is_apart || ATTACHED_UNITS.contains(&unit)) { (number, unit) } else { (cell, "") }
}

/// Returns the number and unit of a cell, or `None` if its points, commas and spaces do not fit
/// this decimal mark. Does not check whether the number can be parsed.
pub(super) fn numeral(cell: &str, mark: DecimalMark) -> Option<Numeral<'_>> {
    let (digits, unit) = split_unit(cell);
    let (decimal, group) = mark.marks();
    let is_space = |character: char| matches!(character, ' ' | '\u{a0}' | '\u{202f}' | '\'' | '\u{2019}');
    if !digits.contains(|character| matches!(character, '.' | ',' | '\u{2212}') || is_space(character)) {
        return Some(Numeral { number: Cow::Borrowed(digits), unit });
    }
    let (sign, rest) = match digits.strip_prefix(['-', '\u{2212}']) {
        Some(rest) => ("-", rest),
        None => ("", digits),
    };
    let (whole, fraction) = match rest.split_once(decimal) {
        Some((whole, fraction)) => (whole, Some(fraction)),
        None => (rest, None),
    };
    let groups: Vec<&str> = whole.split(|character| character == group || is_space(character)).collect();
    if groups.len() > 1 {
        let is_group = |text: &&str| text.len() == 3 && text.bytes().all(|byte| byte.is_ascii_digit());
        let first = groups.first()?;
        let is_first = (1..=3).contains(&first.len()) && !first.starts_with('0');
        let marks = whole.matches(|character| character == group || is_space(character));
        let is_one_mark = marks.collect::<std::collections::BTreeSet<_>>().len() == 1;
        if !is_first || !is_one_mark || !groups.iter().skip(1).all(is_group) {
            return None;
        }
    }
    let fraction_is_plain =
        fraction.is_none_or(|text| !text.contains(['.', ',']) && !text.contains(is_space));
    if !fraction_is_plain
        || groups
            .first()
            .is_some_and(|first| !first.bytes().all(|byte| byte.is_ascii_digit() || b"eE+-".contains(&byte)))
    {
        return None;
    }
    if mark == DecimalMark::Point && groups.len() == 1 && sign.is_empty() {
        return Some(Numeral { number: Cow::Borrowed(digits), unit });
    }
    let fraction = fraction.map(|text| format!(".{text}")).unwrap_or_default();
    Some(Numeral { number: Cow::Owned(format!("{sign}{}{fraction}", groups.concat())), unit })
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that numbers are read with both decimal marks, digit groups and units, and that
    // versions and malformed groups are refused.
    #[test]
    fn numerals_are_read() {
        for (cell, point, comma, unit) in [
            ("12", Some("12"), Some("12"), ""),
            ("21,5", None, Some("21.5"), ""),
            ("-0,25", None, Some("-0.25"), ""),
            ("1.5", Some("1.5"), None, ""),
            ("1,234", Some("1234"), Some("1.234"), ""),
            ("1.234.567,8", None, Some("1234567.8"), ""),
            ("1,234,567.8", Some("1234567.8"), None, ""),
            ("1 234,5", None, Some("1234.5"), ""),
            ("1'234.5", Some("1234.5"), None, ""),
            ("\u{2212}3.5", Some("-3.5"), None, ""),
            ("50 %", Some("50"), Some("50"), "%"),
            ("1000 MiB", Some("1000"), Some("1000"), "MiB"),
            ("81.25 W", Some("81.25"), None, "W"),
            ("12ms", Some("12"), Some("12"), "ms"),
            ("0,5 \u{b0}C", None, Some("0.5"), "\u{b0}C"),
            ("1.2.3", None, None, ""),
            ("0.1,2", None, None, ""),
            ("1,23,456", None, None, ""),
        ] {
            let number = |mark| {
                let found = numeral(cell, mark)?;
                assert_eq!(found.unit, unit, "{cell}");
                Some(found.number.into_owned())
            };
            assert_eq!(number(DecimalMark::Point).as_deref(), point, "{cell}");
            assert_eq!(number(DecimalMark::Comma).as_deref(), comma, "{cell}");
        }
        // A letter directly after a number may be a hexadecimal digit.
        assert_eq!(split_unit("1A"), ("1A", ""));
        assert_eq!(split_unit("5 Main Street"), ("5 Main Street", ""));
        assert!("x".parse::<DecimalMark>().unwrap_err().to_string().contains("use . or ,"));
    }
}
