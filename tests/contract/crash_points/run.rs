//! One run of a workload, with the operator killed once, twice or not at all.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use super::compared::{end_state, made};
use super::steps::Step;
use super::workloads::Workload;
use super::{EVENT, Pair, Point};
use crate::audit::Audit;
use crate::control_plane::ControlPlane;
use crate::operator_process::OperatorProcess;
use crate::proxy::{Call, Fault, Moment, Proxy};
use crate::world::World;

/// Time without a write after which the operator counts as quiet.
const QUIET: Duration = Duration::from_millis(1500);
/// By then it must be quiet, and what it has made must equal the undisturbed run. Generous: on a
/// starved machine the API server alone takes half a minute for a Deployment's status.
const RESTLESS: Duration = Duration::from_secs(120);

/// The outcome of a run.
#[derive(Debug, Clone)]
pub(super) struct Outcome {
    /// The custom resource and its children after each step, without what differs in every run.
    pub(super) states: Vec<Value>,
    /// Objects created and deleted, by anybody, as counted by the API server.
    pub(super) made: BTreeMap<String, usize>,
    /// Every write that reached the proxy.
    pub(super) writes: BTreeSet<(&'static str, String, usize)>,
    /// Number of events sent to the operator, by resource.
    pub(super) events: BTreeMap<String, usize>,
    /// Number of times that the operator was killed.
    pub(super) crashes: usize,
    /// From the last kill to the end of the step that it disturbed.
    pub(super) recovery: Duration,
}

/// The state of the operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operator {
    Down,
    /// At work, after this many crashes.
    Up(usize),
}

/// A run under way.
struct Lane<'a> {
    world: World,
    audit: Audit,
    proxy: Proxy,
    workload: &'a Workload,
    operator: watch::Sender<Operator>,
    crashed: Mutex<Vec<Instant>>,
    over: Notify,
}

/// Runs a workload in its own namespace. With a `reference`, panics unless the outcome is the same.
pub(super) async fn run(
    plane: &'static ControlPlane,
    workload: &Workload,
    namespace: &str,
    pair: Option<&Pair>,
    reference: Option<&Outcome>,
) -> Outcome {
    let world = World::on(plane, namespace, "baseline").await;
    let lane = Lane {
        audit: Audit::from_now(&world),
        world,
        proxy: Proxy::start(plane).await,
        workload,
        operator: watch::Sender::new(Operator::Down),
        crashed: Mutex::default(),
        over: Notify::new(),
    };
    lane.proxy.count_events();
    if let Some(Point { verb, object, occurrence, moment }) = pair.map(|pair| pair.first.clone()) {
        if verb == EVENT {
            lane.proxy.crash_at_event(&object, occurrence, moment);
        } else {
            lane.proxy.inject(Fault::Crash(moment), 1, move |call| {
                call.verb == verb && call.object == object && call.occurrence == occurrence
            });
        }
    }
    let second = pair.and_then(|pair| pair.second);
    let (mut operator, (states, recovery)) =
        tokio::join!(lane.keep_running(second), lane.take_steps(reference));
    operator.assert_alive();
    let log = operator.lines();
    assert!(!log.iter().any(|line| line.contains("panicked")), "{log:#?}");
    let writes = lane.proxy.calls().into_iter().filter(Call::is_write);
    let writes = writes.map(|call| (call.verb, call.object, call.occurrence)).collect();
    let made = made(&lane.world, workload, &lane.audit);
    let crashes = lane.crashed.lock().len();
    let events = lane.proxy.events();
    Outcome { states, made, writes, events, crashes, recovery }
}

impl Lane<'_> {
    /// Starts the operator, and restarts it after each crash, until the steps are over. After the
    /// first crash it will be killed at the `second` write that follows and is not an Event.
    async fn keep_running(&self, mut second: Option<(usize, Moment)>) -> OperatorProcess {
        let mut crashes = self.proxy.crashes();
        loop {
            let operator = self.world.start_operator_through(&self.proxy.url()).await;
            self.proxy.aim_at(operator.pid());
            let count = self.crashed.lock().len();
            let works = async {
                operator.logged("Ready to work").await;
                self.operator.send_replace(Operator::Up(count));
                std::future::pending::<()>().await;
            };
            tokio::select! {
                () = works => {}
                () = self.over.notified() => return operator,
                _ = crashes.changed() => {}
            }
            self.operator.send_replace(Operator::Down);
            self.crashed.lock().push(Instant::now());
            let log = operator.lines();
            assert!(!log.iter().any(|line| line.contains("panicked")), "{log:#?}");
            if let Some((number, moment)) = second.take() {
                let count = AtomicUsize::new(0);
                self.proxy.inject(Fault::Crash(moment), 1, move |call| {
                    call.is_write()
                        && !call.object.starts_with("events")
                        && count.fetch_add(1, Ordering::Relaxed) + 1 == number
                });
            }
            self.proxy.forget_the_dead();
        }
    }

    /// Takes all steps; returns the states they have led to, and how long the disturbed one took to
    /// recover.
    async fn take_steps(&self, reference: Option<&Outcome>) -> (Vec<Value>, Duration) {
        let (mut states, mut recovery) = (Vec::new(), Duration::ZERO);
        for (number, step) in self.workload.steps.iter().enumerate() {
            let crashes = self.crashed.lock().len();
            let ended = self.take(step).await;
            let wanted = reference.and_then(|reference| reference.states.get(number));
            states.push(self.settled(wanted).await);
            let crashed = self.crashed.lock().clone();
            if let Some(last) = crashed.get(crashes..).and_then(<[_]>::last) {
                recovery = ended.saturating_duration_since(*last);
                // A second crash belongs to the recovery, or does not happen.
                self.proxy.heal();
            }
        }
        self.over.notify_one();
        (states, recovery)
    }

    /// Takes the step, waits until it has come about, and then until the operator is quiet, with no
    /// crash since. Returns the time at which it had come about.
    async fn take(&self, step: &Step) -> Instant {
        let awaited = step.act(&self.world, self.workload).await;
        let mut operator = self.operator.subscribe();
        loop {
            let up = *operator.wait_for(|operator| *operator != Operator::Down).await.expect("it");
            for awaited in &awaited {
                awaited.come_about(&self.world).await;
            }
            let ended = Instant::now();
            self.quiet().await;
            if *self.operator.borrow() == up {
                return ended;
            }
        }
    }

    /// The state, once it equals `wanted`; without that, once it stays the same. On a busy machine
    /// Kubernetes' own controllers may take a while.
    async fn settled(&self, wanted: Option<&Value>) -> Value {
        let started = Instant::now();
        let mut before = None;
        loop {
            let state = end_state(&self.world, self.workload).await;
            let done = match wanted {
                Some(wanted) => state == *wanted,
                None => before.as_ref() == Some(&state),
            };
            if done {
                return state;
            }
            let late = started.elapsed() > RESTLESS;
            assert!(!late, "another end state: {state:#}, and not {:#}", wanted.unwrap_or(&state));
            before = Some(state);
            self.quiet().await;
        }
    }

    /// Waits until the operator has stopped writing.
    async fn quiet(&self) {
        let started = Instant::now();
        let writes = || self.audit.writes(&self.world);
        let count = || writes().iter().filter(|write| write.by_operator).count();
        let mut before = count();
        loop {
            // This waits for nothing to happen: there is no event for that.
            tokio::time::sleep(QUIET).await;
            let now = count();
            if now == before {
                return;
            }
            assert!(started.elapsed() < RESTLESS, "it goes on writing: {:#?}", writes());
            before = now;
        }
    }
}
