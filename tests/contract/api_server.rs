//! Promises of the operator when Kubernetes' own servers fail: the API server and etcd killed and
//! restarted, and an API server that serves stale data.

use std::fs;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use crate::audit::{Audit, Entry, operator_writes};
use crate::control_plane::ControlPlane;
use crate::leadership::Replicas;
use crate::proxy::{Call, Proxy};
use crate::servers::{Second, Server, ready};
use crate::stall::Stall;
use crate::world::{DEPLOYMENT, GENERIC_DAEMON, MEMCACHED, World, is_ready, memcached};

/// Resources that reconciling a Memcached reads.
const WATCHED: [&str; 4] = ["memcacheds", "deployments", "services", "pods"];

#[tokio::test(flavor = "multi_thread")]
async fn the_operator_survives_a_killed_api_server_or_etcd() {
    let plane = ControlPlane::of_this_test(|| ControlPlane::private("servers-killed")).await;
    let world = World::on(plane, "servers-killed", "baseline").await;
    let mut operator = world.start_operator().await;
    let daemon = json!({"metadata": {"name": "logs"}, "spec": {"image": "a:1", "label": "logs"}});
    world.create(GENERIC_DAEMON, daemon).await.unwrap();
    world.create(MEMCACHED, memcached("before", 1)).await.unwrap();
    world.until(MEMCACHED, "before", is_ready).await;
    for name in ["kube-apiserver", "etcd"] {
        let mut server = Server::of(plane, name);
        let names: Vec<String> = (0..5).map(|number| format!("{name}-{number}")).collect();
        for name in &names {
            world.create(MEMCACHED, memcached(name, 1)).await.unwrap();
        }
        // While the operator works on them.
        server.kill().await;
        server.start();
        ready(&plane.admin().await).await;
        kubernetes_works(&world, &format!("after-{name}")).await;
        // kwok does not retry starting a pod if etcd interrupted its first attempt.
        let pending = ["delete", "pods", "--field-selector=status.phase=Pending"];
        world.kubectl(&[&pending[..], &["--force", "--grace-period=0"]].concat()).unwrap();
        for name in &names {
            world.until(MEMCACHED, name, is_ready).await;
        }
        // The caches follow again: deleted objects are restored, and changes are noticed.
        world.delete(DEPLOYMENT, "before").await;
        let size = if name == "etcd" { 2 } else { 3 };
        world.patch(MEMCACHED, "before", json!({"spec": {"size": size}})).await.unwrap();
        let all =
            |m: &Value| is_ready(m) && m["status"]["nodes"].as_array().map(Vec::len) == Some(size);
        world.until(MEMCACHED, "before", all).await;
        world.until(GENERIC_DAEMON, "logs", is_ready).await;
        operator.assert_alive();
        // The API server does not log requests during which it was killed, so there can be none.
        for name in &names {
            let of = |w: &&Entry| is_create(w, name);
            let creates = operator_writes(&world).iter().filter(of).count();
            assert!(creates <= 1, "the Deployment of {name} was created {creates} times");
        }
    }
}

/// Versions go back and are assigned again, to other changes. Kubernetes recommends a restart of all clients.
/// A client that is not restarted must restart itself, or it misses all changes with such a version.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes minutes: cargo test --test contract -- --ignored"]
async fn the_operator_restarts_after_a_restore_of_etcd() {
    let plane = ControlPlane::of_this_test(|| ControlPlane::private("restored")).await;
    let world = World::on(plane, "restored", "baseline").await;
    let mut operator = world.start_operator().await;
    world.create(MEMCACHED, memcached("kept", 1)).await.unwrap();
    world.until(MEMCACHED, "kept", is_ready).await;
    let mut servers = Servers::of(plane);
    servers.back_up(plane, &world).await;
    world.patch(MEMCACHED, "kept", json!({"spec": {"size": 3}})).await.unwrap();
    world.until(MEMCACHED, "kept", |m| is_ready(m) && m["status"]["size"] == 3).await;
    servers.go_on(&world).await;
    operator.assert_alive();

    servers.restore(plane, async || ()).await;
    // It notices this because no bookmark arrives for 150 s.
    let ended = tokio::time::timeout(Duration::from_secs(400), operator.ended()).await;
    let log = operator.lines().join("\n");
    assert_eq!(ended, Ok(Some(1)), "{log}");
    assert!(log.contains("data went back from version"), "{log}");

    servers.start_clients(&world);
    let _anew = world.start_operator().await;
    kubernetes_works(&world, "after-restore").await;
    world.create(MEMCACHED, memcached("new", 1)).await.unwrap();
    world.until(MEMCACHED, "new", is_ready).await;
    world.until(MEMCACHED, "kept", |m| is_ready(m) && m["status"]["size"] == 1).await;
    assert_eq!(world.get(DEPLOYMENT, "lost").await, None);
}

