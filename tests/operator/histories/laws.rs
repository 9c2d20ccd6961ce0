//! What must hold in every history, and at its end.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use controller_machinery::testing::{Id, Received, Version};
use fastrand::Rng;
use serde_json::{Value, json};

use super::columns::Columns;
use super::equal::{self, canonical, lasting, merge_patch};
use super::pace::takes_turn;
use super::play::{INJECTED, Play, is_struck};
use super::steps::{Cascade, OTHER_RECORD, Pods, RECORD, SLOTS, Slot};
use super::{events, pace, schema, status, writes};
use crate::world::{
    APP, DAEMON_SET, DEPLOYMENT, Kind, MEMCACHED, POD, SERVICE, conditions, has_condition, is_ready,
};

/// Checks a history that has come to rest.
pub async fn check(play: &Play) {
    of_versions(play);
    assert_eq!(*play.admission.unfenced.lock(), [""; 0], "two processes write");
    let there: Vec<Slot> =
        SLOTS.into_iter().filter(|slot| play.server.get(&slot.id()).is_some()).collect();
    there.iter().for_each(|slot| as_the_spec_says(play, *slot));
    idle(play).await;
    for slot in &there {
        the_same(play, *slot).await;
    }

    // A new object with the same spec has the same owned objects and the same status.
    let before: Vec<_> = there.iter().map(|slot| snapshot(play, *slot)).collect();
    let specs: Vec<_> =
        there.iter().map(|slot| play.server.get(&slot.id()).unwrap()["spec"].clone()).collect();
    end(play).await;
    for (slot, spec) in there.iter().zip(&specs) {
        play.set_spec(*slot, spec);
    }
    play.until_quiet().await;
    for (slot, before) in there.iter().zip(before) {
        let now = snapshot(play, *slot);
        for (what, value) in &now {
            assert_eq!(
                before.get(what),
                Some(value),
                "{slot:?}: the {what} differs from that of a new object (right)"
            );
        }
        assert_eq!(before.len(), now.len(), "{slot:?}: {:?}", before.keys());
    }
    end(play).await;
    of_versions(play);
    assert_eq!(
        writes::breaches(&play.server, &play.starts.lock(), play.backoff_restarts),
        [""; 0],
        "it writes too often"
    );
}

/// Nothing is written for three minutes.
async fn idle(play: &Play) {
    let writes = || {
        let all = play.server.writes().into_iter();
        all.filter(|write| !write.resource.ends_with("/leases")).collect::<Vec<_>>()
    };
    let before = writes().len();
    tokio::time::sleep(Duration::from_secs(180)).await;
    let new: Vec<_> = writes()
        .split_off(before)
        .into_iter()
        .map(|it| format!("{} {}", it.uri, it.body))
        .collect();
    assert_eq!(new, [""; 0], "it writes while nothing changes");
}

/// Writes a spec in another notation, and a part that is refused. Neither causes a write to an owned object.
async fn the_same(play: &Play, slot: Slot) {
    let (mut rng, schema) = (Rng::new(), schema::of_spec(slot.0));
    let (before, spec) =
        (snapshot(play, slot), play.server.get(&slot.id()).unwrap()["spec"].clone());
    let writes = || {
        let all = play.server.writes().into_iter();
        let is_of_child =
            |it: &Received| slot.children().iter().any(|kind| it.resource.ends_with(kind.plural()));
        all.filter(is_of_child).count()
    };
    let count = writes();
    let other = otherwise(&schema, &spec, &mut rng);
    play.server
        .patch(&slot.id(), &json!({ "spec": other }))
        .unwrap_or_else(|why| panic!("{other}: {why}"));
    let (bad, why) = schema::bad(&schema, &spec, &mut rng);
    let patch = json!({"spec": merge_patch(&spec, &bad)});
    assert!(play.server.patch(&slot.id(), &patch).is_err(), "{why} is accepted: {bad}");
    play.until_quiet().await;
    assert_eq!(writes(), count, "{slot:?}: it is the same, and causes a write: {other}");
    assert_eq!(snapshot(play, slot), before, "{slot:?}: it is the same: {other}");
}

/// Returns a spec that means the same.
fn otherwise(schema: &Value, spec: &Value, rng: &mut Rng) -> Value {
    let mut spec = spec.clone();
    if rewrite_amounts(&mut spec, "") > 0 && rng.u8(..4) > 0 {
        return spec;
    }
    match rng.u8(..4) {
        0 => {
            // The order of variables matters if one refers to another.
            let refers = spec["envs"].to_string().contains("$(");
            for name in ["envs", "ports"] {
                let items = spec.get_mut(name).and_then(Value::as_array_mut);
                if let Some(items) = items.filter(|_| name == "ports" || !refers) {
                    items.reverse();
                }
            }
        }
        1 => spec = schema::defaulted(schema, &spec),
        2 => {
            let map = spec.as_object_mut().expect("a spec");
            for name in schema["properties"].as_object().expect("properties").keys() {
                map.entry(name.clone()).or_insert(Value::Null);
            }
        }
        _ => spec["colour"] = json!("blue"),
    }
    spec
}

