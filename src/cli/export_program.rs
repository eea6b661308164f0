//! Hands an export to the program `flatcap-export`, which has the libraries of its format.
//!
//! These libraries are larger than all of flatcap, so a build of the recorder does not contain
//! them. The program replaces this process, so that signals and the exit status need no forwarding.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use flatcap_os::program::beside_this;

use super::ExitStatus;
use super::error::CliError;

/// The program's name.
const PROGRAM: &str = "flatcap-export";

/// Replaces this process by the program with these arguments. This function returns only if that
/// fails.
pub(super) fn run(arguments: &[OsString]) -> Result<ExitStatus, CliError> {
    let program =
        beside_this(PROGRAM).map_err(|error| CliError::ExportProgram { what: error.to_string() })?;
    let error = Command::new(&program).args(arguments).exec();
    Err(CliError::ExportProgram { what: failure(&program, &error) })
}

/// Returns a message that states why the program could not be started, and what to do.
fn failure(program: &Path, error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => format!(
            "{} is missing; the packages of flatcap contain it, and cargo build --release -p {PROGRAM} builds it",
            program.display()
        ),
        _ => format!("cannot run {}: {error}", program.display()),
    }
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
