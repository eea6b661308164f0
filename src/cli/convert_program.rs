//! Passes a verb to the program `flatcap-convert`, which contains the libraries for other formats.
//!
//! These libraries are larger than the rest of flatcap, so a build of the recorder does not contain
//! them. The program replaces this process, so that signals and the exit status need no forwarding.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

use flatcap_text::convert_program;

use super::ExitStatus;
use super::error::CliError;

/// Replaces this process by the program with this verb and these arguments. This function returns
/// only if the replacement fails.
pub(super) fn run(verb: &str, arguments: &[OsString]) -> Result<ExitStatus, CliError> {
    let program = convert_program::path().map_err(|error| CliError::ConvertProgram(error.to_string()))?;
    let mut command = Command::new(&program);
    // Argument 0 is the program name that the help and the argument errors show.
    command.arg0("flatcap").arg(convert_program::caller_argument()).arg(verb).args(arguments);
    let error = command.exec();
    Err(CliError::ConvertProgram(convert_program::cannot_run(&program, &error)))
}
