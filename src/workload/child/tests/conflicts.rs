//! Foreign fields that may not stay beside what is desired.

use super::*;
use crate::generic_daemon::{self, GenericDaemon};
use crate::workload::conflicts::removal;

const DAEMON: &str = include_str!("../../../../artifacts/examples/syslog.yaml");

#[test]
fn a_port_that_is_not_wanted_is_in_the_way() {
    let (_, desired, mut there) = nginx_service();
    let ports = there["spec"]["ports"].as_array_mut().unwrap();
    ports.insert(0, json!({ "port": 1, "protocol": "TCP", "nodePort": 30001 }));
    ports.push(json!({ "port": 8080, "protocol": "UDP" }));
    let there = child(&there);
    assert_eq!(
        desired.spec.conflicts(&there, &|_| true),
        ["/spec/ports/2", "/spec/ports/0"].map(removal)
    );
}

/// A Service that is not headless must have a port.
#[test]
fn where_no_wanted_port_is_left_one_is_made_into_it() {
    let (_, desired, mut there) = nginx_service();
    there["spec"]["ports"] = json!([
        { "name": "x", "port": 9090, "protocol": "TCP", "nodePort": 30001 },
        { "name": "y", "port": 9091, "protocol": "TCP" },
    ]);
    let wanted = json!({ "port": 8080, "protocol": "TCP", "name": "x" });
    assert_eq!(
        desired.spec.conflicts(&child(&there), &|_| true),
        [
            removal("/spec/ports/1"),
            json!({ "op": "replace", "path": "/spec/ports/0", "value": wanted }),
        ]
    );
}

#[test]
fn a_port_that_we_set_ourselves_is_not_in_the_way() {
    let (_, desired, mut there) = nginx_service();
    there["spec"]["ports"] = json!([
        { "port": 9090, "protocol": "TCP", "targetPort": 80 },
        { "port": 9091, "protocol": "TCP" },
    ]);
    let theirs = |pointer: &str| pointer == "/spec/ports/0";
    assert_eq!(desired.spec.conflicts(&child(&there), &theirs), [removal("/spec/ports/0")]);
    assert_eq!(desired.spec.conflicts(&child(&there), &|_| false), [Value::Null; 0]);
}

#[test]
fn a_pace_that_somebody_has_set_gives_way_where_both_would_be_refused() {
    let (_, mut desired, mut there) = nginx();
    let mut in_the_way = |wanted: Value, by_hand: Value| {
        let strategy = json!({"type": "RollingUpdate", "rollingUpdate": wanted});
        desired.spec.strategy = serde_json::from_value(strategy).unwrap();
        there["spec"]["strategy"] = json!({"type": "RollingUpdate", "rollingUpdate": by_hand});
        desired.spec.conflicts(&child(&there), &|_| true)
    };
    let (none_missing, no_more) = (json!({"maxUnavailable": 0}), json!({"maxSurge": "0%"}));
    let replaced = |pace: &Value| json!({"op": "replace", "path": "/spec/strategy/rollingUpdate", "value": pace});
    let by_hand = json!({"maxSurge": 0, "maxUnavailable": 1});
    assert_eq!(in_the_way(none_missing.clone(), by_hand), [replaced(&none_missing)]);
    let by_hand = json!({"maxSurge": 1, "maxUnavailable": 0});
    assert_eq!(in_the_way(no_more.clone(), by_hand.clone()), [replaced(&no_more)]);
    assert_eq!(in_the_way(none_missing, by_hand), [Value::Null; 0]);

    let daemon: GenericDaemon = custom(DAEMON);
    let mut desired = generic_daemon::desired(&daemon);
    let mut there = wire(&daemon, &desired);
    let wanted = json!({"maxUnavailable": 2});
    let strategy = json!({"type": "RollingUpdate", "rollingUpdate": wanted});
    desired.spec.update_strategy = Some(Box::new(strategy));
    for (surge, count) in [(json!(1), 1), (json!("10%"), 1), (json!(0), 0), (json!(null), 0)] {
        there["spec"]["updateStrategy"] =
            json!({"rollingUpdate": {"maxSurge": surge, "maxUnavailable": 0}});
        let operations = desired.spec.conflicts(&child(&there), &|_| true);
        assert_eq!(operations.len(), count, "{surge}");
        assert!(operations.iter().all(|operation| operation["value"] == wanted));
    }
}

