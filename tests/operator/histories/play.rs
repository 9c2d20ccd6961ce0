//! One history: a cluster, two processes of the operator with a Lease, and the steps.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use clap::Parser;
use controller_machinery::client::Client;
use controller_machinery::testing::{Cluster, Id, PodState, Server, refusal};
use http::{Method, Request};
use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{Instant, sleep};
use tower::Service;
use workload_operator::cli::Cli;
use workload_operator::manager::{Lease, Manager};
use workload_operator::memcached::Pace;
use workload_operator::operator::add_controllers;
use workload_operator::shutdown::Shutdown;

use super::equal;
use super::laws;
use super::steps::{Act, Cascade, PAUSED, Pods, Refusal, SLOTS, Slot, Step};
use crate::world::{
    APP, CRDS, DAEMON_SET, DEPLOYMENT, GENERIC_DAEMON, IDENTITY, Kind, LEASE, MEMCACHED, POD,
};

/// The annotation, and the name of the container, that the webhook adds.
pub const INJECTED: &str = "injected";

/// Time after which a status tells what is so.
const LATE: Duration = Duration::from_secs(150);

/// Maximum time from the end of all problems until every object is Ready and nothing is written any more.
const LONGEST: Duration = Duration::from_secs(7_200);

/// A history that is being played.
pub struct Play {
    pub server: Server,
    cluster: Cluster,
    is_stopped: AtomicBool,
    processes: [Arc<Process>; 2],
    pods: Mutex<Pods>,
    image: Mutex<u8>,
    /// True if two processes elect a leader. Otherwise, there is one process.
    is_elected: bool,
    /// False if the operator's clock jumps.
    pub has_true_times: bool,
    /// True if the pauses between retries can begin again: two custom resources need the same owned objects, requests
    /// fail at random, or another process takes over.
    pub backoff_restarts: bool,
    /// The times at which a process was started.
    pub starts: Mutex<Vec<Duration>>,
    began: Instant,
    pub admission: Arc<Admission>,
}

/// What happens to the writes of the operator on their way.
#[derive(Default)]
pub struct Admission {
    /// Writes of a process while another one was the holder of the Lease.
    pub unfenced: Mutex<Vec<String>>,
    /// The resource whose writes are slow, and how long each takes.
    slow: Mutex<Option<(&'static str, Duration)>>,
}

/// One process of the operator.
struct Process {
    name: String,
    is_elected: bool,
    /// The number of its writes so far, and the one at which it is killed.
    writes: AtomicU64,
    kill_at: Mutex<Option<(u64, bool)>>,
    /// The write from which on its new connections hang, and for how long; the end of that.
    hang_at: Mutex<Option<(u64, Duration)>>,
    hangs_until: Mutex<Instant>,
    orders: UnboundedSender<Order>,
}

/// What happens to a process, and how long it then is away.
enum Order {
    Kill(Duration),
    Stop(Duration),
}

impl Play {
    /// Plays the steps, then ends all problems and waits until nothing changes any more. Then `then` runs.
    pub async fn run(server: Server, steps: &[Step], then: impl AsyncFnOnce(&Play)) {
        server.set_variation(true);
        for crd in CRDS.iter() {
            server.crd(crd).unwrap();
        }
        let cluster = Cluster::start(&server, 3);
        let (first, orders) = unbounded_channel();
        let (second, more_orders) = unbounded_channel();
        let is_elected = steps.iter().any(|step| matches!(step.act, Act::Elect));
        let process = |name: &str, orders| {
            Arc::new(Process {
                name: name.to_owned(),
                is_elected,
                writes: AtomicU64::new(0),
                kill_at: Mutex::new(None),
                hang_at: Mutex::new(None),
                hangs_until: Mutex::new(Instant::now()),
                orders,
            })
        };
        let play = Play {
            server,
            cluster,
            is_stopped: AtomicBool::new(false),
            processes: [process("one", first), process("two", second)],
            pods: Mutex::new(Pods::Ready),
            image: Mutex::new(1),
            is_elected,
            has_true_times: !steps.iter().any(|step| matches!(step.act, Act::Clock(_))),
            backoff_restarts: steps.iter().any(|step| {
                matches!(step.act, Act::Compete(_) | Act::Elect | Act::Rates(0.01.., _))
            }),
            starts: Mutex::default(),
            began: Instant::now(),
            admission: Arc::default(),
        };
        let story = async {
            let is_calm = !steps.iter().any(|step| step.act.disturbs());
            for step in steps {
                play.pass(step.pause).await;
                if is_calm && step.pause >= LATE {
                    laws::of_status(&play);
                }
                play.act(&step.act);
            }
            play.pass(Duration::from_secs(1)).await;
            play.heal();
            play.until_quiet().await;
            play.replace_pods().await;
            then(&play).await;
        };
        let mut receivers = [orders, more_orders];
        let [one, two] = &mut receivers;
        tokio::select! {
            biased;
            () = story => {}
            () = play.process(0, one) => {}
            () = play.process(1, two), if play.is_elected => {}
        }
    }

