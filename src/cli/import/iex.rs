//! `import iex-deep`, `import iex-tops`.

use std::io::Write;

use super::{Common, import};
use crate::cli::Outcome;
use crate::cli::error::CliError;
use crate::import::iex;

/// IEX DEEP 1.0 from captures: pcap or pcapng, plain or packed.
#[derive(Debug, clap::Args)]
pub(super) struct DeepArgs {
    #[command(flatten)]
    common: Common,
}

/// IEX TOPS 1.6 from captures: pcap or pcapng, plain or packed.
#[derive(Debug, clap::Args)]
pub(super) struct TopsArgs {
    #[command(flatten)]
    common: Common,
}

pub(super) fn run_deep(args: &DeepArgs, out: &mut dyn Write) -> Result<Outcome, CliError> {
    import(&args.common, |files, job| iex::import(files, iex::Feed::Deep, job), out)
}

pub(super) fn run_tops(args: &TopsArgs, out: &mut dyn Write) -> Result<Outcome, CliError> {
    import(&args.common, |files, job| iex::import(files, iex::Feed::Tops, job), out)
}
