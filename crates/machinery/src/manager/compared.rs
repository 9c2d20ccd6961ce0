//! Whether what is observed is what is desired, as far as a view shows it.

use serde_json::Value;

/// The annotation that records the hash of what was applied. Applying removes a field that is no
/// longer applied, but comparing cannot find one: the hash does.
pub(super) const APPLIED: &str = "controller-machinery/applied";

/// The hash of what is to be applied; the same in every process that applies the same.
pub(super) fn hash(desired: &Value) -> String {
    format!("{:016x}", fnv1a(desired.to_string().as_bytes()))
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

/// Whether `observed` has every field of `wanted`, with its value. What else it has is a default, or
/// somebody else's.
pub(super) fn contains(observed: &Value, wanted: &Value) -> bool {
    match (observed, wanted) {
        (Value::Object(observed), Value::Object(wanted)) => wanted
            .iter()
            .all(|(field, wanted)| contains(observed.get(field).unwrap_or(&Value::Null), wanted)),
        (Value::Array(observed), Value::Array(wanted)) => {
            observed.len() == wanted.len()
                && observed.iter().zip(wanted).all(|(observed, wanted)| contains(observed, wanted))
        }
        // Nothing is wanted of a list or a struct that is not there.
        (Value::Null, Value::Array(wanted)) => wanted.is_empty(),
        (Value::Null, Value::Object(wanted)) => wanted.values().all(|w| contains(&Value::Null, w)),
        (observed, wanted) => is_equal(observed, wanted),
    }
}

pub(super) fn is_equal(desired: &Value, observed: &Value) -> bool {
    match (desired, observed) {
        (Value::Number(desired), Value::Number(observed)) => desired.as_f64() == observed.as_f64(),
        _ => desired == observed,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

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
        let wanted = json!({"replicas": 2, "data": {"a": "x"}, "ports": [{"port": 1}], "none": []});
        let observed = json!({"replicas": 2.0, "data": {"a": "x", "b": "of others"},
            "ports": [{"port": 1, "protocol": "TCP"}], "strategy": "a default"});
        assert!(contains(&observed, &wanted));
        for (field, other) in [
            ("replicas", json!(3)),
            ("replicas", json!(null)),
            ("data", json!({"b": "of others"})),
            ("ports", json!([{"port": 1}, {"port": 2}])),
            ("ports", json!([{"port": 2}])),
        ] {
            let mut observed = observed.clone();
            observed[field] = other;
            assert!(!contains(&observed, &wanted), "{observed}");
        }
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
