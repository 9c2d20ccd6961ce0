//! The objects that are looked at.

use serde::Deserialize;
use serde_json::Value;

use super::args::KindName;
use crate::client::{Client, Error};
use crate::object::{ObjectKey, Resource};
use crate::reconcilers::workload::{DaemonSet, Deployment};
use crate::reconcilers::{Child, Context, Evidence, Health, PodState, Workload, diagnostics};

/// A custom resource and what belongs to it.
#[derive(Debug, Default)]
pub(super) struct Facts {
    /// The custom resource, as JSON.
    pub(super) object: Value,
    /// The Deployment or DaemonSet, if the object owns it.
    pub(super) child: Option<Workloads>,
    /// Why the child may not be read, if so.
    pub(super) unreadable: Option<String>,
    /// All of its pods that have not ended.
    pub(super) pods: Vec<PodState>,
    /// What the child's pods, Events and nodes show.
    pub(super) evidence: Evidence,
}

/// A workload of either type.
#[derive(Debug)]
pub(super) enum Workloads {
    Deployment(Deployment),
    DaemonSet(DaemonSet),
}

impl Workloads {
    /// Its health, as the operator computes it.
    pub(super) fn health(&self, context: &Context<'_>) -> Health {
        match self {
            Workloads::Deployment(child) => Health::of_deployment(child, context),
            Workloads::DaemonSet(child) => Health::of_daemon_set(child, context),
        }
    }
}

pub(super) async fn gather(
    client: &Client,
    name: KindName,
    key: &ObjectKey,
) -> Result<Facts, Error> {
    let object = client.read(&name.kind(), key).await?;
    let mut facts = Facts { object, ..Facts::default() };
    if name == KindName::GenericDaemon {
        if let Some(child) = child::<DaemonSet>(client, key, &mut facts).await? {
            facts.look_at(client, &child).await;
            facts.child = Some(Workloads::DaemonSet(child));
        }
    } else if let Some(child) = child::<Deployment>(client, key, &mut facts).await? {
        facts.look_at(client, &child).await;
        facts.child = Some(Workloads::Deployment(child));
    }
    Ok(facts)
}

impl Facts {
    /// Lists what may show why the child is not ready. What may not be read is left out.
    async fn look_at<S: Workload>(&mut self, client: &Client, child: &Child<S>) {
        self.pods = diagnostics::all_pods(client, child).await;
        self.evidence = diagnostics::evidence(client, child).await;
    }
}

/// The child of this name, if it may be read and `object` owns it.
async fn child<V: Resource + for<'de> Deserialize<'de>>(
    client: &Client,
    key: &ObjectKey,
    facts: &mut Facts,
) -> Result<Option<V>, Error> {
    let child = match client.read(&V::KIND, key).await {
        Ok(child) => child,
        Err(error) if error.is_not_found() => return Ok(None),
        Err(error) if error.is_forbidden() => {
            facts.unreadable = Some(error.to_string());
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    let owners = child["metadata"]["ownerReferences"].as_array();
    let mut owners = owners.into_iter().flatten();
    let is_owned = owners.any(|owner| owner["uid"] == facts.object["metadata"]["uid"]);
    Ok(serde_json::from_value(child).ok().filter(|_| is_owned))
}
