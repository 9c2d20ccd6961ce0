//! Labels of custom resources that their children inherit.

use serde_json::{Value, json};

use crate::world::{
    APP, DAEMON_SET, DEPLOYMENT, GENERIC_DAEMON, Kind, MEMCACHED, MEMCACHED_IMAGE, POD, SERVICE,
    World, is_ready,
};

const TEAM: &str = "example.com/team";

fn labels(object: &Value) -> &Value {
    &object["metadata"]["labels"]
}

/// Waits until the custom resource, its children and all of its pods have this value of the label, or none.
async fn have(
    world: &World,
    (kind, child, selector): (Kind, Kind, &str),
    name: &str,
    team: &Value,
) {
    let of_pods = |child: &Value| child["spec"]["template"]["metadata"]["labels"][TEAM].clone();
    world.until(child, name, |c| labels(c)[TEAM] == *team && of_pods(c) == *team).await;
    if kind != GENERIC_DAEMON {
        world.until(SERVICE, name, |service| labels(service)[TEAM] == *team).await;
    }
    let is_rolled_out = |c: &Value| {
        let (status, generation) = (&c["status"], &c["metadata"]["generation"]);
        let (updated, all) = if child == DAEMON_SET {
            (&status["updatedNumberScheduled"], &status["desiredNumberScheduled"])
        } else {
            (&status["updatedReplicas"], &status["replicas"])
        };
        status["observedGeneration"] == *generation && updated.as_i64() > Some(0) && updated == all
    };
    world.until(child, name, is_rolled_out).await;
    world.until(kind, name, is_ready).await;
    // A ReplicaSet of the former template can create a pod before its controller knows the newer one.
    let selector = format!("{selector}={name}");
    loop {
        let pods = world.list_with(POD, &selector).await;
        let Some(former) = pods.iter().find(|pod| labels(pod)[TEAM] != *team) else {
            assert!(!pods.is_empty());
            for pod in &pods {
                let of = labels(pod);
                assert!(of["other"].is_null() && of["example.org/team"].is_null(), "{pod:#}");
            }
            return;
        };
        world.until_gone(POD, former["metadata"]["name"].as_str().expect("a name")).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_configured_label_is_inherited_and_removed_with_its_source() {
    let world = World::new("inherited", "baseline").await;
    let settings =
        [("MEMCACHED_IMAGE", MEMCACHED_IMAGE), ("INHERITED_LABELS", "cost,example.com/*")];
    let operator = world.start_operator_with(&settings).await;
    operator.logged("Ready to work").await;
    let with = json!({TEAM: "a", "other": "x", "example.org/team": "x"});
    let ports = json!([{"port": 80}]);
    for (kind, child, selector, spec) in [
        (MEMCACHED, DEPLOYMENT, "cache.example.com/memcached", json!({"size": 1})),
        (APP, DEPLOYMENT, "app.example.com/v1", json!({"image": "shop:1", "ports": ports})),
        (
            GENERIC_DAEMON,
            DAEMON_SET,
            "mydomain.com/genericdaemon",
            json!({"image": "agent:1", "label": "logs"}),
        ),
    ] {
        let name = format!("one-{}", kind.plural());
        let of = (kind, child, selector);
        let object = json!({"metadata": {"name": name, "labels": with}, "spec": spec});
        world.create(kind, object).await.unwrap();
        world.until(kind, &name, is_ready).await;
        have(&world, of, &name, &json!("a")).await;
        let before = world.get(child, &name).await.unwrap();
        assert!(labels(&before)["other"].is_null(), "{before:#}");
        // Another client removes it from the owned object.
        let gone = json!({"metadata": {"labels": {TEAM: null}}});
        world.patch(child, &name, gone.clone()).await.unwrap();
        world.until(child, &name, |c| labels(c)[TEAM] == "a").await;
        // The labels of a template win.
        let own = json!({"spec": {"podTemplate": {"metadata": {"labels": {TEAM: "own"}}}}});
        world.patch(kind, &name, own).await.unwrap();
        let of_pods = |c: &Value| c["spec"]["template"]["metadata"]["labels"][TEAM].clone();
        world.until(child, &name, |c| of_pods(c) == "own" && labels(c)[TEAM] == "a").await;
        world.patch(kind, &name, json!({"spec": {"podTemplate": null}})).await.unwrap();
        have(&world, of, &name, &json!("a")).await;
        world.patch(kind, &name, gone).await.unwrap();
        have(&world, of, &name, &Value::Null).await;
        let after = world.get(child, &name).await.unwrap();
        assert_eq!(before["spec"]["selector"], after["spec"]["selector"]);
        assert_eq!(before["metadata"]["uid"], after["metadata"]["uid"]);
    }
}
