//! The `flatcap` program: arguments in, exit status out.

use std::process::ExitCode;

fn main() -> ExitCode {
    flatcap::cli::main().into()
}
