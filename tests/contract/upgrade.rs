//! An upgrade from an earlier version and the downgrade: no pod restarts, no object is lost, and each version
//! continues the work of the other, while users keep working.
//!
//! `hack/campaigns/upgrade.sh build` builds the earlier version.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::control_plane::ControlPlane;
use crate::operator_process::{OperatorProcess, with_program};
use crate::packaging::{NAME, SYSTEM};
use crate::plan::plan;
use crate::unchecked::built_by;
use crate::world::{
    APP, GENERIC_DAEMON, Kind, MAX_WAIT, MEMCACHED, MEMCACHED_IMAGE, POD, World, is_ready,
};

/// Objects of each kind that exist before the upgrade.
const EACH: usize = 8;

/// A version of the operator: its binary and its artifacts.
struct Version {
    binary: PathBuf,
    artifacts: PathBuf,
}

impl Version {
    fn this() -> Version {
        let binary = env!("CARGO_BIN_EXE_workload-operator").into();
        Version { binary, artifacts: "artifacts".into() }
    }

    /// Returns `None`, and prints a line that no test harness captures, if it is not built.
    fn earlier(unchecked: &str) -> Option<Version> {
        let folder = built_by("hack/campaigns/upgrade.sh", unchecked)?;
        Some(Version { binary: folder.join(NAME), artifacts: folder.join("artifacts") })
    }

    fn install(&self, plane: &ControlPlane) {
        let default = self.artifacts.join("default");
        let apply = ["apply", "--server-side", "--force-conflicts", "-k"];
        plane.kubectl(&[&apply[..], &[default.to_str().unwrap()]].concat());
    }

    /// Starts it under its ServiceAccount, as its Deployment does.
    fn start(&self, kubeconfig: &Path) -> OperatorProcess {
        let environment = [
            ("MEMCACHED_IMAGE", MEMCACHED_IMAGE),
            ("LEADER_ELECT", "true"),
            ("LEADER_ELECT_NAMESPACE", SYSTEM),
        ];
        OperatorProcess::of(with_program(&self.binary, kubeconfig, &[], &environment))
    }

    /// The same; returns once its caches are filled.
    async fn started(&self, kubeconfig: &Path) -> OperatorProcess {
        let operator = self.start(kubeconfig);
        operator.logged("Ready to work").await;
        operator
    }
}

/// The objects that remain, with their names.
fn residents() -> impl Iterator<Item = (Kind, String, Value)> {
    let specs = |at: usize| {
        [
            (MEMCACHED, json!({"size": 1, "containerPort": 11211 + at})),
            (
                APP,
                json!({"replicas": 1, "image": "nginx:1.27", "ports": [{"port": 80 + at}],
                "envs": [{"name": "AT", "value": at.to_string()}]}),
            ),
            (GENERIC_DAEMON, json!({"image": "agent:1", "label": "logs"})),
        ]
    };
    (0..EACH).flat_map(move |at| {
        specs(at).map(|(kind, spec)| (kind, format!("{}-{at}", kind.name().to_lowercase()), spec))
    })
}

async fn are_ready(world: &World) {
    for (kind, name, _) in residents() {
        world.until(kind, &name, is_ready).await;
    }
}

/// The UIDs of the residents' pods.
async fn pods(world: &World) -> BTreeSet<String> {
    let pods = world.list(POD).await;
    pods.iter().map(|pod| pod["metadata"]["uid"].as_str().unwrap().to_owned()).collect()
}

/// Scales or changes each resident in a way that keeps its pods. The leading version applies this.
async fn each_is_worked_on(world: &World, replicas: usize) {
    for (kind, name, _) in residents() {
        let patch = match kind.plural() {
            "memcacheds" => json!({"spec": {"size": replicas}}),
            "apps" => json!({"spec": {"replicas": replicas}}),
            _ => json!({"metadata": {"annotations": {"touched": replicas.to_string()}}}),
        };
        world.patch(kind, &name, patch).await.unwrap();
    }
    are_ready(world).await;
}

