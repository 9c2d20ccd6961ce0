//! Comparison of the observed with the desired state, limited to the fields of a view.

use std::io;

use serde::{Serialize, Serializer};
use serde_json::{Value, json};

use crate::object::{Quantity, list_keys};

/// A path in an object: a field name or list key, and the enclosing path.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    name: &'a str,
    within: Option<&'a Place<'a>>,
}

/// The desired state in the form that is hashed: unordered lists and maps are sorted by key, and quantities are
/// normalized. So reordering the variables of a container does not restart its pods.
pub(super) struct Canonical<'a> {
    value: &'a Value,
    at: Place<'a>,
}

/// FNV-1a, 64 bit: stable across releases and machines, unlike the standard library's hasher.
struct Fnv1a(u64);

// === impl Place ===

impl<'a> Place<'a> {
    /// The object itself.
    pub(super) const ROOT: Place<'static> = Place { name: "", within: None };
    /// `spec`.
    pub(super) const SPEC: Place<'static> = Place { name: "spec", within: Some(&Place::ROOT) };

    pub(super) fn inner(&'a self, name: &'a str) -> Place<'a> {
        Place { name, within: Some(self) }
    }

    fn path(&self) -> String {
        match self.within.map(Place::path) {
            None => String::new(),
            Some(outer) if outer.is_empty() => self.name.to_owned(),
            Some(outer) => format!("{outer}.{}", self.name),
        }
    }

    /// The last three names, the innermost last; empty beyond the object itself.
    fn last(&self) -> [&str; 3] {
        let name = |place: Option<&Place<'a>>| place.map_or("", |place| place.name);
        let outer = self.within.and_then(|place| place.within);
        [name(outer), name(self.within), self.name]
    }

    /// Returns whether the path is `outer.field` at the top of the object.
    fn is(&self, outer: &str, field: &str) -> bool {
        self.last() == ["", outer, field]
    }
}

// === impl Canonical ===

impl<'a> Canonical<'a> {
    pub(super) fn of(value: &'a Value) -> Canonical<'a> {
        Canonical { value, at: Place::ROOT }
    }
}

impl Serialize for Canonical<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let at = self.at;
        match self.value {
            Value::Object(map) => {
                // The map is unsorted if any crate of the program enables serde_json's feature preserve_order.
                if map.keys().is_sorted() {
                    return serializer.collect_map(
                        map.iter()
                            .map(|(name, value)| (name, Canonical { value, at: at.inner(name) })),
                    );
                }
                let mut entries: Vec<(&String, &Value)> = map.iter().collect();
                entries.sort_unstable_by_key(|(name, _)| *name);
                serializer.collect_map(
                    entries
                        .into_iter()
                        .map(|(name, value)| (name, Canonical { value, at: at.inner(name) })),
                )
            }
            Value::Array(list) => {
                let item = |value| Canonical { value, at };
                let keys = keys(&at, list).filter(|_| list.len() > 1 && !is_ordered(&at, list));
                let Some(keys) = keys else { return serializer.collect_seq(list.iter().map(item)) };
                let mut items: Vec<&Value> = list.iter().collect();
                let text = |item: &Value, key: &&str| item[*key].to_string();
                items.sort_by_cached_key(|item| {
                    keys.iter().map(|key| text(item, key)).collect::<Vec<_>>()
                });
                serializer.collect_seq(items.into_iter().map(item))
            }
            Value::String(_) | Value::Number(_) if is_amount(&at) => {
                amount(self.value).map(|amount| amount.normalised()).serialize(serializer)
            }
            other => other.serialize(serializer),
        }
    }
}

// === impl Fnv1a ===

