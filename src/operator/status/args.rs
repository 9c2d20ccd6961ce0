//! Flags of `status`.

use clap::{Args, ValueEnum};

use crate::operator::connection::ConnectionArgs;

use crate::object::{Kind, Resource};
use crate::reconcilers::app::App;
use crate::reconcilers::generic_daemon::GenericDaemon;
use crate::reconcilers::memcached::Memcached;

/// Whose status.
#[derive(Debug, Clone, Args)]
pub struct StatusArgs {
    /// The kind.
    pub kind: KindName,

    /// The name.
    pub name: String,

    /// Its namespace.
    #[arg(short, long, env = "NAMESPACE", value_name = "NAME", default_value = "default")]
    pub namespace: String,

    /// text; json, for machines.
    #[arg(short, long, env = "STATUS_OUTPUT", value_name = "FORMAT", default_value = "text")]
    pub output: Output,

    /// Which API server, as whom.
    #[command(flatten)]
    pub connection: ConnectionArgs,
}

/// How it is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "lower")]
pub enum Output {
    /// For people.
    Text,
    /// One JSON object.
    Json,
}

/// A kind, as kubectl's users name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "lower")]
pub enum KindName {
    /// Memcached.
    #[value(alias = "memcacheds", alias = "mc")]
    Memcached,
    /// GenericDaemon.
    #[value(alias = "genericdaemons", alias = "gd")]
    GenericDaemon,
    /// App.
    #[value(alias = "apps")]
    App,
}

impl KindName {
    pub(super) fn kind(self) -> Kind {
        match self {
            KindName::Memcached => Memcached::KIND,
            KindName::GenericDaemon => GenericDaemon::KIND,
            KindName::App => App::KIND,
        }
    }
}
