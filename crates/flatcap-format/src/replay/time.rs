//! Parses points in time.

use jiff::civil::{DateTime, Time};
use jiff::tz::{Offset, TimeZone};
use jiff::{Timestamp, ToSpan, Zoned};

use crate::duration::parse_duration;

/// A bare number with at least this many digits is a time in nanoseconds. The outputs print
/// `wall_ns` in this form. If such a number were in seconds, it would exceed the range of
/// representable times.
const NANOSECOND_DIGITS_MIN: usize = 16;
/// Minimum number of digits of a bare number that is a time in seconds. A shorter number is
/// rejected, because a number such as `20261122` is a misspelt date, not a second in 1970.
const SECOND_DIGITS_MIN: usize = 9;

/// A point in time, absolute or relative to the recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeSpec {
    /// Wall time, in nanoseconds since 1970, UTC.
    Wall(i64),
    /// Time since the recording's first sample, in nanoseconds.
    FromStart(u64),
    /// Nanoseconds before the recording's end.
    BeforeEnd(u64),
    /// A time of day on the day on which the recording ends, with its offset from UTC. `None` means
    /// the local time zone.
    TimeOfDay(Time, Option<Offset>),
}

/// The error for a string that is not a point in time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "\"{text}\" is not a point in time; use 2026-11-21T14:03:07.25+01:00, 2026-11-21, 14:03:07 (of the last day \
     recorded), -5m (before the end), now-5m, +10s (after the first sample), @1700000000.5 (seconds since 1970) or \
     a wall_ns"
)]
pub struct TimeError {
    text: String,
}

impl TimeSpec {
    /// Parses `text`; `now_ns` is the current wall time, and `zone` is the time zone of dates that
    /// do not state a time zone.
    ///
    /// # Errors
    /// Fails if the string is not a point in time. The error lists every valid form.
    pub fn parse(text: &str, now_ns: i64, zone: &TimeZone) -> Result<Self, TimeError> {
        let text = text.trim();
        let parsed = if let Some(seconds) = text.strip_prefix('@') {
            epoch_ns(seconds).map(Self::Wall)
        } else if let Some(duration) = text.strip_prefix('+') {
            duration_ns(duration).map(|ns| Self::FromStart(ns.unsigned_abs()))
        } else if let Some(duration) = text.strip_prefix('-') {
            duration_ns(duration).map(|ns| Self::BeforeEnd(ns.unsigned_abs()))
        } else if let Some(duration) = text.strip_suffix("ago") {
            duration_ns(duration.trim_end()).and_then(|ns| now_ns.checked_sub(ns)).map(Self::Wall)
        } else if let Some(distance) = text.strip_prefix("now") {
            from_now(distance, now_ns).map(Self::Wall)
        } else if text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
            number(text).map(Self::Wall)
        } else if let Ok(stamp) = text.parse::<Timestamp>() {
            nanoseconds(stamp).map(Self::Wall)
        } else {
            day(text, now_ns, zone).map(Self::Wall).or_else(|| time_of_day(text))
        };
        parsed.ok_or_else(|| TimeError { text: text.to_owned() })
    }

    /// Returns whether the point depends on the recording's end.
    pub(super) fn depends_on_end(self) -> bool {
        matches!(self, Self::BeforeEnd(_) | Self::TimeOfDay(..))
    }

    /// Returns the wall time in nanoseconds, for a recording that ends at `end_ns`. Returns `None`
    /// for a time relative to the first sample, and for a time outside of the range of 64 bits.
    pub fn wall_ns(self, end_ns: i64, zone: &TimeZone) -> Option<i64> {
        match self {
            Self::Wall(wall_ns) => Some(wall_ns),
            Self::FromStart(_) => None,
            Self::BeforeEnd(ns) => end_ns.checked_sub_unsigned(ns),
            Self::TimeOfDay(time, offset) => {
                let zone = offset.map_or_else(|| zone.clone(), TimeZone::fixed);
                let end: Zoned = Timestamp::from_nanosecond(end_ns.into()).ok()?.to_zoned(zone.clone());
                wall_time(end.date().to_datetime(time), &zone)
            }
        }
    }
}

