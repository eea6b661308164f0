//! `check-config`: what a configuration comes to and where each value comes from, or everything that is wrong with it.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::Outcome;
use super::configuration::{self, layers};
use super::error::CliError;
use crate::config::Layered;
use crate::daemon::{data_dir, run_dir, state_directory_only};
use crate::os::environment;

/// Where the unit's `ConfigurationDirectory=` is, for a call outside of it.
const SERVICE_CONFIGURATION: &str = "/etc/flatcap";
/// Where its `StateDirectory=` is.
const SERVICE_STATE: &str = "/var/lib/flatcap";

/// Read a configuration as `record` would; print it in full with defaults filled in, or every error at once.
///
/// A comment after each value that is no default names the file and line or the variable that gave it. What is printed is a
/// configuration file that means the same.
#[derive(Debug, clap::Args)]
#[command(after_help = configuration::HELP)]
pub(super) struct Args {
    /// The configuration file; its drop-ins are read, too.
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
}

pub(super) fn run(args: &Args, out: &mut dyn Write) -> Result<Outcome, CliError> {
    let layered = layers(args.file.as_deref()).read()?;
    if let Some(remark) = remark(&layered) {
        writeln!(io::stderr(), "flatcap: {remark}")?;
    }
    summary(&layered, out)?;
    out.write_all(layered.to_toml().as_bytes())?;
    Ok(Outcome::Done)
}

/// Says that the service needs a drop-in for this configuration, if the configuration is the service's.
fn remark(layered: &Layered) -> Option<String> {
    let of_service = |variable, otherwise: &str| {
        environment::directory(variable).unwrap_or_else(|| PathBuf::from(otherwise))
    };
    let configuration = of_service("CONFIGURATION_DIRECTORY", SERVICE_CONFIGURATION);
    if !layered.files.first()?.starts_with(&configuration) {
        return None;
    }
    let (data_dir, state) = (data_dir(&layered.config), of_service("STATE_DIRECTORY", SERVICE_STATE));
    let is_elsewhere = !layered.config.agent.data_dir.as_os_str().is_empty() && !data_dir.starts_with(&state);
    is_elsewhere.then(|| {
        let why = state_directory_only(&data_dir, &state);
        format!("[agent] data_dir = \"{}\": {why}; ignore this if that is done", data_dir.display())
    })
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
