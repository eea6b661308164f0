//! The digest of a recording: one screen that summarizes the contents and suggests the next
//! commands.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

use flatcap_format::replay::{Notice, RecordedHosts, recording_span};
use flatcap_format::schema::MetricKind;
use flatcap_format::segment::list;
use flatcap_query::{Query, QueryItem, QueryResults, Recording, SourceFields};
use flatcap_text::human::{self, printable};

use super::movement::{Movements, series_path};
use super::report_summary;
use super::row_request::RowRequest;
use crate::cli::error::CliError;
use crate::cli::hosts::host_lines;
use crate::cli::recordings::default_recordings;
use crate::cli::terminal::Output;
use crate::cli::{ExitStatus, report_notice};
use flatcap_text::time_printer::TimePrinter;

/// Length of the time at the end of a recording that is read. The length is limited so that the
/// digest appears quickly even for a long recording.
const LOOK_BACK_NS: i64 = 60_000_000_000;
/// Maximum number of screen lines for sources and their fields.
const FIELD_LINES_MAX: usize = 11;
/// Maximum number of fields that are shown for a source.
const FIELDS_MAX: usize = 3;
/// Maximum number of hosts that are named.
const HOSTS_MAX: usize = 3;

/// The counts of samples and other items that were read.
#[derive(Debug, Default)]
struct DigestCounts {
    samples: BTreeMap<String, u64>,
    gaps: u64,
    thinned: u64,
    lost: u64,
    markers: u64,
    /// The time and the text of the last marker.
    last_marker: Option<(i64, String)>,
    has_run: bool,
    unreadable: u64,
    outcome: Option<ExitStatus>,
}

/// A line of the digest that describes a field.
struct DigestLine {
    source: String,
    path: String,
    values: [String; 3],
}

/// Prints the digest of the selected sources and times.
pub(in crate::cli) fn print(request: &RowRequest<'_>, out: &mut dyn Write) -> Result<ExitStatus, CliError> {
    let recording = Recording::open_with_added_sources(&request.selection.paths)?;
    let mut filter = request.filter.clone();
    let span = recording_span(&request.selection.paths, filter.host.as_ref())?;
    let is_part = !request.selection.has_times();
    if let Some(span) = span.as_ref().filter(|_| is_part) {
        filter.since_ns = Some((*span.start()).max(span.end().saturating_sub(LOOK_BACK_NS)));
    }
    let mut results = recording.query(&Query { filter: filter.clone(), ..Query::default() })?;
    let mut movements = Movements::new(true);
    let counts = read(&mut results, &mut movements)?;
    if !counts.has_run && counts.unreadable > 0 {
        return Ok(ExitStatus::Failed);
    }
    let sources = recording.fields();
    let sources: Vec<&SourceFields> = sources
        .iter()
        .filter(|source| filter.sources.is_empty() || filter.sources.contains(&source.source))
        .filter(|source| !source.is_computed || filter.sources.contains(&source.source))
        .collect();
    if counts.samples.is_empty()
        && request.selection.has_times()
        && sources.iter().all(|source| !source.fields.is_empty())
    {
        return Err(request.selection.no_samples(request.zone.clone())?);
    }
    let lines = lines(&movements, &results, sources.len());
    let mut times = TimePrinter::new(request.zone.clone());
    if let Some(span) = span {
        let (first, last) = (times.microseconds(*span.start()), times.microseconds(*span.end()));
        writeln!(out, "{first} to {last}")?;
        if is_part && span.end() - span.start() > LOOK_BACK_NS {
            writeln!(out, "Below are its last 60 s; --since, --until and --around select others.")?;
        }
    }
    let hosts = RecordedHosts::of(&list(&request.selection.paths)?).into_shown(filter.host.as_ref());
    for line in host_lines(&hosts).iter().take(HOSTS_MAX) {
        writeln!(out, "{}", human::shortened(line, Output::Stdout.width_to_fit()))?;
    }
    writeln!(out)?;
    print_sources(&sources, &lines, &counts, out)?;
    print_events(&counts, &mut times, out)?;
    let named =
        sources.iter().find(|source| !source.fields.is_empty()).map_or("SOURCE", |source| &source.source);
    print_next(request, &lines, named, out)?;
    report_summary(results.summary(), counts.outcome.unwrap_or(ExitStatus::Done))
}

