//! Memcached: a Deployment and a headless Service, both with its name.
//!
//! Has to be wired to
//! - informer of [`Memcached`]: enqueue the object itself;
//! - informer of `Deployment`, of all of them (a foreign one may have the name): enqueue the
//!   controlling Memcached (`enqueue::for_owner`), and the one that waits for its name
//!   (`enqueue::for_freed_name`);
//! - informer of `Service`: the same;
//! - informer of [`Pod`], metadata only, with [`Pod::scope`] and [`Pod::index`]: enqueue
//!   [`Pod::memcached`] (`enqueue::for_mapped`).

use std::sync::Arc;

use futures::StreamExt;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::Settings;
use super::child::Made;
use super::condition::{self, Condition, Time, Type, Wanted, settle};
use super::custom::{Custom, Switches, custom, is_paused};
use super::error::{Diagnosis, Error, diagnose, is_to_be_told};
use super::hands::{Hands, Looking, Outcome, Parent, sooner};
use super::health::{Health, Level, completed};
use super::identity::{self, APP, Identity, MEMCACHED_CR, selector_text};
use super::pod::{BY_MEMCACHED, Pod};
use super::reason::{Action as Act, Reason};
use super::service::{Service, ServicePort, ServiceSpec, TargetPort};
use super::workload::{
    Amount, Capabilities, Container, ContainerPort, ContainerSecurity, Deployment, DeploymentSpec,
    PodMeta, PodSecurity, PodSpec, PodTemplate, Probe, Quantities, Resources, RollingUpdate,
    Seccomp, Selector, Strategy, TcpSocket,
};
use crate::controller::{Action, Reconciler};
use crate::events;
use crate::object::{Kind, Labels, Meta, Object, ObjectKey, Quantity, Text};
use crate::store::Store;

// === View ===

/// A Memcached.
#[derive(Debug, Clone, Deserialize)]
pub struct Memcached {
    /// Metadata.
    #[serde(rename = "metadata")]
    pub meta: Meta<Switches>,
    /// The desired state.
    #[serde(default)]
    pub spec: Spec,
    /// The status last written.
    #[serde(default)]
    pub status: Status,
}

/// The desired state.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Spec {
    /// The number of instances.
    pub size: i32,
    /// Their port.
    pub container_port: i32,
}

/// The observed state. It is written as a whole, so every field is always present.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Status {
    /// The generation that the status refers to.
    pub observed_generation: i64,
    /// The number of pods.
    pub size: i32,
    /// The number of ready pods.
    pub ready_replicas: i32,
    /// Selects the pods.
    pub selector: Text,
    /// The names of the pods, sorted.
    pub nodes: Box<[Text]>,
    /// The conditions.
    pub conditions: Box<[Condition]>,
}

/// The default port, of memcached itself and of the schema.
const DEFAULT_PORT: i32 = 11211;

impl Default for Spec {
    fn default() -> Spec {
        Spec { size: 1, container_port: DEFAULT_PORT }
    }
}

crate::view!(Memcached { meta: Meta<Switches> }: Kind::namespaced("cache.example.com", "v1alpha1", "Memcached", "memcacheds"));
custom!(Memcached);

// === Children ===

/// The values of `app.kubernetes.io/name` and `app`, and the names of the container and its port.
const MEMCACHED: &str = "memcached";
/// Any non-root user will do; this is the one that people are used to.
const USER: i64 = 1001;

/// The children of a Memcached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Children {
    /// The instances.
    pub deployment: Made<DeploymentSpec>,
    /// How clients find them.
    pub service: Made<ServiceSpec>,
}

/// The children of `memcached` with this image.
pub fn desired(memcached: &Memcached, image: &Text) -> Children {
    let identity = identity(memcached, Some(image));
    let labels = identity.labels();
    let deployment = DeploymentSpec {
        replicas: memcached.spec.size,
        selector: Selector { match_labels: identity.selector() },
        // Never more pods than requested, not even during an update of the template.
        strategy: Some(Strategy {
            kind: Text::new("RollingUpdate"),
            rolling_update: Some(RollingUpdate {
                max_surge: Amount::Number(0),
                max_unavailable: Amount::Number(1),
            }),
        }),
        template: PodTemplate {
            metadata: PodMeta { labels: identity.pod_labels() },
            spec: pod(memcached.spec.container_port, image),
        },
        paused: false,
    };
    Children {
        deployment: Made { labels: labels.clone(), spec: deployment },
        service: Made { labels, spec: service(memcached) },
    }
}

