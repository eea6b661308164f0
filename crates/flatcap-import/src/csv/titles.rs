//! Titles of columns, from which time columns, units and zones are recognized.

use super::numeral::split_unit;
use crate::zone_name::zone_named;

/// Titles of time columns, the most likely first.
const TIME_NAMES: [&str; 10] =
    ["time", "timestamp", "datetime", "date_time", "_time", "ts", "date", "wall_ns", "epoch", "unix"];
/// Further titles of time columns, reduced to letters and digits, without units and zones.
const PLAIN_TIME_NAMES: [&str; 21] = [
    "time",
    "timestamp",
    "datetime",
    "ts",
    "date",
    "epoch",
    "unix",
    "unixtime",
    "unixtimestamp",
    "epochtime",
    "localtime",
    "systemtime",
    "sampletime",
    "logtime",
    "datum",
    "zeit",
    "uhrzeit",
    "zeitstempel",
    "datumuhrzeit",
    "datumzeit",
    "timeofday",
];
/// Parts of titles that indicate a time-of-day column.
const CLOCK_PARTS: [&str; 4] = ["time", "zeit", "clock", "hour"];
/// Parts of titles that indicate times since the start of the recording.
const ELAPSED_PARTS: [&str; 4] = ["elapsed", "relative", "uptime", "runtime"];

/// Returns the rank of a title among the titles of time columns. The most likely title has rank 0.
/// Returns `None` for other titles.
pub(super) fn time_rank(title: &str) -> Option<usize> {
    let known = TIME_NAMES.iter().position(|name| title.eq_ignore_ascii_case(name));
    known.or_else(|| {
        let plain = plain(title);
        let found = PLAIN_TIME_NAMES.iter().position(|name| plain == *name);
        found.map(|rank| TIME_NAMES.len() + rank)
    })
}

/// Returns whether a column may contain the time of day that belongs to the date in another column.
pub(super) fn may_be_clock(title: &str) -> bool {
    let plain = plain(title);
    CLOCK_PARTS.iter().any(|part| plain.contains(part))
}

/// Returns whether a title says that times count from the start of the recording.
pub(super) fn is_elapsed(title: &str) -> bool {
    let plain = plain(title);
    ELAPSED_PARTS.iter().any(|part| plain.contains(part))
}

/// Returns the zone in the title of a time column, for example of `Time (UTC)`, `time_utc` or
/// `Timestamp [+02:00]`.
pub(super) fn zone_of_title(title: &str) -> Option<&str> {
    words(title).find(|word| word.len() > 1 && zone_named(word).is_some())
}

/// Returns the zone in a line before the header, for example of `# timezone: Europe/Berlin`.
pub(super) fn zone_of_line(line: &str) -> Option<&str> {
    let lower = line.to_ascii_lowercase();
    let names = ["timezone", "time zone", "time_zone", "zeitzone", "tz"];
    let end = names.iter().find_map(|name| {
        let at = lower.find(name)?;
        let is_word = at == 0 || !lower.as_bytes().get(at - 1).is_some_and(u8::is_ascii_alphanumeric);
        is_word.then_some(at + name.len())
    })?;
    let marks = line.get(end..)?;
    let rest = marks.trim_start_matches([':', '=', ',', ';', '\t', ' ', '"']);
    let word = rest.split([',', ';', '\t', ' ', '"', ')']).next()?;
    // A word after a colon or an equals sign is meant as a zone even if no such zone is known.
    let is_stated = marks.trim_start().starts_with([':', '=']) && !word.is_empty();
    (is_stated || zone_named(word).is_some()).then_some(word)
}

/// Returns the unit in brackets at the end of a title, for example of `memory.used [MiB]` or
/// `torque (Nm)`.
pub(super) fn unit_of_title(title: &str) -> Option<&str> {
    let inner = match title.strip_suffix(']') {
        Some(rest) => rest.rsplit_once('[')?.1,
        None => title.strip_suffix(')')?.rsplit_once('(')?.1,
    };
    let inner = inner.trim();
    // Tests the unit without a space before it, because after a space any word may be a unit.
    let text = format!("1{inner}");
    let is_known = split_unit(&text).1 == inner && !inner.is_empty();
    (is_known || matches!(inner, "A" | "C" | "bytes" | "B" | "J" | "Nm" | "bar" | "Pa" | "hPa" | "lx" | "l"))
        .then_some(inner)
}

