//! Deletion of objects: finalizers, the grace period of pods, the contents of namespaces, and garbage collection.

use std::collections::HashSet;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::history::Id;
use super::request::{Refusal, refused, status};
use super::server::State;
use crate::client::PropagationPolicy;

const PODS: &str = "/api/v1/pods";
const NAMESPACES: &str = "/api/v1/namespaces";

/// Default grace period of a pod, in seconds.
const GRACE_PERIOD: i64 = 30;

/// Resources whose delete returns the deleted object (`ReturnDeletedObject`) instead of a Status.
const RETURNED: [&str; 2] = ["/api/v1/services", PODS];

pub(super) fn finalizers(object: &Value) -> &[Value] {
    object["metadata"]["finalizers"].as_array().map_or(&[], Vec::as_slice)
}

pub(super) fn is_deleting(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}

/// Returns whether the update adds no finalizer to an object that is being deleted.
pub(super) fn leaves(old: &Value, new: &Value) -> bool {
    !is_deleting(old) || finalizers(new).iter().all(|one| finalizers(old).contains(one))
}

fn owners(object: &Value) -> impl Iterator<Item = &Value> {
    object["metadata"]["ownerReferences"].as_array().into_iter().flatten()
}

/// Returns whether an object is being deleted and nothing delays this any more.
pub(super) fn is_over(id: &Id, object: &Value) -> bool {
    is_deleting(object)
        && finalizers(object).is_empty()
        && object["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or(0) == 0
        && !has_contents(id, object)
}

/// Returns whether it is a namespace whose objects must still be deleted.
fn has_contents(id: &Id, object: &Value) -> bool {
    id.resource == NAMESPACES
        && object["spec"]["finalizers"].as_array().is_some_and(|left| !left.is_empty())
}

/// Sets the fields that the API server sets in a new namespace.
pub(super) fn begin(id: &Id, object: &mut Value) {
    if id.resource == NAMESPACES {
        object["metadata"]["labels"]["kubernetes.io/metadata.name"] = json!(id.name);
        object["spec"]["finalizers"] = json!(["kubernetes"]);
        object["status"] = json!({"phase": "Active"});
    }
}

/// Refuses a new object in a namespace that is being deleted. A namespace that was never created accepts all objects.
pub(super) fn admit_into_namespace(state: &State, id: &Id) -> Result<(), Refusal> {
    let namespace = state.history.now(&Id::new(NAMESPACES, "", &id.namespace));
    if id.namespace.is_empty() || !namespace.is_some_and(|namespace| is_deleting(&namespace)) {
        return Ok(());
    }
    let (resource, name, namespace) = (id.resource.rsplit('/').next(), &id.name, &id.namespace);
    let why = format!(
        "{} {name:?} is forbidden: unable to create new content in namespace {namespace} because it is being terminated",
        resource.unwrap_or_default()
    );
    let mut status = status(403, "Forbidden", &why);
    let message = format!("namespace {namespace} is being terminated");
    status["details"] = json!({ "causes": [
        { "reason": "NamespaceTerminating", "message": message, "field": "metadata.namespace" },
    ]});
    Err(refused(&status).into())
}

/// Finalizers of the garbage collector on an owner that is being deleted.
const FOREGROUND: &str = "foregroundDeletion";
const ORPHAN: &str = "orphan";

/// Deletes the object, or marks it as being deleted if something delays this. Returns the body of the response.
pub(super) fn delete(
    state: &mut State,
    id: &Id,
    old: &Arc<Value>,
    propagation: &PropagationPolicy,
    grace_period: Option<i64>,
) -> Arc<Value> {
    let old = &with_finalizer_of(propagation, old);
    let last = match mark_or_remove(state, id, old, grace_period) {
        // It was being deleted already.
        last if Arc::ptr_eq(&last, old) && state.history.now(id).is_some_and(|it| it != *old) => {
            state.history.put(id, (**old).clone())
        }
        last => last,
    };
    if state.history.now(id).is_some() || RETURNED.contains(&&*id.resource) {
        return last;
    }
    let uid = &old["metadata"]["uid"];
    Arc::new(json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
        "details": { "name": id.name, "uid": uid },
    }))
}

