//! Promises of the operator while etcd is slow, and when etcd has compacted the version of a watch.

use std::time::Duration;

use crate::control_plane::ControlPlane;
use crate::etcd;
use crate::proxy::Proxy;
use crate::servers::{Second, Server, ready};
use crate::stall::Stall;
use crate::world::{DEPLOYMENT, MEMCACHED, World, is_ready, memcached};

/// Delay of an API server's requests to etcd. A healthy etcd responds within 10 ms.
const SLOW: Duration = Duration::from_millis(200);

/// Each write takes 200 ms or more, and the responses and watch events have the same delay.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes minutes: cargo test --test contract -- --ignored"]
async fn with_a_slow_etcd_each_owned_object_is_written_once() {
    let plane = ControlPlane::of_this_test(|| ControlPlane::private("slow-etcd")).await;
    let world = World::on(plane, "slow-etcd", "baseline").await;
    let etcd = Stall::long(plane.etcd(), SLOW).await;
    let second = Second::start(plane, &etcd).await;
    let proxy = Proxy::start(plane).await;
    proxy.switch_to(second.nobody.clone());
    let mut operator = world.start_operator_through(&proxy.url()).await;
    let names: Vec<String> = (0..4).map(|number| format!("it-{number}")).collect();
    for name in &names {
        world.create(MEMCACHED, memcached(name, 1)).await.unwrap();
    }
    for name in &names {
        world.until(MEMCACHED, name, is_ready).await;
    }
    for name in &names {
        for child in ["deployments", "services"] {
            let child = format!("{child}/{name}");
            let writes = proxy.count(|call| call.is_write() && call.object == child);
            assert_eq!(writes, 1, "{child}: {:#?}", proxy.calls());
        }
        world.delete(MEMCACHED, name).await;
    }
    for name in &names {
        world.until_gone(MEMCACHED, name).await;
    }
    operator.assert_alive();
}

/// The API server restarts with an empty cache, and etcd has compacted its history: the watch resumes from a
/// version that no server has any more.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes minutes: cargo test --test contract -- --ignored"]
async fn one_list_recovers_a_watch_whose_version_was_compacted() {
    let plane = ControlPlane::of_this_test(|| ControlPlane::api_server_alone("compacted")).await;
    let world = World::on(plane, "compacted", "baseline").await;
    let proxy = Proxy::start(plane).await;
    let mut operator = world.start_operator_through(&proxy.url()).await;
    world.create(MEMCACHED, memcached("it", 1)).await.unwrap();
    let first = world.until(DEPLOYMENT, "it", |_| true).await;
    let lists = || proxy.count(|call| call.lists && call.object == "deployments");
    // It knows its own writes without its watch. This ensures that the watch has reached the same version.
    operator.logged("Ready to work").await;
    proxy.hold("deployments");
    let before = lists();
    world.delete(DEPLOYMENT, "it").await;
    world.until_gone(DEPLOYMENT, "it").await;
    etcd::compact(plane).await;
    let mut server = Server::of(plane, "kube-apiserver");
    server.kill().await;
    server.start();
    ready(&plane.admin().await).await;
    proxy.cut("deployments");
    let anew = |child: &serde_json::Value| child["metadata"]["uid"] != first["metadata"]["uid"];
    world.until(DEPLOYMENT, "it", anew).await;
    assert_eq!(lists() - before, 1, "{:#?}", proxy.calls());
    operator.assert_alive();
}
