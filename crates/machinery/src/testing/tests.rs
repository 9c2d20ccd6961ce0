mod seeds;
mod trial;

use bytes::Bytes;
use http::Request;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tower::ServiceExt;

use super::*;
use crate::controller::{Action, ReconcileError};
use crate::manager::Manager;
use crate::object::{Kind, Meta};

async fn answered(server: &Server, request: Request<Bytes>) -> (u16, Value) {
    let answer = server.clone().oneshot(request).await.unwrap();
    let code = answer.status().as_u16();
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    (code, serde_json::from_slice(&body).unwrap())
}

#[tokio::test]
async fn unmodelled_requests_are_refused_with_a_sentence() {
    let server = Server::new(1);
    server.put(&Id::new("/api/v1/pods", "ns", "a"), json!({}));
    let pod = "/api/v1/namespaces/ns/pods/a";
    let strategic =
        Request::patch(pod).header("content-type", "application/strategic-merge-patch+json");
    for (request, what) in [
        (Request::get("/"), "this path"),
        (Request::get("/version"), "this path"),
        (Request::get("/apis/apps"), "this path"),
        (Request::get("/api/v1/pods?watch=true&fieldSelector=a%3Db"), "this fieldSelector"),
        (Request::delete(format!("{pod}?dryRun=All")), "dryRun"),
        (Request::get("/api/v1/pods?labelSelector=a%3E1"), "this labelSelector"),
        (strategic, "a strategic merge patch"),
        (Request::get(format!("{pod}/scale")), "this subresource"),
        (Request::put("/api/v1/namespaces/ns/finalize"), "this subresource"),
        (Request::post("/api/v1/namespaces/ns/pods"), "a create without a name"),
        (Request::delete("/api/v1/namespaces/ns/pods"), "this method"),
    ] {
        let (code, status) = answered(&server, request.body(Bytes::new()).unwrap()).await;
        let message = status["message"].as_str().unwrap();
        assert_eq!((code, status["reason"].as_str()), (501, Some("NotImplemented")), "{message}");
        assert!(message.contains(&format!("does not model {what}")), "{message}");
    }
    assert_eq!(server.objects("/api/v1/pods").len(), 1);
}

