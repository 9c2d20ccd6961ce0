//! Causes as a kube-apiserver 1.36 gives them, and what is done about each.

use super::*;

const CONTAINER: &str = "/spec/template/spec/containers/0";

/// The operations for one cause of a Deployment whose only desired container is `desired`, and `stored` is stored.
fn of_container(reason: &str, field: &str, desired: &Value, stored: &Value) -> Vec<Value> {
    let object = |containers: &Value| json!({"metadata": {"name": "a"}, "spec": {"template": {"spec": {"containers": containers}}}});
    let field = format!("spec.template.spec.{field}");
    let cause = Cause { reason: reason.to_owned(), field };
    let (desired, stored) = (object(desired), object(stored));
    operations(&[cause], &desired, &stored, &|path| !path.ends_with("/image"), &[])
}

fn replaced(path: &str, value: &Value) -> Vec<Value> {
    vec![json!({"op": "replace", "path": format!("{CONTAINER}{path}"), "value": value})]
}

fn removed(path: &str) -> Vec<Value> {
    vec![json!({"op": "remove", "path": format!("{CONTAINER}{path}")})]
}

#[test]
fn the_smallest_desired_map_around_the_blamed_field_is_replaced() {
    let rows = [
        (
            "resources.requests",
            "resources",
            json!({"limits": {"cpu": "1"}}),
            json!({"limits": {"cpu": "1"}, "requests": {"cpu": "2"}}),
        ),
        (
            "resources.requests",
            "resources",
            json!({"requests": {"memory": "1Gi"}}),
            json!({"requests": {"memory": "1Gi"}, "limits": {"memory": "2Mi"}}),
        ),
        (
            "resources.requests[example.com/gpu]",
            "resources",
            json!({"limits": {"example.com/gpu": "2"}}),
            json!({"limits": {"example.com/gpu": "2"}, "requests": {"example.com/gpu": "1"}}),
        ),
        (
            "readinessProbe.tcpSocket",
            "readinessProbe",
            json!({"tcpSocket": {"port": 1}}),
            json!({"exec": {"command": ["true"]}, "periodSeconds": 5}),
        ),
        (
            "securityContext",
            "securityContext",
            json!({"allowPrivilegeEscalation": false}),
            json!({"allowPrivilegeEscalation": true, "privileged": true}),
        ),
    ];
    for (blamed, block, desired, stored) in rows {
        let container = |block_of: &Value| json!([{"name": "c", "image": "i", block: block_of}]);
        let field = format!("containers[3].{blamed}");
        let found =
            of_container("FieldValueInvalid", &field, &container(&desired), &container(&stored));
        assert_eq!(found, replaced(&format!("/{block}"), &desired), "{blamed}");
    }
}

