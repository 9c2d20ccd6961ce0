//! The work queue in numbers: `cargo bench --bench workqueue`.
//!
//! `add_get_done/WORKERS/object_keys/100000`: one key through add, get and done while 100,000 others
//! wait, with priorities and tenants. Workers are tasks on a runtime with two threads.
#![allow(missing_docs)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use workload_operator::object::ObjectKey;
use workload_operator::workqueue::{Priority, WorkQueue};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const BACKLOG: u32 = 100_000;
const TENANTS: u32 = 100;
/// Rounds that a worker takes at once, so that the counter is not what is measured.
const BATCH: u64 = 100;

/// A tenth of the keys are changes, the rest an initial list.
fn filled() -> WorkQueue<ObjectKey> {
    let queue = WorkQueue::new();
    for name in 0..BACKLOG {
        let priority = if name % 10 == 0 { Priority::High } else { Priority::Low };
        let key = ObjectKey::new(format!("namespace-{}", name % TENANTS), format!("object-{name}"));
        queue.add_with(key, priority);
    }
    queue
}

/// Does this many batches of get, done and add, shared by this many workers.
fn rounds(queue: &WorkQueue<ObjectKey>, workers: u64, batches: u64) -> Duration {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build();
    let runtime = runtime.expect("the system gives two threads");
    let left = Arc::new(AtomicU64::new(batches));
    let start = tokio::time::Instant::now();
    let work = |queue: WorkQueue<ObjectKey>, left: Arc<AtomicU64>| async move {
        while left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_ok() {
            let mut next = queue.get().await;
            for round in 1..=BATCH {
                let Some(taken) = next.take() else { return };
                let (key, priority) = (taken.key().clone(), taken.priority());
                if round < BATCH {
                    next = queue.done_and_get(taken).await;
                } else {
                    drop(taken);
                }
                queue.add_with(&key, priority);
            }
            tokio::task::consume_budget().await;
        }
    };
    let tasks: Vec<_> =
        (0..workers).map(|_| runtime.spawn(work(queue.clone(), left.clone()))).collect();
    runtime.block_on(async {
        for task in tasks {
            task.await.expect("workers do not panic");
        }
    });
    start.elapsed()
}

fn add_get_done(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("add_get_done");
    for workers in [1, 4, 16] {
        // Filled again each time, as for the peers: several workers shuffle the order of the
        // keys, and then each round waits longer for memory.
        let queue = filled();
        let id = BenchmarkId::new(format!("{workers}/object_keys"), BACKLOG);
        group.bench_function(id, |bencher| {
            bencher.iter_custom(|count| {
                let batches = count.div_ceil(BATCH);
                let time = rounds(&queue, workers, batches);
                time.mul_f64(count as f64 / (batches * BATCH) as f64)
            });
        });
    }
    group.finish();
}

criterion_group! {
    name = timings;
    config = Criterion::default()
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2))
        .sample_size(20);
    targets = add_get_done
}
criterion_main!(timings);