#[tokio::test]
async fn a_body_must_be_an_object_and_limit_zero_is_unlimited() {
    let server = Server::new(1);
    server.put(&Id::new("/api/v1/pods", "ns", "a"), json!([]));
    for body in ["", "[]", r#"{"metadata": "a"}"#] {
        let request = Request::put("/api/v1/namespaces/ns/pods/a");
        let (code, _) = answered(&server, request.body(Bytes::from(body)).unwrap()).await;
        assert_eq!(code, 400, "{body}");
    }
    let list = Request::get("/api/v1/pods?limit=0").body(Bytes::new()).unwrap();
    assert_eq!(answered(&server, list).await.1["items"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn no_body_or_object_makes_the_server_panic() {
    let server = Server::new(1);
    let pod = "/api/v1/namespaces/ns/pods/a";
    let id = Id::new("/api/v1/pods", "ns", "a");
    for object in [json!({"metadata": "x"}), json!([]), json!(1), json!({"metadata": []})] {
        server.put(&id, object);
    }
    for (path, value) in [("", "\"x\""), ("", "[]"), ("", "null"), ("/metadata", "[1]")] {
        for path_of in [pod.to_owned(), format!("{pod}/status")] {
            let patch = format!(r#"[{{"op": "replace", "path": "{path}", "value": {value}}}]"#);
            let request = Request::patch(path_of)
                .header("content-type", "application/json-patch+json")
                .body(Bytes::from(patch));
            assert_eq!(answered(&server, request.unwrap()).await.0, 422, "{path} {value}");
        }
    }
    server.admit(|object| {
        *object = json!([]);
        Ok(())
    });
    let body = r#"{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "b"}}"#;
    let create = Request::post("/api/v1/namespaces/ns/pods").body(Bytes::from(body)).unwrap();
    assert_eq!(answered(&server, create).await.0, 500);
}

#[test]
fn a_definition_that_cannot_be_served_is_refused() {
    let crd = |versions: &str| {
        let names = "names: {plural: things, kind: Thing}";
        format!(
            "kind: CustomResourceDefinition\nspec: {{group: a.b, {names}, versions: {versions}}}"
        )
    };
    let server = Server::new(1);
    assert!(server.crd("kind: Pod").unwrap_err().contains("only a CustomResourceDefinition"));
    assert!(server.crd(&crd("[]")).unwrap_err().contains("this one has 0"));
    assert!(server.crd(&crd("[{name: v1}, {name: v2}]")).unwrap_err().contains("this one has 2"));
    server.crd(&crd("[{name: v1}, {name: v2, served: false}]")).unwrap();
}

#[tokio::test]
async fn a_percent_encoded_name_is_decoded() {
    let server = Server::new(1);
    let id = Id::new("/apis/rbac.authorization.k8s.io/v1/clusterroles", "", "system:node");
    server.put(&id, json!({}));
    let path = format!("{}/system%3Anode", id.resource);
    let (code, _) = answered(&server, Request::get(path).body(Bytes::new()).unwrap()).await;
    assert_eq!(code, 200);
}

#[tokio::test]
async fn a_wait_ends_with_the_change_that_it_waits_for() {
    let server = Server::new(1);
    let id = Id::new("/api/v1/pods", "ns", "a");
    let wait = server.until(&id, |pod| pod["spec"]["x"] == 2);
    let change = async {
        for x in 1..=3 {
            tokio::task::yield_now().await;
            server.put(&id, json!({"spec": {"x": x}}));
        }
    };
    let (found, ()) = tokio::join!(wait, change);
    assert_eq!(found["spec"]["x"], 2);
    assert_eq!(server.get(&id).unwrap()["spec"]["x"], 3);
}

#[tokio::test]
async fn foreground_deletion_waits_for_owned_objects_and_orphaning_keeps_them() {
    for (policy, collects_first) in
        [("Foreground", false), ("Orphan", false), ("Foreground", true), ("Orphan", true)]
    {
        let server = Server::new(1);
        if collects_first {
            server.collect_garbage();
        }
        let [a, child] = ["a", "child"].map(|name| Id::new("/api/v1/configmaps", "ns", name));
        server.put(&a, json!({}));
        let owner =
            json!({"uid": server.get(&a).unwrap()["metadata"]["uid"], "blockOwnerDeletion": true});
        let metadata = json!({"ownerReferences": [owner], "finalizers": ["example.com/kept"]});
        server.put(&child, json!({"metadata": metadata}));
        let path = format!("/api/v1/namespaces/ns/configmaps/a?propagationPolicy={policy}");
        let delete = Request::delete(path).body(Bytes::new()).unwrap();
        assert_eq!(answered(&server, delete).await.0, 200);
        let deleting =
            |id: &Id| server.get(id).map(|it| it["metadata"]["deletionTimestamp"].is_string());
        if !collects_first {
            assert_eq!((deleting(&a), deleting(&child)), (Some(true), Some(false)));
            server.collect_garbage();
            server.put(&Id::new("/api/v1/configmaps", "ns", "another"), json!({}));
        }
        if policy == "Orphan" {
            assert_eq!((deleting(&a), deleting(&child)), (None, Some(false)));
            assert_eq!(server.get(&child).unwrap()["metadata"]["ownerReferences"], json!([]));
        } else {
            assert_eq!((deleting(&a), deleting(&child)), (Some(true), Some(true)));
            server.patch(&child, &json!({"metadata": {"finalizers": null}})).unwrap();
            assert_eq!((deleting(&a), deleting(&child)), (None, None));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_starts_pods_until_enough_succeed_or_too_many_fail() {
    let server = Server::new(1);
    let cluster = Cluster::start(&server, 2);
    let job = |name: &str| Id::new("/apis/batch/v1/jobs", "ns", name);
    let template = json!({"spec": {"containers": [{"name": "a", "image": "a"}]}});
    let spec = |limit: i64| {
        json!({"spec": {"completions": 3, "parallelism": 2, "backoffLimit": limit,
        "ttlSecondsAfterFinished": 60, "template": template}})
    };
    server.put(&job("fine"), spec(0));
    let ended = |kind: &'static str| {
        move |it: &Value| condition(it, kind).is_some_and(|it| it["status"] == "True")
    };
    let fine = server.until(&job("fine"), ended("Complete")).await;
    assert_eq!(fine["status"]["succeeded"], 3);
    cluster.pods_are(|_| PodState::Failed);
    server.put(&job("broken"), spec(2));
    let broken = server.until(&job("broken"), ended("Failed")).await;
    assert!((3..=4).contains(&broken["status"]["failed"].as_i64().unwrap()), "{broken}");
    server.until_gone("/apis/batch/v1/jobs").await;
    server.until_gone("/api/v1/pods").await;
}

#[tokio::test(start_paused = true)]
#[should_panic(expected = "it waits for /api/v1/pods ns/a, which is absent")]
async fn a_test_timeout_names_the_awaited_objects() {
    #[derive(Debug, serde::Deserialize)]
    struct Pod {
        metadata: Meta,
    }
    crate::view!(Pod: Kind::namespaced("", "v1", "Pod", "pods"));
    let manager = Manager::new("test").controller::<Pod>();
    let manager = manager.reconcile(async |_, _| Ok::<_, ReconcileError>(Action::Done));
    let server = Server::new(1);
    server.run(manager, server.until(&Id::new("/api/v1/pods", "ns", "a"), |_| true)).await;
}

#[test]
fn the_garbage_collector_deletes_objects_of_deleted_owners() {
    let server = Server::new(1);
    server.collect_garbage();
    let id = |name: &str| Id::new("/api/v1/pods", "ns", name);
    let uid = |name: &str| server.get(&id(name)).unwrap()["metadata"]["uid"].clone();
    let owned = |owners: &[&str]| {
        let owners: Vec<_> = owners.iter().map(|owner| json!({"uid": uid(owner)})).collect();
        json!({"metadata": {"ownerReferences": owners}})
    };
    let [a, b] = ["a", "b"].map(id);
    server.put(&a, json!({}));
    server.put(&b, json!({}));
    server.put(&id("of-a"), owned(&["a"]));
    server.put(&id("of-both"), owned(&["a", "b"]));
    let mut kept = owned(&["of-a"]);
    kept["metadata"]["finalizers"] = json!(["example.com/kept"]);
    server.put(&id("below"), kept);
    server.delete(&a);
    assert!(server.get(&id("of-a")).is_none() && server.get(&id("of-both")).is_some());
    assert!(server.get(&id("below")).unwrap()["metadata"]["deletionTimestamp"].is_string());
    server.delete(&b);
    assert!(server.get(&id("of-both")).is_none());
}
