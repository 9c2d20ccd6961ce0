//! Brings one child to its desired state.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::contest::WINDOW;
use super::whole::Whole;
use super::{Hands, Outcome, Parent, as_conflict, failed};
use crate::client;
use crate::events;
use crate::object::Uid;
use crate::reconcilers::applied::APPLIED;
use crate::reconcilers::child::{Child, ChildSpec, Decision, Made, admission, decide};
use crate::reconcilers::error::{Diagnosis, Error, diagnose};
use crate::reconcilers::reason::{Action, Reason};
use crate::store::Store;

/// Where [`APPLIED`] is.
const MARK: &str = "metadata.annotations";

/// Brings one child to its desired state.
pub(super) struct Settling<'a, S: ChildSpec> {
    pub(super) hands: &'a Hands,
    pub(super) parent: &'a Parent,
    pub(super) store: &'a Store<Child<S>>,
    pub(super) desired: &'a Made<S>,
}

impl<S: ChildSpec> Settling<'_, S> {
    pub(super) async fn settle(&self) -> Result<Outcome<S>, Error> {
        match self.store.get(&self.parent.key) {
            None if self.parent.carried_out => self.again(self.create(), Outcome::Deleted).await,
            None => self.create().await,
            Some(there) => self.bring_about(there).await,
        }
    }

    /// Does again what somebody has undone, unless that happens all the time: then the outcome is
    /// what `given_up` makes of the time to wait. A write that is refused undoes nobody's work, so
    /// it is not counted.
    async fn again(
        &self,
        doing: impl Future<Output = Result<Outcome<S>, Error>>,
        given_up: impl FnOnce(Duration) -> Outcome<S>,
    ) -> Result<Outcome<S>, Error> {
        let (contests, kind, parent) = (&self.hands.contests, S::KIND.kind, self.parent.uid());
        if let Some(wait) = contests.wait(kind, parent, Instant::now()) {
            return Ok(given_up(wait));
        }
        let outcome = doing.await?;
        contests.restored(kind, parent, Instant::now());
        Ok(outcome)
    }

    /// Creates it. If the name is taken, the store was behind, so the API server itself is asked.
    async fn create(&self) -> Result<Outcome<S>, Error> {
        let (client, key) = (&self.hands.client, &self.parent.key);
        let body = self.desired.to_apply(key, self.parent.owner.clone(), Uid::NONE);
        match client.apply_new::<Child<S>>(key, &body).await {
            Ok(child) => {
                self.publish_event(
                    S::REASONS[0],
                    Action::Create,
                    &format!("Created {}", self.name()),
                );
                self.written(child).await
            }
            Err(error) if diagnose(&error) == Diagnosis::Conflict => {
                let live = client.get::<Child<S>>(key).await;
                let live = live.map_err(|error| failed("get", S::KIND.kind, key, error))?;
                // The watch will report somebody else's object; it is not ours to show before that.
                let live = if live.meta.is_controlled_by(self.parent.uid()) {
                    self.store.learned(live)
                } else {
                    Arc::new(live)
                };
                self.bring_about(live).await
            }
            Err(error) => Err(failed("create", S::KIND.kind, key, error)),
        }
    }

    /// Brings an existing child to its desired state.
    async fn bring_about(&self, there: Arc<Child<S>>) -> Result<Outcome<S>, Error> {
        let decision = decide(&self.parent.owner, self.desired, Some(&there));
        match decision {
            Decision::Nothing => Ok(Outcome::Settled(there)),
            Decision::Wait => Ok(Outcome::Waiting),
            Decision::Taken => Ok(Outcome::Taken),
            Decision::Immutable(field) => Ok(Outcome::Immutable(field)),
            // `Create` cannot occur here, as the child exists; it only completes the match.
            Decision::Apply | Decision::Create => {
                // Either way somebody removed or changed the mark that records what was applied.
                let unmarked = there.meta.annotations.get(APPLIED).is_none();
                if unmarked || self.parent.carried_out {
                    let contested = |wait| Outcome::Contested(MARK, wait);
                    self.again(self.write(&there, decision), contested).await
                } else {
                    self.write(&there, decision).await
                }
            }
            Decision::Restore(field) => {
                let contested = |wait| Outcome::Contested(field, wait);
                self.again(self.write(&there, decision), contested).await
            }
        }
    }

    async fn write(&self, there: &Child<S>, decision: Decision) -> Result<Outcome<S>, Error> {
        let child = self.apply(there, decision).await?;
        let (reason, note) = match decision {
            Decision::Restore(field) => {
                let note = format!("Restored {field} of {}, which was changed", self.name());
                (S::REASONS[2], note)
            }
            _ => (S::REASONS[1], format!("Updated {}", self.name())),
        };
        self.publish_event(reason, Action::Update, &note);
        self.written(child).await
    }

    async fn apply(&self, there: &Child<S>, decision: Decision) -> Result<Child<S>, Error> {
        let (client, key) = (&self.hands.client, &self.parent.key);
        let body = self.desired.to_apply(key, self.parent.owner.clone(), there.meta.uid);
        let mut answer = client.apply::<Child<S>>(key, &body).await.map_err(conflict_if_another);
        if answer.as_ref().is_err_and(may_be_hindered) {
            let cleared = match decision {
                Decision::Restore(_) => self.clear_the_way(there).await,
                _ => self.clear_the_way_of_others(there).await,
            };
            match cleared {
                Ok(None) => {}
                Ok(Some(_)) => {
                    answer = client.apply(key, &body).await.map_err(conflict_if_another);
                }
                // Without what is in the way the object would be invalid too: the first answer says
                // why the desired one is.
                Err(error) if may_be_hindered(&error.source) => {}
                Err(error) => return Err(error),
            }
        }
        let child = answer.map_err(|error| failed("update", S::KIND.kind, key, error))?;
        Ok(self.clear_the_way(&child).await?.unwrap_or(child))
    }

    /// Returns the outcome of a write, judged by the API server's answer. Accepts what admission
    /// policies and webhooks changed in it, and records that on the child, so that it is accepted
    /// after a restart, too. If they then change it again, they would do so each time.
    async fn written(&self, mut answer: Child<S>) -> Result<Outcome<S>, Error> {
        if let Some(record) = admission(self.desired, &answer) {
            // The answer stays true if the patch fails: its echo may not have arrived yet.
            let answered = self.store.wrote(answer);
            // A change that came in between is not accepted: it does not match the record.
            answer = self.hands.patch(&*answered, vec![record]).await?;
        }
        let child = self.store.wrote(answer);
        Ok(match decide(&self.parent.owner, self.desired, Some(&child)) {
            Decision::Restore(field) => Outcome::Contested(field, WINDOW),
            Decision::Apply => Outcome::Contested(MARK, WINDOW),
            _ => Outcome::Settled(child),
        })
    }

    /// Removes what somebody else set and may not stay; `None` if there is nothing to remove. What
    /// is desired was applied before, so whatever `there` has beside it is somebody else's.
    async fn clear_the_way(&self, there: &Child<S>) -> Result<Option<Child<S>>, Error> {
        self.patch(there, self.desired.in_the_way(there, &|_| true)).await
    }

    /// The same if something else was applied before, which is not in the way: applying removes it.
    /// It stays if what is desired is invalid by itself, so a Service goes on as it was.
    async fn clear_the_way_of_others(&self, there: &Child<S>) -> Result<Option<Child<S>>, Error> {
        let key = &self.parent.key;
        let whole = self.hands.client.get::<Whole<S>>(key).await;
        let whole = whole.map_err(|error| failed("get", S::KIND.kind, key, error))?;
        let mut operations = self.desired.in_the_way(there, &|at| !whole.was_applied(at));
        operations.extend(whole.disowning());
        self.patch(there, operations).await
    }

    async fn patch(
        &self,
        there: &Child<S>,
        operations: Vec<serde_json::Value>,
    ) -> Result<Option<Child<S>>, Error> {
        if operations.is_empty() {
            return Ok(None);
        }
        self.hands.patch_exactly(there, operations).await.map(Some)
    }

    fn publish_event(&self, reason: Reason, action: Action, note: &str) {
        self.hands.publish_event(self.parent, events::Type::Normal, reason, action, note);
    }

    fn name(&self) -> String {
        format!("{} {}", S::KIND.kind, self.parent.key.name())
    }
}

/// Returns whether the API server may have refused the write because of what somebody else set. Two
/// ports with one node port are answered with 500
/// (k8s.io/kubernetes/pkg/registry/core/service/storage).
fn may_be_hindered(error: &client::Error) -> bool {
    diagnose(error) == Diagnosis::Refused(Reason::Invalid) || error.code() == Some(500)
}

/// Applying with the UID of another object is answered with 422, as a UID cannot be changed.
fn conflict_if_another(error: client::Error) -> client::Error {
    let another = error.is_invalid() && error.to_string().contains("metadata.uid: Invalid value");
    if another { as_conflict(error) } else { error }
}
