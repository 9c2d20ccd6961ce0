//! Causes as a kube-apiserver 1.36 gives them, for a Deployment of two containers as it stores it: with defaults.

use super::*;

const POD: &str = "/spec/template/spec";
const MAIN: &str = "/spec/template/spec/containers/0";
const EXPORTER: &str = "/spec/template/spec/containers/1";

/// A desired object, and what is stored after it was applied.
struct Case {
    desired: Value,
    stored: Value,
    /// Fields that other managers have set.
    others: Vec<String>,
}

impl Case {
    fn new() -> Case {
        let probe = json!({"tcpSocket": {"port": 1}});
        let container = |name: &str, port: u16| {
            json!({"name": name, "image": "a:1", "readinessProbe": probe,
                "env": [{"name": "LEVEL", "value": "1"}],
                "ports": [{"name": name, "containerPort": port}],
                "securityContext": {"allowPrivilegeEscalation": false},
                "resources": {"requests": {"memory": "1Gi"}}})
        };
        let containers = json!([container("main", 80), container("exporter", 90)]);
        let desired = json!({"metadata": {"name": "a"}, "spec": {
            "strategy": {"type": "Recreate"},
            "template": {"spec": {"containers": containers, "volumes": [{"name": "data", "emptyDir": {}}]}},
        }});
        let mut stored = desired.clone();
        stored["spec"]["replicas"] = json!(1);
        stored["spec"]["strategy"] = json!({"type": "RollingUpdate",
            "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}});
        for path in [MAIN, EXPORTER] {
            let container = stored.pointer_mut(path).unwrap();
            container["terminationMessagePath"] = json!("/dev/termination-log");
            container["imagePullPolicy"] = json!("IfNotPresent");
            container["ports"][0]["protocol"] = json!("TCP");
            for (field, value) in [("periodSeconds", 10), ("failureThreshold", 3)] {
                container["readinessProbe"][field] = json!(value);
            }
        }
        Case { desired, stored, others: Vec::new() }
    }

    /// Another manager sets a field.
    fn set(mut self, path: &str, value: Value) -> Case {
        put(&mut self.stored, path, value);
        self.others.push(path.to_owned());
        self
    }

    /// The desired state changes.
    fn desire(mut self, path: &str, value: Value) -> Case {
        put(&mut self.desired, path, value);
        self
    }

    /// The stored object shows a default, or an earlier desired state.
    fn store(mut self, path: &str, value: Value) -> Case {
        put(&mut self.stored, path, value);
        self
    }

    fn operations(&self, causes: &[(&str, &str)]) -> Vec<Value> {
        let cause = |(reason, field): &(&str, &str)| Cause {
            reason: format!("FieldValue{reason}"),
            field: (*field).to_owned(),
            ..Cause::default()
        };
        let causes: Vec<_> = causes.iter().map(cause).collect();
        let owns = |owned: &str, path: &str| {
            let is_within = |inner: &str, outer: &str| {
                inner
                    .strip_prefix(outer)
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            };
            is_within(owned, path) || is_within(path, owned)
        };
        let others = |path: &str| self.others.iter().any(|owned| owns(owned, path));
        // All but the defaults, which have no owner.
        let is_default = |path: &str| {
            ["Path", "Policy", "protocol", "Seconds", "Threshold", "rollingUpdate"]
                .iter()
                .any(|name| path.ends_with(name))
        };
        let is_set_by_others = |path: &str| self.others.iter().any(|owned| path.starts_with(owned));
        let applied = |path: &str| !is_default(path) && !is_set_by_others(path);
        let owners = Owners { applied: &applied, others: &others };
        operations(&causes, &self.desired, &self.stored, &owners)
    }
}

/// Sets, or removes if null, a field or the item of a list at a JSON pointer.
fn put(object: &mut Value, path: &str, value: Value) {
    let (parent, name) = path.rsplit_once('/').unwrap();
    let name = name.replace("~1", "/");
    match object.pointer_mut(parent).unwrap_or_else(|| panic!("{parent}")) {
        Value::Array(items) if value.is_null() => drop(items.remove(name.parse().unwrap())),
        Value::Array(items) => items.push(value),
        Value::Object(map) if value.is_null() => drop(map.remove(&name)),
        parent => parent[name] = value,
    }
}

fn replaced(path: &str, value: &Value) -> Value {
    json!({"op": "replace", "path": path, "value": value})
}

fn removed(path: &str) -> Value {
    json!({"op": "remove", "path": path})
}

/// Replaces the field of this name in the first container, and in no other.
fn replaced_in_main(case: &Case, name: &str) -> [Value; 1] {
    let path = format!("{MAIN}/{name}");
    [replaced(&path, case.desired.pointer(&path).unwrap())]
}

const CONTAINERS: &str = "spec.template.spec.containers";

#[test]
fn the_blamed_field_of_a_container_is_set_as_desired() {
    let exec = json!({"command": ["true"]});
    let admin = json!({"add": ["CAP_SYS_ADMIN"]});
    for (set, value, reason, blamed) in [
        ("readinessProbe/exec", exec.clone(), "Forbidden", "readinessProbe.exec"),
        ("readinessProbe/exec", exec, "Forbidden", "readinessProbe.tcpSocket"),
        ("securityContext/privileged", json!(true), "Invalid", "securityContext"),
        ("securityContext/capabilities", admin, "Invalid", "securityContext.capabilities.add"),
        ("resources/limits", json!({"memory": "2Mi"}), "Invalid", "resources.requests"),
        ("env/0/valueFrom", json!({"fieldRef": {}}), "Invalid", "env[0].valueFrom"),
    ] {
        let case = Case::new().set(&format!("{MAIN}/{set}"), value);
        let found = case.operations(&[(reason, &format!("{CONTAINERS}[0].{blamed}"))]);
        let (name, _) = set.split_once('/').unwrap();
        assert_eq!(found, replaced_in_main(&case, name), "{blamed}");
    }
}

/// `requests` contains a foreign field, too, but the conflict is with `limits`.
#[test]
fn the_resources_of_a_container_are_replaced_together() {
    let resources = |name: &str| format!("{MAIN}/resources/{name}");
    let case = Case::new()
        .set(&resources("limits"), json!({"memory": "2Mi"}))
        .set(&resources("requests/cpu"), json!("1"));
    let field = format!("{CONTAINERS}[0].resources.requests");
    assert_eq!(case.operations(&[("Invalid", &field)]), replaced_in_main(&case, "resources"));
    // An extended resource loses its limit, and another manager has set its request.
    let case = Case::new()
        .desire(&format!("{MAIN}/resources"), Value::Null)
        .store(&resources("limits"), json!({"a.b/c": "1"}))
        .set(&resources("requests/a.b~1c"), json!("1"));
    let field = format!("{CONTAINERS}[0].resources.limits[a.b/c]");
    assert_eq!(case.operations(&[("Required", &field)]), [removed(&format!("{MAIN}/resources"))]);
}

#[test]
fn a_volume_is_set_as_desired_and_another_one_stays() {
    let path = format!("{POD}/volumes");
    let volume = json!({"name": "data", "hostPath": {"path": "/x", "type": ""}});
    let theirs = json!({"name": "theirs", "emptyDir": {}});
    let case = Case::new()
        .store(&format!("{path}/0"), Value::Null)
        .set(&format!("{path}/0"), theirs)
        .set(&format!("{path}/1"), volume);
    let desired = case.desired.pointer(&path).unwrap()[0].clone();
    let forbidden = ("Forbidden", "spec.template.spec.volumes[1].hostPath");
    // The volume is not known where it is mounted.
    let mount = ("NotFound", "spec.template.spec.containers[0].volumeMounts[0].name");
    let found = case.operations(&[forbidden, mount]);
    assert_eq!(found, [replaced(&format!("{path}/1"), &desired)]);
}

#[test]
fn a_default_that_conflicts_with_the_desired_state_is_removed() {
    let case = Case::new();
    let found = case.operations(&[("Forbidden", "spec.strategy.rollingUpdate")]);
    assert_eq!(found, [replaced("/spec/strategy", &json!({"type": "Recreate"}))]);
    // In the words of a StatefulSet.
    let found = case.operations(&[("Invalid", "spec.strategy.rollingUpdate")]);
    assert_eq!(found, [replaced("/spec/strategy", &json!({"type": "Recreate"}))]);
    let desired = json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0}});
    let case = Case::new()
        .desire("/spec/strategy", desired.clone())
        .set("/spec/strategy/rollingUpdate/maxUnavailable", json!(0));
    let found = case.operations(&[("Invalid", "spec.strategy.rollingUpdate.maxUnavailable")]);
    assert_eq!(found, [replaced("/spec/strategy", &desired)]);
}

