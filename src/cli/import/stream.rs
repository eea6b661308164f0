//! `import stream`.

use std::io::Write;

use super::{Common, import};
use crate::cli::Outcome;
use crate::cli::error::CliError;
use crate::import::stream;

/// Streams of plain frames, as flatstream writes them.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    common: Common,
}

pub(super) fn run(args: &Args, out: &mut dyn Write) -> Result<Outcome, CliError> {
    let options = stream::Options::default();
    import(&args.common, |files, job| stream::import(files, &options, job), out)
}
