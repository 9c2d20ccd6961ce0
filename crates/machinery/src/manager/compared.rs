//! Comparison of the observed with the desired state, as far as a view shows it.

use serde_json::{Value, json};

use crate::object::Quantity;

/// `desired` in the form that is hashed: lists whose order means nothing sorted by their keys, and amounts
/// normalised. Reordering the variables of a container, say, restarts no pod.
pub(super) fn canonical(desired: &Value) -> Value {
    let mut canonical = desired.clone();
    normalise(&mut canonical, &mut Vec::new());
    canonical
}

fn normalise(value: &mut Value, at: &mut Place) {
    match value {
        Value::Object(map) => {
            for (field, value) in map {
                at.push(field.clone());
                normalise(value, at);
                at.pop();
            }
        }
        Value::Array(list) => {
            list.iter_mut().for_each(|item| normalise(item, at));
            if let Some(keys) = keys(at, list)
                && !is_ordered(at, list)
            {
                list.sort_by_key(|item| {
                    keys.iter().map(|key| item[*key].to_string()).collect::<Vec<_>>()
                });
            }
        }
        amount if is_amount(at) && amount.is_string() => {
            *amount = json!(Quantity::new(amount.as_str().unwrap_or_default()).normalised());
        }
        _ => {}
    }
}

/// Returns whether the order of a keyed list counts: init containers run one after another, and a variable
/// refers to an earlier one.
fn is_ordered(at: &[String], items: &[Value]) -> bool {
    let refers = |item: &Value| item["value"].as_str().is_some_and(|value| value.contains("$("));
    at.last().is_some_and(|field| field == "initContainers") || items.iter().any(refers)
}

/// The hash of what is to be applied; the same in every process that applies the same.
pub(super) fn hash(desired: &Value) -> u64 {
    fnv1a(desired.to_string().as_bytes())
}

/// A hash as an annotation holds it.
pub(super) fn hex(hash: u64) -> String {
    format!("{hash:016x}")
}

/// The hash of an accepted state: of what was applied, and what the API server made of it.
pub(super) fn form(desired: &Value, observed: &Value) -> u64 {
    fnv1a(format!("{desired}\n{observed}").as_bytes())
}

/// FNV-1a, 64 bit: stable across releases and machines, unlike the standard library's hasher.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Removes what is null: to server-side apply a null is a value, to everybody else there is none.
pub(super) fn without_nulls(desired: Value) -> Value {
    match desired {
        Value::Object(map) => {
            let some = map.into_iter().filter(|(_, value)| !value.is_null());
            some.map(|(field, value)| (field, without_nulls(value))).collect()
        }
        Value::Array(list) => list.into_iter().map(without_nulls).collect(),
        other => other,
    }
}

/// `value` without the fields that `onto` does not have.
pub(super) fn project(value: &Value, onto: &Value) -> Value {
    match (value, onto) {
        (Value::Object(value), Value::Object(onto)) => {
            let both =
                value.iter().filter_map(|(field, value)| Some((field, value, onto.get(field)?)));
            both.map(|(field, value, onto)| (field.clone(), project(value, onto))).collect()
        }
        (Value::Array(value), Value::Array(onto)) if value.len() == onto.len() => {
            value.iter().zip(onto).map(|(value, onto)| project(value, onto)).collect()
        }
        _ => value.clone(),
    }
}

/// Returns each place where `observed` does not have the value of `wanted`, such as `spec.replicas`, and
/// its value. Everything else in `observed` is a default or foreign. Lists that server-side apply merges
/// by keys are compared by keys, and amounts of resources by value.
pub(super) fn deviations(wanted: &Value, observed: &Value) -> Vec<(String, Value)> {
    let mut found = Vec::new();
    compare(&mut found, &mut Vec::new(), wanted, observed);
    found
}

type Place = Vec<String>;

/// Maps of which server-side apply sets all entries at once (`x-kubernetes-map-type: atomic`): another
/// entry selects other objects, so it counts.
const WHOLE: [&str; 3] = ["selector", "nodeSelector", "matchLabels"];

fn compare(found: &mut Vec<(String, Value)>, at: &mut Place, wanted: &Value, observed: &Value) {
    match (wanted, observed) {
        (Value::Object(wanted), Value::Object(_) | Value::Null) => {
            for (field, wanted) in wanted {
                at.push(field.clone());
                compare(found, at, wanted, observed.get(field).unwrap_or(&Value::Null));
                at.pop();
            }
            let is_whole = at.last().is_some_and(|field| WHOLE.contains(&field.as_str()));
            if is_whole && let Value::Object(observed) = observed {
                let others = observed.iter().filter(|(key, _)| !wanted.contains_key(*key));
                for (key, value) in others.filter(|(_, value)| value.is_string()) {
                    found.push((format!("{}.{key}", at.join(".")), value.clone()));
                }
            }
        }
        // Nothing is wanted of a list that is not there.
        (Value::Array(wanted), Value::Null) if wanted.is_empty() => {}
        (Value::Array(wanted), Value::Array(observed)) => {
            compare_lists(found, at, wanted, observed);
        }
        _ if is_equal(wanted, observed) => {}
        _ if is_amount(at) && is_same_amount(wanted, observed) => {}
        _ => found.push((at.join("."), observed.clone())),
    }
}

