//! Which API server, and as whom: the flags of every command.

use std::path::PathBuf;

use clap::Args;

use super::IDENTITY;
use crate::client::{self, Client, Error, Options};

/// Where the API server is, and who we are there.
#[derive(Debug, Clone, Args)]
pub struct ConnectionArgs {
    /// The file that says where the API server is and who we are there. Without it: the KUBECONFIG environment
    /// variable, ~/.kube/config, or in a cluster the pod's ServiceAccount.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,

    /// The kubeconfig's context to use instead of its current one.
    #[arg(long, env = "KUBE_CONTEXT", value_name = "NAME")]
    pub context: Option<String>,
}

impl ConnectionArgs {
    /// The configuration that the flags select.
    pub(super) async fn config(&self) -> Result<kube::Config, Error> {
        client::config(self.kubeconfig.as_deref(), self.context.as_deref()).await
    }

    /// A client for a one-off question from a person.
    pub(super) async fn client(&self) -> Result<Client, Error> {
        let client = Client::new(self.config().await?, Options::new(IDENTITY))?;
        client.log_in().await?;
        Ok(client)
    }
}
