//! The DaemonSet and the status of a GenericDaemon.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::object::InternedStr;
use crate::workload::evidence::{Answer, Evidence};
use crate::workload::fixtures::{assert_golden, child, custom, found, wire};
use crate::workload::health::Context;

const SAMPLE: &str = include_str!("../../artifacts/examples/syslog.yaml");

fn sample() -> GenericDaemon {
    custom(SAMPLE)
}

fn with_label(label: Option<&str>) -> GenericDaemon {
    let mut daemon = sample();
    daemon.spec.label = label.map(InternedStr::new);
    daemon
}

/// The pod spec of `daemon`'s DaemonSet, as it is sent.
fn pod(daemon: &GenericDaemon) -> Value {
    desired(daemon).spec["template"]["spec"].clone()
}

/// A DaemonSet with these node counts: desired, current, up to date, and ready.
fn there(daemon: &GenericDaemon, [desired_, current, updated, ready]: [i32; 4]) -> DaemonSet {
    let mut object = wire(daemon, &desired(daemon));
    object["status"] = json!({
        "observedGeneration": 1, "desiredNumberScheduled": desired_,
        "currentNumberScheduled": current, "updatedNumberScheduled": updated,
        "numberReady": ready, "numberAvailable": ready,
    });
    child(&object)
}

fn status_with(daemon: &GenericDaemon, daemon_set: &DaemonSet) -> Status {
    let nodes = Answer::Found([].into());
    let evidence = Evidence { nodes, ..Evidence::default() };
    let label = daemon.spec.label.as_deref();
    let health =
        Health::of_daemon_set(daemon_set, &Context { label, evidence, ..Context::default() });
    status(daemon, &found(Some(daemon_set), health), Time::new(0))
}

#[test]
fn installed_is_zero_while_the_daemon_set_is_of_an_older_spec() {
    let daemon = sample();
    let daemon_set = there(&daemon, [2, 2, 2, 2]);
    let health = Health::paused(true);
    let found = Found { is_as_desired: false, ..found(Some(&daemon_set), health) };
    assert_eq!(status(&daemon, &found, Time::new(0)).installed, 0);
}

#[test]
fn the_pod_template_of_the_sample_is_unchanged() {
    assert_golden("syslog.json", &desired(&sample()).spec["template"]);
}

#[test]
fn an_update_strategy_has_a_type() {
    let strategy = |strategy: Value| {
        let mut daemon = sample();
        daemon.spec.update_strategy = strategy.into();
        desired(&daemon).spec["updateStrategy"].clone()
    };
    assert_eq!(strategy(json!({})), Value::Null);
    let pace = json!({"rollingUpdate": {"maxUnavailable": "10%"}});
    assert_eq!(strategy(pace)["type"], "RollingUpdate");
    assert_eq!(strategy(json!({"type": "OnDelete"})), json!({"type": "OnDelete"}));
}

#[test]
fn without_a_label_every_node_is_selected() {
    let pod = pod(&with_label(None));
    assert_eq!((pod.get("nodeSelector"), pod.get("affinity")), (None, None));
}

#[test]
fn a_key_and_value_select_the_nodes_with_that_value() {
    assert_eq!(pod(&with_label(Some("disk=ssd")))["nodeSelector"], json!({ "disk": "ssd" }));
    assert_eq!(pod(&with_label(Some("disk=")))["nodeSelector"], json!({ "disk": "" }));
}

#[test]
fn a_label_key_selects_nodes_with_any_value() {
    let pod = pod(&with_label(Some("example.com/logs")));
    assert_eq!(pod.get("nodeSelector"), None);
    let terms = &pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        ["nodeSelectorTerms"];
    let expected =
        json!([{ "matchExpressions": [{ "key": "example.com/logs", "operator": "Exists" }] }]);
    assert_eq!(*terms, expected);
}

