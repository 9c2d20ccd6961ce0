//! The owned objects and the status of a Memcached.

mod reconciles;

use serde_json::{Value, json};

use super::*;
use crate::controller::Name;
use crate::object::Resource;
use crate::workload::condition::{Status as Truth, Type};
use crate::workload::fixtures::{
    assert_golden, child, condition, custom, found, rolled_out, uid, wire,
};
use crate::workload::health::Context;
use crate::workload::reconciliation::failure;
use crate::workload::{Deployment, Found};

const SAMPLE: &str = include_str!("../../artifacts/examples/memcached.yaml");
const IMAGE: &str = "memcached:1.6.38-alpine";
const NOW: i64 = 1_795_248_000;

fn sample() -> Memcached {
    custom(SAMPLE)
}

fn children(memcached: &Memcached) -> Children {
    desired(memcached, &Images::of(IMAGE))
}

/// The Deployment of `memcached` with this status.
fn deployment(memcached: &Memcached, status: Value) -> Deployment {
    let mut object = wire(memcached, &children(memcached).deployment);
    object["status"] = status;
    child(&object)
}

/// The status of `memcached` if its Deployment has this status and its pods have these names.
fn status_with(memcached: &Memcached, deployment_status: Value, nodes: &[&str]) -> Status {
    let deployment = deployment(memcached, deployment_status);
    let nodes: Vec<_> = nodes.iter().map(|node| InternedStr::new(node)).collect();
    let context = Context { listed: Some(nodes.len()), ..Context::default() };
    let health = Health::of_deployment(&deployment, &context);
    status(memcached, &found(Some(&deployment), health), nodes, Time::new(NOW))
}

fn failed(memcached: &Memcached, health: Health, why: &str) -> Status {
    let found = Found { failure: Some(why.to_owned()), ..found(None, health) };
    status(memcached, &found, Vec::new(), Time::new(NOW))
}

#[test]
fn the_pod_template_of_the_sample_is_unchanged() {
    assert_golden("memcached-sample.json", &children(&sample()).deployment.spec["template"]);
}

