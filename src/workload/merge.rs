//! Merge of `podTemplate` and `serviceTemplate` over what a kind generates.
//!
//! Guarantees
//! - Null, `{}`, `[]` and `""` mean absent: they remove nothing. An empty label selector is kept, because it selects
//!   everything, and an empty text in a map of the user's keys, such as a label.
//! - Objects are united. Lists with keys are merged by them ([`list_keys`]), other lists replaced.
//! - Of fields that exclude each other, such as the handlers of a probe, only those of the template remain.
//! - A volume or host alias of the template replaces the generated one.

use serde_json::{Map, Value, json};

use crate::object::list_keys;

/// Fields of which an object can have one.
const ONE_OF: [&[&str]; 2] =
    [&["exec", "httpGet", "tcpSocket", "grpc", "sleep"], &["value", "valueFrom"]];
/// Objects that are replaced: they consist of fields that exclude each other or belong together.
const WHOLE: [&str; 4] = ["seccompProfile", "appArmorProfile", "labelSelector", "valueFrom"];
/// Lists whose items are replaced.
const WHOLE_ITEMS: [&str; 2] = ["volumes", "hostAliases"];

/// Maps with keys of the user, whose values can be empty, and a text that means something if it is empty.
const FREE: [&str; 6] = [
    "labels",
    "annotations",
    "nodeSelector",
    "matchLabels",
    "volumeAttributes",
    "storageClassName",
];

/// Returns what is set in a part of a template; `None` if nothing is.
pub(crate) fn set(field: &str, value: &Value) -> Option<Value> {
    match value {
        Value::Null => None,
        Value::String(text) if text.is_empty() => FREE.contains(&field).then(|| value.clone()),
        Value::Array(list) if list.is_empty() => None,
        Value::Array(list) => {
            Some(list.iter().map(|item| set("", item).unwrap_or_else(|| item.clone())).collect())
        }
        Value::Object(fields) => {
            let fields = fields.iter().filter_map(|(name, value)| {
                // The value of a free key is judged by its map.
                let field = if FREE.contains(&field) { field } else { name };
                set(field, value).map(|value| (name.clone(), value))
            });
            let fields: Map<String, Value> = fields.collect();
            // An empty source is not the same as none: the API server refuses it.
            if field == "valueFrom" && fields.is_empty() && is_there(value) {
                return Some(value.clone());
            }
            let selects_all = field.ends_with("Selector") && field != "nodeSelector";
            (!fields.is_empty() || selects_all).then_some(Value::Object(fields))
        }
        other => Some(other.clone()),
    }
}

/// Returns whether an object has a field that is not null.
fn is_there(value: &Value) -> bool {
    value.as_object().into_iter().flatten().any(|(_, value)| !value.is_null())
}

/// Merges what is set in `over`, the value of `field`, over `base`.
pub(crate) fn merge(field: &str, base: &mut Value, over: Value) {
    match (base, over) {
        (Value::Object(base), Value::Object(over)) if !WHOLE.contains(&field) => {
            for group in ONE_OF {
                if group.iter().any(|field| over.contains_key(*field)) {
                    base.retain(|field, _| {
                        !group.contains(&field.as_str()) || over.contains_key(field)
                    });
                }
            }
            for (name, value) in over {
                let there = base.entry(name.clone()).or_insert(Value::Null);
                merge(&name, there, value);
            }
        }
        (Value::Array(base), Value::Array(over)) => merge_lists(field, base, over),
        (base, over) => *base = over,
    }
}

