//! Memcached: a Deployment and a headless Service, both with its name.

pub(crate) mod spec;
mod pod;
mod pace;

use std::sync::Arc;

use futures::StreamExt;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::client::Client;
use crate::controller::{Action, ReconcileError};
use crate::events;
use crate::manager::Context;
use crate::object::{InternedStr, Labels, Meta, Object};
use crate::store::Store;
use crate::workload::child::{ChildSpec, Desired};
use crate::workload::condition::{self, Time, Type, Wanted, merge};
use crate::workload::custom_resource::{Switches, custom, is_paused};
use crate::workload::deployment::with_deadline;
use crate::workload::health::{self, Health, Level};
use crate::workload::labels::{self, APP, Identity, MEMCACHED_CR, selector_text};
use crate::workload::observer::Observer;
use crate::workload::pod::{BY_MEMCACHED, Pod};
use crate::workload::pod_template::{object, refusal};
use crate::workload::reason::Reason;
use crate::workload::reconciliation::Reconciliation;
use crate::workload::sentence::{counted, share};
use crate::workload::services::ServiceSpec;
use crate::workload::{BudgetSpec, DeploymentSpec, Found, REVISIONS};

pub use pace::{Limit, Pace};
pub use pod::Images;
use spec::DEFAULT_PORT;
pub use spec::{Exporter, Spec, Status};

/// The administrator's settings for all Memcacheds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settings {
    /// The image of memcached (environment variable `MEMCACHED_IMAGE`). If it is missing or empty, nothing is
    /// created for a Memcached without an image of its own.
    pub memcached_image: Option<InternedStr>,
    /// The image of exporters (environment variable `MEMCACHED_EXPORTER_IMAGE`).
    pub exporter_image: Option<InternedStr>,
    /// True if templates are allowed, because policies decide who can set them.
    pub allow_templates: bool,
}

// === View ===

/// A Memcached.
#[derive(Debug, Clone, Deserialize)]
pub struct Memcached {
    /// Metadata.
    #[serde(rename = "metadata")]
    pub meta: Meta<Switches>,
    /// The desired state.
    pub spec: Spec,
    /// The status last written.
    #[serde(default)]
    pub status: Status,
}

crate::view!(Memcached { meta: Meta<Switches> }: crate::workload::MEMCACHED);
custom!(Memcached);

// === Children ===

/// Value of `app.kubernetes.io/name` and `app`, and name of the container and its port.
const MEMCACHED: &str = "memcached";

/// The owned objects of a Memcached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Children {
    /// The Deployment of the instances.
    pub deployment: Desired<DeploymentSpec>,
    /// The Service through which clients find them.
    pub service: Desired<ServiceSpec>,
    /// The limit of evictions during a drain; `None` if there is none.
    pub budget: Option<Desired<BudgetSpec>>,
}

/// Returns the owned objects of `memcached` with these images.
pub fn desired(memcached: &Memcached, images: &Images) -> Children {
    let identity = identity(memcached, Some(&images.memcached));
    let (labels, selector) = (identity.labels(), identity.selector());
    let spec = &memcached.spec;
    let deployment = object([
        ("replicas", json!(spec.size)),
        ("selector", json!({ "matchLabels": selector })),
        // Never more pods than requested, even during an update of the template.
        (
            "strategy",
            json!({ "type": "RollingUpdate", "rollingUpdate": { "maxSurge": 0, "maxUnavailable": 1 } }),
        ),
        ("minReadySeconds", json!(spec.min_ready_seconds.filter(|seconds| *seconds > 0))),
        ("revisionHistoryLimit", json!(REVISIONS)),
        ("template", pod::template(&identity, spec, images)),
    ]);
    let budget = spec.pod_disruption_budget.as_ref();
    let budget = budget.and_then(|settings| settings.desired(&selector));
    Children {
        deployment: Desired::new(labels.clone(), with_deadline(deployment)),
        budget: budget.map(|spec| Desired::new(labels.clone(), spec)),
        service: Desired::new(labels, service(spec, &selector))
            .with_template(&spec.service_template, &["selector"]),
    }
}

/// Returns the label that selects the pods.
fn selector(memcached: &Memcached) -> Labels {
    identity(memcached, None).selector()
}

fn identity<'a>(memcached: &'a Memcached, image: Option<&'a InternedStr>) -> Identity<'a> {
    let name = memcached.meta.key.name();
    // Users of Memcached identify the pods by these two labels.
    let more = vec![(APP, MEMCACHED), (MEMCACHED_CR, name.as_str())];
    let image = image.map(InternedStr::as_str);
    let inherited = &memcached.meta.labels;
    let (kind, program, label) = (MEMCACHED, MEMCACHED, labels::MEMCACHED);
    Identity { kind, program, label, name, image, more, inherited }
}

