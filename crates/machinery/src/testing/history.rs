//! Every version of every object, as etcd stores them.

use std::cmp::Ordering;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

/// The name of one object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Id {
    /// The path of the collection without a namespace: `/apis/apps/v1/deployments`.
    pub resource: String,
    /// Empty for a cluster-scoped object.
    pub namespace: String,
    /// The name within its namespace.
    pub name: String,
}

impl Id {
    /// Returns the name of the collection, such as `deployments`.
    pub(super) fn plural(&self) -> &str {
        self.resource.rsplit('/').next().unwrap_or_default()
    }

    /// Returns whether the kind is Kubernetes' own.
    pub(super) fn is_built_in(&self) -> bool {
        let mut parts = self.resource.trim_start_matches('/').split('/');
        let group = parts.nth(1).unwrap_or_default();
        self.resource.starts_with("/api/") || !group.contains('.') || group.ends_with(".k8s.io")
    }

    /// Creates the name of an object; `namespace` is empty for a cluster-scoped object.
    pub fn new(
        resource: impl Into<String>,
        namespace: impl Into<String>,
        name: impl Into<String>,
    ) -> Id {
        Id { resource: resource.into(), namespace: namespace.into(), name: name.into() }
    }
}

impl Id {
    /// Returns the group and version in the form of `apiVersion`.
    pub(super) fn api_version(&self) -> &str {
        let version = self.resource.rsplit_once('/').map_or("", |(version, _)| version);
        version.trim_start_matches("/apis/").trim_start_matches("/api/")
    }
}

impl Ord for Id {
    /// Compares as etcd orders keys, which is the order of lists: `a-b/x` before `a/x`.
    fn cmp(&self, other: &Id) -> Ordering {
        let namespaces = || match self.namespace == other.namespace {
            true => Ordering::Equal,
            false => {
                let (mine, others) = (self.namespace.bytes(), other.namespace.bytes());
                mine.chain([b'/']).cmp(others.chain([b'/']))
            }
        };
        self.resource
            .cmp(&other.resource)
            .then_with(namespaces)
            .then_with(|| self.name.cmp(&other.name))
    }
}

impl PartialOrd for Id {
    fn partial_cmp(&self, other: &Id) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// An object's state, from the given version on.
type State = (u64, Option<Arc<Value>>);

/// A change, as a watch reports it.
#[derive(Debug, Clone)]
pub(super) struct Change {
    pub(super) version: u64,
    pub(super) verb: &'static str,
    pub(super) object: Arc<Value>,
    /// The state before it.
    pub(super) before: Option<Arc<Value>>,
}

/// A state of an object, from a version on.
#[derive(Debug, Clone)]
pub struct Version {
    /// Time from the start of the server until this version.
    pub at: Duration,
    /// The object.
    pub id: Id,
    /// Its state; `None` after its deletion.
    pub object: Option<Arc<Value>>,
}

/// All objects at all versions since the compaction.
#[derive(Debug)]
pub(super) struct History {
    /// The start of the server.
    pub(super) began: Instant,
    pub(super) version: u64,
    /// Versions before this one can no longer be read.
    pub(super) compacted: u64,
    /// The states of each object, oldest first; `None` is a deletion.
    chains: BTreeMap<Id, Vec<State>>,
    /// The versions and the objects that they changed, in order, with the times.
    log: Vec<(u64, Id, Duration)>,
    uids: u64,
    /// Resources without a status subresource, whose generation also counts changes of the status.
    pub(super) without_status: HashSet<String>,
    /// True if an object may have lost its owner since this was last reset.
    pub(super) has_lost: bool,
}

impl History {
    pub(super) fn new() -> History {
        History {
            began: Instant::now(),
            // Versions 0 and 1 have special meanings, so the server starts at a later version.
            version: 100,
            compacted: 0,
            chains: BTreeMap::new(),
            log: Vec::new(),
            uids: 0,
            without_status: HashSet::new(),
            has_lost: false,
        }
    }

