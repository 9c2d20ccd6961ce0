//! A controller of a built-in, cluster-scoped kind. Sets the Pod Security level `baseline` on every Namespace without a
//! level, and publishes an Event.
//!
//! `cargo run --example pod_security`, or with a label selector: `… -- team=web`
use std::io::{IsTerminal, stderr};
use std::{process::ExitCode, sync::Arc};

use controller_machinery::controller::{Action, ReconcileError};
use controller_machinery::events::Type;
use controller_machinery::manager::{Context, Manager};
use controller_machinery::object::{Kind, Meta, MetadataFilter};
use controller_machinery::{identity::Identity, view};
use serde::{Deserialize, Serialize};
use serde_json::json;

const LEVEL: &str = "pod-security.kubernetes.io/enforce";

/// The only label of a Namespace that is kept.
#[derive(Debug, Clone)]
enum Level {}

impl MetadataFilter for Level {
    fn label(key: &str) -> bool {
        key == LEVEL
    }
    fn annotation(_: &str) -> bool {
        false
    }
}

#[derive(Debug, Serialize, Deserialize)]
struct Namespace {
    metadata: Meta<Level>,
}

view!(Namespace { metadata: Meta<Level> }: Kind::cluster_scoped("", "v1", "Namespace", "namespaces"));

async fn reconcile(
    namespace: Arc<Namespace>,
    cx: Context<Namespace>,
) -> Result<Action, ReconcileError> {
    let meta = &namespace.metadata;
    if meta.labels.get(LEVEL).is_none() && !meta.key.name().starts_with("kube-") {
        let uid = json!(meta.uid); // Not a later Namespace with the same name.
        // With the version as a precondition, the patch does not overwrite a level set in the meantime.
        let patch = json!({ "metadata": {
            "uid": uid, "resourceVersion": meta.version, "labels": { LEVEL: "baseline" },
        }});
        cx.merge_patch::<Namespace>(cx.key(), &patch).await?;
        cx.event(Type::Normal, "PodSecurity", "Enforcing the Pod Security level baseline");
    }
    Ok(Action::Done)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let colors = stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    tracing_subscriber::fmt().with_writer(stderr).with_ansi(colors).init();
    let manager = Manager::new(Identity::new("pod-security", "example.com"));
    let selector = std::env::args().nth(1).unwrap_or_default();
    let manager = manager.informer::<Namespace>(|all| all.labels(selector));
    manager.controller::<Namespace>().named("pod-security").run(reconcile).await
}
