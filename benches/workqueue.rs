//! The work queue in numbers: `cargo bench --bench workqueue`.
//!
//! - `add_get_done/WORKERS/BACKLOG`: one key through add, get and done while this many others wait,
//!   with priorities and tenants (`observed`: with its histograms too). Workers are tasks on a runtime with
//!   two threads.
//! - `bytes` and `allocations`: what a waiting key costs beyond itself, counted, not timed; printed
//!   before the timings.
#![allow(missing_docs)]

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, criterion_group};
use rustix::time::{ClockId, clock_gettime};
use workload_operator::object::ObjectKey;
use workload_operator::workqueue::{Key, Limits, Priority, WorkQueue};

#[global_allocator]
static ALLOCATOR: dhat::Alloc = dhat::Alloc;

/// A key of 8 bytes: what is measured is the queue, not the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Small {
    tenant: NonZeroU32,
    name: u32,
}

impl Key for Small {
    type Tenant = NonZeroU32;
    fn tenant(&self) -> &NonZeroU32 {
        &self.tenant
    }
}

const TENANTS: u32 = 100;

fn small(name: u32) -> Small {
    Small { tenant: NonZeroU32::MIN.saturating_add(name % TENANTS), name }
}

fn object(name: u32) -> ObjectKey {
    ObjectKey::new(format!("namespace-{}", name % TENANTS), format!("object-{name}"))
}

/// A tenth of the keys are changes, the rest an initial list.
fn filled<K: Key>(queue: WorkQueue<K>, backlog: u32, key: fn(u32) -> K) -> WorkQueue<K> {
    for name in 0..backlog {
        let priority = if name % 10 == 0 { Priority::High } else { Priority::Low };
        queue.add_with(key(name), priority);
    }
    queue
}

/// Does this many rounds of get, done and add, shared by this many workers.
fn rounds<K: Key>(queue: &WorkQueue<K>, workers: u64, rounds: u64) -> Duration {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build();
    let runtime = runtime.expect("the system gives two threads");
    let left = Arc::new(AtomicU64::new(rounds));
    let start = now();
    let tasks: Vec<_> = (0..workers)
        .map(|_| {
            let (queue, left) = (queue.clone(), left.clone());
            runtime.spawn(async move {
                // Takes its share in batches, so that the counter is not what is measured.
                while left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(100)).is_ok() {
                    let mut next = queue.get().await;
                    for _ in 1..100 {
                        let Some(taken) = next else { return };
                        let (key, priority) = (taken.key().clone(), taken.priority());
                        next = queue.done_and_get(taken).await;
                        queue.add_with(&key, priority);
                    }
                    let Some(taken) = next else { return };
                    let (key, priority) = (taken.key().clone(), taken.priority());
                    drop(taken);
                    queue.add_with(&key, priority);
                    tokio::task::consume_budget().await;
                }
            })
        })
        .collect();
    runtime.block_on(async {
        for task in tasks {
            task.await.expect("workers do not panic");
        }
    });
    now() - start
}

/// Wall-clock time, or, for a machine that is busy with other things, `BENCH_CLOCK=cpu`: the time
/// for which all threads of this process had a CPU, including spinning on locks.
fn now() -> Duration {
    let clock = match std::env::var_os("BENCH_CLOCK") {
        Some(clock) if clock == "cpu" => ClockId::ProcessCPUTime,
        _ => ClockId::Monotonic,
    };
    let now = clock_gettime(clock);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

fn add_get_done(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("add_get_done");
    for backlog in [10_000, 100_000, 1_000_000] {
        for workers in [1, 4, 16] {
            // Filled again each time, as for the peers: several workers shuffle the order of the
            // keys, and then each round waits longer for memory.
            let queue = filled(WorkQueue::new(), backlog, small);
            let id = BenchmarkId::new(format!("{workers}"), backlog);
            group.bench_function(id, |bencher| {
                bencher.iter_custom(|count| {
                    let batches = count.div_ceil(100) * 100;
                    rounds(&queue, workers, batches).mul_f64(count as f64 / batches as f64)
                });
            });
        }
    }
    let queue =
        filled(WorkQueue::with_workers("bench", usize::MAX, Limits::default()), 10_000, small);
    group.bench_function(BenchmarkId::new("1/observed", 10_000), |bencher| {
        bencher.iter_custom(|count| {
            let batches = count.div_ceil(100) * 100;
            rounds(&queue, 1, batches).mul_f64(count as f64 / batches as f64)
        });
    });
    for backlog in [10_000, 100_000] {
        for workers in [1, 4, 16] {
            let queue = filled(WorkQueue::new(), backlog, object);
            let id = BenchmarkId::new(format!("{workers}/object_keys"), backlog);
            group.bench_function(id, |bencher| {
                bencher.iter_custom(|count| {
                    let batches = count.div_ceil(100) * 100;
                    rounds(&queue, workers, batches).mul_f64(count as f64 / batches as f64)
                });
            });
        }
    }
    group.finish();
}

fn readd(criterion: &mut Criterion) {
    let queue = filled(WorkQueue::new(), 100_000, small);
    let mut name = 0;
    criterion.bench_function("add_known", |bencher| {
        bencher.iter_custom(|count| {
            let start = now();
            for _ in 0..count {
                name = (name + 7919) % 100_000;
                queue.add_with(small(name), Priority::Low);
            }
            now() - start
        });
    });
}

/// Prints the memory cost of keys. Not timed, so the counting allocator may be slow.
fn costs() {
    let _profiler = dhat::Profiler::builder().testing().build();
    for keys in [10_000u32, 100_000, 1_000_000] {
        let before = dhat::HeapStats::get().curr_bytes;
        let queue: WorkQueue<Small> = WorkQueue::new();
        (0..keys).for_each(|name| queue.add(small(name)));
        let held = dhat::HeapStats::get().curr_bytes - before;
        let beyond = held as f64 / f64::from(keys) - size_of::<Small>() as f64;
        println!("bytes per queued key beyond itself, {keys} keys: {beyond:.1}");
        let queue: WorkQueue<Small> = {
            drop(queue);
            WorkQueue::new()
        };
        let before = dhat::HeapStats::get().curr_bytes;
        (0..keys).for_each(|name| queue.requeue_after(small(name), Duration::from_secs(3600)));
        let held = dhat::HeapStats::get().curr_bytes - before;
        let beyond = held as f64 / f64::from(keys) - size_of::<Small>() as f64;
        println!("bytes per delayed key beyond itself, {keys} keys: {beyond:.1}");
    }
    let queue = filled(WorkQueue::new(), 100_000, small);
    let before = dhat::HeapStats::get().total_blocks;
    (0..100_000).for_each(|name| queue.add(small(name)));
    (0..100_000).for_each(|name| queue.add(small(name)));
    let during = dhat::HeapStats::get().total_blocks - before;
    println!("allocations on adding 100,000 known keys twice, raising them once: {during}");
}

criterion_group! {
    name = timings;
    config = Criterion::default()
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2))
        .sample_size(20);
    targets = add_get_done, readd
}

fn main() {
    costs();
    timings();
    Criterion::default().configure_from_args().final_summary();
}