fn duration_ns(text: &str) -> Option<i64> {
    i64::try_from(parse_duration(text).ok()?.as_nanos()).ok()
}

/// Adds the offset that follows `now` in the string. It is empty, or a sign followed by a duration.
fn from_now(distance: &str, now_ns: i64) -> Option<i64> {
    if let Some(duration) = distance.strip_prefix('-') {
        return now_ns.checked_sub(duration_ns(duration)?);
    }
    match distance.strip_prefix('+') {
        Some(duration) => now_ns.checked_add(duration_ns(duration)?),
        None => distance.is_empty().then_some(now_ns),
    }
}

/// Parses a bare number. The number of digits determines whether the number is in nanoseconds or in
/// seconds since 1970.
fn number(text: &str) -> Option<i64> {
    match text.find('.').unwrap_or(text.len()) {
        NANOSECOND_DIGITS_MIN.. => text.parse().ok(),
        SECOND_DIGITS_MIN.. => epoch_ns(text),
        _ => None,
    }
}

/// Parses a number of seconds since 1970, with up to nine decimals. The result is exact, because no
/// floating point is used.
fn epoch_ns(text: &str) -> Option<i64> {
    let (seconds, decimals) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(seconds) || !digits(decimals) || decimals.len() > 9 {
        return None;
    }
    let seconds: i64 = seconds.parse().ok()?;
    let nanoseconds: i64 = format!("{decimals:0<9}").parse().ok()?;
    seconds.checked_mul(1_000_000_000)?.checked_add(nanoseconds)
}

/// Parses a date in the zone, with or without a time. Also accepts `today` and `yesterday`.
fn day(text: &str, now_ns: i64, zone: &TimeZone) -> Option<i64> {
    let days_ago = match text {
        "today" => 0,
        "yesterday" => 1,
        _ => return wall_time(text.parse().ok()?, zone),
    };
    let now = Timestamp::from_nanosecond(now_ns.into()).ok()?.to_zoned(zone.clone());
    wall_time(now.date().checked_sub(days_ago.days()).ok()?.to_datetime(Time::midnight()), zone)
}

/// Parses a time of day, with or without an offset from UTC.
fn time_of_day(text: &str) -> Option<TimeSpec> {
    let (time, offset) = text.split_at(text.find(['Z', 'z', '+', '-']).unwrap_or(text.len()));
    // The library also accepts hours without minutes, and a leading T. This parser refuses both
    // forms.
    if !time.starts_with(|first: char| first.is_ascii_digit()) || !time.contains(':') {
        return None;
    }
    let offset = if offset.is_empty() { None } else { Some(parse_offset(offset)?) };
    Some(TimeSpec::TimeOfDay(time.parse().ok()?, offset))
}

/// Parses `Z` or an offset such as `+01:00`.
fn parse_offset(text: &str) -> Option<Offset> {
    let second_day: Timestamp = format!("1970-01-02T00:00:00{text}").parse().ok()?;
    Offset::from_seconds(i32::try_from(86_400 - second_day.as_second()).ok()?).ok()
}

fn wall_time(time: DateTime, zone: &TimeZone) -> Option<i64> {
    nanoseconds(time.to_zoned(zone.clone()).ok()?.timestamp())
}

