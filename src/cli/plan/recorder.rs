//! Collects what the controllers would write, and which objects they have reconciled.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::Notify;

use super::Plan;
use super::change::Change;
use crate::client::{DryRun, DryWrite, Refusal};
use crate::controller::{Class, Observer, Outcome};
use crate::object::ObjectKey;

/// Name of a controller and key of one of its objects.
pub(super) type Reconciled = (&'static str, ObjectKey);

/// Reasons by which a controller says that it was not told enough to write anything: the plan lacks what it
/// would write. They are no failures of a reconcile.
const NOT_TOLD: [&str; 2] = ["ImageMissing", "HostPathNotAllowed"];

/// Collects what the controllers would write, and which objects they have reconciled.
#[derive(Default)]
pub(super) struct Recorder {
    state: Mutex<State>,
    progress: Notify,
}

#[derive(Default)]
struct State {
    wanted: BTreeSet<Reconciled>,
    /// Those of the wanted that were not reconciled.
    missing: BTreeSet<Reconciled>,
    /// With the class of the failure, if the last reconcile failed.
    reconciled: BTreeMap<Reconciled, Option<Class>>,
    /// Writes by the path of their target.
    targets: BTreeMap<String, Target>,
    statuses: BTreeMap<Reconciled, StatusWrite>,
}

/// The writes to one object.
#[derive(Default)]
struct Target {
    /// The first that was accepted, and what it would change. Later ones of the same pass follow from what it
    /// would have stored.
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
        if write.subresource.is_empty() {
            state.targets.entry(write.path.clone()).or_default().add(&write);
        } else if let Ok(Some(after)) = &write.after {
            state.statuses.extend(status_write(write.kind.kind, after));
        } else if let (Some(key), true) = (status_of(&write), is_conflict(&write)) {
            // It changes faster than it can be planned. A status comes after the children, so they are.
            self.note(&mut state, key, None);
        } else {
            let target = format!("{}/{}", write.path, write.subresource);
            state.targets.entry(target).or_default().add(&write);
        }
    }
}

impl Observer for Recorder {
    fn finished(&self, controller: &'static str, key: &ObjectKey, outcome: Outcome, _: Duration) {
        let failure = match outcome {
            Outcome::Success | Outcome::RequeueAfter => None,
            // It runs again soon: the operator that runs was faster, or the API server was busy.
            Outcome::Failed(Class::Conflict | Class::Transient)
            | Outcome::TimedOut
            | Outcome::Dropped => return,
            Outcome::Failed(class) => Some(class),
            Outcome::Panicked => Some(Class::Terminal),
        };
        self.note(&mut self.state.lock(), (controller, key.clone()), failure);
    }
}

impl Recorder {
    fn note(&self, state: &mut State, reconciled: Reconciled, failure: Option<Class>) {
        if state.missing.remove(&reconciled) {
            self.progress.notify_one();
        }
        state.reconciled.insert(reconciled, failure);
    }

    /// Sets the objects that have to be reconciled.
    pub(super) fn wants(&self, wanted: BTreeSet<Reconciled>) {
        let mut state = self.state.lock();
        let is_missing = |key: &&Reconciled| !state.reconciled.contains_key(*key);
        state.missing = wanted.iter().filter(is_missing).cloned().collect();
        state.wanted = wanted;
    }

    /// Returns whether all of it was.
    pub(super) fn is_complete(&self) -> bool {
        self.state.lock().missing.is_empty()
    }

    /// Returns when one more was.
    pub(super) async fn progressed(&self) {
        self.progress.notified().await;
    }

    /// A sentence for each controller that has not reconciled all of its objects in time.
    pub(super) fn missing(&self, within: Duration) -> Vec<String> {
        let state = self.state.lock();
        let mut missing: BTreeMap<&str, Vec<&ObjectKey>> = BTreeMap::new();
        for (controller, key) in &state.missing {
            missing.entry(controller).or_default().push(key);
        }
        let sentence = |(controller, keys): (&str, Vec<&ObjectKey>)| {
            format!(
                "{} of {controller} were not reconciled within {within:?}, among them {}: \
                 `workload-operator check` shows whether this account has the rights of the operator; \
                 --timeout gives them longer",
                keys.len(),
                keys[0]
            )
        };
        missing.into_iter().map(sentence).collect()
    }