impl io::Write for Fnv1a {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns whether the order of a keyed list matters: init containers run in sequence, and a variable can refer to
/// an earlier one.
fn is_ordered(at: &Place<'_>, items: &[Value]) -> bool {
    let refers = |item: &Value| item["value"].as_str().is_some_and(|value| value.contains("$("));
    at.name == "initContainers" || items.iter().any(refers)
}

/// Returns the hash of a JSON text; the same in every process.
pub(super) fn hash(value: &impl Serialize) -> u64 {
    let mut hash = Fnv1a(0xcbf2_9ce4_8422_2325);
    serde_json::to_writer(&mut hash, value).expect("the keys are texts, and the hasher takes all");
    hash.0
}

/// Formats a hash for an annotation.
pub(super) fn hex(hash: u64) -> String {
    format!("{hash:016x}")
}

/// Returns the hash of an accepted state: the desired and the stored form. It is kept in memory only.
pub(super) fn form(desired: &Value, observed: &Value) -> u64 {
    hash(&[Canonical::of(desired), Canonical::of(observed)])
}

/// Removes nulls: server-side apply treats a null as a value, everything else as absence.
pub(super) fn remove_nulls(desired: &mut Value) {
    match desired {
        Value::Object(map) => {
            map.retain(|_, value| !value.is_null());
            map.values_mut().for_each(remove_nulls);
        }
        Value::Array(list) => list.iter_mut().for_each(remove_nulls),
        _ => {}
    }
}

/// Removes the fields that `onto` lacks.
pub(super) fn project(value: &mut Value, onto: &Value) {
    match (value, onto) {
        (Value::Object(value), Value::Object(onto)) => value.retain(|field, value| {
            let onto = onto.get(field);
            onto.inspect(|onto| project(value, onto)).is_some()
        }),
        (Value::Array(value), Value::Array(onto)) if value.len() == onto.len() => {
            value.iter_mut().zip(onto).for_each(|(value, onto)| project(value, onto));
        }
        _ => {}
    }
}

/// Returns the path, such as `spec.replicas`, and observed value of each difference from `wanted`. Everything else in
/// `observed` is a default or belongs to another manager. Lists that server-side apply merges by keys are compared by
/// keys, and resource quantities by value.
pub(super) fn deviations(wanted: &Value, observed: &Value) -> Vec<(String, Value)> {
    let mut found = Vec::new();
    // The kind is that of the view, which need not show it.
    let fields = wanted.as_object().into_iter().flatten();
    for (field, wanted) in fields.filter(|(field, _)| *field != "apiVersion" && *field != "kind") {
        compare(&mut found, &Place::ROOT.inner(field), wanted, &observed[field.as_str()]);
    }
    found
}

/// Returns whether server-side apply sets a map as a whole (`x-kubernetes-map-type: atomic`, or an item of an atomic
/// list), such as a selector: an additional entry selects other objects, so it is a difference. Maps that the API server
/// completes with defaults, such as `fieldRef`, are not among them.
pub(super) fn is_atomic_map(at: &Place<'_>) -> bool {
    const ATOMIC: [&str; 6] =
        ["matchLabels", "selector", "configMapKeyRef", "secretKeyRef", "configMapRef", "secretRef"];
    let within = at.within.map_or("", |within| within.name);
    ATOMIC.contains(&at.name)
        || at.name.ends_with("Selector")
        || matches!(within, "tolerations" | "envFrom")
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        _ => false,
    }
}

/// Fields whose `false` the API server drops (k8s.io/api/core/v1: `bool` with omitempty).
const UNSET_IF_FALSE: [&str; 8] = [
    "hostNetwork",
    "hostPID",
    "hostIPC",
    "readOnly",
    "stdin",
    "stdinOnce",
    "tty",
    "publishNotReadyAddresses",
];

/// Fields whose 0 the API server drops.
const UNSET_IF_ZERO: [&str; 3] = ["initialDelaySeconds", "hostPort", "nodePort"];

