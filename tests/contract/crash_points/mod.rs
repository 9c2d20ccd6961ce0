//! The operator is killed at every write it makes, once or twice, and at every event it is sent.
//!
//! A workload (see workloads.rs) runs once undisturbed, which shows every write that the operator
//! makes. Then it runs again for each write and each moment of it: the operator is killed (SIGKILL)
//! there and restarted, and in pairs killed once more at a write of its recovery. The same is done
//! for each event of its watches, before and after it is delivered. Each run has to end as the
//! undisturbed one did. docs/internals/FAULTS.md says what is compared.
//!
//! - `CRASH_POINTS=all` runs every point, `CRASH_PAIRS=all` every pair; otherwise a fixed slice
//!   runs.
//! - `CRASH_WORKLOADS=app,app-ports` runs only these workloads.
//! - `CRASH_ONLY='status #1'` runs only the points that have this in their name.
//! - `CRASH_LANES=3` runs this many at the same time.
//! - `CRASH_JOURNAL=FILE` records what has passed, and does not repeat what is recorded there.

mod workloads;
mod steps;
mod compared;
mod run;
mod pairs;
mod events;
mod table;

use std::fmt;
use std::sync::Arc;

use futures::StreamExt;

use run::{Outcome, run};
use table::{Judgement, Table};
use workloads::{Slice, Workload, workloads};

use crate::control_plane::ControlPlane;
use crate::idle::setting;
use crate::proxy::Moment;

/// Parallel runs, unless CRASH_LANES says otherwise; each has its own operator.
const LANES: usize = 6;

const MOMENTS: [Moment; 3] = [Moment::AnswerLost, Moment::Before, Moment::After];

/// The verb of a point that is not a write: `object` is then a resource, and the event is one of
/// its watch.
const EVENT: &str = "event";

/// A write or an event, and a moment of it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Point {
    verb: &'static str,
    object: String,
    occurrence: usize,
    moment: Moment,
}

/// Disturbances of a run: at one point, and possibly at a write of the recovery from it.
#[derive(Debug, Clone)]
struct Pair {
    first: Point,
    second: Option<(usize, Moment)>,
}

/// A workload, and its outcome when undisturbed.
type Reference = (Arc<Workload>, Arc<Outcome>);

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes minutes: cargo test --test contract -- --ignored"]
async fn killed_at_any_write_it_ends_as_if_it_had_not_been() {
    let all = is_all("CRASH_POINTS");
    let chosen = chosen(|workload| all || workload.slice != Slice::Nothing);
    judge_all("crash", chosen, |workload, reference| points(workload, reference, all)).await;
}

/// Runs the workloads with a crash at each point returned by `points`, and reports.
async fn judge_all(
    prefix: &str,
    chosen: Vec<Arc<Workload>>,
    points: impl Fn(&Workload, &Outcome) -> Vec<Point>,
) {
    let table = Table::open();
    let plane = tokio::task::spawn_blocking(ControlPlane::shared).await.expect("it starts");
    let references = references(plane, prefix, chosen).await;
    let mut runs = Vec::new();
    for (workload, reference) in &references {
        for (number, first) in points(workload, reference).into_iter().enumerate() {
            let pair = Pair { first, second: None };
            let name = format!("{prefix}-{}-{number}", workload.label);
            let (workload, reference) = (workload.clone(), reference.clone());
            if is_asked_for(&pair) && !table.knows(workload.label, &pair) {
                runs.push(async { judge(plane, (workload, reference), name, pair).await });
            }
        }
    }
    let mut runs = futures::stream::iter(runs).buffer_unordered(lanes());
    while let Some((label, pair, judgement)) = runs.next().await {
        table.note(label, &pair, judgement);
    }
    table.report();
}

fn is_asked_for(pair: &Pair) -> bool {
    std::env::var("CRASH_ONLY").map_or(true, |part| pair.to_string().contains(&part))
}

