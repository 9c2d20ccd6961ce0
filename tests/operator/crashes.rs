//! The operator is killed at every write that it makes, twice, and at every event that it receives.
//!
//! A workload runs once undisturbed, which shows every write and event. It then runs again for each of them:
//! the operator is killed before the write or after it, without a response, and started again. A second crash
//! follows at one of the writes of its recovery. Each run must end like the undisturbed one.

use std::collections::BTreeMap;
use std::sync::Once;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use controller_machinery::testing::{Fault, Received, refusal};
use serde_json::{Value, json};

use crate::world::{
    APP, BUDGET, DAEMON_SET, DEPLOYMENT, GENERIC_DAEMON, Kind, MEMCACHED, NODE, POD, SERVICE,
    World, has_condition, id, is_ready,
};

/// The name of every custom resource here.
const NAME: &str = "it";

/// Time without a request after which a step is over. It is longer than every relevant backoff and recheck.
const QUIET: Duration = Duration::from_secs(90);

/// Writes after the first crash at which a second one is tried.
const SECONDS: usize = 6;

/// An action of a user or of another program.
#[derive(Clone)]
enum Step {
    Create(Value),
    Change(Value),
    /// Changed and immediately changed back.
    Flap(Value, Value),
    Delete,
    /// Deleted and, once it no longer exists, created again.
    Recreate(Value),
    /// Another client changes an owned object.
    Edit(Kind, Value),
    /// Another client deletes an owned object.
    Remove(Kind),
    /// Another client creates an object with the name of a future owned object.
    Occupy(Kind, Value),
    /// No object of this kind can be created.
    Forbid(Kind),
    Permit,
    Label(&'static str, bool),
}

struct Workload {
    label: &'static str,
    kind: Kind,
    children: &'static [Kind],
    steps: Vec<Step>,
}

fn custom(spec: Value) -> Value {
    json!({"metadata": {"name": NAME}, "spec": spec})
}

fn spec(spec: Value) -> Step {
    Step::Change(json!({"spec": spec}))
}

/// The kinds with a sample, a change of it, and their children.
fn samples() -> [(Kind, Value, Value, &'static [Kind]); 3] {
    let ports = json!([{"port": 80, "targetPort": 80}]);
    [
        (MEMCACHED, json!({"size": 2}), json!({"size": 1}), &[DEPLOYMENT, SERVICE]),
        (
            APP,
            json!({"image": "a:1", "replicas": 1, "ports": ports}),
            json!({"image": "a:2"}),
            &[DEPLOYMENT, SERVICE],
        ),
        (
            GENERIC_DAEMON,
            json!({"image": "a:1", "label": "logs"}),
            json!({"image": "a:2"}),
            &[DAEMON_SET],
        ),
    ]
}

fn workloads() -> Vec<Workload> {
    let mut all = Vec::new();
    for (kind, sample, change, children) in samples() {
        let create = || Step::Create(custom(sample.clone()));
        let mut add = |label, steps: Vec<Step>| {
            let steps = steps.into_iter().chain([Step::Delete]).collect();
            all.push(Workload { label, kind, children, steps });
        };
        add("changed", vec![create(), spec(change.clone())]);
        let (one, other) = (json!({"spec": change}), json!({"spec": sample}));
        add("changed and back", vec![create(), Step::Flap(one, other)]);
        add("created again", vec![create(), Step::Recreate(custom(sample.clone()))]);
        let spoilt = json!({"metadata": {"labels": {"app.kubernetes.io/name": "else"}},
            "spec": {"replicas": 4}});
        let edits = children.iter().map(|child| Step::Edit(*child, spoilt.clone()));
        add("children edited", std::iter::once(create()).chain(edits).collect());
        let removals = children.iter().map(|child| Step::Remove(*child));
        add("children deleted", std::iter::once(create()).chain(removals).collect());
        let foreign = json!({"foreign": "yes"});
        let template = json!({"metadata": {"labels": foreign}, "spec": {"containers": []}});
        let selector = json!({"matchLabels": foreign});
        let foreign = json!({"metadata": {"name": NAME, "labels": foreign},
            "spec": {"selector": selector, "template": template}});
        for child in children {
            let taken = Step::Occupy(*child, foreign.clone());
            add("name taken", vec![taken, create(), Step::Remove(*child)]);
        }
        let last = children[children.len() - 1];
        add("quota", vec![Step::Forbid(last), create(), Step::Permit]);
    }
    let app = |label, steps| Workload { label, kind: APP, children: &[DEPLOYMENT], steps };
    let bare = custom(json!({"image": "a:1", "replicas": 1}));
    let two = json!([{"name": "a", "port": 80}, {"name": "b", "port": 81}]);
    let ports = [json!([{"port": 80}]), two, json!([])].map(|ports| spec(json!({"ports": ports})));
    all.push(app("ports", [Step::Create(bare)].into_iter().chain(ports).collect()));
    let labels = [("node-3", true), ("node-2", false)];
    let labels = labels.map(|(node, bears)| Step::Label(node, bears));
    let daemon = Step::Create(custom(json!({"image": "a:1", "label": "logs"})));
    let other = spec(json!({"label": "logs=yes"}));
    let steps = [daemon].into_iter().chain(labels).chain([other]).collect();
    let children = &[DAEMON_SET];
    all.push(Workload { label: "nodes", kind: GENERIC_DAEMON, children, steps });
    let port =
        vec![Step::Create(custom(json!({"size": 2}))), spec(json!({"containerPort": 11222}))];
    all.push(Workload {
        label: "port",
        kind: MEMCACHED,
        children: &[DEPLOYMENT, SERVICE],
        steps: port,
    });
    all
}

impl Step {
    async fn act(&self, world: &World, kind: Kind) {
        match self {
            Step::Create(object) => drop(world.create(kind, object.clone())),
            Step::Change(patch) => world.patch(kind, NAME, patch.clone()),
            Step::Flap(one, other) => {
                world.patch(kind, NAME, one.clone());
                world.patch(kind, NAME, other.clone());
            }
            Step::Delete => world.delete(kind, NAME),
            Step::Recreate(object) => {
                world.delete(kind, NAME);
                world.server.until_gone(&id(kind, NAME).resource).await;
                world.create(kind, object.clone());
            }
            Step::Edit(child, patch) => world.patch(*child, NAME, patch.clone()),
            Step::Remove(child) => world.delete(*child, NAME),
            Step::Occupy(child, object) => drop(world.create(*child, object.clone())),
            Step::Forbid(child) => {
                let of = id(*child, NAME);
                let server = world.server.clone();
                world.server.intercept(move |request| {
                    let creates = request.resource == of.resource
                        && request.verb == "patch"
                        && server.get(&of).is_none();
                    creates.then(|| refusal(403, "Forbidden", "exceeded quota: none"))
                });
            }
            Step::Permit => world.server.intercept(|_| None),
            Step::Label(node, bears) => {
                let value = if *bears { json!("yes") } else { Value::Null };
                world.patch(NODE, node, json!({"metadata": {"labels": {"logs": value}}}));
            }
        }
    }
}

/// A write or an event at which the operator is killed.
#[derive(Debug, Clone)]
struct Crash {
    verb: &'static str,
    resource: String,
    number: u64,
    fault: Fault,
}

/// The outcome of a run.
struct Outcome {
    /// The custom resource and its children after each step.
    states: Vec<Value>,
    /// Number of objects of each kind that existed, one after another.
    made: Vec<usize>,
    requests: Vec<Received>,
    /// The number of events, by resource.
    events: BTreeMap<String, u64>,
    crashes: usize,
}

/// The number of panics in this process. The operator catches those of a reconcile and retries.
static PANICS: AtomicUsize = AtomicUsize::new(0);

fn count_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            PANICS.fetch_add(1, Ordering::Relaxed);
            before(panic);
        }));
    });
}