    // === The processes ===

    /// Runs a process of the operator, again and again.
    async fn process(&self, number: usize, orders: &mut UnboundedReceiver<Order>) {
        loop {
            self.starts.lock().push(self.began.elapsed());
            let shutdown = Shutdown::manual();
            let program = self.manager(number).program(|options| {
                let (server, process, admission) =
                    (self.server.clone(), self.processes[number].clone(), self.admission.clone());
                let service = tower::service_fn(move |request: Request<Bytes>| {
                    let (server, process, admission) =
                        (server.clone(), process.clone(), admission.clone());
                    async move { process.send(server, request, &admission).await }
                });
                Client::from_service(service, options)
            });
            let running = program.await.unwrap().run(shutdown.clone());
            let mut running = Box::pin(running);
            let down = tokio::select! {
                biased;
                order = orders.recv() => match order.unwrap() {
                    Order::Kill(down) => down,
                    Order::Stop(down) => {
                        shutdown.request();
                        tokio::select! {
                            biased;
                            _ = orders.recv() => {}
                            ended = running.as_mut() => ended.unwrap(),
                        }
                        down
                    }
                },
                ended = &mut running => panic!("a process has ended: {ended:?}"),
            };
            drop(running);
            sleep(down).await;
            // Whatever was to happen in the meantime has happened to a process that was down already.
            while orders.try_recv().is_ok() {}
        }
    }

    fn manager(&self, number: usize) -> Manager {
        let image = *self.image.lock();
        let flags = [
            "workload-operator".to_owned(),
            format!("--memcached-image=memcached:{image}"),
            "--memcached-exporter-image=exporter:1".to_owned(),
            "--allow-templates".to_owned(),
        ];
        let args = Cli::parse_from(flags).run;
        let pace = Pace::new(args.max_image_rollouts.unwrap_or_default());
        let mut manager = Manager::new(IDENTITY).instance(self.processes[number].name.as_str());
        if self.is_elected {
            manager = manager.leader_election(Lease::named("operator").namespace("system"));
        }
        add_controllers(manager, &args.workloads, &pace)
    }

    // === The steps ===

    /// Lets time pass. Pods that start slowly become ready meanwhile.
    async fn pass(&self, time: Duration) {
        let end = Instant::now() + time;
        loop {
            let Pods::Slow(seconds) = *self.pods.lock() else { break };
            let tick = Duration::from_secs(u64::from(seconds) / 4 + 1);
            if Instant::now() + tick >= end {
                break;
            }
            sleep(tick).await;
            self.set_pods(Pods::Slow(seconds));
        }
        tokio::time::sleep_until(end).await;
    }