/// Creates, scales and deletes Apps, one after another, until `stop`; reports how many.
async fn users(world: World, stop: Arc<AtomicBool>, done: watch::Sender<usize>) {
    while !stop.load(Ordering::Relaxed) {
        let name = format!("user-{}", *done.borrow());
        let app = json!({"metadata": {"name": name}, "spec": {"replicas": 1, "image": "a:1"}});
        world.create(APP, app).await.unwrap();
        world.until(APP, &name, is_ready).await;
        world.patch(APP, &name, json!({"spec": {"replicas": 2}})).await.unwrap();
        world.until(APP, &name, |app| is_ready(app) && app["status"]["readyReplicas"] == 2).await;
        world.delete(APP, &name).await;
        world.until_gone(APP, &name).await;
        done.send_modify(|done| *done += 1);
    }
}

/// Waits until users have made more changes.
async fn users_go_on(done: &mut watch::Receiver<usize>) {
    let before = *done.borrow();
    let more = timeout(MAX_WAIT, done.wait_for(|done| *done >= before + 2)).await;
    more.expect("in time").expect("users are not stuck");
}

fn restarts(plan: &Value) -> i64 {
    plan["summary"]["restart"].as_i64().unwrap()
}

/// Replaces the running version by another one, the way a rolling update of the Deployment does.
async fn replace(
    plane: &'static ControlPlane,
    kubeconfig: &Path,
    running: OperatorProcess,
    next: &Version,
) -> OperatorProcess {
    next.install(plane);
    let begun = next.started(kubeconfig).await;
    assert_eq!(running.terminate().await, Some(0));
    begun
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes minutes: cargo test --test contract -- --ignored"]
async fn an_upgrade_and_downgrade_by_kubectl_restart_no_pod() {
    let (this, earlier) = (Version::this(), Version::earlier("upgrade and downgrade"));
    let Some(earlier) = earlier else { return };
    let plane = ControlPlane::of_this_test(|| ControlPlane::bare("upgrade-kubectl")).await;
    earlier.install(plane);
    let system = World::in_existing(plane, SYSTEM).await;
    let kubeconfig = system.operator_kubeconfig().await;
    plane.kubectl(&["create", "namespace", "residents"]);
    plane.kubectl(&["create", "namespace", "users"]);
    let world = World::in_existing(plane, "residents").await;
    let operator = earlier.started(&kubeconfig).await;
    for (kind, name, spec) in residents() {
        world.create(kind, json!({"metadata": {"name": name}, "spec": spec})).await.unwrap();
    }
    are_ready(&world).await;
    let first = pods(&world).await;
    assert!(first.len() >= 2 * EACH, "{}", first.len());
    let stop = Arc::new(AtomicBool::new(false));
    let (reports, mut done) = watch::channel(0);
    let others = World::in_existing(plane, "users").await;
    let busy = tokio::spawn(users(others, stop.clone(), reports));

    // The earlier version's Deployment in the cluster has no working pods, because kwok simulates them.
    let planned = plan(&world, plane.kubeconfig(), MEMCACHED_IMAGE, &[]).0;
    assert_eq!((&planned["problems"], restarts(&planned)), (&json!([]), 0), "{planned:#}");
    assert_eq!(planned["summary"]["reconciled"], 3 * EACH);
    let operator = replace(plane, &kubeconfig, operator, &this).await;
    users_go_on(&mut done).await;
    each_is_worked_on(&world, 2).await;
    let second = pods(&world).await;
    assert!(first.is_subset(&second), "the upgrade replaced pods");
    let settled = plan(&world, plane.kubeconfig(), MEMCACHED_IMAGE, &[]).0;
    assert_eq!((&settled["problems"], &settled["changes"]), (&json!([]), &json!([])));

    let operator = replace(plane, &kubeconfig, operator, &earlier).await;
    users_go_on(&mut done).await;
    each_is_worked_on(&world, 3).await;
    let third = pods(&world).await;
    assert!(second.is_subset(&third), "the downgrade replaced pods");
    stop.store(true, Ordering::Relaxed);
    busy.await.unwrap();
    for (kind, name, _) in residents() {
        assert!(world.get(kind, &name).await.is_some(), "{name} is lost");
    }
    operator.kill().await;
}