#[test]
fn the_port_argument_is_omitted_for_the_default_port() {
    let mut memcached = sample();
    let command = |memcached: &Memcached| {
        let spec = children(memcached).deployment.spec;
        let container = &spec["template"]["spec"]["containers"][0];
        assert_eq!(container["ports"][0]["containerPort"], memcached.spec.container_port);
        let words = container["command"].as_array().unwrap().iter();
        words.map(|word| word.as_str().unwrap()).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(command(&memcached), "memcached -m=64 -o modern -v");
    memcached.spec.container_port = 11311;
    assert_eq!(command(&memcached), "memcached -m=64 -o modern -v -p 11311");
}

/// The only container of a Memcached with this spec, as JSON.
fn container_of(spec: Value) -> Value {
    let mut memcached = sample();
    memcached.spec = serde_json::from_value(spec).unwrap();
    children(&memcached).deployment.spec["template"]["spec"]["containers"][0].clone()
}

#[test]
fn each_setting_of_the_spec_becomes_a_memcached_argument() {
    let container = container_of(json!({"memory": "2Gi", "maxConnections": 4096, "threads": 8,
        "maxItemSize": "8Mi", "options": ["no_lru_crawler", "tail_repair_time=60"],
        "readinessProbe": "None"}));
    let args = "-m 2048 -c 4096 -t 8 -I 8m -o no_lru_crawler,tail_repair_time=60";
    assert_eq!(container["args"], json!(args.split(' ').collect::<Vec<_>>()));
    assert!(container["readinessProbe"].is_null());
}

#[test]
fn the_memory_of_a_pod_follows_from_the_memory_for_items() {
    let limit = |spec| container_of(spec)["resources"]["limits"]["memory"].clone();
    assert_eq!(limit(json!({"memory": "64Mi"})), "141Mi");
    assert_eq!(limit(json!({})), "141Mi", "64Mi is the default");
    assert_eq!(limit(json!({"memory": "1Gi"})), "1293Mi");
    assert_eq!(limit(json!({"memory": "1Gi", "maxConnections": 1024})), "1293Mi");
    assert_eq!(limit(json!({"memory": "1Gi", "maxConnections": 11024})), "1313Mi");
    let most = container_of(json!({"maxConnections": 65536}))["resources"].clone();
    assert_eq!(most["requests"]["memory"], most["limits"]["memory"]);
    assert_eq!(most["limits"]["memory"], "271Mi");
}

#[test]
fn own_resources_replace_the_defaults_one_by_one() {
    let of =
        |own: Value| container_of(json!({"memory": "1Gi", "resources": own}))["resources"].clone();
    let needed = json!("1293Mi");
    let given = |cpu: Value, limits: Value, memory: &Value| json!({"limits": limits, "requests": {"cpu": cpu, "memory": memory}});
    let limits = |memory: &Value| json!({ "memory": memory });
    let more_cpu = json!({"requests": {"cpu": "1"}});
    assert_eq!(of(more_cpu), given(json!("1"), limits(&needed), &needed));
    assert_eq!(of(json!({})), given(json!("100m"), limits(&needed), &needed));
    let counted = json!({"limits": {"cpu": "50m"}});
    let both = json!({"cpu": "50m", "memory": needed});
    assert_eq!(of(counted), given(json!("50m"), both, &needed), "no request above a limit");
    let large = json!({"limits": {"memory": "3Gi"}});
    assert_eq!(of(large), given(json!("100m"), limits(&json!("3Gi")), &needed));
    let larger = json!({"requests": {"memory": "2Gi"}});
    let two = json!("2Gi");
    assert_eq!(of(larger), given(json!("100m"), limits(&two), &two), "no limit below a request");
    let exporter = json!({"exporter": {"resources": {"limits": {"memory": "16Mi"}}}});
    let mut memcached = sample();
    memcached.spec = serde_json::from_value(exporter).unwrap();
    let images = Images { exporter: Some(InternedStr::new("e:1")), ..Images::of("m:1") };
    let pod = pod::pod(&memcached.spec, &images);
    let small = json!({"limits": {"memory": "16Mi"}, "requests": {"cpu": "10m", "memory": "16Mi"}});
    assert_eq!(pod["containers"][1]["resources"], small);
}

#[test]
fn a_rollout_never_exceeds_the_requested_size() {
    let spec = children(&sample()).deployment.spec;
    assert_eq!(spec["strategy"]["rollingUpdate"]["maxSurge"], 0);
}

#[test]
fn a_new_image_changes_no_selector() {
    let memcached = sample();
    let (a, b) = (desired(&memcached, &Images::of("a:1")), desired(&memcached, &Images::of("b:2")));
    assert_eq!(a.deployment.spec["selector"], b.deployment.spec["selector"]);
    assert_eq!(a.service.spec, b.service.spec);
    assert_ne!(a.deployment.labels, b.deployment.labels, "the version label follows the image");
}

#[test]
fn the_service_is_headless_and_selects_the_pods() {
    let Children { deployment, service, .. } = children(&sample());
    assert_eq!(service.spec["clusterIP"], "None");
    let selector = &service.spec["selector"];
    assert_eq!(*selector, deployment.spec["selector"]["matchLabels"]);
    let labels = &deployment.spec["template"]["metadata"]["labels"];
    assert!(selector.as_object().unwrap().iter().all(|(key, value)| labels[key] == *value));
}

#[test]
fn owned_objects_have_the_documented_labels() {
    let labels = children(&sample()).deployment.labels;
    for (key, value) in [
        ("app", "memcached"),
        ("memcached_cr", "memcached-sample"),
        ("cache.example.com/memcached", "memcached-sample"),
        ("app.kubernetes.io/name", "memcached"),
        ("app.kubernetes.io/instance", "memcached-sample"),
        ("app.kubernetes.io/version", "1.6.38-alpine"),
        ("app.kubernetes.io/part-of", "workload-operator"),
        ("app.kubernetes.io/managed-by", "workload-operator"),
        ("app.kubernetes.io/created-by", "memcached-controller"),
    ] {
        assert_eq!(labels.get(key).map(InternedStr::as_str), Some(value), "{key}");
    }
}

#[test]
fn ready_and_available_are_true_once_all_replicas_serve() {
    let status = status_with(&sample(), rolled_out(2), &["b", "a"]);
    let is = |kind| condition(&status.conditions, kind);
    assert_eq!(is(Type::Ready).unwrap().0, Truth::True);
    assert_eq!(
        is(Type::Available),
        Some((
            Truth::True,
            "Reconciling",
            "Deployment for custom resource (memcached-sample) with 2 replicas created successfully"
        ))
    );
    assert_eq!(is(Type::Progressing).unwrap().0, Truth::False);
    assert_eq!(is(Type::Degraded).unwrap().0, Truth::False);
    assert_eq!((is(Type::Reconciling), is(Type::Stalled)), (None, None));
    assert_eq!(&*status.nodes, ["a", "b"].map(InternedStr::new));
    assert_eq!((status.size, status.ready_replicas, status.observed_generation), (2, 2, 1));
    assert_eq!(status.selector, "cache.example.com/memcached=memcached-sample");
}

#[test]
fn every_condition_has_the_generation_of_the_status() {
    let mut memcached = sample();
    memcached.meta.generation = 7;
    for status in [
        status_with(&memcached, rolled_out(2), &[]),
        failed(&memcached, Health::new(Level::Stalled, Reason::Invalid, "x"), "x"),
        finalizing(&memcached, true, Time::new(NOW)),
    ] {
        assert_eq!(status.observed_generation, 7);
        assert!(status.conditions.iter().all(|condition| condition.observed_generation == 7));
    }
}

#[test]
fn an_incomplete_rollout_is_not_ready() {
    for (field, value) in [
        ("observedGeneration", json!(0)),
        ("updatedReplicas", json!(1)),
        ("readyReplicas", json!(1)),
        ("availableReplicas", json!(1)),
        ("replicas", json!(3)),
        ("conditions", json!([])),
    ] {
        let mut there = rolled_out(2);
        there[field] = value;
        let status = status_with(&sample(), there, &["a", "b"]);
        let ready = condition(&status.conditions, Type::Ready).unwrap();
        assert_eq!(ready.0, Truth::False, "{field}");
        let reconciling = condition(&status.conditions, Type::Reconciling).map(|c| c.0);
        assert_eq!(reconciling, Some(Truth::True), "{field}");
        assert_eq!(condition(&status.conditions, Type::Progressing).unwrap().0, Truth::True);
    }
}

#[test]
fn a_memcached_is_ready_only_with_as_many_pods_as_desired() {
    for (pods, message) in
        [(&["a"][..], "1 of 2 pods exists"), (&["a", "b", "c"], "3 of 2 pods exist")]
    {
        let status = status_with(&sample(), rolled_out(2), pods);
        let ready = condition(&status.conditions, Type::Ready);
        assert_eq!(ready, Some((Truth::False, "RollingOut", message)));
        assert_eq!(condition(&status.conditions, Type::Available).unwrap().0, Truth::True);
    }
}

#[test]
fn without_an_image_the_condition_names_the_missing_variable() {
    let health = Health::new(Level::Stalled, Reason::ImageMissing, pod::NO_IMAGE);
    let status = failed(&sample(), health, pod::NO_IMAGE);
    let (truth, reason, message) = condition(&status.conditions, Type::Available).unwrap();
    assert_eq!((truth, reason), (Truth::False, "Reconciling"));
    assert!(message.contains("Unable to find MEMCACHED_IMAGE environment variable with the image"));
    assert_eq!(condition(&status.conditions, Type::Stalled).unwrap().0, Truth::True);
}

#[test]
fn a_refused_write_is_reported_with_the_servers_message() {
    let why = "cannot create Deployment default/memcached-sample: exceeded quota: q";
    let health = Health::new(Level::Stalled, Reason::QuotaExceeded, why);
    let status = failed(&sample(), health, why);
    assert_eq!(
        condition(&status.conditions, Type::Available),
        Some((
            Truth::False,
            "Reconciling",
            &*format!(
                "Failed to create Deployment for the custom resource (memcached-sample): ({why})"
            )
        ))
    );
    assert_eq!(condition(&status.conditions, Type::Degraded).unwrap().1, "QuotaExceeded");
    let memcached = sample();
    let update_refused = |available: i32| {
        let mut there = rolled_out(2);
        there["availableReplicas"] = json!(available);
        let there = deployment(&memcached, there);
        let health = Health::new(Level::Stalled, Reason::QuotaExceeded, why);
        let found = Found { failure: Some(why.to_owned()), ..found(Some(&there), health) };
        super::status(&memcached, &found, Vec::new(), Time::new(NOW))
    };
    let status = update_refused(2);
    let available = condition(&status.conditions, Type::Available).unwrap();
    assert_eq!(available.0, Truth::True, "two serve, whatever was refused");
    assert_eq!(condition(&status.conditions, Type::Degraded).unwrap().1, "QuotaExceeded");
    let status = update_refused(1);
    let available = condition(&status.conditions, Type::Available).unwrap();
    assert_eq!(available.1, "Resizing");
    assert!(
        available
            .2
            .starts_with("Failed to update the size for the custom resource (memcached-sample): (")
    );
}

#[test]
fn the_finalizer_reports_its_start_and_its_end() {
    for (done, truth, message) in [
        (
            false,
            Truth::Unknown,
            "Performing finalizer operations for the custom resource: memcached-sample",
        ),
        (
            true,
            Truth::True,
            "Finalizer operations for custom resource memcached-sample name were successfully accomplished",
        ),
    ] {
        let status = finalizing(&sample(), done, Time::new(NOW));
        let degraded = condition(&status.conditions, Type::Degraded);
        assert_eq!(degraded, Some((truth, "Finalizing", message)));
    }
}

#[test]
fn a_stored_status_is_not_changed_again() {
    let mut memcached = sample();
    let status = status_with(&memcached, rolled_out(2), &["a", "b"]);
    memcached.status = serde_json::from_value(serde_json::to_value(&status).unwrap()).unwrap();
    let deployment = deployment(&memcached, rolled_out(2));
    let nodes = vec![InternedStr::new("b"), InternedStr::new("a")];
    let health = Health::of_deployment(&deployment, &Context::default());
    let found = found(Some(&deployment), health);
    let again = super::status(&memcached, &found, nodes, Time::new(NOW + 1000));
    assert_eq!(again, memcached.status);
}

#[test]
fn available_does_not_depend_on_the_observed_generation() {
    let memcached = sample();
    let mut edited = deployment(&memcached, rolled_out(2));
    edited.meta.generation += 1;
    let health = Health::of_deployment(&edited, &Context::default());
    let status = status(&memcached, &found(Some(&edited), health), Vec::new(), Time::new(NOW));
    assert_eq!(condition(&status.conditions, Type::Available).unwrap().0, Truth::True);
    assert_eq!(condition(&status.conditions, Type::Ready).unwrap().0, Truth::False);
}

#[test]
fn a_contested_field_is_no_failure_to_create_the_deployment() {
    let memcached = sample();
    let deployment = deployment(&memcached, rolled_out(2));
    let name = Name { kind: Deployment::kind(), key: memcached.key().clone() };
    let field = Some("metadata.labels".to_owned());
    let contested =
        ReconcileError::Contested { name: name.clone(), field, wait: std::time::Duration::ZERO };
    let nodes = vec![InternedStr::new("a"), InternedStr::new("b")];
    let health = Health::of_problem(&contested);
    let found = Found { failure: failure(&contested), ..found(Some(&deployment), health) };
    let status = status(&memcached, &found, nodes, Time::new(NOW));
    let (available, _, message) = condition(&status.conditions, Type::Available).unwrap();
    assert_eq!(available, Truth::True, "both serve: {message}");
    let (degraded, reason, _) = condition(&status.conditions, Type::Degraded).unwrap();
    assert_eq!((degraded, reason), (Truth::True, "Contested"));
    let taken = ReconcileError::not_owned::<Memcached, Deployment>(memcached.key());
    for problem in [taken, ReconcileError::Immutable { name, field: "spec.selector".to_owned() }] {
        assert!(failure(&problem).is_some(), "{problem:?}");
    }
}

#[test]
fn nodes_are_bounded() {
    let names: Vec<String> = (0..100).map(|n| format!("pod-{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    assert_eq!(status_with(&sample(), rolled_out(2), &names).nodes.len(), 16);
}

#[test]
fn only_live_pods_of_the_own_deployment_are_nodes() {
    let pod = |change: &dyn Fn(&mut Value)| {
        let mut object = json!({ "metadata": {
            "name": "p", "namespace": "default", "uid": uid(3), "resourceVersion": "1",
            "labels": { "cache.example.com/memcached": "a", "pod-template-hash": "5f" },
            "ownerReferences": [{ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "a-5f",
                "uid": uid(4), "controller": true }],
        }});
        change(&mut object["metadata"]);
        serde_json::from_value::<Pod>(object).unwrap().serves("a")
    };
    assert!(pod(&|_| {}));
    assert!(!pod(&|meta| meta["deletionTimestamp"] = json!("2026-01-01T00:00:00Z")));
    assert!(!pod(&|meta| meta["ownerReferences"] = json!([])), "a pod made by hand");
    assert!(
        !pod(&|meta| meta["ownerReferences"][0]["name"] = json!("a-b-5f")),
        "of Deployment a-b"
    );
    assert!(!pod(&|meta| meta["ownerReferences"][0]["kind"] = json!("Job")));
    assert!(!pod(&|meta| meta["labels"]["cache.example.com/memcached"] = json!("b")));
}

#[test]
fn pods_that_have_ended_are_not_watched() {
    let fields = Pod::scope(None).fields;
    assert_eq!(fields.as_deref(), Some("status.phase!=Failed,status.phase!=Succeeded"));
}

#[test]
fn the_exporter_scrapes_memcached_on_its_port() {
    let memcached = custom::<Memcached>(
        "{metadata: {name: cache}, spec: {containerPort: 11212, exporter: {}}}",
    );
    let settings = Settings {
        memcached_image: Some(InternedStr::new("memcached:1")),
        exporter_image: Some(InternedStr::new("exporter:1")),
        ..Settings::default()
    };
    let images = Images::chosen(&memcached.spec, &settings).unwrap();
    let pod = desired(&memcached, &images).deployment.spec["template"]["spec"].clone();
    let names =
        |at: usize| (pod["containers"][at]["name"].clone(), pod["containers"][at]["image"].clone());
    assert_eq!(names(0), (json!("memcached"), json!("memcached:1")));
    assert_eq!(names(1), (json!("metrics"), json!("exporter:1")));
    let exporter = &pod["containers"][1];
    assert_eq!(exporter["args"], json!(["--memcached.address=localhost:11212"]));
    assert_eq!(exporter["ports"][0]["name"], "metrics");
    assert_eq!(exporter["securityContext"]["runAsUser"], 65534);
    assert_eq!(exporter["resources"]["limits"], json!({"memory": "64Mi"}));
}

#[test]
fn an_exporters_image_is_its_own_or_the_administrators() {
    let spec = |exporter: &str| {
        let yaml = format!("{{metadata: {{name: a}}, spec: {{exporter: {exporter}}}}}");
        custom::<Memcached>(&yaml).spec
    };
    let memcached_image = Some(InternedStr::new("memcached:1"));
    let without = Settings { memcached_image, ..Settings::default() };
    let own = Images::chosen(&spec("{image: mine:2}"), &without).unwrap();
    assert_eq!(own.exporter.as_deref(), Some("mine:2"));
    let missing = Images::chosen(&spec("{}"), &without).unwrap_err();
    assert!(missing.contains("MEMCACHED_EXPORTER_IMAGE"), "{missing}");
}
