//! `rotate`, `mark`, `reload`, `flush`, `log-level`: what the running agent is told to do. Each prints what the agent says of it.

use std::io::Write;
use std::path::PathBuf;

use super::Outcome;
use super::error::CliError;
use crate::control::{Client, ClientError, MARK_BYTES_MAX};

/// Not a comment of the field: the names would want marks that a terminal shows.
const FILTER_HELP: &str =
    "As in FLATCAP_LOG: off, error, warn, info, debug, trace, or \"info,flatcap::recorder=debug\"";

/// Which agent.
#[derive(Debug, clap::Args)]
pub(super) struct Agent {
    /// Control socket of the running agent [default: /run/flatcap/control.sock, else the one of this user's recording].
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
}

impl Agent {
    /// The one that is meant.
    pub(super) fn find(&self) -> Result<Client, CliError> {
        Ok(Client::find(self.socket.as_deref())?)
    }
}

/// Close the open segment and begin the next one.
#[derive(Debug, clap::Args)]
pub(super) struct RotateArgs {
    #[command(flatten)]
    agent: Agent,
}

/// Write a line of text into the recording, with the time; `flatcap dump` shows it on standard error.
#[derive(Debug, clap::Args)]
pub(super) struct MarkArgs {
    /// What to write: one line, at most 4096 bytes.
    #[arg(value_name = "TEXT")]
    text: String,
    #[command(flatten)]
    agent: Agent,
}

/// Let the running agent read its configuration again, and change what has changed.
#[derive(Debug, clap::Args)]
pub(super) struct ReloadArgs {
    #[command(flatten)]
    agent: Agent,
}

/// Let the running agent write and sync what it has sampled.
#[derive(Debug, clap::Args)]
pub(super) struct FlushArgs {
    #[command(flatten)]
    agent: Agent,
}

/// Let the running agent log by another filter, until it ends.
#[derive(Debug, clap::Args)]
pub(super) struct LogLevelArgs {
    #[arg(value_name = "FILTER", help = FILTER_HELP)]
    filter: String,
    #[command(flatten)]
    agent: Agent,
}

pub(super) fn rotate(args: &RotateArgs, out: &mut dyn Write) -> Result<Outcome, CliError> {
    say(args.agent.find()?.rotate(), out)
}

pub(super) fn mark(args: &MarkArgs, out: &mut dyn Write) -> Result<Outcome, CliError> {
    // The agent judges; what it would not even read is said here.
    if args.text.len() > MARK_BYTES_MAX {
        let bytes = args.text.len();
        return Err(CliError::Usage(format!("TEXT has {bytes} bytes; a mark has at most {MARK_BYTES_MAX}")));
    }
    say(args.agent.find()?.mark(&args.text), out)
}

pub(super) fn reload(args: &ReloadArgs, out: &mut dyn Write) -> Result<Outcome, CliError> {
    say(args.agent.find()?.reload(), out)
}

pub(super) fn flush(args: &FlushArgs, out: &mut dyn Write) -> Result<Outcome, CliError> {
    say(args.agent.find()?.flush(), out)
}

pub(super) fn log_level(args: &LogLevelArgs, out: &mut dyn Write) -> Result<Outcome, CliError> {
    say(args.agent.find()?.set_log(&args.filter), out)
}

fn say(answer: Result<String, ClientError>, out: &mut dyn Write) -> Result<Outcome, CliError> {
    writeln!(out, "{}", answer?)?;
    Ok(Outcome::Done)
}
