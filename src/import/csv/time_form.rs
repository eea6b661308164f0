//! The form of the column that says the time.

use std::str::FromStr;

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::fmt::strtime;
use jiff::tz::TimeZone;

const NS_PER_S: i64 = 1_000_000_000;
/// Most digits of seconds, milliseconds and microseconds since 1970 that are recognized: those of
/// the next three thousand years.
const SECOND_DIGITS_MAX: usize = 11;
const MILLISECOND_DIGITS_MAX: usize = 14;
const MICROSECOND_DIGITS_MAX: usize = 17;
/// Digits of a fraction that count; further ones are below a nanosecond.
const FRACTION_DIGITS: usize = 9;

/// How a column says the time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TimeForm {
    /// ISO 8601: 2026-11-22T21:05:37.463435+01:00, 2026-11-22 21:05:37.
    Iso,
    /// Since 1970, in units of so many nanoseconds; seconds may have decimals.
    SinceEpoch(i64),
    /// A pattern of strftime(3).
    Pattern(String),
}

/// A text that is no form of times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no such form; use iso, s, ms, us, ns (since 1970), or a pattern such as \"%d.%m.%Y %H:%M:%S\"")]
pub struct TimeFormError;

impl FromStr for TimeForm {
    type Err = TimeFormError;

    fn from_str(text: &str) -> Result<Self, TimeFormError> {
        Ok(match text {
            "iso" => Self::Iso,
            "s" => Self::SinceEpoch(NS_PER_S),
            "ms" => Self::SinceEpoch(1_000_000),
            "us" => Self::SinceEpoch(1_000),
            "ns" => Self::SinceEpoch(1),
            pattern if pattern.contains('%') => Self::Pattern(pattern.to_owned()),
            _ => return Err(TimeFormError),
        })
    }
}

impl TimeForm {
    /// Recognizes the form of a time; none if it has no form that can be told from others.
    pub(super) fn recognize(text: &str, zone: &TimeZone) -> Option<Self> {
        let digits = text.strip_prefix('-').unwrap_or(text);
        let form = if digits.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
            let whole = digits.split('.').next().unwrap_or_default().len();
            let units = [
                (SECOND_DIGITS_MAX, NS_PER_S),
                (MILLISECOND_DIGITS_MAX, 1_000_000),
                (MICROSECOND_DIGITS_MAX, 1_000),
            ];
            let unit = units.iter().find(|(digits_max, _)| whole <= *digits_max);
            Self::SinceEpoch(unit.map_or(1, |(_, unit_ns)| *unit_ns))
        } else {
            Self::Iso
        };
        form.wall_ns(text, zone).is_some().then_some(form)
    }

    /// Returns the form for people.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Iso => "ISO 8601".to_owned(),
            Self::SinceEpoch(NS_PER_S) => "seconds since 1970".to_owned(),
            Self::SinceEpoch(1_000_000) => "milliseconds since 1970".to_owned(),
            Self::SinceEpoch(1_000) => "microseconds since 1970".to_owned(),
            Self::SinceEpoch(_) => "nanoseconds since 1970".to_owned(),
            Self::Pattern(pattern) => pattern.clone(),
        }
    }

    /// Returns a time in nanoseconds since 1970; none if the text has another form. Times without
    /// an offset are in `zone`.
    pub(super) fn wall_ns(&self, text: &str, zone: &TimeZone) -> Option<i64> {
        match self {
            Self::Iso => match text.parse::<Timestamp>() {
                Ok(stamp) => nanoseconds(stamp),
                Err(_) => local(text.parse().ok()?, zone),
            },
            Self::SinceEpoch(unit_ns) => since_epoch(text, *unit_ns),
            Self::Pattern(pattern) => {
                let parts = strtime::parse(pattern, text).ok()?;
                if let Ok(stamp) = parts.to_timestamp() {
                    return nanoseconds(stamp);
                }
                let time = parts.to_datetime().or_else(|_| parts.to_date().map(DateTime::from));
                local(time.ok()?, zone)
            }
        }
    }
}

fn local(time: DateTime, zone: &TimeZone) -> Option<i64> {
    nanoseconds(time.to_zoned(zone.clone()).ok()?.timestamp())
}

fn nanoseconds(stamp: Timestamp) -> Option<i64> {
    i64::try_from(stamp.as_nanosecond()).ok()
}

/// Parses a number of units since 1970, exactly: without floating point.
fn since_epoch(text: &str, unit_ns: i64) -> Option<i64> {
    let (is_negative, digits) = text.strip_prefix('-').map_or((false, text), |digits| (true, digits));
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, "0"));
    let are_digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    if !are_digits(whole) || !are_digits(fraction) || (digits.contains('.') && unit_ns != NS_PER_S) {
        return None;
    }
    let fraction = fraction.get(..FRACTION_DIGITS.min(fraction.len()))?;
    let below_ns: i64 = if unit_ns == NS_PER_S { format!("{fraction:0<9}").parse().ok()? } else { 0 };
    let ns = whole.parse::<i64>().ok()?.checked_mul(unit_ns)?.checked_add(below_ns)?;
    Some(if is_negative { -ns } else { ns })
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT_NS: i64 = 1_700_000_000_000_000_000; // 2023-11-14T22:13:20Z

    fn zone() -> TimeZone {
        TimeZone::fixed(jiff::tz::offset(1))
    }

    // Proves that each form is recognized and read exactly, and that times without an offset are in
    // the zone.
    #[test]
    fn forms_are_recognized() {
        for (text, form, ns) in [
            ("2023-11-14T22:13:20.000000007Z", "iso", AT_NS + 7),
            ("2023-11-14T23:13:20+01:00", "iso", AT_NS),
            ("2023-11-14 23:13:20.25", "iso", AT_NS + 250_000_000),
            ("2023-11-15", "iso", AT_NS + 2_800_000_000_000),
            ("1700000000", "s", AT_NS),
            ("1700000000.123456789123", "s", AT_NS + 123_456_789),
            ("-1.5", "s", -1_500_000_000),
            ("1700000000123", "ms", AT_NS + 123_000_000),
            ("1700000000123456", "us", AT_NS + 123_456_000),
            ("1700000000123456789", "ns", AT_NS + 123_456_789),
        ] {
            let found = TimeForm::recognize(text, &zone());
            assert_eq!(found, Some(form.parse().unwrap()), "{text}");
            assert_eq!(found.unwrap().wall_ns(text, &zone()), Some(ns), "{text}");
        }
        for text in ["", ".", "11/14/2023", "noon", "1700000000123.5", "99999999999999999999", "1.7e9"] {
            assert_eq!(TimeForm::recognize(text, &zone()), None, "{text}");
        }
    }

    // Proves that patterns are read, with and without an offset, a time, and that others are
    // refused.
    #[test]
    fn patterns_are_read() {
        let ns = |pattern: &str, text: &str| pattern.parse::<TimeForm>().unwrap().wall_ns(text, &zone());
        assert_eq!(ns("%d.%m.%Y %H:%M:%S", "14.11.2023 23:13:20"), Some(AT_NS));
        assert_eq!(ns("%m/%d/%Y %H:%M:%S %z", "11/14/2023 22:13:20 +0000"), Some(AT_NS));
        assert_eq!(ns("%d/%m/%Y", "15/11/2023"), Some(AT_NS + 2_800_000_000_000));
        assert_eq!(ns("%d/%m/%Y", "2023-11-15"), None);
        assert!("days".parse::<TimeForm>().unwrap_err().to_string().contains("use iso"));
    }
}
