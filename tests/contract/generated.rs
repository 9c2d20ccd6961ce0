//! Every sequence of edits of a custom resource ends in the desired state.
//!
//! Many custom resources go through steps at the same time. The steps are generated from their CRD's OpenAPI
//! schema: valid edits, edits at and beyond each bound, of the wrong type, null, missing and unknown fields,
//! the same spec in another notation, specs that cannot be applied, owned objects deleted and changed
//! manually, and quotas that forbid their recreation. After each step
//! - exact: at the moment when Ready becomes True, the owned objects match the spec, as the tests themselves
//!   and the API server's defaults determine it, and so do the pods and the counts in `status`;
//! - no-op: a change without a difference in meaning causes no write to an owned object, nor does any later
//!   step, and no status write leaves the status unchanged;
//! - recovery: a spec that cannot be applied is reported; after it is reverted, everything is as before, and
//!   no owned object is deleted;
//! - differential: a new object with the last spec has the same owned objects and status;
//! - health: every visible status and Event obeys the laws in laws/, and the operator is still the same
//!   process;
//! - at the end, all objects are deleted.
//!
//! A seed determines a sequence. `GENERATED_SEED` is the first (default 1), `GENERATED_SEQUENCES`
//! the number of consecutive ones. A sequence that fails is cut to the steps that its failure
//! needs, which are printed as a file for regressions/; see docs/TESTING.md.

mod audit;
mod compare;
mod expected;
mod laws;
mod names;
mod run;
mod schema;
mod sequence;
mod shrink;
mod steps;
pub mod values;

use fastrand::Rng;
use futures::StreamExt;
use serde_json::{Value, json};

use run::Run;
use sequence::Sequence;
use steps::{Script, Step, Trace, kind_of, regressions};

use crate::world::{
    APP, DAEMON_SET, DEPLOYMENT, GENERIC_DAEMON, MEMCACHED, SERVICE, World, has_condition,
};

/// Number of sequences by default, in addition to the regressions: what fits into a minute on
/// two cores.
const SEQUENCES: u64 = 8;

/// Number of custom resources at once: enough for them to interfere, few enough for the
/// machine to keep up.
const AT_ONCE: usize = 12;

/// Maximum number of tries of a failed sequence with fewer steps.
const ATTEMPTS: usize = 30;

/// Number of accepted names that are tried.
const NAMES: usize = 60;

/// The first slots, one slot for each sequence that runs at a time: those of seeds, then of
/// attempts to find which steps a failure needs, then of regressions. There are 86; see
/// `values::placed`.
const SLOTS: [u64; 3] = [0, 40, 80];

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes minutes: cargo test --test contract -- --ignored"]
async fn every_sequence_of_edits_ends_in_the_desired_state() {
    let (first, count) = (number("GENERATED_SEED", 1), number("GENERATED_SEQUENCES", SEQUENCES));
    let run = Run::start("generated").await;
    let again = regressions().into_iter().enumerate().map(|(number, (name, script))| {
        let slot = SLOTS[2] + number as u64 % 6;
        (name, slot, Source::Script(script))
    });
    let seeds = (first..first + count)
        .map(|seed| (format!("seed-{seed}"), seed % SLOTS[1], Source::Seed(seed)));
    let all = again.chain(seeds).map(|(name, slot, source)| {
        let trace = Trace::default();
        let task = tokio::spawn(sequence(run.clone(), name.clone(), slot, source, trace.clone()));
        async move { task.await.err().map(|_| (name, trace)) }
    });
    let started = tokio::time::Instant::now();
    let failed: Vec<(String, Trace)> = futures::stream::iter(all)
        .buffer_unordered(AT_ONCE)
        .filter_map(std::future::ready)
        .collect()
        .await;
    println!(
        "{count} sequences from seed {first}, {} regressions, {} statuses, {:?}",
        regressions().len(),
        run.laws.seen(),
        started.elapsed()
    );
    if let Some((name, trace)) = failed.first() {
        let script = trace.lock().clone().expect("it had begun");
        report_shrunk(name, script).await;
        panic!("failed: {:?}", failed.iter().map(|(name, _)| name).collect::<Vec<_>>());
    }
    run.laws.assert_kept();
    run.assert_unharmed();
}

