//! From bytes to decoded objects: time per event and per item.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use std::time::Duration;
use workload_operator::client::{Event, Page, Scope, WatchFrom};

mod sample;

use sample::Deployment;

const COUNT: usize = 1000;

fn watch(criterion: &mut Criterion) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime needs nothing that could be missing");
    let body = sample::watch(COUNT, 1);
    let from = WatchFrom {
        version: Some("1".into()),
        initial_events: false,
        timeout: Duration::from_secs(60),
        metadata_only: false,
    };
    let mut group = criterion.benchmark_group("watch");
    group.throughput(Throughput::Elements(COUNT as u64));
    println!("an event has {} bytes", body.len() / COUNT);
    for (name, piece) in [("one event a piece", body.len() / COUNT), ("64 kB a piece", 64 << 10)] {
        let client = sample::client(&body, piece);
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                runtime.block_on(async {
                    let opened = client.watch::<Deployment>(&Scope::default(), &from).await;
                    let mut events = opened.expect("the service accepts every watch");
                    let mut seen = 0;
                    while let Some(Ok(Event::Modified(object))) = events.next().await {
                        black_box(&object);
                        seen += 1;
                    }
                    assert_eq!(seen, COUNT);
                });
            });
        });
    }
    group.finish();
}

fn list(criterion: &mut Criterion) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime needs nothing that could be missing");
    let body = sample::list(COUNT);
    let mut group = criterion.benchmark_group("list");
    group.throughput(Throughput::Elements(COUNT as u64));
    for (name, piece) in [("2 kB a piece", 2 << 10), ("64 kB a piece", 64 << 10)] {
        let client = sample::client(&body, piece);
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                let mut seen = 0;
                let all = Page::default();
                let each =
                    |item: Result<Deployment, _>| seen += usize::from(black_box(item).is_ok());
                let end = runtime.block_on(client.list(&Scope::default(), &all, each));
                assert!(end.is_ok() && seen == COUNT);
            });
        });
    }
    group.finish();
}

criterion_group!(benches, watch, list);
criterion_main!(benches);
