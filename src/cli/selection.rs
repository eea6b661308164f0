//! Arguments of `dump`, `replay` and `export` that select parts of recordings.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::path::PathBuf;
use std::time::Duration;

use flatcap_format::replay::{
    HostIdentity, ReplayFilter, TimeSpec, first_sample, recording_end, recording_span,
};
use flatcap_format::schema::nearest_name;
use flatcap_format::segment::{
    Advance, Elapsed, FrameKind, ListedSegment, SegmentError, SegmentHeader, list, runs,
};
use jiff::tz::TimeZone;

use super::error::CliError;
use super::hosts::RecordedHosts;
use super::recordings::{default_recordings, no_segments};
use super::time_printer::{TimePrinter, ZoneOption};
use crate::config;
use crate::human;
use crate::os::clock::read_clocks;

/// Length of the window around a time: what happened in the 300 ms around the spike?
const WINDOW_DEFAULT: Duration = Duration::from_millis(300);

/// Recordings, and the sources and times to read from them.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct RecordingSelection {
    /// Segment files, or directories of segments [default: ./flatcap-data, else /var/lib/flatcap].
    #[arg(value_name = "PATH", default_values_os_t = default_recordings(), hide_default_value = true)]
    pub(super) paths: Vec<PathBuf>,
    /// Read only these sources; can be repeated.
    #[arg(long = "source", value_name = "NAME,...", value_delimiter = ',')]
    sources: Vec<String>,
    /// Read only the recordings of this host: its name or its machine id.
    #[arg(long, value_name = "NAME")]
    host: Option<String>,
    /// Start time: as printed (2026-11-22T21:05:37.463435+01:00), without offset in the local zone,
    /// 2026-11-22, 21:05:37 (on the recording's last day), -5m (before the recording's end, or
    /// before now while it runs), now-5m, +10s (after the first sample, by the monotonic clock),
    /// @1700000000.5 (seconds since 1970; the @ may be left out), or nanoseconds.
    #[arg(long, value_name = "T", allow_hyphen_values = true)]
    since: Option<String>,
    /// End time, exclusive.
    #[arg(long, value_name = "T", allow_hyphen_values = true)]
    until: Option<String>,
    /// Read only the time around this one, half of --window before and half after it.
    #[arg(long, value_name = "T", allow_hyphen_values = true, conflicts_with_all = ["since", "until"])]
    around: Option<String>,
    /// Length of the time that --around reads [default: 300ms].
    #[arg(long, value_name = "DURATION", requires = "around", value_parser = config::duration_argument)]
    window: Option<Duration>,
    #[command(flatten)]
    pub(super) zone: ZoneOption,
}

/// The selected time, by either clock: from the first of these to before the second.
#[derive(Debug, Default, PartialEq, Eq)]
struct SelectedTime {
    wall_ns: (Option<i64>, Option<i64>),
    elapsed_ns: (Option<u64>, Option<u64>),
}

impl RecordingSelection {
    /// Returns the filter for these arguments. Times without an offset are in `zone`.
    pub(super) fn filter(&self, zone: &TimeZone) -> Result<ReplayFilter, CliError> {
        let listings = list(&self.paths)?;
        if listings.is_empty() {
            return Err(no_segments(&self.paths));
        }
        let sources: BTreeSet<String> = self.sources.iter().cloned().collect();
        if !sources.is_empty() {
            self.check_sources(&sources)?;
        }
        let host = self.host(&listings)?;
        let SelectedTime { wall_ns: (since_ns, until_ns), elapsed_ns } = self.time(host.as_ref(), zone)?;
        let mut filter = ReplayFilter { sources, host, ..ReplayFilter::default() };
        if elapsed_ns != (None, None) {
            let start = first_sample(&self.paths, filter.clone())?;
            let (after_ns, before_ns) = elapsed_ns;
            let ns = after_ns.unwrap_or(0)..before_ns.unwrap_or(u64::MAX);
            filter.elapsed = start.map(|start| Elapsed { start, ns });
        }
        (filter.since_ns, filter.until_ns) = (since_ns, until_ns);
        Ok(filter)
    }

    /// Returns the selected host; `None` for all.
    fn host(&self, listings: &[ListedSegment]) -> Result<Option<HostIdentity>, CliError> {
        self.host.as_deref().map(|name| RecordedHosts::of(listings).find(name)).transpose()
    }

