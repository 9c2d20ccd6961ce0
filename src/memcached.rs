//! Memcached: a Deployment and a headless Service, both with its name.

pub(crate) mod spec;
mod pod;
mod status;
mod pace;
mod release;

use std::sync::Arc;

use serde::Deserialize;

use crate::controller::{Action, Problem};
use crate::events;
use crate::manager::Context;
use crate::object::{InternedStr, Labels, Meta, Object};
use crate::workload::child::Desired;
use crate::workload::condition::Time;
use crate::workload::custom_resource::{Switches, custom, is_paused};
use crate::workload::deployment::deadline;
use crate::workload::health::{Health, Level};
use crate::workload::labels::{self, APP, Identity, MEMCACHED_CR};
use crate::workload::observer::{Looking, Observer};
use crate::workload::pod::{BY_MEMCACHED, Pod};
use crate::workload::reason::Reason;
use crate::workload::report::{ensure_or_prune, outcome, own, report, sooner, there, to_report};
use crate::workload::service::{ServicePort, ServiceSpec, TargetPort};
use crate::workload::{
    Amount, BudgetSpec, Deployment, DeploymentSpec, PodMeta, PodTemplate, REVISIONS, RollingUpdate,
    Selector, Strategy,
};

pub use pace::{Limit, Pace, Rollouts};
pub use pod::Images;
use pod::pod;
pub use release::release;
use spec::DEFAULT_PORT;
pub use spec::{Exporter, Spec, Status};
pub use status::{Found, finalizing, status};

/// The administrator's settings for all Memcacheds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settings {
    /// The image (environment variable `MEMCACHED_IMAGE`). If it is missing or empty, nothing is created
    /// for a Memcached.
    pub memcached_image: Option<InternedStr>,
    /// The image of exporters (environment variable `MEMCACHED_EXPORTER_IMAGE`).
    pub exporter_image: Option<InternedStr>,
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

/// The values of `app.kubernetes.io/name` and `app`, and the names of the container and its port.
const MEMCACHED: &str = "memcached";

/// The children of a Memcached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Children {
    /// The instances.
    pub deployment: Desired<DeploymentSpec>,
    /// The Service through which clients find them.
    pub service: Desired<ServiceSpec>,
    /// Number of them that a drain may take away; `None` if that is left open.
    pub budget: Option<Desired<BudgetSpec>>,
}

/// The children of `memcached` with these images.
pub fn desired(memcached: &Memcached, images: &Images) -> Children {
    let identity = identity(memcached, Some(&images.memcached));
    let labels = identity.labels();
    let mut deployment = DeploymentSpec {
        replicas: memcached.spec.size,
        min_ready_seconds: memcached.spec.min_ready_seconds.filter(|seconds| *seconds > 0),
        revision_history_limit: REVISIONS,
        progress_deadline_seconds: None,
        selector: Selector { match_labels: identity.selector() },
        // Never more pods than requested, not even during an update of the template.
        strategy: Some(Strategy {
            kind: InternedStr::new("RollingUpdate"),
            rolling_update: Some(RollingUpdate {
                max_surge: Some(Amount::Number(0)),
                max_unavailable: Some(Amount::Number(1)),
            }),
        }),
        template: PodTemplate {
            metadata: PodMeta { labels: identity.pod_labels(), ..PodMeta::default() },
            spec: pod(&memcached.spec, images),
        },
        paused: false,
    };
    if let Some(settings) = &memcached.spec.pod {
        settings.apply(&mut deployment.template, &identity.selector());
    }
    deployment.template.inherit(&memcached.meta.labels);
    deployment.progress_deadline_seconds = deadline(&deployment);
    let budget = memcached.spec.pod_disruption_budget.as_ref().map(|settings| Desired {
        labels: labels.clone(),
        spec: settings.desired(deployment.selector.clone()),
    });
    Children {
        deployment: Desired { labels: labels.clone(), spec: deployment },
        service: Desired { labels, spec: service(memcached) },
        budget,
    }
}

/// The label that selects the pods.
fn selector(memcached: &Memcached) -> Labels {
    identity(memcached, None).selector()
}

fn identity<'a>(memcached: &'a Memcached, image: Option<&'a InternedStr>) -> Identity<'a> {
    let name = memcached.meta.key.name();
    // Memcached's users identify the pods by these two labels.
    let more = vec![(APP, MEMCACHED), (MEMCACHED_CR, name.as_str())];
    let image = image.map(InternedStr::as_str);
    let inherited = &memcached.meta.labels;
    Identity { kind: MEMCACHED, label: labels::MEMCACHED, name, image, more, inherited }
}