    /// Returns whether an object of one of these resources has changed after this version.
    pub(super) fn has_changed(&self, after: u64, resources: &[&str]) -> bool {
        let new = self.log.iter().rev().take_while(|(at, ..)| *at > after);
        new.into_iter().any(|(_, id, _)| resources.contains(&id.resource.as_str()))
    }

    /// Returns the newest version of an object of another resource.
    pub(super) fn version_without(&self, resource: &str) -> u64 {
        self.log.iter().rev().find(|(_, id, _)| id.resource != resource).map_or(0, |(at, ..)| *at)
    }

    /// Returns every version so far, in order.
    pub(super) fn versions(&self) -> Vec<Version> {
        let state = |version, id: &Id| {
            let chain = self.chains.get(id)?;
            let here = chain.binary_search_by_key(&version, |(at, _)| *at).ok()?;
            chain[here].1.clone()
        };
        let each = self.log.iter().map(|(version, id, at)| Version {
            at: *at,
            id: id.clone(),
            object: state(*version, id),
        });
        each.collect()
    }

    /// Uses up a version for another change on the server.
    pub(super) fn bump(&mut self) -> u64 {
        self.version += 1;
        self.version
    }

    pub(super) fn now(&self, id: &Id) -> Option<Arc<Value>> {
        self.chains.get(id)?.last()?.1.clone()
    }

    /// Stores `object` under `id`, and sets the metadata that the server owns.
    pub(super) fn put(&mut self, id: &Id, mut object: Value) -> Arc<Value> {
        if !object.is_object() {
            object = json!({});
        }
        let version = self.bump();
        let old = self.now(id);
        let (uid, generation) = match &old {
            Some(old) => (old["metadata"]["uid"].clone(), self.generation(id, old, &object)),
            None => {
                let given = &object["metadata"];
                let (uid, generation) = (given["uid"].clone(), given["generation"].as_i64());
                (if uid.is_string() { uid } else { self.new_uid() }, generation.unwrap_or(1))
            }
        };
        if !object["metadata"].is_object() {
            object["metadata"] = json!({});
        }
        let meta = &mut object["metadata"];
        meta["name"] = json!(id.name);
        if !id.namespace.is_empty() {
            meta["namespace"] = json!(id.namespace);
        }
        meta["uid"] = uid;
        if has_generation(&id.resource) {
            meta["generation"] = json!(generation);
        }
        meta["resourceVersion"] = json!(version.to_string());
        // Its owner may already be deleted, and an owner that is being deleted can wait for the garbage collector.
        let before = old.as_ref().map(|old| &old["metadata"]["ownerReferences"]);
        let has_owners = meta["ownerReferences"].is_array();
        let is_kept = meta["deletionTimestamp"].is_string() && meta["finalizers"].is_array();
        self.has_lost |=
            is_kept || before.map_or(has_owners, |before| *before != meta["ownerReferences"]);
        let object = Arc::new(object);
        self.chains.entry(id.clone()).or_default().push((version, Some(object.clone())));
        self.log.push((version, id.clone(), self.began.elapsed()));
        object
    }

    fn new_uid(&mut self) -> Value {
        self.uids += 1;
        json!(format!("00000000-0000-4000-8000-{:012x}", self.uids))
    }

    /// Returns the generation of `new`, which replaces `old`. It counts all changes except those of metadata and
    /// status, and changes of a Deployment's annotations. The start of a deletion is counted elsewhere.
    pub(super) fn generation(&self, id: &Id, old: &Value, new: &Value) -> i64 {
        let of = |object: &Value| object["metadata"]["generation"].as_i64();
        let counts_status = self.without_status.contains(&id.resource);
        let counts = |name: &str| match name {
            "apiVersion" | "kind" | "metadata" => false,
            name => name != "status" || counts_status,
        };
        let names = |object: &Value| -> Vec<String> {
            object.as_object().into_iter().flat_map(|fields| fields.keys().cloned()).collect()
        };
        let content = names(old).into_iter().chain(names(new)).filter(|name| counts(name));
        let annotations = |object: &Value| object["metadata"]["annotations"].clone();
        let changed = content.into_iter().any(|name| old.get(&name) != new.get(&name))
            || id.resource == "/apis/apps/v1/deployments" && annotations(old) != annotations(new);
        of(new).or(of(old)).unwrap_or(0) + i64::from(changed)
    }

