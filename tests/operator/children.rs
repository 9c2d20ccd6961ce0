//! The operator's writes to its owned objects, and the fields that it leaves alone.

use std::time::Duration;

use controller_machinery::testing::condition;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::samples::{Sample, one_of_each};
use crate::world::{DEPLOYMENT, GENERIC_DAEMON, MEMCACHED, World, has_condition, is_ready};

const QUIET: Duration = Duration::from_secs(60);

#[tokio::test(start_paused = true)]
async fn creation_takes_one_request_for_each_owned_object() {
    let world = World::new();
    let test = async {
        for Sample { kind, name, object, child } in one_of_each() {
            world.server.settled(QUIET).await;
            let before = world.server.requests().len();
            world.create(kind, object);
            world.server.settled(QUIET).await;
            let counts = |uri: &str| !uri.contains("/status?") && !uri.contains("/events?");
            let requests = world.server.requests().split_off(before);
            let requests = requests.iter().filter(|it| counts(&it.uri));
            // Lists of pods and nodes are not counted, because diagnostics limits them for the whole process.
            let requests = requests.filter(|it| !["list", "watch"].contains(&it.verb));
            let mut requests: Vec<_> = requests
                .map(|it| format!("{} {}", it.verb, it.resource.rsplit('/').next().unwrap()))
                .collect();
            requests.sort();
            let mut expected = vec![format!("patch {}", child.plural())];
            if kind != GENERIC_DAEMON {
                expected.push("patch services".to_owned());
            }
            if kind == MEMCACHED {
                // Its finalizer.
                expected.push("patch memcacheds".to_owned());
            }
            expected.sort();
            assert_eq!(requests, expected, "{name}");
        }
    };
    world.run(test).await;
}

#[tokio::test(start_paused = true)]
async fn a_manually_scaled_deployment_is_restored_at_once() {
    let world = World::new();
    world.create(MEMCACHED, json!({"metadata": {"name": "one"}, "spec": {"size": 1}}));
    let test = async {
        world.until(MEMCACHED, "one", is_ready).await;
        for _ in 0..3 {
            world.server.settled(QUIET).await;
            let scaled = Instant::now();
            world.patch(DEPLOYMENT, "one", json!({"spec": {"replicas": 9}}));
            world.until(DEPLOYMENT, "one", |it| it["spec"]["replicas"] == 1).await;
            assert!(scaled.elapsed() < Duration::from_millis(100), "{:?}", scaled.elapsed());
        }
    };
    world.run(test).await;
}

#[tokio::test(start_paused = true)]
async fn fields_that_the_operator_does_not_set_are_left_alone() {
    let world = World::new();
    let test = async {
        for Sample { kind, name, object, child } in one_of_each() {
            world.create(kind, object);
            world.until(kind, name, is_ready).await;
            let before = world.get(child, name).unwrap();
            let mut containers = before["spec"]["template"]["spec"]["containers"].clone();
            containers
                .as_array_mut()
                .unwrap()
                .push(json!({"name": "sidecar", "image": "sidecar:1"}));
            let template = json!({"metadata": {"annotations": {"sidecar": "injected"}},
                "spec": {"containers": containers}});
            world.patch(
                child,
                name,
                json!({"metadata": {"annotations": {"autoscaling/x": "1"},
                "labels": {"team": "a"}}, "spec": {"template": template}}),
            );
            // This changes the operator's field. After its restoration, the foreign fields must remain.
            let mine = json!({"metadata": {"labels": {"app.kubernetes.io/name": "spoilt"}}});
            world.patch(child, name, mine);
            let is_healed =
                |it: &Value| it["metadata"]["labels"]["app.kubernetes.io/name"] != "spoilt";
            let healed = world.until(child, name, is_healed).await;
            assert_eq!(healed["metadata"]["annotations"]["autoscaling/x"], "1");
            assert_eq!(healed["metadata"]["labels"]["team"], "a");
            let template = &healed["spec"]["template"];
            assert_eq!(template["metadata"]["annotations"]["sidecar"], "injected");
            assert_eq!(template["spec"]["containers"].as_array().unwrap().len(), 2);
        }
    };
    world.run(test).await;
}

#[tokio::test(start_paused = true)]
async fn a_foreign_object_is_untouched_reported_and_replaced_after_its_deletion() {
    let world = World::new();
    let test = async {
        for Sample { kind, name, object, child } in one_of_each() {
            let labels = json!({"foreign": "yes"});
            let template = json!({"metadata": {"labels": labels}, "spec": {"containers": []}});
            let foreign = json!({"metadata": {"name": name},
                "spec": {"selector": {"matchLabels": labels}, "template": template}});
            let created = world.create(child, foreign);
            world.create(kind, object);
            let is_told = |it: &Value| has_condition(it, "Degraded", "True");
            let reported = world.until(kind, name, is_told).await;
            assert!(!is_ready(&reported));
            let event = world.until_event(kind, name, "ErrResourceExists").await;
            assert_eq!(event["type"], "Warning");
            let untouched = world.get(child, name).unwrap();
            assert_eq!(untouched["spec"], created["spec"], "the foreign object was touched");
            assert!(untouched["metadata"]["ownerReferences"].is_null());
            world.delete(child, name);
            let is_ours = |it: &Value| it["metadata"]["ownerReferences"][0]["kind"] == kind.name();
            world.until(child, name, is_ours).await;
            let healed = world.until(kind, name, is_ready).await;
            assert!(!has_condition(&healed, "Degraded", "True"));
        }
    };
    world.run(test).await;
}

#[tokio::test(start_paused = true)]
async fn a_paused_object_is_not_written_and_can_be_deleted() {
    let world = World::new();
    let pause = |value: Value| json!({"metadata": {"annotations": {"workload-operator.example.com/paused": value}}});
    let test = async {
        for Sample { kind, name, object, child } in one_of_each() {
            world.create(kind, object);
            world.until(kind, name, is_ready).await;
            world.patch(kind, name, pause(json!("true")));
            let is_paused = |it: &Value| condition(it, "Ready").unwrap()["reason"] == "Paused";
            world.until(kind, name, is_paused).await;
            let spoilt = json!({"metadata": {"labels": {"app.kubernetes.io/name": "spoilt"}}});
            world.patch(child, name, spoilt);
            world.server.settled(QUIET).await;
            let still = world.get(child, name).unwrap();
            assert_eq!(still["metadata"]["labels"]["app.kubernetes.io/name"], "spoilt");
            world.patch(kind, name, pause(Value::Null));
            let is_healed =
                |it: &Value| it["metadata"]["labels"]["app.kubernetes.io/name"] != "spoilt";
            world.until(child, name, is_healed).await;
            world.until(kind, name, is_ready).await;
            world.patch(kind, name, pause(json!("true")));
            world.delete(kind, name);
            world.server.settled(QUIET).await;
            assert!(world.get(kind, name).is_none() && world.get(child, name).is_none());
        }
    };
    world.run(test).await;
}

#[tokio::test(start_paused = true)]
async fn an_object_deleted_during_downtime_is_finalized_later() {
    let world = World::new();
    world.create(MEMCACHED, json!({"metadata": {"name": "cart"}, "spec": {"size": 1}}));
    world.run(world.until(MEMCACHED, "cart", is_ready)).await;
    world.delete(MEMCACHED, "cart");
    assert!(world.get(MEMCACHED, "cart").is_some(), "its finalizer holds it");
    world.run(world.server.settled(QUIET)).await;
    assert!(world.get(MEMCACHED, "cart").is_none() && world.get(DEPLOYMENT, "cart").is_none());
}
