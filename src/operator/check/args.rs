//! Flags of `check`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// What is checked, and how it is printed.
#[derive(Debug, Clone, Args)]
pub struct CheckArgs {
    /// Where the API server is and who we are there; found as `run` finds it.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,

    /// The kubeconfig's context to use instead of its current one.
    #[arg(long, env = "KUBE_CONTEXT", value_name = "NAME")]
    pub context: Option<String>,

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

    /// table; wide, with the reason of each check; json, for machines.
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
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
