//! Which part of which recordings: the arguments that `dump` and `replay` share.

use std::collections::BTreeSet;
use std::path::PathBuf;

use jiff::tz::TimeZone;

use super::error::CliError;
use crate::os::clock::ClockReading;
use crate::replay::{Filter, TimeSpec, first_wall_ns};
use crate::segment::{Header, SegmentError, SegmentReader, list, runs};

/// What of which recordings.
#[derive(Debug, clap::Args)]
pub(super) struct Selection {
    /// Segment files, or directories of segments.
    #[arg(value_name = "PATH", required = true)]
    pub(super) paths: Vec<PathBuf>,
    /// Only this source; can be repeated.
    #[arg(long = "source", value_name = "NAME")]
    sources: Vec<String>,
    /// From this time on: RFC 3339, 14:03:07.25 (today), "3m ago", @1700000000.5, +10s (from the start).
    #[arg(long, value_name = "T")]
    since: Option<String>,
    /// Up to this time, exclusive.
    #[arg(long, value_name = "T")]
    until: Option<String>,
}

impl Selection {
    /// The filter that the arguments mean for these recordings.
    pub(super) fn filter(&self) -> Result<Filter, CliError> {
        let listings = list(&self.paths)?;
        if listings.is_empty() {
            return Err(CliError::NoSegments(self.paths.clone()));
        }
        let sources: BTreeSet<String> = self.sources.iter().cloned().collect();
        if !sources.is_empty() {
            self.check_sources(&sources)?;
        }
        let now_ns = ClockReading::now().wall_ns;
        let zone = TimeZone::system();
        let spec = |text: &Option<String>| {
            text.as_ref().map(|text| TimeSpec::parse(text, now_ns, &zone)).transpose()
        };
        let (since, until) = (spec(&self.since)?, spec(&self.until)?);
        let is_relative = |spec: &Option<TimeSpec>| matches!(spec, Some(TimeSpec::FromStart(_)));
        let start_ns = if is_relative(&since) || is_relative(&until) {
            first_wall_ns(&self.paths, &sources)?.unwrap_or(0)
        } else {
            0
        };
        let wall = |spec: Option<TimeSpec>| spec.map(|spec| spec.wall_ns(start_ns));
        let (since_ns, until_ns) = (wall(since), wall(until));
        if let (Some(since_ns), Some(until_ns)) = (since_ns, until_ns)
            && since_ns >= until_ns
        {
            return Err(CliError::Usage("--since is not before --until: nothing can match".to_owned()));
        }
        Ok(Filter { sources, since_ns, until_ns, fields: Vec::new() })
    }

    /// Every named source must be in one of the files at least.
    fn check_sources(&self, wanted: &BTreeSet<String>) -> Result<(), CliError> {
        let known = self.known_sources()?;
        if known.is_empty() {
            // Nothing could be read: the reading itself says why.
            return Ok(());
        }
        if let Some(name) = wanted.difference(&known).next() {
            let near = known
                .iter()
                .max_by(|a, b| strsim::jaro_winkler(a, name).total_cmp(&strsim::jaro_winkler(b, name)));
            let near = near.map(|near| format!("; the nearest name is {near}")).unwrap_or_default();
            let known = known.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
            return Err(CliError::Usage(format!(
                "--source {name}: no such source in these recordings{near}; they have {known}"
            )));
        }
        Ok(())
    }

    /// Names of all sources in the files.
    pub(super) fn known_sources(&self) -> Result<BTreeSet<String>, SegmentError> {
        let mut known = BTreeSet::new();
        // The last segment of a run knows all its sources.
        for run in runs(&list(&self.paths)?) {
            let last = run.iter().rev().find_map(|listing| SegmentReader::open(&listing.path).ok());
            known.extend(last.iter().flat_map(|reader| names(reader.header())));
        }
        Ok(known)
    }
}

fn names(header: &Header) -> impl Iterator<Item = String> {
    header.sources.iter().map(|source| source.name.clone())
}
