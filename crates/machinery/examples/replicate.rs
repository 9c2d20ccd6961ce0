//! Copies ConfigMaps to other namespaces. A ConfigMap with the annotation `example.com/copy-to: team-a,team-b` is
//! copied to each of these namespaces that exists, and with `*` to every namespace. Copies are updated, restored and
//! deleted together with the ConfigMap. If another object has the name of a copy, it is not changed, and the conflict
//! is reported.
//!
//! `cargo run --example replicate`, then
//! `kubectl create configmap motd --from-literal=text=hello` and
//! `kubectl annotate configmap motd 'example.com/copy-to=*'`
use std::io::{IsTerminal, stderr};
use std::{collections::BTreeSet, process::ExitCode, sync::Arc};

use controller_machinery::controller::{Action, ErrorClass, ReconcileError};
use controller_machinery::manager::{Context, Manager};
use controller_machinery::object::{InternedStr, Kind, Meta, Object, Typed};
use controller_machinery::{identity::Identity, store::Store, view};
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::json;

type Config = Typed<ConfigMap>;

const COPY_TO: &str = "example.com/copy-to";
/// The label of a copy.
const COPY_OF: &str = "example.com/copy-of";
const FINALIZER: &str = "example.com/copies";

/// A namespace, of which only the metadata is read.
#[derive(Debug, serde::Deserialize)]
struct Namespace {
    metadata: Meta,
}

view!(Namespace: Kind::cluster_scoped("", "v1", "Namespace", "namespaces"));

/// Returns the namespaces to which a ConfigMap is copied.
fn targets(config: &Config, namespaces: &Store<Namespace>) -> BTreeSet<InternedStr> {
    let Some(to) = config.meta().annotations.get(COPY_TO) else { return BTreeSet::new() };
    let is_named = |name: &str| *to == *"*" || to.split(',').any(|it| it.trim() == name);
    let all = namespaces.list().into_iter().filter(|it| !it.metadata.is_terminating);
    let names = all.map(|it| it.metadata.key.name().clone());
    names.filter(|name| is_named(name) && name != config.key().namespace()).collect()
}

async fn reconcile(config: Arc<Config>, cx: Context<Config>) -> Result<Action, ReconcileError> {
    let targets = targets(&config, &cx.store::<Namespace>()?);
    if !targets.is_empty() {
        cx.add_finalizer(FINALIZER).await?;
    }
    cx.prune::<Config>(|copy| targets.contains(copy.key().namespace())).await?;
    if targets.is_empty() {
        cx.remove_finalizer(FINALIZER).await?;
    }
    let mut problems = Vec::new();
    for namespace in &targets {
        let metadata = json!({"name": cx.key().name(), "namespace": namespace});
        let (data, binary) = (&config.data, &config.binary_data);
        let copy = json!({"metadata": metadata, "data": data, "binaryData": binary});
        match cx.ensure::<Config>(copy).await {
            // The API server is unreachable, so the other copies would fail, too.
            Err(problem) if problem.class() == ErrorClass::Transient => return Err(problem),
            copied => problems.extend(copied.err()),
        }
    }
    ReconcileError::all(problems).map(|()| Action::Done)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let colors = stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    tracing_subscriber::fmt().with_writer(stderr).with_ansi(colors).init();
    Manager::new(Identity::new("replicate", "example.com"))
        .controller::<Config>()
        .owns_labelled::<Config>(COPY_OF)
        .watches_with::<Namespace, _>(|parts| {
            let configs = parts.store::<Config>()?;
            Ok(move |_: &Namespace| {
                let all = configs.list().into_iter();
                let sources = all.filter(|it| it.meta().annotations.get(COPY_TO).is_some());
                sources.map(|it| it.key().clone()).collect()
            })
        })
        .cleanup(FINALIZER, async |_, cx| cx.prune::<Config>(|_| false).await)
        .run(reconcile)
        .await
}
