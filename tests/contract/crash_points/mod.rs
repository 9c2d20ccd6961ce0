//! The operator killed at every write it makes.
//!
//! A workload (create, change, delete a custom resource) runs once undisturbed, which tells every
//! write the operator makes. Then it runs again for each write and each moment of it: the operator
//! is killed (SIGKILL) there and started again. Each run has to end as the undisturbed one did.
//! `CRASH_POINTS=all` runs every point; otherwise a fixed slice runs. docs/RELIABILITY.md says what
//! is compared.

mod compared;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use futures::StreamExt;
use serde_json::{Value, json};
use tokio::time::Instant;

use compared::{end_state, made};

use crate::audit::Audit;
use crate::control_plane::ControlPlane;
use crate::operator_process::OperatorProcess;
use crate::proxy::{Call, Fault, Moment, Proxy};
use crate::world::{
    APP, DAEMON_SET, DEPLOYMENT, GENERIC_DAEMON, Kind, MEMCACHED, SERVICE, World, has_condition,
};

/// Runs at the same time; each has an operator of its own.
const LANES: usize = 6;
/// For so long the operator must write nothing to be quiet.
const QUIET: Duration = Duration::from_millis(1500);
/// By then it must have become quiet.
const RESTLESS: Duration = Duration::from_secs(30);
/// The name of every custom resource here: each run has a namespace of its own.
const NAME: &str = "it";

/// What happens to a custom resource.
#[derive(Clone, Copy)]
struct Workload {
    label: &'static str,
    kind: Kind,
    children: &'static [Kind],
    object: fn() -> Value,
    change: fn() -> Value,
}

const WORKLOADS: [Workload; 3] = [
    Workload {
        label: "memcached",
        kind: MEMCACHED,
        children: &[DEPLOYMENT, SERVICE],
        object: || json!({"metadata": {"name": NAME}, "spec": {"size": 2}}),
        change: || json!({"spec": {"size": 1}}),
    },
    Workload {
        label: "genericdaemon",
        kind: GENERIC_DAEMON,
        children: &[DAEMON_SET],
        object: || json!({"metadata": {"name": NAME}, "spec": {"image": "a:1", "label": "logs"}}),
        change: || json!({"spec": {"image": "a:2"}}),
    },
    Workload {
        label: "app",
        kind: APP,
        children: &[DEPLOYMENT, SERVICE],
        object: || {
            json!({"metadata": {"name": NAME}, "spec": {
                "image": "a:1", "replicas": 1, "ports": [{"port": 80, "targetPort": 80}],
            }})
        },
        change: || json!({"spec": {"image": "a:2"}}),
    },
];

/// A write, and a moment of it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Point {
    verb: &'static str,
    object: String,
    occurrence: usize,
    moment: Moment,
}

/// What a run came to.
#[derive(Debug, Clone)]
struct Outcome {
    /// Custom resource and children after the change, without what no two runs share.
    state: Value,
    /// Objects created and deleted, by whomever: the API server's count.
    made: BTreeMap<String, usize>,
    /// Every write that reached the proxy.
    writes: BTreeSet<(&'static str, String, usize)>,
    /// From the kill to the end of the step that it disturbed; `None` if the point was not met.
    recovery: Option<Duration>,
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_at_any_write_it_ends_as_if_it_had_not_been() {
    let plane = tokio::task::spawn_blocking(ControlPlane::shared).await.expect("it starts");
    let all = std::env::var("CRASH_POINTS").is_ok_and(|which| which == "all");
    let undisturbed = WORKLOADS.map(|workload| async move {
        let outcome = run(plane, workload, format!("crash-{}", workload.label), None).await;
        (workload, outcome)
    });
    let undisturbed = futures::future::join_all(undisturbed).await;
    let runs = undisturbed.into_iter().flat_map(|(workload, reference)| {
        let points = points(&reference, all).into_iter().enumerate();
        points.map(move |(number, point)| {
            let name = format!("crash-{}-{number}", workload.label);
            let judged = judged(plane, workload, name, point.clone(), reference.clone());
            // A task of its own: one that panics is a row of the table, not the end of the run.
            async move { (workload.label, point, tokio::spawn(judged).await) }
        })
    });
    let mut runs = futures::stream::iter(runs).buffer_unordered(LANES);
    let mut table = Vec::new();
    while let Some((label, point, judgement)) = runs.next().await {
        let judgement = judgement.unwrap_or_else(|failure| {
            let text = failure.into_panic().downcast_ref::<String>().cloned();
            Judgement::Failed(text.unwrap_or_else(|| "it panicked".to_owned()))
        });
        println!("{label}\t{point}\t{judgement}");
        table.push((label, point, judgement));
    }
    report(&table);
}

/// Which points to run: all, or of every write that is not an Event the first occurrence, at one
/// moment, each in its turn.
fn points(undisturbed: &Outcome, all: bool) -> Vec<Point> {
    let moments = [Moment::AnswerLost, Moment::Before, Moment::After];
    let point = |write: &(&'static str, String, usize), moment| Point {
        verb: write.0,
        object: write.1.clone(),
        occurrence: write.2,
        moment,
    };
    if all {
        let every = |write| moments.map(|moment| point(write, moment));
        return undisturbed.writes.iter().flat_map(every).collect();
    }
    let first = undisturbed.writes.iter().filter(|w| w.2 == 1 && !w.1.starts_with("events"));
    first.zip(moments.into_iter().cycle()).map(|(write, moment)| point(write, moment)).collect()
}

/// What became of a point.
enum Judgement {
    Passed(Duration),
    /// This run made no such write: how often the status is written depends on the pods' pace.
    NotMet,
    Failed(String),
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Point { verb, object, occurrence, moment } = self;
        write!(f, "{verb} {object} #{occurrence} {moment:?}")
    }
}

impl fmt::Display for Judgement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Judgement::Passed(recovery) => write!(f, "passed, recovered in {recovery:.1?}"),
            Judgement::NotMet => write!(f, "not met"),
            Judgement::Failed(why) => write!(f, "FAILED: {why}"),
        }
    }
}

