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
            "flatcap is version {other} and {} version {VERSION}; install both from one package",
            path().map_or_else(|_unknown| NAME.to_owned(), |path| path.display().to_string())
        )),
    }
}

/// Returns a message that states why the program could not be started, and what to do.
pub fn cannot_run(program: &Path, error: &io::Error) -> String {
    let path = program.display();
    match error.kind() {
        // The kernel reports a missing loader of the program in the same way.
        io::ErrorKind::NotFound if program.exists() => {
            format!(
                "{path} is for another system: its loader is missing; install the package for this system"
            )
        }
        io::ErrorKind::NotFound => format!(
            "{path} is missing; the packages of flatcap {VERSION} contain it, and cargo build --release -p {NAME} \
             builds it, to be copied there"
        ),
        _ => format!("cannot run {path}: {error}"),
    }
}

/// The reason why the program printed no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The program has this version, which is not the version of the caller.
    Version(String),
    /// The program exited with this status.
    Exited(i32),
    /// A signal ended the program.
    Signalled(i32),
    /// The program was ended after this number of seconds.
    TimedOut(u64),
    /// The path of the program is not UTF-8.
    OddPath,
}

/// Returns whether a version is the version of this package.
pub(crate) fn is_own(version: &str) -> bool {
    version == VERSION
}

/// Returns a message that states why the program printed no answer, and what to do.
pub(crate) fn failure(program: &Path, failure: Failure) -> String {
    let path = program.display();
    match failure {
        Failure::Version(version) => {
            format!(
                "flatcap is version {VERSION} and {path} version {version}; install both from one package"
            )
        }
        Failure::Exited(status) => {
            format!("{path} exited with status {status} and no answer; run {path} symbolize to see its error")
        }
        Failure::Signalled(signal) => format!("signal {signal} ended {path}; dmesg may have the reason"),
        Failure::TimedOut(seconds) => {
            format!("{path} did not answer within {seconds} s; ask for a shorter time")
        }
        Failure::OddPath => format!("the path {path} is not UTF-8; install flatcap in another directory"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that the error of a missing program states where the program was expected, which
    // version is needed, and how to get the program.
    #[test]
    fn a_missing_program_is_explained() {
        let path = Path::new("/no/such/directory/flatcap-convert");
        let missing = cannot_run(path, &io::ErrorKind::NotFound.into());
        assert!(missing.starts_with("/no/such/directory/flatcap-convert is missing;"), "{missing}");
        assert!(missing.contains(&format!("of flatcap {VERSION} contain")), "{missing}");
        assert!(missing.contains("cargo build --release -p flatcap-convert"), "{missing}");
        let denied = cannot_run(path, &io::ErrorKind::PermissionDenied.into());
        assert_eq!(denied, "cannot run /no/such/directory/flatcap-convert: permission denied");
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
        assert!(error.contains(&format!("/{NAME} version {VERSION};")), "{error}");
    }
}
