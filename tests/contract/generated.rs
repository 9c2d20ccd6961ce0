//! No sequence of edits leaves a custom resource in a wrong state.
//!
//! Many custom resources at once go through steps that are made from their CRD's OpenAPI schema:
//! valid edits, edits at and beyond each bound, of the wrong type, null, missing and unknown
//! fields, the same spec written otherwise, specs that nobody can bring about, and children
//! deleted and changed by hand. After each step
//! - exact: the children are what the tests themselves make of the spec, as the API server fills
//!   it in, at the very moment when Ready says so, and so are the pods and the counts in `status`;
//! - no-op: what means the same causes no write to a child, nor does any step afterwards;
//! - recovery: what cannot be brought about is told, and undone all is as before, no child deleted;
//! - differential: made fresh with the last spec, children and status are the same;
//! - health: each status that anybody could see keeps the laws of kstatus and Flux, the operator
//!   is the same process;
//! - at the end nothing is left.
//!
//! A seed makes a sequence. `GENERATED_SEED` is the first (default 1), `GENERATED_SEQUENCES` how
//! many follow each other; see docs/TESTING.md.

mod audit;
mod compare;
mod expected;
mod laws;
mod names;
mod schema;
mod sequence;
mod steps;
mod values;

use std::collections::BTreeSet;
use std::sync::Arc;

use fastrand::Rng;
use futures::StreamExt;
use serde_json::{Value, json};

use audit::Audit;
use laws::Laws;
use sequence::Sequence;
use steps::{Step, Trace, kind_of};

use crate::world::{
    APP, DAEMON_SET, DEPLOYMENT, GENERIC_DAEMON, MEMCACHED, NODE, SERVICE, World, has_condition,
};

/// Seeds that failed once.
const REGRESSIONS: &[u64] = &[
    // All ports replaced by one that is refused: nobody was told.
    11,
];

/// So many sequences by default, beside the regressions: what fits into a minute on two cores.
const SEQUENCES: u64 = 8;

/// So many custom resources at once: enough that they meet, and the machine still keeps up.
const AT_ONCE: usize = 12;

/// So many names are tried that are accepted.
const NAMES: usize = 60;

/// What all sequences share.
pub struct Run {
    world: World,
    audit: Audit,
    laws: Laws,
    /// The labels of all nodes.
    nodes: Vec<Value>,
}

#[tokio::test(flavor = "multi_thread")]
async fn no_sequence_of_edits_leaves_a_wrong_state() {
    let (first, count) = (number("GENERATED_SEED", 1), number("GENERATED_SEQUENCES", SEQUENCES));
    let (world, mut operator) = World::with_operator_at("generated", "baseline").await;
    let audit = Audit::open(&world);
    let laws = Laws::watch(&world, &[MEMCACHED, GENERIC_DAEMON, APP]);
    let nodes = world.list(NODE).await;
    let nodes = nodes.into_iter().map(|mut node| node["metadata"]["labels"].take()).collect();
    let run = Arc::new(Run { world, audit, laws, nodes });

    let seeds: BTreeSet<u64> = REGRESSIONS.iter().copied().chain(first..first + count).collect();
    let all = seeds.into_iter().map(|seed| {
        let trace = Trace::default();
        let task = tokio::spawn(sequence(run.clone(), seed, trace.clone()));
        async move { task.await.err().map(|_| (seed, trace)) }
    });
    let started = tokio::time::Instant::now();
    let failed: Vec<_> = futures::stream::iter(all)
        .buffer_unordered(AT_ONCE)
        .filter_map(std::future::ready)
        .collect()
        .await;
    println!(
        "{count} sequences from seed {first}, {} statuses, {:?}",
        run.laws.seen(),
        started.elapsed()
    );
    for (seed, trace) in &failed {
        let trace = trace.lock();
        println!("GENERATED_SEED={seed} GENERATED_SEQUENCES=1 failed in the last of these steps:");
        trace.iter().for_each(|step| println!("  {step:?}"));
    }
    assert!(
        failed.is_empty(),
        "failed: {:?}",
        failed.iter().map(|(seed, _)| seed).collect::<Vec<_>>()
    );
    run.laws.assert_kept();
    operator.assert_alive();
    let errors = operator.lines().into_iter().filter(|line| line.contains("panicked"));
    assert_eq!(errors.collect::<Vec<_>>(), [""; 0]);
}

/// A number from the environment.
fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

/// A custom resource from its creation to its end.
async fn sequence(run: Arc<Run>, seed: u64, trace: Trace) {
    let mut rng = Rng::with_seed(seed);
    let (kind, word) = kind_of(seed);
    let slot = seed % 80;
    let spec = values::slot(schema::valid(&schema::of_spec(kind), "spec", &mut rng), slot);
    trace.lock().push(Step::Edit(spec.clone()));
    let mut sequence = Sequence::create(run, kind, format!("{word}-{seed}"), spec).await;
    for _ in 0..rng.usize(10..=30) {
        let step = sequence.next(&mut rng, slot);
        trace.lock().push(step.clone());
        let started = tokio::time::Instant::now();
        sequence.step(&step).await;
        if std::env::var_os("GENERATED_TIMES").is_some() {
            println!(
                "{word}-{seed} {:?} {}",
                started.elapsed(),
                format!("{step:?}").split('(').next().unwrap_or("")
            );
        }
    }
    sequence.end().await;
}

/// What the names, labels and images of a custom resource may be is known to the API server; what
/// its children's may be, too. Whatever it accepts of the former has to make the latter acceptable.
#[tokio::test(flavor = "multi_thread")]
async fn whatever_name_label_and_image_are_accepted_the_children_are_too() {
    let (world, _operator) = World::with_operator_at("names", "baseline").await;
    let mut rng = Rng::with_seed(number("GENERATED_SEED", 1));
    let (mut accepted, mut refused) = (Vec::new(), 0);
    while accepted.len() < NAMES {
        let (name, image) = (names::name(&mut rng), names::image(&mut rng));
        let (kind, spec) = match rng.u8(..3) {
            0 => (MEMCACHED, json!({"size": 0})),
            1 => (GENERIC_DAEMON, json!({"image": image, "label": names::label(&mut rng)})),
            _ => (APP, json!({"image": image, "replicas": 0, "ports": [{"port": 80}]})),
        };
        // Two kinds would ask for the same children.
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