/// The previous leader is gone, too. The standby's cache is from the time that was rolled back. It lists
/// everything again when it begins to lead, long before it would miss a bookmark.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes minutes: cargo test --test contract -- --ignored"]
async fn a_standby_lists_again_after_a_restore_of_etcd() {
    let plane = ControlPlane::of_this_test(|| ControlPlane::private("restored-standby")).await;
    let world = World::on(plane, "restored-standby", "baseline").await;
    let mut replicas = Replicas::none_in(world).await;
    for name in ["replica-0", "replica-1"] {
        replicas.run(name, &[]).await;
    }
    let (_, leader) = replicas.leader_but("").await;
    let mut standby = replicas.any();
    let world = replicas.world;
    world.create(MEMCACHED, memcached("kept", 1)).await.unwrap();
    world.until(MEMCACHED, "kept", is_ready).await;
    let mut servers = Servers::of(plane);
    servers.back_up(plane, &world).await;
    servers.go_on(&world).await;

    servers.restore(plane, async || leader.kill().await).await;
    let ended = tokio::time::timeout(Duration::from_secs(100), standby.ended()).await;
    let log = standby.lines().join("\n");
    assert_eq!(ended, Ok(Some(1)), "{log}");
    assert!(log.contains("data went back from version"), "{log}");
}

/// All processes of a control plane.
struct Servers {
    etcd: Server,
    api_server: Server,
    /// Clients with a short timeout for the API server.
    clients: Vec<Server>,
}

impl Servers {
    fn of(plane: &ControlPlane) -> Servers {
        let clients = ["kube-controller-manager", "kube-scheduler", "kwok"];
        Servers {
            etcd: Server::of(plane, "etcd"),
            api_server: Server::of(plane, "kube-apiserver"),
            clients: clients.map(|name| Server::of(plane, name)).into(),
        }
    }

    /// Kills all of them, does `work`, and starts etcd and the API server again.
    async fn with_all_down(
        &mut self,
        plane: &ControlPlane,
        work: impl AsyncFnOnce() -> std::io::Result<()>,
    ) {
        for server in self.clients.iter_mut().chain([&mut self.api_server, &mut self.etcd]) {
            server.kill().await;
        }
        work().await.expect("files can be copied");
        self.etcd.start();
        self.api_server.start();
        ready(&plane.admin().await).await;
    }

    /// Copies etcd's data, with all of them down, and waits until they work again.
    async fn back_up(&mut self, plane: &ControlPlane, world: &World) {
        let (data, backup) = (plane.dir().join("etcd"), plane.dir().join("backup"));
        self.with_all_down(plane, async || copy(&data, &backup)).await;
        self.start_clients(world);
    }

    /// Lets the cluster continue after a backup, for so many versions that a restored API server does not
    /// soon reach them.
    async fn go_on(&mut self, world: &World) {
        kubernetes_works(world, "after-backup").await;
        world.create(MEMCACHED, memcached("lost", 1)).await.unwrap();
        world.until(MEMCACHED, "lost", is_ready).await;
        for number in 0..200 {
            let note = json!({"metadata": {"annotations": {"note": number.to_string()}}});
            world.patch(MEMCACHED, "lost", note).await.unwrap();
        }
    }

    /// Restores the copy of etcd's data, and does `meanwhile`, with all servers down.
    async fn restore(&mut self, plane: &ControlPlane, meanwhile: impl AsyncFnOnce()) {
        let (data, backup) = (plane.dir().join("etcd"), plane.dir().join("backup"));
        self.with_all_down(plane, async || {
            meanwhile().await;
            fs::remove_dir_all(&data).and_then(|()| copy(&backup, &data))
        })
        .await;
    }

