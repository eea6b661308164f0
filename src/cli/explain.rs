//! `explain`: what was different in a window, and who did it.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

use flatcap_explain::{
    ChildrenUse, ExplainError, Explanation, FieldName, KernelCauses, RecordingChoice, Spikes, Suspect,
    SuspectKind, UnrankedFields, UnrankedReason, ValueUnit, explain, find_causes, find_spikes,
};
use flatcap_format::replay::{RecordedHosts, ReplayFilter};
use flatcap_format::schema::to_visible_json;
use flatcap_format::segment::list;
use flatcap_tasks::CodeObjectInfo;
use flatcap_text::human;
use flatcap_text::quantity::duration_argument;
use flatcap_text::stack_names::StackNames;
use jiff::tz::TimeZone;
use serde::Serialize;

use super::causes::{CausesScreen, FunctionNames};
use super::causes_object::CausesObject;
use super::error::CliError;
use super::hosts::find_host;
use super::measured_value::{self, measured, short_name, value_text};
use super::recordings::{default_recordings, no_segments};
use super::selection::{check_sources, recorded_time, wall_time};
use super::snapshots::{attached_logs, snapshot_time};
use super::spikes::{
    DepartureObject, nothing_departed, print_senders, print_unranked, printed_length, report_left_out,
};
use super::suspect_text::{EVIDENCE_SHOWN, new_children, suspect_name, what};
use super::symbol_directory::symbol_directory;
use super::terminal::{Output, wrapped};
use super::time_printer::{TimePrinter, ZoneOption};
use super::{ExitStatus, report_notice};
use crate::config;

/// Columns for suspects, what they used, and fields, so that lines have 80.
const SUSPECT_WIDTH: usize = 21;
const USED_WIDTH: usize = 18;
const FIELD_WIDTH: usize = 34;
/// Columns for the number of new children: those for suspects and their score.
const CHILDREN_WIDTH: usize = SUSPECT_WIDTH + 2 + 5;
/// Maximum number of names of unranked fields in JSON, for each reason.
const UNRANKED_MAX: usize = 1000;
/// Shortest baseline, in lengths of the window: of a shorter one too few stretches are as long as
/// the window to say what is usual.
const BEFORE_WINDOWS_MIN: u64 = 2;
/// Parents that the line about processes names.
const PARENTS_SHOWN: usize = 3;
/// Maximum number of lines for the text of a mark.
const MARKER_LINES_SHOWN: usize = 4;

/// Say what was different in a window, and who did it.
///
/// Processes, control groups, disks and interfaces are ranked by what they used more than before,
/// and fields by how far they deviate from the baseline. If the recording has samples of sched,
/// profile or kmsg, it also says who ran, who waited for a CPU and because of whom, who slept
/// longer than usual, which code ran, and what the kernel logged.
///
/// In the output, `used` and `value` are measured in the window, `usual` in the baseline, `of` is
/// the field, and `from` the second at which it began to differ. `score` is how unusual that is,
/// from 0 to 3; a suspect has the sum over its kinds of use. `(+5)` says that five further fields
/// moved together with the one that is named. `state R` is the share of time in a state, by the
/// letters of ps: R runs or waits for a CPU, D waits for a device.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Segment files, or directories of segments [default: ./flatcap-data, else /var/lib/flatcap].
    #[arg(value_name = "PATH", default_values_os_t = default_recordings(), hide_default_value = true)]
    paths: Vec<PathBuf>,
    /// The middle of the window, as printed by spikes and dump [default: the largest spike].
    #[arg(long, value_name = "T", allow_hyphen_values = true)]
    at: Option<String>,
    /// Length of the window.
    #[arg(long, value_name = "DURATION", default_value = "300ms", value_parser = duration_argument)]
    window: Duration,
    /// Length of the baseline: the time before the window, with which the window is compared. At
    /// least twice the window.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration_argument)]
    before: Duration,
    /// Look only at these sources; can be repeated.
    #[arg(long = "source", value_name = "NAME,...", value_delimiter = ',')]
    sources: Vec<String>,
    /// The host, if the segments are of several: its name or its machine id.
    #[arg(long, value_name = "NAME")]
    host: Option<String>,
    #[command(flatten)]
    zone: ZoneOption,
    /// Look for executables and debug files in this directory first, to name functions. Can be
    /// repeated.
    #[arg(long = "symbols", value_name = "DIR", value_parser = symbol_directory)]
    symbol_directories: Vec<PathBuf>,
    /// Maximum number of suspects, and of fields, to list.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = config::count_argument::<usize>)]
    limit: usize,
    /// Print one JSON object instead of text; null if there is no spike to explain.
    #[arg(long)]
    json: bool,
}