/// Writes amounts of CPU and memory in another way. Returns their number.
fn rewrite_amounts(value: &mut Value, name: &str) -> usize {
    match value {
        Value::Array(items) => items.iter_mut().map(|item| rewrite_amounts(item, "")).sum(),
        Value::Object(map) if name == "limits" || name == "requests" => {
            for (resource, amount) in map.iter_mut() {
                let units = equal::amount_of(amount);
                match resource.as_str() {
                    "cpu" => *amount = json!(format!("{}m", units * 1000.0)),
                    "memory" => *amount = json!(format!("{units}")),
                    _ => {}
                }
            }
            map.len()
        }
        Value::Object(map) => {
            map.iter_mut().map(|(name, value)| rewrite_amounts(value, name)).sum()
        }
        _ => 0,
    }
}

/// Deletes every custom resource. Nothing is left but what users have orphaned.
async fn end(play: &Play) {
    for slot in SLOTS {
        play.delete(&slot.id(), Cascade::Background);
    }
    // An object without owners stays, as Kubernetes promises it to whoever orphans it.
    play.until_quiet().await;
    for slot in SLOTS {
        assert!(play.server.get(&slot.id()).is_none(), "{slot:?} is left");
        for event in play.server.events(&slot.id()) {
            assert_eq!(events::breaches(&event), [""; 0], "{event:#}");
        }
        for kind in slot.children() {
            if let Some(child) = play.server.get(&slot.child(*kind)) {
                let owners = &child["metadata"]["ownerReferences"];
                let had_one = play.server.versions().into_iter().any(|it| {
                    let object = it.object.unwrap_or_default();
                    object["metadata"]["uid"] == child["metadata"]["uid"]
                        && object["metadata"]["ownerReferences"].is_array()
                });
                let is_foreign = child["metadata"]["labels"]["foreign"] == "yes";
                assert!(
                    had_one || is_foreign,
                    "{slot:?}: it has created {} without an owner",
                    kind.name()
                );
                assert!(
                    owners.as_array().is_none_or(Vec::is_empty),
                    "{slot:?}: {} is left: {child}",
                    kind.name()
                );
                play.delete(&slot.child(*kind), Cascade::Background);
            }
        }
    }
    play.until_quiet().await;
    let pods = play.server.objects(&SLOTS[0].child(POD).resource).into_iter();
    let is_foreign = |pod: &Value| !pod["metadata"]["labels"]["foreign"].is_null();
    let left: Vec<_> =
        pods.filter(|(_, pod)| !is_foreign(pod) && !is_orphaned(play, pod)).collect();
    assert!(left.is_empty(), "pods are left: {left:?}");
    let mut now = BTreeMap::new();
    for version in play.server.versions() {
        now.insert(version.id, version.object.is_some());
    }
    let kinds = ["/nodes", "/events", "/leases", "/pods", "/replicasets"];
    let stays = |id: &Id| kinds.iter().any(|kind| id.resource.ends_with(kind));
    let left: Vec<_> = now.iter().filter(|(id, is_there)| **is_there && !stays(id)).collect();
    assert!(left.is_empty(), "these are left: {left:?}");
}

/// Returns whether a pod or its ReplicaSet has no owner: a user has deleted its workload and kept the pods.
fn is_orphaned(play: &Play, pod: &Value) -> bool {
    let replica_sets = play.server.objects("/apis/apps/v1/replicasets");
    let owner = pod["metadata"]["ownerReferences"].get(0);
    owner.is_none_or(|owner| {
        let set = replica_sets.iter().find(|(_, set)| set["metadata"]["uid"] == owner["uid"]);
        set.is_some_and(|(_, set)| set["metadata"]["ownerReferences"].get(0).is_none())
    })
}

/// The owned objects and the status, without what differs between objects or moments.
fn snapshot(play: &Play, slot: Slot) -> BTreeMap<&'static str, Value> {
    let mut all = BTreeMap::new();
    for kind in slot.children() {
        let Some(child) = owned(play, slot, *kind) else { continue };
        let mut spec = child["spec"].clone();
        without_others(&mut spec);
        canonical(&mut spec, "");
        all.insert(kind.name(), json!({"spec": spec, "labels": child["metadata"]["labels"]}));
    }
    let object = play.server.get(&slot.id()).unwrap();
    all.insert("status", lasting(&object["status"]));
    all
}