fn service(spec: &Spec, selector: &Labels) -> Value {
    let port = json!({
        "port": spec.port(), "protocol": "TCP", "name": MEMCACHED, "targetPort": MEMCACHED,
    });
    json!({ "clusterIP": "None", "selector": selector, "ports": [port] })
}

// === Status ===

/// Maximum number of pods that the status names: as many as the schema allows, more than five times the maximum
/// size of a Memcached.
const MAX_NODES: usize = 16;

/// Returns the status to store. `nodes` are the names of the pods that serve.
pub fn status(
    memcached: &Memcached,
    found: &Found<'_, DeploymentSpec>,
    mut nodes: Vec<InternedStr>,
    now: Time,
) -> Status {
    let generation = memcached.meta.generation;
    let mut wanted = found.health.summary();
    wanted.push(available(memcached, found));
    wanted.push(found.health.progressing());
    wanted.push(found.health.degraded());
    let counts = found.workload.map(|deployment| &deployment.status);
    nodes.sort();
    nodes.truncate(MAX_NODES);
    Status {
        observed_generation: generation,
        size: counts.map_or(0, |counts| counts.replicas),
        ready_replicas: counts.map_or(0, |counts| counts.ready_replicas),
        selector: InternedStr::from(selector_text(&selector(memcached))),
        nodes: nodes.into(),
        conditions: merge(&memcached.status.conditions, wanted, generation, now),
    }
}

/// Returns the status while the finalizer runs or, if `done`, has finished. Nothing else is observed at this
/// stage.
pub fn finalizing(memcached: &Memcached, done: bool, now: Time) -> Status {
    let generation = memcached.meta.generation;
    let name = memcached.meta.key.name();
    let (degraded, message) = if done {
        let message = format!(
            "Finalizer operations for custom resource {name} name were successfully accomplished"
        );
        (condition::Status::True, message)
    } else {
        let message = format!("Performing finalizer operations for the custom resource: {name}");
        (condition::Status::Unknown, message)
    };
    let no = condition::Status::False;
    let mut wanted = vec![Type::Ready.is(no, Reason::Finalizing, Reason::Finalizing.meaning())];
    for kind in [Type::Available, Type::Progressing] {
        wanted.push(kind.is(no, Reason::Finalizing, Reason::Finalizing.meaning()));
    }
    wanted.push(Type::Degraded.is(degraded, Reason::Finalizing, message));
    Status {
        observed_generation: generation,
        conditions: merge(&memcached.status.conditions, wanted, generation, now),
        ..memcached.status.clone()
    }
}

/// Returns the condition Available: whether as many replicas as desired can be used.
fn available(memcached: &Memcached, found: &Found<'_, DeploymentSpec>) -> Wanted {
    let name = memcached.meta.key.name();
    let size = memcached.spec.size;
    let no = condition::Status::False;
    let Some(deployment) = found.workload else {
        let Some(why) = &found.failure else {
            return Type::Available.is(no, Reason::Reconciling, &*found.health.message);
        };
        let message =
            format!("Failed to create Deployment for the custom resource ({name}): ({why})");
        return Type::Available.is(no, Reason::Reconciling, message);
    };
    if deployment.status.observed_generation == 0 {
        let message = "Waiting for the Deployment controller";
        return Type::Available.is(condition::Status::Unknown, Reason::Reconciling, message);
    }
    // Only available pods count, not the last write or its observation by the controller. Admission can change the
    // number of replicas.
    let count = deployment.status.available_replicas;
    let size = if found.is_as_desired { deployment.spec.replicas } else { size };
    if count >= size {
        let replicas = counted(usize::try_from(size).unwrap_or(0), "replica", "replicas");
        let message =
            format!("Deployment for custom resource ({name}) with {replicas} created successfully");
        return Type::Available.is(condition::Status::True, Reason::Reconciling, message);
    }
    if let Some(why) = &found.failure {
        let message =
            format!("Failed to update the size for the custom resource ({name}): ({why})");
        return Type::Available.is(no, Reason::Resizing, message);
    }
    let message = share(count, size, "replica", ["is", "are"], "available");
    Type::Available.is(no, Reason::Reconciling, message)
}

// === Reconcile ===

/// The finalizer. The operator removes it after it has reported that a Memcached is being deleted.
pub const FINALIZER: &str = "cache.example.com/finalizer";