async fn judged(
    plane: &'static ControlPlane,
    workload: Workload,
    name: String,
    point: Point,
    reference: Outcome,
) -> Judgement {
    let outcome = run(plane, workload, name, Some(point)).await;
    assert_eq!(outcome.state, reference.state, "another end state");
    assert_eq!(outcome.made, reference.made, "created or deleted more or less often");
    outcome.recovery.map_or(Judgement::NotMet, Judgement::Passed)
}

fn report(table: &[(&str, Point, Judgement)]) {
    let failed = |row: &&(&str, Point, Judgement)| matches!(row.2, Judgement::Failed(_));
    for workload in WORKLOADS {
        let rows = || table.iter().filter(|row| row.0 == workload.label);
        let recoveries = rows().filter_map(|row| match row.2 {
            Judgement::Passed(time) => Some(time),
            _ => None,
        });
        println!(
            "{}: {} points, {} passed, {} not met, {} failed, worst recovery {:?}",
            workload.label,
            rows().count(),
            recoveries.clone().count(),
            rows().filter(|row| matches!(row.2, Judgement::NotMet)).count(),
            rows().filter(failed).count(),
            recoveries.max().unwrap_or_default(),
        );
    }
    let failures: Vec<_> = table.iter().filter(failed).collect();
    assert!(failures.is_empty(), "{} points failed: see above", failures.len());
    let met = table.iter().filter(|row| matches!(row.2, Judgement::Passed(_))).count();
    assert!(2 * met > table.len(), "most points are met, or this test tests nothing");
}

/// One run, with or without a crash.
async fn run(
    plane: &'static ControlPlane,
    workload: Workload,
    namespace: String,
    point: Option<Point>,
) -> Outcome {
    let world = World::on(plane, &namespace, "baseline").await;
    let audit = Audit::from_now(&world);
    let proxy = Proxy::start(plane).await;
    let mut crashes = proxy.crashes();
    let mut operator = world.start_operator_through(&proxy.url()).await;
    proxy.aim_at(operator.pid());
    if let Some(point) = point {
        proxy.inject(Fault::Crash(point.moment), 1, move |call| {
            call.verb == point.verb
                && call.object == point.object
                && call.occurrence == point.occurrence
        });
    }
    let mut crashed = None;
    let mut recovery = None;
    let mut state = Value::Null;
    for step in [Step::Create, Step::Change, Step::Delete] {
        let mut done = std::pin::pin!(step.take(&world, workload, &audit));
        let ended = loop {
            tokio::select! {
                ended = &mut done => break ended,
                _ = crashes.changed() => {
                    crashed = Some(Instant::now());
                    operator = restart(&world, &proxy).await;
                }
            }
        };
        recovery = recovery.or_else(|| crashed.map(|at| ended.duration_since(at)));
        if matches!(step, Step::Change) {
            state = end_state(&world, workload).await;
        }
    }
    operator.assert_alive();
    let log = operator.lines();
    assert!(!log.iter().any(|line| line.contains("panicked")), "{log:#?}");
    let writes = proxy.calls().into_iter().filter(Call::is_write);
    let writes = writes.map(|call| (call.verb, call.object, call.occurrence)).collect();
    Outcome { state, made: made(&world, workload, &audit), writes, recovery }
}

async fn restart(world: &World, proxy: &Proxy) -> OperatorProcess {
    proxy.forget_the_dead();
    let operator = world.start_operator_through(&proxy.url()).await;
    proxy.aim_at(operator.pid());
    operator
}

#[derive(Clone, Copy)]
enum Step {
    Create,
    Change,
    Delete,
}

impl Step {
    /// Takes the step, waits until it has come about, and then until the operator is quiet. Returns
    /// when it had come about.
    async fn take(self, world: &World, workload: Workload, audit: &Audit) -> Instant {
        let Workload { kind, children, .. } = workload;
        match self {
            Step::Create => {
                world.create(kind, (workload.object)()).await.expect("a new object");
            }
            Step::Change => {
                world.patch(kind, NAME, (workload.change)()).await.expect("a changed object");
            }
            Step::Delete => world.delete(kind, NAME).await,
        }
        if matches!(self, Step::Delete) {
            world.until_gone(kind, NAME).await;
            for child in children {
                world.until_gone(*child, NAME).await;
            }
        } else {
            world.until(kind, NAME, |object| has_condition(object, "Ready", "True")).await;
        }
        let ended = Instant::now();
        quiet(world, audit).await;
        ended
    }
}

/// Waits until the operator writes nothing any more.
async fn quiet(world: &World, audit: &Audit) {
    let started = Instant::now();
    let count = || audit.writes(world).iter().filter(|write| write.by_operator).count();
    let mut before = count();
    loop {
        // What is waited for is that nothing happens: there is no event for that.
        tokio::time::sleep(QUIET).await;
        let now = count();
        if now == before {
            return;
        }
        assert!(started.elapsed() < RESTLESS, "it goes on writing: {:#?}", audit.writes(world));
        before = now;
    }
}