fn compare(found: &mut Vec<(String, Value)>, at: &Place<'_>, wanted: &Value, observed: &Value) {
    match (wanted, observed) {
        (Value::Object(wanted), Value::Object(_) | Value::Null) => {
            let within = at.within.map_or("", |within| within.name);
            // The API server drops the empty value of a variable. A source would give it another one.
            let is_dropped = |field: &str, wanted: &Value| {
                within == "env"
                    && field == "value"
                    && *wanted == ""
                    && observed["valueFrom"].is_null()
            };
            for (field, wanted) in wanted {
                if is_dropped(field, wanted) && observed[field.as_str()].is_null() {
                    continue;
                }
                compare(
                    found,
                    &at.inner(field),
                    wanted,
                    observed.get(field).unwrap_or(&Value::Null),
                );
            }
            if is_atomic_map(at)
                && let Value::Object(observed) = observed
            {
                let others = observed.iter().filter(|(key, _)| !wanted.contains_key(*key));
                for (key, value) in others.filter(|(_, value)| !is_empty(value)) {
                    found.push((at.inner(key).path(), value.clone()));
                }
            }
        }
        // An empty list and an absent one are equal.
        (Value::Array(wanted), Value::Null) if wanted.is_empty() => {}
        (Value::Array(wanted), Value::Array(observed)) => {
            compare_lists(found, at, wanted, observed);
        }
        _ if is_equal(wanted, observed) => {}
        // The API server drops these zero values. Those of other fields differ from their defaults.
        (Value::Bool(false), Value::Null) if UNSET_IF_FALSE.contains(&at.name) => {}
        (Value::Number(number), Value::Null)
            if number.as_i64() == Some(0) && UNSET_IF_ZERO.contains(&at.name) => {}
        _ if is_amount(at) && is_same_amount(wanted, observed) => {}
        _ => found.push((at.path(), observed.clone())),
    }
}

fn compare_lists(
    found: &mut Vec<(String, Value)>,
    at: &Place<'_>,
    wanted: &[Value],
    observed: &[Value],
) {
    let Some(keys) = keys(at, wanted) else {
        if wanted.len() != observed.len() {
            found.push((at.path(), json!(observed)));
            return;
        }
        for (number, (wanted, observed)) in wanted.iter().zip(observed).enumerate() {
            compare_items(found, &at.inner(&number.to_string()), wanted, observed);
        }
        return;
    };
    let is_same = |wanted: &Value, other: &Value| has_same_keys(keys, wanted, other);
    let place = |wanted: &Value| observed.iter().position(|other| is_same(wanted, other));
    let places: Vec<Option<usize>> = wanted.iter().map(place).collect();
    for (wanted, place) in wanted.iter().zip(&places) {
        let key = wanted[keys[0]].to_string();
        match place {
            Some(place) => compare_items(found, &at.inner(&key), wanted, &observed[*place]),
            None => found.push((at.inner(&key).path(), Value::Null)),
        }
    }
    // The list has a second item with the same key. Of two variables with the same name, the container gets the second.
    let again =
        |wanted: &&Value| observed.iter().filter(|other| is_same(wanted, other)).count() > 1;
    for wanted in wanted.iter().filter(again) {
        let key = wanted[keys[0]].to_string();
        let all: Vec<_> = observed.iter().filter(|other| is_same(wanted, other)).collect();
        found.push((at.inner(&key).path(), json!(all)));
    }
    if is_ordered(at, wanted) && !places.is_sorted() {
        found.push((at.path(), json!(places)));
    }
}

/// Compares two items of a list. An empty map in an item has a meaning: a volume with `emptyDir: {}`, a peer with
/// `podSelector: {}`. Elsewhere it equals an absent one: the API server drops `labels: {}`.
fn compare_items(
    found: &mut Vec<(String, Value)>,
    at: &Place<'_>,
    wanted: &Value,
    observed: &Value,
) {
    let fields = wanted.as_object().into_iter().flatten();
    for (field, _) in
        fields.filter(|(field, value)| **value == json!({}) && observed[*field].is_null())
    {
        found.push((at.inner(field).path(), Value::Null));
    }
    compare(found, at, wanted, observed);
}

/// Returns whether the keys of two items of a list are equal.
pub(super) fn has_same_keys(keys: &[&str], wanted: &Value, other: &Value) -> bool {
    keys.iter().all(|key| {
        let (wanted, other) = (&wanted[*key], &other[*key]);
        // The API server fills in the protocol of a port.
        wanted == other || wanted.is_null() && *key == "protocol" && other == "TCP"
    })
}

