//! The owned objects and the status of an App.

use std::collections::BTreeSet;

use proptest::prelude::*;
use proptest::strategy::Strategy;
use serde_json::{Value, json};

use super::*;
use crate::workload::condition::{Status as Truth, Type};
use crate::workload::fixtures::{assert_golden, child, condition, custom, found, rolled_out, wire};
use crate::workload::health::{Context, Health};

const SAMPLE: &str = include_str!("../../artifacts/examples/nginx-app.yaml");

fn sample() -> App {
    custom(SAMPLE)
}

/// An App with these ports.
fn with_ports(ports: &Value) -> App {
    let mut app = sample();
    app.spec.ports = serde_json::from_value(ports.clone()).unwrap();
    app
}

/// The ports of the Service and of the container, as they are sent.
fn ports(app: &App) -> (Value, Value) {
    let Children { deployment, service, .. } = desired(app);
    let container = &deployment.spec["template"]["spec"]["containers"][0];
    let service = service.map(|service| service.spec["ports"].clone());
    (service.unwrap_or_default(), container["ports"].clone())
}

fn status_with(app: &App, deployment_status: Value) -> Status {
    let mut object = wire(app, &desired(app).deployment);
    object["status"] = deployment_status;
    let deployment: Deployment = child(&object);
    let health = Health::of_deployment(&deployment, &Context::default());
    status(app, &found(Some(&deployment), health), Time::new(0))
}

#[test]
fn the_pod_template_of_the_sample_is_unchanged() {
    assert_golden("nginx-app.json", &desired(&sample()).deployment.spec["template"]);
}

#[test]
fn the_deadline_includes_probes_min_ready_seconds_and_the_grace_period() {
    let deadline = |more: Value| {
        let mut spec = json!({"image": "shop:1"});
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let app: App = custom(
            &json!({"metadata": {"name": "shop", "namespace": "ns"}, "spec": spec}).to_string(),
        );
        desired(&app).deployment.spec["progressDeadlineSeconds"].as_i64()
    };
    assert_eq!(deadline(json!({})), None, "Kubernetes' own");
    assert_eq!(deadline(json!({"minReadySeconds": 700})), Some(1300));
    let slow = json!({"tcpSocket": {"port": 80}, "failureThreshold": 120, "periodSeconds": 10});
    assert_eq!(deadline(json!({"startupProbe": slow})), Some(1800));
    let grace = json!({"spec": {"terminationGracePeriodSeconds": 1800}});
    assert_eq!(deadline(json!({"podTemplate": grace})), None, "new pods come beside the old ones");
    assert_eq!(
        deadline(json!({"podTemplate": grace, "strategy": {"type": "Recreate"}})),
        Some(2400)
    );
}

#[test]
fn only_an_app_with_an_account_of_its_own_gets_a_token() {
    let token = |template: Value| {
        let mut app = sample();
        app.spec.pod_template = template.into();
        let spec = desired(&app).deployment.spec;
        spec["template"]["spec"]["automountServiceAccountToken"].as_bool()
    };
    let own = json!({"spec": {"serviceAccountName": "shop"}});
    assert_eq!((token(json!({})), token(own)), (Some(false), None));
}

#[test]
fn a_surge_is_sent_with_rolling_updates_only() {
    let strategy = |strategy: Value| {
        let mut app = sample();
        app.spec.strategy = strategy.into();
        desired(&app).deployment.spec["strategy"].clone()
    };
    let rolling = |pace: Value| json!({"type": "RollingUpdate", "rollingUpdate": pace});
    assert_eq!(strategy(json!({})), rolling(json!({"maxSurge": "25%"})));
    let none = json!({"rollingUpdate": {"maxUnavailable": 0}});
    assert_eq!(strategy(none), rolling(json!({"maxUnavailable": 0, "maxSurge": "25%"})));
    // The API server refuses the others.
    for kept in [json!({"type": "Recreate"}), json!({"type": "recreate"}), json!("Recreate")] {
        assert_eq!(strategy(kept.clone()), kept);
    }
}

#[test]
fn without_ports_there_is_no_service() {
    let app = with_ports(&json!([]));
    assert!(desired(&app).service.is_none());
    assert_eq!(ports(&app), (Value::Null, Value::Null));
}

