//! A controller of Websites. Each has a ConfigMap with its page, a Deployment of nginx that serves the page, a Service,
//! and a HorizontalPodAutoscaler if `maxReplicas` is greater than 1. Several Websites can share a ConfigMap with a
//! style sheet. Until it is deleted, each Website is listed in an external directory, here a folder.
//!
//! `kubectl apply -f artifacts/examples/website-crd.yaml`, then
//! `cargo run --example website -- --directory /tmp`
use std::io::{IsTerminal, stderr};
use std::{path::PathBuf, process::ExitCode, sync::Arc, time::Duration};

use clap::Parser;
use controller_machinery::controller::{Action, ReconcileError};
use controller_machinery::manager::{Condition, Context, Manager};
use controller_machinery::object::{InternedStr, Kind, Meta, ObjectKey};
use controller_machinery::{identity::Identity, view};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

#[derive(Debug, Serialize, Deserialize)]
struct Website {
    metadata: Meta,
    spec: WebsiteSpec,
    #[serde(default)]
    status: WebsiteStatus,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct WebsiteSpec {
    page: String,
    theme: Option<InternedStr>,
    max_replicas: i32,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WebsiteStatus {
    available_replicas: Option<i64>,
    conditions: Vec<Condition>,
}

/// A child, of which the spec is read as it is.
macro_rules! child {
    ($name:ident, $($kind:expr),*) => {
        #[derive(Debug, Serialize, Deserialize)]
        struct $name {
            metadata: Meta,
            #[serde(default)]
            spec: Value,
            #[serde(default)]
            data: Value,
            #[serde(default)]
            status: Value,
        }
        view!($name: Kind::namespaced($($kind),*));
    };
}

view!(Website: Kind::namespaced("example.com", "v1", "Website", "websites"));
child!(ConfigMap, "", "v1", "ConfigMap", "configmaps");
child!(Deployment, "apps", "v1", "Deployment", "deployments");
child!(Service, "", "v1", "Service", "services");
child!(Autoscaler, "autoscaling", "v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers");

/// Returns the key of the ConfigMap with the style sheet, if the Website has one.
fn theme(site: &Website) -> Option<ObjectKey> {
    Some(site.metadata.key.sibling(site.spec.theme.clone()?))
}

struct Directory(PathBuf);

impl Directory {
    /// Adds or removes the entry of a Website. A failure is retried.
    async fn announce(&self, site: &Website, is_there: bool) -> Result<(), ReconcileError> {
        let Meta { key, .. } = &site.metadata;
        let file = self.0.join(format!("{}.{}", key.name(), key.namespace()));
        let done = match is_there {
            true => match tokio::fs::read_to_string(&file).await {
                Ok(there) if there == site.spec.page => Ok(()),
                _ => tokio::fs::write(&file, &site.spec.page).await,
            },
            false => tokio::fs::remove_file(&file).await.or_else(|error| match error.kind() {
                std::io::ErrorKind::NotFound => Ok(()), // A cleanup can run twice.
                _ => Err(error),
            }),
        };
        done.map_err(|error| {
            ReconcileError::transient("ErrDirectory", format!("{file:?}: {error}"))
        })
    }
}

/// Brings the children to what they should be; returns how many pods are available.
async fn reconcile(site: &Website, cx: &Context<Website>) -> Result<i64, ReconcileError> {
    let (name, labels) = (cx.key().name(), json!({"website": cx.key().name()}));
    let style = match theme(site) {
        None => Value::Null,
        Some(key) => match cx.get::<ConfigMap>(&key)? {
            Some(theme) => theme.data["css"].clone(),
            None => {
                let what = format!("the ConfigMap {:?} with the theme does not exist", key.name());
                return Err(ReconcileError::terminal("ErrNoTheme", what)); // Its creation enqueues this Website.
            }
        },
    };
    let data = json!({"index.html": site.spec.page, "style.css": style});
    cx.ensure::<ConfigMap>(json!({"metadata": {"name": name}, "data": data})).await?;
    let growing = site.spec.max_replicas > 1;
    let mount = json!({"name": "page", "mountPath": "/usr/share/nginx/html"});
    let container = json!({"name": "nginx", "image": "nginx:1.29", "volumeMounts": [mount]});
    let volume = json!({"name": "page", "configMap": {"name": name}});
    let deployment = json!({"metadata": {"name": name}, "spec": {
        "replicas": (!growing).then_some(1), // Otherwise, the autoscaler sets it.
        "selector": {"matchLabels": labels},
        "template": {
            "metadata": {"labels": labels},
            "spec": {"containers": [container], "volumes": [volume]},
        },
    }});
    let deployment = cx.ensure::<Deployment>(deployment).await?;
    let spec = json!({"selector": labels, "ports": [{"port": 80}]});
    cx.ensure::<Service>(json!({"metadata": {"name": name}, "spec": spec})).await?;
    if growing {
        let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": name});
        let spec = json!({"maxReplicas": site.spec.max_replicas, "scaleTargetRef": target});
        cx.ensure::<Autoscaler>(json!({"metadata": {"name": name}, "spec": spec})).await?;
    }
    cx.prune::<Autoscaler>(|_| growing).await?;
    Ok(deployment.status["availableReplicas"].as_i64().unwrap_or(0))
}

/// Reconciles a Website and writes the outcome to its status.
async fn reported(
    site: Arc<Website>,
    cx: Context<Website>,
    directory: Arc<Directory>,
) -> Result<Action, ReconcileError> {
    let (children, announced) =
        (reconcile(&site, &cx).await, directory.announce(&site, true).await);
    // After a problem, the pods serve as before.
    let available = children.as_ref().ok().copied().or(site.status.available_replicas).unwrap_or(0);
    let outcome = children.and_then(|available| announced.map(|()| available));
    let (is_ready, reason, message) = match &outcome {
        Ok(0) => (false, "Starting", "no pod is available yet".to_owned()),
        Ok(_) => (true, "Serving", String::new()),
        Err(problem) => match problem.reason() {
            Some(reason) => (false, reason, problem.to_string()),
            None => return outcome.map(|_| Action::Done),
        },
    };
    let former = &site.status.conditions;
    let ready = Condition::new(&*site, former, "Ready", is_ready, reason, message);
    cx.patch_status(json!({"availableReplicas": available, "conditions": [ready]})).await?;
    // No watch reports changes of the directory, so the entry is checked once a minute.
    outcome.map(|_| Action::RequeueAfter(Duration::from_secs(60)))
}

/// Runs websites.
#[derive(Parser)]
struct Args {
    /// The kubeconfig; else KUBECONFIG, ~/.kube/config, or the pod's ServiceAccount.
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
    /// The folder that lists the websites.
    #[arg(long)]
    directory: PathBuf,
    /// Watch this namespace only (can be repeated).
    #[arg(long = "namespace")]
    namespaces: Vec<String>,
}

#[tokio::main]
async fn main() -> ExitCode {
    let colors = stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    tracing_subscriber::fmt().with_writer(stderr).with_ansi(colors).init();
    let Args { kubeconfig, directory, namespaces } = Args::parse();
    let directory = Arc::new(Directory(directory));
    let listed = directory.clone();
    Manager::new(Identity::new("website", "example.com"))
        .kubeconfig(kubeconfig)
        .namespaces(namespaces)
        .controller::<Website>()
        .conditions(["Ready"])
        .owns::<ConfigMap>()
        .owns::<Deployment>()
        .owns::<Service>()
        .owns::<Autoscaler>()
        .references::<ConfigMap>(|site| theme(site).into_iter().collect())
        .finalizer("example.com/website", move |site, _| {
            let listed = listed.clone();
            async move { listed.announce(&site, false).await }
        })
        .run(move |site, cx| reported(site, cx, directory.clone()))
        .await
}
