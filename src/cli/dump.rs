//! STUB
use std::io::Write;
use super::{CliError, Outcome};
/// d
#[derive(Debug, clap::Args)]
pub(super) struct Args {}
pub(super) fn run(_args: &Args, _out: &mut dyn Write) -> Result<Outcome, CliError> { Ok(Outcome::Done) }