/// Returns an owned object. One that a user has orphaned, and that the spec does not ask for, belongs to the user.
fn owned(play: &Play, slot: Slot, kind: Kind) -> Option<Arc<Value>> {
    let object = play.server.get(&slot.id())?;
    let child = play.server.get(&slot.child(kind));
    child.filter(|it| {
        let mut owners = it["metadata"]["ownerReferences"].as_array().into_iter().flatten();
        owners.any(|owner| owner["uid"] == object["metadata"]["uid"])
    })
}

/// Removes what webhooks and users have added to a workload.
fn without_others(spec: &mut Value) {
    let template = &mut spec["template"];
    if template.is_null() {
        spec.as_object_mut().unwrap().remove("template");
        return;
    }
    if let Some(annotations) =
        template["metadata"].get_mut("annotations").and_then(Value::as_object_mut)
    {
        annotations.remove("kubectl.kubernetes.io/restartedAt");
        if annotations.is_empty() {
            template["metadata"].as_object_mut().unwrap().remove("annotations");
        }
    }
    let pod = template["spec"].as_object_mut().unwrap();
    pod.remove("serviceAccountName")
        .filter(|name| name != "admin")
        .map(|name| pod.insert("serviceAccountName".to_owned(), name));
    if let Some(containers) = pod.get_mut("containers").and_then(Value::as_array_mut) {
        containers.retain(|it| it["name"] != INJECTED);
    }
}

// === A law of a moment ===

/// After a while without a change, a status tells what the cluster's own counts say.
pub fn of_status(play: &Play) {
    for slot in SLOTS {
        let Some(object) = play.server.get(&slot.id()) else { continue };
        // What is being deleted shows that by its deletionTimestamp.
        if object["metadata"]["deletionTimestamp"].is_string() {
            continue;
        }
        let kind = slot.children()[0];
        let is_so = owned(play, slot, kind).is_some_and(|workload| is_complete(kind, &workload));
        let ready = conditions(&object).find(|it| it["type"] == "Ready").cloned();
        let ready = ready.unwrap_or_default();
        assert_eq!(
            object["status"]["observedGeneration"], object["metadata"]["generation"],
            "{slot:?}: the status is late: {}",
            object["status"]
        );
        assert!(
            is_so || ready["status"] != "True",
            "{slot:?} is Ready, and its pods are not: {} {:?}",
            object["status"],
            owned(play, slot, kind)
        );
        let broken = broken_pods(play, slot);
        let told = object["status"].to_string();
        assert!(
            broken.is_empty()
                || has_condition(&object, "Degraded", "True")
                    && broken.iter().any(|pod| told.contains(pod)),
            "{slot:?}: the status does not name a broken pod: {broken:?} {told}"
        );
    }
}

/// Returns the pods that are not ready or terminate, if one of them has been broken for two minutes and nothing else is wrong.
fn broken_pods(play: &Play, slot: Slot) -> Vec<String> {
    let is_foreign = |kind: &Kind| {
        play.server.get(&slot.child(*kind)).is_some() && owned(play, slot, *kind).is_none()
    };
    let workload = owned(play, slot, slot.children()[0]).unwrap_or_default();
    let selector = workload["spec"]["selector"]["matchLabels"].as_object();
    let (Some(Pods::Waiting(each, reason)), Some(selector)) = (play.pods(), selector) else {
        return Vec::new();
    };
    if reason == "ContainerCreating" || slot.children().iter().any(is_foreign) {
        return Vec::new();
    }
    let is_broken = |id: &Id, pod: &Value| {
        let created = pod["metadata"]["creationTimestamp"].as_str().unwrap_or_default();
        let age = play.server.now().duration_since(created.parse().unwrap_or_default());
        let shown = pod["status"]["containerStatuses"][0]["state"]["waiting"]["reason"].as_str();
        age.as_secs() > 120 && shown == Some(reason) && is_struck(&id.name, each)
    };
    let is_so = |pod: &Value, kind: &str| {
        conditions(pod).any(|it| it["type"] == kind && it["status"] == "True")
    };
    let mut pods = play.server.objects(&slot.child(POD).resource);
    pods.retain(|(id, pod)| {
        let labels = &pod["metadata"]["labels"];
        let is_of_it = selector.iter().all(|(key, value)| labels[key] == *value);
        // An evicted pod is replaced.
        let is_over = pod["status"]["phase"] == "Failed";
        // A pod that hangs in its termination is another true cause.
        let is_terminating = pod["metadata"]["deletionTimestamp"].is_string();
        let is_bad = !is_so(pod, "Ready") || is_terminating;
        id.namespace == slot.1 && is_of_it && !is_over && is_bad
    });
    if !pods.iter().any(|(id, pod)| is_broken(id, pod)) {
        return Vec::new();
    }
    pods.into_iter().map(|(id, _)| id.name).collect()
}

