//! Durations, sizes and percentages in the notation that people write, parsed and printed without
//! rounding.

use std::ops::RangeInclusive;
use std::time::Duration;

use flatcap_format::duration::{self, DurationError};
use flatcap_format::units::{TIME_UNITS, Unit, WRITTEN_SIZE_UNITS, in_exact_unit};

/// The kind of quantity that a number measures. The quantity determines how the number is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quantity {
    /// A count without a unit.
    Count,
    /// A size in bytes.
    Bytes,
    /// A duration in nanoseconds.
    Nanoseconds,
    /// A percentage in hundredths of a percent.
    BasisPoints,
}

/// A share of one core's time.
// The share is an integer, so that configurations can be compared and shares are printed exactly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct CpuShare(u32);

impl CpuShare {
    /// A share of all time of a core, which is 100 %.
    pub const WHOLE: Self = Self(10_000);

    /// Creates a share from a number of hundredths of a percent.
    pub const fn of_basis_points(points: u32) -> Self {
        Self(points)
    }

    /// Returns the share in hundredths of a percent; at least 1.
    pub fn basis_points(self) -> u32 {
        self.0
    }
}

impl std::fmt::Display for CpuShare {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&Quantity::BasisPoints.format(self.0.into()))
    }
}

/// The reason why a string is not a duration, size or percentage.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UnitError {
    /// The string is empty.
    #[error("empty")]
    Empty,
    /// The number has no unit.
    #[error("no unit, as in {}", example.escape_debug())]
    NoUnit {
        /// The number with a common unit, as an example.
        example: String,
    },
    /// The number is negative.
    #[error("negative")]
    Negative,
    /// There is no number before the unit, or the number is not plain decimal.
    #[error("no number before the unit")]
    NoNumber,
    /// The string has a character that occurs neither in numbers nor in units.
    #[error("invalid character in the number or the unit")]
    InvalidCharacter,
    /// The number with a common unit, as an example.
    #[error("unknown unit \"{}\"", unit.escape_debug())]
    UnknownUnit {
        /// The unit as written.
        unit: String,
    },
    /// The size unit may mean a power of 1000 or of 1024, or is misspelt.
    #[error("ambiguous unit \"{unit}\": 1000 or 1024; {example} is 1024-based")]
    AmbiguousUnit {
        /// The unit as written.
        unit: String,
        /// The number with the unit that was probably meant.
        example: String,
    },
    /// The number has fractions of the smallest unit, so it would have to be rounded.
    #[error("not a whole number of {smallest}")]
    NotWhole {
        /// The smallest unit.
        smallest: &'static str,
    },
    /// The number needs more than 64 bits.
    #[error("number too large")]
    Overflow,
    /// The duration has too many digits, because it is too long or finer than a nanosecond.
    #[error("too long, or finer than a nanosecond")]
    TooPrecise,
}

impl Quantity {
    /// Parses a text with a unit.
    ///
    /// # Errors
    /// The text is not a number with a unit of this quantity, is not a multiple of the smallest
    /// unit, or needs more than 64 bits.
    pub fn parse(self, text: &str) -> Result<u64, UnitError> {
        if self == Self::Nanoseconds {
            return parse_duration(text);
        }
        // The size 0 needs no unit.
        if self == Self::Bytes && text == "0" {
            return Ok(0);
        }
        let (number, unit) = split(text)?;
        match (self, unit) {
            (Self::Count, "") => scaled(number, 1, "whole numbers"),
            (Self::BasisPoints, "") => Err(UnitError::NoUnit { example: format!("{number}%") }),
            (_, "") => Err(UnitError::NoUnit { example: format!("{number}MiB") }),
            (Self::BasisPoints, "%") => scaled(number, 100, "hundredths of a percent"),
            (Self::Bytes, unit) => match WRITTEN_SIZE_UNITS.iter().find(|known| known.name == unit) {
                Some(known) => scaled(number, known.scale, "bytes"),
                None => Err(size_unit_error(number, unit)),
            },
            (_, unit) => Err(UnitError::UnknownUnit { unit: unit.to_owned() }),
        }
    }

    /// Returns a number with its unit, as a string.
    pub fn format(self, number: u64) -> String {
        match self {
            Self::Count => number.to_string(),
            Self::Bytes => format_size(number),
            Self::Nanoseconds => format_duration(Duration::from_nanos(number)),
            Self::BasisPoints => match (number / 100, number % 100) {
                (percent, 0) => format!("{percent}%"),
                (percent, rest) if rest % 10 == 0 => format!("{percent}.{}%", rest / 10),
                (percent, rest) => format!("{percent}.{rest:02}%"),
            },
        }
    }