/// The label that selects the pods.
fn selector(memcached: &Memcached) -> Labels {
    identity(memcached, None).selector()
}

fn identity<'a>(memcached: &'a Memcached, image: Option<&'a Text>) -> Identity<'a> {
    let name = memcached.meta.key.name();
    // Memcached's users identify the pods by these two labels.
    let more = vec![(APP, MEMCACHED), (MEMCACHED_CR, name.as_str())];
    let image = image.map(Text::as_str);
    Identity { kind: MEMCACHED, label: identity::MEMCACHED, name, image, more }
}

/// A pod that Pod Security `restricted` admits.
fn pod(port: i32, image: &Text) -> PodSpec {
    let texts = |words: &[&str]| words.iter().map(|word| Text::new(word)).collect::<Vec<_>>();
    let mut command = texts(&["memcached", "-m=64", "-o", "modern", "-v"]);
    if port != DEFAULT_PORT {
        command.extend([Text::new("-p"), Text::from(port.to_string())]);
    }
    let container = Container {
        name: Text::new(MEMCACHED),
        image: image.clone(),
        image_pull_policy: Text::new("IfNotPresent"),
        command: command.into(),
        // memcached reads `-m=64` as `-m 0`, and 1.6 does not start with so little memory
        // ("Cannot set item size limit higher than 1/2 of memory max"). The last limit given
        // counts, which is this one; it is in the short form because 1.4 knows no other.
        args: texts(&["-m", "64"]).into(),
        ports: [ContainerPort {
            container_port: port,
            protocol: Text::new("TCP"),
            name: Text::new(MEMCACHED),
        }]
        .into(),
        resources: resources(),
        readiness_probe: Some(Box::new(Probe {
            tcp_socket: Some(TcpSocket { port: TargetPort::Name(Text::new(MEMCACHED)) }),
            ..Probe::default()
        })),
        security_context: Some(Box::new(ContainerSecurity {
            run_as_non_root: Some(true),
            run_as_user: Some(USER),
            allow_privilege_escalation: Some(false),
            capabilities: Some(Capabilities {
                drop: texts(&["ALL"]).into(),
                ..Capabilities::default()
            }),
            ..ContainerSecurity::default()
        })),
        ..Container::default()
    };
    PodSpec {
        containers: [container].into(),
        security_context: Some(PodSecurity {
            run_as_non_root: Some(true),
            seccomp_profile: Some(Seccomp { kind: Text::new("RuntimeDefault") }),
        }),
        // memcached does not talk to the API server.
        automount_service_account_token: Some(false),
        ..PodSpec::default()
    }
}

/// What an instance needs, measured with memcached 1.6.18 and `-m 64` on 64-bit Linux. Filled with
/// items of 10 bytes to 500 kB it takes 73 to 77 MiB: beside the items 4 MiB of hash table, a page
/// of 1 MiB per size class, and the program. A thousand connections take 2 MiB more. The request
/// covers both; the limit leaves room for answers that clients are slow to read. A request of a
/// client takes about 24 µs of processor time, so 100m are 4,000 a second. There is no limit for
/// the processor, which would only make clients wait.
fn resources() -> Resources {
    let amounts = |amounts: &[(&str, &str)]| {
        let amount = |(name, amount): &(&str, &str)| (Text::new(name), Quantity::new(amount));
        Quantities(amounts.iter().map(amount).collect())
    };
    Resources {
        limits: amounts(&[("memory", "128Mi")]),
        requests: amounts(&[("cpu", "100m"), ("memory", "96Mi")]),
    }
}

fn service(memcached: &Memcached) -> ServiceSpec {
    ServiceSpec {
        cluster_ip: Text::new("None"),
        selector: selector(memcached),
        ports: [ServicePort {
            port: memcached.spec.container_port,
            protocol: Text::new("TCP"),
            name: Text::new(MEMCACHED),
            target_port: Some(TargetPort::Name(Text::new(MEMCACHED))),
            ..ServicePort::default()
        }]
        .into(),
        ..ServiceSpec::default()
    }
}

// === Status ===

