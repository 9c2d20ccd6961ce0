//! Values in a child that are not as the operator sets them.

use serde_json::{Map, Value, json};

/// Maps that are compared as a whole: another entry matters, too.
const WHOLE: [&str; 3] = ["nodeSelector", "securityContext", "selector"];

/// Each value in `there` that `desired` sets and that is another, by its place; `null` if it is
/// missing. Additions are ignored where [`difference`](super::ChildSpec::difference) ignores them,
/// and so is the order of lists that are merged by keys.
pub(super) fn between(desired: &Value, there: &Value) -> Map<String, Value> {
    let mut found = Map::new();
    compare(&mut found, "", "", desired, there);
    found
}

fn compare(found: &mut Map<String, Value>, at: &str, name: &str, desired: &Value, there: &Value) {
    match (desired, there) {
        _ if desired == there => {}
        (Value::Object(fields), Value::Object(_)) if !WHOLE.contains(&name) => {
            for (name, desired) in fields {
                compare(found, &format!("{at}/{name}"), name, desired, &there[name]);
            }
        }
        (Value::Array(desired), Value::Array(there)) if !keys(name).is_empty() => {
            compare_lists(found, at, name, desired, there);
        }
        _ => drop(found.insert(at.to_owned(), there.clone())),
    }
}

fn compare_lists(
    found: &mut Map<String, Value>,
    at: &str,
    name: &str,
    desired: &[Value],
    there: &[Value],
) {
    let key = |item: &Value| keys(name).iter().map(|key| item[key].clone()).collect::<Vec<_>>();
    let place = |key: &[Value]| format!("{at}/{}", json!(key));
    for item in desired {
        let key_of_it = key(item);
        let other = there.iter().find(|other| key(other) == key_of_it);
        compare(found, &place(&key_of_it), "", item, other.unwrap_or(&Value::Null));
    }
    let is_desired = |other: &&Value| desired.iter().any(|item| key(item) == key(other));
    // A Service has exactly its ports.
    for other in there.iter().filter(|other| !other["port"].is_null() && !is_desired(other)) {
        found.insert(place(&key(other)), other.clone());
    }
    // A variable can only refer to an earlier one.
    let refers = |item: &Value| item["value"].as_str().is_some_and(|value| value.contains("$("));
    if desired.iter().any(refers) {
        let order: Vec<_> = there.iter().filter(is_desired).map(key).collect();
        if !order.iter().cloned().eq(desired.iter().map(key)) {
            found.insert(format!("{at}/order"), json!(order));
        }
    }
}

/// The keys by which the items of a list are merged; none if the list is compared as a whole.
fn keys(list: &str) -> &'static [&'static str] {
    match list {
        "containers" | "env" => &["name"],
        // Of a container, and of a Service.
        "ports" => &["containerPort", "port", "protocol"],
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(desired: &Value, there: &Value) -> Vec<String> {
        between(desired, there)
            .into_iter()
            .map(|(place, value)| format!("{place} {value}"))
            .collect()
    }

    #[test]
    fn only_values_that_are_set_and_differ_count() {
        let desired = json!({"replicas": 2, "template": {"labels": {"a": "b"}, "paused": true}});
        let there = json!({"replicas": 3, "template": {"labels": {"a": "b", "c": "d"}}, "x": 1});
        assert_eq!(places(&desired, &there), ["/replicas 3", "/template/paused null"]);
        assert!(between(&desired, &desired).is_empty());
    }

    #[test]
    fn lists_are_compared_by_key_and_injected_items_ignored() {
        let desired = json!({"containers": [{"name": "a", "image": "a:1",
            "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]}]});
        let injected = json!({"containers": [{"name": "proxy"}, {"name": "a", "image": "a@sha256:0",
            "env": [{"name": "P", "value": "0"}, {"name": "B", "value": "2"}, {"name": "A", "value": "1"}]}]});
        assert_eq!(places(&desired, &injected), [r#"/containers/["a"]/image "a@sha256:0""#]);
    }

    #[test]
    fn a_list_without_keys_is_compared_as_a_whole() {
        let arguments = |last: &str| json!({"args": ["-m", last]});
        assert_eq!(places(&arguments("64"), &arguments("128")), [r#"/args ["-m","128"]"#]);
        assert!(places(&arguments("64"), &arguments("64")).is_empty());
    }

    #[test]
    fn the_order_of_variables_counts_if_one_refers_to_another() {
        let env = |names: &[&str]| {
            let item = |name: &&str| json!({"name": name, "value": "$(A)"});
            json!({"env": names.iter().map(item).collect::<Vec<_>>()})
        };
        assert!(places(&env(&["A", "B"]), &env(&["A", "X", "B"])).is_empty());
        assert_eq!(places(&env(&["A", "B"]), &env(&["B", "A"])), [r#"/env/order [["B"],["A"]]"#]);
    }

    #[test]
    fn more_ports_of_a_service_and_more_rights_count() {
        let desired = json!({"ports": [{"port": 80}], "securityContext": {"runAsUser": 1}});
        let there = json!({"ports": [{"port": 80, "nodePort": 30000}, {"port": 81}],
            "securityContext": {"runAsUser": 1, "privileged": true}});
        assert_eq!(
            places(&desired, &there),
            [
                r#"/ports/[null,81,null] {"port":81}"#,
                r#"/securityContext {"privileged":true,"runAsUser":1}"#
            ]
        );
    }
}
