//! The memory of an operator that runs for long is that of one that has just started.

// An unexpected result fails the test.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::needless_pass_by_value,
    unreachable_pub
)]

#[path = "contract/world/kind.rs"]
#[allow(dead_code)]
mod kind;
#[path = "operator/world.rs"]
#[allow(dead_code, unreachable_pub)]
mod world;

use std::time::Duration;

use cap::Cap;
use clap::Parser;
use mimalloc::MiMalloc;
use serde_json::json;
use workload_operator::cli::Cli;
use workload_operator::manager::Manager;
use workload_operator::memcached::Pace;
use workload_operator::operator::add_controllers;
use workload_operator::shutdown::Shutdown;

use crate::world::{APP, GENERIC_DAEMON, IDENTITY, Kind, MEMCACHED, World, is_ready};

/// Virtual hours of a long life, unless `MEMORY_HOURS` is set.
const HOURS: u64 = 60;

/// Virtual hours of each set of objects.
const EACH: u64 = 3;

/// Growth that is permitted: maps keep the capacity that they once needed.
const SLACK: usize = 16 << 10;

/// Maximum size of what is left after the end: the interners of the process sweep their tables only from 4,096 values on.
const INTERNED: usize = 1 << 20;

#[global_allocator]
static ALLOCATOR: Cap<MiMalloc> = Cap::new(MiMalloc, usize::MAX);

#[tokio::test(start_paused = true)]
async fn memory_does_not_grow_with_time() {
    let hours = std::env::var("MEMORY_HOURS").map_or(HOURS, |hours| hours.parse().unwrap());
    let (short, _) = held_after(18).await;
    let (long, left) = held_after(hours).await;
    println!("{short} bytes after 18 h, {long} bytes after {hours} h; then {left} bytes are left");
    assert!(short > 0 && long <= short + SLACK, "{short} bytes after 18 h, {long} after {hours} h");
    assert!(left <= INTERNED, "{left} bytes are left after {hours} h");
}

/// Returns the bytes that the operator holds after so many hours, in which objects come, change and go, and those that
/// are left after its end.
async fn held_after(hours: u64) -> (usize, usize) {
    let before = ALLOCATOR.allocated();
    let world = World::new();
    let args = Cli::parse_from(["workload-operator", "--memcached-image=memcached:1"]).run;
    let manager = add_controllers(Manager::new(IDENTITY), &args.workloads, &Pace::default());
    let program = manager.program(|options| world.server.client(options)).await.unwrap();
    let shutdown = Shutdown::manual();
    let mut running = Box::pin(program.run(shutdown.clone()));
    tokio::select! {
        biased;
        ended = &mut running => panic!("the operator has ended: {ended:?}"),
        () = live_for(&world, hours) => {}
    }
    let with_it = ALLOCATOR.allocated();
    shutdown.request();
    running.await.unwrap();
    let without = ALLOCATOR.allocated();
    drop(world);
    // The tasks of the cluster end.
    tokio::time::sleep(Duration::from_millis(1)).await;
    (with_it - without, ALLOCATOR.allocated().saturating_sub(before))
}

/// Each object has a name of its own.
fn name(kind: Kind, number: u64) -> String {
    format!("{}-{number}", kind.name().to_lowercase())
}

async fn live_for(world: &World, hours: u64) {
    let objects = [
        (MEMCACHED, json!({"size": 2})),
        (APP, json!({"image": "shop:1", "ports": [{"port": 80}]})),
        (GENERIC_DAEMON, json!({"image": "agent:1"})),
    ];
    for number in 0..hours / EACH {
        for (kind, spec) in &objects {
            let name = name(*kind, number);
            world.create(*kind, json!({"metadata": {"name": name}, "spec": spec}));
            world.until(*kind, &name, is_ready).await;
        }
        world.pods_wait("", if number % 2 == 0 { "CrashLoopBackOff" } else { "" });
        tokio::time::sleep(Duration::from_secs(EACH * 3_600)).await;
        for (kind, _) in &objects {
            world.delete(*kind, &name(*kind, number));
        }
        world.pods_wait("", "");
    }
    tokio::time::sleep(Duration::from_secs(3_600)).await;
}
