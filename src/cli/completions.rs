//! `completions`: prints shell completions. It is used to build packages, which install the
//! completions.

use std::io::Write;

use clap::builder::{PossibleValuesParser, TypedValueParser as _};
use clap::{Command, CommandFactory};
use clap_complete::Shell;
use flatcap_sampling::sources::CATALOG;

use super::error::CliError;
use super::{Cli, ExitStatus, import};

/// The verbs whose --source takes names of sources.
const VERBS_WITH_SOURCES: [&str; 5] = ["record", "dump", "replay", "export", "flame"];

/// Print the completions for a shell.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The shell.
    #[arg(value_parser = PossibleValuesParser::new(TESTED_SHELLS).try_map(|name| name.parse::<Shell>()))]
    shell: Shell,
}

/// The shells whose completions are tested.
const TESTED_SHELLS: [&str; 3] = ["bash", "zsh", "fish"];

pub(super) fn run(args: &Args, out: &mut dyn Write) -> Result<ExitStatus, CliError> {
    // The script is written to memory first, because the generator panics if its output fails, and
    // because a pipe may be closed.
    let mut script = Vec::new();
    let mut program = with_source_names(import::with_arguments(Cli::command()));
    clap_complete::generate(args.shell, &mut program, "flatcap", &mut script);
    out.write_all(&script)?;
    Ok(ExitStatus::Done)
}

/// Adds the names of all sources to the values of --source. Only the completions of the shells
/// contain these names. The argument parser does not get them, because recordings may have other
/// sources, and because `record` accepts a period after a name.
fn with_source_names(program: Command) -> Command {
    let names = || CATALOG.iter().filter(|spec| !spec.has_instances()).map(|spec| spec.name);
    VERBS_WITH_SOURCES.into_iter().fold(program, |program, verb| {
        program.mut_subcommand(verb, |verb| {
            verb.mut_arg("sources", |sources| sources.value_parser(PossibleValuesParser::new(names())))
        })
    })
}
