//! `record`: records in the foreground until it receives a signal or the duration ends.

use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::time::Duration;

use comfy_table::Table;
use flatcap_control::ratio;
use flatcap_format::frame::Incomplete;
use flatcap_format::histogram::TotalHistogram;
use flatcap_metrics::{LimitingBudget, SourceMetrics};
use flatcap_recorder::{RecorderReport, SourceReport};
use flatcap_sampling::sources::find;
use flatcap_text::quantity::duration_argument;
use jiff::Timestamp;

use super::configuration::{self, layers};
use super::error::CliError;
use super::logging::Log;
use super::tables::{SOURCE_COLUMNS, SPARE_SOURCE_COLUMNS, fitted, table};
use super::terminal::{Output, wrapped};
use super::{ExitStatus, human, record_answer, resolution};
use crate::config::{self, Config, ConfigErrors, Layers};
use crate::daemon::{
    self, Callbacks, LastGood, MemoryBudget, RunProgress, RunStart, RunSummary, memory_rule,
};

/// Record this host until a signal or the end of --for.
///
/// Records in the foreground. The service runs this verb.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = configuration::HELP)]
pub(super) struct Args {
    /// Configuration file; its drop-ins are read too.
    #[arg(long, short, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Directory for the segments; created if missing [default: the configuration's, else the
    /// service's, else ./flatcap-data].
    #[arg(long, short = 'o', value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// An argument that is always refused, because the directory must be given as the value of an
    /// option.
    #[arg(value_name = "DIR", hide = true, value_parser = refuse_directory)]
    #[allow(dead_code, reason = "no value is accepted")]
    directory: Option<String>,
    /// Stop after this time: 250us, 10ms, 90s, 15m, "1h 30m", 7d.
    #[arg(long = "for", short = 'f', value_name = "DURATION", value_parser = duration_argument)]
    duration: Option<Duration>,
    /// Record only the sources that are named, optionally with a period. +NAME adds a source to the
    /// configured ones, or changes its period; -NAME removes one. Can be repeated.
    #[arg(
        long = "source",
        short,
        value_name = "[+-]NAME[@PERIOD],...",
        value_delimiter = ',',
        allow_hyphen_values = true
    )]
    sources: Vec<String>,
    /// Save the configuration in effect to this file. If the configuration is refused at the start,
    /// record with the saved one and log the errors. For services.
    #[arg(long, value_name = "FILE")]
    last_good: Option<PathBuf>,
    /// Do not print the live line and the summary.
    #[arg(long, short)]
    quiet: bool,
}

/// Refuses a positional argument. Other verbs have a positional argument for a directory, so users
/// may try it here.
fn refuse_directory(text: &str) -> Result<String, String> {
    Err(format!("record takes the directory as an option: --data-dir {}", human::escaped(text)))
}

pub(super) fn run(args: &Args, log: Option<&Log>) -> Result<ExitStatus, CliError> {
    let (config, last_good) = configuration_or_last_good(args)?;
    let voice = ConsoleUi { quiet: args.quiet, live: !args.quiet && io::stderr().is_terminal() };
    let mut seen = LiveLineState::default();
    let surroundings = Callbacks {
        duration: args.duration,
        on_start: &mut |start| {
            // The log is flushed first, so that warnings of the start come before the line that
            // says that the start is over.
            log.inspect(|log| log.flush());
            voice.begin(&start);
        },
        on_progress: &mut |progress| {
            if let Some(log) = log {
                let [left_out, lost] = log.missing_lines();
                progress.metrics.log.lines_suppressed.set(left_out);
                progress.metrics.log.lines_lost.set(lost);
            }
            if voice.live {
                ConsoleUi::live_line(&progress, &mut seen);
            }
        },
        read_config: Box::new({
            let args = args.clone();
            move || configuration(&args).map_err(|errors| errors.to_string())
        }),
        last_good,
        set_log: &mut |filter| match log {
            Some(log) => log.set_filter(filter),
            None => Err("this process does not log".to_owned()),
        },
    };
    let begun = Timestamp::now();
    let summary = daemon::record(&config, surroundings);
    voice.end_live_line();
    // The log is flushed first, so that log lines come before the summary, which refers to them.
    log.inspect(|log| log.flush());
    let summary = summary?;
    voice.summary(&summary);
    if voice.live || (args.duration.is_some() && !args.quiet) {
        let answer = record_answer::lines(&summary.data_dir, begun, summary.elapsed_ns);
        for line in answer {
            voice.print_line(&line);
        }
    }
    let is_lossy = summary.report.metrics.recorder.storage_errors.get() > 0
        || summary.report.sources.iter().any(|source| source.lost() > 0);
    Ok(if is_lossy { ExitStatus::DataLoss } else { ExitStatus::Done })
}

