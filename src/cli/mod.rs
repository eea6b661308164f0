//! What does a person or a script ask for? One file a verb; what each prints goes to standard output, everything else to
//! standard error.
//!
//! Never: decides anything that another program could not ask of the library.

use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

mod check_config;
mod completions;
mod configuration;
mod dump;
mod error;
mod export;
mod import;
mod info;
mod logging;
mod manual;
mod opaque;
mod orders;
mod record;
mod recover;
mod replay;
mod rows;
mod seal;
mod selection;
mod sources;
mod status;
mod text;
mod verify;

pub use error::CliError;
use logging::Log;

use crate::replay::Notice;

/// A flight recorder for Linux hosts: what happened in the 300 ms before the spike?
///
/// Samples host telemetry at 1 to 10,000 times a second into checksummed, self-describing segment files, and says
/// what it did not see.
#[derive(Debug, Parser)]
#[command(name = "flatcap", version, arg_required_else_help = true, max_term_width = 110)]
#[command(after_help = "Exit status: 0 done; 1 failed; 2 wrong usage or configuration; \
    3 done, but something is wrong with the data.")]
pub struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Record(record::Args),
    CheckConfig(check_config::Args),
    Sources(sources::Args),
    Info(info::Args),
    Verify(verify::Args),
    Dump(dump::Args),
    Replay(replay::Args),
    Recover(recover::Args),
    Seal(seal::Args),
    Import(import::Args),
    Export(export::Args),
    #[command(hide = true)]
    Completions(completions::Args),
    #[command(hide = true)]
    Manual(manual::Args),
    Status(status::Args),
    Rotate(orders::RotateArgs),
    Mark(orders::MarkArgs),
    Reload(orders::ReloadArgs),
    Flush(orders::FlushArgs),
    LogLevel(orders::LogLevelArgs),
}

/// How a verb ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Everything was done.
    Done,
    /// It failed; an error says why.
    Failed,
    /// The arguments or the configuration are wrong; an error says where.
    Usage,
    /// Everything was done, but something is wrong with the data.
    DataLoss,
}

impl From<Outcome> for ExitCode {
    fn from(outcome: Outcome) -> Self {
        Self::from(match outcome {
            Outcome::Done => 0,
            Outcome::Failed => 1,
            Outcome::Usage => 2,
            Outcome::DataLoss => 3,
        })
    }
}

/// The whole program, with the process's own arguments and streams.
pub fn main() -> Outcome {
    let log = Log::start();
    let mut out = io::BufWriter::with_capacity(256 << 10, io::stdout().lock());
    let outcome = call(std::env::args_os(), &mut out, Some(&log));
    // The reader of a pipe that went away has seen what it wanted.
    let outcome = match out.flush() {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            complain(&CliError::Output(error), Some(&log));
            Outcome::Failed
        }
        _ => outcome,
    };
    log.flush();
    outcome
}

/// One call of the program. Data goes to `out`, errors to standard error.
pub fn run(args: impl IntoIterator<Item = OsString>, out: &mut dyn Write) -> Outcome {
    call(args, out, None)
}

fn call(args: impl IntoIterator<Item = OsString>, out: &mut dyn Write, log: Option<&Log>) -> Outcome {
    let cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        Err(error) => {
            // clap prints help and version to standard output and errors to standard error.
            let _unprintable = error.print();
            return if error.use_stderr() { Outcome::Usage } else { Outcome::Done };
        }
    };
    let result = match cli.verb {
        Verb::Record(args) => record::run(&args, log),
        Verb::CheckConfig(args) => check_config::run(&args, out),
        Verb::Sources(args) => sources::run(&args, out),
        Verb::Info(args) => info::run(&args, out),
        Verb::Verify(args) => verify::run(&args, out),
        Verb::Dump(args) => dump::run(&args, out),
        Verb::Replay(args) => replay::run(&args, out),
        Verb::Recover(args) => recover::run(&args, out),
        Verb::Seal(args) => seal::run(&args, out),
        Verb::Import(args) => import::run(&args, out),
        Verb::Export(args) => export::run(&args, out),
        Verb::Completions(args) => completions::run(&args, out),
        Verb::Manual(args) => manual::run(&args, out),
        Verb::Status(args) => status::run(&args, out),
        Verb::Rotate(args) => orders::rotate(&args, out),
        Verb::Mark(args) => orders::mark(&args, out),
        Verb::Reload(args) => orders::reload(&args, out),
        Verb::Flush(args) => orders::flush(&args, out),
        Verb::LogLevel(args) => orders::log_level(&args, out),
    };
    match result {
        Ok(outcome) => outcome,
        Err(CliError::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => Outcome::Done,
        Err(error) => {
            complain(&error, log);
            error.outcome()
        }
    }
}

fn complain(error: &CliError, log: Option<&Log>) {
    // What was logged before stands before it.
    log.inspect(|log| log.flush());
    // The journal takes this for a line's priority: an error.
    let priority = if log.is_some_and(Log::is_journal) { "<3>" } else { "" };
    for (number, line) in error.to_string().lines().enumerate() {
        let name = if number == 0 { "flatcap: " } else { "" };
        // Where nobody reads, the status says it still.
        let _gone = writeln!(io::stderr(), "{priority}{name}{}", text::plain(line));
    }
}

/// Says what is wrong with a file while reading goes on, and what that makes of the outcome.
fn notice(notice: &Notice) -> Result<Outcome, CliError> {
    let text = match notice {
        Notice::Damaged(path, damage) => format!(
            "{}: damage at offset {}, {} bytes: {}; reading on behind it",
            path.display(),
            damage.offset,
            damage.length,
            damage.what
        ),
        Notice::Torn(path, tail) => format!(
            "{}: ends in the middle of a write, at offset {} ({} bytes)",
            path.display(),
            tail.offset,
            tail.length
        ),
        Notice::Unreadable(error) => error.to_string(),
        Notice::PassedOver(path) => format!(
            "{}: its run was killed, and nobody has completed it in 5 s: reading on after it, without what a recovery adds",
            path.display()
        ),
        Notice::TakenBack(path, offset) => format!(
            "{}: the recorder could not complete a write and took it back: what was given from offset {offset} on is not in the file",
            path.display()
        ),
    };
    writeln!(io::stderr(), "flatcap: {}", text::plain(&text))?;
    Ok(Outcome::DataLoss)
}
