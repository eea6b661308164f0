//! The command line of the program, and its exit status.

use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use flatcap_export::ColumnarError;
use flatcap_export::command::{ExportArguments, ExportEnd, raise_descriptor_limit, remark};
use flatcap_import::command::{ImportArguments, ImportCommandError, ImportEnd};
use flatcap_text::convert_program;

use crate::symbolize::{SymbolizeArguments, symbolize};

/// Exit status if everything was done.
const DONE: u8 = 0;
/// Exit status after an error.
const FAILED: u8 = 1;
/// Exit status after wrong usage.
const USAGE: u8 = 2;
/// Exit status if the result lacks data that it should contain.
const DATA_LOSS: u8 = 3;

/// Size of the buffer of standard output, in bytes.
const OUTPUT_BYTES: usize = 256 << 10;

/// Convert recordings from and to other formats. flatcap calls this program; use flatcap import,
/// flatcap export and flatcap flame.
#[derive(Debug, Parser)]
#[command(name = "flatcap-convert", version, arg_required_else_help = true, max_term_width = 110)]
struct ConvertProgram {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
#[allow(clippy::large_enum_variant, reason = "a process has one value")]
enum Verb {
    Import(ImportArguments),
    Export(ExportArguments),
    Symbolize(SymbolizeArguments),
}

/// Runs the program with the arguments and the standard streams of the process.
pub(crate) fn main() -> ExitCode {
    let mut arguments: Vec<OsString> = std::env::args_os().collect();
    // The caller's version is checked first, because a caller of another version may pass other
    // arguments.
    match arguments.get(1).and_then(|first| first.to_str()).map_or(Ok(false), convert_program::is_caller) {
        Ok(true) => drop(arguments.remove(1)),
        Ok(false) => {}
        Err(error) => return ExitCode::from(fail(&error, USAGE)),
    }
    match ConvertProgram::try_parse_from(arguments) {
        Ok(program) => ExitCode::from(run(&program.verb)),
        Err(error) => {
            // clap prints help and version to standard output and errors to standard error.
            let _unprintable = error.print();
            ExitCode::from(if error.use_stderr() { USAGE } else { DONE })
        }
    }
}

/// Runs a verb and returns the exit status.
fn run(verb: &Verb) -> u8 {
    match verb {
        Verb::Import(arguments) => run_import(arguments),
        Verb::Export(arguments) => status_of(flatcap_export::command::run(arguments).map(|end| match end {
            ExportEnd::Complete => DONE,
            ExportEnd::Incomplete => DATA_LOSS,
        })),
        Verb::Symbolize(arguments) => {
            raise_descriptor_limit();
            let out = &mut io::BufWriter::new(io::stdout().lock());
            status_of(symbolize(arguments, &mut io::stdin().lock(), out).map(|()| DONE))
        }
    }
}

fn run_import(arguments: &ImportArguments) -> u8 {
    // A reader that closes the output does not change the outcome, so the report is one write.
    let mut out = io::BufWriter::with_capacity(OUTPUT_BYTES, io::stdout().lock());
    let result = match (flatcap_import::command::run(arguments, &mut out), out.flush()) {
        (Ok(_), Err(error)) if !is_closed_pipe(&error) => Err(ImportCommandError::Output(error)),
        (result, _) => result,
    };
    match result {
        Ok(ImportEnd::Complete) => DONE,
        Ok(ImportEnd::Incomplete) => DATA_LOSS,
        Ok(ImportEnd::Failed) => FAILED,
        Err(ImportCommandError::Output(error)) if is_closed_pipe(&error) => DONE,
        Err(error) => fail(&error.to_string(), if error.is_usage() { USAGE } else { FAILED }),
    }
}

fn status_of(result: Result<u8, ColumnarError>) -> u8 {
    match result {
        Ok(status) => status,
        Err(ColumnarError::Output(error)) if is_closed_pipe(&error) => DONE,
        // The reasons have already been printed as notices.
        Err(ColumnarError::NothingRead) => FAILED,
        Err(error @ (ColumnarError::Usage(_) | ColumnarError::Fields(_))) => fail(&error.to_string(), USAGE),
        Err(error) => fail(&error.to_string(), FAILED),
    }
}

/// Returns whether the error means that the reader of the output has closed the pipe.
fn is_closed_pipe(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::BrokenPipe
}

/// Prints an error and returns the exit status.
fn fail(error: &str, status: u8) -> u8 {
    // If standard error is closed, the error is still reported by the exit status.
    let _gone = remark(error);
    status
}
