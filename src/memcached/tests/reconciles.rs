//! Complete reconciles against an API server with scripted responses.

use serde_json::{Value, json};

use super::super::*;
use crate::workload::condition::Type;
use crate::workload::diagnostics::Diagnostics;
use crate::workload::fixtures::{Requests, context_with, custom};

const SAMPLE: &str = include_str!("../../../artifacts/examples/memcached.yaml");

struct Scene {
    cx: Context<Memcached>,
    requests: Requests,
    recorder: events::Recorder,
}

impl Scene {
    /// Creates a Memcached and its API server.
    fn new(object: &Value, answer: fn(&Value) -> (u16, Value)) -> Scene {
        let (recorder, _) = events::new("test", "here");
        let memcached = custom(&object.to_string());
        let (cx, requests) = context_with(memcached, answer, recorder.clone(), |controller| {
            controller.cleanup(FINALIZER, |it, cx| finalize(it, cx, Pace::default()))
        });
        Scene { cx, requests, recorder }
    }

    /// Returns the reasons of the published Events.
    fn published(&self) -> Vec<String> {
        self.recorder.waiting().iter().map(|event| event.reason.to_string()).collect()
    }

    async fn reconcile(&self, image: Option<&str>) -> Result<Action, ReconcileError> {
        let cx = self.cx.next_reconcile().unwrap();
        let settings =
            Settings { memcached_image: image.map(InternedStr::new), ..Settings::default() };
        let observer = Observer::new(Diagnostics::default());
        reconcile(cx.object().clone(), cx, settings, Pace::default(), observer).await
    }
}

fn sample(metadata: &Value) -> Value {
    let mut object: Value = serde_yaml_ng::from_str(SAMPLE).unwrap();
    for (field, value) in metadata.as_object().unwrap() {
        object["metadata"][field] = value.clone();
    }
    object
}

/// Returns the sample with the status that was sent. The status at the end of a deletion has the later
/// version.
fn stored(sent: &Value) -> (u16, Value) {
    let version = if sent.to_string().contains("accomplished") { "12" } else { "11" };
    let mut memcached = sample(&json!({
        "namespace": "default", "resourceVersion": version, "generation": 1,
        "uid": "00000000-0000-4000-8000-000000000001", "finalizers": [FINALIZER],
    }));
    memcached["status"] = sent["status"].clone();
    (200, memcached)
}

#[tokio::test]
async fn a_problem_is_published_when_it_begins_and_not_again() {
    let scene = Scene::new(&sample(&json!({"finalizers": [FINALIZER]})), stored);
    for _ in 0..3 {
        scene.reconcile(None).await.unwrap();
        assert_eq!(scene.published(), ["ImageMissing"]);
    }
    assert_eq!(scene.requests.lock().len(), 1, "a status that is there is not written again");
}

#[tokio::test]
async fn a_problem_in_the_conditions_is_not_published_by_a_new_process() {
    let before = Scene::new(&sample(&json!({"finalizers": [FINALIZER]})), stored);
    before.reconcile(None).await.unwrap();
    let (_, known) = stored(&before.requests.lock()[0].2);
    let after = Scene::new(&known, stored);
    after.reconcile(None).await.unwrap();
    assert!(after.published().is_empty());
}

#[tokio::test]
async fn without_the_finalizer_nothing_is_created_and_the_status_reports_it() {
    let scene = Scene::new(&sample(&json!({})), |body| {
        if body.get("status").is_some() {
            return stored(body);
        }
        let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure",
            "code": 403, "reason": "Forbidden", "message": "not today"});
        (403, status)
    });
    let problem = scene.reconcile(Some("memcached:1")).await.unwrap_err();
    assert!(matches!(problem, ReconcileError::Reported(_)), "{problem:?}");
    let requests = scene.requests.lock();
    let [(_, first, _), (_, second, status)] = requests.as_slice() else { panic!("{requests:?}") };
    assert!(first.ends_with("/memcached-sample") && second.ends_with("/status"), "{requests:?}");
    assert!(status.to_string().contains("not today"), "{status}");
    assert_eq!(scene.published(), ["Forbidden"]);
}

#[tokio::test]
async fn a_refused_deployment_is_reported_and_the_service_is_created() {
    let scene = Scene::new(&sample(&json!({"finalizers": [FINALIZER]})), |body| {
        if body["kind"] == "Deployment" {
            let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure",
                "code": 422, "reason": "Invalid", "message": "spec: Invalid value"});
            return (422, status);
        }
        if body.get("spec").is_some() { (200, body.clone()) } else { stored(body) }
    });
    for _ in 0..10 {
        let problem = scene.reconcile(Some("memcached:1")).await.unwrap_err();
        assert!(matches!(problem, ReconcileError::Reported(_)), "{problem:?}");
    }
    let memcached = scene.cx.next_reconcile().unwrap().object().clone();
    let degraded = memcached.status.conditions.iter().find(|c| c.is(Type::Degraded)).unwrap();
    assert_eq!(degraded.reason, "Invalid");
    assert_eq!(scene.published(), ["Invalid"]);
    let services = scene.requests.lock();
    let services = services.iter().filter(|(_, path, _)| path.contains("/services/")).count();
    assert!(services > 0);
}

#[tokio::test]
async fn the_deletion_is_reported_step_by_step_and_once() {
    let going = json!({"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": [FINALIZER]});
    let scene = Scene::new(&sample(&going), stored);
    let cx = scene.cx.next_reconcile().unwrap();
    finalize(cx.object().clone(), cx, Pace::default()).await.unwrap();
    let degraded = |body: &Value| {
        let conditions = body["status"]["conditions"].as_array().unwrap().iter();
        conditions.clone().find(|c| c["type"] == "Degraded").unwrap()["status"].clone()
    };
    let steps: Vec<Value> =
        scene.requests.lock().iter().map(|(_, _, body)| degraded(body)).collect();
    assert_eq!(steps, ["Unknown", "True"]);
    assert_eq!(scene.published(), ["Deleting"]);
    let cx = scene.cx.next_reconcile().unwrap();
    finalize(cx.object().clone(), cx, Pace::default()).await.unwrap();
    assert_eq!(scene.requests.lock().len(), 2);
}
