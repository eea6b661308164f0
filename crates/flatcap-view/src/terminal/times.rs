//! Formats points in time and durations for people.

use jiff::Timestamp;
use jiff::tz::TimeZone;

/// Formats a wall time as a date and a time of day with microseconds. If `has_offset` is true, the
/// offset of the zone follows.
pub(super) fn date_and_time(wall_ns: i64, zone: &TimeZone, has_offset: bool) -> String {
    let time = Timestamp::from_nanosecond(wall_ns.into()).unwrap_or_default().to_zoned(zone.clone());
    // Times before 1970 are negative.
    let micros = wall_ns.rem_euclid(1_000_000_000) / 1000;
    let offset = match (has_offset, time.offset().seconds()) {
        (false, _) => String::new(),
        (true, 0) => "Z".to_owned(),
        (true, _) => time.strftime("%:z").to_string(),
    };
    format!("{}.{micros:06}{offset}", time.strftime("%Y-%m-%d %H:%M:%S"))
}

/// Formats a wall time as time of day with milliseconds.
pub(super) fn time_of_day(wall_ns: i64, zone: &TimeZone) -> String {
    let time = Timestamp::from_nanosecond(wall_ns.into()).unwrap_or_default().to_zoned(zone.clone());
    // Times before 1970 are negative.
    format!("{}.{:03}", time.strftime("%H:%M:%S"), wall_ns.rem_euclid(1_000_000_000) / 1_000_000)
}

/// Formats a duration: `300 ms`, `1.5 s`, `2 min`, `3 h`.
pub(super) fn length(ns: i64) -> String {
    #[allow(clippy::cast_precision_loss, reason = "for people")]
    let value = ns as f64;
    let (value, unit) = match ns.unsigned_abs() {
        0..1_000_000 => (value / 1e3, "us"),
        1_000_000..1_000_000_000 => (value / 1e6, "ms"),
        1_000_000_000..120_000_000_000 => (value / 1e9, "s"),
        120_000_000_000..7_200_000_000_000 => (value / 6e10, "min"),
        _ => (value / 3.6e12, "h"),
    };
    let text = format!("{value:.1}");
    format!("{} {unit}", text.trim_end_matches('0').trim_end_matches('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that times have microseconds and, on request, the offset of their zone, and that
    // durations have a unit.
    #[test]
    fn times_are_formatted() {
        let zone = TimeZone::fixed(jiff::tz::offset(1));
        let wall_ns = 1_700_000_000_463_435_999;
        assert_eq!(date_and_time(wall_ns, &zone, true), "2023-11-14 23:13:20.463435+01:00");
        assert_eq!(date_and_time(wall_ns, &TimeZone::UTC, true), "2023-11-14 22:13:20.463435Z");
        assert_eq!(date_and_time(wall_ns, &TimeZone::UTC, false), "2023-11-14 22:13:20.463435");
        assert_eq!(time_of_day(-1, &TimeZone::UTC), "23:59:59.999");
        let shown = [0, 1_000_000, 1_500_000_000, 120_000_000_000, 10_800_000_000_000].map(length);
        assert_eq!(shown, ["0 us", "1 ms", "1.5 s", "2 min", "3 h"]);
    }
}
