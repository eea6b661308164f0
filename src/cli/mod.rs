//! The command line, with one file per verb. Data goes to standard output, everything else to
//! standard error.
//!
//! This module only calls the library, so another program could offer the same functions.

use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue};
use clap::{FromArgMatches, Parser, Subcommand};

mod check_config;
mod check_trigger;
mod checksum;
#[cfg(feature = "manual")]
mod completions;
mod compress;
mod configuration;
mod convert_program;
mod csv_line;
mod dump;
mod error;
mod explain;
mod export;
mod fields;
mod flame;
mod hosts;
mod import;
mod info;
mod logging;
#[cfg(feature = "manual")]
mod manual;
mod marks;
mod name_lines;
#[cfg(feature = "view")]
mod page;
mod record;
mod record_answer;
mod recordings;
mod recover;
mod remote;
mod replay;
mod resolution;
mod rows;
mod selection;
mod sender_text;
mod snapshots;
mod source_sum;
mod sources;
mod spikes;
mod status;
mod symbol_directory;
mod tables;
mod terminal;
mod unsealed_totals;
mod verb_groups;
mod verify;
#[cfg(feature = "view")]
mod view;
mod zone_option;

pub use error::CliError;
use flatcap_format::replay::Notice;
use flatcap_format::schema::to_visible_json;
use flatcap_text::human;
use logging::Log;
use serde::Serialize;

/// A flight recorder for Linux hosts: what happened in the 300 ms before the spike?
///
/// Samples host telemetry 1 to 10,000 times a second into checksummed, self-describing segment
/// files, and accounts for every sample that it lost.
#[derive(Debug, Parser)]
#[command(name = "flatcap", version, arg_required_else_help = true, max_term_width = 110)]
#[command(
    after_help = "Exit status: 0 done; 1 an error, or nothing could be done; 2 wrong usage or configuration; \
    3 done, but with findings: damage, lost samples, or files that cannot be read."
)]
pub struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
#[allow(clippy::large_enum_variant, reason = "a process has one value")]
enum Verb {
    Record(record::Args),
    CheckConfig(check_config::Args),
    CheckTrigger(check_trigger::Args),
    Sources(sources::Args),
    Info(info::Args),
    Verify(verify::Args),
    Dump(dump::Args),
    Fields(fields::Args),
    Marks(marks::Args),
    Spikes(spikes::Args),
    Explain(explain::Args),
    #[cfg(feature = "view")]
    View(view::Args),
    Replay(replay::Args),
    Recover(recover::Args),
    Compress(compress::Args),
    Import(import::Args),
    Export(export::Args),
    Flame(flame::Args),
    Status(status::Args),
    /// Seal the open segment and start the next one.
    Rotate(remote::RecorderSocket),
    Mark(remote::MarkArgs),
    /// Reload the configuration of the running recorder.
    Reload(remote::RecorderSocket),
    /// Make the running recorder write and sync all samples so far.
    Flush(remote::RecorderSocket),
    LogLevel(remote::LogLevelArgs),
    Snapshot(snapshots::OrderArgs),
    Snapshots(snapshots::Args),
    #[cfg(feature = "manual")]
    Completions(completions::Args),
    /// Print the completions for a shell; not in this build.
    #[cfg(not(feature = "manual"))]
    #[command(disable_help_flag = true)]
    Completions(AnyArgs),
    #[cfg(feature = "manual")]
    Manual(manual::Args),
    /// Write the manual pages into a directory; not in this build.
    #[cfg(not(feature = "manual"))]
    #[command(disable_help_flag = true)]
    Manual(AnyArgs),
}

/// The arguments of a verb that this build lacks. Any arguments are accepted.
#[cfg(not(feature = "manual"))]
#[derive(Debug, clap::Args)]
struct AnyArgs {
    #[arg(hide = true, trailing_var_arg = true, allow_hyphen_values = true)]
    _ignored: Vec<OsString>,
}

/// The exit status of a verb.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExitStatus {
    /// Everything was done.
    Done,
    /// An error ended the verb, or nothing could be done, for example because none of the files
    /// could be read. An error message states the reason.
    Failed,
    /// The arguments or the configuration are invalid. An error message states the place.
    Usage,
    /// Everything was done, but with findings: damage, lost samples, or files that cannot be read.
    DataLoss,
}

impl From<ExitStatus> for ExitCode {
    fn from(outcome: ExitStatus) -> Self {
        Self::from(match outcome {
            ExitStatus::Done => 0,
            ExitStatus::Failed => 1,
            ExitStatus::Usage => 2,
            ExitStatus::DataLoss => 3,
        })
    }
}

/// Runs the program with the process's own arguments and streams.
pub fn main() -> ExitStatus {
    let log = Log::start();
    let mut out = io::BufWriter::with_capacity(256 << 10, io::stdout().lock());
    let result = run_with_log(std::env::args_os(), &mut out, Some(&log));
    // If the verb failed, it has already reported its error, which is often the same as the error
    // of the flush.
    let result = match (result, out.flush()) {
        (Ok(_), Err(error)) if !is_closed_pipe(&error) => Err(CliError::Output(error)),
        (result, _) => result,
    };
    let status = conclude(result, Some(&log));
    log.flush();
    status
}

/// Runs the program. Writes data to `out` and errors to standard error.
#[cfg(feature = "internals")]
pub fn run(args: impl IntoIterator<Item = OsString>, out: &mut dyn Write) -> ExitStatus {
    conclude(run_with_log(args, out, None), None)
}

