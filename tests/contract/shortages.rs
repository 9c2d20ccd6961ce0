//! Promises of the operator during shortages: of the API server, of etcd's space, or of its own file
//! descriptors.

use std::time::Duration;

use rustix::process::{Pid, Resource, Rlimit, prlimit};
use tokio::time::Instant;

use crate::audit::{Entry, logged, operator_writes, refused_writes};
use crate::control_plane::ControlPlane;
use crate::etcd;
use crate::operator_process::OperatorProcess;
use crate::proxy::Proxy;
use crate::servers::{Server, ready};
use crate::world::{DEPLOYMENT, MEMCACHED, World, is_ready, memcached};

/// Duration of the API server's outage, in seconds, unless OUTAGE_SECONDS overrides it.
const OUTAGE: u64 = 10;
/// Number of attempts that distinguishes growing pauses from constant ones.
const TRIES: usize = 11;

fn creates(world: &World, name: &str) -> usize {
    let it = |w: &&Entry| w.resource == "deployments" && w.name == name && w.code == 201;
    operator_writes(world).iter().filter(it).count()
}

/// The watch can show a Deployment before the API server logs its creation.
async fn assert_created_once(world: &World, name: &str) {
    logged(|| (creates(world, name) > 0).then_some(())).await;
    assert_eq!(creates(world, name), 1, "{name}");
}

/// No client requests a Lease every two seconds, which would show that the API server is back.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes minutes: cargo test --test contract -- --ignored"]
async fn without_leader_election_it_continues_after_an_outage() {
    let plane = ControlPlane::of_this_test(|| ControlPlane::api_server_alone("outage-alone")).await;
    let world = &World::on(plane, "outage", "baseline").await;
    let mut operator = world.start_operator().await;
    world.create(MEMCACHED, memcached("before", 1)).await.unwrap();
    world.until(DEPLOYMENT, "before", |_| true).await;
    // The API server does not log requests that it was killed during.
    assert_created_once(world, "before").await;
    let mut server = Server::of(world.plane(), "kube-apiserver");
    server.kill().await;
    let seconds = std::env::var("OUTAGE_SECONDS").ok().and_then(|seconds| seconds.parse().ok());
    let outage = Duration::from_secs(seconds.unwrap_or(OUTAGE));
    // The outage itself. There is no event to wait for.
    tokio::time::sleep(outage).await;
    operator.assert_alive();
    server.start();
    ready(&world.plane().admin().await).await;
    let back = Instant::now();
    world.create(MEMCACHED, memcached("after", 1)).await.unwrap();
    world.until(DEPLOYMENT, "after", |_| true).await;
    println!("away for {outage:?}: at work again {:?} after its return", back.elapsed());
    operator.assert_alive();
    for name in ["before", "after"] {
        assert_created_once(world, name).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes minutes: cargo test --test contract -- --ignored"]
async fn writes_are_retried_with_backoff_while_etcd_is_full() {
    let plane = ControlPlane::of_this_test(|| ControlPlane::api_server_alone("full")).await;
    let world = World::on(plane, "full", "baseline").await;
    let operator = world.start_operator().await;
    world.create(MEMCACHED, memcached("before", 1)).await.unwrap();
    world.until(DEPLOYMENT, "before", |_| true).await;
    operator.kill().await;
    world.create(MEMCACHED, memcached("late", 1)).await.unwrap();
    etcd::alarm(plane, "ACTIVATE").await;
    let mut operator = world.start_operator().await;
    // Only writes of the finalizer, with which each reconcile begins. The status is written after it.
    let first = |write: &Entry| write.subresource.is_empty();
    let refused = || refused_writes(&world, "late").into_iter().filter(first).collect();
    let tries = logged(|| Some(refused()).filter(|tries: &Vec<_>| tries.len() >= TRIES)).await;
    operator.assert_alive();
    etcd::alarm(plane, "DEACTIVATE").await;
    world.until(DEPLOYMENT, "late", |_| true).await;
    assert_created_once(&world, "late").await;
    // The pauses double from 5 ms: 5 s in total. A busy machine can only extend them.
    let took = Duration::try_from(tries[TRIES - 1].received.duration_since(tries[0].received))
        .unwrap_or_default();
    println!("{TRIES} tries took {took:?}");
    assert!(took > Duration::from_millis(2_500), "its pauses do not grow: {tries:?}");
}

/// It can open only two more descriptors: broken watches are difficult to replace, and workers take turns.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes minutes: cargo test --test contract -- --ignored"]
async fn the_operator_works_with_few_file_descriptors() {
    let world = World::new("descriptors", "restricted").await;
    let proxy = Proxy::start(world.plane()).await;
    let mut operator = world.start_operator_through(&proxy.url()).await;
    operator.logged("Ready to work").await;
    limit_descriptors(&operator, 2);
    for resource in ["memcacheds", "deployments", "services", "pods"] {
        proxy.cut(resource);
    }
    let names: Vec<String> = (0..20).map(|number| format!("it-{number}")).collect();
    for name in &names {
        world.create(MEMCACHED, memcached(name, 1)).await.unwrap();
    }
    for name in &names {
        world.until(MEMCACHED, name, is_ready).await;
    }
    for name in &names {
        assert_created_once(&world, name).await;
    }
    operator.assert_alive();
    println!("{} times it was told that there is no descriptor left", wanting(&operator));
}

/// Counts the operator's reports that it cannot open more files (EMFILE).
fn wanting(operator: &OperatorProcess) -> usize {
    operator.lines().iter().filter(|line| line.contains("os error 24")).count()
}

/// From now on, the process can open only this many additional files.
fn limit_descriptors(operator: &OperatorProcess, more: u64) {
    let open = std::fs::read_dir(format!("/proc/{}/fd", operator.pid())).expect("it runs");
    let most = open.count() as u64 + more;
    let limit = Rlimit { current: Some(most), maximum: Some(most) };
    let pid = Pid::from_raw(operator.pid() as i32);
    prlimit(pid, Resource::Nofile, limit).expect("a child can be limited");
}