/// Runs the workload; the operator is killed and started again at each of these points.
async fn play(workload: &Workload, crashes: &[Crash]) -> Outcome {
    fastrand::seed(7);
    count_panics();
    let world = World::new();
    for Crash { verb, resource, number, fault } in crashes {
        world.server.fault(verb, resource, *number, *fault);
    }
    let steps = async {
        let mut states = Vec::new();
        for step in &workload.steps {
            step.act(&world, workload.kind).await;
            world.server.settled(QUIET).await;
            come_about(&world, workload, step);
            states.push(state(&world, workload.kind));
        }
        states
    };
    let operator = async {
        for crash in 1.. {
            tokio::select! {
                biased;
                () = world.server.until_injected(crash) => {}
                () = world.run(std::future::pending()) => {}
            }
        }
    };
    let states = tokio::select! {
        states = steps => states,
        () = operator => panic!("it runs for ever"),
    };
    let crashes = world.server.injected().values().sum::<u64>() as usize;
    let made = [workload.kind, DEPLOYMENT, DAEMON_SET, SERVICE, BUDGET];
    let made = made.map(|kind| world.server.incarnations(&id(kind, NAME))).to_vec();
    Outcome {
        states,
        made,
        requests: world.server.requests(),
        events: world.server.event_counts(),
        crashes,
    }
}

/// Asserts that a step has had its effect.
fn come_about(world: &World, workload: &Workload, step: &Step) {
    let Workload { label, kind, children, .. } = workload;
    let object = world.get(*kind, NAME);
    match step {
        Step::Delete => {
            let left = [&[*kind, POD], *children].concat().into_iter().map(|kind| world.list(kind));
            assert_eq!(left.flatten().count(), 0, "{label}: something is left");
        }
        Step::Occupy(..) | Step::Forbid(_) => assert!(object.is_none()),
        Step::Create(_) if ["name taken", "quota"].contains(label) => {
            assert!(has_condition(&object.unwrap(), "Degraded", "True"), "{label}");
        }
        _ => {
            let object = object.unwrap();
            assert!(is_ready(&object), "{label}: {object:#}");
            for child in *children {
                let child = world.get(*child, NAME).unwrap();
                let owner = &child["metadata"]["ownerReferences"][0];
                assert_eq!(owner["uid"], object["metadata"]["uid"], "{label}: {child:#}");
                assert_eq!(child["metadata"]["labels"]["app.kubernetes.io/instance"], NAME);
                assert_ne!(child["metadata"]["labels"]["app.kubernetes.io/name"], "else");
            }
        }
    }
}

