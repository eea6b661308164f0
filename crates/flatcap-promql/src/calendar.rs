//! Computes parts of the date of a time, in UTC.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::Offset;

/// A function that returns a part of a date as a number.
pub(crate) type CalendarPart = fn(DateTime) -> f64;

/// Returns a part of the date at a time, which is given in seconds since 1970. Returns NaN for a
/// time outside the years -9999 to 9999.
#[allow(clippy::cast_possible_truncation, reason = "towards 0, as Prometheus converts it")]
pub(crate) fn calendar_part(part: CalendarPart, seconds: f64) -> f64 {
    let time = (!seconds.is_nan()).then(|| Timestamp::from_second(seconds as i64));
    let Some(Ok(time)) = time else { return f64::NAN };
    part(Offset::UTC.to_datetime(time))
}

#[cfg(test)]
mod tests {
    use crate::function::Function;

    const PARTS: [&str; 8] =
        ["year", "month", "day_of_month", "hour", "minute", "day_of_week", "day_of_year", "days_in_month"];

    // Proves that the parts of dates are correct in UTC, before and after 1970 and on the last day
    // of February in a leap year. Times outside the calendar have no parts.
    #[test]
    #[allow(clippy::cast_possible_truncation, reason = "parts of dates are small")]
    fn parts_follow_the_calendar() {
        let part = |name: &str, seconds: f64| Function::named(name, &[]).unwrap().of(seconds).unwrap();
        let of = |seconds: f64| PARTS.map(|name| part(name, seconds) as i64);
        assert_eq!(of(0.0), [1970, 1, 1, 0, 0, 4, 1, 31]);
        assert_eq!(of(-0.5), of(0.0));
        assert_eq!(of(-1.0), [1969, 12, 31, 23, 59, 3, 365, 31]);
        assert_eq!(of(951_827_696.7), [2000, 2, 29, 12, 34, 2, 60, 29]);
        assert_eq!(of(1_700_000_000.0), [2023, 11, 14, 22, 13, 2, 318, 30]);
        for seconds in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e15] {
            assert!(PARTS.iter().all(|name| part(name, seconds).is_nan()), "{seconds}");
        }
    }
}
