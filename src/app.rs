//! App: a Deployment and, while there are ports, a Service, both with its name.

pub(crate) mod spec;
mod pod;

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Value, json};

use crate::controller::{Action, ReconcileError};
use crate::manager::Context;
use crate::object::{InternedStr, Meta};
use crate::workload::child::Desired;
use crate::workload::condition::{self, Time, Type, Wanted, merge};
use crate::workload::custom_resource::{Switches, custom, is_paused};
use crate::workload::deployment::with_deadline;
use crate::workload::health;
use crate::workload::labels::{APP_V1, Identity, selector_text};
use crate::workload::observer::Observer;
use crate::workload::pod_template::{object, refusal};
use crate::workload::reason::Reason;
use crate::workload::reconciliation::{Found, Reconciliation};
use crate::workload::services::{Service, ServicePort, ServiceSpec};
use crate::workload::{BudgetSpec, ChildCondition, Deployment, DeploymentSpec, REVISIONS};

use pod::protocol;
pub use spec::{Spec, Status};

// === View ===

/// An App.
#[derive(Debug, Clone, Deserialize)]
pub struct App {
    /// Metadata.
    #[serde(rename = "metadata")]
    pub meta: Meta<Switches>,
    /// The desired state.
    pub spec: Spec,
    /// The status last written.
    #[serde(default)]
    pub status: Status,
}

crate::view!(App { meta: Meta<Switches> }: crate::workload::APP);
custom!(App);

// === Children ===

/// The owned objects of an App.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Children {
    /// The Deployment of its pods.
    pub deployment: Desired<DeploymentSpec>,
    /// The Service; `None` without ports.
    pub service: Option<Desired<ServiceSpec>>,
    /// The limit of evictions during a drain; `None` if there is none.
    pub budget: Option<Desired<BudgetSpec>>,
}

/// Returns the owned objects of `app`.
pub fn desired(app: &App) -> Children {
    let identity = identity(app);
    let (labels, selector) = (identity.labels(), identity.selector());
    let template = pod::template(&identity, app);
    let deployment = object([
        ("replicas", json!(app.spec.replicas)),
        ("selector", json!({ "matchLabels": selector })),
        ("strategy", strategy(&app.spec, &template["spec"])),
        ("minReadySeconds", json!(app.spec.min_ready_seconds.filter(|seconds| *seconds > 0))),
        ("revisionHistoryLimit", json!(REVISIONS)),
        ("template", template),
    ]);
    let service = (!app.spec.ports.is_empty()).then(|| {
        let service = object([
            ("type", json!(service_type(&app.spec.ports))),
            ("selector", json!(selector)),
            ("ports", json!(service_ports(&app.spec.ports))),
        ]);
        Desired::new(labels.clone(), service)
            .with_template(&app.spec.service_template, &["selector"])
    });
    let budget = app.spec.pod_disruption_budget.as_ref();
    let budget = budget.and_then(|settings| settings.desired(&selector));
    let budget = budget.map(|spec| Desired::new(labels.clone(), spec));
    Children { deployment: Desired::new(labels, with_deadline(deployment)), service, budget }
}

/// Returns the strategy of rollouts. With a PersistentVolumeClaim that `pod` can write to, the default is Recreate: a
/// new pod on another node could wait for the volume forever, because the old pod terminates only after the new pod is
/// ready. The surge is always sent: a change to Recreate removes only what the operator has set.
fn strategy(spec: &Spec, pod: &Value) -> Value {
    let mut strategy = match spec.strategy.set() {
        Value::Null if writes_to_a_claim(pod) => json!({ "type": "Recreate" }),
        Value::Null => json!({}),
        chosen => chosen,
    };
    if let Some(fields) = strategy.as_object_mut()
        && fields.entry("type").or_insert(json!("RollingUpdate")) == "RollingUpdate"
        && let Some(pace) = fields.entry("rollingUpdate").or_insert(json!({})).as_object_mut()
    {
        pace.entry("maxSurge").or_insert(json!("25%"));
    }
    strategy
}

fn writes_to_a_claim(pod: &Value) -> bool {
    let items = |list: &Value| list.as_array().cloned().unwrap_or_default();
    let containers = items(&pod["containers"]).into_iter().chain(items(&pod["initContainers"]));
    let mut mounts = containers
        .flat_map(|it| items(&it["volumeMounts"]).into_iter().chain(items(&it["volumeDevices"])));
    let claims = items(&pod["volumes"]).into_iter().filter(|volume| {
        let claim = &volume["persistentVolumeClaim"];
        claim.is_object() && claim["readOnly"] != true
    });
    let claims: Vec<Value> = claims.map(|volume| volume["name"].clone()).collect();
    mounts.any(|mount| mount["readOnly"] != true && claims.contains(&mount["name"]))
}

/// Returns `NodePort` if a port requests a node port, else an empty type, which keeps the type that another
/// client sets.
fn service_type(ports: &[ServicePort]) -> &'static str {
    if ports.iter().any(|port| port.node_port != 0) { "NodePort" } else { "" }
}

/// Keeps the type `LoadBalancer` if another client has set it: a load balancer has node ports, too, and a
/// change would release its address. A Service of type `ExternalName` is reset, so that it routes to the pods
/// again.
fn keep_type(wanted: &mut Desired<ServiceSpec>, there: Option<&Service>) {
    match there.map(|there| &*there.spec.kind) {
        Some("LoadBalancer") => {
            wanted.spec.as_object_mut().into_iter().for_each(|spec| drop(spec.remove("type")));
        }
        Some("ExternalName") if wanted.spec["type"].is_null() => {
            wanted.spec["type"] = json!("ClusterIP");
        }
        _ => {}
    }
}