fn service(memcached: &Memcached) -> ServiceSpec {
    ServiceSpec {
        cluster_ip: InternedStr::new("None"),
        selector: selector(memcached),
        ports: [ServicePort {
            port: memcached.spec.port(),
            protocol: InternedStr::new("TCP"),
            name: InternedStr::new(MEMCACHED),
            target_port: Some(TargetPort::Name(InternedStr::new(MEMCACHED))),
            ..ServicePort::default()
        }]
        .into(),
        ..ServiceSpec::default()
    }
}

// === Reconcile ===

/// The operator removes it once it has reported that a Memcached is being deleted.
pub const FINALIZER: &str = "cache.example.com/finalizer";

/// Has a Memcached's children be as desired, and reports how it is.
///
/// # Errors
/// If the finalizer, a child or the status cannot be written.
pub async fn reconcile(
    memcached: Arc<Memcached>,
    cx: Context<Memcached>,
    (settings, pace): (Settings, Pace),
    observer: Observer,
) -> Result<Action, Problem> {
    if is_paused(&memcached.meta) {
        let listed = Some(nodes(&cx)?.len());
        let looking = |_: &Deployment| Looking { listed, ..Looking::default() };
        let (health, again) = observer.paused(&cx, own(&cx)?.as_deref(), looking).await;
        return Ok(sooner(report_only(&cx, health, None).await?, again));
    }
    let images = match Images::chosen(&memcached.spec, &settings) {
        Ok(images) => images,
        Err(missing) => {
            let health = Health::new(Level::Stalled, Reason::ImageMissing, missing);
            return report_only(&cx, health, Some(missing.to_owned())).await;
        }
    };
    if let Err(problem) = to_report(cx.add_finalizer(FINALIZER).await)? {
        // Nothing is created without it.
        let failure = own::<_, DeploymentSpec>(&cx)?.is_none().then(|| problem.to_string());
        report_only(&cx, Health::of_problem(&problem), failure).await?;
        return Err(problem.reported());
    }
    let given = pace.give(&cx, &settings, images)?;
    let children = desired(&memcached, &given.images);
    let deployment = to_report(children.deployment.ensure(&cx).await)?;
    match &deployment {
        Ok(made) if given.is_final() => pace.applied(cx.key(), &given.images, made),
        Err(problem) if problem.api_error().is_some() => pace.refused(cx.key()),
        Ok(_) | Err(_) => {}
    }
    let service = to_report(children.service.ensure(&cx).await)?;
    let budget = to_report(ensure_or_prune(children.budget.as_ref(), &cx).await)?;
    let nodes = nodes(&cx)?;
    let looking = Looking { listed: Some(nodes.len()), ..Looking::default() };
    let (settled, again) = observer.health(&cx, &deployment, |_| looking).await;
    let health = settled.and(Health::of_result(&service)).and(Health::of_result(&budget));
    let health = given.told(health.aged(&*memcached, Time::now()));
    let failure = deployment.as_ref().err().and_then(failure);
    let child = there(&deployment, &cx)?;
    let found = Found { deployment: child.as_deref(), nodes, health: health.clone(), failure };
    let reported = report(&cx, &status(&memcached, found, Time::now()), &health).await?;
    let outcome = outcome([deployment.map(drop), service.map(drop), budget])?;
    Ok(sooner(sooner(sooner(reported, again), given.again()), outcome))
}

/// Why the Deployment is not as desired, if a write failed, the name is taken, or a field cannot be
/// changed. One that is contested or awaited exists, and may well serve.
pub(super) fn failure(problem: &Problem) -> Option<String> {
    let exists = matches!(problem, Problem::Terminating(_) | Problem::Contested { .. });
    (!exists).then(|| Health::of_problem(problem).message)
}

/// Reports the health of a Memcached for which nothing else is written.
async fn report_only(
    cx: &Context<Memcached>,
    health: Health,
    failure: Option<String>,
) -> Result<Action, Problem> {
    let (deployment, nodes) = (own(cx)?, nodes(cx)?);
    let found = Found { deployment: deployment.as_deref(), nodes, health: health.clone(), failure };
    report(cx, &status(cx.object(), found, Time::now()), &health).await
}

/// The names of the pods that serve.
fn nodes(cx: &Context<Memcached>) -> Result<Vec<InternedStr>, Problem> {
    let key = cx.key();
    let pods = cx.store::<Pod>()?.by_index(BY_MEMCACHED, &key.to_string())?;
    let serving = pods.iter().filter(|pod| pod.serves(key.name()));
    Ok(serving.map(|pod| pod.key().name().clone()).collect())
}

/// Reports that a Memcached is being deleted, before its finalizer is removed. Its children are left to
/// the garbage collector. This happens even if it is paused: a deletion is never held up.
///
/// # Errors
/// If it could not be reported.
pub async fn finalize(memcached: Arc<Memcached>, cx: Context<Memcached>) -> Result<(), Problem> {
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

#[cfg(test)]
mod tests;
#[cfg(test)]
mod reconciles;