    /// The plan, with further problems.
    pub(super) fn plan(&self, problems: impl Iterator<Item = String>) -> Plan {
        let state = std::mem::take(&mut *self.state.lock());
        let mut plan = Plan {
            reconciled: state.wanted.len() - state.missing.len(),
            problems: problems.chain(state.hidden()).collect(),
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
    /// Lists what is missing in the plan although no write was refused: children of objects whose
    /// reconcile failed, or whose controller lacks a setting.
    fn hidden(&self) -> Vec<String> {
        let (mut all, refused) = (Vec::new(), self.refused());
        for (reconciled @ (controller, key), failure) in &self.reconciled {
            let status = self.statuses.get(reconciled);
            let is_told = status.is_none_or(|status| !NOT_TOLD.contains(&status.reason.as_str()));
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

    /// Namespace and name of the objects of which a write was refused: all children have the name of theirs.
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
            // The next pass sees what has changed.
            Err(Refusal { is_conflict: true, .. }) => {}
            Err(Refusal { message, .. }) => {
                self.refused = Some(format!("{} {}: {message}", write.verb, write.path));
            }
        }
    }
}

fn is_being_deleted(object: Option<&Value>) -> bool {
    object.is_some_and(|object| !object["metadata"]["deletionTimestamp"].is_null())
}

fn is_conflict(write: &DryWrite) -> bool {
    matches!(&write.after, Err(refusal) if refusal.is_conflict)
}

/// The object whose status it is that is written.
fn status_of(write: &DryWrite) -> Option<Reconciled> {
    let controller = controller_of(write.kind.kind).filter(|_| write.subresource == "status")?;
    named(&write.path).map(|(namespace, name)| (controller, ObjectKey::new(namespace, name)))
}

/// The controller of a kind of custom resource.
fn controller_of(kind: &str) -> Option<&'static str> {
    let mut controllers = ["memcached", "genericdaemon", "app"].into_iter();
    controllers.find(|controller| kind.eq_ignore_ascii_case(controller))
}

/// The object whose status would be written, and what its condition Ready would say.
fn status_write(kind: &str, object: &Value) -> Option<(Reconciled, StatusWrite)> {
    let controller = controller_of(kind)?;
    let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    let ready = conditions.into_iter().find(|condition| condition["type"] == "Ready");
    let text = |field: &str| ready.and_then(|ready| ready[field].as_str()).unwrap_or_default();
    let status = StatusWrite { reason: text("reason").into(), message: text("message").into() };
    Some(((controller, key(&object["metadata"])), status))
}

fn key(meta: &Value) -> ObjectKey {
    let text = |field: &str| meta[field].as_str().unwrap_or_default();
    ObjectKey::new(text("namespace"), text("name"))
}

/// Namespace and name of the object with this path.
fn named(path: &str) -> Option<(&str, &str)> {
    let mut parts = path.split_once("/namespaces/")?.1.split('/');
    Some((parts.next()?, parts.nth(1)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_names_an_object_with_or_without_a_subresource() {
        let path = "/apis/apps/v1/namespaces/ns/deployments/web";
        assert_eq!(named(path), Some(("ns", "web")));
        assert_eq!(named(&format!("{path}/status")), Some(("ns", "web")));
        assert_eq!(named("/api/v1/nodes/a"), None);
    }

    #[test]
    fn an_object_that_changes_under_its_status_has_been_planned() {
        let (recorder, key) = (Recorder::default(), ObjectKey::new("ns", "busy"));
        recorder.wants(BTreeSet::from([("app", key)]));
        let refused = |subresource: &str| DryWrite {
            verb: "patch",
            kind: crate::workload::APP,
            path: "/apis/app.example.com/v1/namespaces/ns/apps/busy".to_owned(),
            subresource: subresource.to_owned(),
            before: None,
            after: Err(Refusal { message: "it was modified".to_owned(), is_conflict: true }),
        };
        recorder.answered(refused(""));
        assert!(!recorder.is_complete(), "its finalizer comes before its children");
        recorder.answered(refused("status"));
        assert!(recorder.is_complete());
        assert_eq!(recorder.plan(std::iter::empty()).problems, Vec::<String>::new());
    }
}
