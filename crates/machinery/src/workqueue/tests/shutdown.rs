//! Shutdown.

use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::{Named, exact, take};

const MS: Duration = Duration::from_millis(1);

const A: Named = (0, 1);
const B: Named = (0, 2);

#[tokio::test]
async fn shutdown_discards_waiting_keys_and_lets_runs_finish() {
    let queue = exact();
    for key in [A, B] {
        queue.add(key);
    }
    let taken = take(&queue).unwrap();
    queue.add(A);
    queue.requeue_after((1, 1), 5 * MS);
    queue.shut_down();
    assert!(queue.get().await.is_none());
    assert_eq!(queue.snapshot().processing, 1);
    drop(taken);
    assert_eq!(queue.snapshot().known, 0);
}

#[tokio::test(start_paused = true)]
async fn shutdown_wakes_every_waiting_worker() {
    let queue = exact();
    let workers: Vec<_> = (0..5)
        .map(|_| {
            let queue = queue.clone();
            tokio::spawn(async move { queue.get().await.is_none() })
        })
        .collect();
    sleep(MS).await;
    queue.shut_down();
    for worker in workers {
        assert!(timeout(MS, worker).await.unwrap().unwrap());
    }
}
