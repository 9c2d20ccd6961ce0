//! Names, labels and images at the edge of what is allowed.

use fastrand::Rng;
use serde_json::{Value, json};

use crate::world::{
    APP, DAEMON_SET, DEPLOYMENT, GENERIC_DAEMON, MEMCACHED, SERVICE, World, has_condition,
};

/// Number of accepted names that are tried.
const NAMES: usize = 60;

/// The API server validates the names, labels and images of a custom resource, and those of its owned
/// objects. Whatever it accepts of the former must be valid for the latter.
#[tokio::test(flavor = "multi_thread")]
async fn accepted_names_labels_and_images_give_valid_owned_objects() {
    let (world, _operator) = World::with_operator_at("names", "baseline").await;
    let mut rng =
        Rng::with_seed(std::env::var("NAMES_SEED").map_or(1, |seed| seed.parse().unwrap()));
    let (mut accepted, mut refused) = (Vec::new(), 0);
    while accepted.len() < NAMES {
        let (name, image) = (name(&mut rng), image(&mut rng));
        let (kind, spec) = match rng.u8(..3) {
            0 => (MEMCACHED, json!({"size": 0})),
            1 => (GENERIC_DAEMON, json!({"image": image, "label": label(&mut rng)})),
            _ => (APP, json!({"image": image, "replicas": 0, "ports": [{"port": 80}]})),
        };
        // Two kinds of the same name would need the same owned objects.
        if accepted.iter().any(|(_, other)| *other == name) {
            continue;
        }
        let object = json!({"metadata": {"name": name}, "spec": spec});
        match world.create(kind, object).await {
            Ok(_) => accepted.push((kind, name)),
            Err(message) => {
                refused += 1;
                let of_what = ["metadata.name", "spec.image", "spec.label"];
                let says = of_what.iter().any(|what| message.contains(what));
                assert!(says, "{name:?} {spec}: {message}");
            }
        }
    }
    println!("{} accepted, {refused} refused", accepted.len());
    for (kind, name) in &accepted {
        let is_told = |object: &Value| object["status"]["observedGeneration"] == 1;
        let object = world.until(*kind, name, is_told).await;
        assert!(!has_condition(&object, "Degraded", "True"), "{object}");
        for child in [DEPLOYMENT, SERVICE, DAEMON_SET] {
            if (child == DAEMON_SET) == (*kind == GENERIC_DAEMON) {
                world.until(child, name, |_| true).await;
            }
        }
    }
}

/// Characters that a DNS name consists of, and a few that it does not.
const LETTERS: &[u8] = b"abcz019-.";

/// An object's name, with the lengths at which something happens: 63 (a label), 242 (the
/// DaemonSet's revisions), 253 (an object).
fn name(rng: &mut Rng) -> String {
    let length = *rng
        .choice(&[1, 2, 11, 52, 57, 62, 63, 64, 100, 241, 242, 243, 252, 253, 254])
        .expect("some");
    let mut name = text(length, LETTERS, rng);
    // By far most of them would be refused for two dots in a row, or for a dash at either end of a
    // label.
    if rng.u8(..4) > 0 {
        while name.contains("..") || name.contains(".-") || name.contains("-.") {
            name = name.replace("..", "a.").replace(".-", "aa").replace("-.", "aa");
        }
        let end = if name.len() > 1 { "x" } else { "" };
        let inner = name.get(1..name.len().max(2) - 1).unwrap_or("");
        name = format!("x{inner}{end}");
    }
    if rng.bool() {
        name = name.replace('.', "d");
    }
    name
}

/// An image name; some of them are odd.
fn image(rng: &mut Rng) -> String {
    let tag = text(rng.usize(1..=130), b"abcXYZ019._-", rng);
    let odd = text(rng.usize(1..=512), b"abc/:@._-!~\"'{}", rng);
    let digest = "0123456789abcdef".repeat(4);
    match rng.u8(..6) {
        0 => format!("nginx:{tag}"),
        1 => format!("registry.example.com:5000/a/b:{tag}@sha256:{digest}"),
        2 => format!("nginx@sha256:{digest}"),
        3 => odd,
        4 => format!("nginx:{tag} "),
        _ => "nginx".to_owned(),
    }
}

/// A node label; some of them are invalid.
fn label(rng: &mut Rng) -> Option<String> {
    let part = |rng: &mut Rng| {
        let length = *rng.choice(&[0, 1, 2, 62, 63, 64]).expect("some");
        text(length, b"abcXYZ019._-", rng)
    };
    let key = part(rng);
    let key = match rng.u8(..3) {
        0 => format!("{}/{key}", name(rng)),
        _ => key,
    };
    match rng.u8(..4) {
        0 => None,
        1 => Some(key),
        _ => Some(format!("{key}={}", part(rng))),
    }
}

fn text(length: usize, letters: &[u8], rng: &mut Rng) -> String {
    (0..length).map(|_| char::from(*rng.choice(letters).expect("some"))).collect()
}
