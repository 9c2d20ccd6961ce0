//! The writes that the controllers would make, and the objects that they have reconciled.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::Notify;

use super::Plan;
use super::change::Change;
use crate::client::{DryRun, DryWrite, Rejection, RejectionCause};
use crate::controller::{ErrorClass, Outcome};
use crate::object::ObjectKey;

/// Name of a controller and key of one of its objects.
pub(super) type Reconciled = (&'static str, ObjectKey);

/// Reasons of a controller that lacks a setting and therefore writes nothing. The reconcile does not fail,
/// but the plan is incomplete.
const MISSING_SETTINGS: [&str; 2] = ["ImageMissing", "TemplateNotAllowed"];

/// Recorder of the writes that the controllers would make, and of the objects that they have reconciled.
#[derive(Default)]
pub(super) struct Recorder {
    state: Mutex<State>,
    progress: Notify,
}

#[derive(Default)]
struct State {
    wanted: BTreeSet<Reconciled>,
    /// Wanted objects that are not reconciled yet.
    missing: BTreeSet<Reconciled>,
    /// Reasons why objects or kinds are left out.
    left_out: BTreeSet<String>,
    /// Reconciled objects, with the class of the failure if the last reconcile failed.
    reconciled: BTreeMap<Reconciled, Option<ErrorClass>>,
    /// Writes by the path of their target.
    targets: BTreeMap<String, Target>,
    /// The last write that failed temporarily, and the API server's message.
    failed: Option<String>,
    statuses: BTreeMap<Reconciled, StatusWrite>,
}

/// The writes to one object.
#[derive(Default)]
struct Target {
    /// The change of the first accepted write. Later writes of the same reconcile follow from the object that
    /// it would have stored.
    accepted: Option<Option<Change>>,
    refused: Option<String>,
}

/// The status that would be written.
struct StatusWrite {
    reason: String,
    message: String,
}

// === impl Recorder ===

impl DryRun for Recorder {
    fn answered(&self, write: DryWrite) {
        if write.kind.kind == "Event" || is_being_deleted(write.before.as_ref()) {
            return;
        }
        let mut state = self.state.lock();
        let cause = write.after.as_ref().err().map(|refusal| refusal.cause);
        match &write.after {
            // The object was deleted, so it is no longer planned.
            Err(Rejection { cause: RejectionCause::Gone, .. }) => return,
            // The controller retries it.
            Err(Rejection { cause: RejectionCause::Transient, message }) => {
                state.failed = Some(format!("{} {}: {message}", write.verb, write.path));
                return;
            }
            _ => {}
        }
        match (status_of(&write), &write.after) {
            (Some(key), Ok(Some(after))) => drop(state.statuses.insert(key, status_in(after))),
            (Some(key), Err(_)) if cause == Some(RejectionCause::Conflict) => {
                // The object changes faster than it can be planned. The owned objects are planned before the
                // status, which reports problems.
                let sent = serde_json::from_slice(&write.sent).unwrap_or_default();
                state.statuses.insert(key.clone(), status_in(&sent));
                self.note(&mut state, key, None);
            }
            _ => {
                state.targets.entry(write.path.clone()).or_default().add(&write);
            }
        }
    }
}

impl Recorder {
    /// Records the outcome of a reconcile.
    pub(super) fn finished(&self, controller: &'static str, key: &ObjectKey, outcome: Outcome) {
        let failure = match outcome {
            Outcome::Success | Outcome::RequeueAfter => None,
            // It is retried soon: the running operator was faster, or the API server was busy.
            Outcome::Failed(ErrorClass::Conflict | ErrorClass::Transient)
            | Outcome::TimedOut
            | Outcome::Dropped => return,
            Outcome::Failed(class) => Some(class),
            _ => Some(ErrorClass::Terminal),
        };
        self.note(&mut self.state.lock(), (controller, key.clone()), failure);
    }

    fn note(&self, state: &mut State, reconciled: Reconciled, failure: Option<ErrorClass>) {
        if state.missing.remove(&reconciled) {
            self.progress.notify_one();
        }
        state.reconciled.insert(reconciled, failure);
    }

    /// Sets the objects to reconcile, and adds the reasons why others are left out.
    pub(super) fn wants(&self, wanted: BTreeSet<Reconciled>, left_out: BTreeSet<String>) {
        let mut state = self.state.lock();
        state.left_out.extend(left_out);
        let is_missing = |key: &&Reconciled| !state.reconciled.contains_key(*key);
        state.missing = wanted.iter().filter(is_missing).cloned().collect();
        state.wanted = wanted;
    }

    /// Returns whether all wanted objects were reconciled.
    pub(super) fn is_complete(&self) -> bool {
        self.state.lock().missing.is_empty()
    }

    /// Waits until another object was reconciled.
    pub(super) async fn progressed(&self) {
        self.progress.notified().await;
    }

    /// Returns a sentence for each controller that has not reconciled all of its objects in time.
    pub(super) fn missing(&self, within: Duration) -> Vec<String> {
        let state = self.state.lock();
        let mut missing: BTreeMap<&str, Vec<&ObjectKey>> = BTreeMap::new();
        for (controller, key) in &state.missing {
            missing.entry(controller).or_default().push(key);
        }
        let why = state.failed.as_ref().map_or_else(
            || {
                "`workload-operator check` shows whether this account has the permissions of the operator; \
                 --timeout gives them longer"
                    .to_owned()
            },
            |failed| format!("the last write that failed was {failed}"),
        );
        let sentence = |(controller, keys): (&str, Vec<&ObjectKey>)| {
            format!(
                "{} of {controller} were not reconciled within {within:?}, among them {}: {why}",
                keys.len(),
                keys[0]
            )
        };
        missing.into_iter().map(sentence).collect()
    }

    /// Returns the plan, with further problems.
    pub(super) fn plan(&self, problems: impl Iterator<Item = String>) -> Plan {
        let state = std::mem::take(&mut *self.state.lock());
        let mut plan = Plan {
            reconciled: state.wanted.len() - state.missing.len(),
            problems: state
                .left_out
                .iter()
                .cloned()
                .chain(problems)
                .chain(state.hidden())
                .collect(),
            statuses: state.statuses.len(),
            ..Plan::default()
        };
        for Target { accepted, refused } in state.targets.into_values() {
            match (accepted, refused) {
                (Some(Some(change)), _) => drop(plan.changes.insert(change.name.clone(), change)),
                (Some(None), _) => {}
                (None, refused) => plan.problems.extend(refused),
            }
        }
        plan
    }
}

// === impl State ===

impl State {
    /// Lists the gaps of the plan without a refused write: owned objects of those whose reconcile
    /// failed, or whose controller lacks a setting.
    fn hidden(&self) -> Vec<String> {
        let (mut all, refused) = (Vec::new(), self.refused());
        let wanted = self.reconciled.iter().filter(|(key, _)| self.wanted.contains(key));
        for (reconciled @ (controller, key), failure) in wanted {
            let status = self.statuses.get(reconciled);
            let is_told =
                status.is_none_or(|status| !MISSING_SETTINGS.contains(&status.reason.as_str()));
            if failure.is_none() && is_told
                || refused.contains(&(&**key.namespace(), &**key.name()))
            {
                continue;
            }
            all.push(match (status, failure) {
                (Some(StatusWrite { reason, message }), _) => {
                    format!("{controller} {key}: {reason}: {message}")
                }
                (None, class) => {
                    let class = class.map_or("", |class| class.as_str());
                    format!(
                        "{controller} {key} could not be reconciled ({class}); \
                         `workload-operator status {controller} {} -n {}` shows its conditions",
                        key.name(),
                        key.namespace()
                    )
                }
            });
        }
        all
    }

    /// Returns namespace and name of the objects of which a write was refused. Owned objects have the name of
    /// their owner.
    fn refused(&self) -> BTreeSet<(&str, &str)> {
        let is_refused = |target: &Target| target.accepted.is_none() && target.refused.is_some();
        let refused = self.targets.iter().filter(|(_, target)| is_refused(target));
        refused.filter_map(|(path, _)| named(path)).collect()
    }
}

// === impl Target ===

impl Target {
    fn add(&mut self, write: &DryWrite) {
        match Change::of(write) {
            Ok(change) => {
                self.accepted.get_or_insert(change);
            }
            // The next reconcile sees what has changed.
            Err(Rejection { cause: RejectionCause::Conflict, .. }) => {}
            Err(Rejection { message, .. }) => {
                self.refused = Some(format!("{} {}: {message}", write.verb, write.path));
            }
        }
    }
}

fn is_being_deleted(object: Option<&Value>) -> bool {
    object.is_some_and(|object| !object["metadata"]["deletionTimestamp"].is_null())
}

/// Returns the object whose status the request writes.
fn status_of(write: &DryWrite) -> Option<Reconciled> {
    let controller = controller_of(write.kind.kind).filter(|_| write.subresource == "status")?;
    named(&write.path).map(|(namespace, name)| (controller, ObjectKey::new(namespace, name)))
}

/// Returns the controller of a kind of custom resource.
fn controller_of(kind: &str) -> Option<&'static str> {
    let mut controllers = ["memcached", "genericdaemon", "app"].into_iter();
    controllers.find(|controller| kind.eq_ignore_ascii_case(controller))
}

