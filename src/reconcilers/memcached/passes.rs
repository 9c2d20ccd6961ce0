//! Whole passes, against an API server with scripted answers.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::{Request, Response};
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tower::service_fn;

use super::*;
use crate::client::{Client, Options};
use crate::reconcilers::condition::Type;
use crate::reconcilers::diagnostics::Diagnostics;
use crate::reconcilers::fixtures::{child, condition, custom, wire};
use crate::store;

const SAMPLE: &str = include_str!("../../../artifacts/examples/memcached.yaml");

/// The requests: method, path and body of each.
type Asked = Arc<Mutex<Vec<(String, String, Value)>>>;

/// The reasons of the published Events, including repetitions.
#[derive(Default)]
struct Published(Mutex<Vec<&'static str>>);

impl events::Observer for Published {
    fn published(&self, _: &'static str, _: events::Type, reason: &'static str) {
        self.0.lock().push(reason);
    }
    fn aggregated(&self, _: &'static str, _: events::Type, reason: &'static str) {
        self.0.lock().push(reason);
    }
}

impl Published {
    fn count(&self, reason: &str) -> usize {
        self.0.lock().iter().filter(|published| **published == reason).count()
    }
}

struct Scene {
    reconciler: MemcachedReconciler,
    key: ObjectKey,
    asked: Asked,
    published: Arc<Published>,
    /// Makes somebody else's writes visible.
    memcacheds: store::Writer<Memcached>,
    deployments: store::Writer<Deployment>,
}

/// A client whose server answers each request with what `answer` returns for its body.
fn client(answer: fn(&Value) -> (u16, Value)) -> (Client, Asked) {
    let asked = Asked::default();
    let seen = asked.clone();
    let service = service_fn(move |request: Request<Body>| {
        let seen = seen.clone();
        async move {
            let (head, body) = request.into_parts();
            let body = body.collect_bytes().await.unwrap();
            let body = serde_json::from_slice(&body).unwrap_or_default();
            let (code, answer) = answer(&body);
            let asked = (head.method.to_string(), head.uri.path().to_owned(), body);
            seen.lock().push(asked);
            let mut response = Response::new(Body::from(answer.to_string().into_bytes()));
            *response.status_mut() = code.try_into().unwrap();
            Ok::<_, Infallible>(response)
        }
    });
    (Client::from_service(service, Options::default()), asked)
}

impl Scene {
    /// A lone Memcached and an API server.
    fn new(object: &Value, image: Option<&str>, answer: fn(&Value) -> (u16, Value)) -> Scene {
        let memcached: Memcached = custom(&object.to_string());
        let key = memcached.key().clone();
        let (mut writer, memcacheds) = store::new(Vec::new());
        writer.apply(memcached);
        let (deployments, seen) = store::new(Vec::new());
        let stores = Stores {
            memcacheds,
            deployments: seen,
            services: store::new(Vec::new()).1,
            pods: store::new(vec![Pod::index()]).1,
        };
        let (client, asked) = client(answer);
        let published = Arc::new(Published::default());
        let (recorder, _) = events::new("memcached", "test", published.clone());
        let settings = Settings { memcached_image: image.map(Text::new) };
        let reconciler = MemcachedReconciler::new(
            stores,
            Hands::new(client, recorder, Diagnostics::default()),
            settings,
        );
        Scene { reconciler, key, asked, published, memcacheds: writer, deployments }
    }

    async fn pass(&self) -> Result<Action, Error> {
        self.reconciler.reconcile(&self.key).await
    }
}

fn sample(metadata: &Value) -> Value {
    let mut object: Value = serde_yaml_ng::from_str(SAMPLE).unwrap();
    for (field, value) in metadata.as_object().unwrap() {
        object["metadata"][field] = value.clone();
    }
    object
}

/// The sample, with the status that was sent.
fn stored(sent: &Value) -> (u16, Value) {
    let mut memcached = sample(&json!({
        "namespace": "default", "resourceVersion": "11", "generation": 1,
        "uid": "00000000-0000-4000-8000-000000000001", "finalizers": [FINALIZER],
    }));
    memcached["status"] = sent["status"].clone();
    (200, memcached)
}

#[tokio::test]
async fn of_an_object_that_is_going_only_the_own_finalizer_is_removed_and_only_as_it_was_read() {
    let going = json!({
        "deletionTimestamp": "2026-01-01T00:00:00Z",
        "finalizers": ["example.com/theirs", FINALIZER],
    });
    let mut object = sample(&going);
    let told = finalizing(&custom(&object.to_string()), true, Time::new(0));
    object["status"] = serde_json::to_value(told).unwrap();
    let scene = Scene::new(&object, None, |_| {
        let left = json!({"namespace": "default", "resourceVersion": "11",
            "finalizers": ["example.com/theirs"]});
        (200, sample(&left))
    });
    scene.pass().await.unwrap();
    let asked = scene.asked.lock();
    let [(method, _, operations)] = asked.as_slice() else { panic!("{asked:?}") };
    assert_eq!(method, "PATCH");
    let path = "/metadata/finalizers/1";
    let uid = "00000000-0000-4000-8000-000000000001";
    assert_eq!(
        *operations,
        json!([
            {"op": "test", "path": "/metadata/uid", "value": uid},
            {"op": "test", "path": "/metadata/resourceVersion", "value": "10"},
            {"op": "test", "path": path, "value": FINALIZER},
            {"op": "remove", "path": path},
        ])
    );
}

#[tokio::test]
async fn a_status_is_said_of_the_version_it_was_decided_for() {
    let paused = json!({"annotations": {"workload-operator.example.com/paused": "true"}});
    let scene = Scene::new(&sample(&paused), None, stored);
    scene.pass().await.unwrap();
    let asked = scene.asked.lock();
    let [(_, path, body)] = asked.as_slice() else { panic!("{asked:?}") };
    assert!(path.ends_with("/status"), "{path}");
    assert_eq!(body["metadata"]["resourceVersion"], "10");
}

#[tokio::test]
async fn trouble_is_published_when_it_begins_and_not_again() {
    let scene = Scene::new(&sample(&json!({"finalizers": [FINALIZER]})), None, stored);
    for _ in 0..3 {
        scene.pass().await.unwrap();
        assert_eq!(*scene.published.0.lock(), ["ImageMissing"]);
    }
    assert_eq!(scene.asked.lock().len(), 1, "what was said once is not written again");
}

#[tokio::test]
async fn trouble_that_the_conditions_tell_of_is_not_published_again_by_a_new_process() {
    let before = Scene::new(&sample(&json!({"finalizers": [FINALIZER]})), None, stored);
    before.pass().await.unwrap();
    assert_eq!(before.published.count("ImageMissing"), 1);
    let (_, told) = stored(&before.asked.lock()[0].2);
    let after = Scene::new(&told, None, stored);
    after.pass().await.unwrap();
    assert_eq!(after.published.count("ImageMissing"), 0);
}

#[tokio::test]
async fn in_a_namespace_that_is_going_nothing_is_tried_again() {
    let object = sample(&json!({"finalizers": [FINALIZER]}));
    let scene = Scene::new(&object, Some("memcached:1"), |_| {
        let cause = json!({"reason": "NamespaceTerminating", "message": "m", "field": "f"});
        let status = json!({
            "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 403,
            "reason": "Forbidden", "message": "it is going", "details": {"causes": [cause]},
        });
        (403, status)
    });
    assert!(matches!(scene.pass().await, Ok(Action::Done)));
    assert!(!scene.asked.lock().is_empty(), "it tried once");
}

#[tokio::test]
async fn a_child_is_not_made_anew_before_its_owner_is_known_to_be_there() {
    let mut object = sample(&json!({"finalizers": [FINALIZER]}));
    object["status"] = json!({"observedGeneration": 1});
    let scene = Scene::new(&object, Some("memcached:1"), |_| {
        let status = json!({
            "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404,
            "reason": "NotFound", "message": "it is gone",
        });
        (404, status)
    });
    assert!(matches!(scene.pass().await, Ok(Action::Done)));
    let asked = scene.asked.lock();
    let [(_, path, body)] = asked.as_slice() else { panic!("{asked:?}") };
    assert!(path.ends_with("memcacheds/memcached-sample/status"), "{path}");
    assert_eq!(body["metadata"]["resourceVersion"], "10", "as it was read");
}

/// As if by another operator configured with a different image: each undoes the other's writes.
#[tokio::test]
async fn who_wants_something_else_than_was_carried_out_already_is_not_raced() {
    let mut object = sample(&json!({"finalizers": [FINALIZER]}));
    object["status"] = json!({"observedGeneration": 1});
    static VERSION: AtomicUsize = AtomicUsize::new(20);
    fn next() -> Value {
        json!(VERSION.fetch_add(1, Ordering::Relaxed).to_string())
    }
    let mut scene = Scene::new(&object, Some("memcached:1"), |body| {
        let mut answer = if body.get("spec").is_some() { body.clone() } else { stored(body).1 };
        answer["metadata"]["resourceVersion"] = next();
        (200, answer)
    });
    let memcached: Memcached = custom(&object.to_string());
    let theirs = desired(&memcached, &Text::new("memcached:2")).deployment;
    let mut writes = 0;
    for _ in 0..10 {
        let mut there = wire(&memcached, &theirs);
        there["metadata"]["resourceVersion"] = next();
        scene.deployments.apply(child(&there));
        scene.pass().await.unwrap();
        let asked = std::mem::take(&mut *scene.asked.lock());
        writes += asked.iter().filter(|(_, path, _)| path.contains("/deployments/")).count();
    }
    assert_eq!(writes, 5);
    let told = scene.reconciler.stores.memcacheds.get(&scene.key).unwrap();
    let degraded = condition(&told.status.conditions, Type::Degraded).unwrap();
    assert_eq!(degraded.1, "Contested", "{degraded:?}");
}

/// It undoes nobody's work, so there is no contest: the reason stays, and is published once.
#[tokio::test]
async fn a_restoration_that_is_refused_is_told_as_refused_however_often_it_is_tried() {
    let mut object = sample(&json!({"finalizers": [FINALIZER]}));
    object["status"] = json!({"observedGeneration": 1});
    let mut scene = Scene::new(&object, Some("memcached:1"), |body| {
        if body["kind"] == "Deployment" {
            let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure",
                "code": 422, "reason": "Invalid", "message": "spec: Invalid value"});
            return (422, status);
        }
        if body.get("spec").is_some() { (200, body.clone()) } else { stored(body) }
    });
    let memcached: Memcached = custom(&object.to_string());
    let made = desired(&memcached, &Text::new("memcached:1")).deployment;
    let mut there = wire(&memcached, &made);
    there["spec"]["replicas"] = json!(9);
    scene.deployments.apply(child(&there));
    for _ in 0..10 {
        scene.pass().await.unwrap_err();
    }
    let told = scene.asked.lock().iter().rev().find_map(|(_, path, body)| {
        let is_status = path.ends_with("/memcached-sample/status");
        is_status.then(|| body["status"]["conditions"].to_string())
    });
    let told = told.unwrap();
    assert!(told.contains("\"Invalid\"") && !told.contains("Contested"), "{told}");
    assert_eq!(scene.published.count("Invalid"), 1);
}

