//! The numbers of the backoff and of the overall rate, and keys put back; `model` has all else.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::time::advance;

use super::super::{Backoff, Retry, WorkItem};
use super::{Limits, Named, Priority, WorkQueue, exact, take};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

const A: Named = (0, 1);

/// Takes the next key and fails; returns its key and backoff.
fn fail(queue: &WorkQueue<Named>) -> Option<(Named, Duration)> {
    let taken = take(queue)?;
    Some((*taken.key(), queue.add_rate_limited(*taken.key(), Retry::default())))
}

#[tokio::test(start_paused = true)]
async fn every_failure_doubles_the_delay_and_forget_resets_it() {
    let queue = exact();
    queue.add(A);
    for (n, expected) in [5, 10, 20, 40, 80, 160].into_iter().enumerate() {
        assert_eq!(queue.requeues(&A), n as u32);
        let (_, delay) = fail(&queue).unwrap();
        assert_eq!(delay, expected * MS);
        advance(delay - MS).await;
        assert!(take(&queue).is_none(), "too early");
        advance(MS).await;
    }
    queue.forget(&A);
    assert_eq!(queue.requeues(&A), 0);
    assert_eq!(fail(&queue).unwrap().1, 5 * MS);
}

#[tokio::test(start_paused = true)]
async fn jitter_adds_at_most_a_tenth_and_follows_its_seed() {
    let delays = |seed| {
        let queue: WorkQueue<Named> = WorkQueue::with_workers(
            "test",
            usize::MAX,
            Limits { seed: Some(seed), ..Limits::default() },
        );
        (0..1000)
            .map(|name| queue.add_rate_limited((0, name), Retry::default()))
            .collect::<Vec<_>>()
    };
    let first = delays(7);
    assert!(first.iter().all(|delay| (5 * MS..=5500 * MS / 1000).contains(delay)));
    let spread = *first.iter().max().unwrap() - *first.iter().min().unwrap();
    assert!(spread > 400 * MS / 1000, "hardly any jitter: {spread:?}");
    assert_eq!(first, delays(7));
    assert_ne!(first, delays(8));
}

/// Returns the number of runs in each of the next seconds, if every run fails.
async fn storm(queue: &WorkQueue<Named>, seconds: usize) -> Vec<u32> {
    let mut runs = Vec::new();
    for _ in 0..seconds {
        let mut in_this = 0;
        for _ in 0..200 {
            while fail(queue).is_some() {
                in_this += 1;
            }
            advance(5 * MS).await;
        }
        runs.push(in_this);
    }
    runs
}

#[tokio::test(start_paused = true)]
async fn a_storm_of_failures_is_bounded_and_delays_no_healthy_key() {
    let queue = exact();
    (0..10_000).for_each(|name| queue.add((1, name)));
    let runs = storm(&queue, 10).await;
    // The first run and the first retry of each key, the burst, and 50 per second.
    assert_eq!(runs[0], 20_000 + 300 + 50 - 1);
    assert!(runs[1..].iter().all(|runs| (49..=51).contains(runs)), "{runs:?}");
    for tenant in [1, 2] {
        let key = (tenant, 1_000_000);
        queue.add(key);
        assert_eq!(fail(&queue), Some((key, 5 * MS)), "its first run waited");
        advance(5 * MS).await;
        let first = take(&queue).unwrap();
        assert_eq!(
            (*first.key(), first.priority()),
            (key, Priority::High),
            "its first retry waited"
        );
        queue.forget(&key);
    }
}

#[tokio::test(start_paused = true)]
async fn a_backoff_that_overflows_never_ends() {
    let limits = Limits { seed: Some(1), ..Limits::default() };
    let queue = WorkQueue::<Named>::with_workers("test", usize::MAX, limits);
    let backoff = Backoff { base: Duration::MAX, max: Duration::MAX };
    assert!(queue.add_rate_limited(A, Retry { backoff, ..Retry::default() }) > 1_000_000 * SECOND);
}

type Get<'a> = Pin<Box<dyn Future<Output = Option<WorkItem<Named>>> + 'a>>;

fn is_pending(get: &mut Get<'_>) -> bool {
    get.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending()
}

/// Takes a key, and lets another worker, which was woken by that, go first.
fn take_and_yield_now(queue: &WorkQueue<Named>) -> Get<'_> {
    let mut get: Get<'_> = Box::pin(queue.get());
    assert!(is_pending(&mut get));
    get
}

#[tokio::test(start_paused = true)]
async fn a_key_put_back_keeps_its_failures_and_its_priority() {
    let queue = exact();
    queue.add(A);
    let mut delay = fail(&queue).unwrap().1;
    advance(delay).await;
    delay = fail(&queue).unwrap().1;
    let mut other: Get<'_> = Box::pin(queue.get());
    // Both are due now: the failed one and another.
    queue.requeue_after((0, 2), delay);
    assert!(is_pending(&mut other));
    advance(delay).await;
    let yielded = take_and_yield_now(&queue);
    assert_eq!(queue.len(), 1, "one was taken");
    drop(yielded);
    assert_eq!(queue.len(), 2, "and given back");
    assert_eq!(queue.requeues(&A), 2, "its failures stay");
    assert_eq!(queue.snapshot().adds, 4, "and nothing was requested");
    drop(other);
    let mut priorities: Vec<_> =
        std::iter::from_fn(|| take(&queue)).map(|taken| (*taken.key(), taken.priority())).collect();
    priorities.sort_unstable_by_key(|(key, _)| *key);
    assert_eq!(priorities, [(A, Priority::Low), ((0, 2), Priority::Low)]);
}

#[tokio::test(start_paused = true)]
async fn a_worker_takes_one_key_at_a_time_however_many_are_due() {
    let queue = exact();
    let mut waiting: [Get<'_>; 2] = [Box::pin(queue.get()), Box::pin(queue.get())];
    for name in [1, 2, 3] {
        queue.requeue_after((0, name), MS);
    }
    assert!(waiting.iter_mut().all(is_pending));
    advance(MS).await;
    // Its timer has ended; it takes one key and wakes the other worker.
    assert!(is_pending(&mut waiting[0]));
    assert_eq!(queue.snapshot().processing, 1, "one, not two");
    let Poll::Ready(Some(first)) =
        waiting[0].as_mut().poll(&mut Context::from_waker(Waker::noop()))
    else {
        panic!("it has the key that it took")
    };
    assert_eq!(queue.snapshot().processing, 1);
    drop(first);
}

#[tokio::test(start_paused = true)]
async fn no_key_is_served_after_the_shutdown() {
    let queue = exact();
    let mut other: Get<'_> = Box::pin(queue.get());
    queue.requeue_after((0, 1), MS);
    queue.requeue_after((0, 2), MS);
    assert!(is_pending(&mut other));
    advance(MS).await;
    let mut yielded = take_and_yield_now(&queue);
    queue.shut_down();
    let ended = yielded.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert!(matches!(ended, Poll::Ready(None)));
    drop(yielded);
    assert_eq!(queue.snapshot().processing, 0);
}