/// Returns the length of the time unit that a title names, in nanoseconds, for example for `Time
/// [ms]` or `timestamp_us`.
pub(super) fn time_unit_ns(title: &str) -> Option<i64> {
    words(title).find_map(|word| match &*word.to_ascii_lowercase() {
        "s" | "sec" | "secs" | "seconds" => Some(1_000_000_000),
        "ms" | "msec" | "millis" | "milliseconds" => Some(1_000_000),
        "us" | "\u{b5}s" | "\u{3bc}s" | "usec" | "micros" | "microseconds" => Some(1_000),
        "ns" | "nsec" | "nanos" | "nanoseconds" => Some(1),
        _ => None,
    })
}

/// Returns the letters and digits of a title in lower case, without zones and time units.
fn plain(title: &str) -> String {
    let is_name = |word: &&str| zone_named(word).is_none() && time_unit_ns(word).is_none();
    let parts = words(title).filter(is_name);
    parts
        .flat_map(str::chars)
        .filter(|character| character.is_alphanumeric())
        .flat_map(char::to_lowercase)
        .collect()
}

fn words(title: &str) -> impl Iterator<Item = &str> {
    title.split([' ', '_', '(', ')', '[', ']', '#', '"', ',']).filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that titles of time columns are recognized, also with a zone or a unit, and that other
    // titles are not recognized.
    #[test]
    fn titles_of_the_time_are_found() {
        let titles =
            ["Time", "TIMESTAMP", "Time Stamp", "time (UTC)", "Time [ms]", "# time", "Zeit", "timestamp_utc"];
        for title in titles {
            assert!(time_rank(title).is_some(), "{title}");
        }
        for title in ["uptime", "frametime", "times", "a", "", "(UTC)", "cpu time"] {
            assert_eq!(time_rank(title), None, "{title}");
        }
        assert!(time_rank("time") < time_rank("date") && time_rank("date") < time_rank("Zeit"));
        assert!(is_elapsed("Elapsed [ms]") && is_elapsed("time_elapsed") && !is_elapsed("time"));
        assert!(may_be_clock("Uhrzeit") && !may_be_clock("host"));
    }

    // Proves that zones and units are found in titles and in lines before the header, and that
    // other words are ignored.
    #[test]
    fn zones_and_units_are_found() {
        assert_eq!(zone_of_title("Time (UTC)"), Some("UTC"));
        assert_eq!(zone_of_title("time_utc"), Some("utc"));
        assert_eq!(zone_of_title("Timestamp [+02:00]"), Some("+02:00"));
        assert_eq!(zone_of_title("time z"), None);
        assert_eq!(zone_of_line("# timezone: Europe/Berlin"), Some("Europe/Berlin"));
        assert_eq!(zone_of_line("Time zone,CET"), Some("CET"));
        assert_eq!(zone_of_line("# timezone: XYZ"), Some("XYZ"));
        assert_eq!(zone_of_line("the quartz runs"), None);
        assert_eq!((zone_of_line("timezone data"), zone_of_line("timezone:")), (None, None));
        assert_eq!((time_unit_ns("Time [ms]"), time_unit_ns("wall_ns")), (Some(1_000_000), Some(1)));
        assert_eq!((time_unit_ns("times"), time_unit_ns("Time (s)")), (None, Some(1_000_000_000)));
        assert_eq!(unit_of_title("memory.used [MiB]"), Some("MiB"));
        assert_eq!(unit_of_title("utilization.gpu [%]"), Some("%"));
        assert_eq!(unit_of_title("torque (Nm)"), Some("Nm"));
        for title in ["cpu[0]", "a (avg)", "[", "%", "x []"] {
            assert_eq!(unit_of_title(title), None, "{title}");
        }
    }
}
