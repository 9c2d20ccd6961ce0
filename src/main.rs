//! The `workload-operator` binary: parse arguments, run, exit code.

use std::process::ExitCode;

use workload_operator::{cli, operator};

/// Faster than glibc's, which now and then pauses to tidy up, even while a store's lock is held.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    cli::parse().map_or_else(|code| code, operator::main)
}
