//! The date of a time, in UTC.

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

const DAY_S: i64 = 86_400;
/// 1970-01-01 was a Thursday.
const FIRST_WEEKDAY: i64 = 4;
/// Days from 0000-03-01 to 1970-01-01.
const DAYS_TO_1970: i64 = 719_468;
/// Days in 400 years.
const ERA_DAYS: i64 = 146_097;
/// Largest time, in seconds: some 10 million years.
const SECONDS_MAX: f64 = 3e14;

/// Returns a part of the date of a time in seconds since 1970. Returns NaN for a time that has no
/// date.
#[allow(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "within the limit")]
pub(crate) fn calendar_part(part: CalendarPart, seconds: f64) -> f64 {
    if seconds.is_nan() || seconds.abs() > SECONDS_MAX {
        return f64::NAN;
    }
    // Towards 0, as Prometheus converts it.
    let seconds = seconds as i64;
    let (days, of_day) = (seconds.div_euclid(DAY_S), seconds.rem_euclid(DAY_S));
    let (year, month, day) = date(days);
    let number = match part {
        CalendarPart::Minute => of_day / 60 % 60,
        CalendarPart::Hour => of_day / 3600,
        CalendarPart::DayOfWeek => (days + FIRST_WEEKDAY).rem_euclid(7),
        CalendarPart::DayOfMonth => day,
        CalendarPart::DayOfYear => days - days_before(year, 1) + 1,
        CalendarPart::DaysInMonth => {
            let next = if month == 12 { (year + 1, 1) } else { (year, month + 1) };
            days_before(next.0, next.1) - days_before(year, month)
        }
        CalendarPart::Month => month,
        CalendarPart::Year => year,
    };
    number as f64
}

/// Returns year, month and day of a number of days since 1970. Years begin in March here, so that
/// the day that only leap years have is their last one.
fn date(days: i64) -> (i64, i64, i64) {
    let from_march = days + DAYS_TO_1970;
    let (era, of_era) = (from_march.div_euclid(ERA_DAYS), from_march.rem_euclid(ERA_DAYS));
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

/// Returns the number of days from 1970 to the first day of a month.
fn days_before(year: i64, month: i64) -> i64 {
    let year = year - i64::from(month <= 2);
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let shifted = if month > 2 { month - 3 } else { month + 9 };
    let of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + (153 * shifted + 2) / 5;
    era * ERA_DAYS + of_era - DAYS_TO_1970
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that each day of 800 years follows the day before, by the calendar's rules; and known
    // dates.
    #[test]
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        reason = "seconds of dates are exact"
    )]
    fn days_follow_each_other() {
        let is_leap = |year: i64| year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
        let length = |year, month| match month {
            2 => 28 + i64::from(is_leap(year)),
            4 | 6 | 9 | 11 => 30,
            _ => 31,
        };
        let (mut year, mut month, mut day) = (1600, 1, 1);
        let (mut day_of_year, mut weekday) = (1, 6);
        for days in days_before(1600, 1)..days_before(2400, 1) {
            assert_eq!(date(days), (year, month, day));
            let at = |part| calendar_part(part, (days * DAY_S + 13 * 3600 + 59 * 60 + 7) as f64) as i64;
            let found = [
                CalendarPart::DayOfWeek,
                CalendarPart::DayOfYear,
                CalendarPart::DaysInMonth,
                CalendarPart::Hour,
                CalendarPart::Minute,
            ];
            assert_eq!(found.map(at), [weekday, day_of_year, length(year, month), 13, 59], "{days}");
            (day, day_of_year, weekday) = (day + 1, day_of_year + 1, (weekday + 1) % 7);
            if day > length(year, month) {
                (month, day) = (month + 1, 1);
            }
            if month > 12 {
                (year, month, day_of_year) = (year + 1, 1, 1);
            }
        }
        assert_eq!((year, date(0), date(19_675)), (2400, (1970, 1, 1), (2023, 11, 14)));
        assert!(calendar_part(CalendarPart::Year, f64::NAN).is_nan());
        assert!(calendar_part(CalendarPart::Year, f64::INFINITY).is_nan());
    }
}