fn compare_lists(
    found: &mut Vec<(String, Value)>,
    at: &mut Place,
    wanted: &[Value],
    observed: &[Value],
) {
    let Some(keys) = keys(at, wanted) else {
        if wanted.len() != observed.len() {
            found.push((at.join("."), json!(observed)));
            return;
        }
        for (number, (wanted, observed)) in wanted.iter().zip(observed).enumerate() {
            at.push(number.to_string());
            compare(found, at, wanted, observed);
            at.pop();
        }
        return;
    };
    let place = |wanted: &Value| {
        observed.iter().position(|other| {
            keys.iter().all(|key| {
                let (wanted, other) = (&wanted[*key], &other[*key]);
                // The API server fills in the protocol of a port.
                wanted == other || wanted.is_null() && *key == "protocol" && other == "TCP"
            })
        })
    };
    let places: Vec<Option<usize>> = wanted.iter().map(place).collect();
    for (wanted, place) in wanted.iter().zip(&places) {
        at.push(wanted[keys[0]].to_string());
        match place {
            Some(place) => compare(found, at, wanted, &observed[*place]),
            None => found.push((at.join("."), Value::Null)),
        }
        at.pop();
    }
    if is_ordered(at, wanted) && !places.is_sorted() {
        found.push((at.join("."), json!(places)));
    }
}

/// The keys by which server-side apply merges the items of a list of the built-in kinds
/// (`x-kubernetes-list-map-keys`); `None` if it is compared as a whole.
fn keys(at: &[String], items: &[Value]) -> Option<&'static [&'static str]> {
    let keys: &[&str] = match at.last()?.as_str() {
        "containers" | "initContainers" | "env" | "volumes" | "imagePullSecrets" => &["name"],
        "volumeMounts" => &["mountPath"],
        "topologySpreadConstraints" => &["topologyKey", "whenUnsatisfiable"],
        "ports" if items.iter().all(|port| port["port"].is_null()) => {
            &["containerPort", "protocol"]
        }
        // Of a Service. Those of a NetworkPolicy's rule are one list.
        "ports" if at.len() == 2 && at[0] == "spec" => &["port", "protocol"],
        _ => return None,
    };
    items.iter().all(|item| !item[keys[0]].is_null()).then_some(keys)
}

/// Returns whether the value is an amount of a resource: of a container or a volume.
fn is_amount(at: &[String]) -> bool {
    let at: Vec<&str> = at.iter().map(String::as_str).collect();
    matches!(
        at.as_slice(),
        [.., "resources", "limits" | "requests", _]
            | [.., "emptyDir", "sizeLimit"]
            | [.., "resourceFieldRef", "divisor"]
    )
}

fn is_same_amount(wanted: &Value, observed: &Value) -> bool {
    let amount = |value: &Value| match value {
        Value::String(text) => Some(Quantity::new(text)),
        Value::Number(number) => Some(Quantity::new(&number.to_string())),
        _ => None,
    };
    amount(wanted).zip(amount(observed)).is_some_and(|(a, b)| a.is_same_as(&b))
}

