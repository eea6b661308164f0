//! Hands an export to the program `flatcap-export`, which has the libraries of the columnar formats.
//!
//! They are larger than all of flatcap, so neither who builds nor what runs the recorder has them.
//! `flatcap` resolves times and names, so that both programs agree, and is then replaced by the
//! other one: signals and the exit status need no forwarding.

use std::env;
use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use flatcap_format::replay::ReplayFilter;

use super::ExitStatus;
use super::error::CliError;
use super::export::{Args, ExportFormat};

/// The program's name.
const PROGRAM: &str = "flatcap-export";

/// Replaces this process by the program that exports to the format. Returns only with an error.
pub(super) fn run(args: &Args, filter: &ReplayFilter) -> Result<ExitStatus, CliError> {
    // Only beside this program, never in PATH: that may hold another version, or under root the
    // program of somebody else.
    let own = env::current_exe().map_err(|error| CliError::ExportProgram { what: error.to_string() })?;
    let program = own.with_file_name(PROGRAM);
    let error = Command::new(&program).args(arguments(args, filter)).exec();
    Err(CliError::ExportProgram { what: failure(&program, &error) })
}

/// Says why the program could not be started, and what to do.
fn failure(program: &Path, error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => format!(
            "{} is missing; the packages of flatcap contain it, and cargo build --release -p {PROGRAM} builds it",
            program.display()
        ),
        _ => format!("cannot run {}: {error}", program.display()),
    }
}

/// Returns the arguments of the program: those of this one, with times and names resolved.
fn arguments(args: &Args, filter: &ReplayFilter) -> Vec<OsString> {
    let format = match args.to {
        ExportFormat::Stream => "stream",
        ExportFormat::Parquet => "parquet",
        ExportFormat::Arrow => "arrow",
    };
    let mut all: Vec<OsString> = Vec::new();
    // An equals sign, so that no value is taken for an option.
    let mut option = |name: &str, value: &str| all.push(format!("--{name}={value}").into());
    option("caller", env!("CARGO_PKG_VERSION"));
    option("to", format);
    filter.sources.iter().for_each(|source| option("source", source));
    if let Some(fields) = &args.fields {
        let paths: Vec<&str> = fields.0.iter().map(flatcap_format::query::FieldPath::as_str).collect();
        option("fields", &paths.join(","));
    }
    if let Some(host) = &filter.host {
        option("host", &host.name);
        host.machine_id.iter().for_each(|id| option("machine-id", id));
    }
    let elapsed = filter.elapsed.as_ref().map(|elapsed| elapsed.ns.clone());
    let step_ns = args.every.map(|step| u64::try_from(step.as_nanos()).unwrap_or(u64::MAX));
    for (name, value) in [
        ("since-ns", filter.since_ns.map(|ns| ns.to_string())),
        ("until-ns", filter.until_ns.map(|ns| ns.to_string())),
        ("after-ns", elapsed.as_ref().map(|ns| ns.start.to_string())),
        ("before-ns", elapsed.as_ref().map(|ns| ns.end.to_string())),
        ("step-ns", step_ns.map(|ns| ns.to_string())),
    ] {
        value.iter().for_each(|value| option(name, value));
    }
    for (name, is_given) in [
        ("--explode", args.explode),
        ("--unsigned", args.unsigned),
        ("--local", args.local),
        ("--force", args.force),
        ("--json", args.json),
    ] {
        all.extend(is_given.then(|| name.into()));
    }
    all.push("--output".into());
    all.push(args.output.clone().into());
    all.push("--".into());
    all.extend(args.selection.paths.iter().map(OsString::from));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that the error of a missing program says where it was expected and how to get it.
    #[test]
    fn a_missing_program_is_explained() {
        let path = Path::new("/opt/flatcap/flatcap-export");
        let missing = failure(path, &io::ErrorKind::NotFound.into());
        assert!(missing.starts_with("/opt/flatcap/flatcap-export is missing;"), "{missing}");
        assert!(missing.contains("cargo build --release -p flatcap-export"), "{missing}");
        let denied = failure(path, &io::ErrorKind::PermissionDenied.into());
        assert_eq!(denied, "cannot run /opt/flatcap/flatcap-export: permission denied");
    }
}
