//! The program `flatcap-convert`. flatcap executes it for the verbs whose libraries a build of the
//! recorder does not need: `import`, `export` and `flame`, and to name functions.

use std::process::ExitCode;

mod command;
mod symbolize;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    command::main()
}
