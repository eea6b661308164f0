//! Converts local times to instants, row by row. If an hour occurs twice, the order of the rows
//! shows whether the first or the second occurrence is meant. Local times that do not exist are
//! reported.

use std::collections::BTreeMap;

use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, TimeZone};

use super::findings::{FindingKind, ImportFindings, Tally};
use super::zone_name::{instant_named, uses_abbreviation, zone_named, zone_of_place};

/// The zone of times without an offset, and its origin.
#[derive(Debug, Clone)]
pub(super) struct LocalZone {
    pub(super) zone: TimeZone,
    pub(super) origin: ZoneOrigin,
    /// The name of the zone in the file, if this name stands for no zone or for several zones.
    pub(super) doubtful_name: Option<String>,
}

/// The origin of a zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ZoneOrigin {
    /// An option.
    Option,
    /// The file.
    File,
    /// The zone of the host on which the import runs (TZ).
    Host,
}

/// Local times without a unique instant.
#[derive(Debug, Default)]
struct LocalFaults {
    missing: Tally,
    /// Rows in a repeated hour for which the order of the rows does not determine the instants. The
    /// order determines the instants if the hour has exactly one backward step, and this step is at
    /// least half as long as the repeated time.
    repeated: Tally,
    /// Times whose zone is given by a word that names several zones.
    ambiguous: Tally,
    /// Times whose zone is given by a word that names no zone.
    unknown: Tally,
    words: [Option<String>; 2],
}

/// The repeated hour to which the last row belongs.
#[derive(Debug)]
struct RepeatedHour {
    earlier_offset_s: i32,
    later_offset_s: i32,
    rows: Tally,
    last: DateTime,
    /// Number of backward steps that are at least half as long as the repeated time.
    returns: u64,
    /// Whether there was a smaller backward step, or a backward step to a row of another device.
    is_doubtful: bool,
}

/// Converts local times to instants, row by row.
#[derive(Debug)]
pub(super) struct LocalClock {
    zone: LocalZone,
    /// Zones, in addition to `zone`, that an abbreviation probably stands for.
    likely: Vec<TimeZone>,
    is_newest_first: bool,
    last_ns: Option<i64>,
    /// The step between the last two rows.
    last_step_ns: i64,
    /// Whether two consecutive rows had the same time, which is normal for rows of several devices.
    has_equal_times: bool,
    /// Whether the next row belongs to another device than the last row.
    is_other_device: bool,
    hour: Option<RepeatedHour>,
    faults: LocalFaults,
    /// Times without an offset, which are in the zone of this clock.
    local: Tally,
    /// The clocks of the zones that rows name, such as Europe/Berlin. The key is the zone's name.
    places: BTreeMap<String, Self>,
}

impl LocalZone {
    pub(super) fn new(zone: TimeZone, origin: ZoneOrigin) -> Self {
        Self { zone, origin, doubtful_name: None }
    }

    /// Returns the zone that a file names. If the name stands for several zones or for no zone, and
    /// the host's zone uses this name, returns the zone of the host. Otherwise, such a name is
    /// doubtful.
    pub(super) fn of_file(name: &str, host_zone: &TimeZone) -> Self {
        let named = zone_named(name);
        if let Some(named) = named.as_ref().filter(|named| !named.is_ambiguous) {
            return Self::new(named.zone.clone(), ZoneOrigin::File);
        }
        if uses_abbreviation(host_zone, name) {
            return Self::new(host_zone.clone(), ZoneOrigin::Host);
        }
        let own = match named {
            Some(named) => Self::new(named.zone, ZoneOrigin::File),
            None => Self::new(host_zone.clone(), ZoneOrigin::Host),
        };
        Self { doubtful_name: Some(name.to_owned()), ..own }
    }

    /// Returns a human-readable description of the zone, for example `Europe/Berlin (TZ)`.
    pub(super) fn described(&self) -> String {
        let by = match self.origin {
            ZoneOrigin::Option => "stated",
            ZoneOrigin::File => "named in the file",
            ZoneOrigin::Host => "TZ",
        };
        format!("{} ({by})", self.name())
    }

