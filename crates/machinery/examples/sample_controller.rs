//! Kubernetes' sample-controller, wired manually from the parts of this library, for comparison with the original.
//! Begin with `foo.rs`: it does the same with the manager, in a third of the lines.
//!
//! `kubectl apply -f artifacts/examples/foo-crd.yaml`, then `cargo run --example sample_controller`
use std::io::{IsTerminal, stderr};
use std::path::PathBuf;

use clap::Parser;
use controller_machinery::client::{
    self, Client, Deletion, Patch, Preconditions, PropagationPolicy,
};
use controller_machinery::controller::{
    Action, Controller, ExitError, Options, Program, ReconcileError,
};
use controller_machinery::controller::{Reconciler, enqueue};
use controller_machinery::events::{self, Recorder, Regarding, Type};
use controller_machinery::identity::Identity;
use controller_machinery::informer::Informer;
use controller_machinery::object::{InternedStr, Kind, Meta, Object, ObjectKey, Resource};
use controller_machinery::shutdown::Shutdown;
use controller_machinery::store::{Index, Store};
use controller_machinery::view;
use serde::Deserialize;
use serde_json::{Value, json};

// === What is read of a Foo and a Deployment; everything else is skipped during parsing. ===

#[derive(Debug, Deserialize)]
struct Foo {
    metadata: Meta,
    #[serde(default)]
    spec: FooSpec,
    #[serde(default)]
    status: Status,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct FooSpec {
    deployment_name: InternedStr,
    replicas: Option<i32>,
}

#[derive(Debug, Deserialize)]
struct Deployment {
    metadata: Meta,
    spec: DeploymentSpec,
    #[serde(default)]
    status: Status,
}

#[derive(Debug, Deserialize)]
struct DeploymentSpec {
    replicas: Option<i32>,
}

/// The status of a Deployment and of a Foo. The field is missing if no pods are available, or before the first
/// reconcile.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    available_replicas: Option<i32>,
}

view!(Foo: Kind::namespaced("samplecontroller.k8s.io", "v1alpha1", "Foo", "foos"));
view!(Deployment: Kind::namespaced("apps", "v1", "Deployment", "deployments"));

// === One reconcile. ===

struct FooReconciler {
    client: Client,
    recorder: Recorder,
    foos: Store<Foo>,
    deployments: Store<Deployment>,
}

impl Reconciler for FooReconciler {
    async fn reconcile(&self, key: &ObjectKey) -> Result<Action, ReconcileError> {
        // After a Foo is deleted, the garbage collector deletes its Deployment.
        let Some(foo) = self.foos.get(key).filter(|foo| !foo.metadata.is_terminating) else {
            return Ok(Action::Done);
        };
        let synced = self.sync(&foo).await;
        if let Err(problem) = &synced
            && let Some(reason) = problem.reason()
        {
            let (foo, note) = (Regarding::object(&*foo), problem.to_string());
            self.recorder.publish(&foo, Type::Warning, reason, "Sync", &note);
        }
        synced.map(|()| Action::Done)
    }
}

impl FooReconciler {
    async fn sync(&self, foo: &Foo) -> Result<(), ReconcileError> {
        let FooSpec { deployment_name: name, replicas } = &foo.spec;
        if name.is_empty() {
            let what = "spec.deploymentName is empty: set it to the name of the Foo's Deployment";
            return Err(ReconcileError::terminal("ErrUnnamed", what));
        }
        let key = foo.key().sibling(name.clone());
        let deployment = match self.deployments.get(&key) {
            None => self
                .deployments
                .apply_response(self.client.create(&key, &new_deployment(foo)).await?),
            Some(there) if !there.metadata.is_controlled_by(foo.uid()) => {
                return Err(ReconcileError::not_owned::<Foo, Deployment>(&key));
            }
            Some(there) if replicas.is_some() && *replicas != there.spec.replicas => {
                let uid = json!({ "uid": there.uid() }); // Not a later Deployment with the same name.
                let patch = json!({ "metadata": uid, "spec": { "replicas": replicas } });
                self.deployments
                    .apply_response(self.client.patch(&key, &Patch::Merge(&patch)).await?)
            }
            Some(there) => there,
        };
        self.remove_former(foo).await?;
        let available = Some(deployment.status.available_replicas.unwrap_or(0));
        if foo.status.available_replicas != available {
            let patch = json!({ "status": { "availableReplicas": available } });
            self.foos
                .apply_response(self.client.patch_status(foo.key(), &Patch::Merge(&patch)).await?);
        }
        Ok(())
    }

    /// Deletes the Deployments that the Foo had under earlier names.
    async fn remove_former(&self, foo: &Foo) -> Result<(), ReconcileError> {
        for former in self.deployments.controlled_by(foo)? {
            let Meta { key, uid, version, is_terminating, .. } = &former.metadata;
            if *is_terminating || *key.name() == foo.spec.deployment_name {
                continue;
            }
            let only = Preconditions { uid: *uid, version: *version };
            if self.client.delete::<Deployment>(key, only, PropagationPolicy::Background).await?
                == Deletion::Deleted
            {
                self.deployments.apply_delete(key, *uid);
            }
        }
        Ok(())
    }
}

fn new_deployment(foo: &Foo) -> Value {
    let labels = json!({ "app": "nginx", "controller": foo.key().name() });
    let mut metadata: Meta = Meta::named(foo.key().sibling(foo.spec.deployment_name.clone()));
    metadata.owner = Some(foo.as_owner().into());
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata,
        "spec": {
            "replicas": foo.spec.replicas,
            "selector": { "matchLabels": labels },
            "template": {
                "metadata": { "labels": labels },
                "spec": { "containers": [{ "name": "nginx", "image": "nginx:latest" }] },
            },
        },
    })
}

// === Wiring: event handlers and informers. ===

/// An allocator that is faster than the system's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Names the writer in `managedFields`, Events and the user agent.
const IDENTITY: Identity = Identity::new("sample-controller", "samplecontroller.k8s.io");

/// Runs a Deployment of nginx for each Foo.
#[derive(Parser)]
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
async fn main() -> Result<(), ExitError> {
    let colors = stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    tracing_subscriber::fmt().with_writer(stderr).with_ansi(colors).init();
    let Args { kubeconfig, workers, namespaces } = Args::parse();
    let config = client::config(kubeconfig.as_deref(), None).await?;
    let client = Client::new(config, client::Options::new(IDENTITY)).await?;
    let (recorder, sink) = events::new(IDENTITY, "foo");

    let mut program = Program::new();
    let foos = Informer::<Foo>::builder(client.clone()).namespaces(&namespaces);
    let foos = program.informer(foos);
    let deployments = Informer::<Deployment>::builder(client.clone()).namespaces(&namespaces);
    let deployments = program.informer(deployments.index(Index::by_controller::<Foo>()));
    let reconciler = FooReconciler {
        client: client.clone(),
        recorder,
        foos: foos.store(),
        deployments: deployments.store(),
    };
    let api_server_health = Some(client.api_server_health().clone());
    let controller = Controller::new(
        "foo",
        reconciler,
        Options { workers, api_server_health, ..Options::default() },
    );

    foos.handle(enqueue::for_object(controller.handle()));
    deployments.handle(enqueue::for_owner(controller.handle(), Foo::kind()));
    deployments.handle(enqueue::waiting_when_freed(controller.handle()));

    let program = program.controller(controller).task("the sink of Events", |stop| async move {
        sink.run(client, stop.requested()).await;
    });
    Ok(program.run(Shutdown::from_signals()?).await?)
}