/// Returns the custom resource and its owned objects, without parts that differ in every run.
fn state(world: &World, kind: Kind) -> Value {
    let mut state = Vec::new();
    for of in [kind, DEPLOYMENT, DAEMON_SET, SERVICE, BUDGET] {
        for object in world.list(of) {
            let mut object = (*object).clone();
            if of != kind {
                object["status"] = Value::Null;
            }
            mask(&mut object);
            state.push(object);
        }
    }
    state.into()
}

fn mask(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                match name.as_str() {
                    "uid" | "resourceVersion" | "managedFields" => *field = Value::Null,
                    // A move to another owner and back depends on timing.
                    "generation" | "observedGeneration" => *field = Value::Null,
                    name if name.ends_with("Time") || name.ends_with("Timestamp") => {
                        *field = Value::Null;
                    }
                    // The names of pods.
                    "nodes" => *field = json!(field.as_array().map(Vec::len)),
                    _ => mask(field),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(mask),
        _ => {}
    }
}

fn is_event(write: &Received) -> bool {
    write.resource.ends_with("/events")
}

/// The crashes at a write: before it is carried out, and after it, without a response.
fn at(write: &Received) -> [Crash; 2] {
    [Fault::Hang, Fault::Unanswered].map(|fault| {
        let (verb, number) = (write.verb, write.number);
        Crash { verb, resource: write.resource.clone(), number, fault }
    })
}

fn writes(outcome: &Outcome) -> impl Iterator<Item = &Received> {
    outcome.requests.iter().filter(|request| request.method != "GET")
}

/// Runs the workload with these crashes and compares the end of each step.
async fn same(workload: &Workload, crashes: &[Crash], reference: &Outcome) -> Outcome {
    let outcome = play(workload, crashes).await;
    assert_eq!(outcome.made, reference.made, "{}, killed at {crashes:?}", workload.label);
    let label = workload.label;
    for (number, (state, wanted)) in outcome.states.iter().zip(&reference.states).enumerate() {
        let kind = workload.kind.name();
        assert_eq!(state, wanted, "{kind}, {label}, step {number}, killed at {crashes:?}");
    }
    outcome
}

/// Every tenth of the points, or all of them with `CRASHES=all`.
fn slice<T>(points: impl Iterator<Item = T>) -> impl Iterator<Item = T> {
    let is_all = std::env::var("CRASHES").is_ok_and(|which| which == "all");
    points.step_by(if is_all { 1 } else { 10 })
}

#[tokio::test(start_paused = true)]
async fn a_crash_at_any_write_does_not_change_the_result() {
    let (mut points, mut pairs, mut met) = (0, 0, 0);
    for workload in workloads() {
        let reference = play(&workload, &[]).await;
        for first in slice(writes(&reference).flat_map(at)) {
            let once = same(&workload, std::slice::from_ref(&first), &reference).await;
            (points, met) = (points + 1, met + once.crashes);
            let is_first = |request: &&Received| {
                (request.verb, &request.resource, request.number)
                    == (first.verb, &first.resource, first.number)
            };
            let after = writes(&once).skip_while(|write| !is_first(write)).skip(1);
            let recovery = after.filter(|write| !is_event(write)).take(SECONDS);
            // Alternately before and after the write: both would take twice as long.
            let seconds = recovery.enumerate().map(|(number, write)| at(write)[number % 2].clone());
            for second in slice(seconds) {
                same(&workload, &[first.clone(), second], &reference).await;
                pairs += 1;
            }
        }
    }
    println!("{points} points, {met} met, {pairs} pairs");
    assert_eq!(PANICS.load(Ordering::Relaxed), 0);
    // Writes that a quota refuses are not counted.
    assert!(4 * met > 3 * points, "{met} of {points} were met");
}

#[tokio::test(start_paused = true)]
async fn a_crash_at_any_event_does_not_change_the_result() {
    let (mut points, mut met) = (0, 0);
    for workload in workloads() {
        let reference = play(&workload, &[]).await;
        let all = reference.events.iter().flat_map(|(resource, count)| {
            (1..=*count).map(|number| {
                let resource = resource.clone();
                Crash { verb: "event", resource, number, fault: Fault::Silent }
            })
        });
        for crash in slice(all) {
            let once = same(&workload, &[crash], &reference).await;
            (points, met) = (points + 1, met + once.crashes);
        }
    }
    println!("{points} events, {met} met");
    assert_eq!(PANICS.load(Ordering::Relaxed), 0);
    // Writes that a quota refuses are not counted.
    assert!(4 * met > 3 * points, "{met} of {points} were met");
}