    /// Lets the new kwok serve each node at once. Otherwise it waits until the Lease of the former one expires,
    /// and can miss a pod that is bound at this moment.
    fn start_clients(&mut self, world: &World) {
        world.kubectl(&["delete", "leases", "--all", "--namespace=kube-node-lease"]).unwrap();
        self.clients.iter_mut().for_each(Server::start);
    }
}

/// Copies a directory and everything in it.
fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let to = to.join(entry.file_name());
        match entry.file_type()?.is_dir() {
            true => copy(&entry.path(), &to)?,
            false => drop(fs::copy(entry.path(), to)?),
        }
    }
    Ok(())
}

/// Waits until Kubernetes' own controllers have recovered, which can take as long as for the operator.
async fn kubernetes_works(world: &World, name: &str) {
    let labels = json!({"after": name});
    let pod = json!({"metadata": {"labels": labels},
        "spec": {"containers": [{"name": "c", "image": "a:1"}]}});
    let deployment = json!({"metadata": {"name": name},
        "spec": {"selector": {"matchLabels": labels}, "template": pod}});
    world.create(DEPLOYMENT, deployment).await.unwrap();
    world.until(DEPLOYMENT, name, |d| d["status"]["availableReplicas"] == 1).await;
}

fn is_create(write: &Entry, name: &str) -> bool {
    write.resource == "deployments" && write.name == name && write.code == 201
}

/// A second API server whose connection to etcd is stalled shows an old state: an object without owned
/// objects that has since been deleted, and one that has since been recreated with the same name.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes minutes: cargo test --test contract -- --ignored"]
async fn stale_data_of_a_lagging_api_server_is_not_acted_on() {
    let plane = ControlPlane::of_this_test(|| ControlPlane::private("past")).await;
    let world = World::on(plane, "past", "baseline").await;
    let etcd = Stall::to(plane.etcd()).await;
    let second = Second::start(plane, &etcd).await;
    let proxy = Proxy::start(plane).await;
    let audit = Audit::from_now(&world);
    let operator = world.start_operator_through(&proxy.url()).await;
    world.create(MEMCACHED, memcached("it", 1)).await.unwrap();
    world.until(MEMCACHED, "it", is_ready).await;
    operator.kill().await;
    world.create(MEMCACHED, memcached("late", 1)).await.unwrap();
    second.shows(&world, "late").await;
    // From here on, the second server receives no updates.
    etcd.stand();
    let mut operator = world.start_operator_through(&proxy.url()).await;
    world.until(MEMCACHED, "late", is_ready).await;
    for name in ["it", "late"] {
        world.delete(MEMCACHED, name).await;
        world.until_gone(MEMCACHED, name).await;
    }
    world.create(MEMCACHED, memcached("it", 2)).await.unwrap();
    world.until(MEMCACHED, "it", is_ready).await;
    let present = world.get(DEPLOYMENT, "it").await.unwrap();

    proxy.switch_to(second.nobody.clone());
    let switched = proxy.calls().len();
    WATCHED.iter().for_each(|resource| proxy.cut(resource));
    for resource in WATCHED {
        proxy.until_since(switched, 1, |call| call.object == resource).await;
    }
    // A new process knows no minimum version.
    operator.kill().await;
    let asked = proxy.calls().len();
    operator = world.start_operator_through(&proxy.url()).await;
    for resource in WATCHED {
        proxy.until_since(asked, 2, |call| call.object == resource).await;
    }
    let calls = proxy.calls().split_off(switched);
    assert!(!calls.iter().any(is_work), "it acts on what is over: {calls:#?}");
    let unchanged = world.get(DEPLOYMENT, "it").await.unwrap();
    assert_eq!(unchanged["metadata"]["uid"], present["metadata"]["uid"]);

    etcd.go_on();
    operator.logged("Ready to work").await;
    world.patch(MEMCACHED, "it", json!({"spec": {"size": 3}})).await.unwrap();
    world.until(MEMCACHED, "it", |m| is_ready(m) && m["status"]["size"] == 3).await;
    operator.assert_alive();
    let creates = |name| audit.writes(&world).iter().filter(|w| is_create(w, name)).count();
    assert_eq!((creates("it"), creates("late")), (2, 1), "one for each that there was");
}

/// Returns whether the call changes an owned object or a finalizer. A status write that was already sent does
/// no harm.
fn is_work(call: &Call) -> bool {
    call.is_write() && !call.object.starts_with("events") && !call.object.ends_with("/status")
}
