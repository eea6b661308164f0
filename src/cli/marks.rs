//! `marks`: lists the markers of recordings.

use std::io::{self, Write};
use std::path::PathBuf;

use flatcap_format::replay::RecordedHosts;
use flatcap_format::segment::{Marker, markers};
use serde::Serialize;

use super::error::CliError;
use super::hosts::find_host;
use super::recordings::{default_recordings, segments_of};
use super::tables::left_aligned;
use super::zone_option::ZoneOption;
use super::{ExitStatus, human, print_json};
use flatcap_text::time_printer::TimePrinter;

/// List the marks of recordings, with their times.
///
/// Marks are written by `mark`, by rules and by applications.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Segment files, or directories of segments [default: ./flatcap-data, else /var/lib/flatcap].
    #[arg(value_name = "PATH", default_values_os_t = default_recordings(), hide_default_value = true)]
    paths: Vec<PathBuf>,
    /// List only those of this host: its name or its machine id.
    #[arg(long, value_name = "NAME")]
    host: Option<String>,
    #[command(flatten)]
    zone: ZoneOption,
    /// Print one JSON array instead of a table.
    #[arg(long)]
    json: bool,
}

/// A mark, as JSON.
#[derive(Debug, Serialize)]
pub(super) struct MarkRow<'a> {
    host: &'a str,
    mono_ns: u64,
    wall_ns: i64,
    time: String,
    origin: &'static str,
    text: &'a str,
}

impl<'a> MarkRow<'a> {
    pub(super) fn new(marker: &'a Marker, host: &'a str) -> Self {
        Self {
            host,
            mono_ns: marker.mono_ns,
            wall_ns: marker.wall_ns,
            time: TimePrinter::utc(marker.wall_ns),
            origin: marker.origin_name(),
            text: &marker.text,
        }
    }
}

pub(super) fn run(args: &Args, out: &mut dyn Write) -> Result<ExitStatus, CliError> {
    let zone = args.zone.zone()?;
    let listings = segments_of(&args.paths)?;
    let hosts = RecordedHosts::of(&listings);
    let wanted = args.host.as_deref().map(|name| find_host(&hosts, name)).transpose()?;
    let (mut found, mut has_read, mut outcome) = (Vec::new(), false, ExitStatus::Done);
    for listing in &listings {
        match listing.open() {
            Ok(Some(reader)) if wanted.as_ref().is_some_and(|wanted| !wanted.is_of(reader.header())) => {}
            Ok(Some(mut reader)) => {
                has_read = true;
                let host = hosts.name_of(reader.header().run_id);
                found.extend(markers(&mut reader)?.into_iter().map(|marker| (marker, host)));
            }
            Ok(None) => {}
            Err(error) => {
                outcome = ExitStatus::DataLoss;
                writeln!(io::stderr(), "flatcap: {}", human::escaped(&error.to_string()))?;
            }
        }
    }
    if !has_read && outcome == ExitStatus::DataLoss {
        // None of the requested files could be read.
        return Ok(ExitStatus::Failed);
    }
    found.sort_by_key(|(marker, _)| marker.wall_ns);
    let rows: Vec<MarkRow<'_>> = found.iter().map(|(marker, host)| MarkRow::new(marker, host)).collect();
    if args.json {
        print_json(&rows, out)?;
    } else {
        print(&rows, TimePrinter::new(zone), hosts.are_several() && wanted.is_none(), out)?;
    }
    Ok(outcome)
}

fn print(
    rows: &[MarkRow<'_>],
    mut times: TimePrinter,
    has_host_column: bool,
    out: &mut dyn Write,
) -> io::Result<()> {
    if rows.is_empty() {
        return writeln!(out, "no marks; flatcap mark TEXT writes one into a running recording");
    }
    let host_column = has_host_column.then_some("host");
    let mut shown = left_aligned(["time"].into_iter().chain(host_column).chain(["origin", "text"]));
    for row in rows {
        let host = host_column.map(|_| human::escaped(row.host).into_owned());
        let cells = [row.origin.to_owned(), human::escaped(row.text).into_owned()];
        shown.add_row([times.microseconds(row.wall_ns)].into_iter().chain(host).chain(cells));
    }
    writeln!(out, "{}", shown.trim_fmt())
}
