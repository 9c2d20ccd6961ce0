//! The kind that the tests cache.

use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};
use workload_operator::client::{Client, Options};
use workload_operator::informer::Informer;
use workload_operator::object::{AllMetadata, Kind, Meta, Object, ObjectKey};
use workload_operator::shutdown::Shutdown;

use controller_machinery::testing::{Id, Server};

/// The collection of all things.
pub(crate) const THINGS: &str = "/apis/test.example.com/v1/things";

#[derive(Debug, Deserialize)]
pub(crate) struct Thing {
    metadata: Meta<AllMetadata>,
    pub(crate) spec: Spec,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Spec {
    pub(crate) value: i64,
}

workload_operator::view!(Thing { metadata: Meta<AllMetadata> }: Kind::namespaced("test.example.com", "v1", "Thing", "things"));

impl Thing {
    pub(crate) fn version(&self) -> u64 {
        self.metadata.version.number().expect("the model sends numbers")
    }
}

pub(crate) fn id(namespace: &str, name: &str) -> Id {
    Id { resource: THINGS.into(), namespace: namespace.into(), name: name.into() }
}

pub(crate) fn key(id: &Id) -> ObjectKey {
    ObjectKey::new(&*id.namespace, &*id.name)
}

pub(crate) fn thing(value: i64) -> Value {
    json!({ "apiVersion": "test.example.com/v1", "kind": "Thing", "spec": { "value": value } })
}

/// A thing that does not decode.
pub(crate) fn poison() -> Value {
    json!({ "apiVersion": "test.example.com/v1", "kind": "Thing", "spec": { "value": "poison" } })
}

pub(crate) fn client(model: &Server) -> Client {
    Client::from_service(model.clone(), Options::default())
}

/// An informer of all things that runs until the test ends.
pub(crate) fn informer(model: &Server) -> Informer<Thing> {
    run(Informer::builder(client(model)).build())
}

pub(crate) fn run(informer: Informer<Thing>) -> Informer<Thing> {
    let running = informer.clone();
    tokio::spawn(async move { running.run(Shutdown::manual()).await.expect("it runs on") });
    informer
}

/// Lets virtual time pass.
pub(crate) async fn pass(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

/// Waits, in virtual time, until `so` holds; panics after ten minutes.
pub(crate) async fn until(what: &str, mut so: impl FnMut() -> bool) {
    let begun = tokio::time::Instant::now();
    while !so() {
        assert!(begun.elapsed() < Duration::from_secs(600), "never: {what}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Returns the content of the store, in the same form as [`served`].
pub(crate) fn held(informer: &Informer<Thing>) -> Vec<(String, u64)> {
    let objects: Vec<Arc<Thing>> = informer.store().list();
    let mut all: Vec<_> = objects.iter().map(|o| (o.key().to_string(), o.version())).collect();
    all.sort();
    all
}

pub(crate) fn served(model: &Server) -> Vec<(String, u64)> {
    let version = |object: &Value| object["metadata"]["resourceVersion"].as_str()?.parse().ok();
    let objects = model.objects(THINGS);
    let mut all: Vec<_> = objects
        .iter()
        .map(|(id, o)| (key(id).to_string(), version(o).expect("the model sets it")))
        .collect();
    all.sort();
    all
}