/// As if by another operator that has an image: this one has none, and says so.
#[tokio::test]
async fn who_says_something_else_of_the_same_spec_is_not_raced() {
    let object = sample(&json!({"finalizers": [FINALIZER]}));
    static VERSION: AtomicUsize = AtomicUsize::new(20);
    let mut scene = Scene::new(&object, None, |body| {
        let (code, mut answer) = stored(body);
        answer["metadata"]["resourceVersion"] =
            json!(VERSION.fetch_add(1, Ordering::Relaxed).to_string());
        (code, answer)
    });
    let mut theirs = object.clone();
    theirs["status"] = json!({"observedGeneration": 1});
    for _ in 0..10 {
        scene.pass().await.unwrap();
        let version = VERSION.fetch_add(1, Ordering::Relaxed).to_string();
        theirs["metadata"]["resourceVersion"] = json!(version);
        scene.memcacheds.apply(custom(&theirs.to_string()));
    }
    assert_eq!(scene.asked.lock().len(), 6, "once, and restored five times");
    assert_eq!(scene.published.count("ImageMissing"), 1);
    assert!(matches!(scene.pass().await, Ok(Action::RequeueAfter(_))));
    // A new spec is told of at once.
    let version = VERSION.fetch_add(1, Ordering::Relaxed).to_string();
    theirs["metadata"]["resourceVersion"] = json!(version);
    theirs["metadata"]["generation"] = json!(2);
    scene.memcacheds.apply(custom(&theirs.to_string()));
    scene.pass().await.unwrap();
    assert_eq!(scene.asked.lock().len(), 7);
}

