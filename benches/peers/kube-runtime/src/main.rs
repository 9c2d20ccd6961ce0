//! Peer: the Foo controller on kube-runtime, tuned as its documentation recommends.
//!
//! - Lists in pages of 50.
//! - What no reconcile needs is dropped before caching: managedFields, pod templates.
//! - Each watch backs off on its own; status changes of a Foo do not trigger it again.
//! - As many concurrent reconciles as there are workers; debounce is off.
//! - mimalloc allocates its memory, as in the operator's own programs.
//! - One cache of Deployments, shared by the trigger and the lookup. Nothing is decided before it
//!   is complete; otherwise each start would try to create what already exists.

use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use futures::StreamExt;
use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec};
use k8s_openapi::api::core::v1::{Container, PodSpec, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use kube::api::{Patch, PatchParams, PostParams};
use kube::runtime::controller::{Action, Config, Controller};
use kube::runtime::reflector::{self, ObjectRef, Store};
use kube::runtime::{WatchStreamExt, predicates, watcher};
use kube::{Api, Client, CustomResource, Resource, ResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::sync::OnceCell;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const MANAGER: &str = "kube-runtime-peer";
/// kube-runtime's advice for controllers that care about memory.
const PAGE_SIZE: u32 = 50;

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "samplecontroller.k8s.io", version = "v1alpha1", kind = "Foo")]
#[kube(namespaced, status = "FooStatus")]
#[serde(rename_all = "camelCase")]
struct FooSpec {
    deployment_name: Option<String>,
    replicas: Option<i32>,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct FooStatus {
    available_replicas: Option<i32>,
}

#[derive(Parser)]
struct Options {
    /// Path to a kubeconfig.
    #[arg(long, env = "KUBECONFIG")]
    kubeconfig: std::path::PathBuf,
    /// Foos that are worked on at once.
    #[arg(long, default_value_t = 8)]
    workers: u16,
    /// Write no status that is there already.
    #[arg(long)]
    skip_unchanged: bool,
}

#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("request failed: {0}")]
    Request(#[from] kube::Error),
    #[error("deployment {0} is not managed by Foo")]
    NotOurs(String),
    #[error("the cache of Deployments is gone: {0}")]
    NoCache(#[from] reflector::store::WriterDropped),
}

struct Context {
    client: Client,
    deployments: Store<Deployment>,
    /// Waits for the first list, once for all tasks: of several that wait on a store itself, only
    /// the last is woken (kube-runtime 5.0.0).
    deployments_ready: OnceCell<()>,
    skip_unchanged: bool,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    tracing_subscriber::fmt().with_ansi(false).init();
    let options = Options::parse();
    let kubeconfig = kube::config::Kubeconfig::read_from(&options.kubeconfig)?;
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &Default::default()).await?;
    let client = Client::try_from(config)?;

    let lists = watcher::Config::default().page_size(PAGE_SIZE);
    let (foos, foo_writer) = reflector::store::<Foo>();
    let (deployments, deployment_writer) = reflector::store::<Deployment>();
    let foo_stream = watcher(Api::<Foo>::all(client.clone()), lists.clone())
        .default_backoff()
        .modify(|foo| foo.managed_fields_mut().clear())
        .reflect(foo_writer)
        .applied_objects()
        .predicate_filter(predicates::generation, Default::default());
    let deployment_stream = watcher(Api::<Deployment>::all(client.clone()), lists)
        .default_backoff()
        .modify(prune)
        .reflect(deployment_writer)
        .touched_objects();

    let context = Arc::new(Context {
        client,
        deployments,
        deployments_ready: OnceCell::new(),
        skip_unchanged: options.skip_unchanged,
    });
    Controller::for_stream(foo_stream, foos)
        .owns_stream(deployment_stream)
        .with_config(Config::default().concurrency(options.workers))
        .shutdown_on_signal()
        .run(reconcile, retry, context)
        .for_each(|_| std::future::ready(()))
        .await;
    Ok(())
}

/// Drops what a reconcile does not read; it reads a Deployment's replicas, availability and owner.
fn prune(deployment: &mut Deployment) {
    deployment.managed_fields_mut().clear();
    if let Some(spec) = &mut deployment.spec {
        spec.template = PodTemplateSpec::default();
    }
}

async fn reconcile(foo: Arc<Foo>, context: Arc<Context>) -> Result<Action, Error> {
    let Some(name) = foo.spec.deployment_name.as_deref().filter(|name| !name.is_empty()) else {
        return Ok(Action::await_change());
    };
    context.deployments_ready.get_or_try_init(|| context.deployments.wait_until_ready()).await?;
    let namespace = foo.namespace().unwrap_or_default();
    let api = Api::<Deployment>::namespaced(context.client.clone(), &namespace);
    let cached = context.deployments.get(&ObjectRef::new(name).within(&namespace));
    let deployment = match cached {
        Some(deployment) => deployment,
        None => {
            let options = PostParams { field_manager: Some(MANAGER.into()), ..Default::default() };
            Arc::new(api.create(&options, &new_deployment(&foo, name)).await?)
        }
    };
    let owned = deployment
        .owner_references()
        .iter()
        .any(|owner| owner.controller == Some(true) && Some(&owner.uid) == foo.meta().uid.as_ref());
    if !owned {
        return Err(Error::NotOurs(name.to_owned()));
    }
    let have = deployment.spec.as_ref().and_then(|spec| spec.replicas);
    let options = PatchParams { field_manager: Some(MANAGER.into()), ..Default::default() };
    if foo.spec.replicas.is_some() && foo.spec.replicas != have {
        let patch = Patch::Merge(json!({ "spec": { "replicas": foo.spec.replicas } }));
        api.patch(name, &options, &patch).await?;
    }
    let available =
        deployment.status.as_ref().and_then(|status| status.available_replicas).unwrap_or(0);
    let have = foo.status.as_ref().and_then(|status| status.available_replicas);
    if !context.skip_unchanged || have != Some(available) {
        let patch = Patch::Merge(json!({ "status": { "availableReplicas": available } }));
        let api = Api::<Foo>::namespaced(context.client.clone(), &namespace);
        api.patch_status(&foo.name_any(), &options, &patch).await?;
    }
    Ok(Action::await_change())
}

/// kube-runtime has no backoff per object; its examples use a constant.
fn retry(_: Arc<Foo>, error: &Error, _: Arc<Context>) -> Action {
    tracing::warn!(%error, "reconcile failed");
    Action::requeue(Duration::from_secs(1))
}

fn new_deployment(foo: &Foo, name: &str) -> Deployment {
    let labels =
        [("app".to_owned(), "nginx".to_owned()), ("controller".to_owned(), foo.name_any())];
    let labels = Some(labels.into_iter().collect());
    let nginx = Container {
        name: "nginx".to_owned(),
        image: Some("nginx:latest".to_owned()),
        ..Default::default()
    };
    Deployment {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            namespace: foo.namespace(),
            owner_references: foo.controller_owner_ref(&()).map(|owner| vec![owner]),
            ..Default::default()
        },
        spec: Some(DeploymentSpec {
            replicas: foo.spec.replicas,
            selector: LabelSelector { match_labels: labels.clone(), ..Default::default() },
            template: PodTemplateSpec {
                metadata: Some(ObjectMeta { labels, ..Default::default() }),
                spec: Some(PodSpec { containers: vec![nginx], ..Default::default() }),
            },
            ..Default::default()
        }),
        status: None,
    }
}
