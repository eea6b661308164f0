//! Formats numbers and names for people, and parses dates that they write. Prints nothing.

use std::collections::BTreeSet;

pub use flatcap_format::schema::visible_text as escaped;
use jiff::civil::Date;

/// Returns a text from a file, escaped for a terminal, as a text of its own.
pub fn printable(text: &str) -> String {
    escaped(text).into_owned()
}

/// Returns the lines of a text from a file, escaped for a terminal, with their line feeds and tabs.
pub fn escaped_lines(content: &[u8]) -> String {
    let text = String::from_utf8_lossy(content);
    let parts = text.split_inclusive(['\n', '\t']).map(|part| match part.strip_suffix(['\n', '\t']) {
        Some(line) => format!("{}{}", escaped(line), part.get(line.len()..).unwrap_or_default()),
        None => printable(part),
    });
    parts.collect()
}

/// Returns a command for a shell.
pub fn shell_command(program: &str, arguments: &[String]) -> String {
    let words = std::iter::once(program).chain(arguments.iter().map(String::as_str));
    words.map(shell_word).collect::<Vec<_>>().join(" ")
}

/// Returns a text as one word of a shell, quoted if necessary.
pub fn shell_word(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./:=,+%@".contains(&byte);
    if !text.is_empty() && text.bytes().all(is_plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// Shortens a text to a width: three dots stand for an end that is cut off.
pub fn shortened(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let kept: String = text.chars().take(width.saturating_sub(ELLIPSIS.len())).collect();
    format!("{kept}{ELLIPSIS}").chars().take(width).collect()
}

/// Shortens the name of an element, such as `rustc[31337]`. The part that numbers the element stays
/// whole if the width has place for it and for some of the name: without it, the element is not
/// known.
pub fn shortened_element(name: &str, width: usize) -> String {
    let number = name.rfind('[').filter(|at| name.ends_with(']') && *at > 0);
    let (text, number) = number.map_or((name, ""), |at| name.split_at(at));
    let place = width.saturating_sub(number.chars().count());
    if number.is_empty() || place < ELLIPSIS.len() + NAME_CHARS_MIN {
        return shortened(name, width);
    }
    shortened(text, place) + number
}

/// Stands for what is cut off.
const ELLIPSIS: &str = "...";
/// Fewer characters of a name say nothing.
const NAME_CHARS_MIN: usize = 2;

/// Returns names from files, escaped and separated by commas.
pub fn escaped_list(names: &BTreeSet<String>) -> String {
    names.iter().map(|name| escaped(name)).collect::<Vec<_>>().join(", ")
}

/// Formats nanoseconds with three digits and a unit: `1.23us`, `45.6ms`, `7.89s`.
pub fn latency(ns: u64) -> String {
    #[allow(clippy::cast_precision_loss, reason = "three digits for people")]
    let value = ns as f64;
    let (value, unit) = match ns {
        0..1_000 => return format!("{ns}ns"),
        1_000..1_000_000 => (value / 1e3, "us"),
        1_000_000..1_000_000_000 => (value / 1e6, "ms"),
        _ => (value / 1e9, "s"),
    };
    let decimals = if value < 9.995 { 2 } else { usize::from(value < 99.95) };
    format!("{value:.decimals$}{unit}")
}

/// Formats bytes with a binary unit: `999 B`, `1.5 MiB`.
pub fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    #[allow(clippy::cast_precision_loss, reason = "one decimal for people")]
    let mut value = bytes as f64 / 1024.0;
    let mut units = UNITS.iter();
    let mut unit = units.next();
    while value >= 1023.95 {
        value /= 1024.0;
        unit = units.next();
    }
    format!("{value:.1} {}", unit.unwrap_or(&"EiB"))
}

/// Formats a share: `1.2%`; `0.0%` if `whole` is 0.
pub fn percent(part: u64, whole: u64) -> String {
    #[allow(clippy::cast_precision_loss, reason = "one decimal for people")]
    let share = if whole == 0 { 0.0 } else { part as f64 / whole as f64 };
    format!("{:.1}%", share * 100.0)
}

/// Formats a rate with about three digits: `1000`, `99.9`, `0.20`.
pub fn hertz(hz: f64) -> String {
    let decimals = match hz {
        1000.0.. => 0,
        10.0.. => 1,
        _ => 2,
    };
    format!("{hz:.decimals$}")
}

/// Formats a number with three significant digits; one above 999 keeps all digits before the point:
/// `1234`, `99.9`, `0.00123`.
pub fn significant(value: f64) -> String {
    /// Decimals of a number that is nearly 0.
    const DECIMALS_MAX: i32 = 9;
    if value == 0.0 {
        return "0".to_owned();
    }
    // The exponent after rounding: 9.999 has three digits as 10.0.
    let rounded = format!("{value:.2e}");
    let exponent: i32 = rounded.split_once('e').and_then(|(_, exponent)| exponent.parse().ok()).unwrap_or(0);
    let decimals = usize::try_from((2 - exponent).clamp(0, DECIMALS_MAX)).unwrap_or(0);
    format!("{value:.decimals$}")
}

/// Formats a value in a unit with three significant digits: `98.1 %`, `5.72 GiB`, `12.5 ms`,
/// `490 /s`. Bytes have binary prefixes, seconds below 1 decimal ones.
pub fn quantity(value: f64, unit: &str) -> String {
    /// Numbers from here on are printed with an exponent.
    const LARGE: f64 = 1e7;
    const BINARY: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    match unit {
        _ if value.abs() >= LARGE && !matches!(unit, "B" | "B/s") => {
            format!("{value:.2e} {unit}").trim_end().to_owned()
        }
        "" => significant(value),
        "B" | "B/s" => {
            let (mut value, mut prefixes) = (value, BINARY.iter());
            let mut prefix = prefixes.next();
            while value.abs() >= 1023.5
                && let Some(next) = prefixes.next()
            {
                value /= 1024.0;
                prefix = Some(next);
            }
            format!("{} {}{unit}", significant(value), prefix.unwrap_or(&""))
        }
        "s" => {
            let (factor, prefix) = match value.abs() {
                0.0 | 0.9995.. => (1.0, ""),
                0.000_999_5.. => (1e3, "m"),
                0.000_000_999_5.. => (1e6, "u"),
                _ => (1e9, "n"),
            };
            format!("{} {prefix}s", significant(value * factor))
        }
        _ => format!("{} {unit}", significant(value)),
    }
}

/// Parses a date, for an argument. The library's error would tell how it parses, not what to write.
pub fn parse_date(text: &str) -> Result<Date, String> {
    text.parse().map_err(|_| "write a date as YYYY-MM-DD, such as 2012-06-21".to_owned())
}

/// Returns the rate of a period in nanoseconds; `None` for a period of 0.
pub fn asked_hz(period_ns: u64) -> Option<f64> {
    #[allow(clippy::cast_precision_loss, reason = "a rate for people")]
    let period_ns = (period_ns > 0).then_some(period_ns as f64)?;
    Some(1e9 / period_ns)
}

/// Formats nanoseconds as seconds, minutes and hours: `9.5s`, `3m07s`, `2h05m`.
pub fn elapsed(ns: u64) -> String {
    let seconds = ns / 1_000_000_000;
    match seconds {
        0..60 => format!("{seconds}.{}s", ns / 100_000_000 % 10),
        60..3600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        _ => format!("{}h{:02}m", seconds / 3600, seconds / 60 % 60),
    }
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
        assert_eq!(
            [0, 1023, 1024, 1_048_575, 1 << 20, u64::MAX].map(bytes),
            ["0 B", "1023 B", "1.0 KiB", "1.0 MiB", "1.0 MiB", "16.0 EiB"].map(String::from)
        );
        assert_eq!(
            [59_990_000_000, 187_000_000_000, 7_500_000_000_000].map(elapsed),
            ["59.9s", "3m07s", "2h05m"].map(String::from)
        );
    }

    // Proves that rates have three significant digits, and no digit before the point is rounded
    // away.
    #[test]
    fn numbers_have_three_significant_digits() {
        let numbers = [0.0, 78.373_277_972, 2743.064, 603_425.9, 9.999, 0.001_234, -1.5, 1e-12];
        let shown = ["0", "78.4", "2743", "603426", "10.0", "0.00123", "-1.50", "0.000000000"];
        assert_eq!(numbers.map(significant), shown);
    }

    // Proves that values have a unit with the prefix that leaves three digits.
    #[test]
    fn quantities_have_a_unit() {
        for (value, unit, shown) in [
            (98.1234, "%", "98.1 %"),
            (0.0, "B", "0 B"),
            (999.4, "B", "999 B"),
            (1_000.0, "B", "1000 B"),
            (1_023.9, "B", "1.00 KiB"),
            (1.8e19, "", "1.80e19"),
            (2.5e7, "/s", "2.50e7 /s"),
            (6_144_000_000.0, "B", "5.72 GiB"),
            (2.5e9, "B/s", "2.33 GiB/s"),
            (0.0125, "s", "12.5 ms"),
            (3.2e-7, "s", "320 ns"),
            (0.0, "s", "0 s"),
            (75.0, "s", "75.0 s"),
            (489.9, "/s", "490 /s"),
            (1.5, "", "1.50"),
        ] {
            assert_eq!(quantity(value, unit), shown);
        }
    }

    // Proves that a mistake in a date is answered with its form.
    #[test]
    fn dates_are_parsed() {
        assert_eq!(parse_date("2012-06-21"), Ok(jiff::civil::date(2012, 6, 21)));
        for text in ["", "yesterday", "2012-13-01", "21.06.2012"] {
            assert!(parse_date(text).unwrap_err().contains("YYYY-MM-DD"), "{text}");
        }
    }

    // Proves that a text of several lines keeps its lines and tabs, and has nothing else that
    // controls a terminal.
    #[test]
    fn lines_stay_lines() {
        assert_eq!(escaped_lines(b"a\tb\x1b[2J\r\n\n\xff\xc2\x9b"), "a\tb\\u{1b}[2J\\r\n\n\u{fffd}\\u{9b}");
    }
}
