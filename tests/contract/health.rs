//! The HTTP endpoints of the running operator.

use std::time::Duration;

use tokio::time::Instant;

use crate::http::fetch;
use crate::operator_process::OperatorProcess;
use crate::world::{
    MAX_WAIT, MEMCACHED, MEMCACHED_IMAGE, ROLE_BINDING, World, is_ready, memcached,
};

/// Status code and body of a GET; `what` is the server's name in the log.
pub async fn get(operator: &OperatorProcess, what: &str, path: &str) -> (u16, String) {
    let line = operator.logged(&format!("Serving {what} on http://")).await;
    let (_, address) = line.split_once("http://").unwrap();
    fetch(address.trim(), path, None).await
}

/// Polls until the operator is ready, and returns its report. On a timeout, the report shows what is missing.
async fn until_ready(operator: &OperatorProcess) -> String {
    let deadline = Instant::now() + MAX_WAIT;
    loop {
        let (code, report) = get(operator, "health", "/readyz?verbose").await;
        if code == 200 {
            return report;
        }
        assert!(Instant::now() < deadline, "not ready: {report}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn readyz_names_every_informer_and_metrics_have_the_usual_names() {
    let (world, operator) = World::with_operator("healthy").await;
    world.create(MEMCACHED, memcached("cart", 1)).await.unwrap();
    world.until(MEMCACHED, "cart", is_ready).await;

    assert_eq!(get(&operator, "health", "/healthz").await.0, 200);
    let report = until_ready(&operator).await;
    for kind in ["memcacheds.cache.example.com", "deployments.apps", "services", "pods"] {
        assert!(report.contains(&format!("[+]informer-{kind} ok")), "{report}");
    }
    let (code, metrics) = get(&operator, "metrics", "/metrics").await;
    assert_eq!(code, 200);
    for series in [
        r#"workqueue_adds_total{name="memcached""#,
        r#"workqueue_depth{name="memcached""#,
        r#"controller_runtime_reconcile_total{controller="memcached",result="success"}"#,
        r#"rest_client_requests_total{code="201",method="PATCH""#,
        "reflector_last_resource_version",
        "workload_operator_build_info",
    ] {
        assert!(metrics.contains(series), "{series} is missing in:\n{metrics}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn readyz_and_log_name_an_unlistable_kind_until_it_is_granted() {
    let world = World::new("unready", "restricted").await;
    world.delete(ROLE_BINDING, "workload-operator").await;
    world.until_gone(ROLE_BINDING, "workload-operator").await;
    let operator = world.start_operator_with(&[("MEMCACHED_IMAGE", MEMCACHED_IMAGE)]).await;
    let line = operator.logged("cannot list or watch memcacheds.cache.example.com").await;
    assert!(line.contains(": forbidden; update the installation"), "it says what to do: {line}");
    assert_eq!(get(&operator, "health", "/healthz").await.0, 200, "a restart would not help");
    let (code, report) = get(&operator, "health", "/readyz?verbose").await;
    assert_eq!(code, 503, "{report}");
    assert!(report.contains("[-]informer-memcacheds.cache.example.com failed: "), "{report}");
    world.create(MEMCACHED, memcached("cart", 1)).await.unwrap();
    world.bind().await;
    operator.logged("Ready to work").await;
    // It is synced before it is live, because the watch that follows the first list can still be opening.
    until_ready(&operator).await;
    world.until(MEMCACHED, "cart", is_ready).await;
}
