//! `completions`: prints shell completions. Used to build packages, which install them.

use std::io::Write;

use clap::{CommandFactory, ValueEnum};

use super::error::CliError;
use super::{Cli, ExitStatus};

/// Print the completions for a shell.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The shell.
    #[arg(value_enum)]
    shell: Shell,
}

/// The shells whose completions are tested.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Shell {
    Bash,
    Zsh,
    Fish,
}

pub(super) fn run(args: &Args, out: &mut dyn Write) -> Result<ExitStatus, CliError> {
    let shell = match args.shell {
        Shell::Bash => clap_complete::Shell::Bash,
        Shell::Zsh => clap_complete::Shell::Zsh,
        Shell::Fish => clap_complete::Shell::Fish,
    };
    // Written to memory first: the generator panics if its output fails, and a pipe may be closed.
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "flatcap", &mut script);
    out.write_all(&script)?;
    Ok(ExitStatus::Done)
}