    fn act(&self, act: &Act) {
        match act {
            Act::Spec(slot, spec) => self.set_spec(*slot, &spec.0),
            Act::Paused(slot, paused) => {
                let value = paused.then_some("true");
                let annotations = json!({PAUSED: value});
                self.patch(&slot.id(), json!({"metadata": {"annotations": annotations}}));
            }
            Act::Delete(slot, cascade) => self.delete(&slot.id(), *cascade),
            Act::EditChild(slot, kind, patch) => self.patch(&slot.child(*kind), patch.0.clone()),
            Act::DeleteChild(slot, kind, cascade) => self.delete(&slot.child(*kind), *cascade),
            Act::Disown(slot, kind) => {
                let none = json!({"metadata": {"ownerReferences": null}});
                self.patch(&slot.child(*kind), none);
            }
            Act::Occupy(slot, kind) => {
                self.server.remove(&slot.child(*kind));
                drop(self.server.create(&slot.child(*kind), foreign(*kind)));
            }
            Act::Refuse(kind, refusal) => self.refuse(*kind, *refusal),
            Act::Mutate(on) => self.mutate(*on),
            Act::Fault { verb, kind, number, fault } => {
                let resource = SLOTS[0].child(*kind).resource;
                self.server.fault(verb, &resource, *number, *fault);
            }
            Act::Rates(requests, frames) => self.server.faults(*requests, *frames),
            Act::Apply(slot, kind, fields) => {
                let mut fields = fields.0.clone();
                fields["apiVersion"] = json!(kind.api_version());
                fields["kind"] = json!(kind.name());
                drop(self.server.apply(&slot.child(*kind), "deployer", &fields));
            }
            Act::Compete(slot) => {
                let (kind, spec) = rival(*slot);
                let id = slot.child(kind);
                let object = json!({"apiVersion": kind.api_version(), "kind": kind.name(),
                    "metadata": {"name": id.name, "namespace": id.namespace}, "spec": spec});
                drop(self.server.create(&id, object));
            }
            Act::Compact => self.server.compact(),
            Act::Clock(ahead) => self.server.set_clock_ahead(*ahead),
            Act::Suspend(time) => self.server.suspend(*time),
            Act::Kill { process, down } => self.order(*process, Order::Kill(*down)),
            Act::Stop { process, down } => self.order(*process, Order::Stop(*down)),
            Act::KillAt { process, write, after } => {
                let process = &self.processes[*process];
                *process.kill_at.lock() = Some((process.number_of(*write), *after));
            }
            Act::HangAt { process, write, time } => {
                let process = &self.processes[*process];
                *process.hang_at.lock() = Some((process.number_of(*write), *time));
            }
            Act::Image(image) => {
                *self.image.lock() = *image;
                for process in 0..2 {
                    self.order(process, Order::Stop(Duration::from_secs(1)));
                }
            }
            act => self.act_on_nodes(act),
        }
    }

    fn act_on_nodes(&self, act: &Act) {
        match act {
            Act::Label(node, key, value) => {
                self.patch(&self::node(*node), json!({"metadata": {"labels": {*key: value}}}));
            }
            Act::Taint(node, tainted) => {
                let taint = json!([{"key": "dedicated", "value": "x", "effect": "NoSchedule"}]);
                let taints = if *tainted { taint } else { Value::Null };
                self.patch(&self::node(*node), json!({"spec": {"taints": taints}}));
            }
            Act::Full(node, full) => self.set_room(*node, full.then_some("1")),
            Act::Lose(node, lost) => {
                let ready = if *lost { "Unknown" } else { "True" };
                self.set_ready(*node, ready);
            }
            Act::RemoveNode(node) => self.server.delete(&self::node(*node)),
            Act::AddNode(node) => self.add_node(*node),
            Act::Pods(pods) => self.set_pods(*pods),
            Act::HoldPods => self.each_pod(|pod| {
                self.patch(pod, json!({"metadata": {"finalizers": ["example.com/hold"]}}));
            }),
            Act::Evict(each) => self.each_pod(|pod| {
                if is_struck(&pod.name, *each) {
                    let status =
                        json!({"phase": "Failed", "reason": "Evicted", "conditions": null});
                    drop(self.server.patch_status(pod, &json!({ "status": status })));
                }
            }),
            Act::Outage(on) => {
                self.is_stopped.store(*on, Ordering::Relaxed);
                self.cluster.set_stopped(*on);
            }
            _ => {}
        }
    }