/// A number from the environment.
fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

/// Source of steps.
enum Source {
    Seed(u64),
    Script(Script),
}

/// Runs a custom resource from its creation to its end.
async fn sequence(run: std::sync::Arc<Run>, name: String, slot: u64, source: Source, trace: Trace) {
    let seed = match source {
        Source::Seed(seed) => seed,
        Source::Script(script) => {
            *trace.lock() = Some(script.clone());
            return replay(run, name, slot, script).await;
        }
    };
    let mut rng = Rng::with_seed(seed);
    let kind = kind_of(seed);
    let spec = schema::valid(&schema::of_spec(kind), "spec", &mut rng);
    let steps = vec![Step::Edit(spec.clone())];
    *trace.lock() = Some(Script { what: String::new(), kind: kind.name().to_owned(), steps });
    let mut sequence = Sequence::create(run, kind, name.clone(), slot, spec).await;
    for _ in 0..rng.usize(10..=30) {
        let step = sequence.next(&mut rng);
        trace.lock().as_mut().expect("it has begun").steps.push(step.clone());
        let started = tokio::time::Instant::now();
        sequence.step(&step).await;
        if std::env::var_os("GENERATED_TIMES").is_some() {
            let step = format!("{step:?}");
            println!("{name} {:?} {}", started.elapsed(), step.split('(').next().unwrap_or(""));
        }
    }
    sequence.end().await;
}

/// Runs the given steps.
async fn replay(run: std::sync::Arc<Run>, name: String, slot: u64, script: Script) {
    let Some((Step::Edit(spec), steps)) = script.steps.split_first() else {
        panic!("{name} does not begin with a spec");
    };
    let mut sequence = Sequence::create(run, script.kind(), name, slot, spec.clone()).await;
    for step in steps {
        sequence.step(step).await;
    }
    sequence.end().await;
}

/// Prints the steps that a failure needs, found by retries in new namespaces.
async fn report_shrunk(name: &str, script: Script) {
    println!("{name} failed in or after the last of these steps:\n{}", json!(script));
    if let Some(seed) = name.strip_prefix("seed-") {
        println!("GENERATED_SEED={seed} GENERATED_SEQUENCES=1 makes them again");
    }
    let mut attempt = 0;
    let mut fails = async |steps: &[Step]| {
        let script = Script { steps: steps.to_vec(), ..script.clone() };
        let (world, slot) = (format!("generated-{name}-{attempt}"), SLOTS[1] + attempt);
        attempt += 1;
        let run = Run::start(&world).await;
        let failed =
            tokio::spawn(replay(run.clone(), name.to_owned(), slot, script)).await.is_err();
        println!("{} steps, {}", steps.len(), if failed { "failed" } else { "passed" });
        failed
    };
    if !fails(&script.steps).await {
        println!("{name} did not fail again, alone in a namespace");
        return;
    }
    let least = shrink::shrunk(script.steps.clone(), ATTEMPTS, &mut fails).await;
    let script = Script { what: "say what went wrong".to_owned(), steps: least, ..script };
    println!(
        "{name}: these {} of its steps suffice (none fewer in {ATTEMPTS} attempts). Once it is \
         mended, keep them as tests/contract/generated/regressions/WHAT-IT-WAS.json:\n{:#}",
        script.steps.len(),
        json!(script)
    );
}
/// The API server validates the names, labels and images of a custom resource, and those of its owned
/// objects. Whatever it accepts of the former must be valid for the latter.
#[tokio::test(flavor = "multi_thread")]
async fn accepted_names_labels_and_images_give_valid_owned_objects() {
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
