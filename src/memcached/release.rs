//! The finalizers of Memcacheds whose operator ends for good.

use std::sync::Arc;

use futures::StreamExt;
use serde_json::json;

use super::{FINALIZER, Memcached};
use crate::client::Client;
use crate::object::Object;
use crate::store::Store;
use crate::workload::child::ChildSpec;
use crate::workload::service::ServiceSpec;

/// Number of finalizers removed at once.
const AT_ONCE: usize = 16;

/// Removes the finalizers of all Memcacheds in `namespace` if it is being deleted. Called when the
/// operator that runs in it ends: they would stay afterwards, and all that they stand for is a
/// report.
pub async fn release(memcacheds: Store<Memcached>, client: Client, namespace: &str) {
    let finalized = |memcached: &Arc<Memcached>| {
        let at = memcached.meta.finalizers.iter().position(|name| name == FINALIZER)?;
        (memcached.key().namespace() == namespace).then(|| (memcached.clone(), at))
    };
    let all: Vec<_> = memcacheds.list().iter().filter_map(finalized).collect();
    if all.is_empty() || !is_terminating(&client, namespace).await {
        return;
    }
    tracing::info!(namespace, memcacheds = all.len(), "Removing finalizers: it is being deleted");
    let remove = |(memcached, at): (Arc<Memcached>, usize)| {
        let client = &client;
        async move {
            let path = format!("/metadata/finalizers/{at}");
            let operations = json!([
                { "op": "test", "path": "/metadata/uid", "value": memcached.uid() },
                { "op": "test", "path": path, "value": FINALIZER },
                { "op": "remove", "path": path },
            ]);
            if let Err(error) = client.json_patch::<Memcached>(memcached.key(), &operations).await {
                tracing::warn!(object = %memcached.key(), %error, "The finalizer stays");
            }
        }
    };
    futures::stream::iter(all).for_each_concurrent(AT_ONCE, remove).await;
}

/// Returns whether the API server says that the namespace is being deleted. It is asked by a dry run of
/// a create, which takes no right that the operator does not have.
async fn is_terminating(client: &Client, namespace: &str) -> bool {
    let kind = ServiceSpec::KIND;
    let body = json!({
        "apiVersion": kind.api_version(), "kind": kind.kind,
        "metadata": { "generateName": "workload-operator-" },
        "spec": { "clusterIP": "None", "ports": [{ "port": 80 }] },
    });
    let answer = client.try_create(&kind, namespace, &body).await;
    answer.is_err_and(|error| error.is_namespace_terminating())
}