/// Returns the keys by which server-side apply merges a list of the built-in kinds (`x-kubernetes-list-map-keys`);
/// `None` if the list is compared as a whole.
pub(super) fn keys(at: &Place<'_>, items: &[Value]) -> Option<&'static [&'static str]> {
    let is_of_container = || items.iter().all(|port| port["port"].is_null());
    let keys = list_keys(at.name, |field| field == "containerPort" && is_of_container())?;
    // Only the ports of a Service have these keys. The ports of a NetworkPolicy rule are an atomic list.
    if keys[0] == "port" && !at.is("spec", "ports") {
        return None;
    }
    items.iter().all(|item| !item[keys[0]].is_null()).then_some(keys)
}

/// Returns whether the value is a resource quantity of a container or a volume.
fn is_amount(at: &Place<'_>) -> bool {
    matches!(
        at.last(),
        ["resources", "limits" | "requests", _]
            | ["spec", "overhead", _]
            | [_, "emptyDir", "sizeLimit"]
            | [_, "resourceFieldRef", "divisor"]
    )
}

fn amount(value: &Value) -> Option<Quantity> {
    match value {
        Value::String(text) => Some(Quantity::new(text)),
        Value::Number(number) => Some(Quantity::new(&number.to_string())),
        _ => None,
    }
}

fn is_same_amount(wanted: &Value, observed: &Value) -> bool {
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
    fn the_order_of_keyed_lists_is_hashed_only_if_it_matters() {
        let with =
            |env: Value| json!({"containers": [{"name": "a", "env": env}], "args": ["x", "a"]});
        let (a, b) = (json!({"name": "A", "value": "1"}), json!({"name": "B", "value": "2"}));
        let canonical = |value: Value| json!(Canonical::of(&value));
        assert_eq!(canonical(with(json!([a, b]))), canonical(with(json!([b, a]))));
        let refers = json!({"name": "C", "value": "$(A)"});
        assert_ne!(canonical(with(json!([a, refers]))), canonical(with(json!([refers, a]))));
        let init = |first, second| json!({"initContainers": [{"name": first}, {"name": second}]});
        assert_ne!(canonical(init("a", "b")), canonical(init("b", "a")));
        let cpu = |amount: &str| json!({"resources": {"limits": {"cpu": amount}}});
        assert_eq!(canonical(cpu("0.5")), canonical(cpu("500m")));
        assert_eq!(canonical(with(json!([])))["args"], json!(["x", "a"]));
        let text = hash(&canonical(with(json!([b, a]))));
        assert_eq!(hash(&Canonical::of(&with(json!([a, b])))), text, "of the JSON text");
    }

    #[test]
    fn an_additional_port_of_a_network_policy_rule_is_a_difference() {
        let rule = |ports: Value| json!({"spec": {"ingress": [{"ports": ports}]}});
        let (wanted, more) = (json!([{"port": 80}]), json!([{"port": 80}, {"port": 22}]));
        assert!(difference(&rule(wanted), &rule(more)).is_some());
        let limit = |limit: &str| json!({"data": {"limits": limit}});
        assert!(difference(&limit("1"), &limit("1000m")).is_some(), "no amount of a resource");
    }

    #[test]
    fn an_additional_entry_of_a_selector_is_a_difference() {
        let wanted = json!({"selector": {"a": "b"}, "labels": {"a": "b"}});
        let observed = json!({"selector": {"a": "b", "c": "d"}, "labels": {"a": "b", "c": "d"}});
        assert_eq!(difference(&wanted, &observed).as_deref(), Some("selector.c"));
        assert_eq!(difference(&wanted, &wanted), None);
        let expressions = |list: Value| json!({"selector": {"matchLabels": {"a": "b"}, "matchExpressions": list}});
        let wanted = json!({"selector": {"matchLabels": {"a": "b"}}});
        let none = json!([{"key": "a", "operator": "NotIn", "values": ["b"]}]);
        let place = difference(&wanted, &expressions(none));
        assert_eq!(place.as_deref(), Some("selector.matchExpressions"));
        assert_eq!(difference(&wanted, &expressions(json!([]))), None);
        let (every, some) =
            (json!({"podSelector": {}}), json!({"podSelector": {"matchLabels": {"a": "b"}}}));
        assert_eq!(difference(&every, &some).as_deref(), Some("podSelector.matchLabels"));
    }

    #[test]
    fn the_hash_is_fnv_1a() {
        // From the reference's test vectors.
        let mut hash = Fnv1a(0xcbf2_9ce4_8422_2325);
        io::Write::write_all(&mut hash, b"foobar").unwrap();
        assert_eq!(hash.0, 0x8594_4171_f739_67e8);
    }

    #[test]
    fn null_fields_are_not_applied() {
        let mut desired = json!({"spec": {"replicas": null, "list": [{"a": null, "b": 1}]}});
        remove_nulls(&mut desired);
        assert_eq!(desired, json!({"spec": {"list": [{"b": 1}]}}));
    }

    #[test]
    fn missing_fields_are_differences_and_additional_fields_are_not() {
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
        let mut twice = observed.clone();
        let env = twice["containers"][1]["env"].as_array_mut().unwrap();
        env.push(json!({"name": "B", "value": "3"}));
        assert_eq!(difference(&wanted, &twice).as_deref(), Some("containers.\"a\".env.\"B\""));
        observed["containers"][1]["args"] = json!(["x", "y"]);
        assert_eq!(difference(&wanted, &observed).as_deref(), Some("containers.\"a\".args"));
    }

    #[test]
    fn an_empty_map_matters_only_in_a_list_item() {
        let volumes = |volume: Value| json!({"volumes": [volume]});
        let (empty, other) =
            (json!({"name": "a", "emptyDir": {}}), json!({"name": "a", "hostPath": {"path": "/"}}));
        let place = difference(&volumes(empty), &volumes(other));
        assert_eq!(place.as_deref(), Some("volumes.\"a\".emptyDir"));
        let peers = |peer: Value| json!({"from": [peer]});
        let all = peers(json!({"podSelector": {}}));
        assert!(difference(&all, &peers(json!({"namespaceSelector": {}}))).is_some());
        assert_eq!(difference(&json!({"labels": {}}), &json!({})), None);
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
    fn resource_quantities_are_compared_by_value_and_other_texts_literally() {
        let limits = |cpu: Value| json!({"resources": {"limits": {"cpu": cpu}}});
        assert_eq!(difference(&limits(json!("0.5")), &limits(json!("500m"))), None);
        assert_eq!(difference(&limits(json!(1)), &limits(json!("1"))), None);
        assert!(difference(&limits(json!("1")), &limits(json!("2"))).is_some());
        assert!(difference(&json!({"args": "0.5"}), &json!({"args": "500m"})).is_some());
        assert!(difference(&json!({"data": {"value": ""}}), &json!({"data": {}})).is_some());
        let variable = json!({"env": [{"name": "A", "value": ""}]});
        assert_eq!(difference(&variable, &json!({"env": [{"name": "A"}]})), None);
        for other in [json!({"name": "A", "valueFrom": {}}), json!({"name": "A", "value": "1"})] {
            assert!(difference(&variable, &json!({"env": [other]})).is_some());
        }
        let hashed = |amount: Value| {
            let value = limits(amount);
            serde_json::to_string(&Canonical::of(&value)).unwrap()
        };
        assert_eq!(hashed(json!(1)), hashed(json!("1000m")));
    }

    #[test]
    fn a_projection_keeps_the_values_of_fields_that_the_other_has() {
        let mut value =
            json!({"a": 1, "b": {"c": 2, "d": 3}, "list": [{"e": 4, "f": 5}], "longer": [6, 7]});
        let onto = json!({"b": {"c": 0}, "list": [{"e": 0}], "longer": [0], "other": 0});
        let both = json!({"b": {"c": 2}, "list": [{"e": 4}], "longer": [6, 7]});
        project(&mut value, &onto);
        assert_eq!(value, both);
    }
}