#[test]
fn ports_are_set_as_desired_if_another_manager_has_one() {
    let ports = format!("{MAIN}/ports");
    let field = format!("{CONTAINERS}[0].ports[1].name");
    let added = json!({"containerPort": 81, "protocol": "TCP", "name": "main"});
    let case = Case::new().set(&format!("{ports}/1"), added);
    assert_eq!(case.operations(&[("Duplicate", &field)]), replaced_in_main(&case, "ports"));
    // A name that two desired ports exchange.
    let case = Case::new()
        .desire(&format!("{ports}/1"), json!({"containerPort": 81}))
        .store(&format!("{ports}/1"), json!({"containerPort": 81, "protocol": "TCP"}))
        .set(&format!("{ports}/1/name"), json!("main"));
    assert_eq!(case.operations(&[("Duplicate", &field)]), replaced_in_main(&case, "ports"));
}

#[test]
fn allocated_node_ports_are_kept() {
    let case = Case::new()
        .desire("/spec/ports", json!([{"port": 80}, {"port": 81, "nodePort": 5}]))
        .store("/spec/ports", json!([{"port": 80, "protocol": "TCP", "nodePort": 3}]))
        .set("/spec/ports/1", json!({"port": 81, "protocol": "UDP", "nodePort": 4}));
    let kept = json!([{"port": 80, "nodePort": 3}, {"port": 81, "nodePort": 5}]);
    let found = case.operations(&[("Required", "spec.ports[1].name")]);
    assert_eq!(found, [replaced("/spec/ports", &kept)]);
}