#[test]
fn a_list_item_is_found_by_its_key_and_not_by_the_index_of_the_cause() {
    let variable = json!({"name": "B", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}});
    let desired = json!([{"name": "c", "env": [variable]}]);
    let stored =
        json!([{"name": "c", "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]}]);
    let found =
        of_container("FieldValueInvalid", "containers[0].env[0].valueFrom", &desired, &stored);
    assert_eq!(found, replaced("/env/1", &variable));
}

#[test]
fn an_item_that_has_the_name_of_a_desired_one_is_removed() {
    let port =
        |number: u16, name: &str| json!({"containerPort": number, "protocol": "TCP", "name": name});
    let desired = json!([{"name": "c", "ports": [port(11211, "memcached")]}]);
    let stored = json!([{"name": "c", "ports": [port(11212, "memcached"), port(9, "other")]}]);
    let found =
        of_container("FieldValueDuplicate", "containers[0].ports[1].name", &desired, &stored);
    assert_eq!(found, removed("/ports/0"));
    // A name that two desired ports exchange.
    let desired = json!([{"name": "c", "ports": [{"containerPort": 80}, port(81, "admin")]}]);
    let stored = json!([{"name": "c", "ports": [port(80, "admin"), port(81, "other")]}]);
    let found =
        of_container("FieldValueDuplicate", "containers[0].ports[1].name", &desired, &stored);
    assert_eq!(found, replaced("/ports/0", &json!({"containerPort": 80})));
}

#[test]
fn what_needs_a_field_that_is_no_longer_desired_is_removed() {
    let desired = json!([{"name": "c", "image": "i"}]);
    let probe = json!([{"name": "c", "image": "i", "livenessProbe": {"httpGet": {"port": 1}, "periodSeconds": 3}}]);
    let found = of_container("FieldValueRequired", "containers[0].livenessProbe", &desired, &probe);
    assert_eq!(found, removed("/livenessProbe"));
    let both = json!([{"name": "c", "image": "i"}, {"name": "old", "image": "j", "tty": true}]);
    let found = of_container("FieldValueRequired", "containers[1].image", &desired, &both);
    assert_eq!(found, [json!({"op": "remove", "path": "/spec/template/spec/containers/1"})]);
}

#[test]
fn a_spec_is_never_replaced() {
    let cause =
        |field: &str| Cause { reason: "FieldValueInvalid".to_owned(), field: field.to_owned() };
    let desired = json!({"spec": {"maxUnavailable": 1}});
    let stored = json!({"spec": {"maxUnavailable": 1, "minAvailable": 1, "own": true}});
    let foreign = |path: &str| path != "/spec/own";
    let found = operations(&[cause("spec")], &desired, &stored, &foreign, &[]);
    assert_eq!(found, [json!({"op": "remove", "path": "/spec/minAvailable"})]);
    let found = operations(&[cause("spec.other")], &desired, &stored, &foreign, &[]);
    assert_eq!(found, [Value::Null; 0]);
}

#[test]
fn what_a_cause_does_not_blame_stays() {
    let secret = json!({"secretKeyRef": {"name": "s", "key": "k"}});
    let variable = |name: &str| json!({"name": name, "valueFrom": secret});
    let desired = json!([{"name": "c", "env": [variable("A")]}]);
    let mut ours = variable("A");
    ours["value"] = json!("1");
    let stored = json!([{"name": "c", "env": [ours, variable("THEIRS")]}]);
    let found =
        of_container("FieldValueInvalid", "containers[0].env[0].valueFrom", &desired, &stored);
    assert_eq!(found, replaced("/env/0", &variable("A")));
    let cause = |field: &str| Cause { reason: "FieldValueTooLong".into(), field: field.into() };
    let desired =
        json!({"metadata": {"annotations": {"a": "1"}}, "spec": {"template": {"spec": {}}}});
    let stored = json!({"metadata": {"annotations": {"a": "1", "b": "2"}},
        "spec": {"template": {"spec": {"hostAliases": []}}}});
    for field in ["metadata.annotations", "spec.template.spec", ""] {
        let found = operations(&[cause(field)], &desired, &stored, &|_| true, &[]);
        assert_eq!(found, [Value::Null; 0], "{field}");
    }
}

#[test]
fn operations_on_one_list_come_last_position_first_and_none_is_within_another() {
    let ports = |numbers: &[u16]| {
        let port = |number: &u16| json!({"port": number, "protocol": "TCP", "nodePort": 30_000});
        json!({"spec": {"ports": numbers.iter().map(port).collect::<Vec<_>>()}})
    };
    let numbers: Vec<u16> = (1..=12).collect();
    let unwanted: Vec<Value> =
        [1, 10].map(|at| json!({"op": "remove", "path": format!("/spec/ports/{at}")})).to_vec();
    let cause = Cause {
        reason: "FieldValueDuplicate".to_owned(),
        field: "spec.ports[0].nodePort".to_owned(),
    };
    let desired = ports(&[1]);
    let found =
        operations(&[cause.clone(), cause], &desired, &ports(&numbers), &|_| true, &unwanted);
    let paths: Vec<_> = found.iter().map(|operation| operation["path"].as_str().unwrap()).collect();
    let expected: Vec<String> = (1..12).rev().map(|at| format!("/spec/ports/{at}")).collect();
    assert_eq!(paths, expected);
}

#[test]
fn a_field_is_split_into_names_keys_and_items() {
    use Step::{Field, Item};
    for (field, expected) in [
        ("spec.ports[0].name", vec![Field("spec"), Field("ports"), Item, Field("name")]),
        ("requests[example.com/gpu]", vec![Field("requests"), Field("example.com/gpu")]),
        ("", vec![]),
        ("a..b[", vec![Field("a"), Field("b")]),
        ("[]x", vec![Field(""), Field("x")]),
    ] {
        assert_eq!(steps(field), expected, "{field}");
    }
}
