//! `sources`: lists the sources of this host with their measured cost.

use std::io::Write;
use std::time::Duration;

use comfy_table::CellAlignment;
use flatbuffers::FlatBufferBuilder;
use flatcap_os::clock::monotonic_ns;
use flatcap_sampling::OpenedSampler;
use serde::Serialize;

use super::error::CliError;
use super::resolution::TimeResolution;
use super::tables::{SpareColumns, fitted, table};
use super::terminal::{Output, wrapped};
use super::{ExitStatus, human, print_json};
use crate::config::{self, Config, SourceConfig};
use crate::daemon::{SourceError, open_sources};

/// Number of samples that are measured for each source. The list shows the median of the cost.
const MEASURED_SAMPLES: u64 = 101;

/// Columns that are hidden on a narrow terminal.
const SPARE_COLUMNS: [SpareColumns; 1] = [("when values change", &[5])];

/// List the sources of this host and what a sample costs.
///
/// The cost is measured. If a source is not available, the list shows the reason.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Print one JSON array instead of a table.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct SourceRow {
    name: &'static str,
    available: bool,
    reason: Option<String>,
    default_period_ns: u64,
    default_enabled: bool,
    cost_ns: Option<u64>,
    needs: &'static [&'static str],
    refresh: &'static str,
    reads: Vec<String>,
    selects: &'static str,
    /// Set for `cpu` only. The times of other sources are in nanoseconds, or have no common step.
    time_resolution: Option<TimeResolution>,
}

pub(super) fn run(args: &Args, out: &mut dyn Write) -> Result<ExitStatus, CliError> {
    let config = Config::default();
    let mut rows: Vec<SourceRow> = config.sources.iter().map(source_row).collect();
    if let Some(cpu) = rows.iter_mut().find(|row| row.name == "cpu" && row.available) {
        cpu.time_resolution = TimeResolution::measure(&config.recorder.host_root);
    }
    if args.json {
        print_json(&rows, out)?;
        return Ok(ExitStatus::Done);
    }
    let mut shown = table(["source", "default", "period", "cost per sample", "of a core", "changes"]);
    if let Some(changes) = shown.column_mut(5) {
        changes.set_cell_alignment(CellAlignment::Left);
    }
    for row in &rows {
        #[allow(clippy::cast_precision_loss, reason = "a percentage for people")]
        let share = |cost: u64| format!("{:.2} %", cost as f64 * 100.0 / row.default_period_ns as f64);
        shown.add_row([
            row.name.to_owned(),
            if row.default_enabled { "on" } else { "off" }.to_owned(),
            config::format_duration(Duration::from_nanos(row.default_period_ns)),
            row.cost_ns.map_or_else(|| "-".to_owned(), human::latency),
            row.cost_ns.map_or_else(|| "-".to_owned(), share),
            row.refresh.to_owned(),
        ]);
    }
    let width = Output::Stdout.width();
    writeln!(out, "{}", fitted(shown, width, &SPARE_COLUMNS))?;
    for row in &rows {
        if let Some(resolution) = row.time_resolution {
            writeln!(out, "{}", wrapped(&format!("{}: {resolution}", row.name), width, 2))?;
        }
        if let Some(reason) = &row.reason {
            writeln!(out, "{}", wrapped(&format!("not available: {}: {reason}", row.name), width, 2))?;
        }
    }
    for row in rows.iter().filter(|row| !row.needs.is_empty()) {
        let line = format!("needs for complete data: {}: {}", row.name, row.needs.join(", "));
        writeln!(out, "{}", wrapped(&line, width, 2))?;
    }
    Ok(ExitStatus::Done)
}

/// Opens and measures one source alone.
fn source_row(source: &SourceConfig) -> SourceRow {
    let mut alone = Config::default();
    for other in &mut alone.sources {
        other.enabled = other.spec == source.spec;
        // Only one source is opened at a time, so that an error is about this source.
        other.required = false;
    }
    let spec = source.spec;
    let (cost_ns, reason) = match open_sources(&alone) {
        Ok(mut opened) => (opened.sources.first_mut().map(|source| cost_ns(&mut source.sampler)), None),
        Err(SourceError::NoneLeft { reason, .. }) => (None, Some(reason)),
        Err(error) => (None, Some(error.to_string())),
    };
    SourceRow {
        name: spec.name,
        available: cost_ns.is_some(),
        reason,
        default_period_ns: u64::try_from(source.period.as_nanos()).unwrap_or(u64::MAX),
        cost_ns,
        needs: spec.needs,
        refresh: spec.refresh,
        reads: spec.files.iter().map(|file| format!("/{file}")).collect(),
        selects: spec.selects,
        time_resolution: None,
        default_enabled: source.enabled,
    }
}

/// Measures the median cost of reading a source and building a sample, in nanoseconds.
fn cost_ns(sampler: &mut OpenedSampler) -> u64 {
    let mut builder = FlatBufferBuilder::new();
    builder.force_defaults(true);
    let mut costs: Vec<u64> = (0..MEASURED_SAMPLES)
        .map(|seq| {
            builder.reset();
            let begin = monotonic_ns();
            if sampler.read().is_ok() {
                sampler.payload(seq, &mut builder);
            }
            monotonic_ns() - begin
        })
        .collect();
    costs.sort_unstable();
    costs.get(costs.len() / 2).copied().unwrap_or(0)
}
