//! Time until the next leader works after the previous one ends, by the API server's audit log. The next
//! leader repeats no write.
//!
//! docs/OPERATING.md has figures. docs/TESTING.md has the command with `FAILOVERS=50`, which prints them in
//! ten minutes. Without it, one or two failovers of each kind run.

use jiff::Timestamp;
use rustix::process::Signal;
use serde_json::json;

use crate::audit::Entry;
use crate::leadership::{Replicas, by, is_of_lease, since};
use crate::world::{MEMCACHED, is_ready};

/// The shortest Lease with a permission of a second.
const SHORT: [&str; 3] = [
    "--leader-elect-lease-duration=3s",
    "--leader-elect-renew-deadline=2s",
    "--leader-elect-retry-period=500ms",
];

fn failovers() -> usize {
    std::env::var("FAILOVERS").map_or(2, |rounds| rounds.parse().expect("FAILOVERS is a number"))
}

/// Ends the leader by `signal` repeatedly, always with work to do. Prints the time until the next leader
/// wrote.
async fn failovers_by(signal: Signal, rounds: usize, namespace: &str, flags: &[&str]) {
    let mut replicas = Replicas::start(namespace, flags).await;
    let mut times = Vec::new();
    let mut last = String::new();
    for round in 0..rounds {
        let (leader, mut process) = replicas.leader_but(&last).await;
        let ended = Timestamp::now();
        process.signal(signal);
        let name = format!("round-{round}");
        let spec = json!({"metadata": {"name": name}, "spec": {"size": 1}});
        replicas.world.create(MEMCACHED, spec).await.unwrap();
        replicas.world.until(MEMCACHED, &name, is_ready).await;
        process.ended().await;
        // An Event is not work.
        let works = |write: &&Entry| {
            let is_work = !is_of_lease(write) && write.resource != "events";
            is_work && write.received >= ended && by(write) != leader
        };
        let writes = replicas.accepted();
        let first = writes.iter().find(works).expect("the next leader has made it ready");
        times.push(since(ended, first.received));
        let next = by(first).to_owned();
        let repeated = |write: &&Entry| works(write) && !write.name.starts_with(&name);
        let repeated: Vec<_> = writes.iter().filter(repeated).collect();
        assert!(repeated.is_empty(), "{next} repeated what was done: {repeated:#?}");
        replicas.run(&leader, flags).await;
        last = leader;
    }
    replicas.assert_one_writer_at_a_time();
    times.sort();
    let at = |share: usize| times[(times.len() * share).div_ceil(100).max(1) - 1];
    println!(
        "{rounds} times {signal:?} {flags:?}: until the next leader's first write p50 {:?}, p99 {:?}, \
         longest {:?}",
        at(50),
        at(99),
        at(100)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_next_leader_writes_without_repetition_after_sigterm() {
    failovers_by(Signal::TERM, failovers(), "failover-term", &[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_next_leader_writes_without_repetition_after_sigkill() {
    failovers_by(Signal::KILL, failovers().div_ceil(5), "failover-kill", &[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_of_three_seconds_allows_a_fast_failover() {
    failovers_by(Signal::KILL, failovers().div_ceil(2), "failover-short", &SHORT).await;
}