#[test]
fn a_source_beside_a_value_is_in_the_way() {
    let (_, desired, mut there) = nginx();
    let env = &mut there["spec"]["template"]["spec"]["containers"][0]["env"];
    env[0] = json!({ "name": "LOG_LEVEL", "valueFrom": { "fieldRef": { "fieldPath": "x" } } });
    env[1] = json!({ "name": "POD_NAME", "value": "x" });
    let there = child(&there);
    let root = "/spec/template/spec/containers/0/env";
    assert_eq!(
        desired.spec.conflicts(&there, &|_| true),
        [removal(&format!("{root}/1/value")), removal(&format!("{root}/0/valueFrom"))]
    );
}

/// Returns the paths that conflict in a pod template changed like this.
fn cleared<S: ChildSpec>(
    (made, mut there): (Desired<S>, Value),
    changes: &[(&str, Value)],
) -> Vec<String> {
    for (place, value) in changes {
        let (parent, field) = place.rsplit_once('/').unwrap();
        let parent = format!("/spec/template/spec{parent}");
        there.pointer_mut(&parent).unwrap()[field] = value.clone();
    }
    let operations = made.spec.conflicts(&child(&there), &|_| true);
    assert!(operations.iter().all(|operation| operation["op"] == "remove"), "{operations:?}");
    let path = |operation: &Value| operation["path"].as_str().unwrap().to_owned();
    operations.iter().map(|o| path(o).replace("/spec/template/spec", "")).collect()
}

fn memcached_deployment() -> (Desired<DeploymentSpec>, Value) {
    let memcached: Memcached = custom(MEMCACHED);
    let desired = memcached::desired(&memcached, &memcached::Images::of("m")).deployment;
    let there = wire(&memcached, &desired);
    (desired, there)
}

#[test]
fn a_port_that_has_the_name_of_a_wanted_one_is_in_the_way() {
    let changed = [(
        "/containers/0/ports",
        json!([
            { "containerPort": 11212, "protocol": "TCP", "name": "memcached" },
            { "containerPort": 9150, "protocol": "TCP", "name": "metrics" },
        ]),
    )];
    assert_eq!(cleared(memcached_deployment(), &changed), ["/containers/0/ports/0"]);
    // If the port itself is wanted, but without a name, only the name is removed.
    let mut app: App = custom(NGINX);
    app.spec.ports = [(80, None), (81, Some("admin"))]
        .map(|(port, name)| crate::workload::services::ServicePort {
            port,
            target_port: name
                .map(|n| crate::workload::services::TargetPort::Name(InternedStr::new(n))),
            ..Default::default()
        })
        .into();
    let desired = app::desired(&app).deployment;
    let there = wire(&app, &desired);
    let changed = [
        ("/containers/0/ports/0/name", json!("admin")),
        ("/containers/0/ports/1/name", json!("other")),
    ];
    assert_eq!(cleared((desired, there), &changed), ["/containers/0/ports/0/name"]);
}

/// A probe has one handler, and none is no probe: the API server refuses both.
#[test]
fn a_probe_with_another_handler_is_replaced_as_a_whole() {
    for (field, handler) in [
        ("exec", json!({ "command": ["true"] })),
        ("httpGet", json!({ "path": "/", "port": 80, "scheme": "HTTP" })),
        ("grpc", json!({ "port": 80, "service": "" })),
    ] {
        let probe = json!({ field: handler, "periodSeconds": 10, "timeoutSeconds": 1 });
        let (made, mut there) = memcached_deployment();
        let at = "/spec/template/spec/containers/0/readinessProbe";
        *there.pointer_mut(at).unwrap() = probe;
        let wanted = made.spec.template.spec.containers[0].readiness_probe.clone();
        let replaced = json!({"op": "replace", "path": at, "value": wanted});
        // Whoever set the other handler: the operator's own apply holds the probe, too.
        assert_eq!(made.spec.conflicts(&child(&there), &|_| false), [replaced], "{field}");
    }
}

/// A handler of another manager stays a probe of theirs.
#[test]
fn a_probe_that_loses_its_handler_goes_with_what_others_set_in_it() {
    let (mut made, mut there) = memcached_deployment();
    let at = "/spec/template/spec/containers/0/readinessProbe";
    let probe = there.pointer_mut(at).unwrap();
    for (field, value) in [("timeoutSeconds", 1), ("successThreshold", 1), ("failureThreshold", 3)]
    {
        probe[field] = json!(value);
    }
    let with_defaults = there.clone();
    there.pointer_mut(at).unwrap()["periodSeconds"] = json!(3);
    made.spec.template.spec.containers[0].readiness_probe = None;
    let period = format!("{at}/periodSeconds");
    let removed = json!({"op": "remove", "path": at});
    assert_eq!(made.spec.conflicts(&child(&there), &|path| path == period), [removed]);
    assert_eq!(made.spec.conflicts(&child(&there), &|_| false), [Value::Null; 0]);
    let is_foreign = |path: &str| path.starts_with(at);
    assert_eq!(made.spec.conflicts(&child(&there), &is_foreign), [Value::Null; 0]);
    let not_applied = |path: &str| !path.ends_with("tcpSocket");
    assert_eq!(made.spec.conflicts(&child(&with_defaults), &not_applied), [Value::Null; 0]);
}

