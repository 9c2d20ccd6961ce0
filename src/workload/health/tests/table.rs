//! States of owned objects, and the resulting conditions.
//!
//! Each row has the owned objects of a custom resource as the API server would send them, and the expected
//! conditions. `table.md` is generated from the rows.

// The table is long, and fixtures read better with values in place.
#![allow(clippy::too_many_lines, clippy::needless_pass_by_value)]

use std::fmt::Write as _;
use std::time::Duration;

use serde_json::{Value, json};

use super::super::*;
use crate::app::{self, App};
use crate::controller::ReconcileError;
use crate::generic_daemon::{self, GenericDaemon};
use crate::memcached::{self, Memcached};
use crate::object::{ObjectKey, Resource};
use crate::workload::condition::{Condition, Time};
use crate::workload::fixtures::{child, custom, found, rolled_out, wire};
use crate::workload::pod_state::{NodeState, PodState};
use crate::workload::reconciliation::{Found, failure};
use crate::workload::{DaemonSet, DaemonSetSpec, Deployment};

/// A state of owned objects, and the expected conditions.
struct Row {
    /// The kind, and the state in words.
    state: (&'static str, &'static str),
    conditions: Vec<Condition>,
    /// Ready, Available, Progressing, Degraded, Reconciling, Stalled: True, False, Unknown, absent.
    is: &'static str,
    reason: &'static str,
    message: &'static str,
}

const MEMCACHED: &str = include_str!("../../../../artifacts/examples/memcached.yaml");
const APP: &str = include_str!("../../../../artifacts/examples/nginx-app.yaml");
const DAEMON: &str = include_str!("../../../../artifacts/examples/syslog.yaml");

/// Completed before, or without progress for this many seconds, or neither.
const COMPLETED: (bool, u64) = (true, 0);
const STUCK: (bool, u64) = (false, 30);
const UNDER_WAY: (bool, u64) = (false, 0);
/// Completed before, and pods have been missing or not ready for 30 seconds.
const LACKING: (bool, u64) = (true, 30);
/// Without progress for longer than a pod can take to start.
const LATE: (bool, u64) = (false, 660);

// === Children ===

/// The status of a Deployment of two after these changes.
fn changed(changes: Value) -> Value {
    let mut status = rolled_out(2);
    for (field, value) in changes.as_object().unwrap() {
        status[field] = value.clone();
    }
    status
}

/// The Deployment controller could not create a ReplicaSet, and has not observed the generation.
fn without_replica_set() -> Value {
    let status = changed(json!({"observedGeneration": 0}));
    let message = "Failed to create new replica set \"a-1\": exceeded quota";
    with_condition(status, 1, "False", "ReplicaSetCreateError", message)
}

/// The status of a Deployment whose two pods are not available.
fn down() -> Value {
    let mut status = changed(json!({"readyReplicas": 0, "availableReplicas": 0,
        "unavailableReplicas": 2}));
    status["conditions"][0]["status"] = json!("False");
    status
}

/// The same in a rollout that has not completed.
fn starting() -> Value {
    with_condition(down(), 1, "True", "ReplicaSetUpdated", "ReplicaSet is progressing.")
}

fn with_condition(mut status: Value, at: usize, is: &str, reason: &str, message: &str) -> Value {
    for (field, value) in [("status", is), ("reason", reason), ("message", message)] {
        status["conditions"][at][field] = json!(value);
    }
    status
}

fn refused(mut status: Value, message: &str) -> Value {
    let refused = json!({"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate",
        "message": message});
    status["conditions"].as_array_mut().unwrap().push(refused);
    status
}

/// Node counts of a DaemonSet: desired, current, up to date, and ready.
fn nodes([desired, current, updated, ready]: [i32; 4]) -> Value {
    json!({"observedGeneration": 1, "desiredNumberScheduled": desired,
        "currentNumberScheduled": current, "updatedNumberScheduled": updated,
        "numberReady": ready, "numberAvailable": ready})
}

/// The status of a DaemonSet that is ready on all desired nodes. This many more run it.
fn misscheduled(desired: i32, more: i32) -> Value {
    let mut status = nodes([desired; 4]);
    status["numberMisscheduled"] = json!(more);
    status
}

// === Evidence ===

fn pod(status: Value) -> Vec<PodState> {
    named("cart-1", status)
}

fn named(name: &str, status: Value) -> Vec<PodState> {
    let pod = json!({"metadata": {"name": name, "namespace": "default"},
        "spec": {"nodeName": "node-1"}, "status": status});
    vec![serde_json::from_value(pod).unwrap()]
}

fn waiting(reason: &str) -> Value {
    of("memcached", "memcached:typo", reason)
}

/// The status of a pod whose container waits.
fn of(container: &str, image: &str, reason: &str) -> Value {
    json!({"phase": "Running", "containerStatuses": [{
        "name": container, "image": image, "ready": false, "restartCount": 7,
        "state": {"waiting": {"reason": reason, "message": "it runs as root"}},
        "lastState": {"terminated": {"exitCode": 3, "reason": "Error"}}}]})
}

fn unschedulable() -> Value {
    json!({"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False",
        "reason": "Unschedulable", "message": "0/4 nodes are available: 4 Insufficient cpu."}]})
}

fn gated() -> Value {
    let ready = json!({"type": "Ready", "status": "False", "reason": "ReadinessGatesNotReady",
        "message": "gate \"lb\" is not \"True\""});
    json!({"phase": "Running", "conditions": [ready],
        "containerStatuses": [{"name": "memcached", "image": "m", "ready": true}]})
}

fn on_a_lost_node() -> Value {
    json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "False"}],
        "containerStatuses": [{"name": "memcached", "image": "m", "ready": true}]})
}

