//! Parses dates and times of day in national formats, for example 27.10.2024 02:30 or 10/27/2024
//! 2:30 PM.

use jiff::civil::{Date, DateTime, Time};

/// The order of day, month and year.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DateOrder {
    /// 2024/10/27, 24/10/27, 20241027.
    Ymd,
    /// 27.10.2024, 27/10/2024, 27-Oct-2024.
    Dmy,
    /// 10/27/2024.
    Mdy,
}

const MONTHS: [&str; 12] =
    ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
/// Largest two-digit year that belongs to the years 2000 to 2068. Larger two-digit years belong to
/// 1969 to 1999, as in strptime(3).
const SHORT_YEAR_MAX: i16 = 68;
const FRACTION_DIGITS: usize = 9;

/// Parses a date and an optional time of day (midnight by default). Also returns the rest of the
/// text, such as a zone name.
pub(super) fn calendar_time(text: &str, order: DateOrder) -> Option<(DateTime, &str)> {
    // The letter T in the month OCT does not end the date.
    let mut ends = text.match_indices([' ', 'T', ',']).map(|(at, _)| at);
    let is_after_digit = |at: &usize| text.get(..*at).is_some_and(ends_with_digit);
    let date_end = ends.find(is_after_digit).unwrap_or(text.len());
    let (date, rest) = text.split_at_checked(date_end)?;
    let date = date_of(date, order)?;
    let rest = rest.trim_start_matches([' ', 'T', ',']);
    if !rest.starts_with(|first: char| first.is_ascii_digit()) {
        return Some((DateTime::from_parts(date, Time::midnight()), rest));
    }
    if let Some(rest) = end_of_day(rest) {
        return Some((DateTime::from_parts(date.tomorrow().ok()?, Time::midnight()), rest));
    }
    let (time, rest) = compact_time(rest).map(|time| (time, "")).or_else(|| time_of_day(rest))?;
    Some((DateTime::from_parts(date, time), rest))
}

/// Recognizes the time 24:00 or 24:00:00, with which meters and weather stations mark the end of a
/// day. Returns the rest of the text.
fn end_of_day(text: &str) -> Option<&str> {
    let rest = text.strip_prefix("24:00")?;
    let rest = rest.strip_prefix(":00").unwrap_or(rest);
    let rest = rest.strip_prefix(['.', ',']).map_or(rest, |fraction| fraction.trim_start_matches('0'));
    let is_over = !rest.starts_with(|next: char| next.is_ascii_digit() || matches!(next, ':' | '.' | ','));
    is_over.then(|| rest.trim_start())
}

/// Returns whether the last character is a digit.
pub(super) fn ends_with_digit(text: &str) -> bool {
    text.ends_with(|last: char| last.is_ascii_digit())
}

/// Parses a time of day of six digits, for example 023000.
pub(super) fn compact_time(text: &str) -> Option<Time> {
    let (hour, minute, second) = compact_parts(text, 6)?;
    Time::new(hour.parse().ok()?, minute.parse().ok()?, second.parse().ok()?, 0).ok()
}

/// Splits a text of `len` digits into a first part and two parts of two digits each.
fn compact_parts(text: &str, len: usize) -> Option<(&str, &str, &str)> {
    let is_compact = text.len() == len && text.bytes().all(|byte| byte.is_ascii_digit());
    let (first, rest) = text.split_at_checked(len - 4).filter(|_| is_compact)?;
    let (second, third) = rest.split_at_checked(2)?;
    Some((first, second, third))
}

/// Parses a time of day, such as 2:30 PM or 02:30:00.25. Also returns the rest of the text.
pub(super) fn time_of_day(text: &str) -> Option<(Time, &str)> {
    let is_of_time = |character: char| character.is_ascii_digit() || matches!(character, ':' | '.' | ',');
    let end = text.find(|character| !is_of_time(character)).unwrap_or(text.len());
    let (digits, rest) = text.split_at_checked(end)?;
    let mut parts = digits.split(':');
    let hour = short_number(parts.next()?)?;
    let minute = short_number(parts.next()?)?;
    let seconds = parts.next().unwrap_or("0");
    let (second, fraction) = seconds.split_once(['.', ',']).unwrap_or((seconds, "0"));
    if parts.next().is_some() || fraction.is_empty() || !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let fraction = fraction.get(..FRACTION_DIGITS.min(fraction.len()))?;
    let below_ns = format!("{fraction:0<9}").parse().ok()?;
    let rest = rest.trim_start();
    let word_end = rest.find(' ').unwrap_or(rest.len());
    let (word, after) = rest.split_at_checked(word_end)?;
    let (hour, rest) = match &*word.replace('.', "").to_ascii_lowercase() {
        "am" if (1..=12).contains(&hour) => (hour % 12, after.trim_start()),
        "pm" if (1..=12).contains(&hour) => (hour % 12 + 12, after.trim_start()),
        "am" | "pm" => return None,
        _ => (hour, rest),
    };
    Some((Time::new(hour, minute, short_number(second)?, below_ns).ok()?, rest))
}

