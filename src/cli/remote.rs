//! `rotate`, `mark`, `reload`, `flush` and `log-level`: send commands to the running recorder. Each
//! verb prints the recorder's answer.

use std::io::Write;
use std::path::PathBuf;

use flatcap_control::{Client, ClientError, MARK_BYTES_MAX};

use super::ExitStatus;
use super::error::CliError;

/// Help text of the log filter argument. It is not a doc comment, because a doc comment would need
/// backticks, which the help would show.
const FILTER_HELP: &str =
    "Filter as in FLATCAP_LOG: off, error, warn, info, debug, trace, or \"info,flatcap_recorder=debug\"";

/// The HTTP status with which the recorder refuses an invalid text.
const INVALID: u16 = 422;

/// The recorder to talk to.
#[derive(Debug, clap::Args)]
pub(super) struct RecorderSocket {
    /// Control socket of the running recorder [default: /run/flatcap/control.sock, else that of
    /// this user's recording].
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
}

impl RecorderSocket {
    /// Connects to the recorder.
    pub(super) fn connect(&self) -> Result<Client, CliError> {
        Ok(Client::find(self.socket.as_deref())?)
    }
}

/// Write a line of text into the recording, with the time.
///
/// `flatcap marks` lists such marks, and `flatcap dump` prints them among the samples.
#[derive(Debug, clap::Args)]
pub(super) struct MarkArgs {
    /// Text to write: one line, at most 4096 bytes.
    #[arg(value_name = "TEXT")]
    text: String,
    #[command(flatten)]
    recorder: RecorderSocket,
}

/// Change the log filter of the running recorder.
#[derive(Debug, clap::Args)]
pub(super) struct LogLevelArgs {
    #[arg(value_name = "FILTER", help = FILTER_HELP)]
    filter: String,
    #[command(flatten)]
    recorder: RecorderSocket,
}

pub(super) fn rotate(recorder: &RecorderSocket, out: &mut dyn Write) -> Result<ExitStatus, CliError> {
    print_answer(recorder.connect()?.rotate(), out)
}

pub(super) fn mark(args: &MarkArgs, out: &mut dyn Write) -> Result<ExitStatus, CliError> {
    // The length is checked before the program searches for a recorder. The recorder checks the
    // rest.
    let bytes = args.text.len();
    if args.text.trim().is_empty() || bytes > MARK_BYTES_MAX {
        let what = if bytes > MARK_BYTES_MAX { format!("has {bytes} bytes") } else { "is empty".to_owned() };
        return Err(CliError::Usage(format!(
            "TEXT {what}; write one line of 1 to {MARK_BYTES_MAX} bytes, not only spaces"
        )));
    }
    print_answer(args.recorder.connect()?.mark(&args.text).map_err(invalid_text), out)
}

pub(super) fn reload(recorder: &RecorderSocket, out: &mut dyn Write) -> Result<ExitStatus, CliError> {
    print_answer(recorder.connect()?.reload(), out)
}

pub(super) fn flush(recorder: &RecorderSocket, out: &mut dyn Write) -> Result<ExitStatus, CliError> {
    print_answer(recorder.connect()?.flush(), out)
}

pub(super) fn log_level(args: &LogLevelArgs, out: &mut dyn Write) -> Result<ExitStatus, CliError> {
    print_answer(args.recorder.connect()?.set_log(&args.filter).map_err(invalid_text), out)
}

/// Converts the error of a request that has a text. If the recorder refused the text, the error is
/// about an invalid argument.
fn invalid_text(error: ClientError) -> CliError {
    match error {
        ClientError::Refused { status: INVALID, message } => CliError::Usage(message),
        other => other.into(),
    }
}

fn print_answer<E: Into<CliError>>(
    answer: Result<String, E>,
    out: &mut dyn Write,
) -> Result<ExitStatus, CliError> {
    writeln!(out, "{}", answer.map_err(Into::into)?)?;
    Ok(ExitStatus::Done)
}