#[test]
fn the_container_port_is_the_target_port_or_else_the_port() {
    let app = with_ports(&json!([
        { "port": 8080, "targetPort": 80 },
        { "port": 443, "targetPort": "https" },
        { "port": 53, "protocol": "UDP" },
    ]));
    let (_, container) = ports(&app);
    assert_eq!(
        container,
        json!([
            { "containerPort": 53, "protocol": "UDP" },
            { "containerPort": 80, "protocol": "TCP" },
            { "containerPort": 443, "protocol": "TCP", "name": "https" },
        ])
    );
}

#[test]
fn two_ports_with_the_same_target_share_a_container_port() {
    let (_, container) = ports(&with_ports(&json!([
        { "name": "a", "port": 81, "targetPort": 80 },
        { "name": "b", "port": 82, "targetPort": 80 },
        { "name": "c", "port": 80, "targetPort": "web" },
    ])));
    assert_eq!(container, json!([{ "containerPort": 80, "protocol": "TCP", "name": "web" }]));
}

/// Go clients write unset fields as 0 or as an empty string.
#[test]
fn zero_values_of_a_port_mean_unset_fields() {
    let zero =
        json!([{ "port": 80, "targetPort": 0, "nodePort": 0, "name": "", "appProtocol": "" }]);
    assert_eq!(desired(&with_ports(&zero)), desired(&with_ports(&json!([{ "port": 80 }]))));
    let empty = json!([{ "port": 80, "targetPort": "" }]);
    assert_eq!(desired(&with_ports(&empty)), desired(&with_ports(&json!([{ "port": 80 }]))));
}

#[test]
fn only_several_ports_get_generated_names() {
    let (service, _) = ports(&with_ports(&json!([{ "port": 80 }])));
    assert_eq!(service[0].get("name"), None);
    let (service, _) = ports(&with_ports(&json!([
        { "port": 80 }, { "port": 80, "protocol": "UDP" }, { "port": 81, "name": "tcp-80" },
    ])));
    let names: Vec<_> = service.as_array().unwrap().iter().map(|port| &port["name"]).collect();
    assert_eq!(names, ["tcp-80-2", "udp-80", "tcp-80"]);
}

#[test]
fn a_node_port_sets_the_service_type_node_port() {
    let kind = |app: &App| desired(app).service.unwrap().spec["type"].clone();
    assert_eq!(kind(&sample()), Value::Null);
    assert_eq!(kind(&with_ports(&json!([{ "port": 80, "nodePort": 30080 }]))), "NodePort");
}

#[test]
fn the_status_contains_the_deployments_conditions_and_the_summary() {
    let mut app = sample();
    app.meta.generation = 4;
    let mut there = rolled_out(2);
    there["unavailableReplicas"] = json!(0);
    let status = status_with(&app, there);
    assert_eq!(status.observed_generation, 4, "the App's own generation, as everywhere");
    assert_eq!((status.replicas, status.updated_replicas, status.ready_replicas), (2, 2, 2));
    assert_eq!((status.available_replicas, status.unavailable_replicas), (2, 0));
    let available = condition(&status.conditions, Type::Available).unwrap();
    assert_eq!(available, (Truth::True, "MinimumReplicasAvailable", "m"));
    let ready = condition(&status.conditions, Type::Ready).unwrap();
    assert_eq!((ready.0, ready.1), (Truth::True, "AllReplicasReady"));
    assert!(status.conditions.iter().all(|condition| condition.observed_generation == 4));
    let json = serde_json::to_value(&status).unwrap();
    let since = json["conditions"].as_array().unwrap().iter().find(|c| c["type"] == "Available");
    assert_eq!(
        since.unwrap()["lastTransitionTime"],
        "2026-01-01T00:00:00Z",
        "as the Deployment says"
    );
}

/// `unavailableReplicas` of the older spec would report that no replica is missing.
#[test]
fn unavailable_replicas_are_counted_for_the_current_spec() {
    let app = sample();
    let health = Health::paused(false);
    let found = found(None, health);
    assert_eq!(status(&app, &found, Time::new(0)).unavailable_replicas, 2);
    let mut object = wire(&app, &desired(&app).deployment);
    object["status"] = rolled_out(1);
    let deployment: Deployment = child(&object);
    let found = Found { workload: Some(&deployment), ..found };
    let status = status(&app, &found, Time::new(0));
    assert_eq!((status.updated_replicas, status.unavailable_replicas), (0, 1));
}