/// Returns the propagation policy that the finalizers of an object request.
pub(super) fn propagation_of(object: &Value) -> PropagationPolicy {
    match finalizers(object) {
        all if all.contains(&json!(ORPHAN)) => PropagationPolicy::Orphan,
        all if all.contains(&json!(FOREGROUND)) => PropagationPolicy::Foreground,
        _ => PropagationPolicy::Background,
    }
}

/// Returns the object with the finalizer of this propagation policy, and without those of the others
/// (deletionFinalizersForGarbageCollection in k8s.io/apiserver).
fn with_finalizer_of(propagation: &PropagationPolicy, old: &Arc<Value>) -> Arc<Value> {
    let others = finalizers(old).iter().filter(|it| **it != FOREGROUND && **it != ORPHAN);
    let own = match propagation {
        PropagationPolicy::Background => None,
        PropagationPolicy::Foreground => Some(json!(FOREGROUND)),
        PropagationPolicy::Orphan => Some(json!(ORPHAN)),
    };
    let wanted: Vec<_> = others.cloned().chain(own).collect();
    if wanted == finalizers(old) {
        return old.clone();
    }
    let mut new = (**old).clone();
    new["metadata"]["finalizers"] = json!(wanted);
    Arc::new(new)
}

/// Removes the object, or marks it as being deleted if finalizers, a grace period or the contents of a namespace delay
/// this. Returns its last state.
pub(super) fn mark_or_remove(
    state: &mut State,
    id: &Id,
    old: &Arc<Value>,
    grace_period: Option<i64>,
) -> Arc<Value> {
    let grace_period = grace_of(id, old, grace_period);
    let is_kept = !finalizers(old).is_empty() || grace_period > 0 || has_contents(id, old);
    if !is_kept {
        return state.history.remove(id).unwrap_or_else(|| old.clone());
    }
    let left = old["metadata"]["deletionGracePeriodSeconds"].as_i64();
    if is_deleting(old) && left.is_none_or(|left| left <= grace_period) {
        return old.clone();
    }
    let now = state.now();
    let end = now.parse::<Timestamp>();
    let end = end.and_then(|now| now.checked_add(SignedDuration::from_secs(grace_period)));
    let mut new = (**old).clone();
    let meta = &mut new["metadata"];
    if !is_deleting(old) && meta["generation"].is_i64() {
        meta["generation"] = json!(meta["generation"].as_i64().unwrap_or(0) + 1);
    }
    meta["deletionTimestamp"] = json!(end.map_or(now, |end| end.to_string()));
    meta["deletionGracePeriodSeconds"] = json!(grace_period);
    if id.resource == NAMESPACES {
        new["status"]["phase"] = json!("Terminating");
    }
    state.history.put(id, new)
}

/// Returns the grace period of a deletion in seconds. Only a pod on a node has one, until it terminates.
fn grace_of(id: &Id, object: &Value, asked: Option<i64>) -> i64 {
    let is_on_a_node = object["spec"]["nodeName"].as_str().is_some_and(|node| !node.is_empty());
    let phase = object["status"]["phase"].as_str();
    if id.resource != PODS || !is_on_a_node || matches!(phase, Some("Failed" | "Succeeded")) {
        return 0;
    }
    let own = object["spec"]["terminationGracePeriodSeconds"].as_i64();
    asked.or(own).unwrap_or(GRACE_PERIOD).max(0)
}

impl State {
    /// Runs the garbage collector once.
    pub(super) fn collect(&mut self) {
        loop {
            let before = self.history.version;
            self.delete_orphans();
            self.release_owners();
            if self.history.version == before {
                return;
            }
        }
    }