    /// Returns a description of the form in which the quantity is written.
    pub fn form(self) -> &'static str {
        match self {
            Self::Count => "write a whole number without quotes",
            Self::Bytes => "write a number with B, KiB, MiB, GiB or TiB",
            Self::Nanoseconds => "write a number with ns, us, ms, s, m, h or d",
            Self::BasisPoints => "write a number with %",
        }
    }
}

/// Parses a duration into nanoseconds.
fn parse_duration(text: &str) -> Result<u64, UnitError> {
    if text.starts_with('-') {
        return Err(UnitError::Negative);
    }
    let no_unit = || UnitError::NoUnit { example: format!("{text}s") };
    // The library accepts 0 without a unit, so this function refuses 0.
    if text == "0" {
        return Err(no_unit());
    }
    let duration = duration::parse_duration(text).map_err(|error| match error {
        DurationError::Empty => UnitError::Empty,
        DurationError::UnknownUnit { unit, .. } if unit.is_empty() => no_unit(),
        DurationError::UnknownUnit { unit, .. } => UnitError::UnknownUnit { unit },
        DurationError::NumberOverflow => UnitError::TooPrecise,
        DurationError::NumberExpected(_) => UnitError::NoNumber,
        DurationError::InvalidCharacter(_) => UnitError::InvalidCharacter,
    })?;
    u64::try_from(duration.as_nanos()).map_err(|_overflow| UnitError::TooPrecise)
}

/// Formats a duration in the largest unit that needs no fraction. For example, 1.5 s is `1500ms`.
pub fn format_duration(duration: Duration) -> String {
    // No setting and no recording is longer than 584 years.
    let nanoseconds = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
    // The table contains the minute as it is written in conditions, `min`. Settings use `m`.
    formatted(&TIME_UNITS, nanoseconds, "s").replace("min", "m")
}

/// Formats a size in the largest unit that needs no fraction. For example, 1.5 GiB is `1536MiB`.
pub fn format_size(bytes: u64) -> String {
    formatted(WRITTEN_SIZE_UNITS, bytes, "B")
}

/// Parses an argument that is a duration longer than zero.
///
/// # Errors
/// The text is not a duration within the range. The message says which form is valid.
pub fn duration_argument(text: &str) -> Result<Duration, String> {
    let form = Quantity::Nanoseconds.form();
    match Quantity::Nanoseconds.parse(text) {
        Ok(0) => Err(format!("too small; {form}, more than 0s")),
        Ok(nanoseconds) => Ok(Duration::from_nanos(nanoseconds)),
        Err(error) => Err(format!("{error}; {form}")),
    }
}

/// Parses an argument that is a size within `range`.
///
/// # Errors
/// The text is not a size within the range. The message says what to write.
pub fn size_argument(text: &str, range: &RangeInclusive<u64>) -> Result<u64, String> {
    let error = match Quantity::Bytes.parse(text) {
        Ok(size) if range.contains(&size) => return Ok(size),
        Ok(size) if size < *range.start() => "too small".to_owned(),
        Ok(_) => "too large".to_owned(),
        Err(error) => error.to_string(),
    };
    let (form, [start, end]) =
        (Quantity::Bytes.form(), [range.start(), range.end()].map(|size| format_size(*size)));
    Err(format!("{error}; {form}, from {start} to {end}"))
}

/// Splits a text into number and unit. Spaces are allowed between them.
fn split(text: &str) -> Result<(&str, &str), UnitError> {
    if text.is_empty() {
        return Err(UnitError::Empty);
    }
    if text.starts_with('-') {
        return Err(UnitError::Negative);
    }
    // An exponent or an underscore ends the number, and is then reported as an unknown unit.
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    if number.is_empty() {
        return Err(UnitError::NoNumber);
    }
    Ok((number, unit.trim_start_matches(' ')))
}