/// A container of another manager stays, as does one whose image another manager has set.
#[test]
fn a_container_that_loses_its_image_goes_with_what_others_set_in_it() {
    let (made, mut there) = memcached_deployment();
    let containers = there.pointer_mut("/spec/template/spec/containers").unwrap();
    let more = ["sidecar", "exporter"].map(|name| json!({"name": name, "image": "a:1"}));
    containers.as_array_mut().unwrap().extend(more);
    let at = "/spec/template/spec/containers/2";
    let removed = json!({"op": "remove", "path": at});
    let is_foreign = |path: &str| !path.starts_with(at) || path.ends_with("/resources");
    assert_eq!(made.spec.conflicts(&child(&there), &is_foreign), [removed]);
}

#[test]
fn what_the_server_or_somebody_adds_to_the_probe_is_left_alone() {
    let (desired, mut there) = memcached_deployment();
    let probe = there.pointer_mut("/spec/template/spec/containers/0/readinessProbe").unwrap();
    for (field, value) in [
        ("timeoutSeconds", 1),
        ("periodSeconds", 3),
        ("successThreshold", 1),
        ("failureThreshold", 9),
    ] {
        probe[field] = json!(value);
    }
    assert_eq!(desired.spec.conflicts(&child(&there), &|_| true), [Value::Null; 0]);
}

#[test]
fn rights_that_are_refused_beside_the_wanted_ones_are_in_the_way() {
    let changed = [
        ("/containers/0/securityContext/allowPrivilegeEscalation", json!(true)),
        ("/containers/0/securityContext/privileged", json!(true)),
        (
            "/containers/0/securityContext/capabilities",
            json!({ "add": ["CHOWN", "CAP_SYS_ADMIN"] }),
        ),
        (
            "/securityContext/seccompProfile",
            json!({ "type": "Localhost", "localhostProfile": "x" }),
        ),
    ];
    assert_eq!(
        cleared(memcached_deployment(), &changed),
        [
            "/containers/0/securityContext/privileged",
            "/containers/0/securityContext/capabilities/add/1",
            "/securityContext/seccompProfile",
        ]
    );
    let (made, there) = memcached_deployment();
    assert_eq!(cleared((made, there), &[]), [""; 0]);
}

#[test]
fn requests_above_a_wanted_limit_and_limits_below_a_wanted_request_are_in_the_way() {
    let with = |resources: Value| {
        let mut app: App = custom(NGINX);
        app.spec.resources = serde_json::from_value(resources).unwrap();
        let desired = app::desired(&app).deployment;
        let there = wire(&app, &desired);
        (desired, there)
    };
    let place = "/containers/0/resources";
    let limited = || with(json!({ "limits": { "cpu": "500m", "memory": "1Gi", "a.b/c": "2" } }));
    let by_hand = json!({
        "limits": { "cpu": "2", "memory": "1Gi", "a.b/c": "1" },
        "requests": { "cpu": "1", "memory": "1Gi", "a.b/c": "1", "ephemeral-storage": "1Ti" },
    });
    assert_eq!(
        cleared(limited(), &[(place, by_hand)]),
        [format!("{place}/requests/a.b~1c"), format!("{place}/requests/cpu")]
    );
    // Without the limit the request may not stay, unless another manager has set a limit, too.
    let (before, now) = (limited().1, with(json!({})).0);
    let mut there = before;
    let of_there = &mut there["spec"]["template"]["spec"]["containers"][0]["resources"];
    of_there["requests"] = json!({ "a.b/c": "2", "cpu": "1m" });
    let conflicts = |ours: &str| {
        let ours = format!("/spec/template/spec{place}/limits/{ours}");
        now.spec.conflicts(&child(&there), &|pointer| pointer != ours)
    };
    let request = format!("/spec/template/spec{place}/requests/a.b~1c");
    assert_eq!(conflicts("a.b~1c"), [removal(&request)]);
    assert_eq!(conflicts("cpu"), [Value::Null; 0]);
    let requested = with(json!({ "requests": { "cpu": "1" } }));
    let by_hand = json!({ "limits": { "cpu": "500m" }, "requests": { "cpu": "100m" } });
    assert_eq!(cleared(requested, &[(place, by_hand)]), [format!("{place}/limits/cpu")]);
}
