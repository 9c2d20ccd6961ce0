//! The numbers of the shares and turns; `model` has the order in all cases.

use std::collections::VecDeque;

use super::{Limits, Named, Priority, WorkQueue, exact, take};

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
