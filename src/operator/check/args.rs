//! Flags of `check`.

use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::operator::connection::ConnectionArgs;

/// What is checked, and how it is printed.
#[derive(Debug, Clone, Args)]
pub struct CheckArgs {
    /// Which API server, as whom.
    #[command(flatten)]
    pub connection: ConnectionArgs,

    /// The namespaces in which the operator is to work; without it, all.
    #[arg(long = "namespace", env = "WATCH_NAMESPACE", value_name = "NAME", value_delimiter = ',')]
    pub namespaces: Vec<String>,

    /// The namespace in which the operator runs.
    #[arg(
        long,
        env = "POD_NAMESPACE",
        value_name = "NAME",
        default_value = "workload-operator-system"
    )]
    pub operator_namespace: String,

    /// Ask again until nothing fails, for at most this long: for example 2m after an installation.
    #[arg(long, env = "CHECK_WAIT", value_name = "TIME", value_parser = super::super::args::duration)]
    pub wait: Option<Duration>,

    /// table; wide, with the reason of each check; json, for machines.
    #[arg(short, long, env = "CHECK_OUTPUT", value_name = "FORMAT", default_value = "table")]
    pub output: Output,
}

/// How findings are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "lower")]
pub enum Output {
    /// A line each, and what to do.
    Table,
    /// Also why it matters, for each.
    Wide,
    /// One JSON object.
    Json,
}
