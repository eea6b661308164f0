//! The command line.

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use flatcap_format::duration::parse_duration;
use flatcap_format::schema::{to_visible_json, visible_text};

use crate::bus::MessageBus;
use crate::compaction::{CompactOptions, CompactReport, compact};
use crate::config_files::ShipConfigError;
use crate::environment::wall_ns;
use crate::error::ShipError;
use crate::fleet::Fleet;
use crate::lake::{Lake, Patience};
use crate::lake_error::LakeError;
use crate::messenger::{MessageEvent, Messenger};
#[cfg(feature = "nats")]
use crate::nats::NatsBus;
use crate::nats_settings::NatsSettings;
use crate::service::{ServiceOptions, ShipEvent, ShipState, serve, ship_backlog, write_receipts};
use crate::shared_outbox::{MessageCounts, SharedOutbox};
use crate::ship_config::{ConfigArguments, ShipConfig};
use crate::shipper::Shipper;
use crate::status::ShipStatus;
use crate::stop::StopSignal;
use crate::store::{StoreAccess, open_store};

/// Exit status after an error.
const FAILED: u8 = 1;
/// Exit status after wrong usage or with an invalid configuration.
const USAGE: u8 = 2;
/// Exit status of a call that succeeds, but reports missing data or other problems.
const DATA_LOSS: u8 = 3;
/// Number of attempts of `once` to send messages.
// A few seconds are enough, because the next call sends the remaining messages.
const MESSAGE_ATTEMPTS: u32 = 5;
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
            // clap prints help and version to standard output, and errors to standard error.
            let _unprintable = error.print();
            return ExitCode::from(if error.use_stderr() { USAGE } else { 0 });
        }
    };
    match run(&arguments.verb) {
        Ok(status) => ExitCode::from(status),
        // The reader of the output has closed it.
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
    if let ShipVerb::Once(OnceArguments { config, .. })
    | ShipVerb::Run(config)
    | ShipVerb::CheckConfig(config) = verb
        && config.from.is_some()
    {
        // Refuse `--from` here, because shipping "from" the store is the opposite of what was
        // meant.
        let text = "--from is for status and compact, which read the store; name the recordings by \
            --data-dir DIR, and the store by --to URL";
        return Err(ShipError::Usage(text.to_owned()));
    }
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
    let stop = StopSignal::of_process()?;
    let lake = open_lake(&config, StoreAccess::Write, &stop)?;
    let mut messenger = open_messenger(&config, &stop)?;
    let outbox = messenger.as_ref().map(Messenger::outbox);
    let mut shipper = Shipper::new(&lake, config.ship_options()).with_outbox(outbox);
    let mut state = ShipState::new();
    // If the output cannot be written, shipping continues and the error is reported at the end.
    let mut unprinted = Ok(());
    let mut watch = |event: ShipEvent<'_>| {
        if unprinted.is_ok() {
            unprinted = report(&event, arguments.json);
        }
    };
    let done = ship_backlog(&mut shipper, config.data_dir()?, &mut state, &mut watch)?;
    unprinted?;
    // Write the receipts before sending messages, so that a failing bus does not keep the recorder
    // from removing segments.
    if let Some(path) = &config.receipts {
        write_receipts(path, &done)?;
    }
    if let Some(messenger) = &mut messenger {
        // Events that cannot be logged are also visible in the exit status.
        messenger.send_all(MESSAGE_ATTEMPTS, &mut |event| drop(report_message(&event)))?;
    }
    state.messages = shipper.messages();
    if arguments.json {
        print_json(&state)?;
    } else {
        let ShipState { segments, rows, bytes, .. } = &state;
        let (segments, rows) = (counted(*segments, "segment"), counted(*rows, "row"));
        print(&[format!("{segments} shipped: {rows}, {bytes} bytes")])?;
        if let Some(messages) = &state.messages {
            print(&[format!("{} sent", counted(messages.sent, "message"))])?;
        }
    }
    // Print the report before an error about unsent messages ends the call.
    state.messages.as_ref().map_or(Ok(()), check_sent)?;
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
    let stop = StopSignal::of_process()?;
    let lake = open_lake(&config, StoreAccess::Write, &stop)?;
    let messenger = open_messenger(&config, &stop)?;
    let outbox = messenger.as_ref().map(Messenger::outbox);
    let mut shipper = Shipper::new(&lake, config.ship_options()).with_outbox(outbox);
    // If the log cannot be written, the service continues.
    let start = |messenger: Messenger| messenger.start(|event| drop(report_message(&event)));
    let messages = messenger.map(start).transpose()?;
    serve(&lake, &mut shipper, &options, &mut |event| drop(report(&event, false)));
    if let Some(thread) = messages {
        // The stop signal ends the messenger's thread too. If that thread has panicked, the panic
        // was already printed.
        let _ended = thread.join();
    }
    Ok(0)
}

fn status(arguments: &StatusArguments) -> Result<u8, ShipError> {
    let config = ShipConfig::load(&arguments.config)?;
    let lake = open_lake(&config, StoreAccess::Read, &StopSignal::of_process()?)?;
    remark_wait(&lake)?;
    let mut shipper = Shipper::new(&lake, config.ship_options());
    let mut status = ShipStatus::of(&mut shipper, config.data_dir()?, config.status_file.as_deref())?;
    lake.url().clone_into(&mut status.store);
    print_report(arguments.json, &status, || status.lines())?;
    Ok(if status.has_problems() { DATA_LOSS } else { 0 })
}

