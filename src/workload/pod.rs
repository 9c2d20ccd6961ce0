//! Pods, of which only metadata is read.

use serde::Deserialize;

use super::labels::MEMCACHED;
use crate::client::Scope;
use crate::object::{InternedStr, Keep, Kind, Meta, ObjectKey};
use crate::store::Index;

/// The label with the suffix that a pod's ReplicaSet has after the Deployment's name.
const TEMPLATE_HASH: &str = "pod-template-hash";

/// Selects by fields the pods that have not ended: one that has no longer counts as a replica of its
/// Deployment (k8s.io/kubernetes/pkg/controller, IsPodActive).
const NOT_ENDED: &str = "status.phase!=Failed,status.phase!=Succeeded";

/// The index of [`Pod`]s by the Memcached they serve: `namespace/name`.
pub const BY_MEMCACHED: &str = "memcached";

/// A pod's metadata.
#[derive(Debug, Clone, Deserialize)]
pub struct Pod {
    /// Metadata.
    #[serde(rename = "metadata")]
    pub meta: Meta<PodLabels>,
}

/// Keeps the labels that tell what a pod belongs to.
#[derive(Debug, Clone, Copy)]
pub enum PodLabels {}

// === impl Pod ===

impl Pod {
    /// The pods of all Memcacheds that run or may still run. An evicted pod stays for people to
    /// inspect while its ReplicaSet makes another; metadata alone cannot tell the two apart. A
    /// watch with this scope sees a pod that ends as deleted.
    pub fn scope(namespace: Option<InternedStr>) -> Scope {
        let (labels, fields) = (Some(MEMCACHED.to_owned()), Some(NOT_ENDED.to_owned()));
        Scope { namespace, labels, fields }
    }

    /// The Memcached that the pod serves, by its label.
    pub fn memcached(&self) -> Option<ObjectKey> {
        self.meta.labels.get(MEMCACHED).map(|name| self.meta.key.sibling(name.clone()))
    }

    /// The index [`BY_MEMCACHED`].
    pub fn index() -> Index<Pod> {
        Index::new(BY_MEMCACHED, |pod: &Pod, found| {
            if let Some(key) = pod.memcached() {
                found(InternedStr::from(key.to_string()));
            }
        })
    }

    /// Returns whether a ReplicaSet of the Deployment `name` controls the pod and it is not being
    /// deleted.
    pub fn serves(&self, name: &str) -> bool {
        let labels = &self.meta.labels;
        let of_deployment = self.meta.owner.as_ref().is_some_and(|owner| {
            let suffix = owner.name.strip_prefix(name).and_then(|rest| rest.strip_prefix('-'));
            owner.kind == "ReplicaSet"
                && suffix.is_some()
                && suffix == labels.get(TEMPLATE_HASH).map(InternedStr::as_str)
        });
        let labelled = labels.get(MEMCACHED).is_some_and(|value| value == name);
        of_deployment && labelled && !self.meta.deleting
    }
}

crate::view!(Pod { meta: Meta<PodLabels> }: Kind::namespaced("", "v1", "Pod", "pods"));

impl Keep for PodLabels {
    fn label(key: &str) -> bool {
        matches!(key, MEMCACHED | TEMPLATE_HASH)
    }
    fn annotation(_: &str) -> bool {
        false
    }
}