/// The most pods that are named: as many as the schema allows, more than five times what a
/// Memcached may have.
const MAX_NODES: usize = 16;

/// What a pass found.
#[derive(Debug)]
pub struct Found<'a> {
    /// The Deployment, if the Memcached controls it.
    pub deployment: Option<&'a Deployment>,
    /// The names of its pods.
    pub nodes: Vec<Text>,
    /// The health of the whole.
    pub health: Health,
    /// Why the Deployment is not as desired, if it is not.
    pub failure: Option<String>,
}

/// The status to store.
pub fn status(memcached: &Memcached, found: Found<'_>, now: Time) -> Status {
    let generation = memcached.meta.generation;
    let mut wanted = found.health.summary();
    wanted.push(available(memcached, &found));
    wanted.push(found.health.progressing());
    wanted.push(found.health.degraded());
    let counts = found.deployment.map(|deployment| &deployment.status);
    let mut nodes = found.nodes;
    nodes.sort();
    nodes.truncate(MAX_NODES);
    Status {
        observed_generation: generation,
        size: counts.map_or(0, |counts| counts.replicas),
        ready_replicas: counts.map_or(0, |counts| counts.ready_replicas),
        selector: Text::from(selector_text(&selector(memcached))),
        nodes: nodes.into(),
        conditions: settle(&memcached.status.conditions, wanted, generation, now),
    }
}

/// The status while the finalizer is at work or, if `done`, has finished. Nothing else is looked
/// at any more.
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
        conditions: settle(&memcached.status.conditions, wanted, generation, now),
        ..memcached.status.clone()
    }
}

/// The condition Available: whether as many replicas as wanted can be used.
fn available(memcached: &Memcached, found: &Found<'_>) -> Wanted {
    let name = memcached.meta.key.name();
    let size = memcached.spec.size;
    let no = condition::Status::False;
    let Some(deployment) = found.deployment else {
        let Some(why) = &found.failure else {
            return Type::Available.is(no, Reason::Reconciling, &*found.health.message);
        };
        let message =
            format!("Failed to create Deployment for the custom resource ({name}): ({why})");
        return Type::Available.is(no, Reason::Reconciling, message);
    };
    if !deployment.is_observed() {
        let message = "Waiting for the Deployment controller";
        return Type::Available.is(condition::Status::Unknown, Reason::Reconciling, message);
    }
    // What serves counts, not the last write.
    let count = deployment.status.available_replicas;
    if count >= size {
        let message = format!(
            "Deployment for custom resource ({name}) with {size} replicas created successfully"
        );
        return Type::Available.is(condition::Status::True, Reason::Reconciling, message);
    }
    if let Some(why) = &found.failure {
        let message =
            format!("Failed to update the size for the custom resource ({name}): ({why})");
        return Type::Available.is(no, Reason::Resizing, message);
    }
    let message = format!("{count} of {size} replicas are available");
    Type::Available.is(no, Reason::Reconciling, message)
}

// === Reconcile ===

/// The operator removes it once it has reported that a Memcached is being deleted.
pub const FINALIZER: &str = "cache.example.com/finalizer";

/// The message if `MEMCACHED_IMAGE` is not set or empty.
const NO_IMAGE: &str = "Unable to find MEMCACHED_IMAGE environment variable with the image";

/// How many finalizers are removed at once when the operator ends.
const RELEASED_AT_ONCE: usize = 16;

/// The stores that the reconciler reads.
#[derive(Clone)]
pub struct Stores {
    /// Memcacheds.
    pub memcacheds: Store<Memcached>,
    /// Deployments.
    pub deployments: Store<Deployment>,
    /// Services.
    pub services: Store<Service>,
    /// Pods of Memcacheds, with the index [`BY_MEMCACHED`].
    pub pods: Store<Pod>,
}

/// Reconciles Memcacheds.
#[derive(Clone)]
pub struct MemcachedReconciler {
    stores: Stores,
    hands: Hands,
    settings: Settings,
}

/// The operations that remove the finalizer at this position, if it is there.
fn removal(at: usize) -> Vec<Value> {
    let path = format!("/metadata/finalizers/{at}");
    vec![
        json!({ "op": "test", "path": path, "value": FINALIZER }),
        json!({ "op": "remove", "path": path }),
    ]
}

// === impl MemcachedReconciler ===

