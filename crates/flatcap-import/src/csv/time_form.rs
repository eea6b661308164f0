//! The format of times in cells.

use std::borrow::Cow;
use std::str::FromStr;

use jiff::Timestamp;
use jiff::civil::{Date, DateTime, Time};
use jiff::fmt::strtime;

use super::calendar::{DateOrder, calendar_time, compact_time, ends_with_digit, time_of_day};

const NS_PER_S: i64 = 1_000_000_000;
/// Maximum number of digits in a time in seconds since 1970. The next two constants limit times in
/// milliseconds and in microseconds. The digits are enough for the next three thousand years.
const SECOND_DIGITS_MAX: usize = 11;
const MILLISECOND_DIGITS_MAX: usize = 14;
const MICROSECOND_DIGITS_MAX: usize = 17;
/// The years in which recorded times are expected. A number that gives a time outside these years
/// is probably not a time since 1970.
const YEARS: std::ops::RangeInclusive<i16> = 1990..=2099;
/// The range of `YEARS` in nanoseconds since 1970.
const YEARS_NS: std::ops::Range<i64> = 631_152_000 * NS_PER_S..4_102_444_800 * NS_PER_S;
/// Maximum number of fractional digits that are used.
const FRACTION_DIGITS: usize = 18;

/// The format of times.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TimeForm {
    /// ISO 8601, for example 2026-11-22T21:05:37.463435+01:00 or 2026-11-22 21:05:37.
    Iso,
    /// A number that counts time since 1970, with or without decimals. The value is the unit of the
    /// number, in nanoseconds.
    SinceEpoch(i64),
    /// A date in the given order of day, month and year, and a time of day.
    Calendar(DateOrder),
    /// A pattern of strftime(3).
    Pattern(String),
}

/// The error for an unknown time format.
const UNKNOWN_FORM: &str = "no such form; use iso, ymd, dmy, mdy (dates in this order), s, ms, us, ns \
                            (since 1970), or a pattern such as \"%d.%m.%Y %H:%M:%S\"";

/// The time of a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CellTime<'c> {
    /// Nanoseconds since 1970.
    Instant(i64),
    /// A local time.
    Local(DateTime),
    /// A local time, with the name of its zone.
    Named(DateTime, &'c str),
}

impl FromStr for TimeForm {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        Ok(match text {
            "iso" => Self::Iso,
            "s" => Self::SinceEpoch(NS_PER_S),
            "ms" => Self::SinceEpoch(1_000_000),
            "us" => Self::SinceEpoch(1_000),
            "ns" => Self::SinceEpoch(1),
            "ymd" => Self::Calendar(DateOrder::Ymd),
            "dmy" => Self::Calendar(DateOrder::Dmy),
            "mdy" => Self::Calendar(DateOrder::Mdy),
            pattern if pattern.contains('%') => Self::Pattern(pattern.to_owned()),
            _ => return Err(UNKNOWN_FORM),
        })
    }
}

impl TimeForm {
    /// Returns the possible formats of a time, the most likely format first. Returns an empty list
    /// if the text is not a time.
    pub(super) fn candidates(text: &str) -> Vec<Self> {
        let compact = Self::Calendar(DateOrder::Ymd);
        let is_digits = text.bytes().all(|byte| byte.is_ascii_digit());
        if let Some(CellTime::Local(day)) = compact.read(text).filter(|_| is_digits)
            && YEARS.contains(&day.year())
        {
            return vec![compact];
        }
        let mut forms = vec![Self::of_number(text).unwrap_or(Self::Iso)];
        forms.retain(|form| form.read(text).is_some());
        if forms.is_empty() {
            // A year of two digits is more often last than first.
            let orders = [DateOrder::Dmy, DateOrder::Mdy, DateOrder::Ymd];
            forms.extend(orders.map(Self::Calendar).into_iter().filter(|form| form.read(text).is_some()));
        }
        forms
    }