    /// Returns the selected time.
    fn time(&self, host: Option<&HostIdentity>, zone: &TimeZone) -> Result<SelectedTime, CliError> {
        let point = |option, text: &Option<String>| {
            let text = text.as_deref();
            text.map(|text| self.point(option, text, host, zone)).transpose()
        };
        if let Some(middle) = point("--around", &self.around)? {
            return Ok(SelectedTime::around(middle, self.window.unwrap_or(WINDOW_DEFAULT)));
        }
        let (since, until) = (point("--since", &self.since)?, point("--until", &self.until)?);
        let time = SelectedTime {
            wall_ns: (since.and_then(Point::wall_ns), until.and_then(Point::wall_ns)),
            elapsed_ns: (since.and_then(Point::elapsed_ns), until.and_then(Point::elapsed_ns)),
        };
        if time.is_empty() {
            return Err(CliError::Usage("--since must be before --until".to_owned()));
        }
        Ok(time)
    }

    /// Parses the value of an option.
    fn point(
        &self,
        option: &str,
        text: &str,
        host: Option<&HostIdentity>,
        zone: &TimeZone,
    ) -> Result<Point, CliError> {
        point(&self.paths, (option, text), host, zone)
    }

    /// Returns whether a part of the time is selected.
    pub(super) fn has_times(&self) -> bool {
        self.since.is_some() || self.until.is_some() || self.around.is_some()
    }

    /// Returns whether the recordings of one host are selected.
    pub(super) fn has_host(&self) -> bool {
        self.host.is_some()
    }

    /// Returns the error of a selected time without samples.
    pub(super) fn no_samples(&self, zone: TimeZone) -> Result<CliError, CliError> {
        let of =
            if self.sources.is_empty() { String::new() } else { format!(" of {}", self.sources.join(", ")) };
        let host = self.host(&list(&self.paths)?)?;
        let span = recorded_time(&self.paths, host.as_ref(), zone)?;
        Ok(CliError::NoSamples(format!("no samples{of} in the selected time; {span}")))
    }

    /// Checks that every named source is in at least one of the files.
    fn check_sources(&self, wanted: &BTreeSet<String>) -> Result<(), CliError> {
        if wanted.is_subset(&self.described_sources()?) {
            return Ok(());
        }
        let known = self.known_sources()?;
        if known.is_empty() {
            // Nothing could be read; the reader reports why.
            return Ok(());
        }
        if let Some(name) = wanted.difference(&known).next() {
            return Err(unknown_source(name, name, &known));
        }
        Ok(())
    }

    /// Returns whether these recordings have more than one source.
    pub(super) fn have_several_sources(&self) -> Result<bool, SegmentError> {
        Ok(self.described_sources()?.len() > 1 || self.known_sources()?.len() > 1)
    }

    /// Returns the names of the sources in headers and footers. Sources that were added to an
    /// unsealed segment after its header are missing.
    fn described_sources(&self) -> Result<BTreeSet<String>, SegmentError> {
        let mut names = BTreeSet::new();
        // The last segment of a run has all its sources.
        for run in runs(&list(&self.paths)?) {
            let last = run.iter().rev().find_map(|listing| listing.open().ok()?);
            if let Some(reader) = last {
                add_names(&mut names, reader.footer().map_or(reader.header(), |footer| &footer.header));
                add_names(&mut names, reader.header());
            }
        }
        Ok(names)
    }

    /// Returns the names of all sources in the files. Reads unsealed segments in full.
    pub(super) fn known_sources(&self) -> Result<BTreeSet<String>, SegmentError> {
        let mut names = self.described_sources()?;
        for listing in list(&self.paths)? {
            let Ok(Some(mut reader)) = listing.open() else { continue };
            if reader.is_sealed() {
                continue;
            }
            while let Ok(Some(advance)) = reader.advance() {
                if let Advance::Frame(at) = advance
                    && matches!(at.kind, FrameKind::Descriptor | FrameKind::Header)
                {
                    add_names(&mut names, reader.header());
                }
            }
        }
        Ok(names)
    }
}

/// Says which time recordings span, for an error.
pub(super) fn recorded_time(
    paths: &[PathBuf],
    host: Option<&HostIdentity>,
    zone: TimeZone,
) -> Result<String, CliError> {
    let Some(span) = recording_span(paths, host)? else {
        return Ok("the recording has none at all".to_owned());
    };
    let mut times = TimePrinter::new(zone);
    let (first, last) = (times.microseconds(*span.start()), times.microseconds(*span.end()));
    Ok(format!("the recording spans {first} to {last}"))
}

