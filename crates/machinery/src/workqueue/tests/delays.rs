//! Workers that wait for keys that come later. `model` has when and in what order these come.

use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::{Named, exact};

const MS: Duration = Duration::from_millis(1);

const A: Named = (0, 1);
const B: Named = (0, 2);

#[tokio::test(start_paused = true)]
async fn a_delayed_key_wakes_a_worker_without_a_timer_task() {
    let queue = exact();
    queue.requeue_after(A, Duration::from_secs(1000));
    let mut getters = JoinSet::new();
    for _ in 0..3 {
        let queue = queue.clone();
        getters.spawn(async move { queue.get().await.map(|taken| *taken.key()) });
    }
    sleep(MS).await;
    // Earlier than what the workers are waiting for.
    queue.requeue_after(B, 10 * MS);
    let start = Instant::now();
    let mut next = async || getters.join_next().await.unwrap().unwrap();
    assert_eq!((next().await, start.elapsed().as_millis() / 2), (Some(B), 5));
    queue.add((9, 9));
    assert_eq!((next().await, start.elapsed().as_millis() / 2), (Some((9, 9)), 5));
    assert_eq!((next().await, start.elapsed().as_secs()), (Some(A), 999));
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_worker_leaves_its_deadline_to_another() {
    let queue = exact();
    let keeper = {
        let queue = queue.clone();
        tokio::spawn(async move { queue.get().await.map(|taken| *taken.key()) })
    };
    sleep(MS).await;
    queue.requeue_after(A, 50 * MS);
    sleep(MS).await;
    let other = {
        let queue = queue.clone();
        tokio::spawn(async move { queue.get().await.map(|taken| *taken.key()) })
    };
    sleep(MS).await;
    keeper.abort();
    assert_eq!(timeout(100 * MS, other).await.unwrap().unwrap(), Some(A));
}

#[tokio::test(start_paused = true)]
async fn a_woken_worker_that_is_cancelled_wakes_another() {
    let queue = exact();
    let mut first = Box::pin(queue.get());
    let second = {
        let queue = queue.clone();
        tokio::spawn(async move { queue.get().await.map(|taken| *taken.key()) })
    };
    tokio::select! {
        biased;
        _ = &mut first => panic!("nothing to get"),
        () = std::future::ready(()) => {}
    }
    sleep(MS).await;
    // The first has waited longest, so it is the one notified.
    queue.add(A);
    drop(first);
    assert_eq!(timeout(MS, second).await.unwrap().unwrap(), Some(A));
}

#[tokio::test(start_paused = true)]
async fn a_timer_fires_while_the_worker_that_awaited_it_is_busy() {
    let queue = exact();
    let [first, second] = [queue.clone(), queue.clone()].map(|queue| {
        tokio::spawn(async move {
            let item = queue.get().await.unwrap();
            sleep(Duration::from_secs(10)).await;
            *item.key()
        })
    });
    tokio::task::yield_now().await;
    let start = Instant::now();
    queue.requeue_after((0, 1), Duration::from_millis(50));
    tokio::task::yield_now().await;
    queue.requeue_after((0, 2), Duration::from_millis(60));
    let mut keys = [first.await.unwrap(), second.await.unwrap()];
    keys.sort_unstable();
    assert_eq!(keys, [(0, 1), (0, 2)]);
    assert!(start.elapsed() < Duration::from_secs(11), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_timer_fires_although_the_worker_woken_for_it_is_cancelled() {
    let queue = exact();
    let gives_up = tokio::spawn({
        let queue = queue.clone();
        async move { timeout(Duration::from_millis(10), queue.get()).await.is_err() }
    });
    tokio::task::yield_now().await;
    let waits = tokio::spawn({
        let queue = queue.clone();
        async move { *queue.get().await.unwrap().key() }
    });
    tokio::task::yield_now().await;
    queue.requeue_after((0, 1), Duration::from_millis(50));
    assert!(gives_up.await.unwrap());
    let woken = timeout(Duration::from_secs(60), waits).await;
    assert_eq!(woken.expect("a timer wakes a worker").unwrap(), (0, 1));
}
