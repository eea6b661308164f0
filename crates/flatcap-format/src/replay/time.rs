//! Parses points in time.

use jiff::civil::Time;
use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};

use crate::duration::parse_duration;

/// A point in time, absolute or relative to the recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeSpec {
    /// Wall time, in nanoseconds since 1970, UTC.
    Wall(i64),
    /// Nanoseconds after the recording's first sample.
    FromStart(u64),
}

/// The error of a text that is not a point in time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "\"{text}\" is not a point in time; use 2026-11-21T14:03:07Z, 14:03:07.25 (today), \"3m ago\" or -3m, \
     @1700000000.5 (seconds since 1970) or +10s (after the first sample)"
)]
pub struct TimeError {
    text: String,
}

impl TimeSpec {
    /// Parses `text`; `now_ns` is the wall time and `zone` the time zone for a time of day.
    ///
    /// # Errors
    /// With every valid form.
    pub fn parse(text: &str, now_ns: i64, zone: &TimeZone) -> Result<Self, TimeError> {
        let text = text.trim();
        let parsed = if let Some(seconds) = text.strip_prefix('@') {
            epoch_ns(seconds).map(Self::Wall)
        } else if let Some(duration) = text.strip_prefix('+') {
            duration_ns(duration).map(|ns| Self::FromStart(ns.unsigned_abs()))
        } else if let Some(duration) = text.strip_suffix("ago").or(text.strip_prefix('-')) {
            duration_ns(duration.trim_end()).and_then(|ago| now_ns.checked_sub(ago)).map(Self::Wall)
        } else if text == "now" {
            Some(Self::Wall(now_ns))
        } else if let Ok(stamp) = text.parse::<Timestamp>() {
            nanoseconds(stamp).map(Self::Wall)
        } else {
            today(text, now_ns, zone).map(Self::Wall)
        };
        parsed.ok_or_else(|| TimeError { text: text.to_owned() })
    }
}

fn duration_ns(text: &str) -> Option<i64> {
    i64::try_from(parse_duration(text).ok()?.as_nanos()).ok()
}

/// Parses seconds with up to nine decimals, exactly: without floating point.
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

fn today(text: &str, now_ns: i64, zone: &TimeZone) -> Option<i64> {
    let time: Time = text.parse().ok()?;
    let now: Zoned = Timestamp::from_nanosecond(now_ns.into()).ok()?.to_zoned(zone.clone());
    let at = now.date().to_datetime(time).to_zoned(zone.clone()).ok()?;
    nanoseconds(at.timestamp())
}

fn nanoseconds(stamp: Timestamp) -> Option<i64> {
    i64::try_from(stamp.as_nanosecond()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_NS: i64 = 1_700_000_000_000_000_000; // 2023-11-14T22:13:20Z

    fn parse(text: &str) -> Option<TimeSpec> {
        TimeSpec::parse(text, NOW_NS, &TimeZone::UTC).ok()
    }

    // Proves that every documented form is parsed exactly.
    #[test]
    fn every_form_is_read() {
        assert_eq!(parse("2023-11-14T22:13:20.000000001Z"), Some(TimeSpec::Wall(NOW_NS + 1)));
        assert_eq!(parse("2023-11-15T00:13:20+02:00"), Some(TimeSpec::Wall(NOW_NS)));
        assert_eq!(parse("22:13:20.25"), Some(TimeSpec::Wall(NOW_NS + 250_000_000)));
        assert_eq!(parse("3m ago"), Some(TimeSpec::Wall(NOW_NS - 180_000_000_000)));
        assert_eq!(parse("-3m"), Some(TimeSpec::Wall(NOW_NS - 180_000_000_000)));
        assert_eq!(parse("1500ms ago"), Some(TimeSpec::Wall(NOW_NS - 1_500_000_000)));
        assert_eq!(parse("@1700000000.5"), Some(TimeSpec::Wall(NOW_NS + 500_000_000)));
        assert_eq!(parse("@1700000000"), Some(TimeSpec::Wall(NOW_NS)));
        assert_eq!(parse("+10s"), Some(TimeSpec::FromStart(10_000_000_000)));
    }

    // Proves that near misses are rejected.
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
            "25:00",
            "yesterdayish",
            "@1e9",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
        let error = TimeSpec::parse("soon", 0, &TimeZone::UTC).unwrap_err().to_string();
        assert!(error.starts_with("\"soon\" is not a point in time; use "), "{error}");
    }
}
