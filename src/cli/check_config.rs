//! `check-config`: what a configuration comes to, or everything that is wrong with it.

use std::io::Write;
use std::path::PathBuf;

use super::Outcome;
use super::error::CliError;
use crate::config::Config;

/// Read a configuration as `record` would; print it in full with defaults filled in, or every error at once.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The configuration file.
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

pub(super) fn run(args: &Args, out: &mut dyn Write) -> Result<Outcome, CliError> {
    let config = Config::read(&args.file)?;
    out.write_all(config.to_toml().as_bytes())?;
    Ok(Outcome::Done)
}
