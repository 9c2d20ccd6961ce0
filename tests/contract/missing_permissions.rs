//! Every permission of the operator is removed, one at a time, and the failure is visible.
//!
//! `check` always names the missing permission. For every permission that an API server of this version ever
//! checks, the operator logs the refusal. `PERMISSIONS=all` removes every one of them, `PERMISSIONS=leases`
//! those with that in their name. Otherwise, a fixed selection is tested, one of each type.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures::{FutureExt, StreamExt};
use serde_json::{Value, json};
use tokio::process::Command;
use tokio::time::Instant;

use crate::operator_process::OperatorProcess;
use crate::packaging::{
    NAME, Permissions, SELDOM, a_life_of_all_kinds, bind_lease_roles, foreign_children, granted,
    objects, rights_in,
};
use crate::world::{
    APP, DEPLOYMENT, Kind, MAX_WAIT, MEMCACHED, MEMCACHED_IMAGE, ROLE, ROLE_BINDING, SERVICE,
    World, is_ready, memcached,
};

/// Number of permissions tested at the same time, each with its own operator.
const LANES: usize = 4;

/// Permissions that are removed without `PERMISSIONS`: one each to read, to write an owned object, to write a
/// status, to delete, to publish Events and to lead, and one that only `check` notices.
const SLICE: [[&str; 3]; 7] = [
    ["cache.example.com", "memcacheds", "watch"],
    ["apps", "daemonsets", "create"],
    ["app.example.com", "apps/status", "patch"],
    ["", "services", "delete"],
    ["events.k8s.io", "events", "create"],
    ["coordination.k8s.io", "leases", "create"],
    ["apps", "deployments", "get"],
];

type Permission = [String; 3];

/// Returns whether no request here requires it: see `SELDOM`.
fn is_unasked([group, resource, verb]: &Permission) -> bool {
    SELDOM.contains(&[group, resource, verb])
}

/// The operator's rules without one permission, with a separate rule for each of the others.
fn rules_without(taken: &Permission) -> Vec<Value> {
    let text = std::fs::read_to_string("artifacts/rbac/operator.yaml").unwrap();
    let mut all = Vec::new();
    for rule in objects(&text).iter().flat_map(|object| object["rules"].as_array()).flatten() {
        for permission in rights_in(&json!([rule])) {
            let [group, resource, verb] = &permission;
            let mut one = rule.clone();
            (one["apiGroups"], one["resources"]) = (json!([group]), json!([resource]));
            one["verbs"] = json!([verb]);
            if permission != *taken {
                all.push(one);
            }
        }
    }
    all
}

/// A tenant deletes its namespace, and with it the permissions there. An operator that starts after that
/// serves the others. It writes nothing where its cache is incomplete, and everything after the permissions
/// are restored.
#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_without_permissions_does_not_block_the_others() {
    let (world, none, some) = tokio::join!(
        World::new("with-permissions", "restricted"),
        World::new("without-permissions", "restricted"),
        World::new("with-some-permissions", "restricted"),
    );
    let role = rules_without(&["apps", "deployments", "watch"].map(str::to_owned));
    let role = json!({"metadata": {"name": "less"}, "rules": role});
    some.create(ROLE, role).await.unwrap();
    let grant = async |to: &World, kind: &str, name: &str| {
        to.grant((kind, name), (&world.namespace, NAME)).await;
    };
    grant(&some, "Role", "less").await;
    bind_lease_roles(&world).await;
    let kubeconfig = world.operator_kubeconfig().await;
    let namespaces = [&world, &none, &some].map(|world| world.namespace.as_str()).join(",");
    let mut operator = OperatorProcess::start(
        &kubeconfig,
        &[
            "--namespace",
            &namespaces,
            "--leader-elect",
            "--leader-elect-namespace",
            &world.namespace,
        ],
        &[("MEMCACHED_IMAGE", MEMCACHED_IMAGE)],
    );
    operator.logged("Ready to work").await;
    for world in [&none, &some, &world] {
        world.create(MEMCACHED, memcached("cart", 1)).await.unwrap();
    }
    world.until(MEMCACHED, "cart", is_ready).await;
    for other in [&none, &some] {
        assert!(other.get(DEPLOYMENT, "cart").await.is_none(), "{}", other.namespace);
        grant(other, "ClusterRole", NAME).await;
        other.until(MEMCACHED, "cart", is_ready).await;
    }
    operator.assert_alive();
    let waited = operator.lines().into_iter().find(|line| line.contains("not all lists of what"));
    assert_eq!(waited, None, "the barrier of a new leader waits for no list that it cannot get");
}

/// A namespace whose operator lacks one permission.
async fn world_without(name: &str, taken: &Permission) -> World {
    let world = World::new(name, "baseline").await;
    world.delete(ROLE_BINDING, NAME).await;
    let role = json!({"metadata": {"name": "less"}, "rules": rules_without(taken)});
    world.create(ROLE, role).await.unwrap();
    world.grant(("Role", "less"), (&world.namespace, NAME)).await;
    world
}