fn lanes() -> usize {
    let asked = setting("CRASH_LANES").and_then(|lanes| usize::try_from(lanes).ok());
    asked.unwrap_or(LANES).max(1)
}

fn is_all(variable: &str) -> bool {
    std::env::var(variable).is_ok_and(|which| which == "all")
}

/// The workloads to run.
fn chosen(wanted: impl Fn(&Workload) -> bool) -> Vec<Arc<Workload>> {
    let named = std::env::var("CRASH_WORKLOADS").ok();
    let is_named = |workload: &Workload| {
        named.as_ref().is_none_or(|named| named.split(',').any(|name| name == workload.label))
    };
    let chosen = workloads().into_iter().filter(|w| wanted(w) && is_named(w));
    chosen.map(Arc::new).collect()
}

/// The outcomes of the workloads when undisturbed.
async fn references(
    plane: &'static ControlPlane,
    prefix: &str,
    workloads: Vec<Arc<Workload>>,
) -> Vec<Reference> {
    let runs = workloads.into_iter().map(|workload| {
        let name = format!("{prefix}-{}", workload.label);
        async move {
            let outcome = run(plane, &workload, &name, None, None).await;
            (workload, Arc::new(outcome))
        }
    });
    futures::stream::iter(runs).buffered(lanes()).collect().await
}

/// The points to run.
fn points(workload: &Workload, undisturbed: &Outcome, all: bool) -> Vec<Point> {
    let point = |(verb, object, occurrence): &(&'static str, String, usize), moment| Point {
        verb,
        object: object.clone(),
        occurrence: *occurrence,
        moment,
    };
    if all {
        let every = |write| MOMENTS.map(|moment| point(write, moment));
        return undisturbed.writes.iter().flat_map(every).collect();
    }
    let writes = undisturbed.writes.iter().filter(|write| !write.1.starts_with("events"));
    match workload.slice {
        Slice::Firsts => {
            let firsts = writes.filter(|write| write.2 == 1).zip(MOMENTS.into_iter().cycle());
            firsts.map(|(write, moment)| point(write, moment)).collect()
        }
        Slice::One => {
            let of_a_child = |write: &&(&str, String, usize)| {
                workload.children.iter().any(|child| write.1.starts_with(child.plural()))
            };
            let one = writes.filter(of_a_child).max_by_key(|write| (write.0 == "delete", write.2));
            one.map(|write| point(write, Moment::AnswerLost)).into_iter().collect()
        }
        Slice::Nothing => Vec::new(),
    }
}

/// Runs a workload with these crashes in a separate task: one that panics is a row of the table,
/// not the end of the run.
async fn judge(
    plane: &'static ControlPlane,
    (workload, reference): Reference,
    namespace: String,
    pair: Pair,
) -> (&'static str, Pair, Judgement) {
    let (label, disturbed) = (workload.label, pair.clone());
    let run = async move {
        let outcome = run(plane, &workload, &namespace, Some(&disturbed), Some(&reference)).await;
        assert_eq!(outcome.made, reference.made, "created or deleted more or less often");
        let wanted = 1 + usize::from(disturbed.second.is_some());
        match outcome.crashes == wanted {
            true => Judgement::Passed(outcome.recovery),
            false => Judgement::NotMet,
        }
    };
    let judgement = tokio::spawn(run).await.unwrap_or_else(|failure| {
        let text = failure.into_panic().downcast_ref::<String>().cloned();
        Judgement::Failed(text.unwrap_or_else(|| "it panicked".to_owned()))
    });
    (label, pair, judgement)
}

impl fmt::Display for Pair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Point { verb, object, occurrence, moment } = &self.first;
        write!(f, "{verb} {object} #{occurrence} {moment:?}")?;
        match self.second {
            Some((number, moment)) => write!(f, ", then write {number} {moment:?}"),
            None => Ok(()),
        }
    }
}
