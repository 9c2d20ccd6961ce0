//! The operator on an API server in memory.

use std::sync::{Arc, LazyLock};

use clap::Parser;
use controller_machinery::testing::{Cluster, Id, PodState, Server, condition};
use serde_json::{Value, json};
use workload_operator::cli::Cli;
use workload_operator::crds;
use workload_operator::identity::Identity;
use workload_operator::manager::Manager;
use workload_operator::memcached::Pace;
use workload_operator::operator::add_controllers;

pub use crate::kind::*;

pub const NAMESPACE: &str = "shop";
pub const MEMCACHED_IMAGE: &str = "memcached:1.6.38-alpine";

pub const IDENTITY: Identity = Identity::new("workload-operator", "workload-operator.example.com");

pub static CRDS: LazyLock<Vec<String>> =
    LazyLock::new(|| crds::crds().iter().map(|crd| json!(crd).to_string()).collect());

/// An API server with the CRDs, three nodes, of which two have the label `logs`, and Kubernetes' controllers.
pub struct World {
    pub server: Server,
    pub cluster: Cluster,
}

impl World {
    /// An empty one.
    pub fn new() -> World {
        let server = Server::new(1);
        server.set_variation(false);
        World::on(server)
    }

    /// One on this server.
    pub fn on(server: Server) -> World {
        CRDS.iter().for_each(|crd| server.crd(crd).unwrap());
        let cluster = Cluster::start(&server, 3);
        let world = World { server, cluster };
        for node in ["node-1", "node-2"] {
            world.patch(NODE, node, json!({"metadata": {"labels": {"logs": "yes"}}}));
        }
        world
    }

    /// Runs the operator until the test is done.
    pub async fn run<T>(&self, test: impl Future<Output = T>) -> T {
        let flags = format!("--memcached-image={MEMCACHED_IMAGE}");
        self.run_with(&[&flags], test).await
    }

    /// Runs the operator with these flags until the test is done.
    pub async fn run_with<T>(&self, flags: &[&str], test: impl Future<Output = T>) -> T {
        let flags = ["workload-operator"].iter().chain(flags);
        let args = Cli::parse_from(flags).run;
        let pace = Pace::new(args.max_image_rollouts.unwrap_or_default());
        let manager = add_controllers(Manager::new(IDENTITY), &args.workloads, &pace);
        self.server.run(manager, test).await
    }

    // === What a user does ===

    /// Creates an object.
    pub fn create(&self, kind: Kind, mut object: Value) -> Arc<Value> {
        object["apiVersion"] = json!(kind.api_version());
        object["kind"] = json!(kind.name());
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        self.server.create(&id(kind, &name), object).unwrap()
    }

    /// Merge-patches an object.
    pub fn patch(&self, kind: Kind, name: &str, patch: Value) {
        self.server.patch(&id(kind, name), &patch).unwrap();
    }

    /// Deletes an object.
    pub fn delete(&self, kind: Kind, name: &str) {
        self.server.delete(&id(kind, name));
    }

    /// Makes the pods whose name begins with this wait for a reason; an empty reason lets them run.
    pub fn pods_wait(&self, start: &str, reason: &str) {
        let (start, reason) = (start.to_owned(), reason.to_owned());
        self.cluster.pods_are(move |pod| {
            let is_one = pod["metadata"]["name"].as_str().unwrap().starts_with(&start);
            match is_one && !reason.is_empty() {
                true => PodState::Waiting { reason: reason.clone(), message: String::new() },
                false => PodState::Ready,
            }
        });
    }

    // === What a user sees ===

    pub fn get(&self, kind: Kind, name: &str) -> Option<Arc<Value>> {
        self.server.get(&id(kind, name))
    }

    pub fn list(&self, kind: Kind) -> Vec<Arc<Value>> {
        self.server.objects(&id(kind, "").resource).into_iter().map(|(_, object)| object).collect()
    }

    pub async fn until(
        &self,
        kind: Kind,
        name: &str,
        wanted: impl FnMut(&Value) -> bool,
    ) -> Arc<Value> {
        self.server.until(&id(kind, name), wanted).await
    }

    /// Waits until a condition has this status and reason for the newest generation. Returns its message.
    pub async fn until_condition(
        &self,
        kind: Kind,
        name: &str,
        condition: &str,
        (status, reason): (&str, &str),
    ) -> String {
        let is_so = |object: &Value| {
            has_condition(object, condition, status)
                && self::condition(object, condition).is_some_and(|it| it["reason"] == reason)
        };
        let object = self.until(kind, name, is_so).await;
        self::condition(&object, condition).unwrap()["message"].as_str().unwrap().to_owned()
    }

    /// Waits for an Event about an object with this reason. Returns it.
    pub async fn until_event(&self, kind: Kind, name: &str, reason: &str) -> Arc<Value> {
        loop {
            let events = self.server.events(&id(kind, name));
            if let Some(event) = events.into_iter().find(|event| event["reason"] == reason) {
                return event;
            }
            tokio::time::sleep(controller_machinery::testing::LATENCY).await;
        }
    }
}

pub fn id(kind: Kind, name: &str) -> Id {
    let root = if kind.group().is_empty() { "/api" } else { "/apis" };
    let namespace = if kind == NODE { "" } else { NAMESPACE };
    Id::new(format!("{root}/{}/{}", kind.api_version(), kind.plural()), namespace, name)
}

pub fn conditions(object: &Value) -> impl Iterator<Item = &Value> {
    object["status"]["conditions"].as_array().into_iter().flatten()
}

/// Returns whether a condition has this status, for the object's newest generation.
pub fn has_condition(object: &Value, kind: &str, status: &str) -> bool {
    condition(object, kind).is_some_and(|found| {
        found["status"] == status && found["observedGeneration"] == object["metadata"]["generation"]
    })
}

/// Returns whether the object is Ready, for its newest generation.
pub fn is_ready(object: &Value) -> bool {
    has_condition(object, "Ready", "True")
}