/// Says that there is nothing to explain without a time: a recording without spikes is no error.
fn print_no_spikes(is_json: bool, found: &Spikes, out: &mut dyn Write) -> Result<ExitStatus, CliError> {
    if is_json {
        writeln!(out, "null")?;
    } else {
        let why = nothing_departed(found.ranked, &found.unranked);
        writeln!(out, "no spikes: {why}; name a time to explain with --at")?;
        print_unranked(&found.unranked, out)?;
    }
    Ok(if found.has_findings { ExitStatus::DataLoss } else { ExitStatus::Done })
}

pub(super) fn run(args: &Args, out: &mut dyn Write) -> Result<ExitStatus, CliError> {
    let zone = args.zone.zone()?;
    let listings = list(&args.paths)?;
    if listings.is_empty() {
        return Err(no_segments(&args.paths));
    }
    let host = args.host.as_deref().map(|name| find_host(&RecordedHosts::of(&listings), name)).transpose()?;
    let sources: BTreeSet<String> = args.sources.iter().cloned().collect();
    check_sources(&args.paths, &sources)?;
    let choice = RecordingChoice { paths: args.paths.clone(), sources, host: host.clone() };
    let mut outcome = Ok(ExitStatus::Done);
    let mut report = |notice: &_| outcome = report_notice(notice);
    let stated_ns = match &args.at {
        Some(text) => Some(wall_time(&args.paths, ("--at", text), host.as_ref(), &zone)?),
        None => snapshot_time(&args.paths),
    };
    let wall_ns = match stated_ns {
        Some(wall_ns) => wall_ns,
        None => match find_spikes(&choice, ReplayFilter::default(), 1, &mut |_| {}) {
            Err(ExplainError::NoSamples) => return Err(no_samples(&choice, "to explain", zone)?),
            found => {
                let found = found?;
                match found.departures.first() {
                    Some(spike) => spike.wall_ns,
                    None => return print_no_spikes(args.json, &found, out),
                }
            }
        },
    };
    let ns = |length: Duration| u64::try_from(length.as_nanos()).unwrap_or(u64::MAX);
    let window_ns = ns(args.window);
    // Usual values are those of several stretches of the window's length.
    let before_ns = ns(args.before).max(window_ns.saturating_mul(BEFORE_WINDOWS_MIN));
    let found = match explain(&choice, wall_ns, window_ns, before_ns, &mut report) {
        Err(ExplainError::NoSamples) => {
            let at = TimePrinter::new(zone.clone()).microseconds(wall_ns);
            let wanted = format!("in {} around {at}", printed_length(window_ns));
            return Err(no_samples(&choice, &wanted, zone)?);
        }
        found => found?,
    };
    let causes = find_causes(&choice, found.window, before_ns, &mut |_| {})?;
    let boot_id = causes.stacks_boot_id.as_deref();
    let known =
        causes.stacks.as_ref().map(|stacks| StackNames::of(stacks, boot_id, &args.symbol_directories));
    let known = known.unwrap_or_default();
    let names: FunctionNames<'_> = &mut |object: &CodeObjectInfo, offset: u64| known.function(object, offset);
    if args.json {
        let causes = CausesObject::new(&causes, args.limit, names);
        let object = ExplanationObject::new(&found, causes, (&choice, args.limit));
        write!(out, "{}", to_visible_json(&object).map_err(io::Error::from)?)?;
        writeln!(out)?;
    } else {
        Screen { times: TimePrinter::new(zone), limit: args.limit, out }.print(&found, &causes, names)?;
        for name in attached_logs(&args.paths).iter().map(|name| human::escaped(name)) {
            writeln!(out, "attached: {name}; flatcap info --attachment {name} PATH prints it")?;
        }
    }
    if found.left_out > 0 {
        report_left_out(found.left_out)?;
    }
    let outcome = outcome?;
    Ok(if found.has_findings || causes.has_findings { ExitStatus::DataLoss } else { outcome })
}

