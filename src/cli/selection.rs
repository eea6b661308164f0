//! Arguments of `dump`, `replay` and `export` that select parts of recordings.

use std::collections::BTreeSet;
use std::path::PathBuf;

use flatcap_format::replay::{ReplayFilter, TimeSpec, first_sample};
use flatcap_format::schema::nearest_name;
use flatcap_format::segment::{Advance, Elapsed, FrameKind, SegmentError, SegmentHeader, list, runs};
use jiff::tz::TimeZone;

use super::error::CliError;
use super::human;
use crate::os::clock::read_clocks;

/// Recordings, and the sources and times to read from them.
#[derive(Debug, clap::Args)]
pub(super) struct RecordingSelection {
    /// Segment files, or directories of segments.
    #[arg(value_name = "PATH", required = true)]
    pub(super) paths: Vec<PathBuf>,
    /// Read only these sources; can be repeated.
    #[arg(long = "source", value_name = "NAME,...", value_delimiter = ',')]
    sources: Vec<String>,
    /// Start time: RFC 3339, 14:03:07.25 (today, local), "3m ago" or -3m, @1700000000.5, or +10s
    /// (after the first sample, by the monotonic clock).
    #[arg(long, value_name = "T", allow_hyphen_values = true)]
    since: Option<String>,
    /// End time, exclusive.
    #[arg(long, value_name = "T", allow_hyphen_values = true)]
    until: Option<String>,
}

impl RecordingSelection {
    /// Returns the filter for these arguments.
    pub(super) fn filter(&self) -> Result<ReplayFilter, CliError> {
        let listings = list(&self.paths)?;
        if listings.is_empty() {
            return Err(CliError::NoSegments(self.paths.clone()));
        }
        let sources: BTreeSet<String> = self.sources.iter().cloned().collect();
        if !sources.is_empty() {
            self.check_sources(&sources)?;
        }
        let now_ns = read_clocks().wall_ns;
        let zone = TimeZone::system();
        let spec = |option: &str, text: &Option<String>| {
            let parsed = text.as_ref().map(|text| TimeSpec::parse(text, now_ns, &zone)).transpose();
            parsed.map_err(|error| CliError::Usage(format!("{option}: {error}")))
        };
        let (since, until) = (spec("--since", &self.since)?, spec("--until", &self.until)?);
        let (since_ns, until_ns) = (wall_ns(since), wall_ns(until));
        let (after_ns, before_ns) = (elapsed_ns(since), elapsed_ns(until));
        if since_ns.zip(until_ns).is_some_and(|(since, until)| since >= until)
            || after_ns.zip(before_ns).is_some_and(|(since, until)| since >= until)
        {
            return Err(CliError::Usage("--since must be before --until".to_owned()));
        }
        let elapsed = if after_ns.is_some() || before_ns.is_some() {
            let start = first_sample(&self.paths, &sources)?;
            start.map(|start| Elapsed { start, ns: after_ns.unwrap_or(0)..before_ns.unwrap_or(u64::MAX) })
        } else {
            None
        };
        Ok(ReplayFilter { sources, since_ns, until_ns, elapsed, fields: Vec::new() })
    }

    /// Returns whether a part of the time is selected.
    pub(super) fn has_times(&self) -> bool {
        self.since.is_some() || self.until.is_some()
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

/// Returns the error for a name in the value of --source that is not among the known ones. Suggests
/// a similar one.
pub(super) fn unknown_source(value: &str, name: &str, known: &BTreeSet<String>) -> CliError {
    let near = nearest_name(name, known.iter().map(String::as_str));
    let near = near.map(|near| format!("; the nearest name is {}", human::escaped(near))).unwrap_or_default();
    let known = human::escaped_list(known);
    CliError::Usage(format!("--source {value}: no such source in these recordings{near}; they have {known}"))
}

fn wall_ns(spec: Option<TimeSpec>) -> Option<i64> {
    spec.and_then(|spec| if let TimeSpec::Wall(ns) = spec { Some(ns) } else { None })
}

fn elapsed_ns(spec: Option<TimeSpec>) -> Option<u64> {
    spec.and_then(|spec| if let TimeSpec::FromStart(ns) = spec { Some(ns) } else { None })
}

fn add_names(names: &mut BTreeSet<String>, header: &SegmentHeader) {
    names.extend(header.sources.iter().map(|source| source.name.clone()));
}