/// Reconciles a Memcached: applies its objects and writes its status.
///
/// # Errors
/// If the finalizer, an object or the status cannot be written.
pub async fn reconcile(
    memcached: Arc<Memcached>,
    cx: Context<Memcached>,
    settings: Settings,
    pace: Pace,
    observer: Observer,
) -> Result<Action, ReconcileError> {
    let mut run = Reconciliation::new(&cx, &observer)?;
    let health = if is_paused(&memcached.meta) {
        run.observe_paused(known(&cx)?).await
    } else if let Some(refusal) = refusal(
        settings.allow_templates,
        &[&memcached.spec.pod_template, &memcached.spec.service_template],
    ) {
        refusal
    } else {
        match Images::chosen(&memcached.spec, &settings) {
            Ok(images) => apply(&mut run, &cx, &settings, &pace, images).await?,
            Err(missing) => {
                // The pods keep their images, and the rest of the spec applies.
                let there = run.workload().and_then(|there| pace::stored(&memcached.spec, there));
                if let Some(images) = there {
                    let children = desired(&memcached, &images);
                    run.apply(&children.deployment).await?;
                    run.apply_or_prune(Some(&children.service)).await?;
                    run.apply_or_prune(children.budget.as_ref()).await?;
                }
                let health = Health::new(Level::Stalled, Reason::ImageMissing, missing);
                if run.workload().is_none() {
                    run.fail(missing);
                    health
                } else {
                    run.observe(known(&cx)?).await.and(health)
                }
            }
        }
    };
    let status = status(&memcached, &run.found(&health), nodes(&cx)?, Time::now());
    run.report(&status, &health).await
}

/// Applies the objects of a Memcached. Returns the combined health.
async fn apply(
    run: &mut Reconciliation<'_, Memcached, DeploymentSpec>,
    cx: &Context<Memcached>,
    settings: &Settings,
    pace: &Pace,
    wanted: Images,
) -> Result<Health, ReconcileError> {
    if !run.finalizer(FINALIZER).await? {
        // Nothing is created without the finalizer.
        pace.refused(cx.key());
        return Ok(run.observe(health::Context::default()).await);
    }
    let given = pace.give(cx, settings, wanted)?;
    let children = desired(cx.object(), &given.images);
    match run.apply(&children.deployment).await? {
        Some(made) if given.is_final() => pace.applied(cx.key(), &given.images, &made),
        Some(_) => {}
        None => pace.refused(cx.key()),
    }
    run.apply_or_prune(Some(&children.service)).await?;
    run.apply_or_prune(children.budget.as_ref()).await?;
    run.requeue(given.again());
    let health = run.observe(known(cx)?).await;
    Ok(given.with_wait(health))
}

/// Returns what the pods add to the health of the Deployment.
fn known(cx: &Context<Memcached>) -> Result<health::Context<'static>, ReconcileError> {
    Ok(health::Context { listed: Some(nodes(cx)?.len()), ..health::Context::default() })
}

/// Returns the names of the pods that serve.
fn nodes(cx: &Context<Memcached>) -> Result<Vec<InternedStr>, ReconcileError> {
    let key = cx.key();
    let pods = cx.store::<Pod>()?.by_index(BY_MEMCACHED, &key.to_string())?;
    let serving = pods.iter().filter(|pod| pod.serves(key.name()));
    Ok(serving.map(|pod| pod.key().name().clone()).collect())
}

/// Reports that a Memcached is being deleted, before its finalizer is removed. The garbage collector deletes
/// its owned objects. This happens even if it is paused: a pause never delays a deletion.
///
/// # Errors
/// If the report fails.
pub async fn finalize(
    memcached: Arc<Memcached>,
    cx: Context<Memcached>,
    pace: Pace,
) -> Result<(), ReconcileError> {
    pace.forget(cx.key());
    if finalizing(&memcached, true, Time::now()) == memcached.status {
        return Ok(());
    }
    let begun = finalizing(&memcached, false, Time::now());
    cx.patch_status(&begun).await?;
    let key = memcached.key();
    let note = format!(
        "Custom Resource {} is being deleted from the namespace {}",
        key.name(),
        key.namespace()
    );
    cx.event(events::Type::Warning, Reason::Deleting.as_str(), &note);
    let begun = Memcached { status: begun, ..Memcached::clone(&memcached) };
    cx.patch_status(&finalizing(&begun, true, Time::now())).await
}

// === Shutdown ===

/// Number of finalizers removed concurrently.
const AT_ONCE: usize = 16;

/// Removes the finalizers of all Memcacheds in `namespace` if the namespace is being deleted. The operator
/// calls this when it terminates in that namespace, because no process would remove them later. The
/// finalizers only delay the deletion until the status reports it.
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

/// Returns whether the API server reports that the namespace is being deleted. The request is a dry run of a
/// create, which needs no additional permission.
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

#[cfg(test)]
mod tests;