    pub(super) fn name(&self) -> String {
        if self.zone == TimeZone::UTC {
            return "UTC".to_owned();
        }
        let name = self.zone.iana_name().map(str::to_owned);
        name.or_else(|| Some(self.zone.to_fixed_offset().ok()?.to_string()))
            .unwrap_or_else(|| "local time".to_owned())
    }
}

impl LocalClock {
    pub(super) fn new(zone: LocalZone, is_newest_first: bool) -> Self {
        let faults = LocalFaults::default();
        Self {
            zone,
            likely: Vec::new(),
            is_newest_first,
            last_ns: None,
            last_step_ns: 0,
            has_equal_times: false,
            is_other_device: false,
            hour: None,
            faults,
            local: Tally::default(),
            places: BTreeMap::new(),
        }
    }

    /// Adds a zone that abbreviations probably stand for.
    #[must_use]
    pub(super) fn with_likely(mut self, zone: TimeZone) -> Self {
        self.likely.push(zone);
        self
    }

    /// Sets whether the next row belongs to another device than the last row.
    pub(super) fn set_other_device(&mut self, is_other: bool) {
        self.is_other_device = is_other;
    }

    /// Records a time whose instant is known, and returns the instant.
    pub(super) fn known(&mut self, ns: i64) -> i64 {
        self.leave_hour();
        self.put(ns);
        ns
    }

    /// Converts a local time with the name of its zone to nanoseconds since 1970. Returns `None` if
    /// the time is out of range.
    pub(super) fn named(&mut self, time: DateTime, word: &str, line: u64) -> Option<i64> {
        if let Some(zone) = zone_of_place(word) {
            // The rows of each place are ordered separately, because rows of several places can
            // alternate.
            let is_newest_first = self.is_newest_first;
            let name = zone.iana_name().unwrap_or(word).to_owned();
            let own = LocalZone::new(zone, ZoneOrigin::File);
            let clock = self.places.entry(name).or_insert_with(|| Self::new(own, is_newest_first));
            clock.is_other_device = self.is_other_device;
            let ns = clock.local(time, line)?;
            self.put(ns);
            return Some(ns);
        }
        let likely: Vec<&TimeZone> = std::iter::once(&self.zone.zone).chain(&self.likely).collect();
        let Some((ns, is_ambiguous)) = instant_named(time, word, &likely) else {
            self.faults.unknown.add(line);
            let [_, unknown] = &mut self.faults.words;
            unknown.get_or_insert_with(|| word.to_owned());
            return self.local(time, line);
        };
        if is_ambiguous {
            self.faults.ambiguous.add(line);
            let [ambiguous, _] = &mut self.faults.words;
            ambiguous.get_or_insert_with(|| word.to_owned());
        }
        self.put(ns);
        Some(ns)
    }

    fn put(&mut self, ns: i64) {
        if let Some(last_ns) = self.last_ns.replace(ns) {
            self.last_step_ns = ns.saturating_sub(last_ns).saturating_abs();
            self.has_equal_times |= self.last_step_ns == 0;
        }
    }

    /// Converts a local time to nanoseconds since 1970. Returns `None` if the time is out of range.
    pub(super) fn local(&mut self, time: DateTime, line: u64) -> Option<i64> {
        let ns = self.in_zone(time, line)?;
        self.put(ns);
        Some(ns)
    }

