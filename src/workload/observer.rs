//! Observes a workload: its health, and the time of the next observation.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::child::Child;
use super::custom_resource::Custom;
use super::diagnostics::{self, Diagnostics};
use super::health::{Context, Health, Level, Rollout, STALLED_AFTER, Workload};
use super::progress::{Progress, completed, reported};
use super::reason::Reason;
use crate::client::Client;
use crate::controller::Action;

/// Minimum interval between lists of the pods of a rollout that makes progress, and of the nodes of a daemon
/// that belongs on fewer nodes than have its label, or on none. Nodes are not watched.
const OFTEN: Duration = Duration::from_secs(60);

/// Minimum time between two observations.
const SOON: Duration = Duration::from_millis(100);

/// Time for which a problem without a known cause is listed whenever the evidence expires.
const EARLY: Duration = Duration::from_secs(60);

/// Observes the workloads of one kind of custom resource. Clones share everything.
#[derive(Debug, Clone)]
pub struct Observer {
    progress: Arc<Progress>,
    diagnostics: Diagnostics,
}

// === impl Observer ===

impl Observer {
    /// Creates an observer, which uses `diagnostics` for what the workloads' own statuses do not show.
    pub fn new(diagnostics: Diagnostics) -> Observer {
        Observer { progress: Arc::default(), diagnostics }
    }

    /// Returns the health of `object`'s workload `child`, which is as desired, and the time of the next
    /// observation. The kind sets what it knows in `context`.
    ///
    /// Pods, Events and nodes are listed only if the workload is not ready after a completed rollout, has made
    /// no progress for a while, or is reported as failing, or if a daemon runs on nodes where it does not
    /// belong. A ready workload costs no request, except that the nodes with a daemon's label are listed now
    /// and then.
    pub(crate) async fn observe<V: Custom, S: Workload>(
        &self,
        client: &Client,
        object: &V,
        child: &Child<S>,
        context: Context<'_>,
    ) -> (Health, Action) {
        let now = Instant::now();
        let mut context = Context {
            completed: completed(object) && !context.grown,
            previous: reported(object),
            ..context
        };
        let first = S::health(child, &context);
        if first.reason == Reason::RolloutPaused {
            return (first, Action::Done);
        }
        if !S::is_observed(child) {
            context.idle = self.idle(object, child, now);
            let again = Action::RequeueAfter(Progress::next(context.idle));
            return (S::health(child, &context), again);
        }
        // Only time is missing. The owned object's status changes when it is over.
        if first.reason == Reason::RollingOut && first.rollout == Rollout::Complete {
            return (first, Action::Done);
        }
        let unclear = S::is_to_be_explained(child);
        if first.level == Level::Ready && !unclear {
            self.progress.forget(object.uid());
            self.diagnostics.forget(child);
            if context.label.is_none() {
                return (first, Action::Done);
            }
            return self.nodes_with_the_label(client, child, context).await;
        }
        let often = OFTEN.max(diagnostics::OF_EACH * context.nodes);
        let uid = object.uid();
        context.idle = self.idle(object, child, now);
        let known = context.previous.as_ref().filter(|previous| previous.trouble().is_some());
        context.lasting =
            known.map_or(Duration::ZERO, |known| self.progress.lasting(uid, known.reason, now));
        let again = Action::RequeueAfter(Progress::next(context.idle));
        let goes_on = first.level == Level::Progressing && first.rollout == Rollout::UnderWay;
        let is_known = known.is_some_and(|known| known.reason.is_of_pods());
        let is_quiet = !is_known && context.idle < Progress::IDLE_MAX;
        if goes_on && !unclear && is_quiet && !self.progress.is_look_due(uid, often, now) {
            // Only after a while is a paused Deployment known to be paused.
            return (S::health(child, &context), again);
        }
        let ask = S::ask(child);
        let (evidence, until) = self.diagnostics.explain(client, child, ask, context.label).await;
        context.evidence = evidence;
        if goes_on && !context.evidence.has_failed() {
            self.progress.looked(uid, now);
        }
        let health = S::health(child, &context);
        self.progress.note(uid, health.trouble().map(|(reason, _)| reason), now);
        let often = if context.evidence.explains(S::misscheduled(child)) { often } else { SOON };
        let next = next(&health, &context, until.duration_since(now), often);
        if health.level == Level::Ready {
            self.progress.forget(uid);
            return (health, next);
        }
        (health, earlier(again, next))
    }

    /// Returns for how long the workload has made no progress.
    fn idle<V: Custom, S: Workload>(&self, object: &V, child: &Child<S>, now: Instant) -> Duration {
        let generation = (child.meta.generation, S::is_observed(child));
        self.progress.idle(object, generation, S::progress(child), now)
    }

    /// Returns the health of a daemon that is ready where Kubernetes wants it, with the nodes that have its
    /// label but cannot run it, and the time of the next observation. Nodes that were closed from the start are
    /// in no count.
    async fn nodes_with_the_label<S: Workload>(
        &self,
        client: &Client,
        child: &Child<S>,
        context: Context<'_>,
    ) -> (Health, Action) {
        let enough = diagnostics::SELDOM;
        let (evidence, until) = self.diagnostics.of_nodes(client, context.label, enough, 0).await;
        let has_failed = evidence.has_failed();
        let health = S::health(child, &Context { evidence, ..context });
        let is_well = health.level == Level::Ready && !has_failed;
        let wait = if is_well { enough } else { until.duration_since(Instant::now()) };
        (health, Action::RequeueAfter(wait.max(SOON)))
    }

    /// Returns the wait until the operator can write a status that differs from the last one only in counts.
    pub(crate) fn wait_to_count<V: Custom>(&self, object: &V) -> Option<Duration> {
        self.progress.wait_to_count(object.uid(), Instant::now())
    }
}

/// Returns the next observation that the evidence requires. The evidence expires after `fresh`; a workload
/// without a problem is observed again after `often`.
fn next(health: &Health, context: &Context<'_>, fresh: Duration, often: Duration) -> Action {
    if context.evidence.has_failed() {
        return Action::RequeueAfter(fresh.max(SOON));
    }
    match health.trouble() {
        None => Action::RequeueAfter(often.max(fresh.clamp(SOON, OFTEN))),
        Some((Reason::ReplicasUnavailable | Reason::ProgressDeadlineExceeded, _))
            if context.idle < EARLY =>
        {
            Action::RequeueAfter(fresh)
        }
        Some((reason, _)) if health.level == Level::Degraded && reason.stalls() => {
            let left = STALLED_AFTER.saturating_sub(context.lasting);
            Action::RequeueAfter(left + Duration::from_millis(10))
        }
        Some(_) => Action::Done,
    }
}

/// Returns the earlier of two actions.
pub(crate) fn earlier(one: Action, other: Action) -> Action {
    match (one, other) {
        (Action::RequeueAfter(a), Action::RequeueAfter(b)) => Action::RequeueAfter(a.min(b)),
        (Action::Done, action) | (action, Action::Done) => action,
    }
}