    /// Returns the format that the number of digits suggests, or `None` if the text is not a
    /// number.
    fn of_number(text: &str) -> Option<Self> {
        let digits = text.strip_prefix('-').unwrap_or(text);
        let is_of_number = |byte: u8| byte.is_ascii_digit() || matches!(byte, b'.' | b',');
        if digits.is_empty() || !digits.bytes().all(is_of_number) {
            return None;
        }
        let whole = digits.split(['.', ',']).next().unwrap_or_default().len();
        let units = [
            (SECOND_DIGITS_MAX, NS_PER_S),
            (MILLISECOND_DIGITS_MAX, 1_000_000),
            (MICROSECOND_DIGITS_MAX, 1_000),
        ];
        let unit = units.iter().find(|(digits_max, _)| whole <= *digits_max);
        Some(Self::SinceEpoch(unit.map_or(1, |(_, unit_ns)| *unit_ns)))
    }

    /// Returns a human-readable description of the format.
    pub(super) fn name(&self) -> Cow<'_, str> {
        Cow::Borrowed(match self {
            Self::Iso => "ISO 8601",
            Self::SinceEpoch(NS_PER_S) => "seconds since 1970",
            Self::SinceEpoch(1_000_000) => "milliseconds since 1970",
            Self::SinceEpoch(1_000) => "microseconds since 1970",
            Self::SinceEpoch(_) => "nanoseconds since 1970",
            Self::Calendar(DateOrder::Ymd) => "year, month, day",
            Self::Calendar(DateOrder::Dmy) => "day, month, year",
            Self::Calendar(DateOrder::Mdy) => "month, day, year",
            Self::Pattern(pattern) => pattern,
        })
    }

    /// Returns the word that options use for the format.
    pub(super) fn word(&self) -> &str {
        match self {
            Self::Iso => "iso",
            Self::SinceEpoch(NS_PER_S) => "s",
            Self::SinceEpoch(1_000_000) => "ms",
            Self::SinceEpoch(1_000) => "us",
            Self::SinceEpoch(_) => "ns",
            Self::Calendar(DateOrder::Ymd) => "ymd",
            Self::Calendar(DateOrder::Dmy) => "dmy",
            Self::Calendar(DateOrder::Mdy) => "mdy",
            Self::Pattern(pattern) => pattern,
        }
    }

    /// Returns whether a time is a number and lies before 1990 or after 2099.
    pub(super) fn is_doubtful(&self, time: CellTime<'_>) -> bool {
        self.is_number() && matches!(time, CellTime::Instant(ns) if !YEARS_NS.contains(&ns))
    }

    /// Returns whether times are numbers.
    pub(super) fn is_number(&self) -> bool {
        matches!(self, Self::SinceEpoch(_))
    }

    /// Parses a time whose unit is derived from its number of digits. Returns `None` if the text
    /// has another format, or if its number of digits indicates another unit.
    pub(super) fn read_by_digits<'c>(&self, text: &'c str) -> Option<CellTime<'c>> {
        let is_own = !self.is_number() || Self::of_number(text).as_ref() == Some(self);
        self.read(text).filter(|_| is_own)
    }

    /// Parses a time. Returns `None` if the text has another format.
    pub(super) fn read<'c>(&self, text: &'c str) -> Option<CellTime<'c>> {
        match self {
            Self::Iso => {
                if let Ok(stamp) = text.parse::<Timestamp>() {
                    return Some(CellTime::Instant(nanoseconds(stamp)?));
                }
                if let Ok(time) = text.parse::<DateTime>() {
                    // jiff ignores a zone in brackets.
                    if let Some((_, word)) = text.split_once('[') {
                        return Some(CellTime::Named(time, word.trim_end_matches(']')));
                    }
                    return Some(CellTime::Local(time));
                }
                let named_time =
                    text.rsplit_once(' ').and_then(|(time, word)| named(time.trim_end().parse().ok()?, word));
                // Some programs write the hour with one digit, for example 2024-03-01 9:00:00.
                named_time
                    .or_else(|| Self::Calendar(DateOrder::Ymd).read(text).filter(|_| text.contains('-')))
                    .or_else(|| month(text).map(CellTime::Local))
            }
            Self::SinceEpoch(unit_ns) => since_epoch(text, *unit_ns).map(CellTime::Instant),
            Self::Calendar(order) => {
                let (time, rest) = calendar_time(text, *order)?;
                if rest.is_empty() { Some(CellTime::Local(time)) } else { named(time, rest) }
            }
            Self::Pattern(pattern) => {
                let parts = strtime::parse(pattern, text).ok()?;
                if let Ok(stamp) = parts.to_timestamp() {
                    return Some(CellTime::Instant(nanoseconds(stamp)?));
                }
                let time = parts.to_datetime().or_else(|_| parts.to_date().map(DateTime::from));
                Some(CellTime::Local(time.ok()?))
            }
        }
    }
}

