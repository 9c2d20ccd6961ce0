//! Shutdown and draining: client-go's scenarios.

use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::{Named, exact, run_all, take};

const MS: Duration = Duration::from_millis(1);

const A: Named = (0, 1);
const B: Named = (0, 2);

#[tokio::test]
async fn an_add_after_shutdown_is_ignored() {
    let queue = exact();
    queue.shut_down();
    queue.add(A);
    queue.add_after(B, Duration::ZERO);
    queue.add_rate_limited(B);
    assert_eq!(queue.snapshot().known, 0);
    assert!(queue.get().await.is_none());
}

#[tokio::test]
async fn shutdown_lets_out_what_is_ready_and_then_nothing() {
    let queue = exact();
    queue.add(A);
    queue.add(B);
    queue.shut_down();
    assert_eq!(queue.get().await.map(|taken| *taken.key()), Some(A));
    assert_eq!(queue.get().await.map(|taken| *taken.key()), Some(B));
    assert!(queue.get().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn draining_waits_for_the_runs_under_way() {
    let queue = exact();
    queue.add(A);
    let taken = take(&queue).unwrap();
    queue.shut_down();
    assert!(timeout(10 * MS, queue.drained()).await.is_err(), "drained with a run under way");
    tokio::spawn(async move {
        sleep(10 * MS).await;
        drop(taken);
    });
    timeout(Duration::from_secs(1), queue.drained()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn draining_lets_a_dirty_key_run_again() {
    let queue = exact();
    queue.add(A);
    let taken = take(&queue).unwrap();
    queue.add(A);
    queue.shut_down();
    drop(taken);
    assert!(timeout(10 * MS, queue.drained()).await.is_err(), "a dirty key was lost");
    assert_eq!(run_all(&queue), [A]);
    timeout(10 * MS, queue.drained()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn shutting_down_at_once_drops_what_waits_and_waits_for_what_runs() {
    let queue = exact();
    for key in [A, B] {
        queue.add(key);
    }
    let taken = take(&queue).unwrap();
    queue.add(A);
    queue.add_after((1, 1), 5 * MS);
    queue.shut_down_now();
    assert!(queue.get().await.is_none());
    assert!(timeout(10 * MS, queue.drained()).await.is_err());
    drop(taken);
    timeout(10 * MS, queue.drained()).await.unwrap();
    assert_eq!(queue.snapshot().known, 0);
}

#[tokio::test(start_paused = true)]
async fn every_waiting_worker_learns_of_the_shutdown() {
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