fn identity(app: &App) -> Identity<'_> {
    let (name, image) = (app.meta.key.name(), Some(app.spec.image.as_str()));
    Identity {
        kind: "app",
        program: name,
        label: APP_V1,
        name,
        image,
        more: Vec::new(),
        inherited: &app.meta.labels,
    }
}

/// Returns the ports in the form of the API: with their protocol and, if there are several, a name.
fn service_ports(ports: &[ServicePort]) -> Box<[ServicePort]> {
    let taken: BTreeSet<&str> = ports.iter().map(|port| port.name.as_str()).collect();
    let named = ports.iter().map(|port| {
        let mut port = ServicePort { protocol: protocol(port), ..port.clone() };
        if ports.len() > 1 && port.name.is_empty() {
            port.name = free_name(&port, &taken);
        }
        port
    });
    named.collect()
}

/// Returns `tcp-8080` or, if another port has that name, `tcp-8080-2`, and so on. Kubernetes accepts no two ports with the
/// same number and protocol, so no two get the same name, whatever the order of the ports.
fn free_name(port: &ServicePort, taken: &BTreeSet<&str>) -> InternedStr {
    let name = format!("{}-{}", port.protocol.to_lowercase(), port.port);
    let candidates = std::iter::once(name.clone()).chain((2..).map(|n| format!("{name}-{n}")));
    let mut free = candidates.filter(|name| !taken.contains(name.as_str()));
    free.next().expect("of infinitely many names one is not taken").into()
}

// === Status ===

/// Returns the status to store: that of the Deployment, if the App controls it, and the health. Its generation
/// is the App's, as for every custom resource, so no field can come from a Deployment of an older generation.
pub fn status(app: &App, found: &Found<'_, DeploymentSpec>, now: Time) -> Status {
    let generation = app.meta.generation;
    let health = &found.health;
    let observed = found.workload.is_some_and(Deployment::is_observed);
    let current = observed && found.is_as_desired;
    let counts = found.workload.map(|deployment| deployment.status.clone()).unwrap_or_default();
    let inlined = |kind| counts.conditions.iter().find_map(|condition| inlined(condition, kind));
    let waiting = |kind: Type| {
        let message = "Waiting for the Deployment controller";
        kind.is(condition::Status::Unknown, Reason::RollingOut, message)
    };
    let mut wanted = health.summary();
    // The order is fixed, because the Deployment's own order depends on its history.
    if current {
        let kinds = [Type::Available, Type::Progressing, Type::ReplicaFailure];
        wanted.extend(kinds.into_iter().filter_map(inlined));
    } else if found.workload.is_some() {
        // Pods serve, even if they will be replaced.
        wanted.push(inlined(Type::Available).unwrap_or_else(|| waiting(Type::Available)));
        wanted.push(if observed { health.progressing() } else { waiting(Type::Progressing) });
    }
    wanted.push(health.degraded());
    Status {
        observed_generation: generation,
        replicas: counts.replicas,
        updated_replicas: if current { counts.updated_replicas } else { 0 },
        ready_replicas: counts.ready_replicas,
        available_replicas: counts.available_replicas,
        unavailable_replicas: if current {
            counts.unavailable_replicas
        } else {
            app.spec.replicas.saturating_sub(counts.available_replicas).max(0)
        },
        selector: InternedStr::from(selector_text(&identity(app).selector())),
        conditions: merge(&app.status.conditions, wanted, generation, now),
    }
}

/// Returns a condition of the Deployment as a condition of the App, if it has this type.
fn inlined(condition: &ChildCondition, kind: Type) -> Option<Wanted> {
    if condition.kind != kind.as_str() {
        return None;
    }
    // Our schema requires a reason, unlike the Deployment's.
    let reason = if condition.reason.is_empty() {
        InternedStr::new(Reason::Reconciling.as_str())
    } else {
        condition.reason.clone()
    };
    Some(Wanted {
        kind,
        status: condition.status,
        reason,
        message: condition.message.to_string(),
        since: condition.last_transition_time,
    })
}

// === Reconcile ===

/// Reconciles an App: applies its objects and writes its status. The garbage collector deletes the objects of
/// an App that is being deleted.
///
/// # Errors
/// If an object or the status cannot be written.
pub async fn reconcile(
    app: Arc<App>,
    cx: Context<App>,
    allow_templates: bool,
    observer: Observer,
) -> Result<Action, ReconcileError> {
    let mut children = desired(&app);
    let mut run = Reconciliation::new(&cx, &observer)?;
    let health = if is_paused(&app.meta) {
        run.compare(&children.deployment)?;
        run.observe_paused(health::Context::default()).await
    } else if let Some(refusal) =
        refusal(allow_templates, &[&app.spec.pod_template, &app.spec.service_template])
    {
        run.compare(&children.deployment)?;
        refusal
    } else {
        run.apply(&children.deployment).await?;
        let has_no_type = app.spec.service_template.set()["spec"]["type"].is_null();
        if let Some(service) = children.service.as_mut().filter(|_| has_no_type) {
            // Also for a Service that will be adopted. Another owner's Service shows no type.
            keep_type(service, cx.get::<Service>(cx.key())?.as_deref());
        }
        run.apply_or_prune(children.service.as_ref()).await?;
        run.apply_or_prune(children.budget.as_ref()).await?;
        run.observe(health::Context::default()).await
    };
    let status = status(&app, &run.found(&health), Time::now());
    run.report(&status, &health).await
}

#[cfg(test)]
mod tests;
