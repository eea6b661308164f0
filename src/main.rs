//! The `flatcap` program. It runs the command line and returns its exit status.

use std::process::ExitCode;

fn main() -> ExitCode {
    flatcap::main()
}
