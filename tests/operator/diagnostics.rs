//! Lists of pods and nodes that explain a status, and the status while they fail or hang.
//!
//! An App's pods are listed for no other purpose.

use std::time::Duration;

use controller_machinery::testing::{Fault, condition, refusal};
use serde_json::{Value, json};

use crate::world::{APP, GENERIC_DAEMON, Kind, NODE, POD, World, id, is_ready};

/// A result is used for half a minute.
const LATER: Duration = Duration::from_secs(40);

fn app(name: &str, replicas: i64) -> Value {
    json!({"metadata": {"name": name}, "spec": {"image": "a:1", "replicas": replicas}})
}

/// Makes each list of a kind fail with 500.
fn fail_lists(world: &World, kind: Kind) {
    let resource = id(kind, "").resource;
    world.server.intercept(move |request| {
        let lists = request.verb == "list" && request.resource == resource;
        lists.then(|| refusal(500, "InternalError", "no"))
    });
}

fn lists(world: &World, kind: Kind) -> usize {
    let resource = id(kind, "").resource;
    let all = world.server.requests();
    all.iter().filter(|it| it.verb == "list" && it.resource == resource).count()
}

#[tokio::test(start_paused = true)]
async fn a_failed_list_of_pods_keeps_the_status() {
    let world = World::new();
    world.create(APP, app("app", 2));
    let crashes = ("True", "ImagePullFailed");
    let said = |app: &Value| {
        let kinds = ["Ready", "Degraded", "Stalled", "Reconciling"];
        kinds.map(|kind| condition(app, kind).cloned())
    };
    let test = async {
        world.until(APP, "app", is_ready).await;
        let one = world.list(POD)[0]["metadata"]["name"].as_str().unwrap().to_owned();
        world.pods_wait(&one, "ImagePullBackOff");
        world.until_condition(APP, "app", "Degraded", crashes).await;
        let before = said(&world.get(APP, "app").unwrap());
        fail_lists(&world, POD);
        tokio::time::sleep(LATER).await;
        let listed = lists(&world, POD);
        world.pods_wait("app-", "ImagePullBackOff");
        let after = world.until(APP, "app", |app| app["status"]["readyReplicas"] == 0).await;
        assert_eq!(said(&after), before, "{after:#}");
        tokio::time::sleep(LATER).await;
        assert!(lists(&world, POD) > listed);
        before
    };
    let before = world.run(test).await;
    // A new operator, which has listed nothing yet, keeps it, too.
    let test = async {
        let listed = lists(&world, POD);
        tokio::time::sleep(LATER).await;
        assert!(lists(&world, POD) > listed);
        assert_eq!(said(&world.get(APP, "app").unwrap()), before);
        world.server.intercept(|_| None);
        world.pods_wait("", "");
        world.until(APP, "app", is_ready).await;
    };
    world.run(test).await;
}

#[tokio::test(start_paused = true)]
async fn hanging_lists_delay_neither_the_status_nor_other_objects() {
    let world = World::new();
    let names = ["a", "b", "c", "d", "e", "f"];
    let test = async {
        for name in names {
            world.create(APP, app(name, 1));
            world.until(APP, name, is_ready).await;
        }
        for number in 1..200 {
            world.server.fault("list", &id(POD, "").resource, number, Fault::Hang);
        }
        world.pods_wait("", "CrashLoopBackOff");
        for name in names {
            let unexplained = ("True", "ReplicasUnavailable");
            world.until_condition(APP, name, "Degraded", unexplained).await;
        }
        // More objects than a controller has workers wait for lists.
        world.pods_wait("a-", "CrashLoopBackOff");
        world.create(APP, app("well", 1));
        world.until(APP, "well", is_ready).await;
        world.server.clear_faults();
        world.until_condition(APP, "a", "Degraded", ("True", "CrashLoopBackOff")).await;
    };
    world.run(test).await;
}

#[tokio::test(start_paused = true)]
async fn a_failed_list_of_nodes_does_not_make_a_daemon_ready() {
    let world = World::new();
    fail_lists(&world, NODE);
    let daemon = json!({"metadata": {"name": "logs"}, "spec": {"image": "a:1", "label": "logs"}});
    world.create(GENERIC_DAEMON, daemon);
    let taint = |taints: Value| {
        for node in ["node-1", "node-2"] {
            world.patch(NODE, node, json!({"spec": {"taints": taints}}));
        }
    };
    let test = async {
        world.until(GENERIC_DAEMON, "logs", is_ready).await;
        taint(json!([{"key": "dedicated", "value": "db", "effect": "NoSchedule"}]));
        let unknown = ("False", "RollingOut");
        let message = world.until_condition(GENERIC_DAEMON, "logs", "Ready", unknown).await;
        assert!(message.contains("cannot list the nodes"), "{message}");
        world.server.intercept(|_| None);
        let tainted = ("True", "NodesTainted");
        world.until_condition(GENERIC_DAEMON, "logs", "Degraded", tainted).await;
        let before = world.get(GENERIC_DAEMON, "logs").unwrap();
        fail_lists(&world, NODE);
        let listed = lists(&world, NODE);
        tokio::time::sleep(10 * LATER).await;
        assert!(lists(&world, NODE) > listed + 1);
        assert_eq!(world.get(GENERIC_DAEMON, "logs").unwrap()["status"], before["status"]);
        world.server.intercept(|_| None);
        taint(Value::Null);
        world.until(GENERIC_DAEMON, "logs", is_ready).await;
    };
    world.run(test).await;
}
