//! The operator is killed at an event: before it is delivered, or just afterwards.

use super::run::Outcome;
use super::{EVENT, Point, chosen, is_all, judge_all};
use crate::proxy::Moment;

#[tokio::test(flavor = "multi_thread")]
async fn killed_at_any_event_it_ends_as_if_it_had_not_been() {
    let all = is_all("CRASH_POINTS");
    let chosen = chosen(|workload| all || workload.label == "memcached");
    judge_all("event", chosen, |_, reference| points(reference, all)).await;
}

fn points(undisturbed: &Outcome, all: bool) -> Vec<Point> {
    let mut points = Vec::new();
    for (object, count) in &undisturbed.events {
        let point = |occurrence, moment| {
            let object = object.clone();
            Point { verb: EVENT, object, occurrence, moment }
        };
        for occurrence in 1..=*count {
            let moments: &[Moment] = match occurrence {
                _ if all => &[Moment::Before, Moment::After],
                // The slice: the first one before it is delivered, the second one after.
                1 => &[Moment::Before],
                2 => &[Moment::After],
                _ => &[],
            };
            points.extend(moments.iter().map(|moment| point(occurrence, *moment)));
        }
    }
    points
}