fn evicted() -> Vec<PodState> {
    let at = |kind: &str, status: &str, minute: u8| {
        json!({"type": kind, "status": status,
            "lastTransitionTime": format!("2026-01-01T00:{minute:02}:00Z")})
    };
    let ended = |minute| json!({"phase": "Failed", "reason": "Evicted", "conditions": [at("Ready", "False", minute)]});
    let new = json!({"phase": "Pending", "conditions": [at("PodScheduled", "True", 31)]});
    [named("cart-0", ended(1)), named("cart-1", ended(30)), named("cart-2", new)].concat()
}

/// A native sidecar that is not ready, and a container that is.
fn with_a_sidecar() -> Value {
    let running = json!({"running": {"startedAt": "2026-01-01T00:00:00Z"}});
    json!({"phase": "Running",
        "conditions": [{"type": "Ready", "status": "False", "reason": "ContainersNotReady"}],
        "initContainerStatuses": [{"name": "istio-proxy", "image": "i", "ready": false,
            "state": running}],
        "containerStatuses": [{"name": "memcached", "image": "m", "ready": true,
            "state": running}]})
}

/// The status of a pod whose image is being pulled.
fn pulling(container: &str) -> Value {
    json!({"phase": "Pending", "containerStatuses": [{"name": container, "image": "m", "ready": false,
        "state": {"waiting": {"reason": "ContainerCreating"}}}]})
}