/// As if by a policy engine that deletes the Deployment each time.
#[tokio::test]
async fn who_deletes_a_child_again_and_again_is_not_raced() {
    let mut object = sample(&json!({"finalizers": [FINALIZER]}));
    object["status"] = json!({"observedGeneration": 1});
    static VERSION: AtomicUsize = AtomicUsize::new(20);
    let scene = Scene::new(&object, Some("memcached:1"), |body| {
        let mut answer = if body.get("spec").is_some() { body.clone() } else { stored(body).1 };
        answer["metadata"]["resourceVersion"] =
            json!(VERSION.fetch_add(1, Ordering::Relaxed).to_string());
        (200, answer)
    });
    let mut created = 0;
    for _ in 0..10 {
        scene.pass().await.unwrap();
        let asked = std::mem::take(&mut *scene.asked.lock());
        created += asked.iter().filter(|(_, path, _)| path.contains("/deployments/")).count();
        let store = &scene.reconciler.stores.deployments;
        if let Some(there) = store.get(&scene.key) {
            store.removed(&scene.key, there.uid());
        }
    }
    assert_eq!(created, 5);
    assert!(matches!(scene.pass().await, Ok(Action::RequeueAfter(_))));
    let told = scene.reconciler.stores.memcacheds.get(&scene.key).unwrap();
    let (_, reason, message) = condition(&told.status.conditions, Type::Degraded).unwrap();
    assert_eq!(reason, "Contested");
    assert!(message.contains("keeps deleting Deployment"), "{message}");
}

#[tokio::test]
async fn a_finalizer_that_may_not_be_removed_is_told_of() {
    let mut object = sample(&json!({
        "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": [FINALIZER],
    }));
    let told = finalizing(&custom(&object.to_string()), true, Time::new(0));
    object["status"] = serde_json::to_value(told).unwrap();
    let scene = Scene::new(&object, None, |_| {
        let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure",
            "code": 403, "reason": "Forbidden", "message": "not today"});
        (403, status)
    });
    scene.pass().await.unwrap_err();
    assert_eq!(*scene.published.0.lock(), ["Forbidden"]);
}
