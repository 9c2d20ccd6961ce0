//! Allocations of fixed pieces of work, compared with `tests/costs.json`: a guard against growing
//! costs that gives the same result on a slow machine and on a busy one.
//!
//! `UPDATE_COSTS=1 cargo test --test costs` rewrites the file. State the reason in the commit.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::time::Duration;

use controller_machinery::testing::{Id, Server};
use k8s_openapi::api::apps::v1::Deployment as Whole;
use serde_json::json;
use workload_operator::client::{self, Page, Scope, WatchEvent, WatchFrom};
use workload_operator::events;
use workload_operator::manager::Manager;
use workload_operator::object::{ObjectKey, ResourceVersion, Typed};
use workload_operator::store;
use workload_operator::workqueue::{Priority, WorkQueue};

#[path = "costs/sample.rs"]
mod sample;

use sample::{Deployment, Namespace};

#[global_allocator]
static ALLOCATOR: dhat::Alloc = dhat::Alloc;

/// The number of objects, events or keys in each piece of work.
const COUNT: usize = 1_000;
/// Tolerance for the standard library of another compiler and the same work, in percent.
const TOLERANCE: u64 = 3;
const GOLDEN: &str = "tests/costs.json";

/// The cost of each piece of work, for all of `COUNT`.
type Costs = BTreeMap<&'static str, u64>;

/// The number of allocations during `work`.
fn allocations<T>(work: impl FnOnce() -> T) -> u64 {
    let before = dhat::HeapStats::get().total_blocks;
    let made = work();
    let after = dhat::HeapStats::get().total_blocks;
    drop(made);
    after - before
}

/// Returns the bytes that the result of `make` occupies.
fn held<T>(make: impl FnOnce() -> T) -> u64 {
    let before = dhat::HeapStats::get().curr_bytes;
    let made = make();
    let after = dhat::HeapStats::get().curr_bytes;
    drop(made);
    after.saturating_sub(before) as u64
}

fn object(i: usize) -> Deployment {
    serde_json::from_str(&sample::json(i, 1)).expect("the sample fits the view")
}

fn wire(costs: &mut Costs) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let body = sample::watch(COUNT, 1);
    let client = sample::client(&body, body.len() / COUNT);
    let from = WatchFrom {
        version: Some("1".into()),
        initial_events: false,
        timeout: Duration::from_secs(60),
    };
    let watch = || {
        runtime.block_on(async {
            let opened = client.watch::<Deployment>(&Scope::default(), &from).await;
            let mut events = opened.unwrap();
            let mut seen = 0;
            while let Some(Ok(WatchEvent::Modified(_))) = events.next().await {
                seen += 1;
            }
            assert_eq!(seen, COUNT);
        });
    };
    // Run once before, so that one-time allocations are not counted.
    watch();
    costs.insert("allocations of a watch event", allocations(watch));

    let client = sample::client(&sample::list(COUNT), 64 << 10);
    let list = || {
        let mut seen = 0;
        let each = |item: Result<Deployment, _>| seen += usize::from(item.is_ok());
        let all = Page::default();
        runtime.block_on(client.list(&Scope::default(), &all, each)).unwrap();
        assert_eq!(seen, COUNT);
    };
    list();
    costs.insert("allocations of a list item", allocations(list));
}

fn stores(costs: &mut Costs) {
    let (mut writer, store) = store::new(Vec::new());
    let objects = |from: usize| (from..from + COUNT).map(object).collect::<Vec<_>>();
    let mut round = |objects: Vec<Deployment>, at| {
        allocations(|| {
            writer.begin_replace();
            objects.into_iter().for_each(|object| writer.stage(object));
            assert!(writer.commit(ResourceVersion::new(at)));
        })
    };
    costs.insert("allocations to store an object", round(objects(0), 2));
    costs.insert("allocations to list an unchanged object again", round(objects(0), 3));
    assert_eq!(store.len(), COUNT);
    let keys: Vec<ObjectKey> =
        (0..COUNT).map(|i| ObjectKey::new("default", format!("deployment-{i:05}"))).collect();
    let lookups = allocations(|| keys.iter().for_each(|key| assert!(store.get(key).is_some())));
    costs.insert("allocations to look an object up", lookups);

    let objects = objects(0);
    let in_vec = size_of_val(&*objects) as u64;
    let with_objects = dhat::HeapStats::get().curr_bytes as u64;
    let (mut writer, store) = store::new(Vec::new());
    writer.begin_replace();
    objects.into_iter().for_each(|object| writer.stage(object));
    writer.commit(ResourceVersion::new(2));
    let now = dhat::HeapStats::get().curr_bytes as u64;
    costs.insert("bytes of the store beside an object", now.saturating_sub(with_objects));
    costs.insert("bytes of an object itself", in_vec);
    drop(store);
    costs.insert("bytes that an object points to", held(|| object(0)) * COUNT as u64);
    // Strings are shared, as names and labels of equal text are.
    let texts: Vec<String> = (0..COUNT).map(|i| sample::json(i, 1)).collect();
    let whole = || -> Vec<Typed<Whole>> {
        texts.iter().map(|text| serde_json::from_str(text).expect("it is a Deployment")).collect()
    };
    costs.insert("bytes of whole objects", held(whole));
    costs.insert("allocations of a whole object", allocations(whole));
    let views = || -> Vec<Deployment> {
        texts.iter().map(|text| serde_json::from_str(text).expect("it fits the view")).collect()
    };
    costs.insert("bytes of views", held(views));
    costs.insert("allocations of a view", allocations(views));
}

