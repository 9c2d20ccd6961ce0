//! `status` names the blocking cause on its first line: fixtures on the real API server.

use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};

use crate::world::{
    APP, GENERIC_DAEMON, Kind, MEMCACHED, POD, SERVICE, World, is_ready, memcached,
};

/// The first line that `status` prints for an object, and its exit code. It runs with the operator's own
/// permissions, as it does in the operator's pod.
async fn status(world: &World, kind: Kind, name: &str) -> (String, i32) {
    let output = Command::new(env!("CARGO_BIN_EXE_workload-operator"))
        .args(["status", &kind.name().to_lowercase(), name, "--namespace", &world.namespace])
        .arg("--kubeconfig")
        .arg(world.operator_kubeconfig().await)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let error = String::from_utf8_lossy(&output.stderr);
    let line = text.lines().chain(error.lines()).next().unwrap_or_default().to_owned();
    (line, output.status.code().unwrap())
}

/// Waits until the first line names `cause`, because Kubernetes needs several steps.
async fn until_blocked_by(world: &World, kind: Kind, name: &str, cause: &str) -> String {
    let prefix = format!("{} {}/{name}: {cause}: ", kind.name(), world.namespace);
    let mut last = (String::new(), 0);
    for _ in 0..120 {
        last = status(world, kind, name).await;
        if last.0.starts_with(&prefix) {
            let fine = ["AllReplicasReady", "ScaledToZero", "NoMatchingNodes"].contains(&cause);
            assert_eq!(last.1, i32::from(!fine), "{}", last.0);
            return last.0;
        }
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
    panic!("expected {prefix:?}, got {last:?}");
}

fn daemon(name: &str, label: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"image": "agent:1", "label": label}})
}

/// Acts as a kubelet that cannot run the only pod of Memcached `name` that has not ended.
async fn stop_pod(world: &World, name: &str, reason: &str) {
    let pods = world.list(POD).await;
    let pod = pods
        .iter()
        .filter(|pod| pod["status"]["phase"] != "Failed")
        .find(|pod| pod["metadata"]["labels"]["cache.example.com/memcached"] == name)
        .unwrap();
    let container = &pod["spec"]["containers"][0];
    let not_ready = json!({"type": "Ready", "status": "False"});
    let patch = json!({"status": {"conditions": [not_ready], "containerStatuses": [{
        "name": container["name"], "image": container["image"], "imageID": "", "ready": false,
        "restartCount": 4, "state": {"waiting": {"reason": reason, "message": "as a test wants"}},
        "lastState": {"terminated": {"exitCode": 3, "reason": "Error"}}}]}});
    let path = format!(
        "{}/{}/status",
        POD.path(&world.namespace),
        pod["metadata"]["name"].as_str().unwrap()
    );
    world.patch_at(&path, patch).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn status_names_the_blocking_cause_in_words_and_as_json() {
    let (world, operator) = World::with_operator("status").await;
    let service = json!({"metadata": {"name": "foreign"}, "spec": {"ports": [{"port": 1}]}});
    world.create(SERVICE, service).await.unwrap();
    for (name, size) in [("good", 1), ("zero", 0), ("foreign", 1), ("typo", 1), ("crash", 1)] {
        world.create(MEMCACHED, memcached(name, size)).await.unwrap();
    }
    let mut paused = memcached("paused", 1);
    paused["metadata"]["annotations"] = json!({"workload-operator.example.com/paused": "true"});
    world.create(MEMCACHED, paused).await.unwrap();
    world.create(GENERIC_DAEMON, daemon("nowhere", "no-node-has-this")).await.unwrap();
    world.create(GENERIC_DAEMON, daemon("insecure", "logs")).await.unwrap();
    let app = json!({"metadata": {"name": "typo-app"}, "spec": {"replicas": 1, "image": "a:1"}});
    world.create(APP, app).await.unwrap();

    until_blocked_by(&world, MEMCACHED, "good", "AllReplicasReady").await;
    until_blocked_by(&world, MEMCACHED, "zero", "ScaledToZero").await;
    until_blocked_by(&world, MEMCACHED, "foreign", "ErrResourceExists").await;
    until_blocked_by(&world, MEMCACHED, "paused", "Paused").await;
    until_blocked_by(&world, GENERIC_DAEMON, "nowhere", "NoMatchingNodes").await;
    let line = until_blocked_by(&world, GENERIC_DAEMON, "insecure", "ReplicaFailure").await;
    assert!(line.contains("violates PodSecurity \"restricted"), "{line}");
    // Its pods run as the user that the image specifies, which `restricted` does not allow.
    until_blocked_by(&world, APP, "typo-app", "ReplicaFailure").await;

    for (name, reason, cause) in [
        ("typo", "ImagePullBackOff", "ImagePullFailed"),
        ("crash", "CrashLoopBackOff", "CrashLoopBackOff"),
    ] {
        world.until(MEMCACHED, name, is_ready).await;
        stop_pod(&world, name, reason).await;
        let line = until_blocked_by(&world, MEMCACHED, name, cause).await;
        assert!(line.contains(&format!("Pod {name}-")), "{line}");
    }

    has_cause_next_step_conditions_and_pods_in_json(&world);

    operator.kill().await;
    world.create(MEMCACHED, memcached("unseen", 1)).await.unwrap();
    until_blocked_by(&world, MEMCACHED, "unseen", "Pending").await;
    let (line, code) = status(&world, MEMCACHED, "absent").await;
    assert!(line.contains("not found") && code == 2, "{line}");
}

/// Returns the same result as JSON, field by field, and the exit code.
fn status_as_json(world: &World, kind: Kind, name: &str) -> (Value, i32) {
    let output = Command::new(env!("CARGO_BIN_EXE_workload-operator"))
        .args(["status", &kind.name().to_lowercase(), name, "-o", "json"])
        .args(["--namespace", &world.namespace, "--kubeconfig"])
        .arg(world.plane().kubeconfig())
        .output()
        .unwrap();
    (serde_json::from_slice(&output.stdout).unwrap(), output.status.code().unwrap())
}

/// `good` is Ready, and `typo` cannot pull its image.
fn has_cause_next_step_conditions_and_pods_in_json(world: &World) {
    let (fine, code) = status_as_json(world, MEMCACHED, "good");
    assert_eq!((code, &fine["ready"], &fine["next"]), (0, &json!(true), &Value::Null), "{fine}");
    let (bad, code) = status_as_json(world, MEMCACHED, "typo");
    assert_eq!((code, &bad["ready"], &bad["cause"]), (1, &json!(false), &json!("ImagePullFailed")));
    let place = (&bad["kind"], &bad["namespace"], &bad["name"]);
    assert_eq!(place, (&json!("Memcached"), &json!("status"), &json!("typo")));
    assert!(bad["next"].as_str().unwrap().contains("image"), "{bad}");
    assert!(bad["message"].as_str().unwrap().starts_with("Pod typo-"), "{bad}");
    assert_eq!(bad["conditions"][0]["type"], "Ready");
    let pod = &bad["pods"][0];
    assert!(pod["state"].as_str().unwrap().starts_with("ImagePullFailed: "), "{bad}");
    assert!(pod["node"].is_string() && pod["name"].as_str().unwrap().starts_with("typo-"));
}
