//! The program `flatcap-convert`. flatcap executes it for the verbs `import`, `export` and `flame`,
//! and to name functions. A build of the recorder does not need the libraries for these tasks.

use std::process::ExitCode;

mod command;
mod symbolize;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    command::main()
}