// === Laws of every version ===

fn of_versions(play: &Play) {
    let versions = &play.server.versions();
    assert_eq!(pace::breaches(versions), [""; 0], "two at a time");
    for version in versions {
        let Some(object) = &version.object else { continue };
        if object["metadata"]["labels"]["foreign"] == "yes" {
            let managers = object["metadata"]["managedFields"].to_string();
            assert!(
                !managers.contains("\"manager\":\"workload-operator\""),
                "it has written to {:?}",
                version.id
            );
        }
    }
    for slot in SLOTS {
        let columns = Columns::of(slot.0);
        let mut before: Option<Value> = None;
        for (at, version) in versions.iter().enumerate().filter(|(_, it)| it.id == slot.id()) {
            let Some(object) = version.object.as_deref() else {
                before = None;
                continue;
            };
            let mut broken = status::breaches(slot.0, object);
            broken.extend(columns.breaches(object));
            if let Some(before) = before.as_ref().filter(|it| is_of_operator(it))
                && before["status"] != object["status"]
            {
                broken.extend(status::breaches_of_write(slot.0, before, object));
                if !play.has_true_times {
                    broken.retain(|law| law != status::TIME_WENT_BACK);
                }
                let told = |it: &Value| it["status"]["observedGeneration"].clone();
                if is_ready(object) && (!is_ready(before) || told(before) != told(object)) {
                    broken.extend(is_rolled_out(slot, versions, at));
                }
            }
            assert_eq!(
                broken, [""; 0],
                "{slot:?} at {:?}: {} {}",
                version.at, object["spec"], object["status"]
            );
            before = Some(object.clone());
        }
    }
}

/// Returns whether the operator has written the status, which else is the schema's default.
fn is_of_operator(object: &Value) -> bool {
    object["status"]["observedGeneration"] != -1
}

/// Ready means that the cluster's own counts have said so since the last change of the spec.
fn is_rolled_out(slot: Slot, versions: &[Version], at: usize) -> Option<String> {
    let workload = slot.child(slot.children()[0]);
    let object = versions[at].object.as_deref()?;
    let generation = &object["metadata"]["generation"];
    let uid = &object["metadata"]["uid"];
    let is_older = |version: &Version| {
        version.id == slot.id()
            && version.object.as_ref().is_none_or(|it| {
                it["metadata"]["generation"] != *generation || it["metadata"]["uid"] != *uid
            })
    };
    let changed = versions[..at].iter().rposition(is_older).unwrap_or(0);
    let record = |it: &Version| {
        let meta = &it.object.as_deref()?["metadata"];
        let applied = &meta["annotations"][RECORD];
        // A user's.
        let is_own = *applied != OTHER_RECORD;
        is_own.then(|| [&meta["uid"], applied].map(Value::clone))
    };
    let is_same = |it: &Version, last: &Version| match (record(it), record(last)) {
        (Some([uid, applied]), Some([former, then])) => uid != former || applied == then,
        _ => true,
    };
    // The state before the change counts, unless the operator has changed the workload only after it was Ready.
    let last = versions[..changed].iter().rev().find(|it| it.id == workload).filter(|last| {
        let soon = versions[at].at + Duration::from_secs(1);
        let is_next = |it: &Version| {
            it.id == slot.id()
                && it.object.as_ref().is_none_or(|it| it["metadata"]["generation"] != *generation)
        };
        let then = versions.iter().enumerate().skip(at);
        let then = then.take_while(|(_, it)| it.at < soon && !is_next(it));
        // An image of the administrator, whose turn has come, is no part of the change.
        let is_turn = |now| object["spec"]["image"].is_null() && takes_turn(slot, versions, now);
        let mut changes = then.filter(|(_, it)| it.id == workload && !is_same(it, last));
        changes.next().is_none_or(|(now, turn)| {
            is_turn(now) && changes.all(|(_, later)| is_same(later, turn))
        })
    });
    let since = versions[changed..at].iter().filter(|it| it.id == workload);
    let mut states = last.into_iter().chain(since).filter_map(|it| it.object.as_deref());
    let is_so = states.any(|it| is_complete(slot.children()[0], it));
    (!is_so).then(|| {
        "it is Ready, and its workload has not been complete since the last change".to_owned()
    })
}

