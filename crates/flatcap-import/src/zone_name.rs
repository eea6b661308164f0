//! Time zones, named by offset, abbreviation or name of the tz database.

use flatcap_format::schema::nearest_name;
use jiff::civil::DateTime;
use jiff::tz::{Offset, TimeZone};

/// Abbreviations, each with its offset from UTC in minutes. The flag is true if zones with another
/// offset use the same abbreviation.
const ABBREVIATIONS: [(&str, i32, bool); 49] = [
    ("ACDT", 630, false),
    ("ACST", 570, false),
    ("AEDT", 660, false),
    ("AEST", 600, false),
    ("AKDT", -480, false),
    ("AKST", -540, false),
    ("ART", -180, false),
    ("AST", -240, true),
    ("AWST", 480, false),
    ("BRT", -180, false),
    ("BST", 60, true),
    ("CAT", 120, false),
    ("CDT", -300, true),
    ("CEST", 120, false),
    ("CET", 60, false),
    ("CST", -360, true),
    ("EAT", 180, false),
    ("EDT", -240, false),
    ("EEST", 180, false),
    ("EET", 120, false),
    ("EST", -300, false),
    ("GMT", 0, false),
    ("HKT", 480, false),
    ("HST", -600, false),
    ("IST", 330, true),
    ("JST", 540, false),
    ("KST", 540, false),
    ("MDT", -360, false),
    ("MEST", 120, false),
    ("MESZ", 120, false),
    ("MET", 60, false),
    ("MEZ", 60, false),
    ("MSK", 180, false),
    ("MST", -420, true),
    ("NPT", 345, false),
    ("NZDT", 780, false),
    ("NZST", 720, false),
    ("PDT", -420, false),
    ("PKT", 300, false),
    ("PST", -480, true),
    ("SAST", 120, false),
    ("SGT", 480, false),
    ("UT", 0, false),
    ("UTC", 0, false),
    ("WAT", 60, false),
    ("WEST", 60, false),
    ("WET", 0, false),
    ("WIB", 420, false),
    ("Z", 0, false),
];

/// A zone that a word names.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct NamedZone {
    pub(super) zone: TimeZone,
    /// Whether zones with other offsets have the same abbreviation.
    pub(super) is_ambiguous: bool,
}

/// Returns the zone that a word names, or `None` if the name is unknown.
pub(super) fn zone_named(word: &str) -> Option<NamedZone> {
    let fixed = |minutes: i32, is_ambiguous| {
        let zone = if minutes == 0 {
            TimeZone::UTC
        } else {
            TimeZone::fixed(Offset::from_seconds(minutes.checked_mul(60)?).ok()?)
        };
        Some(NamedZone { zone, is_ambiguous })
    };
    if let Some((_, minutes, is_ambiguous)) =
        ABBREVIATIONS.iter().find(|(name, ..)| name.eq_ignore_ascii_case(word))
    {
        return fixed(*minutes, *is_ambiguous);
    }
    let offset = word.strip_prefix("UTC").or_else(|| word.strip_prefix("GMT")).unwrap_or(word);
    if let Some(minutes) = offset_minutes(offset) {
        return fixed(minutes, false);
    }
    zone_of_place(word).map(|zone| NamedZone { zone, is_ambiguous: false })
}

/// Returns the zone of the tz database that has this name, for example Europe/Berlin.
pub(super) fn zone_of_place(word: &str) -> Option<TimeZone> {
    if !word.contains('/') {
        return None;
    }
    TimeZone::get(word).ok()
}

/// Returns whether a zone uses an abbreviation, in summer or in winter of any year since 1990.
pub(super) fn uses_abbreviation(zone: &TimeZone, word: &str) -> bool {
    let days = (1990..2040).flat_map(|year| [1, 7].map(|month| jiff::civil::date(year, month, 1)));
    days.filter_map(|day| day.to_zoned(TimeZone::UTC).ok())
        .any(|day| zone.to_offset_info(day.timestamp()).abbreviation().eq_ignore_ascii_case(word))
}