impl Reconciler for MemcachedReconciler {
    type Error = Error;

    async fn reconcile(&self, key: &ObjectKey) -> Result<Action, Error> {
        let Some(memcached) = self.stores.memcacheds.get(key) else { return Ok(Action::Done) };
        let pass = if memcached.meta.deleting {
            self.finalize(&memcached).await.map(|()| Action::Done)
        } else if is_paused(&memcached.meta) {
            self.report_only(&memcached, Health::paused(completed(&*memcached)), None).await
        } else {
            self.bring_about(&memcached).await
        };
        match pass {
            Err(error) if diagnose(&error.source) == Diagnosis::NamespaceGoing => Ok(Action::Done),
            Err(error) => Err(error),
            Ok(action) => Ok(action),
        }
    }
}

impl MemcachedReconciler {
    /// A reconciler over these stores.
    pub fn new(stores: Stores, hands: Hands, settings: Settings) -> MemcachedReconciler {
        MemcachedReconciler { stores, hands, settings }
    }

    async fn bring_about(&self, memcached: &Memcached) -> Result<Action, Error> {
        let image = self.settings.memcached_image.as_ref().filter(|image| !image.is_empty());
        let Some(image) = image else {
            let health = Health::new(Level::Stalled, Reason::ImageMissing, NO_IMAGE);
            return self.report_only(memcached, health, Some(NO_IMAGE.to_owned())).await;
        };
        let with_finalizer;
        let memcached = if memcached.meta.finalizers.iter().any(|name| name == FINALIZER) {
            memcached
        } else {
            with_finalizer = match self.add_finalizer(memcached).await {
                Ok(memcached) => memcached,
                Err(error) => return Err(self.report_no_finalizer(memcached, error).await?),
            };
            &*with_finalizer
        };
        let carried_out = memcached.is_observed();
        let parent = Parent::new(memcached).carried_out(carried_out);
        let children = desired(memcached, image);
        let (hands, stores) = (&self.hands, &self.stores);
        let child_missing = stores.deployments.get(&parent.key).is_none()
            || stores.services.get(&parent.key).is_none();
        if carried_out && child_missing && !hands.is_still(&stores.memcacheds, memcached).await? {
            return Ok(Action::Done);
        }
        let deployment = hands.settle(&parent, &stores.deployments, &children.deployment).await?;
        let service = hands.settle(&parent, &stores.services, &children.service).await?;
        let nodes = self.nodes(memcached);
        let (settled, again) = match &deployment {
            Outcome::Settled(child) => {
                let looking = Looking { listed: Some(nodes.len()), ..Looking::default() };
                hands.observe(memcached, child, looking).await
            }
            _ => (Health::paused(false), Action::Done),
        };
        let health = deployment
            .health(&parent, settled)
            .and(service.health(&parent, Health::ready(Reason::AsExpected, "")));
        let failure = deployment.failure(&parent);
        let child = deployment.child(&parent, &stores.deployments);
        let found = Found { deployment: child.as_deref(), nodes, health, failure };
        let reported = sooner(self.report_status(memcached, &parent, found).await?, again);
        Ok(sooner(reported, sooner(deployment.into_result()?, service.into_result()?)))
    }

    /// Reports that the Memcached is being deleted, then lets it go. Its children are left to the
    /// garbage collector. This happens even if it is paused: a deletion is never held up.
    async fn finalize(&self, memcached: &Memcached) -> Result<(), Error> {
        let Some(at) = memcached.meta.finalizers.iter().position(|name| name == FINALIZER) else {
            return Ok(());
        };
        let store = &self.stores.memcacheds;
        let mut told = None;
        if finalizing(memcached, true, Time::now()) != memcached.status {
            let begun = finalizing(memcached, false, Time::now());
            let Some(begun) = self.hands.write_status(store, memcached, &begun).await? else {
                return Ok(());
            };
            let key = memcached.key();
            let note = format!(
                "Custom Resource {} is being deleted from the namespace {}",
                key.name(),
                key.namespace()
            );
            let (parent, warning) = (Parent::new(memcached), events::Type::Warning);
            self.hands.publish_event(&parent, warning, Reason::Deleting, Act::Finalize, &note);
            let accomplished = finalizing(&begun, true, Time::now());
            told = self.hands.write_status(store, &*begun, &accomplished).await?;
            if told.is_none() {
                return Ok(());
            }
        }
        let memcached = told.as_deref().unwrap_or(memcached);
        match self.hands.patch_exactly(memcached, removal(at)).await {
            Ok(left) if left.meta.finalizers.is_empty() => {
                store.removed(left.key(), left.uid());
                Ok(())
            }
            Ok(left) => {
                store.wrote(left);
                Ok(())
            }
            Err(error) if diagnose(&error.source) == Diagnosis::Gone => Ok(()),
            Err(error) => {
                // The status says that all is done but this.
                if is_to_be_told(&error.source) {
                    let health = Health::of_failure(&error);
                    self.hands.publish_trouble(&Parent::new(memcached), memcached, &health);
                }
                Err(error)
            }
        }
    }

