//! Several replicas, one writer: judged by the API server's audit log, not by the replicas' own reports.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use rustix::process::Signal;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::audit::{Audit, Entry};
use crate::control_plane::ControlPlane;
use crate::health::get;
use crate::operator_process::OperatorProcess;
use crate::proxy::{Call, Proxy};
use crate::servers::Second;
use crate::stall::Stall;
use crate::world::{
    APP, DEPLOYMENT, LEASE, MAX_WAIT, MEMCACHED, MEMCACHED_IMAGE, ROLE, SERVICE, SERVICE_ACCOUNT,
    World, is_ready,
};

/// After a SIGKILL, the next leader must first see the lease unchanged for its entire duration.
const LEASE_DURATION: Duration = Duration::from_secs(15);

/// The shortest durations that the safety margins for a clock at double rate allow.
const QUICK: [&str; 3] = [
    "--leader-elect-lease-duration=10s",
    "--leader-elect-renew-deadline=8s",
    "--leader-elect-retry-period=500ms",
];

/// Three replicas, each under its own ServiceAccount, by which the audit log distinguishes them.
pub struct Replicas {
    pub world: World,
    running: Vec<(String, OperatorProcess)>,
}

// === impl Replicas ===

impl Replicas {
    pub async fn start(namespace: &str, flags: &[&str]) -> Replicas {
        let mut replicas = Replicas::none(namespace).await;
        for number in 0..3 {
            replicas.run(&format!("replica-{number}"), flags).await;
        }
        replicas
    }

    /// The accounts of replica-0, replica-1 and replica-2, which do not run yet.
    pub async fn none(namespace: &str) -> Replicas {
        Replicas::none_in(World::new(namespace, "restricted").await).await
    }

    /// The same in an existing namespace.
    pub async fn none_in(world: World) -> Replicas {
        create_lease_roles(&world).await;
        for number in 0..3 {
            let name = format!("replica-{number}");
            let account = json!({"metadata": {"name": name}});
            world.create(SERVICE_ACCOUNT, account).await.unwrap();
            may_lead(&world, &name).await;
        }
        Replicas { world, running: Vec::new() }
    }

    /// Starts the replica of this name, and waits until its informers are as current as the leader's.
    pub async fn run(&mut self, name: &str, flags: &[&str]) {
        let kubeconfig = self.world.kubeconfig_of(name).await;
        self.run_with(name, &kubeconfig, flags).await;
    }

    /// The same with a kubeconfig of its own.
    pub async fn run_with(&mut self, name: &str, kubeconfig: &Path, flags: &[&str]) {
        let namespace = &self.world.namespace;
        let mut arguments = vec!["--leader-elect", "--namespace", namespace];
        arguments.extend(["--leader-elect-namespace", namespace]);
        arguments.extend(flags);
        let environment = [("MEMCACHED_IMAGE", MEMCACHED_IMAGE), ("POD_NAME", name)];
        let operator = OperatorProcess::start(kubeconfig, &arguments, &environment);
        operator.logged("Ready to work").await;
        self.running.push((name.to_owned(), operator));
    }

    /// Waits until a replica other than `but` holds the Lease, and removes that replica from the list.
    pub async fn leader_but(&mut self, but: &str) -> (String, OperatorProcess) {
        let lease = self.world.until(LEASE, "workload-operator", |lease| {
            let holder = holder(lease);
            !holder.is_empty() && holder != but
        });
        let name = holder(&lease.await).to_owned();
        let at = self.running.iter().position(|(running, _)| *running == name);
        self.running.swap_remove(at.unwrap_or_else(|| panic!("{name} leads and does not run")))
    }

    /// Removes any replica from the list.
    pub fn any(&mut self) -> OperatorProcess {
        self.running.pop().expect("one runs").1
    }

    /// Creates an object and waits until it is complete; that takes writes by the leader.
    async fn give_work(&self, name: &str) {
        let spec = json!({"metadata": {"name": name}, "spec": {"size": 1}});
        self.world.create(MEMCACHED, spec).await.unwrap();
        self.world.until(MEMCACHED, name, is_ready).await;
    }

