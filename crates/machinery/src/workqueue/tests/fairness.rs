//! Bands and turns.

use std::collections::VecDeque;

use super::{Limits, Named, Priority, WorkQueue, exact, run_all, take};

/// Takes and ends one run; returns its key and priority.
fn run(queue: &WorkQueue<Named>) -> (Named, Priority) {
    let taken = take(queue).expect("a key is ready");
    (*taken.key(), taken.priority())
}

#[tokio::test]
async fn a_key_waits_one_turn_behind_ten_thousand_of_another_tenant() {
    let queue = exact();
    (0..10_000).for_each(|name| queue.add((1, name)));
    queue.add((2, 0));
    let turns = (0..).find(|_| run(&queue).0.0 == 2).unwrap();
    assert_eq!(turns, 1);
}

#[tokio::test]
async fn tenants_take_turns_regardless_of_their_queue_lengths() {
    let queue = exact();
    for (tenant, keys) in [(1, 6), (2, 2), (3, 4)] {
        (0..keys).for_each(|name| queue.add((tenant, name)));
    }
    let tenants: Vec<u32> = run_all(&queue).iter().map(|key| key.0).collect();
    assert_eq!(tenants, [1, 2, 3, 1, 2, 3, 1, 3, 1, 3, 1, 1]);
}

#[tokio::test]
async fn a_hot_key_does_not_overtake_the_keys_of_its_own_tenant() {
    let queue = exact();
    (0..100).for_each(|name| queue.add((0, name)));
    for expected in 0..100 {
        let taken = take(&queue).unwrap();
        assert_eq!(taken.key().1, expected);
        queue.add((0, 0));
    }
}

#[tokio::test]
async fn changes_precede_the_initial_list_except_in_one_get_of_eight() {
    let queue = exact();
    (0..1000).for_each(|name| queue.add_with((1, name), Priority::Low));
    (0..700).for_each(|name| queue.add((2, name)));
    for round in 0..100 {
        for get in 1..=8 {
            let priority = run(&queue).1;
            let expected = if get == 8 { Priority::Low } else { Priority::High };
            assert_eq!(priority, expected, "get {get} of round {round}");
        }
    }
}

#[tokio::test]
async fn a_change_raises_the_priority_of_an_initially_listed_key() {
    let queue = exact();
    (0..100).for_each(|name| queue.add_with((1, name), Priority::Low));
    queue.add((1, 70));
    assert_eq!(run(&queue), ((1, 70), Priority::High));
    // The line closes behind it, and a resync does not pull a change down.
    queue.add((1, 50));
    queue.add_with((1, 50), Priority::Low);
    assert_eq!(run(&queue), ((1, 50), Priority::High));
    let rest: Vec<u32> = run_all(&queue).iter().map(|key| key.1).collect();
    assert_eq!(rest, (0..100).filter(|name| ![50, 70].contains(name)).collect::<Vec<_>>());
}

#[tokio::test]
async fn raising_the_last_key_of_a_tenant_keeps_the_ring_consistent() {
    let queue = exact();
    for tenant in 0..3 {
        queue.add_with((tenant, 0), Priority::Low);
    }
    queue.add((1, 0));
    assert_eq!(run_all(&queue), [(1, 0), (0, 0), (2, 0)]);
    queue.add_with((1, 1), Priority::Low);
    assert_eq!(run_all(&queue), [(1, 1)]);
    assert_eq!(queue.snapshot().known, 0);
}

/// A queue for four workers.
fn of_four() -> WorkQueue<Named> {
    WorkQueue::with_workers("test", 4, Limits::default())
}

#[tokio::test]
async fn a_tenant_with_all_workers_falls_to_half_while_another_waits() {
    let queue = of_four();
    (0..100).for_each(|name| queue.add((1, name)));
    // No other tenant waits, so it can occupy all workers.
    let mut slow: VecDeque<_> = (0..4).map(|_| take(&queue).unwrap()).collect();
    assert!(slow.iter().all(|taken| taken.key().0 == 1));
    (0..20).for_each(|name| queue.add((2, name)));
    slow.pop_front();
    (0..5).for_each(|_| assert_eq!(run(&queue).0.0, 2, "three workers are slow"));
    slow.pop_front();
    (0..5).for_each(|_| assert_eq!(run(&queue).0.0, 2, "two workers are slow"));
    // Below half it is served again, and its turn has come.
    slow.pop_front();
    slow.push_back(take(&queue).unwrap());
    assert!(slow.iter().all(|taken| taken.key().0 == 1) && slow.len() == 2);
    (10..20).for_each(|name| assert_eq!(run(&queue).0, (2, name)));
    // The other tenant no longer waits.
    slow.extend([take(&queue).unwrap(), take(&queue).unwrap()]);
    let names: Vec<u32> = slow.iter().map(|taken| taken.key().1).collect();
    assert_eq!(names, [3, 4, 5, 6]);
}

#[tokio::test]
async fn a_lower_priority_precedes_a_tenant_at_its_share() {
    let queue = of_four();
    (0..3).for_each(|name| queue.add((1, name)));
    queue.add_with((2, 0), Priority::Low);
    let slow = [take(&queue).unwrap(), take(&queue).unwrap()];
    assert_eq!(run(&queue), ((2, 0), Priority::Low));
    assert_eq!(run(&queue), ((1, 2), Priority::High));
    drop(slow);
}

#[tokio::test]
async fn a_finished_run_does_not_count_although_its_key_is_requested_again() {
    let queue = of_four();
    (0..4).for_each(|name| queue.add((1, name)));
    let slow = [take(&queue).unwrap(), take(&queue).unwrap()];
    slow.iter().for_each(|taken| queue.add(*taken.key()));
    queue.add((2, 0));
    drop(slow);
    let tenants: Vec<u32> = run_all(&queue).iter().map(|key| key.0).collect();
    assert_eq!(tenants, [1, 2, 1, 1, 1]);
}