    pub fn set_spec(&self, slot: Slot, spec: &Value) {
        let id = slot.id();
        match self.server.get(&id) {
            Some(now) => {
                let patch = json!({"spec": equal::merge_patch(&now["spec"], spec)});
                self.server
                    .patch(&id, &patch)
                    .unwrap_or_else(|why| panic!("{spec} is refused: {why}"));
            }
            None => {
                let object = json!({"apiVersion": slot.0.api_version(), "kind": slot.0.name(),
                    "metadata": {"name": slot.2, "namespace": slot.1}, "spec": spec});
                self.server
                    .create(&id, object)
                    .unwrap_or_else(|why| panic!("{spec} is refused: {why}"));
            }
        }
    }

    /// Changes an object, if it exists.
    fn patch(&self, id: &Id, patch: Value) {
        drop(self.server.patch(id, &patch));
    }

    pub fn delete(&self, id: &Id, cascade: Cascade) {
        match cascade {
            Cascade::Background => self.server.delete(id),
            Cascade::Foreground => self.server.delete_foreground(id),
            Cascade::Orphan => self.server.delete_orphaning(id),
        }
    }

    fn each_pod(&self, act: impl Fn(&Id)) {
        let pods = self.server.objects(&SLOTS[0].child(POD).resource);
        pods.iter().for_each(|(id, _)| act(id));
    }

