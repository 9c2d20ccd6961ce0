//! Scenarios of custom resources while the operator is killed.

use serde_json::{Value, json};

use super::steps::Step;
use crate::world::{APP, DAEMON_SET, DEPLOYMENT, GENERIC_DAEMON, Kind, MEMCACHED, SERVICE};

/// The name of every custom resource here: each run has its own namespace, for which values have
/// the placeholder `NAMESPACE`.
pub(super) const NAME: &str = "it";

/// Scenario of a custom resource from its creation until it is gone.
pub(super) struct Workload {
    pub(super) label: &'static str,
    pub(super) kind: Kind,
    pub(super) children: &'static [Kind],
    pub(super) steps: Vec<Step>,
    pub(super) slice: Slice,
}

/// Which of a workload's points run without `CRASH_POINTS=all`: as many as CI has time for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Slice {
    /// The first occurrence of each write that is not an Event.
    Firsts,
    /// The last write to a child, or, if there is one, the first delete.
    One,
    Nothing,
}

/// A kind of custom resource, and a sample of it.
struct Sample {
    kind: Kind,
    children: &'static [Kind],
    object: Value,
}

impl Sample {
    fn workload(&self, label: &'static str, slice: Slice, steps: Vec<Step>) -> Workload {
        let steps = steps.into_iter().chain([Step::Delete]).collect();
        Workload { label, kind: self.kind, children: self.children, steps, slice }
    }

    fn create(&self) -> Step {
        Step::Create(self.object.clone())
    }
}

fn custom(spec: Value) -> Value {
    json!({"metadata": {"name": NAME}, "spec": spec})
}

/// All workloads.
pub(super) fn workloads() -> Vec<Workload> {
    let memcached = Sample {
        kind: MEMCACHED,
        children: &[DEPLOYMENT, SERVICE],
        object: custom(json!({"size": 2})),
    };
    let daemon = Sample {
        kind: GENERIC_DAEMON,
        children: &[DAEMON_SET],
        object: custom(json!({"image": "a:1", "label": "logs"})),
    };
    let ports = json!([{"port": 80, "targetPort": 80}]);
    let app = Sample {
        kind: APP,
        children: &[DEPLOYMENT, SERVICE],
        object: custom(json!({"image": "a:1", "replicas": 1, "ports": ports})),
    };
    let mut all = changed(&memcached, &daemon, &app);
    all.extend(flapping(&memcached, &daemon, &app));
    all.extend(disturbed(&memcached, &daemon, &app));
    all.extend(renewed(&memcached, &daemon, &app));
    all.extend(rationed(&memcached, &daemon, &app));
    all
}

/// Returns workloads whose wanted state changes.
fn changed(memcached: &Sample, daemon: &Sample, app: &Sample) -> Vec<Workload> {
    let change = |spec: Value| Step::Change(json!({"spec": spec}));
    let bare = Sample { object: custom(json!({"image": "a:1", "replicas": 1})), ..*app };
    let labelled =
        Sample { object: custom(json!({"image": "a:1", "label": "NAMESPACE"})), ..*daemon };
    let more = json!([{"name": "a", "port": 80}, {"name": "b", "port": 81}]);
    vec![
        memcached.workload(
            "memcached",
            Slice::Firsts,
            vec![memcached.create(), change(json!({"size": 1}))],
        ),
        daemon.workload(
            "genericdaemon",
            Slice::Firsts,
            vec![daemon.create(), change(json!({"image": "a:2"}))],
        ),
        app.workload("app", Slice::Firsts, vec![app.create(), change(json!({"image": "a:2"}))]),
        memcached.workload(
            "memcached-port",
            Slice::Nothing,
            vec![memcached.create(), change(json!({"containerPort": 11222}))],
        ),
        app.workload(
            "app-ports",
            Slice::One,
            vec![
                bare.create(),
                change(json!({"ports": [{"port": 80}]})),
                change(json!({"ports": more})),
                change(json!({"ports": []})),
            ],
        ),
        daemon.workload(
            "genericdaemon-label",
            Slice::Nothing,
            vec![daemon.create(), change(json!({"label": "disk"})), change(json!({"label": null}))],
        ),
        daemon.workload(
            "genericdaemon-nodes",
            Slice::Nothing,
            vec![
                labelled.create(),
                Step::Label { node: "node-3", bears: true, then: 1 },
                Step::Label { node: "node-2", bears: true, then: 2 },
                Step::Label { node: "node-3", bears: false, then: 1 },
                Step::Label { node: "node-2", bears: false, then: 0 },
            ],
        ),
    ]
}