/// Parses a month, such as 2024-03, and returns the time at which the month begins.
fn month(text: &str) -> Option<DateTime> {
    let (year, month) = text.split_once('-')?;
    let are_digits =
        |part: &str, count| part.len() == count && part.bytes().all(|byte| byte.is_ascii_digit());
    let is_month = are_digits(year, 4) && are_digits(month, 2);
    let first = Date::new(year.parse().ok()?, month.parse().ok()?, 1).ok()?;
    is_month.then(|| first.to_datetime(Time::midnight()))
}

/// Returns whether a text is a time of day without a date.
pub(super) fn is_time_of_day(text: &str) -> bool {
    time_of_day(text).is_some_and(|(_, rest)| rest.is_empty())
}

/// Returns whether a text is a time of day in six digits, for example 023000.
pub(super) fn is_compact_time(text: &str) -> bool {
    compact_time(text).is_some()
}

/// Returns whether a text is a date without a time of day.
pub(super) fn is_date(text: &str) -> bool {
    let is_plain =
        text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'/' | b'-'));
    let form = TimeForm::candidates(text).into_iter().find(|form| !matches!(form, TimeForm::SinceEpoch(_)));
    // The letter T in the month OCT does not separate a date from a time of day.
    let is_mark = |(at, _): (usize, &str)| text.get(..at).is_some_and(ends_with_digit);
    is_plain && !text.match_indices(['T', 'Z']).any(is_mark) && form.is_some()
}

fn named(time: DateTime, word: &str) -> Option<CellTime<'_>> {
    let word = word.trim_matches(['[', ']', '(', ')']);
    let is_word = word.starts_with(|first: char| first.is_ascii_alphabetic() || matches!(first, '+' | '-'));
    let is_zone = word.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-:/_".contains(&byte));
    let is_half_day = ["am", "pm"].iter().any(|half| word.eq_ignore_ascii_case(half));
    (is_word && is_zone && !is_half_day).then_some(CellTime::Named(time, word))
}

fn nanoseconds(stamp: Timestamp) -> Option<i64> {
    i64::try_from(stamp.as_nanosecond()).ok()
}