fn nanoseconds(stamp: Timestamp) -> Option<i64> {
    i64::try_from(stamp.as_nanosecond()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_NS: i64 = 1_700_000_000_000_000_000; // 2023-11-14T22:13:20Z
    const HOUR_NS: i64 = 3_600_000_000_000;

    fn zone(hours: i8) -> TimeZone {
        TimeZone::fixed(jiff::tz::offset(hours))
    }

    fn parse(text: &str) -> Option<TimeSpec> {
        TimeSpec::parse(text, NOW_NS, &zone(1)).ok()
    }

    // Proves that every documented form is parsed exactly.
    #[test]
    fn every_form_is_read() {
        for (text, expected) in [
            ("2023-11-14T22:13:20.000000001Z", NOW_NS + 1),
            ("2023-11-15T00:13:20+02:00", NOW_NS),
            ("2023-11-14 23:13:20+01:00", NOW_NS),
            ("2023-11-14 23:13:20", NOW_NS),
            ("2023-11-14T23:13:20.25", NOW_NS + 250_000_000),
            ("2023-11-15", NOW_NS + HOUR_NS * 46 / 60 + 40_000_000_000),
            ("today", NOW_NS - HOUR_NS * 23 - HOUR_NS * 13 / 60 - 20_000_000_000),
            ("yesterday", NOW_NS - HOUR_NS * 47 - HOUR_NS * 13 / 60 - 20_000_000_000),
            ("3m ago", NOW_NS - 180_000_000_000),
            ("1500ms ago", NOW_NS - 1_500_000_000),
            ("now", NOW_NS),
            ("now-5m", NOW_NS - 300_000_000_000),
            ("now+1h 30m", NOW_NS + HOUR_NS * 3 / 2),
            ("@1700000000.5", NOW_NS + 500_000_000),
            ("@1700000000", NOW_NS),
            ("@5", 5_000_000_000),
            ("1700000000", NOW_NS),
            ("1700000000.000000001", NOW_NS + 1),
            ("1700000000000000007", NOW_NS + 7),
            ("1000000000000000", 1_000_000_000_000_000),
        ] {
            assert_eq!(parse(text), Some(TimeSpec::Wall(expected)), "{text}");
        }
        assert_eq!(parse("+10s"), Some(TimeSpec::FromStart(10_000_000_000)));
        assert_eq!(parse("-300ms"), Some(TimeSpec::BeforeEnd(300_000_000)));
        assert_eq!(parse("-1h 30m"), Some(TimeSpec::BeforeEnd(5_400_000_000_000)));
    }

    // Proves that a time of day is on the last day of the recording, in the stated zone or in the
    // caller's zone, and that -5m is relative to the end.
    #[test]
    fn the_end_of_a_recording_places_times() {
        let at = |text: &str, hours| parse(text).and_then(|time| time.wall_ns(NOW_NS, &zone(hours)));
        assert_eq!(at("22:13:20.25", 0), Some(NOW_NS + 250_000_000));
        assert_eq!(at("23:13:20", 1), Some(NOW_NS));
        assert_eq!(at("23:13:20", 3), Some(NOW_NS + 22 * HOUR_NS), "it is the next day there");
        assert_eq!(at("22:13:20Z", 9), Some(NOW_NS));
        assert_eq!(at("22:13:20.5z", 9), Some(NOW_NS + 500_000_000));
        assert_eq!(at("00:13:20+02:00", 0), Some(NOW_NS));
        assert_eq!(at("17:43:20-04:30", 0), Some(NOW_NS));
        assert_eq!(at("22:13", 0), Some(NOW_NS - 20_000_000_000));
        assert_eq!(at("-5m", 0), Some(NOW_NS - 300_000_000_000));
        assert_eq!(at("+5m", 0), None);
        assert!(["-5m", "10:00", "10:00Z"].iter().all(|text| parse(text).unwrap().depends_on_end()));
        assert!(["+5m", "now", "2023-11-14"].iter().all(|text| !parse(text).unwrap().depends_on_end()));
    }

    // Proves that strings that are similar to a valid one are rejected, and that the error contains
    // the value and the valid forms.
    #[test]
    fn near_misses_are_refused() {
        for text in [
            "5124095576030431h15s1000ms ago",
            "",
            "@",
            "@1.",
            "@-1",
            "@1.0000000001",
            "+",
            "+10",
            "ago",
            "-",
            "-5",
            "5",
            "5m",
            "25:00",
            "T14",
            "T14:00",
            "14:00+",
            "14:00+1:0:0:0",
            "20261122",
            "1700000000.",
            "1700000000000",
            "1700000000000000000.5",
            "99999999999999999999",
            "now5m",
            "now-5",
            "nowadays",
            "2023-13-01",
            "yesterdayish",
            "@1e9",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
        let error = TimeSpec::parse("soon", 0, &TimeZone::UTC).unwrap_err().to_string();
        assert!(error.starts_with("\"soon\" is not a point in time; use "), "{error}");
    }
}
