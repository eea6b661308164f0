//! Finds the program `flatcap-convert`, and compares its version with the version of its caller.

use std::io;
use std::path::{Path, PathBuf};

use flatcap_os::program::beside_this;

/// The program's name.
const NAME: &str = "flatcap-convert";

/// The version of this package. All packages of flatcap have the same version.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Prefix of the program's first argument if another program of flatcap calls it. The rest of the
/// argument is the version of the caller.
const CALLER: &str = "--caller=";

/// Returns the path of the program, which is in the directory of the running program.
///
/// # Errors
/// Fails with any error of reading /proc/self/exe.
pub fn path() -> io::Result<PathBuf> {
    beside_this(NAME)
}

/// Returns the first argument of a call, which states the version of the caller.
pub fn caller_argument() -> String {
    format!("{CALLER}{VERSION}")
}

/// Returns whether this argument states the version of the caller.
///
/// # Errors
/// Fails if the caller has another version than this program. The message contains both versions.
pub fn is_caller(argument: &str) -> Result<bool, String> {
    match argument.strip_prefix(CALLER) {
        None => Ok(false),
        Some(VERSION) => Ok(true),
        Some(other) => Err(format!(
            "flatcap is version {other} and {NAME} version {VERSION}; install both from one package"
        )),
    }
}

/// Returns a message that states why the program could not be started, and what to do.
pub fn cannot_run(program: &Path, error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => format!(
            "{} is missing; the packages of flatcap {VERSION} contain it, and cargo build --release -p {NAME} builds it",
            program.display()
        ),
        _ => format!("cannot run {}: {error}", program.display()),
    }
}

/// Returns a message about a program that did not accept a call, with the version that it printed.
pub(crate) fn failure(program: &Path, version: Option<&str>) -> String {
    let program = program.display();
    match version {
        Some(version) if version != VERSION => {
            format!(
                "flatcap is version {VERSION} and {program} version {version}; install both from one package"
            )
        }
        _ => format!("{program} failed; run it with --help to see the reason"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that the error of a missing program states where the program was expected, which
    // version is needed, and how to get the program.
    #[test]
    fn a_missing_program_is_explained() {
        let path = Path::new("/opt/flatcap/flatcap-convert");
        let missing = cannot_run(path, &io::ErrorKind::NotFound.into());
        assert!(missing.starts_with("/opt/flatcap/flatcap-convert is missing;"), "{missing}");
        assert!(missing.contains(&format!("of flatcap {VERSION} contain")), "{missing}");
        assert!(missing.contains("cargo build --release -p flatcap-convert"), "{missing}");
        let denied = cannot_run(path, &io::ErrorKind::PermissionDenied.into());
        assert_eq!(denied, "cannot run /opt/flatcap/flatcap-convert: permission denied");
    }

    // Proves that a caller of the same version is accepted, and that the error for another version
    // contains both versions. Other arguments are not treated as the version of a caller.
    #[test]
    fn versions_are_compared() {
        assert_eq!(is_caller(&caller_argument()), Ok(true));
        assert_eq!(is_caller("--caller"), Ok(false));
        assert_eq!(is_caller("import"), Ok(false));
        let error = is_caller("--caller=0.0.9").unwrap_err();
        assert!(error.contains("flatcap is version 0.0.9 and"), "{error}");
        assert!(error.contains(&format!("flatcap-convert version {VERSION};")), "{error}");
    }
}
