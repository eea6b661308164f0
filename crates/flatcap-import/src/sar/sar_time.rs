//! The times of statistics, which are in UTC, in the zone that the document names, or in a zone
//! that an option states.

use jiff::civil::{Date, DateTime, Time};
use jiff::tz::TimeZone;

use super::document::SarHost;
use super::options::SarOptions;
use super::value::SarValue;
use crate::findings::ImportFindings;
use crate::local_clock::{LocalClock, LocalZone, ZoneOrigin};
use crate::row_times::RowTimes;

/// Converts the times of statistics to instants, entry by entry.
#[derive(Debug)]
pub(super) struct SarClock {
    options: SarOptions,
    /// The number, the clock and the times of the current host.
    clock: Option<(usize, LocalClock, RowTimes)>,
    findings: ImportFindings,
    /// The zone of the last time that was not in UTC.
    zone: Option<String>,
}

impl SarClock {
    pub(super) fn new(options: SarOptions, findings: ImportFindings) -> Self {
        Self { options, clock: None, findings, zone: None }
    }

    /// Returns the time of an entry in nanoseconds since 1970.
    ///
    /// # Errors
    /// The error is a message about the invalid time.
    pub(super) fn instant(&mut self, host: &SarHost, entry: &SarValue, line: u64) -> Result<i64, String> {
        let stamp = entry.get("timestamp");
        if let Some(time) = stamp.and_then(SarValue::text) {
            let date = &host.date;
            return Err(format!(
                "the time {time:?} has no date (that of its host is {date:?}), as of mpstat, iostat or pidstat; import what \
                 sadf -j FILE -- -A prints"
            ));
        }
        let text = |name| stamp?.get(name)?.text();
        let (date, time) = (text("date").unwrap_or_default(), text("time").unwrap_or_default());
        let what = || format!("statistics of {:?}: not a time", format!("{date} {time}").trim());
        let parsed = date.parse::<Date>().ok().zip(time.parse::<Time>().ok());
        let (day, hour) = parsed.ok_or_else(what)?;
        let local = DateTime::from_parts(day, hour);
        // For times in UTC, sysstat up to 12.6 prints "utc": 1. From 12.7.1 on, sysstat prints
        // "tz": "UTC".
        let word = text("tz");
        let is_utc = word == Some("UTC")
            || matches!(stamp.and_then(|stamp| stamp.get("utc")), Some(SarValue::Unsigned(1)));
        let is_stated = self.options.zone.is_some();
        let (clock, times) = self.clock_of(host);
        let ns = match word {
            _ if is_utc => {
                let stamp = TimeZone::UTC.to_timestamp(local).ok();
                stamp.and_then(|stamp| i64::try_from(stamp.as_nanosecond()).ok()).map(|ns| clock.known(ns))
            }
            Some(word) if !is_stated => clock.named(local, word, line),
            _ => clock.local(local, line),
        };
        let ns = ns.ok_or_else(what)?;
        times.add(ns, line);
        if !is_utc {
            self.zone = Some(match word.filter(|_| !is_stated) {
                Some(word) => format!("{word} (named in the file)"),
                None => self.clock_of(host).0.zone().described(),
            });
        }
        Ok(ns)
    }

    /// Returns the clock and the times of a host. The zone of the clock comes from an option, from
    /// the document, or from this host.
    fn clock_of(&mut self, host: &SarHost) -> (&mut LocalClock, &mut RowTimes) {
        if self.clock.as_ref().is_some_and(|(number, ..)| *number != host.number) {
            self.end_host();
        }
        let (_, clock, times) = self.clock.get_or_insert_with(|| {
            let host_zone = &self.options.host_zone;
            let zone = match &self.options.zone {
                Some(stated) => LocalZone::new(stated.clone(), ZoneOrigin::Option),
                None if host.zone.is_empty() => LocalZone::new(host_zone.clone(), ZoneOrigin::Host),
                None => LocalZone::of_file(&host.zone, host_zone),
            };
            let clock = LocalClock::new(zone, false).with_likely(host_zone.clone());
            (host.number, clock, RowTimes::default())
        });
        (clock, times)
    }

    fn end_host(&mut self) {
        if let Some((_, mut clock, times)) = self.clock.take() {
            clock.report(&mut self.findings);
            times.report_kept(&mut self.findings, None);
        }
    }

    /// Returns a description of the zone of local times, and the findings.
    pub(super) fn finish(mut self) -> (Option<String>, ImportFindings) {
        self.end_host();
        (self.zone, self.findings)
    }
}
