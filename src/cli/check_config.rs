//! `check-config`: prints a configuration in full with the location that set each value, or prints
//! all errors of the configuration.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use flatcap_os::environment;

use super::ExitStatus;
use super::configuration::{self, layers};
use super::error::CliError;
use super::recordings::SERVICE_STATE;
use crate::config::{LoadedConfig, format_size};
use crate::daemon::{MemoryBudget, data_dir, run_dir, state_directory_only};

/// The unit's `ConfigurationDirectory=`, which is used if the program is started outside the unit.
const SERVICE_CONFIGURATION: &str = "/etc/flatcap";

/// Check a configuration and print it in full, or print all its errors.
///
/// Reads the configuration as `record` does, and prints it with all defaults. After each value that
/// is not a default, a comment names the file and line, or the variable, that set it. The output is
/// a configuration file with the same meaning.
#[derive(Debug, clap::Args)]
#[command(after_help = configuration::HELP)]
pub(super) struct Args {
    /// Configuration file; its drop-ins are read too.
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
}

pub(super) fn run(args: &Args, out: &mut dyn Write) -> Result<ExitStatus, CliError> {
    let layered = layers(args.file.as_deref()).read()?;
    if let Some(remark) = state_directory_hint(&layered) {
        writeln!(io::stderr(), "flatcap: {remark}")?;
    }
    write_summary(&layered, out)?;
    out.write_all(layered.to_toml().as_bytes())?;
    Ok(ExitStatus::Done)
}

/// Returns a hint if this is the configuration of the service and the service needs a drop-in for
/// its data directory.
fn state_directory_hint(layered: &LoadedConfig) -> Option<String> {
    let of_service = |variable, otherwise: &str| {
        environment::directory(variable).unwrap_or_else(|| PathBuf::from(otherwise))
    };
    let configuration = of_service("CONFIGURATION_DIRECTORY", SERVICE_CONFIGURATION);
    if !layered.files.first()?.starts_with(&configuration) {
        return None;
    }
    let (data_dir, state) = (data_dir(&layered.config), of_service("STATE_DIRECTORY", SERVICE_STATE));
    let is_elsewhere =
        !layered.config.recorder.data_dir.as_os_str().is_empty() && !data_dir.starts_with(&state);
    is_elsewhere.then(|| {
        let why = state_directory_only(&data_dir, &state);
        format!("[recorder] data_dir = \"{}\": {why}; ignore this if that is done", data_dir.display())
    })
}

/// Writes comments that list the files and variables that were read, and the directories and memory
/// in use.
fn write_summary(layered: &LoadedConfig, out: &mut dyn Write) -> io::Result<()> {
    if layered.files.is_empty() && layered.variables.is_empty() {
        writeln!(out, "# No file and no variable was read: all values are built-in defaults.")?;
    } else {
        writeln!(out, "# Read in this order, the last one wins; values without a comment are defaults:")?;
    }
    for file in &layered.files {
        writeln!(out, "#   {}", printable_path(file))?;
    }
    for variable in &layered.variables {
        writeln!(out, "#   {variable} in the environment")?;
    }
    let passed_over = &layered.skipped;
    if !passed_over.paths.is_empty() {
        writeln!(out, "# Skipped, because their names do not end in .toml:")?;
    }
    for path in &passed_over.paths {
        writeln!(out, "#   {}", printable_path(path))?;
    }
    if passed_over.more > 0 {
        writeln!(out, "#   and {} more", passed_over.more)?;
    }
    let config = &layered.config;
    writeln!(out, "# Recordings go to {}.", printable_path(&data_dir(config)))?;
    writeln!(out, "# Samples are kept in {} until they are written.", printable_path(&run_dir(config)))?;
    let memory = MemoryBudget::of(config);
    writeln!(out, "# Memory used with these settings:")?;
    for term in memory.terms() {
        writeln!(out, "# {:>8}  {} {}", format_size(term.bytes), term.count, term.holder)?;
    }
    writeln!(out, "# {:>8}  sum, at most memory_max", format_size(memory.sum_bytes()))?;
    if config.blackbox.is_on() {
        let ring = format_size(config.blackbox.memory_max);
        writeln!(out, "# {ring:>8}  at most, in addition, for the ring of [blackbox] on tmpfs")?;
    }
    let rules = config.rules().len();
    if rules > 0 {
        let windows = config.compile_rules().map_or(0, |engine| engine.bytes_max());
        writeln!(out, "# {:>8}  besides, at most, for the windows of {rules} rules", format_size(windows))?;
    }
    writeln!(out)
}

/// Returns a path with control characters escaped, so that it stays on one line.
fn printable_path(path: &Path) -> String {
    let plain = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.to_string() };
    path.to_string_lossy().chars().map(plain).collect()
}
