//! A Deployment as an API server sends it, and a view of it.

#![allow(dead_code)] // The fields that a view keeps are what is measured.

use std::convert::Infallible;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::StreamBody;
use hyper::body::Frame;
use serde::{Deserialize, Serialize};
use tower::service_fn;
use workload_operator::client::{Client, Options};
use workload_operator::object::{InternedStr, Kind, Labels, Meta, MetadataFilter};

/// Keeps what a controller compares: the labels, but no annotations.
#[derive(Debug, Clone)]
pub(crate) enum Kept {}

impl MetadataFilter for Kept {
    fn label(_: &str) -> bool {
        true
    }
    fn annotation(_: &str) -> bool {
        false
    }
}

/// Roughly what a controller reads of a Deployment.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Deployment {
    metadata: Meta<Kept>,
    spec: Spec,
    #[serde(default)]
    status: Status,
}

#[derive(Debug, Serialize, Deserialize)]
struct Spec {
    replicas: Option<i32>,
    selector: Selector,
    template: Template,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Selector {
    match_labels: Labels,
}

#[derive(Debug, Serialize, Deserialize)]
struct Template {
    spec: PodSpec,
}

#[derive(Debug, Serialize, Deserialize)]
struct PodSpec {
    containers: Box<[Container]>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Container {
    name: InternedStr,
    image: InternedStr,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    observed_generation: i64,
    replicas: i32,
    available_replicas: i32,
}

/// What owns it.
#[derive(Debug, Deserialize)]
pub(crate) struct Namespace {
    metadata: Meta,
}

workload_operator::view!(Namespace: Kind::cluster_scoped("", "v1", "Namespace", "namespaces"));
workload_operator::view!(Deployment { metadata: Meta<Kept> }: Kind::namespaced("apps", "v1", "Deployment", "deployments"));

/// The JSON of the `i`th Deployment, as kube-apiserver 1.36 sends one created by sample-controller:
/// two managers, conditions, everything defaulted.
pub(crate) fn json(i: usize, version: u64) -> String {
    const TEMPLATE: &str = include_str!("deployment.json");
    TEMPLATE
        .replace("@NAME", &format!("deployment-{i:05}"))
        .replace("@UID", &format!("{i:08x}-0000-4000-8000-000000000000"))
        .replace("@VERSION", &version.to_string())
        .replace('\n', "")
}

/// The JSON of a list of `count` Deployments.
pub(crate) fn list(count: usize) -> Bytes {
    let items: Vec<String> = (0..count).map(|i| json(i, 1 + i as u64)).collect();
    let head = r#"{"kind":"DeploymentList","apiVersion":"apps/v1","metadata":{"resourceVersion":"#;
    format!(r#"{head}"{}"}},"items":[{}]}}"#, count + 1, items.join(",")).into()
}

/// The frames of a watch that shows `count` changes, at versions from `first` on.
pub(crate) fn watch(count: usize, first: u64) -> Bytes {
    let frame =
        |i: usize| format!("{{\"type\":\"MODIFIED\",\"object\":{}}}\n", json(i, first + i as u64));
    (0..count).map(frame).collect::<String>().into()
}

/// A client whose server answers everything with `body`, in pieces of `piece` bytes.
pub(crate) fn client(body: &Bytes, piece: usize) -> Client {
    let pieces: Vec<Bytes> = (0..body.len())
        .step_by(piece)
        .map(|at| body.slice(at..body.len().min(at + piece)))
        .collect();
    let service = service_fn(move |_: Request<Bytes>| {
        let pieces = pieces.clone();
        async move {
            let frames = pieces.into_iter().map(|piece| Ok::<_, Infallible>(Frame::data(piece)));
            Ok::<_, Infallible>(Response::new(StreamBody::new(futures::stream::iter(frames))))
        }
    });
    Client::from_service(service, Options::default())
}