/// Returns a decimal number times `scale`, if the result is an integer.
fn scaled(number: &str, scale: u64, smallest: &'static str) -> Result<u64, UnitError> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let is_decimal = |digits: &str| !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    if !is_decimal(whole) || !is_decimal(fraction) {
        return Err(UnitError::NoNumber);
    }
    let whole = whole.parse::<u64>().ok().and_then(|whole| whole.checked_mul(scale));
    let whole = whole.ok_or(UnitError::Overflow)?;
    // Only integers are used, because in floating point 0.1 GiB would not be an exact number of
    // bytes. Trailing zeros do not change the value. A fraction that is too long for 128 bits is
    // far finer than any unit.
    let fraction = fraction.trim_end_matches('0');
    let tens = u32::try_from(fraction.len()).ok().and_then(|places| 10_u128.checked_pow(places));
    let digits = if fraction.is_empty() { Some(0) } else { fraction.parse::<u128>().ok() };
    match (tens, digits.and_then(|digits| digits.checked_mul(u128::from(scale)))) {
        (Some(tens), Some(part)) if part.is_multiple_of(tens) => {
            let part = u64::try_from(part / tens).ok();
            part.and_then(|part| whole.checked_add(part)).ok_or(UnitError::Overflow)
        }
        _ => Err(UnitError::NotWhole { smallest }),
    }
}

/// Returns the error for an unknown size unit.
fn size_unit_error(number: &str, unit: &str) -> UnitError {
    let lower = unit.to_ascii_lowercase();
    let prefix = lower.strip_suffix("ib").or(lower.strip_suffix('b')).unwrap_or(&lower);
    let has_prefix = |known: &&Unit| known.name.to_ascii_lowercase().strip_suffix("ib") == Some(prefix);
    let (unit, meant) = (unit.to_owned(), WRITTEN_SIZE_UNITS.iter().find(has_prefix));
    match meant {
        Some(meant) => UnitError::AmbiguousUnit { unit, example: format!("{number}{}", meant.name) },
        None => UnitError::UnknownUnit { unit },
    }
}

