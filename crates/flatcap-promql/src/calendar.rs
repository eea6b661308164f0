//! The date of a time, in UTC.

use jiff::Timestamp;
use jiff::tz::Offset;

/// A part of a date, which is a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CalendarPart {
    Minute,
    Hour,
    /// From 0, a Sunday, to 6.
    DayOfWeek,
    DayOfMonth,
    DayOfYear,
    DaysInMonth,
    Month,
    Year,
}

/// Returns a part of the date of a time in seconds since 1970. Returns NaN for a time outside of
/// the years -9999 to 9999.
#[allow(clippy::cast_possible_truncation, reason = "towards 0, as Prometheus converts it")]
pub(crate) fn calendar_part(part: CalendarPart, seconds: f64) -> f64 {
    let time = (!seconds.is_nan()).then(|| Timestamp::from_second(seconds as i64));
    let Some(Ok(time)) = time else { return f64::NAN };
    let date = Offset::UTC.to_datetime(time);
    match part {
        CalendarPart::Minute => date.minute().into(),
        CalendarPart::Hour => date.hour().into(),
        CalendarPart::DayOfWeek => date.weekday().to_sunday_zero_offset().into(),
        CalendarPart::DayOfMonth => date.day().into(),
        CalendarPart::DayOfYear => date.day_of_year().into(),
        CalendarPart::DaysInMonth => date.days_in_month().into(),
        CalendarPart::Month => date.month().into(),
        CalendarPart::Year => date.year().into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARTS: [CalendarPart; 8] = [
        CalendarPart::Year,
        CalendarPart::Month,
        CalendarPart::DayOfMonth,
        CalendarPart::Hour,
        CalendarPart::Minute,
        CalendarPart::DayOfWeek,
        CalendarPart::DayOfYear,
        CalendarPart::DaysInMonth,
    ];

    // Proves that dates before and after 1970, and the last day of February in a leap year, have
    // the parts of the date in UTC. Times beyond the calendar have no parts.
    #[test]
    #[allow(clippy::cast_possible_truncation, reason = "parts of dates are small")]
    fn parts_follow_the_calendar() {
        let of = |seconds: f64| PARTS.map(|part| calendar_part(part, seconds) as i64);
        assert_eq!(of(0.0), [1970, 1, 1, 0, 0, 4, 1, 31]);
        assert_eq!(of(-0.5), of(0.0));
        assert_eq!(of(-1.0), [1969, 12, 31, 23, 59, 3, 365, 31]);
        assert_eq!(of(951_827_696.7), [2000, 2, 29, 12, 34, 2, 60, 29]);
        assert_eq!(of(1_700_000_000.0), [2023, 11, 14, 22, 13, 2, 318, 30]);
        for seconds in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e15] {
            assert!(PARTS.iter().all(|part| calendar_part(*part, seconds).is_nan()), "{seconds}");
        }
    }
}