pub(super) fn is_equal(desired: &Value, observed: &Value) -> bool {
    match (desired, observed) {
        (Value::Number(desired), Value::Number(observed)) => desired.as_f64() == observed.as_f64(),
        _ => desired == observed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn difference(wanted: &Value, observed: &Value) -> Option<String> {
        deviations(wanted, observed).into_iter().next().map(|(place, _)| place)
    }

    #[test]
    fn the_order_of_keyed_lists_is_hashed_only_if_it_counts() {
        let with =
            |env: Value| json!({"containers": [{"name": "a", "env": env}], "args": ["x", "a"]});
        let (a, b) = (json!({"name": "A", "value": "1"}), json!({"name": "B", "value": "2"}));
        assert_eq!(canonical(&with(json!([a, b]))), canonical(&with(json!([b, a]))));
        let refers = json!({"name": "C", "value": "$(A)"});
        assert_ne!(canonical(&with(json!([a, refers]))), canonical(&with(json!([refers, a]))));
        let init = |first, second| json!({"initContainers": [{"name": first}, {"name": second}]});
        assert_ne!(canonical(&init("a", "b")), canonical(&init("b", "a")));
        let cpu = |amount: &str| json!({"resources": {"limits": {"cpu": amount}}});
        assert_eq!(canonical(&cpu("0.5")), canonical(&cpu("500m")));
        assert_eq!(canonical(&with(json!([])))["args"], json!(["x", "a"]));
    }

    #[test]
    fn a_port_more_in_a_rule_of_a_network_policy_counts() {
        let rule = |ports: Value| json!({"spec": {"ingress": [{"ports": ports}]}});
        let (wanted, more) = (json!([{"port": 80}]), json!([{"port": 80}, {"port": 22}]));
        assert!(difference(&rule(wanted), &rule(more)).is_some());
        let limit = |limit: &str| json!({"data": {"limits": limit}});
        assert!(difference(&limit("1"), &limit("1000m")).is_some(), "no amount of a resource");
    }

    #[test]
    fn another_entry_of_a_selector_counts() {
        let wanted = json!({"selector": {"a": "b"}, "labels": {"a": "b"}});
        let observed = json!({"selector": {"a": "b", "c": "d"}, "labels": {"a": "b", "c": "d"}});
        assert_eq!(difference(&wanted, &observed).as_deref(), Some("selector.c"));
        assert_eq!(difference(&wanted, &wanted), None);
    }

    #[test]
    fn the_hash_is_fnv_1a() {
        // From the reference's test vectors.
        assert_eq!(fnv1a(b"foobar"), 0x8594_4171_f739_67e8);
    }

    #[test]
    fn what_is_null_is_not_applied() {
        let desired = json!({"spec": {"replicas": null, "list": [{"a": null, "b": 1}]}});
        assert_eq!(without_nulls(desired), json!({"spec": {"list": [{"b": 1}]}}));
    }

    #[test]
    fn what_is_wanted_has_to_be_there_and_nothing_else_has_to_be_absent() {
        let wanted = json!({"replicas": 2, "data": {"a": "x"}, "spec": {"ports": [{"port": 1}]}, "none": []});
        let observed = json!({"replicas": 2.0, "data": {"a": "x", "b": "of others"},
            "spec": {"ports": [{"port": 1, "protocol": "TCP"}]}, "strategy": "a default"});
        assert_eq!(difference(&wanted, &observed), None);
        for (field, other, place) in [
            ("replicas", json!(3), "replicas"),
            ("replicas", json!(null), "replicas"),
            ("data", json!({"b": "of others"}), "data.a"),
            ("spec", json!({"ports": [{"port": 2}]}), "spec.ports.1"),
            ("none", json!("some"), "none"),
        ] {
            let mut observed = observed.clone();
            observed[field] = other;
            assert_eq!(difference(&wanted, &observed).as_deref(), Some(place), "{observed}");
        }
    }

    #[test]
    fn lists_with_keys_are_compared_by_key_and_injected_items_ignored() {
        let wanted = json!({"containers": [{"name": "a", "image": "a:1", "args": ["x"],
            "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]}]});
        let mut observed = json!({"containers": [{"name": "proxy"}, {"name": "a", "image": "a:1",
            "args": ["x"], "env": [{"name": "P"}, {"name": "B", "value": "2"}, {"name": "A", "value": "1"}]}]});
        assert_eq!(difference(&wanted, &observed), None);
        observed["containers"][1]["args"] = json!(["x", "y"]);
        assert_eq!(difference(&wanted, &observed).as_deref(), Some("containers.\"a\".args"));
    }

    #[test]
    fn the_order_of_variables_counts_if_one_refers_to_another() {
        let env = |names: &[&str]| {
            let item = |name: &&str| json!({"name": name, "value": "$(A)"});
            json!({"env": names.iter().map(item).collect::<Vec<_>>()})
        };
        assert_eq!(difference(&env(&["A", "B"]), &env(&["A", "X", "B"])), None);
        assert!(difference(&env(&["A", "B"]), &env(&["B", "A"])).is_some());
    }

    #[test]
    fn amounts_of_resources_are_compared_by_value_and_other_texts_as_they_are() {
        let limits = |cpu: Value| json!({"resources": {"limits": {"cpu": cpu}}});
        assert_eq!(difference(&limits(json!("0.5")), &limits(json!("500m"))), None);
        assert_eq!(difference(&limits(json!(1)), &limits(json!("1"))), None);
        assert!(difference(&limits(json!("1")), &limits(json!("2"))).is_some());
        assert!(difference(&json!({"args": "0.5"}), &json!({"args": "500m"})).is_some());
    }

    #[test]
    fn a_projection_has_the_values_of_the_one_and_the_fields_of_the_other() {
        let value =
            json!({"a": 1, "b": {"c": 2, "d": 3}, "list": [{"e": 4, "f": 5}], "longer": [6, 7]});
        let onto = json!({"b": {"c": 0}, "list": [{"e": 0}], "longer": [0], "other": 0});
        let both = json!({"b": {"c": 2}, "list": [{"e": 4}], "longer": [6, 7]});
        assert_eq!(project(&value, &onto), both);
    }
}