/// Returns the configuration. With `--last-good`, returns the last good configuration if the
/// configuration is refused.
fn configuration_or_last_good(args: &Args) -> Result<(Config, Option<LastGood>), CliError> {
    let Some(file) = args.last_good.clone() else { return Ok((configuration(args)?, None)) };
    let errors = match configuration(args) {
        Ok(config) => return Ok((config, Some(LastGood { file, refusal: None }))),
        Err(errors) => errors,
    };
    // The environment variables are not read here. One of them may be the mistake, and the saved
    // configuration already contains their values.
    let config = match with_arguments(Layers::file_alone(&file).with_memory_rule(memory_rule), args) {
        Ok(config) => config,
        Err(unusable) => return Err(CliError::NoLastGood { errors, unusable }),
    };
    let refusal = errors.to_string();
    for line in refusal.lines() {
        tracing::error!("the configuration is refused: {line}");
    }
    tracing::error!(
        "recording with the last good configuration, {}: correct the errors, then reload",
        file.display()
    );
    Ok((config, Some(LastGood { file, refusal: Some(refusal) })))
}

/// Returns the configuration with the arguments applied.
fn configuration(args: &Args) -> Result<Config, ConfigErrors> {
    with_arguments(layers(args.config.as_deref()), args)
}

fn with_arguments(layers: Layers, args: &Args) -> Result<Config, ConfigErrors> {
    let layers = if args.sources.is_empty() { layers } else { layers.with_sources_to_select() };
    let mut config = layers.read()?.config;
    if let Some(data_dir) = &args.data_dir {
        config.recorder.data_dir.clone_from(data_dir);
    }
    config.select_sources(&args.sources, memory_rule)?;
    Ok(config)
}

/// The totals that the live line showed last. They are needed to calculate rates.
#[derive(Default)]
struct LiveLineState {
    elapsed_ns: u64,
    frames: u64,
    bytes: u64,
}

/// Messages to the operator, on standard error.
struct ConsoleUi {
    quiet: bool,
    live: bool,
}

impl ConsoleUi {
    fn begin(&self, start: &RunStart<'_>) {
        if self.quiet {
            return;
        }
        let sources: Vec<&str> = start.metrics.sources.iter().map(|source| source.name.as_str()).collect();
        self.print_line(&format!(
            "recording {} to {}; buffers use {} of memory; stop with Ctrl-C",
            sources.join(", "),
            start.data_dir.display(),
            human::bytes(MemoryBudget::of(start.config).sum_bytes())
        ));
        if let Some(advice) = resolution::advice(start.config) {
            self.print_line(&advice);
        }
    }

    fn live_line(progress: &RunProgress<'_>, seen: &mut LiveLineState) {
        let sources = &progress.metrics.sources;
        let frames: u64 = sources.iter().map(|source| source.recorded.get()).sum();
        let lost: u64 = sources.iter().map(|source| source.lost.get()).sum();
        // Latencies are updated once a second, so none are available in the first second.
        let read = sources.iter().filter(|source| source.removed.get() == 0);
        let known = read.map(|source| source.lateness.get()).filter(|summary| summary.count > 0);
        let late = known.map(|summary| summary.p99_ns).max().map_or_else(|| "-".to_owned(), human::latency);
        let bytes = progress.metrics.recorder.bytes.get();
        let per_second = |now: u64, before: u64| {
            let elapsed_ns = (progress.elapsed_ns - seen.elapsed_ns).max(1);
            (now - before).saturating_mul(1_000_000_000) / elapsed_ns
        };
        let line = format!(
            "{}  {} frames/s  {} ({}/s)  lost {lost}  p99 lateness {}",
            human::elapsed(progress.elapsed_ns),
            per_second(frames, seen.frames),
            human::bytes(bytes),
            human::bytes(per_second(bytes, seen.bytes)),
            late,
        );
        *seen = LiveLineState { elapsed_ns: progress.elapsed_ns, frames, bytes };
        // If a line wraps, the next line cannot erase all of it.
        let width = Output::Stderr.terminal_width().unwrap_or(line.len());
        let line = line.get(..width).unwrap_or(&line);
        // Recording must continue even if the terminal is closed.
        let _gone = io::stderr().write_all(format!("\r\x1b[2K{line}").as_bytes());
    }

    fn end_live_line(&self) {
        if self.live {
            let _gone = io::stderr().write_all(b"\r\x1b[2K");
        }
    }

    fn summary(&self, summary: &RunSummary) {
        if self.quiet {
            return;
        }
        let report = &summary.report;
        let recorder = &report.metrics.recorder;
        let data_dir = summary.data_dir.display();
        self.print_line(&format!(
            "{}\n{}\nrecorded {} in {}: {} in {} segment(s) under {data_dir}",
            fitted(sources_table(report), Output::Stderr.width(), &SPARE_SOURCE_COLUMNS),
            latencies_table(report).trim_fmt(),
            count(report.sources.iter().map(|source| source.metrics.recorded.get()).sum(), "frame"),
            human::elapsed(summary.elapsed_ns),
            human::bytes(recorder.bytes.get()),
            recorder.segments_sealed.get(),
        ));
        for group in report.metrics.groups.iter().filter(|group| group.waited_ns.get() > 0) {
            self.print_line(&format!(
                "group {}: waited {} for space in its queue; ticks in that time count as missed",
                group.name,
                human::latency(group.waited_ns.get())
            ));
        }
        for source in &report.sources {
            for line in remarks(source) {
                self.print_line(&line);
            }
        }
        let frames_removed = recorder.frames_removed.get();
        if frames_removed > 0 {
            self.print_line(&format!(
                "{frames_removed} recorded frame(s) are gone: their segment was removed from the data directory while it was open"
            ));
        }
        let errors = recorder.storage_errors.get();
        if errors > 0 {
            self.print_line(&format!(
                "the storage failed {errors} time(s), see the errors above; samples that could not be written count as lost"
            ));
        }
    }

