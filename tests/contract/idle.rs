//! An idle operator does nothing.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::audit::operator_writes;
use crate::operator_process::OperatorProcess;
use crate::world::{APP, GENERIC_DAEMON, Kind, MEMCACHED, MEMCACHED_IMAGE, World, is_ready};

/// Number of objects, unless IDLE_OBJECTS overrides it. They are scaled to zero or match no node, so that no
/// pod changes on its own.
const OBJECTS: u64 = 100;
/// Time of observation in seconds, unless IDLE_SECONDS overrides it.
const WATCHED: u64 = 20;
/// Number of observations, unless IDLE_SECONDS sets their time. On a busy machine, earlier work can finish
/// late.
const TRIES: usize = 3;
/// Time without a write after which all work is done.
const QUIET: Duration = Duration::from_secs(5);
/// Maximum time without progress on a busy machine.
const MAX_WAIT: Duration = Duration::from_secs(600);

/// An object by its number: two out of four are Memcacheds, the others are of the other kinds.
fn object(number: u64) -> (Kind, Value) {
    let (kind, spec) = match number % 4 {
        0 | 1 => (MEMCACHED, json!({"size": 0})),
        2 => (GENERIC_DAEMON, json!({"image": "a:1", "label": "no-node-has-this"})),
        _ => (APP, json!({"image": "a:1", "replicas": 0, "ports": [{"name": "web", "port": 80}]})),
    };
    (kind, json!({"metadata": {"name": format!("idle-{number}")}, "spec": spec}))
}

/// Creates all of them, one after another.
pub async fn create_all(world: &World, objects: u64) {
    for number in 0..objects {
        let (kind, object) = object(number);
        world.create(kind, object).await.expect("it is created");
    }
}

/// Waits until every object is Ready.
pub async fn until_ready(world: &World) {
    for kind in [MEMCACHED, GENERIC_DAEMON, APP] {
        let (mut most, mut since) = (0, Instant::now());
        loop {
            let began = Instant::now();
            let all = world.list(kind).await;
            let ready = all.iter().filter(|one| is_ready(one)).count();
            if ready == all.len() {
                break;
            }
            if ready > most {
                (most, since) = (ready, began);
            }
            let (plural, all) = (kind.plural(), all.len());
            assert!(since.elapsed() < MAX_WAIT, "{ready} of {all} {plural} are Ready");
            // Ten thousand objects are expensive to list for the API server.
            tokio::time::sleep(Duration::from_secs(2).max(10 * began.elapsed())).await;
        }
    }
}

/// The most memory it has ever used, in MiB (VmHWM).
pub fn peak(operator: &OperatorProcess) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", operator.pid()));
    let status = status.expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("Linux has it");
    let kib: u64 = line.trim().trim_end_matches(" kB").parse().expect("a number");
    kib / 1024
}

/// A number from the environment.
pub fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Returns the operator's writes since then, including Events but not leases.
fn written(world: &World, since: Timestamp) -> Vec<String> {
    let writes = operator_writes(world).into_iter().filter(|write| write.received >= since);
    writes.map(|write| format!("{} {} {}", write.verb, write.resource, write.name)).collect()
}

/// Returns what it writes and logs during this time.
async fn done_in(world: &World, operator: &OperatorProcess, time: Duration) -> Vec<String> {
    let (since, lines) = (Timestamp::now(), operator.lines().len());
    tokio::time::sleep(time).await;
    let mut done = written(world, since);
    done.extend_from_slice(&operator.lines()[lines..]);
    done
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_operator_writes_publishes_and_logs_nothing() {
    let world = World::new("idle", "restricted").await;
    // One worker per kind, because other tests need the API server, too.
    let environment = [("MEMCACHED_IMAGE", MEMCACHED_IMAGE), ("WORKERS", "1")];
    let operator = world.start_operator_with(&environment).await;
    operator.logged("Ready to work").await;
    let began = Timestamp::now();
    let objects = setting("IDLE_OBJECTS").unwrap_or(OBJECTS);
    create_all(&world, objects).await;
    until_ready(&world).await;
    // Kubernetes' own controllers and the operator's Events can still be busy.
    let deadline = Instant::now() + MAX_WAIT;
    while !done_in(&world, &operator, QUIET).await.is_empty() {
        assert!(Instant::now() < deadline, "it does not come to rest");
    }
    let before = written(&world, began).len();
    let seconds = setting("IDLE_SECONDS");
    let watched = Duration::from_secs(seconds.unwrap_or(WATCHED));
    let mut done = Vec::new();
    for _ in 0..if seconds.is_some() { 1 } else { TRIES } {
        done = done_in(&world, &operator, watched).await;
        if done.is_empty() {
            break;
        }
    }
    assert!(
        done.is_empty(),
        "{} in {watched:?}, the first of them {:#?}",
        done.len(),
        done.first()
    );
    println!(
        "{objects} objects, {watched:?}: 0 writes, 0 Events, 0 lines; {before} writes to get there; \
         at most {} MiB of memory",
        peak(&operator)
    );
    // The memory that must suffice for ten thousand objects.
    assert!(peak(&operator) < 64, "{} MiB of memory", peak(&operator));
}