fn date_of(text: &str, order: DateOrder) -> Option<Date> {
    if let Some((year, month, day)) = compact_parts(text, 8).filter(|_| order == DateOrder::Ymd) {
        return Date::new(year.parse().ok()?, month.parse().ok()?, day.parse().ok()?).ok();
    }
    let separator = text.chars().find(|character| matches!(character, '.' | '/' | '-'))?;
    let parts: Vec<&str> = text.split(separator).collect();
    let [first, second, third] = parts[..] else { return None };
    let (year, month, day) = match order {
        DateOrder::Ymd if first.len() == 4 => (first, second, third),
        // Spark and log4j write dates such as 24/10/27. In a date with points, the day is first.
        DateOrder::Ymd if first.len() == 2 && separator != '.' && third.len() == 2 && is_short(second) => {
            (first, second, third)
        }
        DateOrder::Dmy => (third, second, first),
        // In a date with points, the month is never first. Months written as words are accepted
        // only in the other orders (27-Oct-2024).
        DateOrder::Mdy if separator != '.' => (third, first, second),
        DateOrder::Ymd | DateOrder::Mdy => return None,
    };
    let name = |text: &str| MONTHS.iter().position(|name| text.eq_ignore_ascii_case(name));
    let month = match name(month) {
        Some(position) if order != DateOrder::Mdy => i8::try_from(position + 1).ok()?,
        _ => short_number(month)?,
    };
    let is_number = year.bytes().all(|byte| byte.is_ascii_digit());
    let number = year.parse::<i16>().ok().filter(|_| is_number)?;
    let year = match year.len() {
        4 => number,
        2 if number <= SHORT_YEAR_MAX => number + 2000,
        2 => number + 1900,
        _ => return None,
    };
    Date::new(year, month, short_number(day)?).ok()
}

fn is_short(text: &str) -> bool {
    short_number(text).is_some()
}

/// Parses a number of one or two digits.
fn short_number(text: &str) -> Option<i8> {
    let is_short = (1..=2).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_short)
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that dates of each order are parsed with the time of day and the rest of the text, and
    // that invalid dates are refused.
    #[test]
    fn calendar_times_are_read() {
        for (text, order, expected, rest) in [
            ("2024/03/01 12:00:00.000", DateOrder::Ymd, "2024-03-01T12:00:00", ""),
            ("20241027 023005", DateOrder::Ymd, "2024-10-27T02:30:05", ""),
            ("20241027", DateOrder::Ymd, "2024-10-27T00:00:00", ""),
            ("24/10/27 02:00:00", DateOrder::Ymd, "2024-10-27T02:00:00", ""),
            ("27.10.2024 02:30", DateOrder::Dmy, "2024-10-27T02:30:00", ""),
            ("27.10.24", DateOrder::Dmy, "2024-10-27T00:00:00", ""),
            ("1/2/2024 2:30:05,25 PM CET", DateOrder::Dmy, "2024-02-01T14:30:05.25", "CET"),
            ("1/2/2024, 12:00:00 a.m.", DateOrder::Mdy, "2024-01-02T00:00:00", ""),
            ("27-Oct-2024 02:30:00 UTC", DateOrder::Dmy, "2024-10-27T02:30:00", "UTC"),
            ("27-OCT-2024 02:30:00", DateOrder::Dmy, "2024-10-27T02:30:00", ""),
            ("27-OCT-2024T02:30:00", DateOrder::Dmy, "2024-10-27T02:30:00", ""),
            ("27-OCT-24,02:30", DateOrder::Dmy, "2024-10-27T02:30:00", ""),
            ("12/31/2024 24:00", DateOrder::Mdy, "2025-01-01T00:00:00", ""),
            ("2024-02-28 24:00:00.000 CET", DateOrder::Ymd, "2024-02-29T00:00:00", "CET"),
        ] {
            let (time, left) = calendar_time(text, order).unwrap();
            assert_eq!((time.to_string().as_str(), left), (expected, rest), "{text}");
        }
        for text in [
            "",
            "1/2",
            "1/2/2024 25:00:00",
            "1/2/2024 24:01",
            "1/2/2024 24:00:01",
            "1/2/2024 24:00:00.1",
            "1/2/2024 1:2:3:4",
            "1/2/2024 13:00 PM",
            "31/31/2024",
            "1.2.3",
        ] {
            for order in [DateOrder::Ymd, DateOrder::Dmy, DateOrder::Mdy] {
                assert_eq!(calendar_time(text, order), None, "{text}");
            }
        }
        assert_eq!(calendar_time("1.2.2024", DateOrder::Mdy), None, "points are of the day first");
        for text in ["27.10.24", "27-Oct-24", "4/1/27"] {
            assert_eq!(calendar_time(text, DateOrder::Ymd), None, "{text}");
        }
    }
}