/// Returns whether a workload is rolled out, as `kubectl rollout status` says.
pub fn is_complete(kind: Kind, workload: &Value) -> bool {
    let status = &workload["status"];
    let count = |name: &str| status[name].as_i64().unwrap_or(0);
    let is_observed = status["observedGeneration"] == workload["metadata"]["generation"];
    if kind == DAEMON_SET {
        // A few of many nodes may be missing; there are never so many here.
        let desired = count("desiredNumberScheduled");
        let is_replaced = workload["spec"]["updateStrategy"]["type"] == "OnDelete";
        return is_observed
            && (is_replaced || count("updatedNumberScheduled") >= desired)
            && count("numberAvailable") >= desired;
    }
    let wanted = workload["spec"]["replicas"].as_i64().unwrap_or(1);
    is_observed && ["updatedReplicas", "availableReplicas"].iter().all(|it| count(it) >= wanted)
}

// === What a spec means ===

/// The owned objects have what the spec says. It is written for a reader of the documentation, not for the operator.
fn as_the_spec_says(play: &Play, slot: Slot) {
    let object = play.server.get(&slot.id()).unwrap();
    assert!(is_ready(&object), "{slot:?}: {}", object["status"]);
    assert!(has_condition(&object, "Degraded", "False"), "{slot:?}: {}", object["status"]);
    let stuck =
        conditions(&object).find(|it| it["type"] == "Stalled" || it["type"] == "Reconciling");
    assert_eq!(stuck, None);
    let spec = &object["spec"];
    let get = |kind: Kind| owned(play, slot, kind);
    for kind in slot.children() {
        if let Some(child) = get(*kind) {
            assert_eq!(
                child["metadata"]["ownerReferences"][0]["uid"],
                object["metadata"]["uid"],
                "{slot:?} {}",
                kind.name()
            );
        }
    }
    let workload = get(slot.children()[0]).expect("a workload");
    if slot.0 == APP {
        assert_eq!(workload["spec"]["replicas"], spec["replicas"], "{slot:?}");
        let ports = spec["ports"].as_array().map_or(0, Vec::len);
        let service = get(SERVICE);
        assert_eq!(service.is_some(), ports > 0, "{slot:?}: a Service, {ports} ports");
        if let Some(service) = service {
            assert_eq!(service["spec"]["ports"].as_array().unwrap().len(), ports, "{slot:?}");
        }
    }
    let is_own = |container: &&Value| {
        let names = ["daemon", "memcached", slot.2];
        names.iter().any(|name| container["name"] == *name)
    };
    let pod = &workload["spec"]["template"]["spec"];
    let container =
        pod["containers"].as_array().unwrap().iter().find(is_own).expect("its container");
    if slot.children()[0] == DEPLOYMENT && slot.0 != APP {
        assert_eq!(workload["spec"]["replicas"], spec["size"], "{slot:?}");
    }
    if spec["image"].as_str().is_some_and(|image| !image.is_empty()) {
        assert_eq!(container["image"], spec["image"], "{slot:?}");
    }
    if slot.0 != MEMCACHED {
        has_the_lists_of(slot, spec, container);
    }
    let id: Id = slot.id();
    assert_eq!(workload["metadata"]["labels"]["app.kubernetes.io/instance"], *id.name, "{slot:?}");
}

/// Checks the lists of the main container.
fn has_the_lists_of(slot: Slot, spec: &Value, container: &Value) {
    // A template wins over the fields of the main container.
    let template = spec["podTemplate"]["spec"]["containers"].as_array().into_iter().flatten();
    let template =
        template.into_iter().find(|it| ["app", "daemon"].iter().any(|name| it["name"] == *name));
    let fields =
        [("command", "command"), ("args", "args"), ("envFrom", "envFrom"), ("envs", "env")];
    for (ours, theirs) in fields {
        let mut wanted = items(&spec[ours]);
        let of_template = template.map(|it| items(&it[theirs])).unwrap_or_default();
        if theirs == "env" {
            wanted.extend(of_template);
        } else if !of_template.is_empty() {
            wanted = of_template;
        }
        let mut has = items(&container[theirs]);
        if theirs == "env" {
            wanted.sort_unstable();
            wanted.dedup();
            has.sort_unstable();
        }
        assert_eq!(has, wanted, "{slot:?}: {theirs}");
    }
}

/// The items of a list; of one with names, the names.
fn items(list: &Value) -> Vec<String> {
    let all = list.as_array().into_iter().flatten();
    all.map(|it| it["name"].as_str().map_or_else(|| it.to_string(), str::to_owned)).collect()
}