fn merge_lists(field: &str, base: &mut Vec<Value>, over: Vec<Value>) {
    let has = |name: &str| over.iter().chain(&*base).any(|item| item.get(name).is_some());
    let Some(keys) = list_keys(field, has) else {
        *base = over;
        return;
    };
    let key = |item: &Value, key: &str| match &item[key] {
        Value::Null if key == "protocol" => json!("TCP"),
        value => value.clone(),
    };
    for item in over {
        let is_same = |other: &&mut Value| keys.iter().all(|it| key(other, it) == key(&item, it));
        match base.iter_mut().find(is_same) {
            Some(there) if WHOLE_ITEMS.contains(&field) => *there = item,
            Some(there) => merge("", there, item),
            None => base.push(item),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[allow(clippy::needless_pass_by_value)]
    fn merged(mut base: Value, over: Value) -> Value {
        if let Some(over) = set("", &over) {
            merge("", &mut base, over);
        }
        base
    }

    #[test]
    fn what_is_empty_removes_nothing() {
        let base = json!({"args": ["a"], "image": "a:1", "resources": {"limits": {"cpu": "1"}}});
        let empty = json!({"args": [], "image": "", "resources": {"limits": {}}, "env": null});
        assert_eq!(merged(base.clone(), empty), base);
        let zero = json!({"hostNetwork": false, "terminationGracePeriodSeconds": 0});
        assert_eq!(merged(json!({}), zero.clone()), zero, "0 and false are values");
        let control_plane = json!({"nodeSelector": {"node-role.kubernetes.io/control-plane": ""}});
        assert_eq!(merged(json!({}), control_plane.clone()), control_plane, "an empty label");
        let term = json!({"terms": [{"namespaceSelector": {}, "topologyKey": "zone"}]});
        assert_eq!(merged(json!({}), term.clone()), term, "it selects all namespaces");
    }

    #[test]
    fn objects_are_united_and_lists_without_keys_replaced() {
        let base = json!({"resources": {"limits": {"cpu": "1"}}, "args": ["a", "b"]});
        let over = json!({"resources": {"limits": {"memory": "1Gi"}}, "args": ["c"]});
        let both = json!({"resources": {"limits": {"cpu": "1", "memory": "1Gi"}}, "args": ["c"]});
        assert_eq!(merged(base, over), both);
        let base = json!({"httpGet": {"path": "/", "port": 80}, "periodSeconds": 5});
        let path = json!({"httpGet": {"path": "/health"}});
        let expected = json!({"httpGet": {"path": "/health", "port": 80}, "periodSeconds": 5});
        assert_eq!(merged(base, path), expected, "a required field is kept");
    }

    #[test]
    fn items_are_merged_by_their_keys() {
        let base = json!({"containers": [{"name": "a", "image": "a:1", "env": [{"name": "A", "value": "1"}]}]});
        let over = json!({"containers": [
            {"name": "proxy", "image": "p:1"},
            {"name": "a", "env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "x"}}}, {"name": "B", "value": "2"}]},
        ]});
        let expected = json!({"containers": [
            {"name": "a", "image": "a:1", "env": [
                {"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "x"}}},
                {"name": "B", "value": "2"},
            ]},
            {"name": "proxy", "image": "p:1"},
        ]});
        assert_eq!(merged(base, over), expected);
        let udp = json!({"ports": [{"containerPort": 53, "protocol": "UDP"}, {"containerPort": 53, "name": "dns"}]});
        let ports = json!({"ports": [{"containerPort": 53, "protocol": "TCP"}]});
        let both = json!({"ports": [
            {"containerPort": 53, "protocol": "TCP", "name": "dns"},
            {"containerPort": 53, "protocol": "UDP"},
        ]});
        assert_eq!(merged(ports, udp), both);
        let zones = |effect| json!({"topologyKey": "zone", "whenUnsatisfiable": effect});
        let base = json!({"topologySpreadConstraints": [zones("DoNotSchedule")]});
        let over = json!({"topologySpreadConstraints": [zones("ScheduleAnyway")]});
        let both =
            json!({"topologySpreadConstraints": [zones("DoNotSchedule"), zones("ScheduleAnyway")]});
        assert_eq!(merged(base, over), both);
    }

    #[test]
    fn of_fields_that_exclude_each_other_those_of_the_template_remain() {
        let probe = |handler: Value| json!({"livenessProbe": handler});
        let base = probe(json!({"tcpSocket": {"port": 80}, "periodSeconds": 5}));
        let exec = json!({"command": ["true"]});
        let expected = probe(json!({"exec": exec, "periodSeconds": 5}));
        assert_eq!(merged(base, probe(json!({"exec": exec}))), expected);
        let base = json!({"seccompProfile": {"type": "Localhost", "localhostProfile": "a"}});
        let over = json!({"seccompProfile": {"type": "Unconfined"}});
        assert_eq!(merged(base, over.clone()), over);
        let base =
            json!({"volumes": [{"name": "a", "emptyDir": {"medium": "Memory"}}, {"name": "b"}]});
        let over = json!({"volumes": [{"name": "a", "secret": {"secretName": "s"}}]});
        let expected =
            json!({"volumes": [{"name": "a", "secret": {"secretName": "s"}}, {"name": "b"}]});
        assert_eq!(merged(base, over), expected);
    }
}