    /// Removes the finalizers of all Memcacheds in `namespace` if it is being deleted. Called when
    /// the operator that runs in it ends: nobody would remove them afterwards, and all that they
    /// stand for is a report.
    pub async fn release(&self, namespace: &str) {
        let finalized = |memcached: &Arc<Memcached>| {
            let at = memcached.meta.finalizers.iter().position(|name| name == FINALIZER)?;
            (memcached.key().namespace() == namespace).then(|| (memcached.clone(), at))
        };
        let all: Vec<_> = self.stores.memcacheds.list().iter().filter_map(finalized).collect();
        if all.is_empty() || !self.hands.is_terminating(namespace).await {
            return;
        }
        tracing::info!(
            namespace,
            memcacheds = all.len(),
            "Removing finalizers: it is being deleted"
        );
        let remove = |(memcached, at): (Arc<Memcached>, usize)| async move {
            if let Err(error) = self.hands.patch(&*memcached, removal(at)).await {
                tracing::warn!(object = %memcached.key(), %error, "The finalizer stays");
            }
        };
        futures::stream::iter(all).for_each_concurrent(RELEASED_AT_ONCE, remove).await;
    }

    async fn add_finalizer(&self, memcached: &Memcached) -> Result<Arc<Memcached>, Error> {
        let operation = if memcached.meta.finalizers.is_empty() {
            json!({ "op": "add", "path": "/metadata/finalizers", "value": [FINALIZER] })
        } else {
            json!({ "op": "add", "path": "/metadata/finalizers/-", "value": FINALIZER })
        };
        let answer = self.hands.patch_exactly(memcached, vec![operation]).await?;
        Ok(self.stores.memcacheds.wrote(answer))
    }

    /// Reports that the finalizer could not be added, without which nothing is created for a
    /// Memcached. Returns the error.
    async fn report_no_finalizer(
        &self,
        memcached: &Memcached,
        error: Error,
    ) -> Result<Error, Error> {
        if is_to_be_told(&error.source) {
            let deployment = Parent::new(memcached).own(&self.stores.deployments);
            let failure = deployment.is_none().then(|| error.to_string());
            self.report_only(memcached, Health::of_failure(&error), failure).await?;
        }
        Ok(error)
    }

    /// Writes the status if it has changed, and publishes trouble that has begun.
    async fn report_status(
        &self,
        memcached: &Memcached,
        parent: &Parent,
        found: Found<'_>,
    ) -> Result<Action, Error> {
        let health = found.health.clone();
        let now = status(memcached, found, Time::now());
        self.hands.report(parent, &self.stores.memcacheds, memcached, &now, &health).await
    }

    /// Reports the health of a Memcached for which nothing else is written.
    async fn report_only(
        &self,
        memcached: &Memcached,
        health: Health,
        failure: Option<String>,
    ) -> Result<Action, Error> {
        let parent = Parent::new(memcached);
        let deployment = parent.own(&self.stores.deployments);
        let nodes = self.nodes(memcached);
        let found = Found { deployment: deployment.as_deref(), nodes, health, failure };
        self.report_status(memcached, &parent, found).await
    }

    fn nodes(&self, memcached: &Memcached) -> Vec<Text> {
        let key = memcached.key();
        let pods = self.stores.pods.by_index(BY_MEMCACHED, &key.to_string());
        let pods = pods.expect("the store of pods is made with Pod::index");
        let serving = pods.iter().filter(|pod| pod.serves(key.name()));
        serving.map(|pod| pod.key().name().clone()).collect()
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod passes;