    fn in_zone(&mut self, time: DateTime, line: u64) -> Option<i64> {
        self.local.add(line);
        let ambiguous = self.zone.zone.to_ambiguous_timestamp(time);
        let nanoseconds = |stamp: jiff::Timestamp| i64::try_from(stamp.as_nanosecond()).ok();
        let (before, after) = match ambiguous.offset() {
            AmbiguousOffset::Unambiguous { .. } => {
                self.leave_hour();
                return nanoseconds(ambiguous.compatible().ok()?);
            }
            AmbiguousOffset::Gap { .. } => {
                self.leave_hour();
                self.faults.missing.add(line);
                return nanoseconds(ambiguous.compatible().ok()?);
            }
            AmbiguousOffset::Fold { before, after } => (before.seconds(), after.seconds()),
        };
        let (early, late) = (nanoseconds(ambiguous.earlier().ok()?)?, nanoseconds(ambiguous.later().ok()?)?);
        // If rows are at least half of the repeated time apart, a second row with the same local
        // time is the second occurrence of this time.
        let is_again = self.hour.as_ref().is_some_and(|hour| hour.last == time)
            && !self.has_equal_times
            && self.last_step_ns.saturating_mul(2) >= late.saturating_sub(early);
        self.count_repeated(time, (before, after), line);
        // Rows are in order of time, so choose the earliest of the two instants that is not before
        // the last row. If the newest row is first, choose the later instant unless it is after the
        // last row.
        let is_later = match (self.last_ns, self.is_newest_first) {
            (None, is_newest_first) => is_newest_first,
            (Some(_), is_newest_first) if is_again => !is_newest_first,
            (Some(last), false) => last > early,
            (Some(last), true) => last >= late,
        };
        Some(if is_later { late } else { early })
    }

    fn count_repeated(&mut self, time: DateTime, (before, after): (i32, i32), line: u64) {
        let is_same = self.hour.as_ref().is_some_and(|hour| {
            let distance = (time.date() - hour.last.date()).get_days().abs();
            (hour.earlier_offset_s, hour.later_offset_s) == (before, after) && distance <= 1
        });
        if !is_same {
            self.leave_hour();
        }
        let hour = self.hour.get_or_insert_with(|| RepeatedHour {
            earlier_offset_s: before,
            later_offset_s: after,
            rows: Tally::default(),
            last: time,
            returns: 0,
            is_doubtful: false,
        });
        hour.rows.add(line);
        let back = if self.is_newest_first {
            time.duration_since(hour.last)
        } else {
            hour.last.duration_since(time)
        };
        let repeated_s = i64::from(before - after);
        if back.as_secs() * 2 >= repeated_s {
            hour.returns += 1;
            // The rows of another device may begin here.
            hour.is_doubtful |= self.is_other_device && !self.has_equal_times;
        } else if back.is_positive() {
            hour.is_doubtful = true;
        }
        hour.last = time;
    }

    /// Ends a repeated hour. One long backward step separates the two occurrences of the hour.
    /// Without such a step, the rows of the hour become a finding.
    fn leave_hour(&mut self) {
        if let Some(hour) = self.hour.take()
            && (hour.returns != 1 || hour.is_doubtful)
        {
            self.faults.repeated.add_many(hour.rows);
        }
    }

    /// Adds a finding for each assumption. Must be called after the last row.
    pub(super) fn report(&mut self, findings: &mut ImportFindings) {
        for place in self.places.values_mut() {
            // No option replaces the zone that a row names.
            place.report_zone(None, findings);
        }
        self.report_zone(Some("--utc or --zone NAME".to_owned()), findings);
    }

    fn report_zone(&mut self, option: Option<String>, findings: &mut ImportFindings) {
        self.leave_hour();
        let zone = self.zone.name();
        let what = format!(
            "the time does not exist in {zone}, where the clocks are set forward then; taken for an hour later: are the \
             times of another zone?"
        );
        findings.add(FindingKind::MissingHour, self.faults.missing, what, option.clone());
        let half = if self.is_newest_first { "last" } else { "first" };
        let what = format!(
            "the time exists twice in {zone}, and the rows do not say which it is; taken for the {half} that fits their \
             order"
        );
        findings.add(FindingKind::RepeatedHour, self.faults.repeated, what, option.clone());
        if let Some(name) = &self.zone.doubtful_name {
            let what = match self.zone.origin {
                ZoneOrigin::Host => {
                    format!("{name:?} names no time zone; the times are taken for those of {zone}")
                }
                _ => format!(
                    "{name:?} is the abbreviation of several zones; the times are taken for those of {zone}"
                ),
            };
            findings.add(FindingKind::Zone, self.local, what, option.clone());
        }
        let word = |at: usize| self.faults.words.get(at).and_then(Option::as_deref).unwrap_or_default();
        let what = format!(
            "{:?} is the abbreviation of several zones; taken for the American, British or Indian one",
            word(0)
        );
        findings.add(FindingKind::Zone, self.faults.ambiguous, what, Some("--zone NAME".to_owned()));
        let what = format!("{:?} names no time zone; the times are taken for those of {zone}", word(1));
        findings.add(FindingKind::Zone, self.faults.unknown, what, option);
    }