    /// All requests of the three, in order of arrival.
    fn asked(&self) -> Vec<Entry> {
        let prefix = format!("system:serviceaccount:{}:replica-", self.world.namespace);
        Audit::from_start().of(&self.world, &prefix, |_| true)
    }

    /// Their writes that the API server accepted.
    pub fn accepted(&self) -> Vec<Entry> {
        self.asked().into_iter().filter(|entry| entry.is_write() && entry.is_accepted()).collect()
    }

    /// Returns the time of the first write of `name` to the Lease after `since`.
    fn took_over(&self, name: &str, since: Timestamp) -> Timestamp {
        let all = self.accepted();
        let first = all.iter().find(|w| is_of_lease(w) && by(w) == name && w.received >= since);
        first.unwrap_or_else(|| panic!("{name} has not written the Lease since {since}")).received
    }

    /// Asserts that every write is within a term of its writer: the writer made the last write to the Lease
    /// before it, and no other replica writes to the Lease before it is done.
    pub fn assert_one_writer_at_a_time(&self) {
        let all = self.accepted();
        let terms: Vec<&Entry> = all.iter().filter(|write| is_of_lease(write)).collect();
        for write in all.iter().filter(|write| !is_of_lease(write)) {
            let before = terms.iter().rev().find(|term| term.received <= write.received);
            let holder = before.map(|term| by(term));
            assert_eq!(holder, Some(by(write)), "{write:?} while another led");
            let others = |term: &&&Entry| {
                term.received > write.received
                    && term.received < write.done
                    && by(term) != by(write)
            };
            assert!(!terms.iter().any(|term| others(&term)), "{write:?} as another took over");
        }
    }
}

pub fn is_of_lease(write: &Entry) -> bool {
    write.resource == "leases"
}

/// The replica, which is the name of its ServiceAccount.
pub fn by(write: &Entry) -> &str {
    write.user.rsplit(':').next().unwrap_or_default()
}

/// The replica that holds the Lease: an identity is the pod's name and a random part.
fn holder(lease: &Value) -> &str {
    let identity = lease["spec"]["holderIdentity"].as_str().unwrap_or_default();
    identity.split('_').next().unwrap_or_default()
}

/// The Role for the Lease from the artifacts, for whatever namespace it is created in.
fn lease_roles() -> Vec<Value> {
    let text = std::fs::read_to_string("artifacts/rbac/operator.yaml").unwrap();
    let documents = serde_yaml_ng::Deserializer::from_str(&text);
    let values = documents.map(|document| Value::deserialize(document).unwrap());
    let roles = values.filter(|object| object["kind"] == "Role");
    roles
        .map(|role| json!({"metadata": {"name": role["metadata"]["name"]}, "rules": role["rules"]}))
        .collect()
}

pub async fn create_lease_roles(world: &World) {
    for role in lease_roles() {
        world.create(ROLE, role).await.unwrap();
    }
}

/// Gives an account of this namespace the permissions of the operator and of its leader.
async fn may_lead(world: &World, account: &str) {
    for role in
        [("ClusterRole", "workload-operator"), ("Role", "workload-operator-leader-election")]
    {
        world.grant(role, (&world.namespace, account)).await;
    }
}