    fn add_node(&self, number: u8) {
        if self.server.get(&node(number)).is_none() {
            let labels = json!({"kubernetes.io/os": "linux", "logs": "true"});
            let ready = json!([{"type": "Ready", "status": "True"}]);
            let object = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"labels": labels},
                "status": {"conditions": ready}});
            self.server.put(&node(number), object);
        }
    }

    fn set_ready(&self, number: u8, ready: &str) {
        let status = json!({"status": {"conditions": [{"type": "Ready", "status": ready}]}});
        drop(self.server.patch_status(&node(number), &status));
    }

    fn set_room(&self, number: u8, pods: Option<&str>) {
        let status = json!({"status": {"allocatable": {"pods": pods}}});
        drop(self.server.patch_status(&node(number), &status));
    }

    /// The state of the pods, if the kubelets report it.
    pub fn pods(&self) -> Option<Pods> {
        (!self.is_stopped.load(Ordering::Relaxed)).then(|| *self.pods.lock())
    }

    fn set_pods(&self, pods: Pods) {
        *self.pods.lock() = pods;
        let now = self.server.now();
        self.cluster.pods_are(move |pod| {
            let name = pod["metadata"]["name"].as_str().unwrap_or_default();
            let waiting = |reason: &str| PodState::Waiting {
                reason: reason.to_owned(),
                message: String::new(),
            };
            let created = pod["metadata"]["creationTimestamp"].as_str().unwrap_or_default();
            let age =
                now.as_second() - created.parse::<Timestamp>().map_or(0, Timestamp::as_second);
            match pods {
                Pods::Slow(seconds) if age < i64::from(seconds) => waiting("ContainerCreating"),
                Pods::Waiting(each, reason) if is_struck(name, each) => waiting(reason),
                Pods::Unready(each) if is_struck(name, each) => PodState::Unready,
                _ => PodState::Ready,
            }
        });
    }

    fn refuse(&self, kind: Kind, refusal: Refusal) {
        let resource = SLOTS[0].child(kind).resource;
        let takes = match refusal {
            Refusal::WebhookHangs => Some(30),
            Refusal::WebhookIsSlow => Some(10),
            _ => None,
        };
        *self.admission.slow.lock() = takes.map(|it| (kind.plural(), Duration::from_secs(it)));
        let (code, reason, message) = match refusal {
            Refusal::Quota => (
                403,
                "Forbidden",
                "\"x\" is forbidden: exceeded quota: small, requested: count=1, used: count=1, limited: count=1",
            ),
            Refusal::Denied => (
                403,
                "Forbidden",
                "admission webhook \"policy.example.com\" denied the request: no",
            ),
            Refusal::WebhookFails | Refusal::WebhookHangs => (
                500,
                "InternalError",
                "Internal error occurred: failed calling webhook \"policy.example.com\": context deadline exceeded",
            ),
            Refusal::NotReady => {
                (403, "Forbidden", "x is forbidden: not yet ready to handle request")
            }
            Refusal::WebhookIsSlow | Refusal::None => return self.server.intercept(|_| None),
        };
        self.server.intercept(move |request| {
            let is_one = request.resource == resource && request.method != "GET";
            is_one.then(|| self::refusal(code, reason, message))
        });
    }

    fn mutate(&self, on: bool) {
        if !on {
            return self.server.admit(|_| Ok(()));
        }
        self.server.admit(|object| {
            let is_one = |kind: Kind| object["kind"] == kind.name();
            if is_one(DEPLOYMENT) || is_one(DAEMON_SET) {
                object["metadata"]["annotations"][INJECTED] = json!("yes");
                let containers = object["spec"]["template"]["spec"]["containers"].as_array_mut();
                if let Some(containers) = containers
                    && !containers.iter().any(|it| it["name"] == INJECTED)
                {
                    containers.push(json!({"name": INJECTED, "image": "proxy:1"}));
                }
            }
            Ok(())
        });
    }

    fn order(&self, process: usize, order: Order) {
        drop(self.processes[process].orders.send(order));
    }

    // === The end ===

    /// Ends all problems: whatever is wrong from now on is the operator's.
    fn heal(&self) {
        self.server.clear_faults();
        self.refuse(DEPLOYMENT, Refusal::None);
        self.server.set_clock_ahead(0);
        self.mutate(false);
        self.cluster.set_stopped(false);
        self.set_pods(Pods::Ready);
        self.each_pod(|pod| self.patch(pod, json!({"metadata": {"finalizers": null}})));
        for process in &self.processes {
            *process.kill_at.lock() = None;
            *process.hang_at.lock() = None;
            *process.hangs_until.lock() = Instant::now();
        }
        for node in 1..=4 {
            self.set_ready(node, "True");
            self.set_room(node, None);
            self.patch(&self::node(node), json!({"spec": {"taints": null}}));
        }
        (1..=3).for_each(|node| self.add_node(node));
        for slot in SLOTS {
            if slot.0 != GENERIC_DAEMON {
                self.server.delete(&slot.child(rival(slot).0));
            }
            let paused = json!({PAUSED: null});
            self.patch(&slot.id(), json!({"metadata": {"annotations": paused}}));
            for kind in slot.children() {
                let is_foreign = |it: Arc<Value>| it["metadata"]["labels"]["foreign"] == "yes";
                if self.server.get(&slot.child(*kind)).is_some_and(is_foreign) {
                    self.server.delete(&slot.child(*kind));
                }
            }
        }
    }

    /// Deletes the pods of daemons with `OnDelete`, as their owner does after a change.
    async fn replace_pods(&self) {
        for slot in SLOTS {
            let object = self.server.get(&slot.id());
            if object.is_some_and(|it| it["spec"]["updateStrategy"]["type"] == "OnDelete") {
                self.each_pod(|pod| {
                    if pod.name.starts_with(slot.2) {
                        self.server.delete(pod);
                    }
                });
                self.until_quiet().await;
            }
        }
    }

    /// Waits until all custom resources are Ready and nothing has changed for longer than two
    /// minutes, after which the nodes of a daemon are listed again.
    pub async fn until_quiet(&self) {
        let began = Instant::now();
        let (mut before, mut quiet) = (self.changes(), 0);
        while quiet < 15 {
            sleep(Duration::from_secs(10)).await;
            let now = self.changes();
            let is_ready = SLOTS.iter().all(|slot| {
                self.server.get(&slot.id()).is_none_or(|it| crate::world::is_ready(&it))
            });
            quiet = if now == before && is_ready { quiet + 1 } else { 0 };
            before = now;
            if began.elapsed() > LONGEST {
                let left = SLOTS.iter().filter_map(|slot| self.server.get(&slot.id()));
                let left: Vec<_> =
                    left.map(|it| format!("{} {}", it["metadata"]["name"], it["status"])).collect();
                panic!("after {LONGEST:?} it is not Ready and quiet: {left:#?}");
            }
        }
    }

    /// The newest version of anything but the Lease.
    fn changes(&self) -> u64 {
        self.server.version_without(&SLOTS[0].child(LEASE).resource)
    }
}

