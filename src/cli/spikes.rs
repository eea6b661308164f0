//! `spikes`: the moments of a recording at which any field departed most from what is usual for it.

use std::io::{self, Write};

use flatcap_explain::{
    ExplainError, FieldDeparture, RecordingChoice, Spikes, UnrankedFields, UnrankedReason, ValueUnit,
    find_spikes,
};
use flatcap_format::schema::to_visible_json;
use flatcap_format::segment::SourceSender;
use flatcap_text::human;
use jiff::tz::TimeZone;
use serde::Serialize;

use super::error::CliError;
use super::measured_value::{fitting_name, senders, usual_range, value_text};
use super::selection::RecordingSelection;
use super::terminal::Output;
use super::time_printer::TimePrinter;
use super::{ExitStatus, report_notice};
use crate::config;

/// Columns that names of fields need: with fewer, they have lines of their own.
const NAME_WIDTH_MIN: usize = 34;
/// Maximum number of names of unranked fields in a line.
const UNRANKED_SHOWN: usize = 8;
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
    /// The id of the source, if the run has several sources with its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    source_id: Option<u16>,
    field: String,
    element: Option<&'d str>,
    value: f64,
    usual: f64,
    usual_low: f64,
    usual_high: f64,
    unit: ValueUnit,
    #[serde(skip_serializing_if = "Option::is_none")]
    field_unit: Option<&'d str>,
    score: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    measured: Option<MeasurementObject>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pushed_by: Vec<SenderObject<'d>>,
}

/// The samples of a value.
#[derive(Serialize)]
struct MeasurementObject {
    from_wall_ns: i64,
    until_wall_ns: i64,
    shown: &'static str,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    is_since_start: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    is_limited: bool,
    dump: String,
}

/// A program that pushed the values of a source.
#[derive(Serialize)]
struct SenderObject<'d> {
    client: &'d str,
    user: Option<&'d str>,
    program: Option<&'d str>,
}

impl<'d> DepartureObject<'d> {
    pub(super) fn new(departure: &'d FieldDeparture, choice: &RecordingChoice) -> Self {
        let sender = |sender: &'d SourceSender| SenderObject {
            client: &sender.client,
            user: sender.user.as_deref(),
            program: sender.program.as_deref(),
        };
        Self {
            wall_ns: departure.wall_ns,
            source: &departure.source,
            source_id: departure.source_id,
            field: departure.path(),
            element: departure.element.as_deref(),
            value: departure.value,
            usual: departure.usual,
            usual_low: departure.usual_range.0,
            usual_high: departure.usual_range.1,
            unit: departure.unit,
            field_unit: departure.field_unit.as_deref(),
            score: departure.score,
            measured: departure.measurement.as_ref().map(|own| MeasurementObject {
                from_wall_ns: own.from_wall_ns,
                until_wall_ns: own.until_wall_ns,
                shown: own.shown.name(),
                is_since_start: own.is_since_start,
                is_limited: own.is_limited,
                dump: human::shell_command("flatcap", &own.dump_arguments(choice)),
            }),
            pushed_by: departure.senders.iter().map(sender).collect(),
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
    let found = match find_spikes(&choice, filter, args.limit, &mut report) {
        Err(ExplainError::NoSamples) => return Err(args.selection.no_samples(zone)?),
        found => found?,
    };
    if args.json {
        let spikes = found.departures.iter();
        let objects: Vec<_> = spikes.map(|spike| DepartureObject::new(spike, &choice)).collect();
        write!(out, "{}", to_visible_json(&objects).map_err(io::Error::from)?)?;
        writeln!(out)?;
    } else {
        print(&found, zone, out)?;
    }
    if found.left_out > 0 {
        report_left_out(found.left_out)?;
    }
    let outcome = outcome?;
    Ok(if found.has_findings { ExitStatus::DataLoss } else { outcome })
}

fn print(found: &Spikes, zone: TimeZone, out: &mut dyn Write) -> io::Result<()> {
    let spikes = &found.departures;
    if spikes.is_empty() {
        writeln!(out, "no spikes: {}", nothing_departed(found.ranked, &found.unranked))?;
        return print_unranked(&found.unranked, out);
    }
    let mut printer = TimePrinter::new(zone);
    let times: Vec<String> = spikes.iter().map(|spike| printer.milliseconds(spike.wall_ns)).collect();
    let values: Vec<String> = spikes.iter().map(|spike| value_text(spike, spike.value)).collect();
    let usual: Vec<String> = spikes.iter().map(usual_range).collect();
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
        print_senders(spike, out)?;
    }
    Ok(())
}

/// Says which programs pushed a field.
pub(super) fn print_senders(departure: &FieldDeparture, out: &mut dyn Write) -> io::Result<()> {
    let width = Output::Stdout.width_to_fit().saturating_sub(NAME_INDENT);
    match senders(departure) {
        Some(text) => writeln!(out, "{:NAME_INDENT$}{}", "", human::shortened(&text, width)),
        None => Ok(()),
    }
}

/// Says that nothing departed, of how many fields.
pub(super) fn nothing_departed(ranked: usize, unranked: &[UnrankedFields]) -> String {
    let is_short = unranked.iter().any(|fields| fields.reason == UnrankedReason::ShortBaseline);
    match ranked {
        0 if is_short => "the recording is too short for a ranking".to_owned(),
        0 => "these recordings have no field that can be ranked".to_owned(),
        1 => "the one field that was ranked did not depart from what is usual for it".to_owned(),
        _ => format!("none of the {ranked} ranked fields departed from what is usual for it"),
    }
}

/// Says which fields were not ranked, and why.
pub(super) fn print_unranked(unranked: &[UnrankedFields], out: &mut dyn Write) -> io::Result<()> {
    for UnrankedFields { reason, fields } in unranked {
        let reason = match reason {
            UnrankedReason::NoQuantity => "states, texts and reservations",
            UnrankedReason::ShortBaseline => "too little was recorded before",
            UnrankedReason::NoSchema => "payloads without a schema",
            UnrankedReason::Events => "events",
        };
        let names: Vec<&str> = fields.iter().take(UNRANKED_SHOWN).map(String::as_str).collect();
        let more = if fields.len() > names.len() { ", ..." } else { "" };
        let names = human::escaped(&names.join(", ")).into_owned();
        let line = format!("not ranked, {reason}: {}: {names}{more}", fields.len());
        writeln!(out, "{}", human::shortened(&line, Output::Stdout.width_to_fit()))?;
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
