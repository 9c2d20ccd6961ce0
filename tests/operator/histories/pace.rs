//! The pace of the administrator's new images: of the two Memcacheds of a history, one at a time gets it.

use std::time::Duration;

use controller_machinery::testing::Version;
use serde_json::Value;

use super::laws::is_complete;
use super::steps::{PAUSED, SLOTS, Slot};
use crate::world::{DEPLOYMENT, conditions, is_ready};

/// The two Memcacheds.
const PAIR: [Slot; 2] = [SLOTS[0], SLOTS[1]];

/// The progress deadline of their Deployments, after which the operator goes on even if no controller reports it. A turn
/// begins when it is granted; the write can then take up to `--write-deadline`.
const DEADLINE: Duration = Duration::from_secs(600 - 65);

/// Returns the Memcacheds that have got a new image while the other one was still getting it.
pub fn breaches(versions: &[Version]) -> Vec<String> {
    let mut broken = Vec::new();
    for (at, version) in versions.iter().enumerate() {
        for (slot, other) in [(PAIR[0], PAIR[1]), (PAIR[1], PAIR[0])] {
            if version.id == slot.child(DEPLOYMENT)
                && takes_turn(slot, versions, at)
                && has_turn(other, versions, at)
            {
                broken.push(format!("{slot:?} gets an image at {:?}, as {other:?}", version.at));
            }
        }
    }
    broken
}

/// Returns the last version of an object before this one.
fn before(versions: &[Version], at: usize) -> Option<(usize, &Value)> {
    let former = versions[..at].iter().rposition(|it| it.id == versions[at].id)?;
    Some((former, versions[former].object.as_deref()?))
}

/// Returns whether a version gives the administrator's new image to a Memcached that has a cache to lose.
pub fn takes_turn(slot: Slot, versions: &[Version], at: usize) -> bool {
    let (Some(now), Some((_, former))) = (versions[at].object.as_deref(), before(versions, at))
    else {
        return false;
    };
    let last = |slot: Slot| versions[..at].iter().rev().find(|it| it.id == slot.id());
    let Some(memcached) = last(slot).and_then(|it| it.object.as_deref()) else { return false };
    // A user who changes the object or its Deployment may replace the pods, too.
    let is_only = containers(now) == containers(former)
        && memcached["metadata"]["generation"] == memcached["status"]["observedGeneration"];
    image(now) != image(former)
        && is_only
        && former["metadata"]["uid"] == now["metadata"]["uid"]
        && is_complete(DEPLOYMENT, former)
        && former["spec"]["replicas"] != 0
        && is_ready(memcached)
}

/// Returns whether a Memcached that has taken a turn before a version still has it then. A turn also ends with a
/// deadline, a pause, or a change by a user.
fn has_turn(slot: Slot, versions: &[Version], at: usize) -> bool {
    let deployment = slot.child(DEPLOYMENT);
    let taken =
        (0..at).rev().find(|it| versions[*it].id == deployment && takes_turn(slot, versions, *it));
    let Some(taken) = taken else { return false };
    let since = || versions[taken + 1..at].iter();
    let generation =
        |it: &Version| it.object.as_ref().map(|it| it["metadata"]["generation"].clone());
    let last = versions[..taken].iter().rev().find(|it| it.id == slot.id()).and_then(generation);
    let is_changed = |it: &Version| {
        let object = it.object.as_deref();
        let is_paused = object.is_some_and(|it| it["metadata"]["annotations"][PAUSED].is_string());
        it.id == slot.id() && (is_paused || generation(it) != last)
    };
    let is_over = |deployment: &Value| {
        let late = |it: &Value| it["reason"] == "ProgressDeadlineExceeded";
        // All its pods are replaced, whatever their image.
        let is_deleted = deployment["metadata"]["deletionTimestamp"].is_string();
        is_deleted || is_complete(DEPLOYMENT, deployment) || conditions(deployment).any(late)
    };
    let is_end = |it: &Version| it.id == deployment && it.object.as_deref().is_none_or(is_over);
    let is_late = versions[at].at >= versions[taken].at + DEADLINE;
    !is_late && !since().any(|it| is_changed(it) || is_end(it))
}

fn image(deployment: &Value) -> &Value {
    let containers = deployment["spec"]["template"]["spec"]["containers"].as_array();
    let found = containers.and_then(|all| all.iter().find(|it| it["name"] == "memcached"));
    found.map_or(&Value::Null, |it| &it["image"])
}

/// Returns the names of the containers: a Memcached whose exporter is added replaces its pods anyway.
fn containers(deployment: &Value) -> Vec<&Value> {
    let containers = deployment["spec"]["template"]["spec"]["containers"].as_array();
    containers.into_iter().flatten().map(|it| &it["name"]).collect()
}