#[test]
fn the_label_overrides_a_node_selector_with_the_same_key() {
    let spec = json!({"image": "a:1", "label": "disk=ssd",
        "podTemplate": {"spec": {"nodeSelector": {"disk": "hdd", "zone": "a"}}}});
    let spec: Spec = serde_json::from_value(spec).unwrap();
    assert_eq!(spec.node_labels().as_deref(), Some("disk=ssd,zone=a"));
    let selector = json!({"spec": {"nodeSelector": {"disk": "hdd"}}});
    let spec = json!({"image": "a:1", "label": "disk", "podTemplate": selector});
    let spec: Spec = serde_json::from_value(spec).unwrap();
    assert_eq!(spec.node_labels().as_deref(), Some("disk,disk=hdd"), "it needs both");
}

#[test]
fn a_template_cannot_move_a_daemon_to_other_nodes() {
    let required = |terms: Value| {
        json!({"spec": {"affinity": {"nodeAffinity":
        {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}}})
    };
    let of = |label: &str, template: Value| {
        let mut daemon = with_label(Some(label));
        daemon.spec.pod_template = template.into();
        pod(&daemon)
    };
    let exists = json!({"key": "logs", "operator": "Exists"});
    let zone = json!({"key": "zone", "operator": "In", "values": ["a"]});
    let terms = |pod: Value| {
        pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
            ["nodeSelectorTerms"]
            .clone()
    };
    let two = json!([{"matchExpressions": [zone]}, {"matchFields": [zone]}]);
    let expected = json!([{"matchExpressions": [zone, exists]},
        {"matchFields": [zone], "matchExpressions": [exists]}]);
    assert_eq!(terms(of("logs", required(two))), expected);
    let none = json!([{"matchExpressions": [exists]}]);
    assert_eq!(terms(of("logs", required(json!([])))), none);
    let selector = json!({"spec": {"nodeSelector": {"disk": "hdd", "zone": "a"}}});
    assert_eq!(of("disk=ssd", selector)["nodeSelector"], json!({"disk": "ssd", "zone": "a"}));
}

#[test]
fn installed_counts_nodes_that_are_both_up_to_date_and_ready() {
    let daemon = sample();
    for (counts, installed) in [
        ([3, 3, 3, 3], 3),
        ([3, 3, 1, 2], 0), // the updated pod is not ready
        ([3, 3, 2, 2], 1),
        ([3, 3, 0, 3], 0),
        ([3, 1, 1, 1], 1),
        ([0, 0, 0, 0], 0),
    ] {
        let status = status_with(&daemon, &there(&daemon, counts));
        assert_eq!((status.desired, status.installed), (counts[0], installed), "{counts:?}");
    }
}

proptest! {
    /// The actual state: each node has the daemon or not, up to date or not, ready or not.
    #[test]
    fn installed_never_exceeds_the_actual_count(nodes in prop::collection::vec(any::<[bool; 3]>(), 0..20)) {
        let daemon = sample();
        let count = |what: &dyn Fn(&[bool; 3]) -> bool| nodes.iter().filter(|n| what(n)).count() as i32;
        let truth = count(&|n| n[0] && n[1] && n[2]);
        let counts = [
            nodes.len() as i32,
            count(&|n| n[0]),
            count(&|n| n[0] && n[1]),
            count(&|n| n[0] && n[2]),
        ];
        let installed = status_with(&daemon, &there(&daemon, counts)).installed;
        prop_assert!(installed <= truth);
        let done = truth == nodes.len() as i32;
        prop_assert_eq!(done, installed == nodes.len() as i32);
    }
}

#[test]
fn a_new_image_or_label_changes_no_selector() {
    let selector = |daemon: &GenericDaemon| desired(daemon).spec["selector"].clone();
    let mut other = with_label(Some("disk=ssd"));
    other.spec.image = InternedStr::new("r:5000/other@sha256:0123");
    assert_eq!(selector(&sample()), selector(&other));
}

#[test]
fn a_long_name_makes_valid_labels() {
    let daemon: GenericDaemon =
        custom(&SAMPLE.replace("name: syslog", &format!("name: {}", "a.".repeat(120) + "b")));
    let made = desired(&daemon);
    assert!(made.labels.iter().all(|(_, value)| value.len() <= 63));
    let labels = &made.spec["template"]["metadata"]["labels"];
    let selector = made.spec["selector"]["matchLabels"].as_object().unwrap();
    assert!(selector.iter().all(|(key, value)| labels[key] == *value));
}
