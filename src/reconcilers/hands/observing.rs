//! Observes a workload: its health, and when to look again.

use std::time::Duration;

use tokio::time::Instant;

use super::Hands;
use crate::controller::Action;
use crate::object::Object;
use crate::reconcilers::child::Child;
use crate::reconcilers::condition::{Status, Type};
use crate::reconcilers::custom::Custom;
use crate::reconcilers::evidence::Evidence;
use crate::reconcilers::health::{Context, Health, Level, Progress, Rollout, Workload, completed};
use crate::reconcilers::reason::Reason;

/// How often the nodes of a daemon that belongs on none are listed: they are not watched.
const NODES: Duration = Duration::from_secs(60);

/// What a kind knows about its workload.
#[derive(Debug, Default)]
pub(in crate::reconcilers) struct Looking<'a> {
    /// The number of its pods that the status lists, if it lists any.
    pub(in crate::reconcilers) listed: Option<usize>,
    /// The label of the nodes where a daemon belongs.
    pub(in crate::reconcilers) label: Option<&'a str>,
    /// Whether it belongs on more nodes than the status says, so that a rollout begins.
    pub(in crate::reconcilers) grown: bool,
}

impl Hands {
    /// The health of `object`'s workload `child`, which is as desired, and when to look again.
    ///
    /// Pods, Events and nodes are listed only if the workload does not serve although its rollout
    /// had completed, has made no progress for a while, or is reported as failing. One that serves
    /// costs no request, and needs no other look.
    pub(in crate::reconcilers) async fn observe<V: Custom, S: Workload>(
        &self,
        object: &V,
        child: &Child<S>,
        looking: Looking<'_>,
    ) -> (Health, Action) {
        let degraded = object
            .conditions()
            .iter()
            .find(|condition| condition.is(Type::Degraded) && condition.status == Status::True);
        let mut context = Context {
            completed: completed(object) && !looking.grown,
            listed: looking.listed,
            label: looking.label,
            previous: degraded.map(|condition| &*condition.message),
            ..Context::default()
        };
        let first = S::health(child, &context);
        let nowhere = S::is_observed(child) && S::is_nowhere(child);
        if first.level == Level::Ready || nowhere {
            self.progress.forget(object.uid());
        }
        if nowhere {
            context.evidence = self.evidence(child, looking.label).await;
            return (S::health(child, &context), Action::RequeueAfter(NODES));
        }
        if first.level == Level::Ready
            || first.reason == Reason::RolloutPaused
            || !S::is_observed(child)
        {
            return (first, Action::Done);
        }
        let (generation, now) = (child.meta.generation, Instant::now());
        let idle = self.progress.idle(object, generation, S::progress(child), now);
        let again = Action::RequeueAfter(Progress::next(idle));
        context.stuck = idle >= Progress::PATIENCE;
        let goes_on = first.level == Level::Progressing && first.rollout == Rollout::UnderWay;
        if goes_on && !context.stuck {
            return (first, again);
        }
        context.evidence = self.evidence(child, looking.label).await;
        (S::health(child, &context), again)
    }

    /// What can be listed; without it the status says less.
    async fn evidence<S: Workload>(&self, child: &Child<S>, label: Option<&str>) -> Evidence {
        let gathered = Evidence::gather(&self.client, child, label).await;
        gathered.unwrap_or_else(|error| {
            tracing::debug!(%error, object = %child.key(), "Pods were not listed");
            Evidence::default()
        })
    }
}