/// Returns workloads whose wanted state changes, and immediately changes back.
fn flapping(memcached: &Sample, daemon: &Sample, app: &Sample) -> Vec<Workload> {
    let flap = |one: Value, other: Value| Step::Flap(json!({"spec": one}), json!({"spec": other}));
    vec![
        memcached.workload(
            "memcached-flap",
            Slice::Nothing,
            vec![memcached.create(), flap(json!({"size": 1}), json!({"size": 2}))],
        ),
        app.workload(
            "app-flap",
            Slice::Nothing,
            vec![app.create(), flap(json!({"image": "b:1"}), json!({"image": "a:1"}))],
        ),
        daemon.workload(
            "genericdaemon-flap",
            Slice::Nothing,
            vec![daemon.create(), flap(json!({"image": "b:1"}), json!({"image": "a:1"}))],
        ),
    ]
}

/// Somebody interferes with the children.
fn disturbed(memcached: &Sample, daemon: &Sample, app: &Sample) -> Vec<Workload> {
    let label = || Step::Edit {
        child: DEPLOYMENT,
        patch: json!({"metadata": {"labels": {"app.kubernetes.io/name": "else"}}}),
        field: "/metadata/labels/app.kubernetes.io~1name",
    };
    let scaled = Step::Edit {
        child: DEPLOYMENT,
        patch: json!({"spec": {"replicas": 4}}),
        field: "/spec/replicas",
    };
    let selector = Step::Edit {
        child: SERVICE,
        patch: json!({"spec": {"selector": {"app.kubernetes.io/name": "else"}}}),
        field: "/spec/selector/app.kubernetes.io~1name",
    };
    let of_daemon = match label() {
        Step::Edit { patch, field, .. } => Step::Edit { child: DAEMON_SET, patch, field },
        other => other,
    };
    let gone = |sample: &Sample| {
        let removed = sample.children.iter().map(|child| Step::Remove(*child));
        std::iter::once(sample.create()).chain(removed).collect::<Vec<_>>()
    };
    vec![
        memcached.workload(
            "memcached-drift",
            Slice::Nothing,
            vec![memcached.create(), scaled, selector.clone()],
        ),
        app.workload("app-drift", Slice::One, vec![app.create(), label(), selector]),
        daemon.workload("genericdaemon-drift", Slice::Nothing, vec![daemon.create(), of_daemon]),
        memcached.workload("memcached-child", Slice::Nothing, gone(memcached)),
        app.workload("app-child", Slice::Nothing, gone(app)),
        daemon.workload("genericdaemon-child", Slice::Nothing, gone(daemon)),
    ]
}

/// The custom resource is recreated, or its child's name is already taken.
fn renewed(memcached: &Sample, daemon: &Sample, app: &Sample) -> Vec<Workload> {
    let anew = |sample: &Sample| vec![sample.create(), Step::Recreate(sample.object.clone())];
    let foreign = json!({"foreign": "yes"});
    let pods = json!({"metadata": {"name": NAME}, "spec": {
        "selector": {"matchLabels": foreign},
        "template": {
            "metadata": {"labels": foreign},
            "spec": {"containers": [{"name": "c", "image": "foreign:1"}]},
        },
    }});
    let service = json!({"metadata": {"name": NAME}, "spec": {"ports": [{"port": 1}]}});
    let taken = |sample: &Sample, child: Kind, object: &Value| {
        vec![
            Step::Occupy(child, object.clone()),
            Step::CreateInVain(sample.object.clone(), "Stalled"),
            Step::Vacate(child),
        ]
    };
    vec![
        memcached.workload("memcached-anew", Slice::One, anew(memcached)),
        app.workload("app-anew", Slice::Nothing, anew(app)),
        daemon.workload("genericdaemon-anew", Slice::Nothing, anew(daemon)),
        memcached.workload("memcached-taken", Slice::Nothing, taken(memcached, DEPLOYMENT, &pods)),
        app.workload("app-taken", Slice::Nothing, taken(app, SERVICE, &service)),
        daemon.workload("genericdaemon-taken", Slice::One, taken(daemon, DAEMON_SET, &pods)),
    ]
}

/// A quota forbids a child, and is then lifted.
fn rationed(memcached: &Sample, daemon: &Sample, app: &Sample) -> Vec<Workload> {
    let quota = |sample: &Sample, resource: &'static str| {
        vec![
            Step::Forbid(resource),
            Step::CreateInVain(sample.object.clone(), "Degraded"),
            Step::Permit,
        ]
    };
    vec![
        memcached.workload("memcached-quota", Slice::Nothing, quota(memcached, "count/services")),
        app.workload("app-quota", Slice::Nothing, quota(app, "count/deployments.apps")),
        daemon.workload("genericdaemon-quota", Slice::One, quota(daemon, "count/daemonsets.apps")),
    ]
}
