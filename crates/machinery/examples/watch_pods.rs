//! An informer without a controller. Prints the changes of all pods in the cluster or in one namespace.
//!
//! `cargo run --example watch_pods -- kube-system`
use controller_machinery::client::{self, Client, Options};
use controller_machinery::controller::ExitError;
use controller_machinery::informer::Informer;
use controller_machinery::object::{Kind, Meta, Object};
use controller_machinery::{shutdown::Shutdown, store::Delta};

/// A pod, of which only the metadata is needed.
#[derive(Debug, serde::Deserialize)]
struct Pod {
    metadata: Meta,
}

controller_machinery::view!(Pod: Kind::namespaced("", "v1", "Pod", "pods"));

#[tokio::main]
async fn main() -> Result<(), ExitError> {
    let client = Client::new(client::config(None, None).await?, Options::default()).await?;
    let pods = Informer::<Pod>::builder(client).namespaces(std::env::args().skip(1));
    let pods = pods.metadata_only().build();
    pods.handle(|delta, _| match delta {
        Delta::Added(pod) => println!("+ {}", pod.key()),
        Delta::Updated { new: pod, .. } => println!("~ {}", pod.key()),
        Delta::Deleted(pod) => println!("- {}", pod.key()),
    });
    Ok(pods.run(Shutdown::from_signals()?).await?)
}
