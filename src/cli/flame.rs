//! `flame`: draws a flame graph.

use std::path::PathBuf;

use flatcap_stream::ChecksumKind;

use super::ExitStatus;
use super::error::CliError;
use super::export::{self, ExportFormat};
use super::selection::RecordingSelection;
use super::symbol_directory::symbol_directory;

/// Draw a flame graph of the code that ran.
///
/// An SVG image of the stacks that the source `profile` recorded. The width of a function is its
/// share of CPU time; the functions above it are those that it called. Needs the program
/// flatcap-convert.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    selection: RecordingSelection,
    /// Draw only the stacks of this process, given by its name or its id.
    #[arg(long, value_name = "NAME|PID")]
    process: Option<String>,
    /// Look for executables and debug files in this directory first, by build ids (DIR/.build-id),
    /// paths and names. Can be repeated.
    #[arg(long = "symbols", value_name = "DIR", value_parser = symbol_directory)]
    symbol_directories: Vec<PathBuf>,
    /// The image, or - for standard output.
    #[arg(short, long, value_name = "FILE", default_value = "flame.svg")]
    output: PathBuf,
    /// Replace an existing file.
    #[arg(long)]
    force: bool,
    /// Print one JSON object instead of lines.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> Result<ExitStatus, CliError> {
    export::run_program(&export::Args {
        selection: args.selection.clone(),
        to: ExportFormat::Flame,
        output: args.output.clone(),
        fields: None,
        every: None,
        explode: false,
        unsigned: false,
        local: false,
        process: args.process.clone(),
        symbol_directories: args.symbol_directories.clone(),
        checksum: ChecksumKind::Xxh3,
        force: args.force,
        json: args.json,
    })
}
