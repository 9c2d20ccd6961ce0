//! Edits of custom resources: the resulting writes and statuses.

use std::time::Duration;

use controller_machinery::testing::condition;
use serde_json::{Value, json};

use crate::world::{
    APP, DAEMON_SET, DEPLOYMENT, GENERIC_DAEMON, Kind, MEMCACHED, NODE, POD, SERVICE, World, id,
    is_ready,
};

const QUIET: Duration = Duration::from_secs(60);

/// Creates the App `shop`, and waits until it is ready.
async fn shop(world: &World, spec: Value) {
    world.create(APP, json!({"metadata": {"name": "shop"}, "spec": spec}));
    world.until(APP, "shop", is_ready).await;
}

/// Merge-patches the spec of the App, and waits until the operator is idle.
async fn edit(world: &World, spec: Value) {
    world.patch(APP, "shop", json!({ "spec": spec }));
    world.server.settled(QUIET).await;
    assert!(is_ready(&world.get(APP, "shop").unwrap()));
}

/// Counts the writes to objects of this kind so far.
pub fn writes(world: &World, kind: Kind) -> usize {
    let resource = id(kind, "").resource;
    let is_one = |uri: &str| !uri.contains("/status?");
    let writes = world.server.writes();
    writes.iter().filter(|it| it.resource == resource && is_one(&it.uri)).count()
}

#[tokio::test(start_paused = true)]
async fn an_edit_writes_each_affected_object_once() {
    let world = World::new();
    let test = async {
        shop(&world, json!({"image": "shop:1", "ports": [{"port": 80}]})).await;
        for (spec, to_deployment, to_service) in [
            (json!({"replicas": 2}), 1, 0),
            (json!({"envs": [{"name": "A", "value": "1"}]}), 1, 0),
            // The Service also has the label of the version.
            (json!({"image": "shop:2"}), 1, 1),
            (json!({"image": "mirror.example.com/shop:2"}), 1, 0),
            (json!({"ports": [{"port": 81, "targetPort": 80}]}), 0, 1),
            (json!({"ports": [{"port": 81, "targetPort": 8080}]}), 1, 1),
            (json!({"replicas": 0}), 1, 0),
        ] {
            let before = [DEPLOYMENT, SERVICE].map(|kind| writes(&world, kind));
            edit(&world, spec.clone()).await;
            let after = [DEPLOYMENT, SERVICE].map(|kind| writes(&world, kind));
            assert_eq!(after, [before[0] + to_deployment, before[1] + to_service], "{spec}");
        }
    };
    world.run(test).await;
}

fn container(world: &World) -> Value {
    let deployment = world.get(DEPLOYMENT, "shop").unwrap();
    deployment["spec"]["template"]["spec"]["containers"][0].clone()
}