/// Parses a number of units since 1970 without floating point, so that the result is exact. Digits
/// beyond nanoseconds are truncated.
fn since_epoch(text: &str, unit_ns: i64) -> Option<i64> {
    let (is_negative, digits) = text.strip_prefix('-').map_or((false, text), |digits| (true, digits));
    let (whole, fraction) = digits.split_once(['.', ',']).unwrap_or((digits, "0"));
    let are_digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    if !are_digits(whole) || !are_digits(fraction) {
        return None;
    }
    let fraction = fraction.get(..FRACTION_DIGITS.min(fraction.len()))?;
    let parts = 10_i128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let below_ns = i64::try_from(fraction.parse::<i128>().ok()? * i128::from(unit_ns) / parts).ok()?;
    let ns = whole.parse::<i64>().ok()?.checked_mul(unit_ns)?.checked_add(below_ns)?;
    Some(if is_negative { -ns } else { ns })
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT_NS: i64 = 1_700_000_000_000_000_000; // 2023-11-14T22:13:20Z

    // Proves that each format is recognized and parsed exactly.
    #[test]
    fn forms_are_recognized() {
        for (text, form, ns) in [
            ("2023-11-14T22:13:20.000000007Z", "iso", AT_NS + 7),
            ("2023-11-14T23:13:20+01:00", "iso", AT_NS),
            ("1700000000", "s", AT_NS),
            ("1700000000.123456789123", "s", AT_NS + 123_456_789),
            ("1700000000,5", "s", AT_NS + 500_000_000),
            ("-1.5", "s", -1_500_000_000),
            ("1700000000123", "ms", AT_NS + 123_000_000),
            ("1700000000123.25", "ms", AT_NS + 123_250_000),
            ("1700000000123456", "us", AT_NS + 123_456_000),
            ("1700000000123456.5", "us", AT_NS + 123_456_500),
            ("1700000000123456789", "ns", AT_NS + 123_456_789),
            ("20241399", "s", 20_241_399 * NS_PER_S),
            ("30001231", "s", 30_001_231 * NS_PER_S),
        ] {
            let found = TimeForm::candidates(text).remove(0);
            assert_eq!(found, form.parse().unwrap(), "{text}");
            assert_eq!((found.read(text), found.word()), (Some(CellTime::Instant(ns)), form), "{text}");
        }
        for text in ["", ".", "11/14", "noon", "99999999999999999999", "1.7e9", "12:00:00"] {
            assert_eq!(TimeForm::candidates(text), [], "{text}");
        }
    }

    // Proves that local times are parsed with and without the name of a zone. A date such as
    // 01/02/2024 has two possible orders.
    #[test]
    fn local_times_are_read() {
        let time = jiff::civil::date(2023, 11, 14).at(23, 13, 20, 250_000_000);
        let read = |text| TimeForm::candidates(text).remove(0).read(text).unwrap();
        assert_eq!(read("2023-11-14 23:13:20.25"), CellTime::Local(time));
        assert_eq!(read("2023-11-14 23:13:20,25"), CellTime::Local(time));
        assert_eq!(read("2023-11-14 23:13:20.25 CET"), CellTime::Named(time, "CET"));
        assert_eq!(read("2023-11-14T23:13:20.25[Europe/Berlin]"), CellTime::Named(time, "Europe/Berlin"));
        assert_eq!(read("11/14/2023 11:13:20.25 PM EST"), CellTime::Named(time, "EST"));
        assert_eq!(read("2023-11-14 23:13:20.25"), read("2023-11-14 11:13:20.25 PM"));
        assert_eq!(read("14.11.2023 23:13:20,25"), CellTime::Local(time));
        let both = [DateOrder::Dmy, DateOrder::Mdy].map(TimeForm::Calendar);
        assert_eq!(TimeForm::candidates("01/02/2024 00:00:00"), both);
        assert_eq!(read("20241027"), CellTime::Local(jiff::civil::date(2024, 10, 27).at(0, 0, 0, 0)));
        assert_eq!(read("20241027 023005"), CellTime::Local(jiff::civil::date(2024, 10, 27).at(2, 30, 5, 0)));
        assert_eq!(read("2024-03"), CellTime::Local(jiff::civil::date(2024, 3, 1).at(0, 0, 0, 0)));
        assert!(TimeForm::candidates("2024-13").is_empty() && TimeForm::candidates("24-03").is_empty());
        assert!(is_date("20241027") && is_compact_time("023005") && !is_compact_time("026005"));
        assert!(is_date("27-OCT-2024") && is_date("27-Oct-2024") && !is_date("2024-10-27T01"));
        assert!(is_date("27.10.2024") && is_date("2024-10-27") && is_date("10/27/2024"));
        assert!(!is_date("2024-10-27 01:00:00") && !is_date("1700000000") && !is_date("1.5"));
        assert!(is_time_of_day("01:00:00.5") && is_time_of_day("1:00 PM") && !is_time_of_day("1:00 CET"));
    }

    // Proves that patterns with and without an offset or a time of day are parsed, and that other
    // times are refused.
    #[test]
    fn patterns_are_read() {
        let read = |pattern: &str, text| {
            pattern.parse::<TimeForm>().unwrap().read(text).map(|time| format!("{time:?}"))
        };
        let local = |time: DateTime| Some(format!("{:?}", CellTime::Local(time)));
        let day = jiff::civil::date(2023, 11, 14);
        assert_eq!(read("%d.%m.%Y %H:%M:%S", "14.11.2023 23:13:20"), local(day.at(23, 13, 20, 0)));
        let instant = Some(format!("{:?}", CellTime::Instant(AT_NS)));
        assert_eq!(read("%m/%d/%Y %H:%M:%S %z", "11/14/2023 22:13:20 +0000"), instant);
        assert_eq!(read("%d/%m/%Y", "14/11/2023"), local(day.at(0, 0, 0, 0)));
        assert_eq!(read("%d/%m/%Y", "2023-11-15"), None);
        assert!("days".parse::<TimeForm>().unwrap_err().to_string().contains("use iso"));
    }
}