    /// Completes foreground deletions whose owned objects are deleted, and deletions that orphan their objects.
    fn release_owners(&mut self) {
        let waits = |owner: &Value| {
            is_deleting(owner)
                && finalizers(owner).iter().any(|it| *it == FOREGROUND || *it == ORPHAN)
        };
        for (id, owner) in self.all_that(waits) {
            let uid = &owner["metadata"]["uid"];
            let is_orphaned = finalizers(&owner).contains(&json!(ORPHAN));
            let mut is_held = false;
            for (id, child) in self.all_that(|child| owners(child).any(|it| it["uid"] == *uid)) {
                // Another owner that still exists keeps the object.
                let is_kept = owners(&child).any(|it| it["uid"] != *uid && self.lives(&it["uid"]));
                if is_orphaned || is_kept {
                    let mut child = (*child).clone();
                    if let Some(all) = child["metadata"]["ownerReferences"].as_array_mut() {
                        all.retain(|owner| owner["uid"] != *uid);
                    }
                    self.history.put(&id, child);
                    continue;
                }
                let blocks =
                    |owner: &Value| owner["uid"] == *uid && owner["blockOwnerDeletion"] == true;
                if !is_deleting(&child) {
                    let of_child = &child["metadata"]["uid"];
                    let below = self.all_that(|it| owners(it).any(|it| it["uid"] == *of_child));
                    let policy = match below.is_empty() {
                        true => propagation_of(&child),
                        false => PropagationPolicy::Foreground,
                    };
                    delete(self, &id, &child, &policy, None);
                }
                is_held |= self.history.now(&id).is_some() && owners(&child).any(blocks);
            }
            if !is_held {
                let released = with_finalizer_of(&PropagationPolicy::Background, &owner);
                match is_over(&id, &released) {
                    true => drop(self.history.remove(&id)),
                    false => drop(self.history.put(&id, (*released).clone())),
                }
            }
        }
    }

    /// Returns whether an object exists and does not wait for the deletion of its owned objects.
    fn lives(&self, uid: &Value) -> bool {
        let mut all = self.history.all();
        all.any(|(_, it)| {
            it["metadata"]["uid"] == *uid
                && !(is_deleting(it) && propagation_of(it) == PropagationPolicy::Foreground)
        })
    }

    fn all_that(&self, wanted: impl Fn(&Value) -> bool) -> Vec<(Id, Arc<Value>)> {
        let all = self.history.all().filter(|(_, object)| wanted(object));
        all.map(|(id, object)| (id.clone(), object.clone())).collect()
    }

    /// Deletes all objects whose owners no longer exist, and the objects that these own.
    fn delete_orphans(&mut self) {
        loop {
            let all: Vec<_> = self.history.all().collect();
            // An owner is looked up in the namespace of the object, unless its kind has none.
            let uids: HashSet<(&str, &str)> = all
                .iter()
                .filter_map(|(id, it)| {
                    Some((id.namespace.as_str(), it["metadata"]["uid"].as_str()?))
                })
                .collect();
            let is_orphan = |id: &Id, object: &Value| {
                let owners = object["metadata"]["ownerReferences"].as_array();
                let exists = |uid: &str| {
                    uids.contains(&(id.namespace.as_str(), uid)) || uids.contains(&("", uid))
                };
                owners.is_some_and(|owners| {
                    let mut uids_of_owners =
                        owners.iter().filter_map(|owner| owner["uid"].as_str());
                    !owners.is_empty() && !uids_of_owners.any(exists)
                }) && object["metadata"]["deletionTimestamp"].is_null()
            };
            let orphans: Vec<(Id, Arc<Value>)> = all
                .iter()
                .filter(|(id, object)| is_orphan(id, object))
                .map(|(id, object)| ((*id).clone(), (*object).clone()))
                .collect();
            if orphans.is_empty() {
                return;
            }
            for (id, object) in orphans {
                mark_or_remove(self, &id, &object, None);
            }
        }
    }
}
