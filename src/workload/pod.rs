//! Metadata of pods.

use serde::Deserialize;

use super::labels::MEMCACHED;
use crate::client::Scope;
use crate::object::{InternedStr, Kind, Meta, MetadataFilter, ObjectKey};
use crate::store::Index;

/// Label with the suffix of the pod's ReplicaSet, after the Deployment's name.
const TEMPLATE_HASH: &str = "pod-template-hash";

/// Field selector of the pods that have not ended. Others do not count as replicas of their Deployment
/// (k8s.io/kubernetes/pkg/controller, IsPodActive).
const NOT_ENDED: &str = "status.phase!=Failed,status.phase!=Succeeded";

/// Name of the index of [`Pod`]s by their Memcached: `namespace/name`.
pub const BY_MEMCACHED: &str = "memcached";

/// A pod's metadata.
#[derive(Debug, Clone, Deserialize)]
pub struct Pod {
    /// Metadata.
    #[serde(rename = "metadata")]
    pub meta: Meta<PodLabels>,
}

/// Keeps the labels that identify the owner of a pod.
#[derive(Debug, Clone, Copy)]
pub enum PodLabels {}

// === impl Pod ===

impl Pod {
    /// Returns the scope of the pods of all Memcacheds that have not ended. An evicted pod remains for
    /// inspection while its ReplicaSet creates another, and metadata alone cannot distinguish the two. A watch
    /// with this scope reports a pod that ends as deleted.
    pub fn scope(namespace: Option<InternedStr>) -> Scope {
        let (labels, fields) = (Some(MEMCACHED.to_owned()), Some(NOT_ENDED.to_owned()));
        Scope { namespace, labels, fields, ..Scope::default() }
    }

    /// Returns the Memcached of the pod, by its label.
    pub fn memcached(&self) -> Option<ObjectKey> {
        self.meta.labels.get(MEMCACHED).map(|name| self.meta.key.sibling(name.clone()))
    }

    /// Returns the index [`BY_MEMCACHED`].
    pub fn index() -> Index<Pod> {
        Index::new(BY_MEMCACHED, |pod: &Pod, found| {
            if let Some(key) = pod.memcached() {
                found(InternedStr::from(key.to_string()));
            }
        })
    }

    /// Returns whether a ReplicaSet of the Deployment `name` controls the pod, and the pod is not being
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
        of_deployment && labelled && !self.meta.is_terminating
    }
}

crate::view!(Pod { meta: Meta<PodLabels> }: Kind::namespaced("", "v1", "Pod", "pods"));

impl MetadataFilter for PodLabels {
    fn label(key: &str) -> bool {
        matches!(key, MEMCACHED | TEMPLATE_HASH)
    }
    fn annotation(_: &str) -> bool {
        false
    }
}
