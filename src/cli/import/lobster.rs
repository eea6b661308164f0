//! `import lobster`.

use std::io::Write;

use super::{Common, import};
use crate::cli::Outcome;
use crate::cli::error::CliError;
use crate::import::lobster;

/// LOBSTER: message and order-book files, plain or in ZIPs.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    common: Common,
}

pub(super) fn run(args: &Args, out: &mut dyn Write) -> Result<Outcome, CliError> {
    let options = lobster::Options::default();
    import(&args.common, |files, job| lobster::import(files, &options, job), out)
}