/// Returns the error of a time without samples: with the time that the recording spans.
fn no_samples(choice: &RecordingChoice, wanted: &str, zone: TimeZone) -> Result<CliError, CliError> {
    let span = recorded_time(&choice.paths, choice.host.as_ref(), zone)?;
    Ok(CliError::NoSamples(format!("no samples {wanted}; {span}")))
}

#[derive(Serialize)]
struct ExplanationObject<'e> {
    window: WindowObject,
    baseline: BaselineObject,
    suspects: Vec<SuspectObject<'e>>,
    fields: Vec<FieldObject<'e>>,
    ranked: usize,
    unranked: Vec<UnrankedObject<'e>>,
    markers: Vec<MarkerObject<'e>>,
    lost: u64,
    #[serde(flatten)]
    causes: CausesObject,
}

#[derive(Serialize)]
struct WindowObject {
    first_wall_ns: i64,
    last_wall_ns: i64,
}

/// The time before the window, as far as it was recorded.
#[derive(Serialize)]
struct BaselineObject {
    recorded_ns: u64,
    least_ns: u64,
    is_too_short: bool,
}

#[derive(Serialize)]
struct SuspectObject<'e> {
    kind: SuspectKind,
    name: &'e str,
    pid: Option<u64>,
    score: f64,
    what: String,
    evidence: Vec<DepartureObject<'e>>,
    children: Vec<ChildrenObject<'e>>,
    first_wall_ns: i64,
}

/// The use of a resource by new children: a sum, and its parts.
#[derive(Serialize)]
struct ChildrenObject<'e> {
    field: &'e str,
    count: usize,
    sum: f64,
    unit: ValueUnit,
    parts: Vec<DepartureObject<'e>>,
}

#[derive(Serialize)]
struct FieldObject<'e> {
    #[serde(flatten)]
    departure: DepartureObject<'e>,
    first_wall_ns: i64,
    together: Vec<FieldNameObject<'e>>,
}

#[derive(Serialize)]
struct FieldNameObject<'e> {
    source: &'e str,
    #[serde(skip_serializing_if = "Option::is_none")]
    source_id: Option<u16>,
    field: &'e str,
    element: Option<&'e str>,
}

#[derive(Serialize)]
struct UnrankedObject<'e> {
    reason: UnrankedReason,
    count: usize,
    fields: Vec<&'e str>,
}

#[derive(Serialize)]
struct MarkerObject<'e> {
    wall_ns: i64,
    text: &'e str,
}

impl<'e> ExplanationObject<'e> {
    fn new(found: &'e Explanation, causes: CausesObject, (choice, limit): (&RecordingChoice, usize)) -> Self {
        let suspects = found.suspects.iter().take(limit).map(|suspect| SuspectObject {
            kind: suspect.kind,
            name: &suspect.name,
            pid: suspect.pid,
            score: suspect.score,
            what: what(suspect),
            evidence: suspect.evidence.iter().map(|own| DepartureObject::new(own, choice)).collect(),
            children: suspect.children.iter().map(|own| ChildrenObject::new(own, choice)).collect(),
            first_wall_ns: suspect.first_wall_ns,
        });
        let fields = found.fields.iter().take(limit).map(|departure| FieldObject {
            departure: DepartureObject::new(departure, choice),
            first_wall_ns: departure.wall_ns,
            together: departure.together.iter().map(FieldNameObject::from).collect(),
        });
        let unranked = |UnrankedFields { reason, fields }: &'e UnrankedFields| UnrankedObject {
            reason: *reason,
            count: fields.len(),
            fields: fields.iter().take(UNRANKED_MAX).map(String::as_str).collect(),
        };
        let markers = found.markers.iter();
        Self {
            window: WindowObject { first_wall_ns: found.window.0, last_wall_ns: found.window.1 },
            baseline: BaselineObject {
                recorded_ns: found.before_ns,
                least_ns: found.before_least_ns,
                is_too_short: found.is_too_early(),
            },
            suspects: suspects.collect(),
            fields: fields.collect(),
            ranked: found.ranked,
            unranked: found.unranked.iter().map(unranked).collect(),
            markers: markers
                .map(|marker| MarkerObject { wall_ns: marker.wall_ns, text: &marker.text })
                .collect(),
            lost: found.lost,
            causes,
        }
    }
}

