//! The objects that are looked at.

use serde::Deserialize;
use serde_json::Value;

use super::args::KindName;
use crate::client::{Client, Error};
use crate::object::{ObjectKey, Resource};
use crate::reconcilers::workload::{DaemonSet, Deployment};
use crate::reconcilers::{Context, Evidence, Health, Workload};

/// A custom resource and what belongs to it.
#[derive(Debug, Default)]
pub(super) struct Facts {
    /// The custom resource, as JSON.
    pub(super) object: Value,
    /// The Deployment or DaemonSet, if the object owns it.
    pub(super) child: Option<Workloads>,
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
        let label = facts.object["spec"]["label"].as_str().map(str::to_owned);
        if let Some(child) = child::<DaemonSet>(client, key, &facts.object).await? {
            facts.evidence = evidence(client, &child, label.as_deref()).await?;
            facts.child = Some(Workloads::DaemonSet(child));
        }
    } else if let Some(child) = child::<Deployment>(client, key, &facts.object).await? {
        facts.evidence = evidence(client, &child, None).await?;
        facts.child = Some(Workloads::Deployment(child));
    }
    Ok(facts)
}

/// The pods that have ended are left out: an evicted one keeps nothing from being ready, because
/// another one is made in its place.
async fn evidence<S: Workload>(
    client: &Client,
    child: &crate::reconcilers::Child<S>,
    label: Option<&str>,
) -> Result<Evidence, Error> {
    let mut evidence = Evidence::gather(client, child, label).await?;
    evidence.pods.retain(|pod| !pod.has_ended());
    Ok(evidence)
}

/// The child of this name, if it may be read and `object` owns it.
async fn child<V: Resource + for<'de> Deserialize<'de>>(
    client: &Client,
    key: &ObjectKey,
    object: &Value,
) -> Result<Option<V>, Error> {
    let child = match client.read(&V::KIND, key).await {
        Ok(child) => child,
        Err(error) if error.is_not_found() || error.is_forbidden() => return Ok(None),
        Err(error) => return Err(error),
    };
    let owners = child["metadata"]["ownerReferences"].as_array();
    let mut owners = owners.into_iter().flatten();
    let is_owned = owners.any(|owner| owner["uid"] == object["metadata"]["uid"]);
    Ok(serde_json::from_value(child).ok().filter(|_| is_owned))
}
