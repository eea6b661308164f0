//! `import iex-deep`, `import iex-tops`.

use std::io::Write;

use flatcap_import::iex;

use super::{ImportArgs, import};
use crate::cli::ExitStatus;
use crate::cli::error::CliError;

/// Import IEX DEEP 1.0 from captures: pcap or pcapng, optionally gzipped.
#[derive(Debug, clap::Args)]
pub(super) struct DeepArgs {
    #[command(flatten)]
    common: ImportArgs,
}

/// Import IEX TOPS 1.6 from captures: pcap or pcapng, optionally gzipped.
#[derive(Debug, clap::Args)]
pub(super) struct TopsArgs {
    #[command(flatten)]
    common: ImportArgs,
}

pub(super) fn run_deep(args: &DeepArgs, out: &mut dyn Write) -> Result<ExitStatus, CliError> {
    import(&args.common, |files, job| iex::import(files, iex::Feed::Deep, job), out)
}

pub(super) fn run_tops(args: &TopsArgs, out: &mut dyn Write) -> Result<ExitStatus, CliError> {
    import(&args.common, |files, job| iex::import(files, iex::Feed::Tops, job), out)
}
