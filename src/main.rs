//! The `workload-operator` binary: parse arguments, run, exit code.

use std::process::ExitCode;

use workload_operator::{cli, operator};

/// The allocator. glibc's sometimes pauses to consolidate memory, even while a store's lock is held.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    cli::parse().map_or_else(|code| code, operator::main)
}
