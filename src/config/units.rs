//! Durations and sizes: numbers with a unit, parsed and printed without rounding.

use std::time::Duration;

/// Why a text is not a duration or size.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UnitError {
    /// An empty text.
    #[error("empty")]
    Empty,
    /// A number without a unit.
    #[error("no unit")]
    NoUnit,
    /// A negative number.
    #[error("negative")]
    Negative,
    /// No number before the unit, or a number that is not plain decimal.
    #[error("no number before the unit")]
    NoNumber,
    /// A unit that does not exist.
    #[error("unknown unit \"{}\"", unit.escape_debug())]
    UnknownUnit {
        /// The unit as written.
        unit: String,
    },
    /// A size unit that may mean 1000 or 1024, or a misspelt one.
    #[error("ambiguous unit \"{unit}\": 1000 or 1024; {write} is 1024-based")]
    AmbiguousUnit {
        /// The unit as written.
        unit: String,
        /// The unit to write instead.
        write: &'static str,
    },
    /// Finer than the smallest unit, so that it would have to be rounded.
    #[error("not a whole number of {smallest}")]
    NotWhole {
        /// The smallest unit.
        smallest: &'static str,
    },
    /// More than 64 bits.
    #[error("number too large")]
    Overflow,
}

/// The name of a unit and its size in the smallest unit.
// 128 bits, because a `Duration` has 64 bits of seconds and thus more of nanoseconds.
type Unit = (&'static str, u128);

/// Units of time in nanoseconds, smallest first.
const DURATION_UNITS: [Unit; 7] = [
    ("ns", 1),
    ("us", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
    ("d", 86_400_000_000_000),
];

/// Units of size in bytes, smallest first.
const SIZE_UNITS: [Unit; 5] =
    [("B", 1), ("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30), ("TiB", 1 << 40)];

const NANOSECONDS_A_SECOND: u128 = 1_000_000_000;

/// Parses a duration such as `250us`, `10ms`, `1.5s` or `7d`.
///
/// # Errors
/// The text is not a decimal number with one of the units ns, us, ms, s, m, h, d; or the
/// value is not a whole number of nanoseconds or does not fit into a [`Duration`].
pub fn parse_duration(text: &str) -> Result<Duration, UnitError> {
    let (number, unit) = split(text)?;
    if unit.is_empty() {
        return Err(UnitError::NoUnit);
    }
    let scale =
        find(&DURATION_UNITS, unit).ok_or_else(|| UnitError::UnknownUnit { unit: unit.to_owned() })?;
    let nanoseconds = scaled(number, scale, "nanoseconds")?;
    let seconds =
        u64::try_from(nanoseconds / NANOSECONDS_A_SECOND).map_err(|_overflow| UnitError::Overflow)?;
    let rest = u32::try_from(nanoseconds % NANOSECONDS_A_SECOND).map_err(|_overflow| UnitError::Overflow)?;
    Ok(Duration::new(seconds, rest))
}

/// Parses a size in bytes such as `64KiB`, `1.5GiB` or `512B`. A plain `0` needs no unit.
///
/// # Errors
/// The text is not a decimal number with one of the units B, KiB, MiB, GiB, TiB; or the
/// value is not a whole number of bytes or needs more than 64 bits.
pub fn parse_size(text: &str) -> Result<u64, UnitError> {
    if text == "0" {
        return Ok(0);
    }
    let (number, unit) = split(text)?;
    if unit.is_empty() {
        return Err(UnitError::NoUnit);
    }
    let scale = find(&SIZE_UNITS, unit).ok_or_else(|| size_unit_error(unit))?;
    let bytes = scaled(number, scale, "bytes")?;
    u64::try_from(bytes).map_err(|_overflow| UnitError::Overflow)
}

/// Formats a duration in the largest unit without a fraction: 1.5 s is `1500ms`.
pub fn format_duration(duration: Duration) -> String {
    formatted(&DURATION_UNITS, duration.as_nanos(), "s")
}

/// Formats a size in the largest unit without a fraction: 1.5 GiB is `1536MiB`.
pub fn format_size(bytes: u64) -> String {
    formatted(&SIZE_UNITS, u128::from(bytes), "B")
}

/// Splits a text into number and unit; spaces are allowed between them.
fn split(text: &str) -> Result<(&str, &str), UnitError> {
    if text.is_empty() {
        return Err(UnitError::Empty);
    }
    if text.starts_with('-') {
        return Err(UnitError::Negative);
    }
    // An exponent or an underscore ends the number and is reported as an unknown unit.
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    if number.is_empty() {
        return Err(UnitError::NoNumber);
    }
    Ok((number, unit.trim_start_matches(' ')))
}

fn find(units: &[Unit], name: &str) -> Option<u128> {
    units.iter().find(|unit| unit.0 == name).map(|unit| unit.1)
}

/// Returns a decimal number times `scale`, if the result is whole.
fn scaled(number: &str, scale: u128, smallest: &'static str) -> Result<u128, UnitError> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let is_decimal = |digits: &str| !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    if !is_decimal(whole) || !is_decimal(fraction) {
        return Err(UnitError::NoNumber);
    }
    let whole = whole.trim_start_matches('0');
    let whole = if whole.is_empty() { 0 } else { whole.parse().map_err(|_error| UnitError::Overflow)? };
    // Integers alone: in floating point 0.1 s would not be exactly 100 ms.
    let whole = scale.checked_mul(whole).ok_or(UnitError::Overflow)?;
    // Zeros at the end change no value, and would otherwise exceed 128 bits.
    let fraction = fraction.trim_end_matches('0');
    if fraction.is_empty() {
        return Ok(whole);
    }
    // A fraction that is too long for 128 bits is far finer than the smallest unit.
    let not_whole = UnitError::NotWhole { smallest };
    let places = u32::try_from(fraction.len()).ok();
    let tens = places.and_then(|places| 10_u128.checked_pow(places));
    let part = fraction.parse::<u128>().ok().and_then(|digits| digits.checked_mul(scale));
    match (tens, part) {
        (Some(tens), Some(part)) if part % tens == 0 => {
            whole.checked_add(part / tens).ok_or(UnitError::Overflow)
        }
        _ => Err(not_whole),
    }
}

/// Returns the error for an unknown size unit.
fn size_unit_error(unit: &str) -> UnitError {
    let lower = unit.to_ascii_lowercase();
    let write = match lower.as_str() {
        "k" | "kb" | "kib" => "KiB",
        "m" | "mb" | "mib" => "MiB",
        "g" | "gb" | "gib" => "GiB",
        "t" | "tb" | "tib" => "TiB",
        _ => return UnitError::UnknownUnit { unit: unit.to_owned() },
    };
    UnitError::AmbiguousUnit { unit: unit.to_owned(), write }
}

fn formatted(units: &[Unit], value: u128, zero_unit: &str) -> String {
    let exact = units.iter().rev().find(|unit| value.is_multiple_of(unit.1));
    // 0 is a multiple of every unit, so the largest one would be printed.
    match exact {
        Some((name, scale)) if value > 0 => format!("{}{name}", value / scale),
        _ => format!("0{zero_unit}"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn durations_as_people_write_them() {
        // Proves that each unit, fractions and a space are parsed exactly.
        for (text, nanoseconds) in [
            ("0s", 0),
            ("50ns", 50),
            ("250us", 250_000),
            ("1.5us", 1_500),
            ("10ms", 10_000_000),
            ("1.5s", 1_500_000_000),
            ("1.500000000000000000000000000000000000000000000s", 1_500_000_000),
            ("0.1m", 6_000_000_000),
            ("15m", 900_000_000_000),
            ("0.5h", 1_800_000_000_000),
            ("7d", 604_800_000_000_000),
            ("10 ms", 10_000_000),
            ("0010ms", 10_000_000),
        ] {
            assert_eq!(parse_duration(text), Ok(Duration::from_nanos(nanoseconds)), "{text}");
        }
    }

    #[test]
    fn sizes_as_people_write_them() {
        // Proves that each unit, fractions and the bare zero are parsed exactly.
        for (text, bytes) in [
            ("0", 0),
            ("0B", 0),
            ("512B", 512),
            ("64KiB", 64 << 10),
            ("1.5KiB", 1536),
            ("256MiB", 256 << 20),
            ("20GiB", 20 << 30),
            ("2 TiB", 2 << 40),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn what_is_no_duration_is_named() {
        // Proves that each mistake has its own message.
        for (text, message) in [
            ("", "empty"),
            ("10", "no unit"),
            ("0", "no unit"),
            ("-10ms", "negative"),
            ("ms", "no number before the unit"),
            ("+1s", "no number before the unit"),
            (" 1s", "no number before the unit"),
            (".5s", "no number before the unit"),
            ("1.s", "no number before the unit"),
            ("1.2.3s", "no number before the unit"),
            ("10sec", "unknown unit \"sec\""),
            ("10\u{b5}s", "unknown unit \"\u{b5}s\""),
            ("10s\u{1b}", "unknown unit \"s\\u{1b}\""),
            ("1e3s", "unknown unit \"e3s\""),
            ("0.5ns", "not a whole number of nanoseconds"),
            ("1.0000000001s", "not a whole number of nanoseconds"),
            ("0.11111111111111111111111111111111111111111111s", "not a whole number of nanoseconds"),
            ("18446744073709551616s", "number too large"),
            ("340282366920938463463374607431768211455ns", "number too large"),
            ("999999999999999999999999999999999999999999d", "number too large"),
        ] {
            let error = parse_duration(text).map_err(|error| error.to_string());
            assert_eq!(error, Err(message.to_owned()), "{text}");
        }
    }

    #[test]
    fn what_is_no_size_is_named() {
        // Proves that ambiguous and lower-case units are rejected with the unit to write instead.
        for (text, message) in [
            ("", "empty"),
            ("64", "no unit"),
            ("-1KiB", "negative"),
            ("KiB", "no number before the unit"),
            ("0.3KiB", "not a whole number of bytes"),
            ("16777216TiB", "number too large"),
            ("1PiB", "unknown unit \"PiB\""),
            ("64KB", "ambiguous unit \"KB\": 1000 or 1024; KiB is 1024-based"),
            ("1m", "ambiguous unit \"m\": 1000 or 1024; MiB is 1024-based"),
            ("1Gib", "ambiguous unit \"Gib\": 1000 or 1024; GiB is 1024-based"),
        ] {
            let error = parse_size(text).map_err(|error| error.to_string());
            assert_eq!(error, Err(message.to_owned()), "{text}");
        }
    }

    #[test]
    fn printed_in_the_largest_exact_unit() {
        // Proves that nothing is rounded and that zero has a unit.
        assert_eq!(format_duration(Duration::ZERO), "0s");
        assert_eq!(format_duration(Duration::from_millis(1500)), "1500ms");
        assert_eq!(format_duration(Duration::from_secs(90)), "90s");
        assert_eq!(format_duration(Duration::from_secs(86_400)), "1d");
        assert_eq!(format_size(0), "0B");
        assert_eq!(format_size(1536 << 20), "1536MiB");
        assert_eq!(format_size(4097), "4097B");
    }

    proptest! {
        #[test]
        fn what_is_printed_reads_back(seconds in any::<u64>(), rest in 0..1_000_000_000_u32, bytes in any::<u64>()) {
            // Proves that formatting and parsing are inverse over the whole range of both types.
            let duration = Duration::new(seconds, rest);
            prop_assert_eq!(parse_duration(&format_duration(duration)), Ok(duration));
            prop_assert_eq!(parse_size(&format_size(bytes)), Ok(bytes));
        }

        #[test]
        fn no_text_panics(text in any::<String>(), number in "[0-9.]{0,60}", unit in "[a-zA-Z]{0,3}") {
            // Proves that any text gives a value or an error.
            for text in [text, format!("{number}{unit}")] {
                prop_assert!(parse_duration(&text).is_ok() || parse_duration(&text).is_err());
                prop_assert!(parse_size(&text).is_ok() || parse_size(&text).is_err());
            }
        }
    }
}
