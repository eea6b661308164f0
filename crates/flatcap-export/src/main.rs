//! The program `flatcap-export`: runs the command line and returns its exit status.

use std::process::ExitCode;

fn main() -> ExitCode {
    flatcap_export::main()
}