    /// Removes the object. Returns its last state, with the version of its deletion.
    pub(super) fn remove(&mut self, id: &Id) -> Option<Arc<Value>> {
        let old = self.now(id)?;
        let version = self.bump();
        self.chains.entry(id.clone()).or_default().push((version, None));
        self.log.push((version, id.clone(), self.began.elapsed()));
        self.has_lost = true;
        Some(buried(&old, version))
    }

    /// Returns the number of objects that have had this name.
    pub(super) fn incarnations(&self, id: &Id) -> usize {
        let chain = self.chains.get(id).map_or(&[][..], Vec::as_slice);
        let is_there = |at: usize| chain[at].1.is_some();
        (0..chain.len()).filter(|at| is_there(*at) && (*at == 0 || !is_there(at - 1))).count()
    }

    /// Returns all objects in their current state.
    pub(super) fn all(&self) -> impl Iterator<Item = (&Id, &Arc<Value>)> {
        self.chains.iter().filter_map(|(id, chain)| Some((id, chain.last()?.1.as_ref()?)))
    }

    /// Returns the objects at `version`, by key.
    pub(super) fn at<'a>(
        &'a self,
        resource: &'a str,
        namespace: Option<&'a str>,
        version: u64,
    ) -> impl Iterator<Item = (&'a Id, Arc<Value>)> {
        self.chains.iter().filter_map(move |(id, chain)| {
            if id.resource != resource || namespace.is_some_and(|ns| ns != id.namespace) {
                return None;
            }
            let end = chain.partition_point(|(at, _)| *at <= version);
            let object = chain.get(end.checked_sub(1)?)?.1.clone()?;
            Some((id, object))
        })
    }

    /// Returns the changes after `after`, up to `until`.
    pub(super) fn changes(
        &self,
        resource: &str,
        namespace: Option<&str>,
        after: u64,
        until: u64,
    ) -> Vec<Change> {
        let start = self.log.partition_point(|(at, ..)| *at <= after);
        self.log[start..]
            .iter()
            .take_while(|(at, ..)| *at <= until)
            .filter(|(_, id, _)| {
                id.resource == resource && namespace.is_none_or(|ns| ns == id.namespace)
            })
            .filter_map(|(at, id, _)| self.change(*at, id))
            .collect()
    }

    fn change(&self, version: u64, id: &Id) -> Option<Change> {
        let chain = self.chains.get(id)?;
        let here = chain.iter().position(|(at, _)| *at == version)?;
        let before = here.checked_sub(1).and_then(|before| chain[before].1.clone());
        let (verb, object) = match (&chain[here].1, &before) {
            (Some(object), None) => ("ADDED", object.clone()),
            (Some(object), Some(_)) => ("MODIFIED", object.clone()),
            (None, before) => ("DELETED", buried(before.as_ref()?, version)),
        };
        Some(Change { version, verb, object, before })
    }
}

/// Groups of built-in kinds whose objects have no generation.
const WITHOUT_GENERATION: [&str; 6] = [
    "/api/v1/",
    "/apis/certificates.k8s.io/",
    "/apis/coordination.k8s.io/",
    "/apis/events.k8s.io/",
    "/apis/rbac.authorization.k8s.io/",
    "/apis/storage.k8s.io/",
];

/// Returns whether the objects of a resource have a generation.
fn has_generation(resource: &str) -> bool {
    let of_core = ["/api/v1/pods", "/api/v1/podtemplates", "/api/v1/replicationcontrollers"];
    of_core.contains(&resource)
        || !WITHOUT_GENERATION.iter().any(|group| resource.starts_with(group))
}

/// Returns the last state of an object, as its DELETED event shows it.
pub(super) fn buried(object: &Value, version: u64) -> Arc<Value> {
    let mut object = object.clone();
    object["metadata"]["resourceVersion"] = json!(version.to_string());
    Arc::new(object)
}
