//! The `workload-operator` binary: parse arguments, run, exit code.

use std::process::ExitCode;

use clap::Parser;
use workload_operator::operator::{self, Cli};

fn main() -> ExitCode {
    operator::main(Cli::parse())
}
