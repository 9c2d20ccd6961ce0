//! The operator is killed, and killed again while it recovers.

use futures::StreamExt;

use super::table::Table;
use super::{MOMENTS, Pair, Point, Reference, chosen, is_all, judge, lanes, points, references};
use crate::control_plane::ControlPlane;

/// No recovery makes this many writes.
const MOST: usize = 30;

/// Walks through a recovery write by write until there are no more. Each write is tried at one
/// moment; the moments take turns.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes minutes: cargo test --test contract -- --ignored"]
async fn killed_again_while_it_recovers_it_ends_as_if_it_had_not_been() {
    let all = is_all("CRASH_PAIRS");
    let chosen = chosen(|workload| all || workload.label == "memcached");
    let plane = tokio::task::spawn_blocking(ControlPlane::shared).await.expect("it starts");
    let references = references(plane, "twice", chosen).await;
    let table = Table::open();
    let mut walks = Vec::new();
    for reference in &references {
        let no_event = |point: &Point| !point.object.starts_with("events");
        let all_points = points(&reference.0, &reference.1, true).into_iter().filter(no_event);
        let slice = all_points.enumerate().filter(|(number, _)| all || *number == 0);
        for (number, first) in slice {
            let most = if all { MOST } else { 2 };
            walks.push(walk(plane, reference.clone(), number, first, most, &table));
        }
    }
    futures::stream::iter(walks).buffer_unordered(lanes()).collect::<Vec<()>>().await;
    table.report();
}

/// All second crashes after one first crash.
async fn walk(
    plane: &'static ControlPlane,
    reference: Reference,
    number: usize,
    first: Point,
    most: usize,
    table: &Table,
) {
    let label = reference.0.label;
    for write in 1..=most {
        let moment = MOMENTS[(number + write) % MOMENTS.len()];
        let pair = Pair { first: first.clone(), second: Some((write, moment)) };
        if !table.knows(label, &pair) {
            let name = format!("twice-{label}-{number}-{write}");
            let (_, _, judgement) = judge(plane, reference.clone(), name, pair.clone()).await;
            table.note(label, &pair, judgement);
        }
        if table.ends(label, &pair) {
            return;
        }
    }
}