impl Process {
    /// Returns the number of its n-th write from now on.
    fn number_of(&self, write: u64) -> u64 {
        self.writes.load(Ordering::Relaxed) + write
    }

    /// Sends a request of this process. At the write that a step has named, kills it, or lets its requests hang; the
    /// watches go on.
    async fn send(
        &self,
        mut server: Server,
        request: Request<Bytes>,
        admission: &Admission,
    ) -> Result<<Server as Service<Request<Bytes>>>::Response, std::io::Error> {
        let is_of = |what: &str| request.uri().path().contains(what);
        let is_write = request.method() != Method::GET && !is_of("/leases");
        let number = self.writes.fetch_add(u64::from(is_write), Ordering::Relaxed) + 1;
        if let Some((_, time)) = self.hang_at.lock().take_if(|(at, _)| is_write && *at == number) {
            *self.hangs_until.lock() = Instant::now() + time;
        }
        let is_watch = request.uri().query().is_some_and(|query| query.contains("watch="));
        let mut has_hung = false;
        while !is_watch && Instant::now() < *self.hangs_until.lock() {
            has_hung = true;
            sleep(Duration::from_secs(1)).await;
        }
        if !is_write {
            return server.call(request).await;
        }
        let killed = self.kill_at.lock().take_if(|(at, _)| *at == number);
        if let Some((_, false)) = killed {
            return self.die().await;
        }
        let lease = Id::new(SLOTS[0].child(LEASE).resource, "system", "operator");
        let holder = server.get(&lease).map(|lease| lease["spec"]["holderIdentity"].clone());
        let holder = holder.unwrap_or_default();
        let holder = holder.as_str().unwrap_or_default();
        let is_unfenced = self.is_elected && !is_of("/events") && !holder.starts_with(&self.name);
        if is_unfenced && has_hung {
            // The body of a request asks for permission again when its connection is open: client/transport.rs.
            if killed.is_some() {
                return self.die().await;
            }
            return Err(std::io::Error::other("this process no longer leads"));
        }
        if is_unfenced {
            let what = format!(
                "{} {} by {} while {holder:?} leads",
                request.method(),
                request.uri(),
                self.name
            );
            admission.unfenced.lock().push(what);
        }
        let slow = *admission.slow.lock();
        let mut parts = request.uri().path().split('/').skip_while(|part| *part != "namespaces");
        let resource = parts.nth(2);
        if let Some((_, time)) = slow.filter(|(slow, _)| resource == Some(*slow)) {
            sleep(time).await;
        }
        let answer = server.call(request).await;
        if killed.is_some() {
            return self.die().await;
        }
        answer
    }

    async fn die<T>(&self) -> T {
        drop(self.orders.send(Order::Kill(Duration::from_secs(1))));
        std::future::pending().await
    }
}

/// Returns whether a pod is one of every n-th.
pub fn is_struck(name: &str, each: u8) -> bool {
    name.bytes().map(u32::from).sum::<u32>().is_multiple_of(u32::from(each))
}

fn node(number: u8) -> Id {
    Id::new("/api/v1/nodes", "", format!("node-{number}"))
}

/// Returns the other kind that needs the same owned objects, and a spec.
fn rival(slot: Slot) -> (Kind, Value) {
    match slot.0 {
        APP => (MEMCACHED, json!({"size": 1})),
        _ => (APP, json!({"image": "rival:1", "ports": [{"port": 80}]})),
    }
}

/// An object of somebody else.
fn foreign(kind: Kind) -> Value {
    let labels = json!({"foreign": "yes"});
    let spec = match kind {
        DEPLOYMENT | DAEMON_SET => json!({"selector": {"matchLabels": labels}, "replicas": 1,
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "x", "image": "x"}]}}}),
        _ => json!({"selector": {"foreign": "yes"}}),
    };
    json!({"apiVersion": kind.api_version(), "kind": kind.name(), "metadata": {"labels": labels}, "spec": spec})
}
