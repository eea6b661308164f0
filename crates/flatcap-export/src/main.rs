//! The program `flatcap-export`. It runs the command line and returns its exit status.

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    flatcap_export::main()
}