/// Reads all samples and counts them.
fn read(results: &mut QueryResults, movements: &mut Movements) -> Result<DigestCounts, CliError> {
    let mut counts = DigestCounts::default();
    let mut seen: BTreeSet<(u16, u64)> = BTreeSet::new();
    while let Some(item) = results.next()? {
        match item {
            QueryItem::Run(_) => {
                counts.has_run = true;
                movements.begin_run();
            }
            QueryItem::Batch(mut batch) => {
                let Some(table) = results.tables().get(batch.table) else { continue };
                // The tables of a source contain the same samples, so samples are counted only for
                // the first table.
                let first = batch.times.mono_ns.first().copied().unwrap_or_default();
                if seen.insert((batch.source, first)) {
                    *counts.samples.entry(table.source.to_string()).or_default() += batch.times.len() as u64;
                }
                movements.add(&mut batch, table, results.elements());
            }
            QueryItem::Gap(_, gap) if gap.is_thinned() => counts.thinned += gap.count,
            QueryItem::Gap(_, gap) => {
                counts.gaps += 1;
                counts.lost += gap.count;
            }
            QueryItem::Marker(marker) => {
                counts.markers += 1;
                counts.last_marker = Some((marker.wall_ns, marker.text));
            }
            QueryItem::Notice(notice) => {
                counts.unreadable += u64::from(matches!(notice, Notice::Unreadable(_)));
                counts.outcome = Some(report_notice(&notice)?);
            }
            QueryItem::Complete(_) => seen.clear(),
        }
    }
    Ok(counts)
}

/// Returns the lines about the fields that vary most, by source. A field of a list has only one
/// line, with the element that varies most.
fn lines(movements: &Movements, results: &QueryResults, sources: usize) -> Vec<DigestLine> {
    let per_source = (FIELD_LINES_MAX / sources.max(1)).clamp(1, FIELDS_MAX);
    let mut taken: BTreeMap<String, usize> = BTreeMap::new();
    let mut fields: BTreeSet<(usize, usize)> = BTreeSet::new();
    let mut lines = Vec::new();
    for (series, movement) in movements.ranked() {
        // Strings have no values to compare, and constant values do not vary, so both are skipped.
        let Some(movement) = movement.filter(|movement| movement.score() > 0.0) else { continue };
        let Some(table) = results.tables().get(series.0) else { continue };
        let count = taken.entry(table.source.to_string()).or_default();
        if *count >= per_source || !fields.insert((series.0, series.1)) {
            continue;
        }
        let Some(path) = series_path(series, results.tables(), results.elements()) else { continue };
        *count += 1;
        let Some(info) = table.columns.get(series.1) else { continue };
        let values = movement.texts(info, true);
        lines.push(DigestLine { source: table.source.to_string(), path, values });
    }
    lines
}

fn print_sources(
    sources: &[&SourceFields],
    lines: &[DigestLine],
    counts: &DigestCounts,
    out: &mut dyn Write,
) -> io::Result<()> {
    // Width of all columns except the path of the field. They are the period, the number of
    // samples, and three values with the spaces before them.
    const OTHERS: usize = 7 + 8 + 3 * 11;
    let width = Output::Stdout.width_to_fit().saturating_sub(OTHERS).max(20);
    writeln!(
        out,
        "{:<width$}{:>7}{:>8}{:>11}{:>11}{:>11}",
        "moves most", "period", "samples", "min", "mean", "max"
    )?;
    for source in sources.iter().take(FIELD_LINES_MAX) {
        let samples = counts.samples.get(&source.source).copied().unwrap_or_default();
        let period = if source.period_ns == 0 { "-".to_owned() } else { period(source.period_ns) };
        let own: Vec<&DigestLine> = lines.iter().filter(|line| line.source == source.source).collect();
        if own.is_empty() {
            let why = if source.fields.is_empty() {
                "no schema"
            } else if samples == 0 {
                "no samples"
            } else if source.fields.iter().all(|field| field.kind == MetricKind::Text) {
                "text"
            } else {
                "constant"
            };
            let samples = if source.fields.is_empty() { "-".to_owned() } else { samples.to_string() };
            let name = human::shortened(&format!("{} ({why})", printable(&source.source)), width - 1);
            writeln!(out, "{name:<width$}{period:>7}{samples:>8}")?;
        }
        for (number, line) in own.iter().enumerate() {
            let name = shortened_path(&printable(&format!("{}.{}", line.source, line.path)), width);
            let [smallest, mean, largest] = &line.values;
            let (period, samples) = if number == 0 {
                (period.clone(), samples.to_string())
            } else {
                (String::new(), String::new())
            };
            writeln!(out, "{name:<width$}{period:>7}{samples:>8}{smallest:>11}{mean:>11}{largest:>11}")?;
        }
    }
    if let Some(more) = sources.len().checked_sub(FIELD_LINES_MAX).filter(|more| *more > 0) {
        writeln!(out, "and {more} more sources: flatcap info")?;
    }
    Ok(())
}

