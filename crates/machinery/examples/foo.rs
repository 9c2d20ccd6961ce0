//! Kubernetes' sample-controller on this library. Runs a Deployment of nginx for each Foo and writes the number of
//! available pods to its status. docs/YOUR_OWN_CONTROLLER.md explains it.
//!
//! `kubectl apply -f artifacts/examples/foo-crd.yaml`, then `cargo run --example foo`
use std::io::{IsTerminal, stderr};
use std::{path::PathBuf, process::ExitCode, sync::Arc};

use controller_machinery::controller::{Action, ReconcileError};
use controller_machinery::manager::{Context, Manager};
use controller_machinery::object::{InternedStr, Kind, Meta};
use controller_machinery::view;
use serde::{Deserialize, Serialize};
use serde_json::json;

// The fields read of a Foo and a Deployment; everything else is skipped while it is parsed.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Foo {
    metadata: Meta,
    spec: Spec,
    status: Status,
}

#[derive(Debug, Serialize, Deserialize)]
struct Deployment {
    metadata: Meta,
    spec: Spec,
    #[serde(default)]
    status: Status,
}

/// Of both; a Deployment has no `deploymentName`.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    deployment_name: InternedStr,
    replicas: Option<i32>,
}

/// Of both. A Deployment without available pods omits the field; so does a Foo not yet reconciled.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    available_replicas: Option<i32>,
}

view!(Foo: Kind::namespaced("samplecontroller.k8s.io", "v1alpha1", "Foo", "foos"));
view!(Deployment: Kind::namespaced("apps", "v1", "Deployment", "deployments"));

/// One reconcile: brings a Foo's Deployment and its status to what they should be.
async fn reconcile(foo: Arc<Foo>, cx: Context<Foo>) -> Result<Action, ReconcileError> {
    let Spec { deployment_name: name, replicas } = &foo.spec;
    if name.is_empty() {
        let what = "spec.deploymentName is empty: set it to the name of the Foo's Deployment";
        return Err(ReconcileError::terminal("ErrUnnamed", what));
    }
    let labels = json!({"app": "nginx", "controller": cx.key().name()});
    let pod = json!({"containers": [{"name": "nginx", "image": "nginx:latest"}]});
    let template = json!({"metadata": {"labels": labels}, "spec": pod});
    let selector = json!({"matchLabels": labels});
    let spec = json!({"selector": selector, "replicas": replicas, "template": template});
    let child = cx.ensure::<Deployment>(json!({"metadata": {"name": name}, "spec": spec})).await?;
    // Keeps the Deployment with this name, and deletes those with earlier names.
    cx.prune::<Deployment>(|child| child.metadata.key.name() == name).await?;
    let available = child.status.available_replicas.unwrap_or(0);
    cx.patch_status(json!({"availableReplicas": available})).await?;
    Ok(Action::Done)
}

/// An allocator that is faster than the system's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Runs a Deployment of nginx for each Foo.
#[derive(clap::Parser)]
struct Args {
    /// The kubeconfig; else KUBECONFIG, ~/.kube/config, or the pod's ServiceAccount.
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
    /// Number of Foos that are reconciled at the same time.
    #[arg(long, default_value_t = 2)]
    workers: usize,
    /// Watch this namespace only (can be repeated).
    #[arg(long = "namespace")]
    namespaces: Vec<String>,
}

// One thread is enough: a reconcile computes for microseconds and waits for milliseconds.
#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let colors = stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    tracing_subscriber::fmt().with_writer(stderr).with_ansi(colors).init();
    let args: Args = clap::Parser::parse();
    let manager = Manager::new("foo").kubeconfig(args.kubeconfig).namespaces(args.namespaces);
    manager.controller::<Foo>().workers(args.workers).owns::<Deployment>().run(reconcile).await
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use controller_machinery::testing::{Cluster, Fault, Id, Server, seeds};

    use super::*;

    fn manager() -> Manager {
        Manager::new("foo").controller::<Foo>().owns::<Deployment>().reconcile(reconcile)
    }

    /// Creates a Foo. Returns the names of it and of the Deployment that it asks for.
    fn foo_on(server: &Server) -> (Id, Id) {
        let foo = Id::new("/apis/samplecontroller.k8s.io/v1alpha1/foos", "ns", "a");
        server.put(&foo, json!({"spec": {"deploymentName": "web", "replicas": 2}}));
        (foo, Id::new("/apis/apps/v1/deployments", "ns", "web"))
    }

    #[tokio::test(start_paused = true)]
    async fn a_deployment_is_created_once_and_restored_after_scaling() {
        let server = Server::new(1);
        let (foo, deployment) = foo_on(&server);
        let _cluster = Cluster::start(&server, 3);
        let test = async {
            server.until(&foo, |it| it["status"]["availableReplicas"] == 2).await;
            server.settled(Duration::from_secs(60)).await;
            let writes: Vec<_> = server.writes().into_iter().map(|write| write.uri).collect();
            assert_eq!(writes.len(), 3, "the Deployment, then a status of 0 and of 2: {writes:?}");
            server.patch(&deployment, &json!({"spec": {"replicas": 7}})).unwrap();
            server.until(&deployment, |it| it["spec"]["replicas"] == 2).await;
        };
        server.run(manager(), test).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_lost_response_and_a_restart_lose_nothing() {
        let server = Server::new(1);
        let (foo, deployment) = foo_on(&server);
        server.fault("patch", &deployment.resource, 1, Fault::LostResponse);
        server.run(manager(), server.until(&deployment, |it| it["spec"]["replicas"] == 2)).await;
        server.patch(&foo, &json!({"spec": {"replicas": 3}})).unwrap();
        server.run(manager(), server.until(&deployment, |it| it["spec"]["replicas"] == 3)).await;
    }

    #[test]
    fn after_any_faults_the_desired_state_is_reached() {
        seeds(1_000, async |server| {
            let (foo, deployment) = foo_on(&server);
            let test = async {
                tokio::time::sleep(Duration::from_secs(60)).await;
                server.patch(&foo, &json!({"spec": {"deploymentName": "other"}})).unwrap();
                tokio::time::sleep(Duration::from_secs(10)).await;
            };
            server.run(manager(), test).await;
            let other = Id { name: "other".to_owned(), ..deployment.clone() };
            let test = async {
                tokio::time::sleep(Duration::from_secs(60)).await;
                server.clear_faults();
                server.until(&other, |it| it["spec"]["replicas"] == 2).await;
                server.settled(Duration::from_secs(60)).await;
                assert!(server.get(&deployment).is_none(), "the one under the earlier name went");
            };
            server.run(manager(), test).await;
        });
    }
}