/// Runs `check` until it reports `expected` about the permissions, because the API server notices a binding
/// with a delay.
async fn checked(world: &World, expected: &str) -> Result<(), String> {
    let kubeconfig = world.operator_kubeconfig().await;
    let deadline = Instant::now() + MAX_WAIT;
    loop {
        let output = Command::new(env!("CARGO_BIN_EXE_workload-operator"))
            .args(["check", "-o", "json", "--namespace", &world.namespace])
            .args(["--operator-namespace", &world.namespace, "--kubeconfig"])
            .arg(&kubeconfig)
            .output()
            .await
            .unwrap();
        let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        let all = report["checks"].as_array().into_iter().flatten();
        let finding = all.into_iter().find(|finding| finding["id"] == "R001").cloned();
        let finding = finding.unwrap_or_default();
        if finding["detail"] == expected && output.status.code() == Some(1) {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(format!("check says {finding}, not {expected:?}"));
        }
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
}

/// Returns the fault that occurs without this permission; `None` if all is as expected.
async fn fault_without(number: usize, permission: Permission) -> Option<String> {
    let [group, resource, verb] = &permission;
    let world = world_without(&format!("permission-{number}"), &permission).await;
    let dot = if group.is_empty() { "" } else { "." };
    let missing = format!("cannot {verb} {resource}{dot}{group} in {}", world.namespace);
    if let Err(wrong) = checked(&world, &missing).await {
        return Some(wrong);
    }
    if is_unasked(&permission) {
        return None;
    }
    foreign_children(&world).await;
    let kubeconfig = world.operator_kubeconfig().await;
    let environment =
        [("MEMCACHED_IMAGE", MEMCACHED_IMAGE), ("LEADER_ELECT_NAMESPACE", &world.namespace)];
    let flags = ["--namespace", &world.namespace, "--leader-elect"];
    let operator = OperatorProcess::start(&kubeconfig, &flags, &environment);
    // This is the API server's message. In a field of a log line, the quotes are escaped.
    let words = format!("cannot {verb} resource \"{resource}\"");
    let refused = operator.line(|line| line.replace('\\', "").contains(&words));
    // If the operator gets stuck, this panics.
    let life = AssertUnwindSafe(a_life_of_all_kinds(&world)).catch_unwind();
    let told = tokio::select! {
        line = refused => Ok(line),
        lived = life => Err(lived.map_or("nothing was said", |()| "nothing was lacking")),
    };
    match told {
        Ok(line) => {
            println!("without {verb} {resource}{dot}{group}: {line}");
            None
        }
        Err(told) => Some(format!("{permission:?}: {told} in\n{}", operator.lines().join("\n"))),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_missing_permission_is_named_by_check_and_log() {
    let wanted = std::env::var("PERMISSIONS").ok();
    let slice: Permissions = SLICE.iter().map(|permission| permission.map(str::to_owned)).collect();
    let all = granted();
    assert!(slice.is_subset(&all), "{slice:?}");
    let chosen: Permissions = match wanted.as_deref() {
        None => slice,
        // `check` asks for nodes only where the operator works in the whole cluster.
        Some("all") => all.into_iter().filter(|permission| permission[1] != "nodes").collect(),
        Some(part) => {
            all.into_iter().filter(|permission| permission.join(" ").contains(part)).collect()
        }
    };
    let lives = chosen
        .into_iter()
        .enumerate()
        .map(|(number, permission)| fault_without(number, permission));
    let wrong: Vec<String> = futures::stream::iter(lives)
        .buffer_unordered(LANES)
        .filter_map(async |wrong| wrong)
        .collect()
        .await;
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Waits until the status, for the newest spec, and an Event report it. Then restores the permission.
async fn is_reported_and_recovers(world: &World, kind: Kind, name: &str, words: &str) {
    for (condition, status) in [("Degraded", "True"), ("Stalled", "True"), ("Ready", "False")] {
        let message = world.until_condition(kind, name, condition, (status, "Forbidden")).await;
        assert!(message.contains(words), "{message}");
    }
    let event = world.until_event(name, "Forbidden").await;
    assert!(event["note"].as_str().unwrap().contains(words), "{event}");
    world.bind().await;
    world.until(kind, name, is_ready).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_forbidden_deletion_of_a_service_is_reported() {
    let permission = ["", "services", "delete"].map(str::to_owned);
    let world = world_without("undeletable", &permission).await;
    let _operator = world.start_operator().await;
    let spec = json!({"image": "shop:1", "ports": [{"port": 80}]});
    world.create(APP, json!({"metadata": {"name": "shop"}, "spec": spec})).await.unwrap();
    world.until(APP, "shop", is_ready).await;
    world.patch(APP, "shop", json!({"spec": {"ports": null}})).await.unwrap();
    is_reported_and_recovers(&world, APP, "shop", "cannot delete Service").await;
    world.until_gone(SERVICE, "shop").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_forbidden_finalizer_is_reported() {
    let permission = ["cache.example.com", "memcacheds", "patch"].map(str::to_owned);
    let world = world_without("no-finalizer", &permission).await;
    let _operator = world.start_operator().await;
    world.create(MEMCACHED, memcached("cart", 1)).await.unwrap();
    is_reported_and_recovers(&world, MEMCACHED, "cart", "cannot update Memcached").await;
}