fn print_events(counts: &DigestCounts, times: &mut TimePrinter, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out)?;
    match (counts.gaps, counts.lost) {
        (0, _) => write!(out, "no sample was lost")?,
        (gaps, lost) => write!(out, "{lost} samples were lost, in {gaps} gaps")?,
    }
    if counts.thinned > 0 {
        write!(out, "; {} were thinned", counts.thinned)?;
    }
    match &counts.last_marker {
        None => writeln!(out, "; no markers"),
        Some((wall_ns, text)) => {
            let (time, text) = (times.microseconds(*wall_ns), human::shortened(&printable(text), 40));
            writeln!(out, "; {} markers, the last one\n{time} {text}", counts.markers)
        }
    }
}

/// Prints the commands that the user can run next.
fn print_next(
    request: &RowRequest<'_>,
    lines: &[DigestLine],
    source: &str,
    out: &mut dyn Write,
) -> io::Result<()> {
    let paths = &request.selection.paths;
    let paths: Vec<String> = if *paths == default_recordings() {
        Vec::new()
    } else {
        paths.iter().map(|path| format!(" {}", printable(&path.to_string_lossy()))).collect()
    };
    let paths = paths.concat();
    let source = lines.first().map_or(source, |line| &line.source);
    writeln!(out, "\nnext:")?;
    writeln!(out, "  flatcap fields{paths}")?;
    writeln!(out, "  flatcap dump{paths} --source {}", printable(source))?;
    let mut command = format!("  flatcap dump{paths} --rate --every 1s --fields '");
    let mut sources = BTreeSet::new();
    for line in lines.iter().filter(|line| sources.insert(&line.source)) {
        let field = printable(&format!("{}.{}", line.source, line.path));
        let is_first = command.ends_with('\'');
        if !is_first && command.len() + field.len() + 2 > Output::Stdout.width_to_fit() {
            break;
        }
        command.push_str(if is_first { "" } else { "," });
        command.push_str(&field);
    }
    writeln!(out, "{command}{}'", if lines.is_empty() { "FIELD,FIELD" } else { "" })
}

/// Formats a period in the notation of settings.
fn period(ns: u64) -> String {
    match ns {
        _ if ns.is_multiple_of(1_000_000_000) => format!("{}s", ns / 1_000_000_000),
        _ if ns.is_multiple_of(1_000_000) => format!("{}ms", ns / 1_000_000),
        _ => format!("{}us", ns / 1_000),
    }
}

/// Returns a path that fits the width and leaves one space free after it. If the path is shortened,
/// dots precede its last name.
fn shortened_path(path: &str, width: usize) -> String {
    let Some((before, last)) = path.rsplit_once('.').filter(|_| path.chars().count() >= width) else {
        return human::shortened(path, width.saturating_sub(1));
    };
    let place = width.saturating_sub(last.chars().count() + 4);
    let kept: String = before.chars().take(place).collect();
    human::shortened(&format!("{kept}...{last}"), width.saturating_sub(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that a long path keeps its beginning and its last name, and fits the width.
    #[test]
    fn paths_are_shortened_in_the_middle() {
        let path = "process.processes[\"rustc[31337]\"].minor_faults";
        assert_eq!(shortened_path(path, 32), "process.processe...minor_faults");
        assert_eq!(shortened_path("cpu.total.user", 32), "cpu.total.user");
        assert!(shortened_path(&format!("a.{}", "b".repeat(90)), 32).len() < 32);
    }

    // Proves that periods are formatted in the notation of settings.
    #[test]
    fn periods_are_written_as_settings() {
        let written = [50_000, 10_000_000, 1_500_000_000, 60_000_000_000].map(period);
        assert_eq!(written, ["50us", "10ms", "1500ms", "60s"]);
    }
}