fn fleet(arguments: &StatusArguments) -> Result<u8, ShipError> {
    let config = ShipConfig::load(&arguments.config)?;
    let lake = open_lake(&config, StoreAccess::Read, &StopSignal::of_process()?)?;
    remark_wait(&lake)?;
    let fleet = Fleet::read(&lake, arguments.days, wall_ns())?;
    print_report(arguments.json, &fleet, || fleet.lines())?;
    Ok(if fleet.has_problems() { DATA_LOSS } else { 0 })
}

fn compaction(arguments: &CompactArguments) -> Result<u8, ShipError> {
    let config = ShipConfig::load(&arguments.config)?;
    // `Read` does not create a store, because a new store would contain nothing to merge.
    let lake = open_lake(&config, StoreAccess::Read, &StopSignal::of_process()?)?;
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
    // Opening the store makes no request.
    open_store(config.to()?, StoreAccess::Read)?;
    if let Some(settings) = &config.nats {
        open_bus(settings, &StopSignal::new().1)?;
    }
    print_json(&config)?;
    Ok(0)
}

fn open_lake(config: &ShipConfig, access: StoreAccess, stop: &StopSignal) -> Result<Lake, ShipError> {
    Ok(Lake::open(config.to()?, access, stop.clone(), config.bandwidth)?)
}

/// Returns the messenger, or `None` if no messages are configured.
fn open_messenger(config: &ShipConfig, stop: &StopSignal) -> Result<Option<Messenger>, ShipError> {
    let Some(settings) = &config.nats else { return Ok(None) };
    let bus = open_bus(settings, stop)?;
    let outbox = SharedOutbox::open(&settings.outbox, config.to()?)?;
    // The messenger itself repeats failed attempts, and counts them.
    let lake = Lake::open(config.to()?, StoreAccess::Read, stop.clone(), None)?.without_repetitions();
    Ok(Some(Messenger::new(outbox, lake, bus, &settings.subject, Patience::default())))
}

/// Returns the bus for `settings`. Does not connect.
#[cfg(feature = "nats")]
fn open_bus(settings: &NatsSettings, stop: &StopSignal) -> Result<Box<dyn MessageBus>, ShipError> {
    let bus = NatsBus::new(settings, stop.clone()).map_err(|error| ShipError::Usage(error.to_string()))?;
    Ok(Box::new(bus))
}

/// Returns an error, because this program is built without support for messages. The configuration
/// was already refused for this reason.
#[cfg(not(feature = "nats"))]
fn open_bus(_: &NatsSettings, _: &StopSignal) -> Result<Box<dyn MessageBus>, ShipError> {
    Err(ShipError::Usage(crate::nats_settings::NOT_BUILT_IN.to_owned()))
}

/// Returns an error if a message was not sent.
fn check_sent(messages: &MessageCounts) -> Result<(), ShipError> {
    let MessageCounts { unsent, dropped, error, .. } = messages;
    let numbers = [(*unsent, "unsent, kept for the next call"), (*dropped, "dropped")];
    let numbers = numbers.into_iter().filter(|(number, _)| *number > 0);
    let parts: Vec<String> =
        numbers.map(|(number, what)| format!("{} {what}", counted(number, "message"))).collect();
    if parts.is_empty() {
        return Ok(());
    }
    let reason = error.as_deref().map(|error| format!(": {error}")).unwrap_or_default();
    Err(ShipError::Messages(parts.join(", ") + &reason))
}

/// Prints an event. Events about shipped segments go to standard output, unless standard output is
/// used for a report. Problems go to standard error.
fn report(event: &ShipEvent<'_>, is_silent: bool) -> io::Result<()> {
    match event {
        ShipEvent::Shipped(shipped) => {
            let (rows, objects) = (counted(shipped.rows, "row"), counted(shipped.objects as u64, "object"));
            for problem in &shipped.problems {
                remark(&format!("{}: {problem}", shipped.manifest))?;
            }
            if is_silent {
                return Ok(());
            }
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

/// Prints an event about messages.
fn report_message(event: &MessageEvent<'_>) -> io::Result<()> {
    match event {
        MessageEvent::Failed { unsent, error } => {
            remark(&format!("{} unsent: {error}; trying again", counted(*unsent, "message")))
        }
        MessageEvent::Refused { manifest, error } => remark(&format!("{manifest} is not announced: {error}")),
        MessageEvent::Problem(problem) => remark(problem),
    }
}

/// Returns a number with its noun, for example `1 row` or `2 rows`.
fn counted(number: u64, one: &str) -> String {
    if number == 1 { format!("1 {one}") } else { format!("{number} {one}s") }
}

fn print(lines: &[String]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    lines.iter().try_for_each(|line| writeln!(out, "{}", visible_text(line)))
}

/// Prints a report, as one JSON object or as lines for people.
fn print_report(
    is_json: bool,
    value: &impl serde::Serialize,
    lines: impl FnOnce() -> Vec<String>,
) -> io::Result<()> {
    if is_json { print_json(value) } else { print(&lines()) }
}

fn print_json(value: &impl serde::Serialize) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{}", to_visible_json(value)?)
}

/// Explains on a terminal why nothing is printed while a store does not respond.
fn remark_wait(lake: &Lake) -> io::Result<()> {
    if !io::stderr().is_terminal() {
        return Ok(());
    }
    remark(&format!(
        "reading {}; if it does not answer, an error follows after about half a minute",
        lake.url()
    ))
}

/// Prints a line on standard error.
fn remark(text: &str) -> io::Result<()> {
    writeln!(io::stderr(), "flatcap-ship: {}", visible_text(text))
}

impl From<ShipConfigError> for ShipError {
    fn from(error: ShipConfigError) -> Self {
        Self::Usage(error.to_string())
    }
}
