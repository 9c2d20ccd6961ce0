//! A kind that is known only at run time. Prints the number of its objects in each namespace, and each change of it.
//!
//! `cargo run --example any -- apps/v1/Deployment`, or `v1/ConfigMap`
use std::io::{IsTerminal, stderr};
use std::sync::{Arc, OnceLock};
use std::{collections::BTreeMap, process::ExitCode};

use controller_machinery::client::{self, Client, Options};
use controller_machinery::controller::{Action, ReconcileError};
use controller_machinery::manager::{Context, Manager};
use controller_machinery::object::{InternedStr, Kind, Meta, Object};
use controller_machinery::{identity::Identity, store::Delta, view};
use tokio::sync::mpsc;

/// An object of any kind, of which only the metadata is read.
#[derive(Debug, serde::Deserialize)]
struct Any {
    metadata: Meta,
}

static KIND: OnceLock<Kind> = OnceLock::new();
view!(Any: *KIND.get().expect("main sets it"));

/// Asks the API server for the kind `GROUP/VERSION/KIND`.
async fn discover(name: &str) -> Result<Kind, String> {
    let (group, version, kind) = match name.split('/').collect::<Vec<_>>()[..] {
        [group, version, kind] => (group, version, kind),
        [version, kind] => ("", version, kind),
        _ => return Err("usage: any GROUP/VERSION/KIND".to_owned()),
    };
    let config = client::config(None, None).await.map_err(|error| error.to_string())?;
    let client =
        Client::new(config, Options::default()).await.map_err(|error| error.to_string())?;
    client.discover(group, version, kind).await.map_err(|error| error.to_string())
}

async fn reconcile(_: Arc<Any>, _: Context<Any>) -> Result<Action, ReconcileError> {
    Ok(Action::Done) // This example only counts the objects.
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let colors = stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    tracing_subscriber::fmt().with_writer(stderr).with_ansi(colors).init();
    match discover(&std::env::args().nth(1).unwrap_or_default()).await {
        Ok(kind) => drop(KIND.set(kind)),
        Err(why) => {
            eprintln!("any: {why}");
            return ExitCode::FAILURE;
        }
    }
    let (sender, mut changes) = mpsc::unbounded_channel::<(InternedStr, i64)>();
    Manager::new(Identity::new("any", "example.com"))
        .task("the counter", async move |_, stop| {
            let mut counts = BTreeMap::<InternedStr, i64>::new();
            while let Some((namespace, change)) = tokio::select! {
                () = stop.requested() => None,
                change = changes.recv() => change,
            } {
                let count = counts.entry(namespace.clone()).or_default();
                *count += change;
                println!("{namespace} {count}");
            }
        })
        .informer::<Any>(|all| all.metadata_only())
        .controller::<Any>()
        .handler::<Any, _>(|_| {
            move |delta: &Delta<Any>, _| {
                let change = match delta {
                    Delta::Added(..) => 1,
                    Delta::Updated { .. } => return,
                    Delta::Deleted(..) => -1,
                };
                let _ = sender.send((delta.object().key().namespace().clone(), change));
            }
        })
        .run(reconcile)
        .await
}
