//! Which API server, as whom: the flags that every command has.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::client::{self, Client, Error, Options};

/// No answer to a question of a person is waited for longer.
const DEADLINE: Duration = Duration::from_secs(10);

/// Where the API server is, and who we are there.
#[derive(Debug, Clone, Args)]
pub struct ConnectionArgs {
    /// Where the API server is and who we are there. Without it: the KUBECONFIG environment
    /// variable, ~/.kube/config, or in a cluster the pod's ServiceAccount.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,

    /// The kubeconfig's context to use instead of its current one.
    #[arg(long, env = "KUBE_CONTEXT", value_name = "NAME")]
    pub context: Option<String>,
}

impl ConnectionArgs {
    /// What the flags name.
    pub(super) async fn config(&self) -> Result<kube::Config, Error> {
        client::config(self.kubeconfig.as_deref(), self.context.as_deref()).await
    }

    /// A client for what a person asks once.
    pub(super) async fn client(&self) -> Result<Client, Error> {
        Client::new(self.config().await?, Options { deadline: DEADLINE, ..Options::default() })
    }
}