#[tokio::test(start_paused = true)]
async fn variables_are_added_changed_reordered_and_removed() {
    let world = World::new();
    let node = json!({"fieldRef": {"apiVersion": "v1", "fieldPath": "spec.nodeName"}});
    let test = async {
        shop(&world, json!({"image": "shop:1"})).await;
        for env in [
            json!([{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]),
            json!([{"name": "A", "value": "1"}, {"name": "B", "value": "3"}, {"name": "C", "value": "x"}]),
            // A value becomes a source, and a source becomes a value.
            json!([{"name": "A", "valueFrom": node}, {"name": "C", "value": "x"}]),
            json!([{"name": "A", "value": "1"}]),
            json!([{"name": "B", "value": "x"}, {"name": "A", "value": "$(B)"}]),
            json!([{"name": "A", "value": "$(B)"}, {"name": "B", "value": "x"}]),
            Value::Null,
        ] {
            edit(&world, json!({"envs": env})).await;
            assert_eq!(container(&world)["env"], env);
        }
    };
    world.run(test).await;
}

/// One field of each port, sorted.
fn all(ports: &Value, field: &str) -> Vec<Value> {
    let mut values: Vec<_> =
        ports.as_array().unwrap().iter().map(|port| port[field].clone()).collect();
    values.sort_by_key(Value::to_string);
    values
}

#[tokio::test(start_paused = true)]
async fn the_service_exists_while_the_app_has_ports() {
    let world = World::new();
    let test = async {
        shop(&world, json!({"image": "shop:1"})).await;
        for (ports, of_service, of_container) in [
            (json!([]), vec![], vec![]),
            (json!([{"port": 80}]), vec![80], vec![80]),
            (json!([{"port": 80}, {"port": 53, "protocol": "UDP"}]), vec![53, 80], vec![53, 80]),
            // The same number with another protocol.
            (json!([{"port": 53}, {"port": 53, "protocol": "UDP"}]), vec![53, 53], vec![53, 53]),
            (json!([{"port": 81, "targetPort": 8081}]), vec![81], vec![8081]),
            (json!([]), vec![], vec![]),
            (json!([{"port": 80}]), vec![80], vec![80]),
        ] {
            edit(&world, json!({"ports": ports})).await;
            let Some(service) = world.get(SERVICE, "shop") else {
                assert_eq!((of_service, &container(&world)["ports"]), (vec![], &Value::Null));
                continue;
            };
            assert_eq!(all(&service["spec"]["ports"], "port"), of_service, "{ports}");
            assert_eq!(all(&container(&world)["ports"], "containerPort"), of_container, "{ports}");
        }
    };
    world.run(test).await;
}

#[tokio::test(start_paused = true)]
async fn the_nodes_of_a_memcached_are_its_sorted_pod_names() {
    let world = World::new();
    let test = async {
        for name in ["one", "two"] {
            world.create(MEMCACHED, json!({"metadata": {"name": name}, "spec": {"size": 3}}));
        }
        for name in ["one", "two"] {
            let found = world.until(MEMCACHED, name, is_ready).await;
            let pods = world.list(POD).into_iter().map(|pod| pod["metadata"]["name"].clone());
            let start = format!("{name}-");
            let mut own: Vec<Value> =
                pods.filter(|pod| pod.as_str().unwrap().starts_with(&start)).collect();
            own.sort_by_key(Value::to_string);
            assert_eq!((&found["status"]["nodes"], own.len()), (&json!(own), 3));
        }
    };
    world.run(test).await;
}

#[tokio::test(start_paused = true)]
async fn a_deletion_runs_the_finalizer_and_reports_it() {
    let world = World::new();
    // Another finalizer keeps the object, so that its last state can be read.
    world.create(
        MEMCACHED,
        json!({"metadata": {"name": "cart", "finalizers": ["example.com/keep"]}, "spec": {"size": 1}}),
    );
    let test = async {
        let both = json!(["example.com/keep", "cache.example.com/finalizer"]);
        let ready = world.until(MEMCACHED, "cart", is_ready).await;
        assert_eq!(ready["metadata"]["finalizers"], both);
        world.delete(MEMCACHED, "cart");
        let ran = |it: &Value| it["metadata"]["finalizers"] == json!(["example.com/keep"]);
        let last = world.until(MEMCACHED, "cart", ran).await;
        let degraded = condition(&last, "Degraded").unwrap();
        assert_eq!(
            (&degraded["status"], &degraded["reason"]),
            (&json!("True"), &json!("Finalizing"))
        );
        let done =
            "Finalizer operations for custom resource cart name were successfully accomplished";
        assert_eq!(degraded["message"], done);
        let event = world.until_event(MEMCACHED, "cart", "Deleting").await;
        let note = "Custom Resource cart is being deleted from the namespace shop";
        assert_eq!((&event["type"], &event["note"]), (&json!("Warning"), &json!(note)));
        world.patch(MEMCACHED, "cart", json!({"metadata": {"finalizers": null}}));
        world.server.settled(QUIET).await;
        assert!(world.get(MEMCACHED, "cart").is_none());
    };
    world.run(test).await;
}

#[tokio::test(start_paused = true)]
async fn a_daemon_follows_its_label_and_its_image() {
    let world = World::new();
    world.patch(NODE, "node-3", json!({"metadata": {"labels": {"disk": "ssd"}}}));
    let spec = json!({"image": "agent:1", "label": "logs=yes"});
    world.create(GENERIC_DAEMON, json!({"metadata": {"name": "agent"}, "spec": spec}));
    let installed =
        |count: i64| move |it: &Value| it["status"]["installed"] == count && is_ready(it);
    let test = async {
        world.until(GENERIC_DAEMON, "agent", installed(2)).await;
        for (label, count) in [
            (json!("disk=ssd"), 1),
            (json!("disk=floppy"), 0),
            (Value::Null, 3),
            (json!("logs"), 2),
        ] {
            world.patch(GENERIC_DAEMON, "agent", json!({"spec": {"label": label}}));
            world.until(GENERIC_DAEMON, "agent", installed(count)).await;
        }
        world.patch(GENERIC_DAEMON, "agent", json!({"spec": {"image": "agent:2"}}));
        world.until(GENERIC_DAEMON, "agent", installed(2)).await;
        let pods = world.list(POD);
        assert!(!pods.is_empty());
        for pod in pods {
            let goes = !pod["metadata"]["deletionTimestamp"].is_null();
            assert!(goes || pod["spec"]["containers"][0]["image"] == "agent:2", "{pod:#}");
        }
        assert_eq!(writes(&world, DAEMON_SET), 6, "created, and one for each edit");
    };
    world.run(test).await;
}