    #[allow(clippy::unused_self, reason = "all messages go through one object")]
    fn print_line(&self, text: &str) {
        let width = Output::Stderr.width();
        let text: Vec<String> = text.split('\n').map(|line| wrapped(line, width, 2)).collect();
        // Recording must continue even if the terminal is closed.
        let _gone = writeln!(io::stderr(), "{}", text.join("\n"));
    }
}

/// Returns the remarks about a source that are not in its row of the table.
fn remarks(report: &SourceReport) -> Vec<String> {
    let source = &*report.metrics;
    let name = &source.name;
    let mut lines = Vec::new();
    let (stride, limit) = source.stride_and_budget();
    if stride > 1 {
        let period =
            config::format_duration(Duration::from_nanos(source.period_ns.get().saturating_mul(stride)));
        let budget = match limit {
            LimitingBudget::Source => "its budget",
            LimitingBudget::Recorder => "cpu_budget, the budget of all sources together",
        };
        lines.push(format!(
            "{name}: was read every {period} at the end, to stay within {budget}; skipped ticks count as missed"
        ));
    }
    if source.thinned.get() > 0 {
        let thinned = count(source.thinned.get(), "sample");
        lines.push(format!("{name}: {thinned} thinned by disk_period; at full rate in the ring only"));
    }
    if report.lost() > 0 {
        lines.push(format!("{name}: {} lost: {}", count(report.lost(), "sample"), source.lost_causes()));
    }
    if let Some(failure) = source.failure() {
        lines.push(format!(
            "{name}: {} failed and are lost; the last one: {failure}",
            count(source.failed.get(), "sample")
        ));
    }
    if source.timed_out.get() > 0 {
        lines.push(format!("{name}: {} timed out", count(source.timed_out.get(), "sample")));
    }
    if source.incomplete.get() > 0 {
        let partial = count(source.incomplete.get(), "sample");
        let lacked = Incomplete::of_flags(u16::try_from(source.incomplete_flags.get()).unwrap_or(u16::MAX));
        let needs = if lacked | Incomplete::DENIED == lacked { needs(name) } else { String::new() };
        lines.push(format!("{name}: {partial} incomplete, marked in the file: {lacked}{needs}"));
    }
    lines
}

/// Returns the privileges that a source needs for complete samples.
fn needs(name: &str) -> String {
    match find(name) {
        Some(spec) if !spec.needs.is_empty() => format!(" (needs {})", spec.needs.join(", ")),
        _ => String::new(),
    }
}

fn count(number: u64, noun: &str) -> String {
    if number == 1 { format!("1 {noun}") } else { format!("{number} {noun}s") }
}

fn sources_table(report: &RecorderReport) -> Table {
    let mut table = table(SOURCE_COLUMNS);
    for report in &report.sources {
        let (source, lost) = (&*report.metrics, report.lost());
        let period_ns = source.period_ns.get();
        let rate = |hz: Option<f64>| hz.map_or_else(|| "-".to_owned(), human::hertz);
        let mut row = vec![
            source.name.clone(),
            config::format_duration(Duration::from_nanos(period_ns)),
            rate(human::asked_hz(period_ns)),
            rate(achieved_hz(source)),
        ];
        let counts = [source.recorded.get(), lost, source.missed.get(), source.incomplete.get()];
        row.extend(counts.map(|count| count.to_string()));
        for latency in [report.lateness, report.read_duration] {
            row.extend([latency.p50_ns, latency.p99_ns, latency.max_ns].map(human::latency));
        }
        table.add_row(row);
    }
    table
}

/// Returns the achieved rate: the requested rate times the share of ticks whose samples are in the
/// files. Returns `None` if there are no ticks.
fn achieved_hz(source: &SourceMetrics) -> Option<f64> {
    let ticks = source.begun.get().saturating_add(source.missed.get());
    let share = ratio(source.recorded.get(), ticks)?;
    human::asked_hz(source.period_ns.get()).map(|hz| hz * share)
}

fn latencies_table(report: &RecorderReport) -> Table {
    let mut table = table(["latency", "count", "p50", "p99", "max"]);
    let rows: [(&str, &TotalHistogram); 5] = [
        ("frame build (1 in 64)", &report.latencies.build),
        ("queueing", &report.latencies.enqueue),
        ("queue wait", &report.latencies.queue_wait),
        ("write", &report.latencies.write),
        ("sync", &report.latencies.sync),
    ];
    for (name, total) in rows {
        let summary = total.summary();
        table.add_row([
            name.to_owned(),
            summary.count.to_string(),
            human::latency(summary.p50_ns),
            human::latency(summary.p99_ns),
            human::latency(summary.max_ns),
        ]);
    }
    table
}
