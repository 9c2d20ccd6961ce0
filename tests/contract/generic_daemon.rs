//! GenericDaemon: `mydomain.com/v1beta1`.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::world::{GENERIC_DAEMON, NODE, POD, World, is_ready};

fn daemon(name: &str, label: Option<&str>) -> Value {
    let mut spec = json!({"image": "mbessler/syslogdocker"});
    if let Some(label) = label {
        spec["label"] = json!(label);
    }
    json!({"metadata": {"name": name}, "spec": spec})
}

fn installed(count: i64) -> impl Fn(&Value) -> bool {
    move |gd| gd["status"]["installed"] == count && is_ready(gd)
}

/// The nodes that have `label`, or all nodes.
async fn nodes(world: &World, label: Option<&str>) -> BTreeSet<String> {
    let bears = |node: &Value| label.is_none_or(|l| node["metadata"]["labels"][l].is_string());
    let name = |node: &Value| node["metadata"]["name"].as_str().unwrap().to_owned();
    world.list(NODE).await.iter().filter(|node| bears(node)).map(name).collect()
}

/// The nodes on which the namespace's pods run.
async fn runs_on(world: &World) -> BTreeSet<String> {
    let pods = world.list(POD).await;
    let here = pods.iter().filter(|pod| pod["metadata"]["deletionTimestamp"].is_null());
    here.map(|pod| pod["spec"]["nodeName"].as_str().unwrap_or("nowhere").to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_sample_syslog_runs_on_exactly_the_labelled_nodes() {
    let (world, _operator) = World::with_operator_at("syslog", "baseline").await;
    let sample = std::fs::read_to_string("artifacts/examples/syslog.yaml").unwrap();
    let sample: Value = serde_yaml_ng::from_str(&sample).unwrap();
    assert_eq!(
        (&sample["spec"]["label"], &sample["metadata"]["name"]),
        (&json!("logs"), &json!("syslog"))
    );
    let labelled = nodes(&world, Some("logs")).await;
    assert!(labelled.len() >= 2 && labelled.len() < nodes(&world, None).await.len());
    world.create(GENERIC_DAEMON, sample).await.unwrap();
    let found = world.until(GENERIC_DAEMON, "syslog", installed(labelled.len() as i64)).await;
    assert_eq!(found["status"]["desired"], labelled.len());
    assert_eq!(runs_on(&world).await, labelled);
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_labels_and_images_are_refused_with_the_allowed_values() {
    let world = World::new("bad-daemons", "baseline").await;
    let long = "x".repeat(64);
    for label in ["=x", "a b", "-a", "a=b=c", "a/b/c", "/a", "a/", "a=b c", "UP.er/x=-", &long] {
        let refused = world.create(GENERIC_DAEMON, daemon("bad", Some(label))).await;
        let message = refused.expect_err(label);
        assert!(message.contains("spec.label"), "{label}: {message}");
    }
    for good in ["logs", "logs=", "logs=true", "example.com/a_b.c=D-e", "node-role.kubernetes.io/x"]
    {
        let mut object = daemon("good", Some(good));
        object["metadata"] = json!({"generateName": "good-"});
        let accepted = world.create(GENERIC_DAEMON, object).await;
        assert!(accepted.is_ok(), "{good}: {accepted:?}");
    }
    for spec in [json!({}), json!({"image": ""}), json!({"image": 7})] {
        let object = json!({"metadata": {"name": "bad"}, "spec": spec});
        let message = world.create(GENERIC_DAEMON, object).await.expect_err("no image");
        assert!(message.contains("spec.image"), "{message}");
    }
}
