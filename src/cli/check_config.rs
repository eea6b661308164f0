//! `check-config`: what a configuration comes to and where each value comes from, or everything that is wrong with it.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::Outcome;
use super::configuration::{self, layers};
use super::error::CliError;
use crate::config::Layered;
use crate::daemon::{data_dir, run_dir};

/// Read a configuration as `record` would; print it in full with defaults filled in, or every error at once.
///
/// Behind each value that is no default stands which file and line or which variable gave it. What is printed is a configuration
/// file that means the same.
#[derive(Debug, clap::Args)]
#[command(after_help = configuration::HELP)]
pub(super) struct Args {
    /// The configuration file; its drop-ins are read, too.
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
}

pub(super) fn run(args: &Args, out: &mut dyn Write) -> Result<Outcome, CliError> {
    let layered = layers(args.file.as_deref()).read()?;
    summary(&layered, out)?;
    out.write_all(layered.to_toml().as_bytes())?;
    Ok(Outcome::Done)
}

/// What was read and what is not in the settings themselves, as comments.
fn summary(layered: &Layered, out: &mut dyn Write) -> io::Result<()> {
    if layered.files.is_empty() && layered.variables.is_empty() {
        writeln!(out, "# Neither a file nor a variable was read: all of this is built in.")?;
    } else {
        writeln!(
            out,
            "# Read, each over the one before; a value without a comment behind it is the default:"
        )?;
    }
    for file in &layered.files {
        writeln!(out, "#   {}", shown(file))?;
    }
    for variable in &layered.variables {
        writeln!(out, "#   {variable} in the environment")?;
    }
    let passed_over = &layered.passed_over;
    if !passed_over.paths.is_empty() {
        writeln!(out, "# Passed over, since their names do not end in .toml:")?;
    }
    for path in &passed_over.paths {
        writeln!(out, "#   {}", shown(path))?;
    }
    if passed_over.more > 0 {
        writeln!(out, "#   and {} more", passed_over.more)?;
    }
    let config = &layered.config;
    writeln!(out, "# Recordings go to {}.", shown(&data_dir(config)))?;
    writeln!(out, "# Samples wait for the disk in {}.\n", shown(&run_dir(config)))
}

/// A path that stays in its line.
fn shown(path: &Path) -> String {
    let plain = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.to_string() };
    path.to_string_lossy().chars().map(plain).collect()
}
