//! The `workload-operator` binary: parse arguments, run, exit code.

use std::process::ExitCode;

use clap::Parser;
use workload_operator::operator::{self, Cli};

/// What a call of it takes is bounded; of glibc's it is not, also while a store's lock is held.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    operator::main(Cli::parse())
}
