//! Runs, and what a snapshot shows of them. `model` has the order of the keys.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::{advance, sleep, timeout};

use super::{Named, Priority, WorkQueue, exact, run_all, take};

const MS: Duration = Duration::from_millis(1);

const A: Named = (0, 1);
const B: Named = (0, 2);

#[tokio::test(start_paused = true)]
async fn many_workers_process_every_key_and_no_key_twice_at_once() {
    let queue: WorkQueue<Named> = exact();
    let busy: Arc<Vec<AtomicUsize>> = Arc::new((0..10).map(|_| AtomicUsize::new(0)).collect());
    let workers: Vec<_> = (0..8)
        .map(|_| {
            let (queue, busy) = (queue.clone(), busy.clone());
            tokio::spawn(async move {
                let mut runs = 0;
                while let Some(taken) = queue.get().await {
                    let here = &busy[taken.key().1 as usize];
                    assert_eq!(here.fetch_add(1, Ordering::SeqCst), 0, "{taken:?} runs twice");
                    sleep(3 * MS).await;
                    here.fetch_sub(1, Ordering::SeqCst);
                    runs += 1;
                }
                runs
            })
        })
        .collect();
    for round in 0..50 {
        for name in 0..10 {
            queue.add((name % 3, name));
        }
        sleep(round % 5 * MS).await;
    }
    sleep(100 * MS).await;
    queue.shut_down();
    let mut runs = 0;
    for worker in workers {
        runs += timeout(Duration::from_secs(10), worker).await.unwrap().unwrap();
    }
    assert!(runs >= 10, "{runs} runs");
}

#[tokio::test]
async fn a_panic_in_a_run_releases_its_key() {
    let queue = exact();
    queue.add(A);
    let panicking = {
        let queue = queue.clone();
        tokio::spawn(async move {
            let _taken = queue.get().await;
            panic!("as a reconcile may");
        })
    };
    assert!(panicking.await.is_err());
    assert_eq!(queue.snapshot().processing, 0);
    queue.add(A);
    assert_eq!(run_all(&queue), [A]);
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_shows_the_longest_run() {
    let queue = exact();
    queue.add(A);
    let first = take(&queue).unwrap();
    advance(Duration::from_secs(2)).await;
    queue.add_with(B, Priority::Low);
    let second = take(&queue).unwrap();
    advance(Duration::from_secs(1)).await;
    queue.add((0, 3));
    queue.requeue_after((0, 4), MS);
    let seen = queue.snapshot();
    assert_eq!(seen.longest, Duration::from_secs(3));
    assert_eq!(seen.unfinished, Duration::from_secs(4));
    assert_eq!((seen.depth, seen.delayed, seen.processing), ([0, 1], 1, 2));
    assert_eq!((seen.adds, seen.retries), (3, 1));
    drop((first, second));
}

#[tokio::test(start_paused = true)]
async fn a_key_requested_while_in_process_counts_in_the_depth() {
    let queue = exact();
    queue.add(A);
    let taken = take(&queue).unwrap();
    queue.add_with(A, Priority::Low);
    assert_eq!((queue.snapshot().depth, queue.len()), ([1, 0], 0));
    drop(taken);
    assert_eq!((queue.snapshot().depth, queue.len()), ([1, 0], 1));
}