/// Returns the condition Ready of a status.
fn status_in(object: &Value) -> StatusWrite {
    let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    let ready = conditions.into_iter().find(|condition| condition["type"] == "Ready");
    let text = |field: &str| ready.and_then(|ready| ready[field].as_str()).unwrap_or_default();
    StatusWrite { reason: text("reason").into(), message: text("message").into() }
}

/// Returns namespace and name of the object with this path.
fn named(path: &str) -> Option<(&str, &str)> {
    let mut parts = path.split_once("/namespaces/")?.1.split('/');
    Some((parts.next()?, parts.nth(1)?))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_path_names_an_object_with_or_without_a_subresource() {
        let path = "/apis/apps/v1/namespaces/ns/deployments/web";
        assert_eq!(named(path), Some(("ns", "web")));
        assert_eq!(named(&format!("{path}/status")), Some(("ns", "web")));
        assert_eq!(named("/api/v1/nodes/a"), None);
    }

    fn refused(subresource: &'static str, cause: RejectionCause) -> DryWrite {
        let ready = json!({"type": "Ready", "reason": "RollingOut", "message": "1 of 2"});
        DryWrite {
            verb: "patch",
            kind: crate::workload::APP,
            path: "/apis/app.example.com/v1/namespaces/ns/apps/busy".to_owned(),
            subresource,
            sent: json!({"status": {"conditions": [ready]}}).to_string().into(),
            before: None,
            after: Err(Rejection { message: "refused".to_owned(), cause }),
        }
    }

    fn recorder() -> Recorder {
        let recorder = Recorder::default();
        let wanted = BTreeSet::from([("app", ObjectKey::new("ns", "busy"))]);
        recorder.wants(wanted, BTreeSet::new());
        recorder
    }

    fn problems(recorder: &Recorder) -> Vec<String> {
        recorder.plan(std::iter::empty()).problems
    }

    #[test]
    fn a_conflicting_status_write_completes_the_plan_of_an_object() {
        let recorder = recorder();
        recorder.answered(refused("", RejectionCause::Conflict));
        assert!(!recorder.is_complete(), "its finalizer comes before its children");
        recorder.answered(refused("status", RejectionCause::Conflict));
        assert!(recorder.is_complete());
        assert_eq!(problems(&recorder), Vec::<String>::new());
    }

    #[test]
    fn a_problem_in_a_refused_status_is_reported() {
        let recorder = recorder();
        let mut write = refused("status", RejectionCause::Conflict);
        let ready = json!({"type": "Ready", "reason": "ImageMissing", "message": "no image"});
        write.sent = json!({"status": {"conditions": [ready]}}).to_string().into();
        recorder.answered(write);
        assert_eq!(problems(&recorder), ["app ns/busy: ImageMissing: no image"]);
    }

    #[test]
    fn transient_errors_and_deleted_objects_are_not_problems() {
        let recorder = recorder();
        for cause in [RejectionCause::Transient, RejectionCause::Gone] {
            recorder.answered(refused("status", cause));
            recorder.answered(refused("", cause));
        }
        assert!(!recorder.is_complete(), "it is tried again");
        let missing = recorder.missing(Duration::from_secs(300)).join("");
        assert!(missing.contains("apps/busy: refused"), "{missing}");
        assert_eq!(problems(&recorder), Vec::<String>::new());
        let recorder = self::recorder();
        recorder.answered(refused("", RejectionCause::Write));
        assert_eq!(problems(&recorder).len(), 1);
    }
}
