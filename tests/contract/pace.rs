//! The administrator's new image reaches a bounded number of Memcacheds at a time.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::world::{DEPLOYMENT, MEMCACHED, World, condition_message, is_ready, memcached};

const NEW: &str = "memcached:new";
const NAMES: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];
const AT_A_TIME: usize = 2;

fn has_new_image(deployment: &Value) -> bool {
    deployment["spec"]["template"]["spec"]["containers"][0]["image"] == NEW
}

fn is_complete(deployment: &Value) -> bool {
    let status = &deployment["status"];
    let counts = ["replicas", "updatedReplicas", "availableReplicas"];
    status["observedGeneration"] == deployment["metadata"]["generation"]
        && counts.iter().all(|count| status[count] == deployment["spec"]["replicas"])
}

/// Observations of the rollout.
#[derive(Default)]
struct Seen {
    /// By name, whether a Deployment with the new image is complete.
    new: BTreeMap<String, bool>,
    most: usize,
    /// The names in the order in which the Deployments got the image.
    order: Vec<String>,
}

impl Seen {
    fn look(&mut self, deployment: &Value) {
        if !has_new_image(deployment) {
            return;
        }
        let name = deployment["metadata"]["name"].as_str().unwrap().to_owned();
        if self.new.insert(name.clone(), is_complete(deployment)).is_none() {
            self.order.push(name);
        }
        self.most = self.most.max(self.new.values().filter(|complete| !**complete).count());
    }
}

/// The last lines of the plan for the new image.
async fn plan(world: &World) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_workload-operator"))
        .args(["plan", "--namespace", &world.namespace, "--memcached-image", NEW])
        .arg(format!("--max-image-rollouts={AT_A_TIME}"))
        .arg("--kubeconfig")
        .arg(world.operator_kubeconfig().await)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_image_rolls_out_to_a_bounded_number_at_a_time() {
    let (world, operator) = World::with_operator("pace").await;
    for name in NAMES {
        world.create(MEMCACHED, memcached(name, 1)).await.unwrap();
    }
    for name in NAMES {
        world.until(MEMCACHED, name, is_ready).await;
    }
    assert_eq!(operator.terminate().await, Some(0));

    let planned = plan(&world).await;
    let order = NAMES.map(|name| format!("pace/{name}")).join(", ");
    let line =
        format!("Images: 8 Memcacheds get {NEW}, {AT_A_TIME} at a time, in this order: {order}\n");
    assert!(planned.contains(&line), "{planned}");
    assert!(planned.contains("8 workloads would restart"), "{planned}");

    let (seen, said) = (Arc::<Mutex<Seen>>::default(), Arc::<Mutex<BTreeSet<String>>>::default());
    let (looking, hearing) = (seen.clone(), said.clone());
    let watches = [
        tokio::spawn(world.for_each_change(DEPLOYMENT, move |one| looking.lock().look(&one))),
        tokio::spawn(world.for_each_change(MEMCACHED, move |one| {
            let readiness = if is_ready(&one) { "Ready" } else { "not Ready" };
            let message = condition_message(&one, "Ready");
            hearing.lock().insert(format!("{readiness}: {message}"));
        })),
    ];
    let settings = [("MEMCACHED_IMAGE", NEW), ("MAX_IMAGE_ROLLOUTS", &AT_A_TIME.to_string())];
    let mut operator = world.start_operator_with(&settings).await;
    let waits = format!(
        "1 of 1 replica is ready; image {NEW} waits: at most 2 Memcacheds change at a time, now pace/"
    );
    let is_waiting = |m: &Value| condition_message(m, "Ready").starts_with(&waits);
    let last = world.until(MEMCACHED, "h", is_waiting).await;
    assert!(is_ready(&last), "{last:#}");
    // The rest of the spec of a waiting Memcached applies at once.
    world.patch(MEMCACHED, "h", json!({"spec": {"size": 2}})).await.unwrap();
    let grown = world.until(DEPLOYMENT, "h", |d| d["spec"]["replicas"] == 2).await;
    assert!(!has_new_image(&grown), "{grown:#}");

    for name in NAMES {
        world.until(DEPLOYMENT, name, |d| has_new_image(d) && is_complete(d)).await;
        let done = |m: &Value| is_ready(m) && !condition_message(m, "Ready").contains("waits");
        world.until(MEMCACHED, name, done).await;
    }
    operator.assert_alive();
    watches.iter().for_each(|watch| watch.abort());
    let seen = seen.lock();
    println!("{} at a time, in the order {:?}", seen.most, seen.order);
    assert!((1..=AT_A_TIME).contains(&seen.most), "{} at a time", seen.most);
    // A granted turn counts even before it is used.
    for (at, name) in seen.order.iter().enumerate() {
        let passed_over = seen.order[at..].iter().filter(|later| *later < name).count();
        assert!(passed_over < AT_A_TIME, "{name} in {:?}", seen.order);
    }
    let waits = format!("Ready: {waits}");
    assert!(said.lock().iter().any(|said| said.starts_with(&waits)), "{:?}", said.lock());
}