/// A daemon's pod of the previous template, whose grace period ends at midnight.
fn terminating() -> Vec<PodState> {
    let pod = json!({"metadata": {"name": "syslog-1", "namespace": "default",
            "deletionTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"nodeName": "node-1"}, "status": {"phase": "Running"}});
    vec![serde_json::from_value(pod).unwrap()]
}

/// The node, with this taint if it has a key.
fn node(name: &str, key: &str, effect: &str) -> NodeState {
    let taints = if key.is_empty() { json!([]) } else { json!([{"key": key, "effect": effect}]) };
    let node = json!({"metadata": {"name": name, "labels": {"logs": "true"}},
        "spec": {"taints": taints}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    serde_json::from_value(node).unwrap()
}

fn taint(name: &str) -> NodeState {
    node(name, "dedicated", "NoSchedule")
}

fn lost(name: &str) -> NodeState {
    node(name, "node.kubernetes.io/unreachable", "NoSchedule")
}

fn context<'a>((completed, idle): (bool, u64), pods: Vec<PodState>) -> Context<'a> {
    let evidence = Evidence { pods: Answer::Found(pods.into()), ..Evidence::default() };
    Context { completed, idle: Duration::from_secs(idle), evidence, ..Context::default() }
}

/// The same, a minute after midnight.
fn after_midnight<'a>(state: (bool, u64), pods: Vec<PodState>) -> Context<'a> {
    let mut context = context(state, pods);
    context.evidence.at = serde_json::from_value(json!("2026-01-01T00:01:00Z")).unwrap();
    context
}

/// A daemon's pod that has not been ready since this minute and second.
fn daemon_since(since: &str) -> Vec<PodState> {
    let mut status = of("daemon", "mbessler/typo", "CrashLoopBackOff");
    status["conditions"] = json!([{"type": "Ready", "status": "False",
        "lastTransitionTime": format!("2026-01-01T00:{since}Z")}]);
    named("syslog-1", status)
}

/// The same, with a status that reports this for the same generation.
fn known<'a>(context: Context<'a>, level: Level, reason: Reason, message: &str) -> Context<'a> {
    // As it would have been reported.
    let rollout = match (context.completed, level) {
        (true, _) => Rollout::Complete,
        (false, Level::Stalled) => Rollout::Halted,
        (false, _) => Rollout::UnderWay,
    };
    let previous = Health { rollout, ..Health::new(level, reason, message) };
    Context { previous: Some(previous), ..context }
}

/// The same, while no list can be sent.
fn without_lists(context: Context<'_>) -> Context<'_> {
    Context { evidence: Evidence::failed(), ..context }
}

/// The same, five minutes after the status first reported the problem.
fn lasting(context: Context<'_>) -> Context<'_> {
    Context { lasting: STALLED_AFTER, ..context }
}

// === Custom resources ===

fn deployment(paused: bool, status: Value) -> Deployment {
    let memcached: Memcached = custom(MEMCACHED);
    let children = memcached::desired(&memcached, &memcached::Images::of("memcached:1"));
    let mut object = wire(&memcached, &children.deployment);
    object["spec"]["paused"] = json!(paused);
    object["status"] = status;
    child(&object)
}

fn reported(child: Option<&Deployment>, health: Health, failure: Option<&str>) -> Vec<Condition> {
    let failure = failure.map(str::to_owned);
    let found = Found { failure, ..found(child, health) };
    memcached::status(&custom(MEMCACHED), &found, Vec::new(), Time::new(0)).conditions.into_vec()
}

/// A Memcached of two whose Deployment has this status.
fn of_memcached(status: Value, context: Context<'_>) -> Vec<Condition> {
    let child = deployment(false, status);
    let health = Health::of_deployment(&child, &context);
    reported(Some(&child), health, None)
}

/// A Memcached of two. One pod was replaced and has just become ready.
fn that_waits() -> Vec<Condition> {
    let mut status = changed(json!({"availableReplicas": 1, "unavailableReplicas": 1}));
    status["conditions"][0]["status"] = json!("False");
    let mut child = deployment(false, status);
    child.spec.min_ready_seconds = Some(30);
    let health = Health::of_deployment(&child, &context(COMPLETED, Vec::new()));
    reported(Some(&child), health, None)
}

/// The same for a GenericDaemon on two nodes.
fn of_daemon_that_waits() -> Vec<Condition> {
    let mut status = nodes([2, 2, 2, 2]);
    status["numberAvailable"] = json!(1);
    of_daemon_with(status, context(COMPLETED, Vec::new()), Some(30))
}

/// The same with a Deployment that a user has paused.
fn held(status: Value, state: (bool, u64)) -> Vec<Condition> {
    let child = deployment(true, status);
    let health = Health::of_deployment(&child, &context(state, Vec::new()));
    reported(Some(&child), health, None)
}

/// A Memcached whose Deployment could not be written. `status` is that of the stored Deployment, if it
/// exists.
fn unwritten(problem: &ReconcileError, status: Option<Value>) -> Vec<Condition> {
    let child = status.map(|status| deployment(false, status));
    let failure = failure(problem);
    reported(child.as_ref(), Health::of_problem(problem), failure.as_deref())
}

fn by_quota() -> ReconcileError {
    let source = client::Error::api(403, "Forbidden", "exceeded quota: q");
    let key = ObjectKey::new("default", "cart");
    ReconcileError::Call { verb: "update", kind: "Deployment", key, source: Box::new(source) }
}

fn of_app(status: Value, as_desired: bool) -> Vec<Condition> {
    let app: App = custom(APP);
    let mut object = wire(&app, &app::desired(&app).deployment);
    object["metadata"]["generation"] = json!(2);
    object["status"] = status;
    let child: Deployment = child(&object);
    let health = match as_desired {
        true => Health::of_deployment(&child, &Context::default()),
        false => Health::new(Level::Stalled, Reason::Invalid, "cannot update Deployment"),
    };
    let found = Found { is_as_desired: as_desired, ..found(Some(&child), health) };
    app::status(&app, &found, Time::new(0)).conditions.into_vec()
}

/// The GenericDaemon `syslog` whose DaemonSet has this status.
fn of_daemon(status: Value, context: Context<'_>) -> Vec<Condition> {
    of_daemon_with(status, context, None)
}

fn of_daemon_with(status: Value, context: Context<'_>, min_ready: Option<i32>) -> Vec<Condition> {
    let daemon: GenericDaemon = custom(DAEMON);
    let mut object = wire(&daemon, &generic_daemon::desired(&daemon));
    object["status"] = status;
    let mut child: DaemonSet = child(&object);
    child.spec.min_ready_seconds = min_ready;
    let context = Context { label: daemon.spec.label.as_deref(), ..context };
    let health = <DaemonSetSpec as Workload>::health(&child, &context);
    generic_daemon::status(&daemon, &found(Some(&child), health), Time::new(0))
        .conditions
        .into_vec()
}

/// A Memcached whose size is zero.
fn scaled_to_zero() -> Vec<Condition> {
    let mut memcached: Memcached = custom(MEMCACHED);
    memcached.spec.size = 0;
    let children = memcached::desired(&memcached, &memcached::Images::of("memcached:1"));
    let mut object = wire(&memcached, &children.deployment);
    object["status"] = rolled_out(0);
    let child: Deployment = child(&object);
    let health = Health::of_deployment(&child, &Context::default());
    let found = found(Some(&child), health);
    memcached::status(&memcached, &found, Vec::new(), Time::new(0)).conditions.into_vec()
}

// === Rows ===

/// Rows: the kind, the state in words, its conditions => the columns, the reason, the message.
// rustfmt would give each row nine lines, but leaves a macro's own syntax alone.
macro_rules! rows {
    ($($kind:ident $state:literal, $conditions:expr => $is:literal $reason:literal $message:expr,)*) => {
        vec![$(Row {
            state: ($kind, $state),
            conditions: $conditions,
            is: $is,
            reason: $reason,
            message: $message,
        }),*]
    };
}

const M: &str = "Memcached";
const A: &str = "App";
const G: &str = "GenericDaemon";

fn rollouts() -> Vec<Row> {
    let none = Vec::new;
    let fine = |completed| context(completed, none());
    rows! {
        M "the Deployment's status is of an older generation",
            of_memcached(changed(json!({"observedGeneration": 0})), fine(COMPLETED))
            => "F U T F T -" "RollingOut" "Waiting for the Deployment controller",
        M "the Deployment controller cannot create a ReplicaSet: a quota, or a policy",
            of_memcached(without_replica_set(), fine(UNDER_WAY))
            => "F U T T T -" "ReplicaFailure" "Failed to create new replica set \"a-1\": exceeded quota",
        M "the same for five minutes",
            of_memcached(without_replica_set(),
                lasting(known(fine(STUCK), Level::Degraded, Reason::ReplicaFailure, "m")))
            => "F U F T - T" "ReplicaFailure" "Failed to create new replica set \"a-1\": exceeded quota",
        M "the Deployment controller has not acted for 30 s",
            of_memcached(changed(json!({"observedGeneration": 0})), fine(STUCK))
            => "F U T T T -" "ProgressDeadlineExceeded"
            "The Deployment controller has not processed the Deployment for 30 seconds. Check that \
             kube-controller-manager is running",
        M "completed, then a new pod must first be ready for minReadySeconds", that_waits()
            => "F F F F T -" "RollingOut"
            "1 of 2 replicas is available: new pods must first be ready for minReadySeconds",
        A "the Deployment's status is of an older generation", of_app(rolled_out(2), true)
            => "F T U F T -" "RollingOut" "Waiting for the Deployment controller",
        A "an update was refused; the Deployment serves as it was",
            of_app(changed(json!({"observedGeneration": 2})), false)
            => "F T F T - T" "Invalid" "cannot update Deployment",
        M "rollout in progress", of_memcached(starting(), fine(UNDER_WAY))
            => "F F T F T -" "RollingOut" "0 of 2 replicas are ready",
        M "rollout completed; also if an admission policy has changed what was written",
            of_memcached(rolled_out(2), fine(UNDER_WAY)) => "T T F F - -" "AllReplicasReady" "All 2 replicas are ready",
        M "rollout in progress for 30 s without progress, and a container crashes",
            of_memcached(starting(), context(STUCK, pod(waiting("CrashLoopBackOff"))))
            => "F F T T T -" "CrashLoopBackOff" "Pod cart-1 crashes: container memcached (exit code 3)",
        M "rollout in progress for 30 s without progress, and an image cannot be pulled",
            of_memcached(starting(), context(STUCK, pod(waiting("ImagePullBackOff"))))
            => "F F T T T -" "ImagePullFailed" "Pod cart-1 cannot pull image memcached:typo",
        M "rollout in progress for 30 s without progress, and a container cannot be started",
            of_memcached(starting(), context(STUCK, pod(waiting("CreateContainerConfigError"))))
            => "F F F T - T" "ContainerFailed" "Pod cart-1 cannot start container memcached: it runs as root",
        M "rollout in progress for 30 s without progress, and no pod shows why", of_memcached(starting(), fine(STUCK))
            => "F F T F T -" "RollingOut" "0 of 2 replicas are ready",
        M "rollout in progress for minutes without progress, and a pod pulls its image",
            of_memcached(starting(), context((false, 599), pod(pulling("memcached"))))
            => "F F T F T -" "RollingOut" "0 of 2 replicas are ready; pod cart-1 is starting on node node-1",
        M "the same after the deadline, if the size has grown",
            of_memcached(down(), context(LATE, pod(pulling("memcached"))))
            => "F F T T T -" "ContainersNotReady" "Pod cart-1 is starting on node node-1",
        M "only the size has grown, for ten minutes without progress, and no pod shows why",
            of_memcached(changed(json!({"readyReplicas": 1, "availableReplicas": 1, "unavailableReplicas": 1})),
                fine((false, 610)))
            => "F F T T T -" "ProgressDeadlineExceeded" "No progress for 600 seconds: 1 of 2 replicas is ready",
        M "the same, and the operator has just started",
            of_memcached(changed(json!({"readyReplicas": 1, "availableReplicas": 1, "unavailableReplicas": 1})),
                known(fine(STUCK), Level::Degraded, Reason::ProgressDeadlineExceeded, "No progress"))
            => "F F T T T -" "ProgressDeadlineExceeded" "No progress for 600 seconds: 1 of 2 replicas is ready",
        M "rollout in progress for 30 s without progress, and a readiness gate is not open",
            of_memcached(starting(), context(STUCK, pod(gated()))) => "F F T F T -" "RollingOut"
            "0 of 2 replicas are ready; pod cart-1 is running, but its readiness gates are not met: gate \"lb\" is not \
             \"True\"",
        M "a readiness gate was not open by the deadline, and the operator has just started",
            of_memcached(starting(), known(context(STUCK, pod(gated())), Level::Degraded, Reason::ContainersNotReady,
                "Pod cart-1 is running, but its readiness gates are not met"))
            => "F F T T T -" "ContainersNotReady"
            "Pod cart-1 is running, but its readiness gates are not met: gate \"lb\" is not \"True\"",
        M "completed, then a readiness gate closes", of_memcached(down(), context(LACKING, pod(gated())))
            => "F F F T - -" "ContainersNotReady"
            "Pod cart-1 is running, but its readiness gates are not met: gate \"lb\" is not \"True\"",
        M "the Deployment's deadline has passed",
            of_memcached(with_condition(down(), 1, "False", "ProgressDeadlineExceeded", "It timed out."),
                context(UNDER_WAY, pod(waiting("CrashLoopBackOff"))))
            => "F F F T - T" "ProgressDeadlineExceeded"
            "It timed out. Pod cart-1 crashes: container memcached (exit code 3)",
        M "a quota or Pod Security refuses pods (ReplicaFailure)",
            of_memcached(refused(starting(), "exceeded quota: q"), fine(UNDER_WAY))
            => "F F T T T -" "ReplicaFailure" "exceeded quota: q",
        M "kubectl rollout pause, and a change waits",
            held(with_condition(changed(json!({"updatedReplicas": 0})), 1, "Unknown", "DeploymentPaused",
                "Deployment is paused"), COMPLETED)
            => "F T F T - T" "RolloutPaused"
            "The rollout of Deployment memcached-sample is paused. To resume it, run: kubectl rollout resume \
             deployment/memcached-sample",
        M "kubectl rollout pause, and only the size has grown",
            held(with_condition(changed(json!({"replicas": 1, "updatedReplicas": 1, "readyReplicas": 1,
                "availableReplicas": 1, "unavailableReplicas": 1})), 1, "Unknown", "DeploymentPaused",
                "It is paused"), UNDER_WAY)
            => "F F T F T -" "RollingOut" "1 of 2 replicas is up to date",
        M "kubectl rollout pause, and nothing waits",
            held(with_condition(rolled_out(2), 1, "Unknown", "DeploymentPaused", "It is paused"), COMPLETED)
            => "T T F F - -" "AllReplicasReady" "All 2 replicas are ready",
        M "size 0", scaled_to_zero() => "T T F F - -" "ScaledToZero" "No replicas are desired",
    }
}

fn afterwards() -> Vec<Row> {
    let after = |pods| of_memcached(down(), context(COMPLETED, pods));
    rows! {
        M "completed, then a container crashes", after(pod(waiting("CrashLoopBackOff")))
            => "F F F T - -" "CrashLoopBackOff" "Pod cart-1 crashes: container memcached (exit code 3)",
        M "completed, then an image cannot be pulled", after(pod(waiting("ErrImagePull")))
            => "F F F T - -" "ImagePullFailed" "Pod cart-1 cannot pull image memcached:typo",
        M "completed, then an image has not been pulled for five minutes",
            of_memcached(down(), lasting(known(context(COMPLETED, pod(waiting("ErrImagePull"))), Level::Degraded,
                Reason::ImagePullFailed, "Pod cart-1 cannot pull image memcached:typo")))
            => "F F F T - T" "ImagePullFailed" "Pod cart-1 cannot pull image memcached:typo",
        M "completed, then an image's name is invalid", after(pod(waiting("InvalidImageName")))
            => "F F F T - T" "ImagePullFailed" "Pod cart-1 cannot pull image memcached:typo: the image name is invalid",
        M "completed, then a sidecar is not ready", of_memcached(down(), context(LACKING, pod(with_a_sidecar())))
            => "F F F T - -" "ContainersNotReady" "Pod cart-1 is running, but its container istio-proxy is not ready",
        M "completed, then a container crashes, and the list of pods fails",
            of_memcached(down(), without_lists(known(context(COMPLETED, Vec::new()), Level::Degraded,
                Reason::CrashLoopBackOff, "Pod cart-1 crashes: container memcached (exit code 3)")))
            => "F F F T - -" "CrashLoopBackOff" "Pod cart-1 crashes: container memcached (exit code 3)",
        M "completed, then pods are not ready, and the list of pods fails",
            of_memcached(down(), without_lists(context(LACKING, Vec::new())))
            => "F F F T - -" "ReplicasUnavailable" "0 of 2 replicas are ready",
        M "completed, then no node takes a pod", after(pod(unschedulable())) => "F F F T - -" "PodsUnschedulable"
            "Pod cart-1 cannot be scheduled: 0/4 nodes are available: 4 Insufficient cpu.",
        M "completed, then a node is lost", after(pod(on_a_lost_node()))
            => "F F F T - -" "NodeNotReady" "Pod cart-1 is on node node-1, which does not report",
        M "completed, then a pod is evicted", after(evicted())
            => "F F F T - -" "PodsEvicted" "Pod cart-1 was evicted; its replacement is not ready",
        M "completed, then a quota refuses to replace a pod",
            of_memcached(refused(down(), "exceeded quota: q"), context(COMPLETED, Vec::new()))
            => "F F F T - -" "ReplicaFailure" "exceeded quota: q",
        M "completed, then pods do not serve, and no pod shows why", of_memcached(down(), context(LACKING, Vec::new()))
            => "F F F T - -" "ReplicasUnavailable" "0 of 2 replicas are ready",
        M "completed, then a pod was replaced less than 30 s ago", after(pod(pulling("memcached")))
            => "F F F F T -" "ReplicasUnavailable" "0 of 2 replicas are ready; pod cart-1 is starting on node node-1",
        M "completed, then a pod hangs in termination", of_memcached(down(), after_midnight(LACKING, terminating()))
            => "F F F T - -" "PodsTerminating"
            "Pod syslog-1 is still terminating on node node-1, past its grace period",
    }
}

fn writes() -> Vec<Row> {
    let image =
        || Health::new(Level::Stalled, Reason::ImageMissing, "Unable to find MEMCACHED_IMAGE");
    let serving = deployment(false, rolled_out(2));
    let lost = deployment(false, down());
    let crashing_while_paused = Health {
        paused_problem: Some((Reason::CrashLoopBackOff, "Pod cart-1 crashes".to_owned())),
        ..Health::paused(true)
    };
    let key = ObjectKey::new("default", "memcached-sample");
    let taken = ReconcileError::not_owned::<Memcached, Deployment>(&key);
    let name = Name { kind: Deployment::kind(), key };
    let deleted = ReconcileError::Contested { name, field: None, wait: Duration::ZERO };
    rows! {
        M "a foreign Deployment has the name", unwritten(&taken, None) => "F F F T - T" "ErrResourceExists"
            "Deployment memcached-sample already exists and is not controlled by Memcached memcached-sample; delete or \
             rename one of them",
        M "a quota refuses an update; the pods serve", unwritten(&by_quota(), Some(rolled_out(2)))
            => "F T T T T -" "QuotaExceeded" "cannot update Deployment default/cart: exceeded quota: q",
        M "MEMCACHED_IMAGE is not set; the pods serve",
            reported(Some(&serving), image(), Some("Unable to find MEMCACHED_IMAGE"))
            => "F T F T - T" "ImageMissing" "Unable to find MEMCACHED_IMAGE",
        M "another client keeps deleting the Deployment", unwritten(&deleted, None) => "F F F T T -" "Contested"
            "Another client keeps deleting Deployment memcached-sample, so the operator recreates it at most five \
             times a minute. To find the client, search the API server's audit log",
        M "paused by annotation; the pods serve", reported(Some(&serving), Health::paused(true), None)
            => "F T F F - -" "Paused" Reason::Paused.meaning(),
        M "paused by annotation, and a container crashes", reported(Some(&lost), crashing_while_paused, None)
            => "F F F T - -" "Paused" Reason::Paused.meaning(),
        M "paused by annotation; the pods do not serve", reported(Some(&lost), Health::paused(false), None)
            => "F F F F - -" "Paused" Reason::Paused.meaning(),
    }
}

fn daemons() -> Vec<Row> {
    let fine = |completed| context(completed, Vec::new());
    let daemon = |reason| named("syslog-1", of("daemon", "mbessler/typo", reason));
    let refusal = || {
        let refusal = Answer::Found(Some(
            "Error creating: pods \"syslog-\" is forbidden: exceeded quota".to_owned(),
        ));
        Context { evidence: Evidence { refusal, ..Evidence::default() }, ..fine(STUCK) }
    };
    let answered =
        |nodes| Context { evidence: Evidence { nodes, ..Evidence::default() }, ..fine(UNDER_WAY) };
    let seen = |nodes: Vec<NodeState>| answered(Answer::Found(nodes.into()));
    let tainted =
        "2 nodes have the label, but their taint dedicated:NoSchedule keeps the daemon out";
    let is_tainted = |context| known(context, Level::Degraded, Reason::NodesTainted, tainted);
    let is_lost = "Node node-3 does not report; the daemon is ready on 2 other nodes";
    // A third node has the daemon, although it does not belong there.
    let more = || misscheduled(2, 1);
    let unlisted_with = |pods: Vec<PodState>| {
        let mut context = answered(Answer::NotPermitted);
        context.evidence.pods = Answer::Found(pods.into());
        context
    };
    rows! {
        G "the DaemonSet's status is of an older generation", of_daemon(json!({}), fine(COMPLETED))
            => "F U T F T -" "RollingOut" "Waiting for the DaemonSet controller",
        G "rollout in progress", of_daemon(nodes([2, 2, 1, 1]), fine(COMPLETED))
            => "F F T F T -" "RollingOut" "1 of 2 nodes runs an up-to-date daemon",
        G "rollout completed", of_daemon(nodes([2, 2, 2, 2]), fine(UNDER_WAY))
            => "T T F F - -" "AllNodesReady" "The daemon is ready on all 2 desired nodes",
        G "rollout that makes progress, and a container has crashed for 30 s",
            of_daemon(nodes([9, 9, 5, 4]), after_midnight(UNDER_WAY, daemon_since("00:00")))
            => "F F T T T -" "CrashLoopBackOff" "Pod syslog-1 crashes: container daemon (exit code 3)",
        G "rollout that makes progress, and a container has just crashed",
            of_daemon(nodes([9, 9, 5, 4]), after_midnight(UNDER_WAY, daemon_since("00:50")))
            => "F F T F T -" "RollingOut" "5 of 9 nodes run an up-to-date daemon",
        G "rollout in progress for 30 s without progress, and a container crashes",
            of_daemon(nodes([2, 2, 2, 0]), context(STUCK, daemon("CrashLoopBackOff")))
            => "F F T T T -" "CrashLoopBackOff" "Pod syslog-1 crashes: container daemon (exit code 3)",
        G "rollout in progress for 30 s without progress, and an image cannot be pulled",
            of_daemon(nodes([2, 2, 2, 0]), context(STUCK, daemon("ImagePullBackOff")))
            => "F F T T T -" "ImagePullFailed" "Pod syslog-1 cannot pull image mbessler/typo",
        G "rollout in progress for 30 s without progress: a quota or Pod Security refuses pods",
            of_daemon(nodes([2, 0, 0, 0]), refusal())
            => "F F T T T -" "ReplicaFailure" "Error creating: pods \"syslog-\" is forbidden: exceeded quota",
        G "the DaemonSet controller has not acted for 30 s", of_daemon(json!({}), fine(STUCK))
            => "F U T T T -" "ProgressDeadlineExceeded"
            "The DaemonSet controller has not processed the DaemonSet for 30 seconds. Check that \
             kube-controller-manager is running",
        G "completed, then a new pod must first be ready for minReadySeconds", of_daemon_that_waits()
            => "F F F F T -" "RollingOut"
            "1 of 2 nodes runs an available daemon: new pods must first be ready for minReadySeconds",
        G "rollout in progress for minutes without progress, and a pod pulls its image",
            of_daemon(nodes([2, 2, 2, 1]), context((false, 599), named("syslog-1", pulling("daemon"))))
            => "F F T F T -" "RollingOut"
            "1 of 2 nodes runs an available daemon; pod syslog-1 is starting on node node-1",
        G "the same for longer than a Deployment's deadline",
            of_daemon(nodes([2, 2, 2, 1]), context(LATE, named("syslog-1", pulling("daemon"))))
            => "F F T T T -" "ContainersNotReady" "Pod syslog-1 is starting on node node-1",
        G "rollout in progress for longer than that, and nothing shows why", of_daemon(nodes([2, 2, 2, 1]), fine(LATE))
            => "F F T T T -" "ProgressDeadlineExceeded"
            "No progress for 600 seconds: 1 of 2 nodes runs an available daemon",
        G "rollout in progress for 30 s without progress, and a pod is missing",
            of_daemon(nodes([2, 1, 1, 1]), fine(STUCK))
            => "F F T T T -" "ProgressDeadlineExceeded" "No progress for 30 seconds: 1 of 2 nodes runs the daemon",
        G "completed, then a container crashes",
            of_daemon(nodes([2, 2, 2, 1]), context(COMPLETED, daemon("CrashLoopBackOff")))
            => "F F F T - -" "CrashLoopBackOff" "Pod syslog-1 crashes: container daemon (exit code 3)",
        G "completed, then a readiness gate closes",
            of_daemon(nodes([2, 2, 2, 1]), context(LACKING, named("syslog-1", gated())))
            => "F F F T - -" "ContainersNotReady"
            "Pod syslog-1 is running, but its readiness gates are not met: gate \"lb\" is not \"True\"",
        G "completed, then a node is lost",
            of_daemon(nodes([2, 2, 2, 1]), context(COMPLETED, named("syslog-1", on_a_lost_node())))
            => "F F F T - -" "NodeNotReady" "Pod syslog-1 is on node node-1, which does not report",
        G "completed, then pods do not serve, and no pod shows why", of_daemon(nodes([2, 1, 1, 1]), fine(LACKING))
            => "F F F T - -" "ReplicasUnavailable" "1 of 2 nodes runs the daemon",
        G "rollout in progress for 40 s, while a pod may take 60 s to end",
            of_daemon(nodes([2, 2, 1, 1]), context((false, 40), terminating()))
            => "F F T F T -" "RollingOut" "1 of 2 nodes runs an up-to-date daemon",
        G "rollout in progress, and a pod exists a minute after its grace period",
            of_daemon(nodes([2, 2, 1, 1]), after_midnight(STUCK, terminating())) => "F F T T T -" "PodsTerminating"
            "Pod syslog-1 is still terminating on node node-1, past its grace period",
        G "a container crashes, and a node joins",
            of_daemon(nodes([3, 3, 3, 2]), known(context(UNDER_WAY, daemon("CrashLoopBackOff")), Level::Degraded,
                Reason::CrashLoopBackOff, "Pod syslog-1 crashes: container daemon (exit code 3)"))
            => "F F T T T -" "CrashLoopBackOff" "Pod syslog-1 crashes: container daemon (exit code 3)",
        G "completed, then one of three nodes does not report",
            of_daemon(more(), seen(vec![taint("node-0"), lost("node-3")])) => "F T F T - -" "NodeNotReady" is_lost,
        G "one of three nodes does not report, and the list of nodes fails",
            of_daemon(more(), without_lists(known(fine(COMPLETED), Level::Degraded, Reason::NodeNotReady, is_lost)))
            => "F T F T - -" "NodeNotReady" is_lost,
        G "a taint closed one of three nodes before the daemon came",
            of_daemon(nodes([2, 2, 2, 2]), seen(vec![node("node-1", "", ""), taint("node-3")]))
            => "T T F F - -" "AllNodesReady"
            "The daemon is ready on all 2 desired nodes; taint dedicated:NoSchedule of node node-3 keeps the daemon \
             out",
        G "one of three nodes was lost before the daemon came",
            of_daemon(nodes([2, 2, 2, 2]), seen(vec![node("node-1", "", ""), lost("node-3")]))
            => "T T F F - -" "AllNodesReady" "The daemon is ready on all 2 desired nodes; node node-3 does not report",
        G "completed, then two of 200 nodes are not ready",
            of_daemon(nodes([200, 200, 200, 198]), context(COMPLETED, daemon("CrashLoopBackOff")))
            => "T T F F - -" "MostNodesReady" "The daemon is ready on 198 of 200 desired nodes; not on node-1",
        G "completed, then three of 200 nodes are not ready",
            of_daemon(nodes([200, 200, 200, 197]), context(COMPLETED, daemon("CrashLoopBackOff")))
            => "F F F T - -" "CrashLoopBackOff" "Pod syslog-1 crashes: container daemon (exit code 3)",
        G "two of 200 nodes do not run the new generation yet", of_daemon(nodes([200, 200, 198, 200]), fine(COMPLETED))
            => "F T T F T -" "RollingOut" "198 of 200 nodes run an up-to-date daemon",
        G "completed, then one of 101 nodes does not report",
            of_daemon(misscheduled(100, 1), seen(vec![node("node-1", "", ""), lost("node-3")]))
            => "T T F F - -" "MostNodesReady" "The daemon is ready on 100 desired nodes; node node-3 does not report",
        G "a taint closes one of three nodes, where the daemon runs",
            of_daemon(more(), seen(vec![node("node-1", "", ""), node("node-2", "", ""), taint("node-3")]))
            => "T T F F - -" "AllNodesReady"
            "The daemon is ready on all 2 desired nodes; taint dedicated:NoSchedule of node node-3 keeps the daemon \
             out",
        G "it runs on a node that should not run it, and the operator cannot list nodes",
            of_daemon(more(), answered(Answer::NotPermitted)) => "T T F F - -" "AllNodesReady"
            "The daemon is ready on all 2 desired nodes; 1 more node runs it, possibly despite a taint: the operator \
             cannot list nodes",
        G "no node that has the label reports", of_daemon(nodes([0; 4]), seen(vec![lost("node-1"), lost("node-2")]))
            => "F F T T T -" "NodeNotReady" "2 nodes do not report: node-1, node-2",
        G "no node has the label", of_daemon(nodes([0; 4]), seen(Vec::new())) => "T T F F - -" "NoMatchingNodes"
            "No node has the label logs. To add it, run: kubectl label node NODE logs=true",
        G "no pod is desired, and the operator cannot list nodes",
            of_daemon(nodes([0; 4]), answered(Answer::NotPermitted)) => "T T F F - -" "NoMatchingNodes"
            "No node has the label logs, or taints keep the daemon out of all of them: the operator cannot list nodes",
        G "no pod is desired, the operator cannot list nodes, and pods are on lost nodes",
            of_daemon(misscheduled(0, 2), unlisted_with(named("syslog-1", on_a_lost_node())))
            => "F F T T T -" "NodeNotReady" "Pod syslog-1 is on node node-1, which does not report",
        G "no pod is desired, and the list of nodes fails", of_daemon(nodes([0; 4]), without_lists(fine(UNDER_WAY)))
            => "F F T F T -" "RollingOut"
            "No node should run the daemon; the operator cannot list the nodes at the moment",
        G "a taint keeps the daemon from every node with the label",
            of_daemon(nodes([0; 4]), seen(vec![taint("node-1"), taint("node-2")]))
            => "F F T T T -" "NodesTainted" tainted,
        G "the same, and the list of nodes fails", of_daemon(nodes([0; 4]), without_lists(is_tainted(fine(UNDER_WAY))))
            => "F F T T T -" "NodesTainted" tainted,
        G "the same for five minutes",
            of_daemon(nodes([0; 4]), lasting(is_tainted(seen(vec![taint("node-1"), taint("node-2")]))))
            => "F F F T - T" "NodesTainted" tainted,
        G "nodes can run the daemon, and no pod is desired for 30 s",
            of_daemon(nodes([0; 4]), Context { idle: Duration::from_secs(30), ..seen(vec![node("node-1", "", "")]) })
            => "F F T T T -" "ProgressDeadlineExceeded"
            "There are nodes that can run the daemon, but the DaemonSet controller reports 0 desired pods",
        G "the same, and the list of nodes fails",
            of_daemon(nodes([0; 4]), without_lists(known(fine(STUCK), Level::Degraded, Reason::ProgressDeadlineExceeded,
                "There are nodes that can run the daemon, but the DaemonSet controller reports 0 desired pods")))
            => "F F T T T -" "ProgressDeadlineExceeded"
            "There are nodes that can run the daemon, but the DaemonSet controller reports 0 desired pods",
    }
}

fn rows() -> Vec<Row> {
    [rollouts(), afterwards(), writes(), daemons()].into_iter().flatten().collect()
}

// === The table ===

/// The types of the columns.
const COLUMNS: [Type; 6] = [
    Type::Ready,
    Type::Available,
    Type::Progressing,
    Type::Degraded,
    Type::Reconciling,
    Type::Stalled,
];

#[test]
fn each_state_of_the_children_has_the_conditions_of_its_row() {
    for Row { state, conditions, is, reason, message } in rows() {
        let of = |kind: Type| conditions.iter().find(move |condition| condition.is(kind));
        let letters = COLUMNS.map(|kind| match of(kind).map(|condition| condition.status) {
            Some(Status::True) => "T",
            Some(Status::False) => "F",
            Some(Status::Unknown) => "U",
            None => "-",
        });
        assert_eq!(letters.join(" "), is, "{state:?}: {conditions:#?}");
        let ready = of(Type::Ready).unwrap();
        assert_eq!((&*ready.reason, &*ready.message), (reason, message), "{state:?}");
        if let Some(degraded) = of(Type::Degraded).filter(|c| c.status == Status::True) {
            let is_paused = ready.reason == Reason::Paused.as_str();
            assert!(is_paused || degraded.reason == ready.reason, "{state:?}");
        }
    }
}

/// Returns what is wrong with the grammar of a message.
fn fault(message: &str) -> Option<&'static str> {
    let words: Vec<_> = message.split([' ', ';', ':', ',', '.']).collect();
    let is_number = |word: &str| word.parse::<u32>().is_ok();
    let disagrees = words.windows(2).any(|pair| {
        let plural = ["replicas", "nodes", "pods", "Pods", "daemons", "containers"];
        let singular = ["replica", "node", "pod", "daemon", "container"];
        (pair[0] == "1" && plural.contains(&pair[1]) && !message.contains("of 1 "))
            || (is_number(pair[0]) && pair[0] != "1" && singular.contains(&pair[1]))
    });
    let has = |marks: &[&str]| marks.iter().any(|mark| message.contains(mark));
    let joined = message.split("; ").skip(1).any(|clause| {
        // Names of kinds and quoted messages of the API server begin with capitals, too.
        let capitals = ["All", "No", "The", "There", "It", "To", "Pod", "Pods", "Node", "Waiting"];
        capitals.contains(&clause.split(' ').next().unwrap_or_default())
    });
    match () {
        () if disagrees => Some("a number and its noun disagree"),
        () if has(&[".;", ";;", ",;", ":;", "; ;", "..", "  ", " ;", " ,", "()", "\n"]) => {
            Some("two clauses are joined wrongly")
        }
        () if joined => Some("a clause within the sentence begins with a capital"),
        () if message.ends_with([';', ':', ',', ' ']) => Some("its end is missing"),
        () if message.matches('"').count() % 2 == 1 => Some("a quotation does not end"),
        () => None,
    }
}

#[test]
fn each_message_is_a_sentence() {
    for Row { state, conditions, .. } in rows() {
        for condition in conditions {
            assert_eq!(fault(&condition.message), None, "{state:?}: {:?}", condition.message);
        }
    }
    for wrong in ["1 of 2 replicas are; The rest", "1 nodes wait", "Pod a waits:", "a.; b"] {
        assert!(fault(wrong).is_some(), "{wrong}");
    }
}

#[test]
fn the_documented_table_is_that_of_the_rows() {
    let columns = COLUMNS.map(Type::as_str).join(" | ");
    let mut text =
        format!("| kind | state of the managed resources | {columns} | reason | message |\n");
    text.push_str(&format!("|{}\n", "---|".repeat(10)));
    for Row { state: (kind, state), is, reason, message, .. } in rows() {
        let cells = is.split(' ').map(|letter| match letter {
            "T" => "True",
            "F" => "False",
            "U" => "Unknown",
            _ => "–",
        });
        let cells = cells.collect::<Vec<_>>().join(" | ");
        writeln!(text, "| {kind} | {state} | {cells} | `{reason}` | {message} |").unwrap();
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/workload/health/table.md");
    if std::env::var_os("UPDATE_ARTIFACTS").is_some() {
        std::fs::write(path, &text).unwrap();
    }
    let documented = std::fs::read_to_string(path).unwrap_or_default();
    assert!(documented == text, "UPDATE_ARTIFACTS=1 cargo test --lib health writes {path}");
}
