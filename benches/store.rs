//! How long readers wait during a relist, and what a lookup costs.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::Instant;
use workload_operator::object::{ObjectKey, ResourceVersion};
use workload_operator::store::{self, Store, Writer};

mod sample;

use sample::Deployment;

const COUNT: usize = 100_000;

fn object(i: usize, version: u64) -> Deployment {
    serde_json::from_str(&sample::json(i, version)).expect("the sample fits the view")
}

fn relist(writer: &mut Writer<Deployment>, version: impl Fn(usize) -> u64, at: u64) -> Duration {
    writer.begin();
    for i in 0..COUNT {
        writer.listed(object(i, version(i)));
    }
    let began = Instant::now();
    assert!(writer.commit(ResourceVersion::new(at)));
    began.elapsed()
}

/// Reads until told to stop; returns how long each lookup took, longest first.
fn read(store: &Store<Deployment>, stop: &AtomicBool) -> Vec<Duration> {
    let keys: Vec<ObjectKey> =
        (0..COUNT).map(|i| ObjectKey::new("default", format!("deployment-{i:05}"))).collect();
    let (mut took, mut next) = (Vec::new(), 0);
    while !stop.load(Ordering::Relaxed) {
        next = (next + 7919) % COUNT;
        let began = Instant::now();
        black_box(store.get(&keys[next]));
        took.push(began.elapsed());
    }
    took.sort_unstable_by(|a, b| b.cmp(a));
    took
}

fn main() {
    let (mut writer, store) = store::new(Vec::new());
    relist(&mut writer, |_| 1, 2);
    let key = ObjectKey::new("default", "deployment-00042");
    let began = Instant::now();
    for _ in 0..1_000_000 {
        black_box(store.get(&key));
    }
    println!("get: {:?} each", began.elapsed() / 1_000_000);

    type Version = fn(usize) -> u64;
    let rounds: [(&str, Version, u64); 3] = [
        ("nothing changed", |_| 1, 3),
        ("a tenth changed", |i| if i % 10 == 0 { 4 } else { 1 }, 5),
        ("all changed", |_| 6, 7),
    ];
    for (name, version, at) in rounds {
        let stop = AtomicBool::new(false);
        let (took, commit) = std::thread::scope(|scope| {
            let reader = scope.spawn(|| read(&store, &stop));
            let commit = relist(&mut writer, version, at);
            stop.store(true, Ordering::Relaxed);
            (reader.join().expect("the reader does not panic"), commit)
        });
        println!(
            "relist of {COUNT}, {name}: commit {commit:?}; {} lookups meanwhile, p50 {:?}, p99.9 {:?}, \
             p99.999 {:?}, longest {:?}",
            took.len(),
            took[took.len() / 2],
            took[took.len() / 1000],
            took[took.len() / 100_000],
            took[0],
        );
    }
}