#[test]
fn fields_that_require_a_removed_field_are_removed() {
    let probe = format!("{MAIN}/livenessProbe");
    let field = format!("{CONTAINERS}[0].livenessProbe");
    let left = Case::new()
        .store(&probe, json!({"tcpSocket": {"port": 1}, "failureThreshold": 3}))
        .set(&format!("{probe}/periodSeconds"), json!(3));
    assert_eq!(left.operations(&[("Required", &field)]), [removed(&probe)]);
    // The exporter is no longer desired, and another manager has set its resources.
    let container = Case::new()
        .desire(EXPORTER, Value::Null)
        .set(&format!("{EXPORTER}/resources/limits"), json!({"cpu": "1"}));
    let field = format!("{CONTAINERS}[1].image");
    assert_eq!(container.operations(&[("Required", &field)]), [removed(EXPORTER)]);
    // Another manager's container stays.
    let theirs = json!({"name": "sidecar", "image": "b:1", "livenessProbe": {"exec": {}}});
    let case = Case::new().set(&format!("{POD}/containers/2"), theirs);
    for field in ["image", "livenessProbe"] {
        let found = case.operations(&[("Required", &format!("{CONTAINERS}[2].{field}"))]);
        assert_eq!(found, [Value::Null; 0], "{field}");
    }
}

#[test]
fn the_object_is_unchanged_if_no_other_manager_is_the_reason() {
    let case = Case::new()
        .set(&format!("{MAIN}/tty"), json!(true))
        .set(&format!("{MAIN}/readinessProbe/exec"), json!({}))
        .set(&format!("{POD}/initContainers"), json!([{"name": "init", "image": "i"}]))
        .set("/spec/minReadySeconds", json!(1))
        .store("/metadata/annotations", json!({}))
        .desire("/metadata/annotations", json!({"a": "1"}))
        .set("/metadata/annotations/b", json!("2"));
    for (reason, field) in [
        ("Invalid", "metadata.annotations"),
        ("Invalid", ""),
        ("Invalid", "spec"),
        ("Invalid", "spec.template.spec"),
        ("Invalid", "spec.template.spec.containers[0].image"),
        ("NotFound", "spec.template.spec.initContainers[0].volumeMounts[0].name"),
        ("Invalid", "spec.template.spec.initContainers[0].volumeMounts[0].name"),
        ("Duplicate", "spec.template.spec.containers[0].ports[1].name"),
        ("Invalid", "spec.unknown[0].x"),
    ] {
        let probe = ("Forbidden", "spec.template.spec.containers[0].readinessProbe.exec");
        for causes in [&[(reason, field)][..], &[probe, (reason, field)]] {
            if causes.len() == 2 && reason == "NotFound" {
                continue;
            }
            assert_eq!(case.operations(causes), [Value::Null; 0], "{causes:?}");
        }
    }
}

#[test]
fn only_the_blamed_field_of_a_spec_is_removed() {
    let case = Case::new()
        .set(&format!("{POD}/hostUsers"), json!(false))
        .set(&format!("{POD}/hostNetwork"), json!(true));
    let found = case.operations(&[("Forbidden", "spec.template.spec.hostUsers")]);
    assert_eq!(found, [removed(&format!("{POD}/hostUsers"))]);
}

#[test]
fn the_last_position_of_a_list_is_removed_first() {
    let (desired, stored) = (json!({"containers": []}), json!({"containers": vec![json!({}); 11]}));
    let stored = json!({"spec": stored});
    let cause = Cause { field: "spec.containers[0].image".to_owned(), ..Cause::default() };
    let owners = Owners { applied: &|_| true, others: &|path| path.ends_with(['2', '0']) };
    let found = operations(&[cause], &json!({"spec": desired}), &stored, &owners);
    assert_eq!(found, ["10", "2", "0"].map(|at| removed(&format!("/spec/containers/{at}"))));
}

#[test]
fn a_field_is_split_into_names_keys_and_items() {
    use Step::Field;
    for (field, expected) in [
        ("spec.ports[0].name", vec![Field("spec"), Field("ports"), Step::Item, Field("name")]),
        ("requests[example.com/gpu]", vec![Field("requests"), Field("example.com/gpu")]),
        ("", vec![]),
        ("a..b[", vec![Field("a"), Field("b")]),
        ("[]x", vec![Field(""), Field("x")]),
    ] {
        assert_eq!(steps(field), expected, "{field}");
    }
}