/// Parses the value of an option that names a time.
fn point(
    paths: &[PathBuf],
    (option, text): (&str, &str),
    host: Option<&HostIdentity>,
    zone: &TimeZone,
) -> Result<Point, CliError> {
    let now_ns = read_clocks().wall_ns;
    let usage = |error: &dyn Display| CliError::Usage(format!("{option}: {error}"));
    let time = TimeSpec::parse(text, now_ns, zone).map_err(|error| usage(&error))?;
    if let TimeSpec::FromStart(ns) = time {
        return Ok(Point::Elapsed(ns));
    }
    // The end is looked for only if it is needed.
    let end_ns = if time.depends_on_end() { recording_end(paths, host, now_ns)? } else { None };
    let end_ns = end_ns.unwrap_or(now_ns);
    let wall_ns = time.wall_ns(end_ns, zone);
    wall_ns.map(Point::Wall).ok_or_else(|| usage(&format!("\"{text}\" is before 1678 or after 2261")))
}

/// Returns the wall time that the value of an option names, in nanoseconds.
pub(super) fn wall_time(
    paths: &[PathBuf],
    (option, text): (&str, &str),
    host: Option<&HostIdentity>,
    zone: &TimeZone,
) -> Result<i64, CliError> {
    match point(paths, (option, text), host, zone)? {
        Point::Wall(wall_ns) => Ok(wall_ns),
        Point::Elapsed(ns) => {
            let filter = ReplayFilter { host: host.cloned(), ..ReplayFilter::default() };
            match first_sample(paths, filter)? {
                Some(first) => Ok(first.wall_ns.saturating_add_unsigned(ns)),
                None => Err(CliError::Usage(format!("{option} {text}: the recording has no samples"))),
            }
        }
    }
}

/// Returns the error for a name in the value of --source that is not among the known ones. Suggests
/// a similar one.
pub(super) fn unknown_source(value: &str, name: &str, known: &BTreeSet<String>) -> CliError {
    let near = nearest_name(name, known.iter().map(String::as_str));
    let near = near.map(|near| format!("; the nearest name is {}", human::escaped(near))).unwrap_or_default();
    let known = human::escaped_list(known);
    CliError::Usage(format!("--source {value}: no such source in these recordings{near}; they have {known}"))
}

/// A point in time by one of the clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Point {
    /// Nanoseconds since 1970.
    Wall(i64),
    /// Nanoseconds after the first sample.
    Elapsed(u64),
}

impl Point {
    fn wall_ns(self) -> Option<i64> {
        if let Self::Wall(ns) = self { Some(ns) } else { None }
    }

    fn elapsed_ns(self) -> Option<u64> {
        if let Self::Elapsed(ns) = self { Some(ns) } else { None }
    }
}

impl SelectedTime {
    /// Returns the time around a point.
    fn around(middle: Point, window: Duration) -> Self {
        let window_ns = u64::try_from(window.as_nanos()).unwrap_or(u64::MAX);
        let (before_ns, after_ns) = (window_ns / 2, window_ns - window_ns / 2);
        match middle {
            Point::Wall(at) => {
                let (first, end) =
                    (at.saturating_sub_unsigned(before_ns), at.saturating_add_unsigned(after_ns));
                Self { wall_ns: (Some(first), Some(end)), ..Self::default() }
            }
            Point::Elapsed(at) => {
                let (first, end) = (at.saturating_sub(before_ns), at.saturating_add(after_ns));
                Self { elapsed_ns: (Some(first), Some(end)), ..Self::default() }
            }
        }
    }

    fn is_empty(&self) -> bool {
        fn is_reversed<T: Ord>((since, until): (Option<T>, Option<T>)) -> bool {
            since.zip(until).is_some_and(|(since, until)| since >= until)
        }
        is_reversed(self.wall_ns) || is_reversed(self.elapsed_ns)
    }
}

fn add_names(names: &mut BTreeSet<String>, header: &SegmentHeader) {
    names.extend(header.sources.iter().map(|source| source.name.clone()));
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that a window lies around its middle by the clock of that, within the range of times.
    #[test]
    fn a_window_lies_around_its_middle() {
        let window = Duration::from_nanos(301);
        let wall = SelectedTime::around(Point::Wall(1_000), window);
        assert_eq!(wall, SelectedTime { wall_ns: (Some(850), Some(1_151)), ..SelectedTime::default() });
        let early = SelectedTime::around(Point::Elapsed(100), window);
        assert_eq!(early, SelectedTime { elapsed_ns: (Some(0), Some(251)), ..SelectedTime::default() });
        let long = |at| SelectedTime::around(Point::Wall(at), Duration::MAX);
        assert_eq!((long(-9).wall_ns.0, long(9).wall_ns.1), (Some(i64::MIN), Some(i64::MAX)));
        assert!(!long(0).is_empty() && !SelectedTime::default().is_empty());
        assert!(SelectedTime { wall_ns: (Some(2), Some(2)), ..SelectedTime::default() }.is_empty());
    }
}