/// Returns the zone that an option states.
///
/// # Errors
/// The error is a message that lists the valid forms.
pub(crate) fn stated_zone(word: &str) -> Result<TimeZone, String> {
    let named = zone_named(word).filter(|named| !named.is_ambiguous).map(|named| named.zone);
    named.or_else(|| TimeZone::get(word).ok()).ok_or_else(|| {
        let known: Vec<String> = jiff::tz::db().available().map(|name| name.to_string()).collect();
        let near = nearest_name(word, known.iter().map(String::as_str));
        let near = near.map(|near| format!("; the nearest name is {near}")).unwrap_or_default();
        format!(
            "no such time zone; use a name such as Europe/Berlin, UTC, CET or an offset such as +02:00{near}"
        )
    })
}

/// Converts a local time with an abbreviation or offset to nanoseconds since 1970. Also returns
/// whether the name could stand for another zone. Returns `None` if the name is unknown.
///
/// Zones in `likely` that use the abbreviation at this time have priority. In a repeated hour, the
/// abbreviations for summer and winter time show whether the first or the second occurrence is
/// meant.
pub(super) fn instant_named(time: DateTime, word: &str, likely: &[&TimeZone]) -> Option<(i64, bool)> {
    for zone in likely {
        let ambiguous = zone.to_ambiguous_zoned(time);
        let both = [ambiguous.clone().earlier(), ambiguous.later()];
        let own = both.iter().flatten().find(|zoned| {
            zone.to_offset_info(zoned.timestamp()).abbreviation().eq_ignore_ascii_case(word)
                && zoned.datetime() == time
        });
        if let Some(zoned) = own {
            return Some((i64::try_from(zoned.timestamp().as_nanosecond()).ok()?, false));
        }
    }
    let named = zone_named(word)?;
    let stamp = named.zone.to_timestamp(time).ok()?;
    Some((i64::try_from(stamp.as_nanosecond()).ok()?, named.is_ambiguous))
}

/// Parses `+02:00`, `-0530` or `+2` to minutes.
fn offset_minutes(text: &str) -> Option<i32> {
    let (sign, rest) = match text.as_bytes().first()? {
        b'+' => (1, text.get(1..)?),
        b'-' => (-1, text.get(1..)?),
        _ => return None,
    };
    let (hours, minutes) = match rest.split_once(':') {
        Some(parts) => parts,
        None if rest.len() == 4 => rest.split_at_checked(2)?,
        None => (rest, "0"),
    };
    let number = |text: &str, max: i32| {
        let is_short = (1..=2).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse::<i32>().ok().filter(|number| is_short && *number <= max)
    };
    Some(sign * (number(hours, 14)? * 60 + number(minutes, 59)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that offsets, abbreviations and names are found, that ambiguous abbreviations are
    // marked, and that other words name no zone.
    #[test]
    fn words_name_zones() {
        for (word, hours) in [("UTC", 0), ("cest", 2), ("+02:00", 2), ("UTC+2", 2), ("GMT-0500", -5)] {
            let zone = zone_named(word).unwrap().zone;
            assert_eq!(zone.to_fixed_offset().unwrap().seconds(), hours * 3600, "{word}");
        }
        assert!(zone_named("IST").unwrap().is_ambiguous);
        assert!(zone_named("Europe/Berlin").is_some());
        for word in ["", "AM", "Nowhere/City", "+99:00", "+", "12", "-1:2:3"] {
            assert_eq!(zone_named(word), None, "{word}");
        }
        assert!(stated_zone("Europe/Berlni").unwrap_err().contains("Europe/Berlin"));
    }

    // Proves that an abbreviation distinguishes the two times of a repeated hour, and that an
    // ambiguous abbreviation selects the likely zone.
    #[test]
    fn words_select_instants() {
        let berlin = TimeZone::get("Europe/Berlin").unwrap();
        let twice = jiff::civil::date(2024, 10, 27).at(2, 30, 0, 0);
        let summer = instant_named(twice, "CEST", &[&berlin]).unwrap();
        assert_eq!(instant_named(twice, "CET", &[&berlin]), Some((summer.0 + 3_600_000_000_000, false)));
        assert_eq!(instant_named(twice, "CEST", &[]), Some(summer));
        let shanghai = TimeZone::get("Asia/Shanghai").unwrap();
        let american = instant_named(twice, "CST", &[]).unwrap();
        let chinese = instant_named(twice, "CST", &[&shanghai]).unwrap();
        assert!(american.1 && !chinese.1 && american.0 - chinese.0 == 14 * 3_600_000_000_000);
    }
}
