//! The command line.

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use flatcap_format::duration::parse_duration;

use crate::compaction::{CompactOptions, CompactReport, compact};
use crate::config_files::ShipConfigError;
use crate::environment::wall_ns;
use crate::error::ShipError;
use crate::fleet::Fleet;
use crate::lake::Lake;
use crate::lake_error::LakeError;
use crate::service::{ServiceOptions, ShipEvent, ShipState, serve, ship_backlog, write_receipts};
use crate::ship_config::{ConfigArguments, ShipConfig};
use crate::shipper::Shipper;
use crate::status::ShipStatus;
use crate::stop::StopSignal;
use crate::store::{StoreAccess, open_store};

/// Exit status of an error.
const FAILED: u8 = 1;
/// Exit status of wrong usage or configuration.
const USAGE: u8 = 2;
/// Exit status of a call that ends well, but lacks data which was recorded.
const DATA_LOSS: u8 = 3;
const NS_PER_S: i64 = 1_000_000_000;

/// Ships sealed segments of the flight recorder flatcap to an object store, as Parquet files that
/// other engines query.
#[derive(Debug, Parser)]
#[command(name = "flatcap-ship", version, max_term_width = 100)]
struct ShipArguments {
    #[command(subcommand)]
    verb: ShipVerb,
}

#[derive(Debug, Subcommand)]
enum ShipVerb {
    /// Ship what is sealed and not shipped, then end.
    Once(OnceArguments),
    /// Ship what is sealed until stopped: the service.
    Run(ConfigArguments),
    /// Show what is not shipped yet, or all hosts of a store.
    Status(StatusArguments),
    /// Merge the objects of complete hours, and remove those that they replace.
    Compact(CompactArguments),
    /// Print the configuration, or its mistakes.
    CheckConfig(ConfigArguments),
}

#[derive(Debug, Args)]
struct OnceArguments {
    #[command(flatten)]
    config: ConfigArguments,
    /// Print one JSON object instead of lines.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct StatusArguments {
    #[command(flatten)]
    config: ConfigArguments,
    /// All hosts of the store, by the manifests of the last days.
    #[arg(long)]
    fleet: bool,
    /// How many days with segments are read.
    #[arg(long, value_name = "N", default_value_t = 2, requires = "fleet")]
    days: usize,
    /// Print one JSON object instead of lines.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct CompactArguments {
    #[command(flatten)]
    config: ConfigArguments,
    /// Time without new segments after which an hour is complete.
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = parse_duration)]
    settle: Duration,
    /// How long objects stay after the hour that replaces them was written.
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = parse_duration)]
    grace: Duration,
    /// Print one JSON object instead of lines.
    #[arg(long)]
    json: bool,
}

/// Runs the program with the process's own arguments and streams.
pub fn main() -> ExitCode {
    let arguments = match ShipArguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            // clap prints help and version to standard output and errors to standard error.
            let _unprintable = error.print();
            return ExitCode::from(if error.use_stderr() { USAGE } else { 0 });
        }
    };
    match run(&arguments.verb) {
        Ok(status) => ExitCode::from(status),
        // Its reader has all it wanted.
        Err(ShipError::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            // If standard error is closed, the exit status still reports the error.
            let _gone = remark(&error.to_string());
            let is_usage = matches!(error, ShipError::Usage(_) | ShipError::Lake(LakeError::Url { .. }));
            ExitCode::from(if is_usage { USAGE } else { FAILED })
        }
    }
}

fn run(verb: &ShipVerb) -> Result<u8, ShipError> {
    match verb {
        ShipVerb::Once(arguments) => once(arguments),
        ShipVerb::Run(arguments) => service(arguments),
        ShipVerb::Status(arguments) if arguments.fleet => fleet(arguments),
        ShipVerb::Status(arguments) => status(arguments),
        ShipVerb::Compact(arguments) => compaction(arguments),
        ShipVerb::CheckConfig(arguments) => check_config(arguments),
    }
}

fn once(arguments: &OnceArguments) -> Result<u8, ShipError> {
    let config = ShipConfig::load(&arguments.config)?;
    let lake = open_lake(&config, StoreAccess::Write)?;
    let mut shipper = Shipper::new(&lake, config.ship_options());
    let mut state = ShipState::new();
    let mut unprinted = Ok(());
    let mut watch = |event: ShipEvent<'_>| {
        // Standard output is for the report.
        let is_silent = arguments.json && matches!(event, ShipEvent::Shipped(_));
        if !is_silent && unprinted.is_ok() {
            unprinted = report(&event);
        }
    };
    let done = ship_backlog(&mut shipper, config.data_dir()?, &mut state, &mut watch)?;
    unprinted?;
    if let Some(path) = &config.receipts {
        write_receipts(path, &done)?;
    }
    if arguments.json {
        print_json(&state)?;
    } else {
        let ShipState { segments, rows, bytes, .. } = &state;
        let (segments, rows) = (counted(*segments, "segment"), counted(*rows, "row"));
        print(&[format!("{segments} shipped: {rows}, {bytes} bytes")])?;
    }
    Ok(if state.has_losses() { DATA_LOSS } else { 0 })
}

