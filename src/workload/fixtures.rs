//! Objects for tests.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tower::service_fn;

use super::child::{Child, ChildSpec, Desired};
use super::condition::{Condition, Status, Type};
use super::health::Health;
use super::labels::fnv1a;
use super::pod::Pod;
use super::reconciliation::Found;
use super::services::Service;
use super::{DaemonSet, Deployment};
use crate::client::{Client, Options};
use crate::events;
use crate::manager::{Context, ControllerBuilder, Manager};
use crate::object::{Resource, Uid};

/// A UID that ends in `n`.
pub(crate) fn uid(n: u8) -> Uid {
    format!("00000000-0000-4000-8000-0000000000{n:02x}").parse().unwrap()
}

/// A custom resource as the API server would return it, from a sample or any YAML.
pub(crate) fn custom<V: Resource>(yaml: &str) -> V {
    let mut object: Value = serde_yaml_ng::from_str(yaml).unwrap();
    let meta = object["metadata"].as_object_mut().unwrap();
    for (key, value) in [
        ("namespace", json!("default")),
        ("uid", json!(uid(1))),
        ("resourceVersion", json!("10")),
        ("generation", json!(1)),
    ] {
        meta.entry(key).or_insert(value);
    }
    serde_json::from_value(object).unwrap()
}

/// Findings about a workload that is as desired, if there is one.
pub(crate) fn found<S: ChildSpec>(workload: Option<&Child<S>>, health: Health) -> Found<'_, S> {
    Found { workload, is_as_desired: workload.is_some(), health, failure: None }
}

/// A child as the API server sends it after exactly `made` was applied for `parent`.
pub(crate) fn wire<S: ChildSpec, V: Resource>(parent: &V, made: &Desired<S>) -> Value {
    let (key, owner) = (parent.key(), parent.as_owner());
    let mut object = made.to_apply(key);
    object["metadata"]["namespace"] = json!(key.namespace());
    object["metadata"]["uid"] = json!(uid(99));
    object["metadata"]["ownerReferences"] = json!([owner]);
    object["metadata"]["resourceVersion"] = json!("20");
    object["metadata"]["generation"] = json!(1);
    object
}

/// `object` as the store contains it.
pub(crate) fn child<S: ChildSpec>(object: &Value) -> Child<S> {
    serde_json::from_value(object.clone()).unwrap()
}

/// The status of a Deployment with `n` replicas, all up to date and available.
pub(crate) fn rolled_out(n: i32) -> Value {
    let condition = |kind: &str, reason: &str| {
        json!({ "type": kind, "status": "True", "reason": reason, "message": "m",
                "lastTransitionTime": "2026-01-01T00:00:00Z" })
    };
    json!({
        "observedGeneration": 1, "replicas": n, "updatedReplicas": n, "readyReplicas": n,
        "availableReplicas": n,
        "conditions": [
            condition("Available", "MinimumReplicasAvailable"),
            condition("Progressing", "NewReplicaSetAvailable"),
        ],
    })
}

/// Status, reason and message of the condition of this type.
pub(crate) fn condition(conditions: &[Condition], kind: Type) -> Option<(Status, &str, &str)> {
    let condition = conditions.iter().find(|condition| condition.is(kind))?;
    Some((condition.status, &condition.reason, &condition.message))
}

/// Compares a pod template with its golden file; `UPDATE_GOLDEN=1` writes the file instead. The
/// file also holds the template's hash, which stands for the `pod-template-hash` of its pods: a
/// release that changes it restarts them.
pub(crate) fn assert_golden(file: &str, template: &Value) {
    let path = format!("{}/src/workload/golden/{file}", env!("CARGO_MANIFEST_DIR"));
    let hash = format!("{:016x}", fnv1a(template.to_string().as_bytes()));
    let now = json!({ "hash": hash, "template": template });
    let text = format!("{}\n", serde_json::to_string_pretty(&now).unwrap());
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    let before: Value = serde_json::from_str(&kept).unwrap_or_default();
    assert!(
        kept == text,
        "The pod template in src/workload/golden/{file} is another: it was {}, it is {hash}. Every \
         pod of this kind would be restarted by a release with this change, in all clusters at once.\n\
         - Not meant: take the change back. A new field must be left out where it says nothing new.\n\
         - Meant: say in CHANGELOG.md, under Changed, that the pods of this kind restart and why, and \
         write the file with UPDATE_GOLDEN=1 cargo test --lib\n\
         It is now:\n{text}",
        before["hash"]
    );
}

/// The requests: method, path and body of each.
pub(crate) type Requests = Arc<Mutex<Vec<(String, String, Value)>>>;

/// A client whose server answers each request with what `answer` returns for its body.
fn client(answer: fn(&Value) -> (u16, Value)) -> (Client, Requests) {
    let requests = Requests::default();
    let seen = requests.clone();
    let service = service_fn(move |request: Request<Bytes>| {
        let seen = seen.clone();
        async move {
            let (head, body) = request.into_parts();
            let body = serde_json::from_slice(&body).unwrap_or_default();
            let (code, answer) = answer(&body);
            seen.lock().push((head.method.to_string(), head.uri.path().to_owned(), body));
            let mut response = Response::new(answer.to_string());
            *response.status_mut() = code.try_into().unwrap();
            Ok::<_, Infallible>(response)
        }
    });
    (Client::from_service(service, Options::default()), requests)
}

/// The context of a reconcile of `object`, with a scripted API server.
pub(crate) fn context<V: super::Custom>(
    object: V,
    answer: fn(&Value) -> (u16, Value),
) -> (Context<V>, Requests) {
    let (recorder, _) = events::new("test", "here");
    context_with(object, answer, recorder, |controller| controller)
}

/// Like [`context`], with more declarations.
pub(crate) fn context_with<V: super::Custom>(
    object: V,
    answer: fn(&Value) -> (u16, Value),
    recorder: events::Recorder,
    declare: impl FnOnce(ControllerBuilder<V>) -> ControllerBuilder<V>,
) -> (Context<V>, Requests) {
    let (client, requests) = client(answer);
    let controller = Manager::new("workload-operator")
        .informer::<Pod>(|pods| pods.index(Pod::index()))
        .controller::<V>()
        .owns::<Deployment>()
        .owns::<DaemonSet>()
        .owns::<Service>()
        .reads::<Pod>()
        .conditions(Type::NAMES);
    let controller = declare(controller);
    (controller.context(client, recorder, object).unwrap(), requests)
}

/// A context in which `made` was applied, and the resulting object of the API server.
pub(crate) async fn applied<V: super::Custom, S: ChildSpec>(
    object: V,
    made: &Desired<S>,
) -> (Context<V>, Value) {
    let echo = |body: &Value| {
        let mut answer = body.clone();
        answer["metadata"]["uid"] = json!(uid(99));
        answer["metadata"]["resourceVersion"] = json!("20");
        answer["metadata"]["generation"] = json!(1);
        (200, answer)
    };
    let (cx, requests) = context(object, echo);
    made.ensure(&cx).await.unwrap();
    let (_, _, body) = requests.lock().pop().unwrap();
    (cx, echo(&body).1)
}
