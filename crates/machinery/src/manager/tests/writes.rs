//! Writes on the context: what the store has afterwards, and what an error says.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use super::server::Server;
use super::{CHILD, Child, SITE, Site, context};
use crate::client::PropagationPolicy;
use crate::controller::{Action, ErrorClass, ReconcileError};
use crate::manager::{Context, Manager};
use crate::object::{Object, ObjectKey};

fn child(spec: &Value) -> Value {
    json!({"metadata": {"namespace": "ns", "name": "x"}, "spec": spec})
}

#[tokio::test]
async fn a_response_is_in_the_store_before_the_call_returns() {
    let server = Server::default();
    let cx = context(&server);
    let key = ObjectKey::new("ns", "x");
    let stored = || cx.get::<Child>(&key).unwrap().map(|child| child.spec.size);
    cx.create::<Child>(child(&json!({"size": 1}))).await.unwrap();
    assert_eq!(stored(), Some(Some(1)));
    cx.merge_patch::<Child>(&key, json!({"spec": {"size": 2}})).await.unwrap();
    assert_eq!(stored(), Some(Some(2)));
    let mut whole = child(&json!({"limit": 3}));
    whole["metadata"]["resourceVersion"] = server.get(CHILD)["metadata"]["resourceVersion"].clone();
    cx.update::<Child>(whole).await.unwrap();
    assert_eq!(stored(), Some(None), "a PUT removes what it lacks");
    let applied = cx.apply::<Child>(child(&json!({"size": 4}))).await.unwrap();
    assert_eq!((stored(), applied.spec.limit), (Some(Some(4)), Some(3)));
    cx.delete(&*applied, PropagationPolicy::Background).await.unwrap();
    assert_eq!(stored(), None);
    cx.delete(&*applied, PropagationPolicy::Background).await.unwrap();
    assert!(cx.has_written());
}

#[tokio::test]
async fn the_next_write_builds_on_an_earlier_write_of_the_object() {
    let server = Server::default();
    let cx = context(&server);
    let written = cx.merge_patch::<Site>(cx.key(), json!({"spec": {"pages": 7}})).await.unwrap();
    assert_eq!(written.spec, json!({"pages": 7}));
    cx.patch_status(json!({"pods": 1})).await.unwrap();
    assert_eq!(server.get(SITE)["status"]["pods"], 1);
}

#[tokio::test]
async fn an_error_names_the_verb_the_kind_and_the_object() {
    let server = Server::default();
    let cx = context(&server);
    cx.create::<Child>(child(&json!({}))).await.unwrap();
    let taken = cx.create::<Child>(child(&json!({}))).await.unwrap_err();
    assert!(taken.to_string().starts_with("cannot create Child ns/x: "), "{taken}");
    assert_eq!(taken.class(), ErrorClass::Conflict);
    let nowhere = cx.create::<Child>(json!({"metadata": {"name": "x"}})).await.unwrap_err();
    assert_eq!(nowhere.to_string(), "a Child is in a namespace: name it");
}

#[tokio::test]
async fn an_apply_without_force_names_the_conflicting_fields() {
    let server = Server::default();
    let cx = context(&server);
    // `put` sets it as another manager.
    let mut theirs = child(&json!({"size": 9}));
    theirs["metadata"]["managedFields"] = json!([{"manager": "kubectl", "operation": "Update",
        "apiVersion": "example.com/v1", "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {"f:size": {}}}}]);
    server.put(CHILD, theirs);
    let problem = cx.apply_unforced::<Child>(child(&json!({"size": 1}))).await.unwrap_err();
    let fields = problem.api_error().unwrap().conflicting_fields();
    assert_eq!((fields, problem.class()), (vec![".spec.size"], ErrorClass::Forbidden), "{problem}");
    assert_eq!(server.get(CHILD)["spec"]["size"], 9);
    let forced = cx.apply::<Child>(child(&json!({"size": 1}))).await.unwrap();
    assert_eq!((forced.spec.size, forced.key().name().as_str()), (Some(1), "x"));
}

#[tokio::test(start_paused = true)]
async fn a_write_of_an_unselected_object_does_not_enqueue_repeatedly() {
    let server = Server::default();
    server.put(SITE, json!({}));
    let reconciles = Arc::new(AtomicU32::new(0));
    let count = reconciles.clone();
    let manager = Manager::new("test")
        .informer::<Child>(|all| all.labels("app=other"))
        .controller::<Site>()
        .watches::<Child>(|_| vec![ObjectKey::new("ns", "a")])
        .reconcile(move |_: Arc<Site>, cx: Context<Site>| {
            count.fetch_add(1, Ordering::Relaxed);
            async move {
                cx.apply::<Child>(child(&json!({"size": 1}))).await?;
                cx.merge_patch::<Child>(&ObjectKey::new("ns", "x"), json!({"spec": {"limit": 2}}))
                    .await?;
                Ok::<_, ReconcileError>(Action::Done)
            }
        });
    server.run(manager, tokio::time::sleep(Duration::from_secs(1800))).await;
    let reconciles = reconciles.load(Ordering::Relaxed);
    assert!(reconciles < 10, "{reconciles} in half an hour");
}