fn service(arguments: &ConfigArguments) -> Result<u8, ShipError> {
    let config = ShipConfig::load(arguments)?;
    let options = ServiceOptions {
        data_dir: config.data_dir()?.to_owned(),
        interval: config.interval,
        status_file: config.status_file.clone(),
        metrics_file: config.metrics_file.clone(),
        receipts: config.receipts.clone(),
    };
    let lake = open_lake(&config, StoreAccess::Write)?;
    let mut shipper = Shipper::new(&lake, config.ship_options());
    // A log that cannot be written does not end the service.
    serve(&lake, &mut shipper, &options, &mut |event| drop(report(&event)));
    Ok(0)
}

fn status(arguments: &StatusArguments) -> Result<u8, ShipError> {
    let config = ShipConfig::load(&arguments.config)?;
    let lake = open_lake(&config, StoreAccess::Read)?;
    let mut shipper = Shipper::new(&lake, config.ship_options());
    let mut status = ShipStatus::of(&mut shipper, config.data_dir()?, config.status_file.as_deref())?;
    lake.url().clone_into(&mut status.store);
    print_report(arguments.json, &status, || status.lines())?;
    Ok(if status.has_problems() { DATA_LOSS } else { 0 })
}

fn fleet(arguments: &StatusArguments) -> Result<u8, ShipError> {
    let config = ShipConfig::load(&arguments.config)?;
    let fleet = Fleet::read(&open_lake(&config, StoreAccess::Read)?, arguments.days, wall_ns())?;
    print_report(arguments.json, &fleet, || fleet.lines())?;
    Ok(0)
}

fn compaction(arguments: &CompactArguments) -> Result<u8, ShipError> {
    let config = ShipConfig::load(&arguments.config)?;
    let lake = open_lake(&config, StoreAccess::Read)?;
    let now_s = wall_ns().div_euclid(NS_PER_S);
    let options = CompactOptions { settle: arguments.settle, grace: arguments.grace, now_s };
    let report = compact(&lake, options)?;
    for refused in &report.refused {
        remark(refused)?;
    }
    if arguments.json {
        print_json(&report)?;
    } else {
        let CompactReport { hours, segments, rows, removed_objects, .. } = &report;
        let (hours, segments) = (counted(*hours, "hour"), counted(*segments, "segment"));
        let (rows, objects) = (counted(*rows, "row"), counted(*removed_objects, "object"));
        print(&[format!("{hours} merged of {segments} and {rows}; {objects} removed")])?;
    }
    Ok(if report.refused.is_empty() { 0 } else { DATA_LOSS })
}

fn check_config(arguments: &ConfigArguments) -> Result<u8, ShipError> {
    let config = ShipConfig::load(arguments)?;
    config.data_dir()?;
    // Opening makes no request.
    open_store(config.to()?, StoreAccess::Read)?;
    print_json(&config)?;
    Ok(0)
}

fn open_lake(config: &ShipConfig, access: StoreAccess) -> Result<Lake, ShipError> {
    Ok(Lake::open(config.to()?, access, StopSignal::of_process()?, config.bandwidth)?)
}

/// Prints what happened: what was shipped to standard output, problems to standard error.
fn report(event: &ShipEvent<'_>) -> io::Result<()> {
    match event {
        ShipEvent::Shipped(shipped) => {
            let (rows, objects) = (counted(shipped.rows, "row"), counted(shipped.objects as u64, "object"));
            print(&[format!("{}: {rows} in {objects}, {} bytes", shipped.manifest, shipped.bytes)])
        }
        ShipEvent::Refused(path, error) => remark(&format!("{} is not shipped: {error}", path.display())),
        ShipEvent::Gone(path) => {
            remark(&format!("{} was removed by retention before it was shipped", path.display()))
        }
        ShipEvent::Failed(error) => remark(&format!("{error}; trying again")),
        ShipEvent::Progress(..) => Ok(()),
    }
}

/// Returns a number of things: `1 row`, `2 rows`.
fn counted(number: u64, one: &str) -> String {
    if number == 1 { format!("1 {one}") } else { format!("{number} {one}s") }
}

fn print(lines: &[String]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    lines.iter().try_for_each(|line| writeln!(out, "{}", escaped(line)))
}

/// Prints a report: one JSON object, or lines for people.
fn print_report(
    is_json: bool,
    value: &impl serde::Serialize,
    lines: impl FnOnce() -> Vec<String>,
) -> io::Result<()> {
    if is_json { print_json(value) } else { print(&lines()) }
}

fn print_json(value: &impl serde::Serialize) -> io::Result<()> {
    let mut out = io::stdout().lock();
    serde_json::to_writer(&mut out, value)?;
    writeln!(out)
}

/// Prints a line on standard error.
fn remark(text: &str) -> io::Result<()> {
    writeln!(io::stderr(), "flatcap-ship: {}", escaped(text))
}

/// Returns a text from a file or a store without what could control a terminal.
fn escaped(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { c.escape_default().to_string() } else { c.to_string() })
        .collect()
}

impl From<ShipConfigError> for ShipError {
    fn from(error: ShipConfigError) -> Self {
        Self::Usage(error.to_string())
    }
}