impl<'e> ChildrenObject<'e> {
    fn new(children: &'e ChildrenUse, choice: &RecordingChoice) -> Self {
        Self {
            field: &children.field,
            count: children.parts.len(),
            sum: children.sum,
            unit: children.unit,
            parts: children.parts.iter().map(|part| DepartureObject::new(part, choice)).collect(),
        }
    }
}

impl<'e> From<&'e FieldName> for FieldNameObject<'e> {
    fn from(name: &'e FieldName) -> Self {
        Self {
            source: &name.source,
            source_id: name.source_id,
            field: &name.field,
            element: name.element.as_deref(),
        }
    }
}

/// An explanation on 80 columns.
struct Screen<'o> {
    times: TimePrinter,
    limit: usize,
    out: &'o mut dyn Write,
}

impl Screen<'_> {
    fn print(
        &mut self,
        found: &Explanation,
        causes: &KernelCauses,
        names: FunctionNames<'_>,
    ) -> io::Result<()> {
        let from = self.times.milliseconds(found.window.0);
        let length = printed_length(found.window.1.abs_diff(found.window.0));
        let before = printed_length(found.before_ns);
        let width = Output::Stdout.width_to_fit();
        let what = format!("{from}, {length} against {before} before");
        let host = format!("host {}", human::escaped(&found.host));
        let is_fitting = what.len() + 2 + host.chars().count() <= width;
        let host = human::shortened(&host, width);
        writeln!(self.out, "{what}{}{host}", if is_fitting { ", " } else { "\n" })?;
        if found.is_too_early() {
            let least = printed_length(found.before_least_ns);
            writeln!(self.out, "nothing is ranked: what is usual takes {least} of recording before")?;
        } else {
            self.print_suspects(found)?;
        }
        CausesScreen { times: &mut self.times, limit: self.limit, width, out: self.out }
            .print(causes, names)?;
        self.print_fields(found)?;
        self.print_rest(found)
    }

    fn print_suspects(&mut self, found: &Explanation) -> io::Result<()> {
        if found.suspects.is_empty() {
            return writeln!(
                self.out,
                "who: no process, control group, disk or interface used more than usual"
            );
        }
        writeln!(
            self.out,
            "{:<SUSPECT_WIDTH$}  score  {:>10}  {:>10}  {:<USED_WIDTH$}  from",
            "who", "used", "usual", "of"
        )?;
        for suspect in found.suspects.iter().take(self.limit) {
            let name = suspect_name(suspect, SUSPECT_WIDTH);
            for (number, departure) in suspect.evidence.iter().take(EVIDENCE_SHOWN).enumerate() {
                let (name, score) =
                    if number == 0 { (&*name, format!("{:.2}", suspect.score)) } else { ("", String::new()) };
                let line = format!(
                    "{name:<SUSPECT_WIDTH$}  {score:>5}  {:>10}  {:>10}  {:<USED_WIDTH$}  {}",
                    value_text(departure, departure.value),
                    value_text(departure, departure.usual),
                    human::shortened(&measured_value::what(departure), USED_WIDTH),
                    self.short_time(departure.wall_ns)
                );
                writeln!(self.out, "{}", line.trim_end())?;
            }
            self.print_children(suspect, &name)?;
        }
        Ok(())
    }

    /// Prints the use of resources by the new children of a suspect, apart from its own.
    fn print_children(&mut self, suspect: &Suspect, name: &str) -> io::Result<()> {
        for (number, children) in suspect.children.iter().take(EVIDENCE_SHOWN).enumerate() {
            if number == 0 && suspect.evidence.is_empty() {
                writeln!(self.out, "{name:<SUSPECT_WIDTH$}  {:>5.2}", suspect.score)?;
            }
            let what = children.parts.first().map(measured_value::what).unwrap_or_default();
            let first_ns = children.parts.iter().map(|part| part.wall_ns).min().unwrap_or_default();
            let line = format!(
                "{:<CHILDREN_WIDTH$}  {:>10}  {:>10}  {:<USED_WIDTH$}  {}",
                format!("  {}", new_children(children)),
                measured(children.sum, children.unit),
                "",
                human::shortened(&what, USED_WIDTH),
                self.short_time(first_ns)
            );
            writeln!(self.out, "{}", line.trim_end())?;
        }
        Ok(())
    }

    fn print_fields(&mut self, found: &Explanation) -> io::Result<()> {
        if found.is_too_early() {
            return Ok(());
        }
        if found.fields.is_empty() {
            writeln!(self.out, "what: {}", nothing_departed(found.ranked, &found.unranked))?;
            return print_unranked(&found.unranked, self.out);
        }
        writeln!(self.out, "{:<FIELD_WIDTH$}  score  {:>12}  {:>12}  from", "what", "value", "usual")?;
        for departure in found.fields.iter().take(self.limit) {
            let count = departure.together.len();
            let together = if count > 0 { format!(" (+{count})") } else { String::new() };
            let name = short_name(departure, FIELD_WIDTH - together.len()) + &together;
            let from = self.short_time(departure.wall_ns);
            writeln!(
                self.out,
                "{name:<FIELD_WIDTH$}  {:>5.2}  {:>12}  {:>12}  {}",
                departure.score,
                value_text(departure, departure.value),
                value_text(departure, departure.usual),
                from
            )?;
            print_senders(departure, self.out)?;
        }
        Ok(())
    }

    fn print_rest(&mut self, found: &Explanation) -> io::Result<()> {
        let mut lists: Vec<&str> = found.offspring.iter().map(|offspring| offspring.list.as_str()).collect();
        lists.sort_unstable();
        lists.dedup();
        for list in lists {
            let own: Vec<_> = found.offspring.iter().filter(|offspring| offspring.list == list).collect();
            let count: u64 = own.iter().map(|offspring| offspring.count).sum();
            let parents: Vec<String> = own
                .iter()
                .take(PARENTS_SHOWN)
                .map(|offspring| format!("{} below {}", offspring.count, human::escaped(&offspring.parent)))
                .collect();
            let verb = if list == "exits" { "ended" } else { "began" };
            let line = format!("processes {verb} {count}: {}", parents.join(", "));
            writeln!(self.out, "{}", human::shortened(&line, Output::Stdout.width_to_fit()))?;
        }
        for marker in &found.markers {
            let line = format!(
                "marker {} {}",
                self.times.milliseconds(marker.wall_ns),
                human::escaped(&marker.text)
            );
            let width = Output::Stdout.width_to_fit();
            let text = wrapped(&line, Some(width), 2);
            for line in text.lines().take(MARKER_LINES_SHOWN) {
                writeln!(self.out, "{}", human::shortened(line, width))?;
            }
            if text.lines().nth(MARKER_LINES_SHOWN).is_some() {
                writeln!(self.out, "  ...")?;
            }
        }
        for (at, step_ns) in &found.clock_steps {
            let direction = if *step_ns < 0 { "back" } else { "forward" };
            let length = printed_length(step_ns.unsigned_abs());
            let at = self.times.milliseconds(*at);
            writeln!(self.out, "the clock was set {direction} by {length}, to {at}")?;
        }
        let late = found.late_ns.map_or("unknown".to_owned(), printed_length);
        writeln!(self.out, "markers {}   lost {}   recorder late {late}", found.markers.len(), found.lost)
    }

    /// Returns the seconds of a time: the line above has the rest.
    fn short_time(&mut self, wall_ns: i64) -> String {
        let time = self.times.milliseconds(wall_ns);
        time.get(17..23).unwrap_or(&time).to_owned()
    }
}