fn queue(costs: &mut Costs) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let _context = runtime.enter();
    let keys: Vec<ObjectKey> = (0..COUNT)
        .map(|i| ObjectKey::new(format!("namespace-{}", i % 10), format!("object-{i}")))
        .collect();
    let queue = WorkQueue::<ObjectKey>::new();
    let add = || keys.iter().for_each(|key| queue.add_with(key, Priority::High));
    costs.insert("bytes to queue a key", held(add));
    let turn = || {
        add();
        runtime.block_on(async {
            for _ in 0..COUNT {
                drop(queue.get().await.unwrap());
            }
        });
    };
    turn();
    costs.insert("allocations of add, get and done of a known key", allocations(turn));
}

/// Reads an object that is as desired, and builds the desired state.
fn ensuring(costs: &mut Costs) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let _context = runtime.enter();
    let server = Server::new(1);
    let id = Id::new("/api/v1/namespaces", "", "shop");
    server.put(&id, json!({}));
    let owner = serde_json::from_value((*server.get(&id).unwrap()).clone()).unwrap();
    let (recorder, _sink) = events::new("costs", "host");
    let controller = Manager::new("costs").controller::<Namespace>().owns::<Deployment>();
    let client = server.client(client::Options::default());
    let cx = controller.context(client, recorder, owner).unwrap();
    let labels = json!({"app": "nginx", "controller": "shop"});
    let pod = json!({"containers": [{"name": "nginx", "image": "nginx:latest"}]});
    let spec = json!({
        "replicas": 1, "selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": pod},
    });
    let metadata = json!({"name": "web", "namespace": "shop", "labels": labels});
    let desired = json!({"metadata": metadata, "spec": spec});
    let ensure = |count: usize| {
        let all = vec![desired.clone(); count];
        allocations(|| {
            for desired in all {
                runtime.block_on(cx.ensure::<Deployment>(desired)).unwrap();
            }
        })
    };
    ensure(1);
    costs.insert("allocations to ensure an unchanged object", ensure(COUNT));
    assert_eq!(server.writes().len(), 1);
}

#[test]
fn no_operation_allocates_more_than_recorded() {
    let _profiler = dhat::Profiler::builder().testing().build();
    let mut costs = Costs::new();
    wire(&mut costs);
    stores(&mut costs);
    queue(&mut costs);
    ensuring(&mut costs);
    let text = serde_json::to_string_pretty(&costs).unwrap() + "\n";
    if std::env::var_os("UPDATE_COSTS").is_some() {
        std::fs::write(GOLDEN, &text).unwrap();
    }
    let golden = std::fs::read_to_string(GOLDEN).unwrap();
    let golden: BTreeMap<&str, u64> = serde_json::from_str(&golden).unwrap();
    let near = |was: u64, is: u64| was.abs_diff(is) * 100 <= was * TOLERANCE;
    let changed: Vec<String> = costs
        .iter()
        .filter(|(what, is)| !golden.get(**what).is_some_and(|was| near(*was, **is)))
        .map(|(what, is)| format!("{what}: {is}, was {:?}", golden.get(*what)))
        .collect();
    assert!(
        changed.is_empty(),
        "for {COUNT} each: {changed:#?}\nIf it is meant: UPDATE_COSTS=1 cargo test --test costs"
    );
    assert_eq!(costs.len(), golden.len(), "a cost is gone; write {GOLDEN} anew");
}