pub fn since(earlier: Timestamp, later: Timestamp) -> Duration {
    Duration::try_from(later.duration_since(earlier)).unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn failover_is_soon_after_sigterm_and_bounded_after_sigkill() {
    let mut replicas = Replicas::start("takeover", &[]).await;
    let (first, process) = replicas.leader_but("").await;
    replicas.give_work("one").await;

    let ended = Timestamp::now();
    assert_eq!(process.terminate().await, Some(0));
    let (second, process) = replicas.leader_but(&first).await;
    // Work comes first, because a write appears in the log after its effect becomes visible.
    replicas.give_work("two").await;
    let took = since(ended, replicas.took_over(&second, ended));
    // It takes less than 3 s, as the elector's own tests assert with virtual time. This shows that the Lease
    // was released, because its expiry was not awaited.
    println!("SIGTERM to the next leader took {took:?}");
    assert!(took < LEASE_DURATION, "SIGTERM to the next leader took {took:?}");

    let killed = Timestamp::now();
    process.kill().await;
    let (third, _process) = replicas.leader_but(&second).await;
    replicas.give_work("three").await;
    let took = since(killed, replicas.took_over(&third, killed));
    println!("SIGKILL to the next leader took {took:?}");

    replicas.assert_one_writer_at_a_time();
    // A new leader finds the work of the previous one done. An Event is not work.
    let repeated = replicas.accepted().into_iter().filter(|write| {
        let (is_of_second, is_of_third) = (by(write) == second, by(write) == third);
        let done = is_of_second && write.name.starts_with("one")
            || is_of_third && !write.name.starts_with("three");
        !is_of_lease(write) && write.resource != "events" && done
    });
    assert_eq!(repeated.map(|write| format!("{write:?}")).collect::<Vec<_>>(), [""; 0]);
    let writers: std::collections::BTreeSet<String> =
        replicas.accepted().into_iter().filter(|w| !is_of_lease(w)).map(|w| w.user).collect();
    assert_eq!(writers.len(), 3, "each led in turn");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_suspended_leader_writes_nothing_before_it_leads_again() {
    let mut replicas = Replicas::start("paused-leader", &QUICK).await;
    let (first, paused) = replicas.leader_but("").await;
    replicas.give_work("before").await;

    paused.signal(Signal::STOP);
    let stopped = Instant::now();
    let (second, process) = replicas.leader_but(&first).await;
    // While it is suspended, events queue up in its watches.
    replicas.give_work("meanwhile").await;
    replicas.world.patch(MEMCACHED, "before", json!({"spec": {"size": 3}})).await.unwrap();
    tokio::time::sleep_until(stopped + Duration::from_secs(30)).await;
    replicas.world.patch(MEMCACHED, "meanwhile", json!({"spec": {"size": 2}})).await.unwrap();
    let resumed = Timestamp::now();
    paused.signal(Signal::CONT);
    replicas.world.patch(MEMCACHED, "before", json!({"spec": {"size": 2}})).await.unwrap();
    replicas.give_work("after").await;
    replicas.world.until(MEMCACHED, "before", |m| m["status"]["size"] == 2).await;

    // The others terminate, so it must lead and work once more.
    replicas.running.clear();
    assert_eq!(process.terminate().await, Some(0));
    let again = replicas.world.until(LEASE, "workload-operator", |lease| holder(lease) == first);
    again.await;
    replicas.give_work("again").await;

    replicas.assert_one_writer_at_a_time();
    let leads_again = replicas.took_over(&first, resumed);
    let all = replicas.accepted();
    let early = |w: &&Entry| by(w) == first && w.received > resumed && w.received < leads_again;
    assert_eq!(all.iter().filter(early).count(), 0, "written before it led again");
    assert!(all.iter().any(|w| by(w) == first && !is_of_lease(w) && w.received > leads_again));
    assert!(all.iter().any(|w| by(w) == second && !is_of_lease(w)), "{second} worked in between");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_queues_of_a_standby_remain_empty() {
    let mut replicas = Replicas::start("idle-standby", &[]).await;
    let (_, _leader) = replicas.leader_but("").await;
    replicas.give_work("cart").await;
    let world = &replicas.world;
    let service =
        |name: &str| json!({"metadata": {"name": name}, "spec": {"ports": [{"port": 80}]}});
    for name in ["passer-by", "the-last"] {
        world.create(SERVICE, service(name)).await.unwrap();
    }
    world.delete(SERVICE, "passer-by").await;
    let last = json!({"metadata": {"labels": {"seen": "yes"}}});
    let last = world.patch(SERVICE, "the-last", last).await.unwrap();
    let last: f64 = last["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
    for (name, standby) in &replicas.running {
        let deadline = Instant::now() + MAX_WAIT;
        let metrics = loop {
            let (_, metrics) = get(standby, "metrics", "/metrics").await;
            let seen = number(&metrics, r#"reflector_last_resource_version{name="services"}"#);
            if seen >= last {
                break metrics;
            }
            assert!(Instant::now() < deadline, "{name} has not heard of {last}: {metrics}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        };
        for queue in ["memcached", "app", "genericdaemon"] {
            let adds = format!(r#"workqueue_adds_total{{name="{queue}",controller="{queue}"}}"#);
            assert_eq!(number(&metrics, &adds), 0.0, "{name}: {metrics}");
        }
    }
}

/// The value of a series.
fn number(metrics: &str, series: &str) -> f64 {
    let line = metrics.lines().find_map(|line| line.strip_prefix(series));
    line.unwrap_or_else(|| panic!("no {series} in {metrics}")).trim().parse().unwrap()
}

/// Another client writes a different holder into the Lease and never renews it.
#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_loses_its_lease_writes_nothing_until_one_leads_again() {
    let mut replicas = Replicas::start("stolen-lease", &QUICK).await;
    let (_, mut robbed) = replicas.leader_but("").await;
    replicas.give_work("before").await;
    let thief =
        json!({"spec": {"holderIdentity": "thief", "renewTime": now(), "acquireTime": now()}});
    let stolen = replicas.world.patch(LEASE, "workload-operator", thief).await.unwrap();
    assert_eq!(holder(&stolen), "thief");
    let stolen = Timestamp::now();
    let leads = r#"leader_election_master_status{name="workload-operator"}"#;
    let deadline = Instant::now() + MAX_WAIT;
    while number(&get(&robbed, "metrics", "/metrics").await.1, leads) > 0.0 {
        assert!(Instant::now() < deadline, "it still leads");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let noticed = Timestamp::now();
    replicas.give_work("after").await;

    let all = replicas.asked();
    let again = all.iter().find(|e| is_of_lease(e) && is_acquired(e) && e.received > stolen);
    let again = again.expect("one of them leads again").received;
    let writes = || replicas.accepted().into_iter().filter(|w| !is_of_lease(w));
    let between: Vec<Entry> =
        writes().filter(|w| w.received > noticed && w.received < again).collect();
    assert!(between.is_empty(), "written while the thief held the Lease: {between:#?}");
    // Before that, the replica saw it unchanged for its entire duration.
    assert!(since(stolen, again) > Duration::from_secs(5), "{stolen} {again}");
    assert!(writes().any(|w| w.received > again), "whoever leads then has done the work");
    robbed.assert_alive();
    for (_, operator) in &mut replicas.running {
        operator.assert_alive();
    }
    replicas.assert_one_writer_at_a_time();
}

/// Returns whether a replica has written to the Lease.
fn is_acquired(entry: &Entry) -> bool {
    entry.is_write() && entry.is_accepted()
}

/// In the format of a Lease.
fn now() -> String {
    Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

/// The pooled connections of the leader break when they are used, and new ones get no further than TLS.
/// Requests that wait for a connection must not be sent under the next leader.
#[tokio::test(flavor = "multi_thread")]
async fn a_write_waiting_for_a_connection_is_not_sent_after_failover() {
    let mut replicas = Replicas::none("stalled-tls").await;
    let way = Stall::to(replicas.world.plane().address()).await;
    let through = format!("https://{}", way.address);
    let kubeconfig = replicas.world.kubeconfig_of_through("replica-0", &through).await;
    replicas.run_with("replica-0", &kubeconfig, &[]).await;
    replicas.give_work("before").await;
    replicas.run("replica-1", &[]).await;

    way.stand_new();
    // Its watches still deliver events.
    let size = |size: i32| json!({"spec": {"size": size}});
    replicas.world.patch(MEMCACHED, "before", size(2)).await.unwrap();
    let lease = replicas.world.until(LEASE, "workload-operator", |l| holder(l) == "replica-1");
    lease.await;
    let waiting = way.waiting();
    assert!(waiting > 1, "a renewal and a write wait for connections: {waiting}");
    way.go_on();
    replicas.world.until(MEMCACHED, "before", |m| m["status"]["size"] == 2).await;
    // Its requests succeed again, as a standby.
    let stalled = &replicas.running[0].1;
    let stands_by = || async { get(stalled, "health", "/readyz?verbose").await.1 };
    let deadline = Instant::now() + MAX_WAIT;
    while !stands_by().await.contains("standby of replica-1") {
        assert!(Instant::now() < deadline, "{}", stands_by().await);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    replicas.give_work("after").await;
    replicas.assert_one_writer_at_a_time();
}

/// The standby uses another API server, on which only its watch of Apps is stalled. It would see a Deployment
/// of the newer spec and an App of the older one, and apply the older spec.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "has a control plane of its own: cargo test --test contract -- --ignored"]
async fn a_new_leader_does_not_revert_the_writes_of_its_predecessor() {
    let plane = ControlPlane::of_this_test(|| ControlPlane::private("takeover-revert")).await;
    let world = World::on(plane, "takeover-revert", "baseline").await;
    let etcd = Stall::to(plane.etcd()).await;
    let other = Second::start(plane, &etcd).await;
    create_lease_roles(&world).await;
    world.create(SERVICE_ACCOUNT, json!({"metadata": {"name": "second"}})).await.unwrap();
    for account in ["workload-operator", "second"] {
        may_lead(&world, account).await;
    }
    let namespace = world.namespace.clone();
    let arguments =
        ["--leader-elect", "--namespace", &namespace, "--leader-elect-namespace", &namespace];
    let first = world.kubeconfig_of("second").await;
    let first = OperatorProcess::start(&first, &arguments, &[("POD_NAME", "first")]);
    first.logged("Ready to work").await;
    let app = json!({"metadata": {"name": "shop"}, "spec": {"image": "a:1", "replicas": 1}});
    world.create(APP, app).await.unwrap();
    world.until(APP, "shop", is_ready).await;
    let proxy = Proxy::start(plane).await;
    proxy.switch_to(other.nobody.clone());
    let second = world.kubeconfig_through(&proxy.url()).await;
    let second = OperatorProcess::start(&second, &arguments, &[("POD_NAME", "second")]);
    second.logged("Ready to work").await;
    proxy.hold("apps");
    world.patch(APP, "shop", json!({"spec": {"image": "a:2"}})).await.unwrap();
    let image = |image: &'static str| {
        move |child: &Value| child["spec"]["template"]["spec"]["containers"][0]["image"] == image
    };
    world.until(DEPLOYMENT, "shop", image("a:2")).await;
    world.until(APP, "shop", is_ready).await;
    let seen: Arc<Mutex<Vec<Value>>> = Arc::default();
    let record = seen.clone();
    let changes = world.for_each_change(DEPLOYMENT, move |child| record.lock().push(child));
    let changes = tokio::spawn(changes);
    assert_eq!(first.terminate().await, Some(0));
    let leads = |lease: &Value| holder(lease) == "second";
    world.until(LEASE, "workload-operator", leads).await;
    // Its work requires a list of the current state, because streaming lists are stalled like watches.
    world.patch(APP, "shop", json!({"spec": {"image": "a:3"}})).await.unwrap();
    world.until(DEPLOYMENT, "shop", image("a:3")).await;
    changes.abort();
    assert!(!seen.lock().iter().any(image("a:1")), "the older spec was applied");
    assert_lists_come_before_work(&proxy.calls(), &["apps", "deployments", "services", "pods"]);
}

/// Asserts that a process with the Lease lists the kinds that a controller reads before that controller
/// writes. The controllers do not wait for each other.
fn assert_lists_come_before_work(calls: &[Call], kinds: &[&str]) {
    let leads = calls.iter().position(|c| c.verb == "patch" && c.object.starts_with("leases"));
    let since = &calls[leads.expect("it leads")..];
    let is_work =
        |c: &&Call| c.is_write() && !c.object.starts_with("leases") && c.object != "events";
    let works = since.iter().find(is_work).expect("it works").at;
    for kind in kinds {
        let lists = |c: &&Call| c.object == *kind && c.lists && c.at < works;
        assert!(since.iter().any(|c| lists(&c)), "{kind} were not listed before the first write");
    }
}
