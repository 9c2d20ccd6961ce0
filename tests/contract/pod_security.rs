//! Namespaces with limits for pods: the workloads that run in them.

use serde_json::json;

use crate::world::{
    APP, DEPLOYMENT, GENERIC_DAEMON, Kind, MEMCACHED, POD, QUOTA, World, conditions, has_condition,
    is_ready, memcached,
};

/// Returns the settings that Pod Security `restricted` requires of a container. The operator does not set
/// them, because not every image runs with them.
fn restricted(container: &str) -> String {
    let security = json!({"runAsNonRoot": true, "capabilities": {"drop": ["ALL"]}});
    let container = json!({"name": container, "securityContext": security});
    json!({"spec": {"template": {"spec": {"containers": [container]}}}}).to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_memcached_runs_under_a_compute_quota_and_pod_security_restricted() {
    let (world, _operator) = World::with_operator("compute-quota").await;
    let hard =
        json!({"requests.cpu": "300m", "requests.memory": "423Mi", "limits.memory": "423Mi"});
    let quota = json!({"metadata": {"name": "compute"}, "spec": {"hard": hard}});
    world.create(QUOTA, quota).await.unwrap();
    world.until(QUOTA, "compute", |quota| quota["status"]["hard"] == hard).await;
    world.create(MEMCACHED, memcached("cart", 3)).await.unwrap();
    let ready = world.until(MEMCACHED, "cart", is_ready).await;
    assert_eq!(ready["status"]["readyReplicas"], 3);
    // Three instances use all of the quota, so their requests are the documented ones.
    world.until(QUOTA, "compute", |quota| quota["status"]["used"] == hard).await;
    for pod in world.list(POD).await {
        assert_eq!(pod["status"]["qosClass"], "Burstable", "{}", pod["metadata"]["name"]);
    }
}

/// An image can require root at the start, as nginx does, and none runs without the capabilities that it
/// uses. Therefore the operator's defaults allow every image.
#[tokio::test(flavor = "multi_thread")]
async fn an_app_with_a_restricted_profile_runs_in_a_restricted_namespace() {
    let (world, _operator) = World::with_operator("restricted-app").await;
    let spec = json!({"image": "shop:1", "replicas": 1});
    world.create(APP, json!({"metadata": {"name": "shop"}, "spec": spec})).await.unwrap();
    let refused =
        world.until(APP, "shop", |app| has_condition(app, "ReplicaFailure", "True")).await;
    let message = conditions(&refused).find(|c| c["type"] == "ReplicaFailure").unwrap()["message"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(message.contains(r#"violates PodSecurity "restricted"#), "{message}");
    for missing in ["unrestricted capabilities", "runAsNonRoot != true"] {
        assert!(message.contains(missing), "{message}");
    }
    for given in ["allowPrivilegeEscalation", "seccompProfile"] {
        assert!(!message.contains(given), "{given} is set: {message}");
    }
    vouch_for(&world, "deployment/shop", "shop");
    world.until(APP, "shop", is_ready).await;
    // It is kept when the operator writes the Deployment.
    world.patch(APP, "shop", json!({"spec": {"image": "shop:2"}})).await.unwrap();
    world.until(APP, "shop", is_ready).await;
    let deployment = world.get(DEPLOYMENT, "shop").await.unwrap();
    let container = &deployment["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(container["image"], "shop:2");
    assert_eq!(container["securityContext"]["runAsNonRoot"], true);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_with_a_restricted_profile_runs_in_a_restricted_namespace() {
    let (world, _operator) = World::with_operator("restricted-daemon").await;
    let spec = json!({"image": "agent:1", "label": "disk=ssd"});
    let object = json!({"metadata": {"name": "agent"}, "spec": spec});
    world.create(GENERIC_DAEMON, object).await.unwrap();
    let refused = world
        .until_any_event(|event| {
            event["regarding"]["kind"] == "DaemonSet" && event["reason"] == "FailedCreate"
        })
        .await;
    let note = refused["note"].as_str().unwrap();
    assert!(note.contains(r#"violates PodSecurity "restricted"#), "{note}");
    vouch_for(&world, "daemonset/agent", "daemon");
    let ready = world.until(GENERIC_DAEMON, "agent", is_ready).await;
    assert_eq!(ready["status"]["installed"], 1);
}

fn vouch_for(world: &World, what: &str, container: &str) {
    world.kubectl(&["patch", what, "-p", &restricted(container)]).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_apply_of_the_examples_makes_all_samples_ready() {
    let (world, _operator) = World::with_operator_at("samples", "baseline").await;
    world.kubectl(&["apply", "-k", "artifacts/examples"]).unwrap();
    let samples: [(Kind, &str); 3] =
        [(MEMCACHED, "memcached-sample"), (APP, "nginx-app"), (GENERIC_DAEMON, "syslog")];
    for (kind, name) in samples {
        world.until(kind, name, is_ready).await;
    }
    // Applied again, as by a pipeline, they change nothing.
    world.kubectl(&["apply", "-k", "artifacts/examples"]).unwrap();
    for (kind, name) in samples {
        assert_eq!(world.get(kind, name).await.unwrap()["metadata"]["generation"], 1, "{name}");
    }
}
