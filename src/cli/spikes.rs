//! `spikes`: the moments of a recording at which any field departed most from what is usual for it.

use std::io::{self, Write};

use flatcap_explain::{ExplainError, FieldDeparture, RecordingChoice, ValueUnit, find_spikes};
use jiff::tz::TimeZone;
use serde::Serialize;

use super::error::CliError;
use super::measured_value::{fitting_name, measured, usual_range};
use super::selection::RecordingSelection;
use super::terminal::Output;
use super::time_printer::TimePrinter;
use super::{ExitStatus, report_notice};
use crate::config;
use crate::human;

/// Columns that names of fields need: with fewer, they have lines of their own.
const NAME_WIDTH_MIN: usize = 34;
/// Blanks before a name on a line of its own.
const NAME_INDENT: usize = 4;

/// List the moments that deviated most from the baseline.
///
/// The largest come first; each is compared with the minute before. `flatcap explain --at TIME`
/// then says what was different, and who did it.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    selection: RecordingSelection,
    /// Maximum number of moments to list.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = config::count_argument::<usize>)]
    limit: usize,
    /// Print one JSON array instead of a table.
    #[arg(long)]
    json: bool,
}

/// A departure as JSON shows it.
#[derive(Serialize)]
pub(super) struct DepartureObject<'d> {
    wall_ns: i64,
    source: &'d str,
    field: String,
    element: Option<&'d str>,
    value: f64,
    usual: f64,
    unit: ValueUnit,
    score: f64,
}

impl<'d> From<&'d FieldDeparture> for DepartureObject<'d> {
    fn from(departure: &'d FieldDeparture) -> Self {
        Self {
            wall_ns: departure.wall_ns,
            source: &departure.source,
            field: departure.path(),
            element: departure.element.as_deref(),
            value: departure.value,
            usual: departure.usual,
            unit: departure.unit,
            score: departure.score,
        }
    }
}

pub(super) fn run(args: &Args, out: &mut dyn Write) -> Result<ExitStatus, CliError> {
    let zone = args.selection.zone.zone()?;
    let filter = args.selection.filter(&zone)?;
    let choice = RecordingChoice {
        paths: args.selection.paths.clone(),
        sources: filter.sources.clone(),
        host: filter.host.clone(),
    };
    let mut outcome = Ok(ExitStatus::Done);
    let mut report = |notice: &_| outcome = report_notice(notice);
    let found = match find_spikes(&choice, filter, &mut report) {
        Err(ExplainError::NoSamples) => return Err(args.selection.no_samples(zone)?),
        found => found?,
    };
    let spikes: Vec<&FieldDeparture> = found.departures.iter().take(args.limit).collect();
    if args.json {
        let objects: Vec<DepartureObject<'_>> = spikes.iter().map(|spike| (*spike).into()).collect();
        serde_json::to_writer(&mut *out, &objects).map_err(io::Error::from)?;
        writeln!(out)?;
    } else {
        print(&spikes, zone, out)?;
    }
    if found.left_out > 0 {
        report_left_out(found.left_out)?;
    }
    let outcome = outcome?;
    Ok(if found.has_findings { ExitStatus::DataLoss } else { outcome })
}

fn print(spikes: &[&FieldDeparture], zone: TimeZone, out: &mut dyn Write) -> io::Result<()> {
    if spikes.is_empty() {
        return writeln!(out, "no spikes: no field departed from what is usual for it");
    }
    let mut printer = TimePrinter::new(zone);
    let times: Vec<String> = spikes.iter().map(|spike| printer.milliseconds(spike.wall_ns)).collect();
    let values: Vec<String> = spikes.iter().map(|spike| measured(spike.value, spike.unit)).collect();
    let usual: Vec<String> = spikes.iter().map(|spike| usual_range(spike)).collect();
    let width = |texts: &[String], least: usize| texts.iter().map(String::len).max().unwrap_or(0).max(least);
    let (time_width, value_width) = (width(&times, 4), width(&values, 5));
    let usual_width = width(&usual, 5);
    // Names are last: beside the values where there is place for them, else below.
    let taken = time_width + 5 + value_width + usual_width + 4 * 2;
    let width = Output::Stdout.width_to_fit();
    let beside = width.checked_sub(taken).filter(|place| *place >= NAME_WIDTH_MIN);
    writeln!(
        out,
        "{:<time_width$}  score  {:>value_width$}  {:>usual_width$}{}",
        "time",
        "value",
        "usual",
        if beside.is_some() { "  field" } else { "" }
    )?;
    for (at, spike) in spikes.iter().enumerate() {
        let text = |texts: &[String]| texts.get(at).cloned().unwrap_or_default();
        write!(
            out,
            "{:<time_width$}  {:>5.2}  {:>value_width$}  {:>usual_width$}",
            text(&times),
            spike.score,
            text(&values),
            text(&usual)
        )?;
        match beside {
            Some(place) => writeln!(out, "  {}", fitting_name(spike, place))?,
            None => writeln!(out, "\n{:NAME_INDENT$}{}", "", fitting_name(spike, width - NAME_INDENT))?,
        }
    }
    Ok(())
}

/// Reports that some fields were not looked at.
pub(super) fn report_left_out(left_out: u64) -> io::Result<()> {
    writeln!(
        io::stderr(),
        "flatcap: fields of list elements that were left out to bound memory: at least {left_out}; \
         choose sources with --source"
    )
}

/// Formats a length of time for people.
pub(super) fn printed_length(ns: u64) -> String {
    human::latency(ns)
}