    pub(super) fn zone(&self) -> &LocalZone {
        &self.zone
    }

    /// Returns whether any time was a local time without an offset.
    pub(super) fn uses_zone(&self) -> bool {
        self.local.count > 0
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use flatcap_format::testing::effort;
    use proptest::prelude::*;

    use super::*;

    const NS_PER_S: i64 = 1_000_000_000;

    fn zone(name: &str) -> LocalZone {
        LocalZone::new(TimeZone::get(name).unwrap(), ZoneOrigin::Host)
    }

    /// Converts local times. Returns the instants in seconds, and the kinds and lines of the
    /// findings.
    fn read(name: &str, is_newest_first: bool, times: &[DateTime]) -> (Vec<i64>, Vec<(FindingKind, u64)>) {
        let mut clock = LocalClock::new(zone(name), is_newest_first);
        let instants = times.iter().zip(2..).map(|(time, line)| clock.local(*time, line).unwrap() / NS_PER_S);
        let instants = instants.collect();
        let mut findings = ImportFindings::new(Path::new("a"));
        clock.report(&mut findings);
        (instants, findings.into_sorted().iter().map(|found| (found.kind, found.line)).collect())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(effort::of(64, 1000)))]

        // Proves that the rows of an autumn night become the instants at which they were written,
        // without a finding. The test uses zones of both hemispheres, a zone that repeats half an
        // hour, and both orders of rows.
        #[test]
        fn repeated_hours_are_resolved_by_the_order_of_rows(
            at in 0..4_usize, step_s in 60..900_i64, phase_s in 0..900_i64, is_newest_first: bool,
        ) {
            let (name, end) = [
                ("Europe/Berlin", 1_729_990_800),
                ("America/New_York", 1_730_613_600),
                ("Australia/Lord_Howe", 1_712_415_600),
                ("America/Sao_Paulo", 1_519_009_200),
            ][at];
            let mut instants: Vec<i64> =
                (0..1000).map(|row| end - 4 * 3600 + phase_s + row * step_s).take_while(|at| *at < end + 4 * 3600).collect();
            if is_newest_first {
                instants.reverse();
            }
            let own = TimeZone::get(name).unwrap();
            let local = |at: &i64| own.to_datetime(jiff::Timestamp::from_second(*at).unwrap());
            let times: Vec<DateTime> = instants.iter().map(local).collect();
            let (found, findings) = read(name, is_newest_first, &times);
            prop_assert_eq!(found, instants);
            prop_assert_eq!(findings, []);
        }
    }

    // Proves that an abbreviation that the host's zone uses means this zone. Other abbreviations of
    // several zones, and unknown abbreviations, are reported with the first local time. An
    // unambiguous name means the same on each host.
    #[test]
    fn doubtful_zones_of_files_are_found() {
        for (name, host, expected, is_found) in [
            ("CST", "Asia/Shanghai", "Asia/Shanghai", false),
            ("cst", "America/Chicago", "America/Chicago", false),
            ("CST", "Europe/Berlin", "-06", true),
            ("IST", "UTC", "+05:30", true),
            ("IST", "Asia/Kolkata", "Asia/Kolkata", false),
            ("XYZ", "Europe/Berlin", "Europe/Berlin", true),
            ("GMT", "Europe/London", "UTC", false),
            ("CET", "Asia/Tokyo", "+01", false),
            ("Europe/Paris", "Asia/Tokyo", "Europe/Paris", false),
        ] {
            let mut clock = LocalClock::new(LocalZone::of_file(name, &TimeZone::get(host).unwrap()), false);
            assert_eq!(clock.zone().name(), expected, "{name} {host}");
            clock.known(0);
            clock.local(jiff::civil::date(2024, 7, 1).at(12, 0, 0, 0), 7);
            let mut findings = ImportFindings::new(Path::new("a"));
            clock.report(&mut findings);
            let found: Vec<_> = findings.into_sorted().iter().map(|found| (found.kind, found.line)).collect();
            assert_eq!(found, vec![(FindingKind::Zone, 7); usize::from(is_found)], "{name} {host}");
        }
    }

    // Proves that a zone that each row names is used like the zone of a file. The order of the rows
    // of this zone resolves a repeated hour. Without such an order, and in a missing hour, there is
    // a finding. Rows of other zones in between change nothing.
    #[test]
    fn places_named_in_rows_have_their_own_order() {
        let read = |rows: &[(DateTime, &str)]| {
            let mut clock = LocalClock::new(zone("UTC"), false);
            let instants: Vec<i64> = rows
                .iter()
                .zip(2..)
                .map(|((time, word), line)| clock.named(*time, word, line).unwrap() / NS_PER_S)
                .collect();
            let mut findings = ImportFindings::new(Path::new("a"));
            clock.report(&mut findings);
            let found = findings.into_sorted();
            (instants, found.iter().map(|found| (found.kind, found.line)).collect::<Vec<_>>())
        };
        let night = jiff::civil::date(2024, 10, 27);
        let at = |hour, minute, word| (night.at(hour, minute, 0, 0), word);
        let (berlin, london) = ("Europe/Berlin", "Europe/London");
        let start = 1_729_987_200; // 02:00 CEST
        let both = [
            at(2, 0, berlin),
            at(1, 0, london),
            at(2, 50, berlin),
            at(1, 50, london),
            at(2, 10, berlin),
            at(1, 10, london),
            at(3, 0, berlin),
            at(2, 0, london),
        ];
        let (instants, found) = read(&both);
        let expected = [0, 0, 50, 50, 70, 70, 120, 120].map(|minutes| start + minutes * 60);
        assert_eq!((instants, found), (expected.to_vec(), vec![]));
        assert_eq!(read(&[at(2, 30, berlin)]).1, [(FindingKind::RepeatedHour, 2)]);
        let spring = jiff::civil::date(2024, 3, 31).at(2, 30, 0, 0);
        assert_eq!(read(&[(spring, berlin)]).1, [(FindingKind::MissingHour, 2)]);
    }

    // Proves that a repeated hour is reported with its first line if its rows cover only one
    // occurrence or are not in order. A time that does not exist is reported too.
    #[test]
    fn what_rows_do_not_say_is_found() {
        let night = jiff::civil::date(2024, 10, 27);
        let once = [night.at(1, 30, 0, 0), night.at(2, 30, 0, 0), night.at(3, 30, 0, 0)];
        assert_eq!(read("Europe/Berlin", false, &once).1, [(FindingKind::RepeatedHour, 3)]);
        let hourly = [1, 2, 2, 3].map(|hour| night.at(hour, 0, 0, 0));
        let (instants, found) = read("Europe/Berlin", false, &hourly);
        assert!(instants.windows(2).all(|pair| pair[1] - pair[0] == 3600), "{instants:?}");
        assert_eq!(found, [(FindingKind::RepeatedHour, 3)]);
        let devices = [1, 1, 2, 2, 3, 3].map(|hour| night.at(hour, 0, 0, 0));
        let (instants, _) = read("Europe/Berlin", false, &devices);
        assert!(instants.chunks(2).all(|pair| pair[0] == pair[1]), "{instants:?}");
        let swapped = [night.at(2, 10, 0, 0), night.at(2, 5, 0, 0), night.at(2, 20, 0, 0)];
        assert_eq!(read("Europe/Berlin", false, &swapped).1, [(FindingKind::RepeatedHour, 2)]);
        let spring = jiff::civil::date(2015, 3, 8);
        let times = [spring.at(1, 57, 53, 0), spring.at(2, 2, 53, 0), spring.at(3, 2, 53, 0)];
        assert_eq!(read("America/New_York", false, &times).1, [(FindingKind::MissingHour, 3)]);
        assert_eq!(read("UTC", false, &times).1, []);
    }
}