fn formatted(units: &'static [Unit], value: u64, zero_unit: &str) -> String {
    // 0 is a multiple of every unit, so without this case the largest unit would be printed.
    if value == 0 { format!("0{zero_unit}") } else { in_exact_unit(units, value) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SIZE: Quantity = Quantity::Bytes;
    const SHARE: Quantity = Quantity::BasisPoints;

    // Proves that the error of a wrong duration says which form is valid.
    #[test]
    fn errors_of_durations_say_what_to_write() {
        let duration = |text| duration_argument(text).unwrap_err();
        assert_eq!(duration("10"), "no unit, as in 10s; write a number with ns, us, ms, s, m, h or d");
        assert_eq!(duration("0s"), "too small; write a number with ns, us, ms, s, m, h or d, more than 0s");
        assert_eq!(duration_argument("90sec"), Ok(Duration::from_secs(90)));
    }

    #[test]
    fn durations_as_people_write_them() {
        // Proves that each unit, its longer names, fractions, sums and spaces are parsed exactly.
        for (text, nanoseconds) in [
            ("0s", 0),
            ("50ns", 50),
            ("250us", 250_000),
            ("1.5us", 1_500),
            ("10ms", 10_000_000),
            ("1.5s", 1_500_000_000),
            ("0.1m", 6_000_000_000),
            ("15m", 900_000_000_000),
            ("0.5h", 1_800_000_000_000),
            ("7d", 604_800_000_000_000),
            ("10 ms", 10_000_000),
            ("0010ms", 10_000_000),
            ("90sec", 90_000_000_000),
            ("1h 30m", 5_400_000_000_000),
            ("1h30min", 5_400_000_000_000),
            ("2 weeks", 1_209_600_000_000_000),
        ] {
            assert_eq!(parse_duration(text), Ok(nanoseconds), "{text}");
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
            assert_eq!(SIZE.parse(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn what_is_no_duration_is_named() {
        // Proves that each mistake has a different message, and that no string reaches the sum at
        // which the library panics.
        for (text, message) in [
            ("", "empty"),
            ("  ", "empty"),
            ("10", "no unit, as in 10s"),
            ("10.5", "no unit, as in 10.5s"),
            ("1h 30", "no unit, as in 1h 30s"),
            ("0", "no unit, as in 0s"),
            ("-10ms", "negative"),
            ("ms", "no number before the unit"),
            ("+1s", "no number before the unit"),
            (".5s", "no number before the unit"),
            ("1h min", "no number before the unit"),
            ("1.s", "invalid character in the number or the unit"),
            ("1.2.3s", "invalid character in the number or the unit"),
            ("10s\u{1b}", "invalid character in the number or the unit"),
            ("1_000s", "invalid character in the number or the unit"),
            ("10sek", "unknown unit \"sek\""),
            ("1e3s", "unknown unit \"e\""),
            ("0.5ns", "too long, or finer than a nanosecond"),
            ("1.0000000001s", "too long, or finer than a nanosecond"),
            ("18446744073709551616s", "too long, or finer than a nanosecond"),
            ("5124095576030431h15s1000ms", "too long, or finer than a nanosecond"),
            ("999999999999999999999999999999999999999999d", "too long, or finer than a nanosecond"),
        ] {
            let error = parse_duration(text).map_err(|error| error.to_string());
            assert_eq!(error, Err(message.to_owned()), "{text}");
        }
    }

    #[test]
    fn what_is_no_size_is_named() {
        // Proves that ambiguous and lower-case units are rejected with an error that names the
        // correct unit.
        for (text, message) in [
            ("", "empty"),
            ("64", "no unit, as in 64MiB"),
            ("-1KiB", "negative"),
            ("KiB", "no number before the unit"),
            ("1.2.3KiB", "no number before the unit"),
            ("0.3KiB", "not a whole number of bytes"),
            ("16777216TiB", "number too large"),
            ("16777215.9999999999999999999TiB", "not a whole number of bytes"),
            ("1PiB", "unknown unit \"PiB\""),
            ("64KB", "ambiguous unit \"KB\": 1000 or 1024; 64KiB is 1024-based"),
            ("1m", "ambiguous unit \"m\": 1000 or 1024; 1MiB is 1024-based"),
            ("1Gib", "ambiguous unit \"Gib\": 1000 or 1024; 1GiB is 1024-based"),
        ] {
            let error = SIZE.parse(text).map_err(|error| error.to_string());
            assert_eq!(error, Err(message.to_owned()), "{text}");
        }
    }

    #[test]
    fn percentages_are_exact() {
        // Proves that decimals are exact, and that signs, other units and more decimals are
        // rejected.
        for (text, points) in [("5%", Ok(500)), ("12.5 %", Ok(1250)), ("0.01%", Ok(1)), ("300%", Ok(30_000))]
        {
            assert_eq!(SHARE.parse(text), points, "{text}");
        }
        for (text, message) in [
            ("+5%", "no number before the unit"),
            ("-5%", "negative"),
            ("%", "no number before the unit"),
            ("5", "no unit, as in 5%"),
            ("5MiB", "unknown unit \"MiB\""),
            ("0.001%", "not a whole number of hundredths of a percent"),
        ] {
            let error = SHARE.parse(text).map_err(|error| error.to_string());
            assert_eq!(error, Err(message.to_owned()), "{text}");
        }
        assert_eq!(SHARE.parse("99999999999999999999999%"), Err(UnitError::Overflow));
    }

    #[test]
    fn printed_in_the_largest_exact_unit() {
        // Proves that no value is rounded and that zero has a unit.
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
        fn what_is_printed_reads_back(nanoseconds in any::<u64>(), bytes in any::<u64>(), points in 0..1_000_000_u64) {
            // Proves that formatting and parsing are inverse, for durations of up to 584 years.
            let text = format_duration(Duration::from_nanos(nanoseconds));
            prop_assert_eq!(parse_duration(&text), Ok(nanoseconds));
            prop_assert_eq!(SIZE.parse(&format_size(bytes)), Ok(bytes));
            prop_assert_eq!(SHARE.parse(&SHARE.format(points)), Ok(points));
        }

        #[test]
        fn no_text_panics(text in any::<String>(), number in "[0-9.]{0,60}", unit in "[a-zA-Z%]{0,3}") {
            // Proves that any string results in a value or an error.
            for text in [text, format!("{number}{unit}")] {
                prop_assert!(parse_duration(&text).is_ok() || parse_duration(&text).is_err());
                prop_assert!(SIZE.parse(&text).is_ok() || SIZE.parse(&text).is_err());
                prop_assert!(SHARE.parse(&text).is_ok() || SHARE.parse(&text).is_err());
            }
        }
    }

    // Proves that the error of each wrong size says what to write.
    #[test]
    fn errors_of_sizes_say_what_to_write() {
        let size = |text| size_argument(text, &(1024..=4096)).unwrap_err();
        let form = "write a number with B, KiB, MiB, GiB or TiB, from 1KiB to 4KiB";
        assert_eq!(size("1"), format!("no unit, as in 1MiB; {form}"));
        assert_eq!(size("1B"), format!("too small; {form}"));
        assert_eq!(size("5KiB"), format!("too large; {form}"));
        assert_eq!(size("5MB"), format!("ambiguous unit \"MB\": 1000 or 1024; 5MiB is 1024-based; {form}"));
        assert_eq!(size_argument("2KiB", &(1024..=4096)), Ok(2048));
    }
}