#[test]
fn the_order_of_the_deployments_conditions_does_not_matter() {
    let mut reversed = rolled_out(2);
    reversed["conditions"].as_array_mut().unwrap().reverse();
    let kinds =
        |status: Status| status.conditions.iter().map(|c| c.kind.clone()).collect::<Vec<_>>();
    let order = kinds(status_with(&sample(), rolled_out(2)));
    assert_eq!(order, ["Ready", "Available", "Progressing", "Degraded"]);
    assert_eq!(kinds(status_with(&sample(), reversed)), order);
}

/// Ports that the schema allows.
fn any_ports() -> impl Strategy<Value = Vec<Value>> {
    let target = prop_oneof![
        Just(Value::Null),
        (1..10i32).prop_map(|n| json!(n)),
        "[a-c]".prop_map(|name| json!(name)),
    ];
    let port = (
        1..10i32,
        prop_oneof![Just("TCP"), Just("UDP")],
        target,
        prop::option::of("tcp-[1-9](-2)?"),
    );
    prop::collection::vec(port, 0..8).prop_map(|ports| {
        let (mut keys, mut names, mut targets) =
            (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        let mut made = Vec::new();
        for (port, protocol, target, name) in ports {
            if !keys.insert((port, protocol)) {
                continue;
            }
            if target.is_string() && !targets.insert(target.to_string()) {
                continue;
            }
            let mut port = json!({ "port": port, "protocol": protocol });
            if !target.is_null() {
                port["targetPort"] = target;
            }
            if let Some(name) = name.filter(|name| names.insert(name.clone())) {
                port["name"] = json!(name);
            }
            made.push(port);
        }
        made
    })
}

proptest! {
    #[test]
    fn any_valid_ports_give_a_valid_service_and_container(spec in any_ports()) {
        let (service, container) = ports(&with_ports(&json!(spec)));
        let service = service.as_array().cloned().unwrap_or_default();
        prop_assert_eq!(service.len(), spec.len());
        let names: BTreeSet<_> = service.iter().map(|port| port["name"].to_string()).collect();
        prop_assert!(names.len() == service.len(), "each name once: {:?}", service);
        if service.len() > 1 {
            prop_assert!(service.iter().all(|port| port["name"].is_string()), "each has a name");
        }
        let container = container.as_array().cloned().unwrap_or_default();
        let keys: BTreeSet<_> = container
            .iter()
            .map(|port| (port["containerPort"].to_string(), port["protocol"].to_string()))
            .collect();
        prop_assert!(keys.len() == container.len(), "each key once: {:?}", container);
        let named: Vec<_> = container.iter().filter_map(|port| port["name"].as_str()).collect();
        let distinct: BTreeSet<_> = named.iter().collect();
        prop_assert!(distinct.len() == named.len(), "each name once: {:?}", container);
        for port in &service {
            let found = container.iter().any(|c| match &port["targetPort"] {
                Value::Null => c["containerPort"] == port["port"] && c["protocol"] == port["protocol"],
                Value::String(name) => c["name"] == **name && c["protocol"] == port["protocol"],
                number => c["containerPort"] == *number && c["protocol"] == port["protocol"],
            });
            prop_assert!(found, "{} leads nowhere: {:?}", port, container);
        }
    }

    #[test]
    fn the_order_of_ports_does_not_matter(spec in any_ports().prop_shuffle()) {
        let (_, container) = ports(&with_ports(&json!(spec)));
        let reversed: Vec<_> = spec.iter().rev().cloned().collect();
        prop_assert_eq!(ports(&with_ports(&json!(reversed))).1, container);
    }
}

#[test]
fn generated_port_names_do_not_depend_on_the_order() {
    let spec = [json!({ "port": 2 }), json!({ "port": 1 }), json!({ "port": 3, "name": "x" })];
    let names = |spec: Vec<Value>| {
        let (service, _) = ports(&with_ports(&json!(spec)));
        let of = |port: &Value| (port["port"].to_string(), port["name"].to_string());
        service.as_array().unwrap().iter().map(of).collect::<BTreeSet<_>>()
    };
    assert_eq!(names(spec.to_vec()), names(spec.iter().rev().cloned().collect()));
}
