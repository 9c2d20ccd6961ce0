//! What the store and the wire allocate. Prints a table; measures no time.

use std::time::Duration;

use workload_operator::client::{Event, Scope, WatchFrom};
use workload_operator::object::ResourceVersion;
use workload_operator::store;

mod sample;

use sample::Deployment;

#[global_allocator]
static ALLOCATOR: dhat::Alloc = dhat::Alloc;

fn stats() -> dhat::HeapStats {
    dhat::HeapStats::get()
}

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime needs nothing that could be missing");
    runtime.block_on(async {
        for count in [1_000, 5_000, 20_000, 50_000, 70_000, 100_000] {
            let _profiler = dhat::Profiler::builder().testing().build();
            overhead(count);
        }
        {
            let _profiler = dhat::Profiler::builder().testing().build();
            relist(100_000);
        }
        let _profiler = dhat::Profiler::builder().testing().build();
        events(10_000).await;
    });
}

/// Bytes that the store needs besides the objects: what a list into an empty store allocates, minus
/// the bytes of the objects themselves.
fn overhead(count: usize) {
    let objects: Vec<Deployment> = (0..count)
        .map(|i| serde_json::from_str(&sample::json(i, 1)).expect("the sample fits the view"))
        .collect();
    let with_objects = stats().curr_bytes;
    let in_vec = size_of_val(&*objects);
    let (mut writer, store) = store::new(Vec::new());
    writer.begin();
    objects.into_iter().for_each(|object| writer.listed(object));
    writer.commit(ResourceVersion::new(2));
    let held = stats().curr_bytes - (with_objects - in_vec) - in_vec;
    println!(
        "{count:>7} objects: {:>5.1} bytes each beside the object",
        held as f64 / count as f64
    );
    drop(store);
}

/// The peak allocation while a list of unchanged objects is taken over.
fn relist(count: usize) {
    let (mut writer, store) = store::new(Vec::new());
    for (round, at) in [("first list", 2), ("relist", 3)] {
        writer.begin();
        for i in 0..count {
            let object: Deployment =
                serde_json::from_str(&sample::json(i, 1)).expect("the sample fits the view");
            writer.listed(object);
        }
        writer.commit(ResourceVersion::new(at));
        let (now, most) = (stats().curr_bytes, stats().max_bytes);
        println!(
            "{round} of {}: {:.0} bytes an object, at most {:.3} times that",
            store.len(),
            now as f64 / count as f64,
            most as f64 / now as f64
        );
    }
}

/// Allocations per event, from its bytes to the store.
async fn events(count: usize) {
    let body = sample::watch(count, 1);
    let (mut writer, store) = store::new(Vec::new());
    for (round, first) in [("added", 1), ("modified", 1 + count as u64)] {
        let body = if first == 1 { body.clone() } else { sample::watch(count, first) };
        let client = sample::client(&body, body.len() / count);
        let from = WatchFrom {
            version: Some("1".into()),
            initial_events: false,
            timeout: Duration::from_secs(60),
            metadata_only: false,
        };
        let opened = client.watch::<Deployment>(&Scope::default(), &from).await;
        let mut events = opened.expect("the service accepts every watch");
        let before = stats();
        while let Some(Ok(Event::Modified(object))) = events.next().await {
            writer.apply(object);
        }
        let (blocks, bytes) =
            (stats().total_blocks - before.total_blocks, stats().total_bytes - before.total_bytes);
        println!(
            "{round}: {:.2} allocations and {:.0} bytes an event ({} objects)",
            blocks as f64 / count as f64,
            bytes as f64 / count as f64,
            store.len()
        );
    }
}
