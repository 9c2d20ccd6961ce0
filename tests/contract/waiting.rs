//! `kubectl wait` is reliable: it returns only after exactly the pods of that generation serve.

use std::sync::Arc;

use fastrand::Rng;
use serde_json::{Value, json};

use crate::world::{APP, GENERIC_DAEMON, Kind, MEMCACHED, NODE, POD, World};

/// The default number of edits; `KUBECTL_WAIT_EDITS` overrides it, see docs/TESTING.md.
const EDITS: usize = 24;

/// Number of custom resources edited at the same time.
const AT_ONCE: usize = 3;

const IMAGES: [&str; 4] = ["shop:1", "shop:2", "shop:3", "shop:4"];

/// Labels of two nodes, one node, and all nodes.
const LABELS: [&str; 3] = ["logs", "disk", "kubernetes.io/os"];

/// The ports of Memcached's pods, whose image the operator sets.
const PORTS: [i64; 3] = [11211, 11212, 11213];

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_wait_returns_only_when_the_new_pods_serve() {
    let edits = std::env::var("KUBECTL_WAIT_EDITS").map_or(EDITS, |n| n.parse().unwrap());
    let (world, _operator) = World::with_operator_at("kubectl-wait-edits", "baseline").await;
    let world = Arc::new(world);
    let kinds = [(MEMCACHED, "cart"), (GENERIC_DAEMON, "agent"), (APP, "shop")];
    let started = tokio::time::Instant::now();
    let tasks = kinds.map(|(kind, name)| {
        tokio::spawn(edit_and_wait(world.clone(), kind, name, edits.div_ceil(AT_ONCE)))
    });
    let mut waited = 0;
    for task in tasks {
        waited += task.await.unwrap();
    }
    println!("{waited} edits, each waited for, in {:?}", started.elapsed());
}

/// Edits one custom resource this many times, and waits for each edit with kubectl.
async fn edit_and_wait(world: Arc<World>, kind: Kind, name: &'static str, edits: usize) -> usize {
    let mut rng = Rng::with_seed(7);
    let mut spec = random_spec(kind, &mut rng);
    world.create(kind, json!({"metadata": {"name": name}, "spec": spec})).await.unwrap();
    for number in 0..edits {
        let condition = if is_resized(kind, number) { "Available" } else { "Ready" };
        let (world, waited_for) = (world.clone(), format!("--for=condition={condition}"));
        let what = format!("{}.{}/{name}", kind.plural(), kind.group());
        let asked = world.clone();
        let wait = move || asked.kubectl(&["wait", &waited_for, &what, "--timeout=120s"]);
        tokio::task::spawn_blocking(wait).await.unwrap().unwrap();
        if condition == "Ready" {
            assert_only_it_serves(&world, kind, name, &spec).await;
        } else {
            let serving =
                pods(&world, kind, name).await.iter().filter(|pod| is_serving(pod)).count();
            assert!(serving >= count_of(&spec["size"]), "{serving} serve: {spec}");
        }
        let next = random_spec(kind, &mut rng);
        if is_resized(kind, number + 1) {
            spec["size"] = next["size"].clone();
        } else {
            spec = next;
        }
        world.replace_spec(kind, name, &spec).await.unwrap();
    }
    edits
}

/// Returns whether this edit of a Memcached changes only its size: then Available remains True once it is.
/// During a rollout, a Memcached has one instance less for a while after it reported that all are available.
fn is_resized(kind: Kind, number: usize) -> bool {
    kind == MEMCACHED && number % 4 == 3
}

fn random_spec(kind: Kind, rng: &mut Rng) -> Value {
    let image = IMAGES[rng.usize(..IMAGES.len())];
    match kind {
        MEMCACHED => {
            json!({"size": rng.i64(0..=3), "containerPort": PORTS[rng.usize(..PORTS.len())]})
        }
        GENERIC_DAEMON => {
            let label = LABELS[rng.usize(..LABELS.len())];
            json!({"image": image, "label": label})
        }
        _ => json!({"image": image, "replicas": rng.i64(0..=4)}),
    }
}

/// The pods that are not being deleted.
async fn pods(world: &World, kind: Kind, name: &str) -> Vec<Value> {
    let label = match kind {
        MEMCACHED => "cache.example.com/memcached",
        GENERIC_DAEMON => "mydomain.com/genericdaemon",
        _ => "app.example.com/v1",
    };
    let labels = format!("{label}={name}");
    let mut pods = world.list_with(POD, &labels).await;
    pods.retain(|pod| pod["metadata"]["deletionTimestamp"].is_null());
    pods
}

fn is_serving(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    conditions.into_iter().any(|c| c["type"] == "Ready" && c["status"] == "True")
}

/// Returns whether a pod is of this spec's generation, regardless of the number of pods.
fn is_of(spec: &Value, pod: &Value) -> bool {
    let container = &pod["spec"]["containers"][0];
    match spec["image"].as_str() {
        Some(image) => container["image"] == image,
        None => container["ports"][0]["containerPort"] == spec["containerPort"],
    }
}

/// Asserts that all pods are of this spec, serve, and have the desired number.
async fn assert_only_it_serves(world: &World, kind: Kind, name: &str, spec: &Value) {
    let pods = pods(world, kind, name).await;
    let told = |pod: &Value| {
        let container = &pod["spec"]["containers"][0];
        (container["image"].clone(), container["ports"].clone(), is_serving(pod))
    };
    let all: Vec<_> = pods.iter().map(told).collect();
    assert!(pods.iter().all(|pod| is_of(spec, pod) && is_serving(pod)), "{spec}: {all:?}");
    let count = match kind {
        GENERIC_DAEMON => {
            let label = spec["label"].as_str().unwrap();
            let nodes = world.list(NODE).await;
            nodes.iter().filter(|node| node["metadata"]["labels"][label].is_string()).count()
        }
        MEMCACHED => count_of(&spec["size"]),
        _ => count_of(&spec["replicas"]),
    };
    assert_eq!(pods.len(), count, "{spec}: {all:?}");
}

fn count_of(value: &Value) -> usize {
    usize::try_from(value.as_u64().unwrap()).unwrap()
}
