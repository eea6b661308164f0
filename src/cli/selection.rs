//! Arguments of `dump`, `replay`, `export` and `flame` that select parts of recordings.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use flatcap_format::replay::{
    HostIdentity, RecordedHosts, ReplayFilter, TimePoint, TimePointError, TimeRange, recording_span,
};
use flatcap_format::schema::nearest_name;
use flatcap_format::segment::{Advance, FrameKind, ListedSegment, SegmentError, SegmentHeader, list, runs};
use flatcap_os::clock::read_clocks;
use flatcap_query::Recording;
use flatcap_text::human;
use flatcap_text::quantity::duration_argument;
use jiff::tz::TimeZone;

use super::error::CliError;
use super::hosts::find_host;
use super::recordings::{default_recordings, segments_of};
use super::zone_option::ZoneOption;
use flatcap_text::time_printer::TimePrinter;

/// Length of the window around a time. This length suits the question: what happened in the 300 ms
/// around the spike?
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
    #[arg(
        long,
        visible_alias = "at",
        value_name = "T",
        allow_hyphen_values = true,
        conflicts_with_all = ["since", "until"]
    )]
    around: Option<String>,
    /// Length of the time that --around reads [default: 300ms].
    #[arg(long, value_name = "DURATION", requires = "around", value_parser = duration_argument)]
    window: Option<Duration>,
    #[command(flatten)]
    pub(super) zone: ZoneOption,
}

impl RecordingSelection {
    /// Returns the filter for these arguments. Times without an offset are in `zone`.
    pub(super) fn filter(&self, zone: &TimeZone) -> Result<ReplayFilter, CliError> {
        let listings = segments_of(&self.paths)?;
        let sources: BTreeSet<String> = self.sources.iter().cloned().collect();
        check_sources(&self.paths, &sources)?;
        let host = self.host(&listings)?;
        let time = self.time(host.as_ref(), zone)?;
        let filter = ReplayFilter { sources, host, ..ReplayFilter::default() };
        Ok(time.limit(filter, &self.paths)?)
    }

    /// Returns the selected host; `None` if all hosts are selected.
    fn host(&self, listings: &[ListedSegment]) -> Result<Option<HostIdentity>, CliError> {
        self.host.as_deref().map(|name| find_host(&RecordedHosts::of(listings), name)).transpose()
    }

    /// Returns the selected time.
    fn time(&self, host: Option<&HostIdentity>, zone: &TimeZone) -> Result<TimeRange, CliError> {
        let point = |option, text: &Option<String>| {
            let text = text.as_deref();
            text.map(|text| point(&self.paths, (option, text), host, zone)).transpose()
        };
        if let Some(middle) = point("--around", &self.around)? {
            let window_ns = self.window.unwrap_or(WINDOW_DEFAULT).as_nanos();
            return Ok(TimeRange::around(middle, u64::try_from(window_ns).unwrap_or(u64::MAX)));
        }
        let time = TimeRange { since: point("--since", &self.since)?, until: point("--until", &self.until)? };
        if time.is_empty() {
            return Err(CliError::Usage("--since must be before --until".to_owned()));
        }
        Ok(time)
    }

    /// Returns whether only a part of the time is selected.
    pub(super) fn has_times(&self) -> bool {
        self.since.is_some() || self.until.is_some() || self.around.is_some()
    }

    /// Returns whether the recordings of one host are selected.
    pub(super) fn has_host(&self) -> bool {
        self.host.is_some()
    }

    /// Returns the error for a selected time without samples.
    pub(super) fn no_samples(&self, zone: TimeZone) -> Result<CliError, CliError> {
        let of =
            if self.sources.is_empty() { String::new() } else { format!(" of {}", self.sources.join(", ")) };
        let host = self.host(&list(&self.paths)?)?;
        let span = recorded_time(&self.paths, host.as_ref(), zone)?;
        Ok(CliError::NoSamples(format!("no samples{of} in the selected time; {span}")))
    }

    /// Returns whether these recordings have more than one source.
    pub(super) fn have_several_sources(&self) -> Result<bool, SegmentError> {
        Ok(described_sources(&self.paths)?.len() > 1 || known_sources(&self.paths)?.len() > 1)
    }
}

/// Checks that every named source is in at least one of the files.
pub(super) fn check_sources(paths: &[PathBuf], wanted: &BTreeSet<String>) -> Result<(), CliError> {
    if wanted.is_empty() || wanted.is_subset(&described_sources(paths)?) {
        return Ok(());
    }
    let recording = Recording::open_with_added_sources(paths)?;
    let computed = recording.sources().iter().filter(|source| source.is_computed);
    let mut known = known_sources(paths)?;
    known.extend(computed.map(|source| source.name.clone()));
    if known.is_empty() {
        // If no segment could be read, the reader reports the reason.
        return Ok(());
    }
    if let Some(name) = wanted.difference(&known).next() {
        return Err(unknown_source(name, name, &known));
    }
    Ok(())
}

/// Returns the names of the sources that headers and footers list. Sources that were added to an
/// unsealed segment after its header was written are not included.
fn described_sources(paths: &[PathBuf]) -> Result<BTreeSet<String>, SegmentError> {
    let mut names = BTreeSet::new();
    // The last segment of a run lists all sources of the run.
    for run in runs(&list(paths)?) {
        let last = run.iter().rev().find_map(|listing| listing.open().ok()?);
        if let Some(reader) = last {
            add_names(&mut names, reader.footer().map_or(reader.header(), |footer| &footer.header));
            add_names(&mut names, reader.header());
        }
    }
    Ok(names)
}

/// Returns the names of all sources in the files. Reads unsealed segments in full.
pub(super) fn known_sources(paths: &[PathBuf]) -> Result<BTreeSet<String>, SegmentError> {
    let mut names = described_sources(paths)?;
    for listing in list(paths)? {
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

/// Returns a text for error messages that gives the time range of the recordings.
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
) -> Result<TimePoint, CliError> {
    TimePoint::parse(text, paths, host, (read_clocks().wall_ns, zone)).map_err(|error| match error {
        TimePointError::Segment(error) => error.into(),
        other => CliError::Usage(format!("{option}: {other}")),
    })
}

/// Returns the wall time that the value of an option names, in nanoseconds.
pub(super) fn wall_time(
    paths: &[PathBuf],
    (option, text): (&str, &str),
    host: Option<&HostIdentity>,
    zone: &TimeZone,
) -> Result<i64, CliError> {
    let wall_ns = point(paths, (option, text), host, zone)?.wall_ns(paths, host)?;
    wall_ns.ok_or_else(|| CliError::Usage(format!("{option} {text}: the recording has no samples")))
}

/// Returns the error for a name in the value of --source that is not a known name. The error
/// suggests a similar name.
pub(super) fn unknown_source(value: &str, name: &str, known: &BTreeSet<String>) -> CliError {
    let near = nearest_name(name, known.iter().map(String::as_str));
    let near = near.map(|near| format!("; the nearest name is {}", human::escaped(near))).unwrap_or_default();
    let known = human::escaped_list(known);
    CliError::Usage(format!("--source {value}: no such source in these recordings{near}; they have {known}"))
}

fn add_names(names: &mut BTreeSet<String>, header: &SegmentHeader) {
    names.extend(header.sources.iter().map(|source| source.name.clone()));
}
