//! A kind that is known only when the program runs: prints how many objects of it each namespace
//! has, and each change of that.
//!
//! `cargo run --example any -- apps/v1/Deployment`, or `v1/ConfigMap`
use std::collections::BTreeMap;

use controller_machinery::client::{self, Client, Options};
use controller_machinery::controller::{ExitError, Program};
use controller_machinery::informer::Informer;
use controller_machinery::object::{Kind, Meta, Object};
use controller_machinery::{shutdown::Shutdown, store::Delta, view};

/// Of any object, the metadata is enough here. [`Dynamic`](controller_machinery::object::Dynamic) has
/// everything.
#[derive(Debug, serde::Deserialize)]
struct Any {
    metadata: Meta,
}

view!(Any: Kind::RUNTIME);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), ExitError> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let name = std::env::args().nth(1).unwrap_or_default();
    let parts: Vec<&str> = name.split('/').collect();
    let (group, version, kind) = match parts[..] {
        [group, version, kind] => (group, version, kind),
        [version, kind] => ("", version, kind),
        _ => return Err(std::io::Error::other("usage: any GROUP/VERSION/KIND").into()),
    };
    let client = Client::new(client::config(None, None).await?, Options::default())?;
    let kind = client.discover(group, version, kind).await?;
    let mut program = Program::new();
    let objects = program.informer(Informer::<Any>::builder(client.of(kind)).metadata_only());
    let mut counts = BTreeMap::new();
    objects.handle(move |delta, _| {
        let namespace = delta.object().key().namespace().clone();
        let count: &mut usize = counts.entry(namespace.clone()).or_default();
        match delta {
            Delta::Added(..) => *count += 1,
            Delta::Updated { .. } => return,
            Delta::Deleted(..) => *count -= 1,
        }
        println!("{namespace} {count}");
    });
    Ok(program.run(Shutdown::from_signals()?).await?)
}
