//! The script that a shell sources to complete our command line.

use std::io::Write;

use clap::CommandFactory;
use clap_complete::Shell;

use super::args::Cli;
use super::error::Error;

const NAME: &str = "workload-operator";

/// Prints it.
pub(super) fn print(shell: Shell) -> Result<(), Error> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), NAME, &mut script);
    if shell == Shell::Bash {
        script = mended(&script).into_bytes();
    }
    std::io::stdout().write_all(&script).map_err(Error::Print)
}

/// clap_complete 4.6 spells a program's name that has a hyphen in two ways, so that bash completes
/// nothing after a subcommand (github.com/clap-rs/clap/issues/6421). Once that is fixed upstream,
/// this changes nothing.
fn mended(script: &[u8]) -> String {
    let script = String::from_utf8_lossy(script);
    script.replace("workload__subcmd__operator", "workload__operator")
}