fn run_with_log(
    args: impl IntoIterator<Item = OsString>,
    out: &mut dyn Write,
    log: Option<&Log>,
) -> Result<ExitStatus, CliError> {
    let args = import::with_help(args.into_iter().collect());
    let parsed = verb_groups::command().try_get_matches_from(&args);
    let cli = match parsed.and_then(|matches| Cli::from_arg_matches(&matches)) {
        Ok(cli) => cli,
        Err(error) => {
            let error = with_option_hint(error, args.get(1));
            // clap prints help and version to standard output and errors to standard error.
            let _unprintable = error.print();
            return Ok(if error.use_stderr() { ExitStatus::Usage } else { ExitStatus::Done });
        }
    };
    if !matches!(cli.verb, Verb::Record(_)) {
        // Only the recorder logs normal events, because its log is also its history.
        log.inspect(|log| log.limit_to_warnings());
        // The program that may replace this process does not write earlier log lines.
        log.inspect(|log| log.flush());
    }
    match cli.verb {
        Verb::Record(args) => record::run(&args, log),
        Verb::CheckConfig(args) => check_config::run(&args, out),
        Verb::CheckTrigger(args) => check_trigger::run(&args, out),
        Verb::Sources(args) => sources::run(&args, out),
        Verb::Info(args) => info::run(&args, out),
        Verb::Verify(args) => verify::run(&args, out),
        Verb::Dump(args) => dump::run(&args, out),
        Verb::Fields(args) => fields::run(&args, out),
        Verb::Marks(args) => marks::run(&args, out),
        Verb::Spikes(args) => spikes::run(&args, out),
        Verb::Explain(args) => explain::run(&args, out),
        #[cfg(feature = "view")]
        Verb::View(args) => view::run(&args, out),
        Verb::Replay(args) => replay::run(&args, out),
        Verb::Recover(args) => recover::run(&args, out),
        Verb::Compress(args) => compress::run(&args, out),
        Verb::Import(args) => import::run(&args),
        Verb::Export(args) => export::run(&args, out),
        Verb::Flame(args) => flame::run(&args),
        #[cfg(feature = "manual")]
        Verb::Completions(args) => completions::run(&args, out),
        #[cfg(not(feature = "manual"))]
        Verb::Completions(_) => Err(CliError::NotBuilt { what: "completions", feature: "manual" }),
        #[cfg(feature = "manual")]
        Verb::Manual(args) => manual::run(&args, out),
        #[cfg(not(feature = "manual"))]
        Verb::Manual(_) => Err(CliError::NotBuilt { what: "manual pages", feature: "manual" }),
        Verb::Status(args) => status::run(&args, out),
        Verb::Rotate(recorder) => remote::rotate(&recorder, out),
        Verb::Mark(args) => remote::mark(&args, out),
        Verb::Reload(recorder) => remote::reload(&recorder, out),
        Verb::Flush(recorder) => remote::flush(&recorder, out),
        Verb::LogLevel(args) => remote::log_level(&args, out),
        Verb::Snapshot(args) => snapshots::order(&args, out),
        Verb::Snapshots(args) => snapshots::run(&args, out),
    }
}

/// Other words that users may type instead of the options that select a time.
const OPTION_SYNONYMS: [(&str, &str); 5] =
    [("--from", "since"), ("--begin", "since"), ("--start", "since"), ("--to", "until"), ("--end", "until")];

/// If the error is about a synonym of one of the verb's options, adds that option as a suggestion.
fn with_option_hint(mut error: clap::Error, verb: Option<&OsString>) -> clap::Error {
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidArg) else { return error };
    let option = OPTION_SYNONYMS.iter().find(|(synonym, _)| synonym == word).map(|(_, option)| *option);
    let command = verb_groups::command();
    let has = |option: &str| {
        let verb = verb.and_then(|verb| command.find_subcommand(verb));
        verb.is_some_and(|verb| verb.get_arguments().any(|own| own.get_long() == Some(option)))
    };
    if let Some(option) = option.filter(|option| has(option)) {
        error.insert(ContextKind::SuggestedArg, ContextValue::String(format!("--{option}")));
    }
    error
}

/// Prints the error of a verb, if there is one, and returns the exit status.
fn conclude(result: Result<ExitStatus, CliError>, log: Option<&Log>) -> ExitStatus {
    match result {
        Ok(status) => status,
        // The reader has closed the output, because it needs no more data.
        Err(CliError::Output(error)) if is_closed_pipe(&error) => ExitStatus::Done,
        Err(error) => {
            print_error(&error, log);
            error.exit_status()
        }
    }
}

fn is_closed_pipe(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::BrokenPipe
}

fn print_error(error: &CliError, log: Option<&Log>) {
    // Earlier log lines must appear before the error.
    log.inspect(|log| log.flush());
    // The journal interprets this prefix as the priority `error` of the line.
    let priority = if log.is_some_and(Log::is_journal) { "<3>" } else { "" };
    for (number, line) in error.to_string().lines().enumerate() {
        let name = if number == 0 { "flatcap: " } else { "" };
        // If standard error is closed, the exit status still reports the error.
        let _gone = writeln!(io::stderr(), "{priority}{name}{}", human::escaped(line));
    }
}

/// Prints a value as one line of JSON.
fn print_json(value: &impl Serialize, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{}", to_visible_json(value)?)
}

/// Reports a problem of a file on standard error and returns the exit status for it. Reading goes
/// on.
fn report_notice(notice: &Notice) -> Result<ExitStatus, CliError> {
    writeln!(io::stderr(), "flatcap: {}", human::escaped(&notice.to_string()))?;
    Ok(ExitStatus::DataLoss)
}
