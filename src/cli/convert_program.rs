//! Passes a verb to the program `flatcap-convert`, which contains the libraries for other formats.
//!
//! These libraries are larger than the rest of flatcap, so a build of the recorder does not contain
//! them. The program replaces this process, so that signals and the exit status need no forwarding.

use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use flatcap_text::convert_program;

use super::ExitStatus;
use super::error::CliError;

/// Replaces this process by the program with this verb and these arguments. This function returns
/// only if the replacement fails.
pub(super) fn run(verb: &str, arguments: &[OsString]) -> Result<ExitStatus, CliError> {
    let program = convert_program::path().map_err(|error| {
        CliError::ConvertProgram(format!(
            "cannot find flatcap-convert, which must be in the directory of flatcap: {error}"
        ))
    })?;
    if is_damaged(&program) {
        let what = format!("{} is no program; install the package of flatcap again", program.display());
        return Err(CliError::ConvertProgram(what));
    }
    let mut command = Command::new(&program);
    // Argument 0 is the program name that the help and the argument errors show.
    command.arg0("flatcap").arg(convert_program::caller_argument()).arg(verb).args(arguments);
    let error = command.exec();
    Err(CliError::ConvertProgram(convert_program::cannot_run(&program, &error)))
}

/// Returns whether a file exists that is no program. Without this check, the C library would run a
/// truncated file as a shell script.
fn is_damaged(program: &Path) -> bool {
    let mut magic = [0; 4];
    File::open(program).is_ok_and(|mut file| file.read_exact(&mut magic).is_err() || magic != *b"\x7fELF")
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that a truncated program is found, and that a missing one is another error.
    #[test]
    fn a_damaged_program_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("flatcap-convert");
        assert!(!is_damaged(&program));
        for content in [&b""[..], b"\x7fEL", b"echo x\n"] {
            std::fs::write(&program, content).unwrap();
            assert!(is_damaged(&program), "{content:?}");
        }
        std::fs::write(&program, b"\x7fELF\x02").unwrap();
        assert!(!is_damaged(&program));
    }
}
