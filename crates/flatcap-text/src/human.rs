//! Formats numbers and names for people, and parses dates that people write. Prints nothing.
//! `flatcap_format::schema` contains the formats that libraries also use.

use std::collections::BTreeSet;

use flatcap_format::schema::significant_size;
pub use flatcap_format::schema::{
    latency, percent, shell_word, shortened, significant, visible_text as escaped,
};
use flatcap_format::units::{SECOND_UNITS, SIZE_UNITS, in_fitting_unit};
use jiff::civil::Date;

/// Escapes a string from a file for a terminal, and returns the result as an owned string.
pub fn printable(text: &str) -> String {
    escaped(text).into_owned()
}

/// Returns the lines of a text from a file, escaped for a terminal. Line feeds and tabs are kept.
pub fn escaped_lines(content: &[u8]) -> String {
    let text = String::from_utf8_lossy(content);
    let parts = text.split_inclusive(['\n', '\t']).map(|part| match part.strip_suffix(['\n', '\t']) {
        Some(line) => format!("{}{}", escaped(line), part.get(line.len()..).unwrap_or_default()),
        None => printable(part),
    });
    parts.collect()
}

/// Returns names from files, escaped and separated by commas.
pub fn escaped_list(names: &BTreeSet<String>) -> String {
    names.iter().map(|name| escaped(name)).collect::<Vec<_>>().join(", ")
}

/// Formats bytes with a binary unit: `999 B`, `1.5 MiB`.
pub fn bytes(bytes: u64) -> String {
    #[allow(clippy::cast_precision_loss, reason = "one decimal for people")]
    let (value, unit) = in_fitting_unit(&SIZE_UNITS, bytes as f64, 1023.95 / 1024.0);
    let decimals = usize::from(unit != "B");
    format!("{value:.decimals$} {unit}")
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

/// Formats a value in a unit with three significant digits: `98.1 %`, `5.72 GiB`, `12.5 ms`, `490
/// /s`. Bytes have binary prefixes, and seconds below 1 have decimal prefixes.
pub fn quantity(value: f64, unit: &str) -> String {
    /// Minimum absolute value of numbers that are printed with an exponent.
    const LARGE: f64 = 1e7;
    match unit {
        _ if value.abs() >= LARGE && !matches!(unit, "B" | "B/s") => {
            format!("{value:.2e} {unit}").trim_end().to_owned()
        }
        "" => significant(value),
        "B" => significant_size(value),
        "B/s" => significant_size(value) + "/s",
        "s" if value != 0.0 => {
            let (value, unit) = in_fitting_unit(SECOND_UNITS, value, 0.9995);
            format!("{} {unit}", significant(value))
        }
        _ => format!("{} {unit}", significant(value)),
    }
}

/// Parses a date, for an argument. The error does not contain the message of the library, because
/// that message describes the parser and not the form that the user must write.
///
/// # Errors
/// Fails if the text is not a date in the form that the error names.
pub fn parse_date(text: &str) -> Result<Date, String> {
    text.parse().map_err(|_| "write a date as YYYY-MM-DD, such as 2012-06-21".to_owned())
}

/// Returns the rate in hertz of a period in nanoseconds, or `None` for a period of 0.
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

    // Proves that each unit starts where the previous unit ends.
    #[test]
    fn units_change_where_they_should() {
        assert_eq!(
            [0, 1023, 1024, 1_048_575, 1 << 20, u64::MAX].map(bytes),
            ["0 B", "1023 B", "1.0 KiB", "1.0 MiB", "1.0 MiB", "16.0 EiB"].map(String::from)
        );
        assert_eq!(
            [59_990_000_000, 187_000_000_000, 7_500_000_000_000].map(elapsed),
            ["59.9s", "3m07s", "2h05m"].map(String::from)
        );
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

    // Proves that the error for a wrong date names the form of a date.
    #[test]
    fn dates_are_parsed() {
        assert_eq!(parse_date("2012-06-21"), Ok(jiff::civil::date(2012, 6, 21)));
        for text in ["", "yesterday", "2012-13-01", "21.06.2012"] {
            assert!(parse_date(text).unwrap_err().contains("YYYY-MM-DD"), "{text}");
        }
    }

    // Proves that a text of several lines keeps its lines and tabs, and that no other characters
    // that control a terminal remain.
    #[test]
    fn lines_stay_lines() {
        assert_eq!(escaped_lines(b"a\tb\x1b[2J\r\n\n\xff\xc2\x9b"), "a\tb\\u{1b}[2J\\r\n\n\u{fffd}\\u{9b}");
    }
}
