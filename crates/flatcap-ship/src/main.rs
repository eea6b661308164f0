//! The program `flatcap-ship`, which runs the command line and returns its exit status.

use std::process::ExitCode;

fn main() -> ExitCode {
    flatcap_ship::main()
}
