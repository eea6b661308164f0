//! Prints points in time as RFC 3339. The offset of the zone is always printed, so that a printed
//! time can be used as an argument anywhere.

use std::io::{self, Write};

use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::human;

const NS_PER_S: i64 = 1_000_000_000;

/// Returns the zone of the times that a program prints and reads: UTC if requested, or else the
/// local zone. The output to a terminal and to a pipe has the same zone. Warns on standard error if
/// TZ names no zone.
///
/// # Errors
/// Fails if standard error cannot be written.
pub fn zone_of(is_utc: bool) -> io::Result<TimeZone> {
    if is_utc {
        return Ok(TimeZone::UTC);
    }
    if let Ok(zone) = TimeZone::try_system() {
        return Ok(plain_utc(zone));
    }
    // If TZ is not set, a host without /etc/localtime is in UTC.
    if let Some(name) = std::env::var_os("TZ") {
        let name = human::escaped(&name.to_string_lossy()).to_string();
        writeln!(io::stderr(), "flatcap: TZ={name}: no such time zone on this host; times are in UTC")?;
    }
    Ok(TimeZone::UTC)
}

/// If the zone is named UTC, returns the fixed zone UTC, whose times are printed in a shorter form.
fn plain_utc(zone: TimeZone) -> TimeZone {
    if zone.iana_name().is_some_and(|name| matches!(name, "UTC" | "Etc/UTC" | "Etc/Universal" | "Etc/Zulu")) {
        TimeZone::UTC
    } else {
        zone
    }
}

/// Prints points in time in one zone.
#[derive(Debug)]
pub struct TimePrinter {
    zone: TimeZone,
    // Successive samples are mostly in the same second, so the text of the second is kept.
    second: Option<i64>,
    date_and_time: String,
    offset: String,
}

impl TimePrinter {
    /// Creates a printer of times in this zone.
    pub fn new(zone: TimeZone) -> Self {
        Self { zone, second: None, date_and_time: String::new(), offset: String::new() }
    }

    /// Returns the width of a printed time with microseconds.
    pub fn width(&self) -> usize {
        let is_utc = self.zone == TimeZone::UTC;
        if is_utc { "2026-11-22T20:05:37.463435Z".len() } else { "2026-11-22T21:05:37.463435+01:00".len() }
    }

    /// Formats a time with microseconds, for people.
    pub fn microseconds(&mut self, wall_ns: i64) -> String {
        let mut text = Vec::with_capacity(self.width());
        self.begin(wall_ns, &mut text);
        // Writing to memory does not fail.
        let _infallible = write!(text, ".{:06}{}", wall_ns.rem_euclid(NS_PER_S) / 1_000, self.offset);
        String::from_utf8_lossy(&text).into_owned()
    }

    /// Formats a time with milliseconds, for tables.
    pub fn milliseconds(&mut self, wall_ns: i64) -> String {
        let mut text = Vec::with_capacity(self.width());
        self.begin(wall_ns, &mut text);
        let _infallible = write!(text, ".{:03}{}", wall_ns.rem_euclid(NS_PER_S) / 1_000_000, self.offset);
        String::from_utf8_lossy(&text).into_owned()
    }

    /// Appends a printed time with nanoseconds, for programs.
    pub fn push_nanoseconds(&mut self, wall_ns: i64, text: &mut Vec<u8>) {
        self.begin(wall_ns, text);
        text.push(b'.');
        // A leading 1 preserves the leading zeros of the nine digits.
        let mut digits = itoa::Buffer::new();
        let digits = digits.format(NS_PER_S + wall_ns.rem_euclid(NS_PER_S));
        text.extend_from_slice(digits.get(1..).unwrap_or_default().as_bytes());
        text.extend_from_slice(self.offset.as_bytes());
    }

    /// Formats a time in UTC with nanoseconds, for programs.
    pub fn utc(wall_ns: i64) -> String {
        let mut text = Vec::new();
        Self::new(TimeZone::UTC).push_nanoseconds(wall_ns, &mut text);
        String::from_utf8_lossy(&text).into_owned()
    }

    /// Appends the date and the time up to the second, and stores their offset in `self`.
    fn begin(&mut self, wall_ns: i64, text: &mut Vec<u8>) {
        let second = wall_ns.div_euclid(NS_PER_S);
        if self.second != Some(second) {
            // Every second that fits into 64 bits of nanoseconds is in the range of the library.
            let time = Timestamp::from_second(second).unwrap_or_default().to_zoned(self.zone.clone());
            self.second = Some(second);
            self.date_and_time = time.strftime("%Y-%m-%dT%H:%M:%S").to_string();
            self.offset =
                if time.offset().seconds() == 0 { "Z".to_owned() } else { time.strftime("%:z").to_string() };
        }
        text.extend_from_slice(self.date_and_time.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use flatcap_format::replay::TimeSpec;
    use proptest::prelude::*;

    use super::*;

    // Proves that a printed time has its offset, in winter and in summer, and that a time in UTC
    // has Z.
    #[test]
    fn times_have_their_offset() {
        let berlin = TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").unwrap();
        let mut times = TimePrinter::new(berlin);
        let november = 1_700_000_000_463_435_999;
        assert_eq!(times.microseconds(november), "2023-11-14T23:13:20.463435+01:00");
        let july = 1_688_169_600_000_000_001;
        assert_eq!(times.microseconds(july), "2023-07-01T02:00:00.000000+02:00");
        assert_eq!(times.microseconds(july).len(), times.width());
        let mut times = TimePrinter::new(TimeZone::UTC);
        assert_eq!(times.microseconds(november), "2023-11-14T22:13:20.463435Z");
        assert_eq!(times.microseconds(november).len(), times.width());
        assert_eq!(times.microseconds(-1), "1969-12-31T23:59:59.999999Z");
        let mut text = b"at ".to_vec();
        times.push_nanoseconds(july, &mut text);
        assert_eq!(text, b"at 2023-07-01T00:00:00.000000001Z");
    }

    proptest! {
        // Proves that every printed time is accepted as an argument and means the same time, in any
        // zone of the caller.
        #[test]
        fn what_is_printed_is_accepted(
            wall_ns in -9_000_000_000_000_000_000_i64..9_000_000_000_000_000_000,
            minutes in -12 * 60..14 * 60_i32,
        ) {
            let offset = jiff::tz::Offset::from_seconds(minutes * 60).unwrap();
            let mut times = TimePrinter::new(TimeZone::fixed(offset));
            let parse = |text: &str| TimeSpec::parse(text, 0, &TimeZone::UTC);
            let mut exact = Vec::new();
            times.push_nanoseconds(wall_ns, &mut exact);
            let exact = String::from_utf8(exact).unwrap();
            prop_assert_eq!(parse(&exact), Ok(TimeSpec::Wall(wall_ns)));
            let short = wall_ns.div_euclid(1_000) * 1_000;
            prop_assert_eq!(parse(&times.microseconds(wall_ns)), Ok(TimeSpec::Wall(short)));
            let spaced = exact.replace('T', " ");
            prop_assert_eq!(parse(&spaced), Ok(TimeSpec::Wall(wall_ns)));
        }
    }
}
