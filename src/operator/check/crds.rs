//! C: the CustomResourceDefinitions.

use serde_json::Value;

use super::finding::{C001, C002, C003, Finding};
use crate::api;
use crate::client::{Client, Error};
use crate::object::{Kind, ObjectKey};

const CRD: Kind = Kind::cluster_scoped(
    "apiextensions.k8s.io",
    "v1",
    "CustomResourceDefinition",
    "customresourcedefinitions",
);

pub(super) async fn findings(client: &Client) -> Vec<Finding> {
    let ours: Vec<Value> =
        api::crds().iter().map(|crd| serde_json::to_value(crd).expect("a CRD is JSON")).collect();
    let mut there = Vec::new();
    for crd in &ours {
        let name = crd["metadata"]["name"].as_str().unwrap_or_default();
        match client.read(&CRD, &ObjectKey::new("", name)).await {
            Ok(found) => there.push(Some(found)),
            Err(error) if error.is_not_found() => there.push(None),
            Err(error) => {
                return vec![C001.unasked(&error), C002.unasked(&error), names(client).await];
            }
        }
    }
    let pairs: Vec<(&Value, Option<&Value>)> =
        ours.iter().zip(there.iter().map(Option::as_ref)).collect();
    vec![installed(&pairs), equal(&pairs), names(client).await]
}

fn installed(pairs: &[(&Value, Option<&Value>)]) -> Finding {
    let mut wrong = Vec::new();
    for (ours, there) in pairs {
        match there {
            None => wrong.push(format!("{} is missing", plural(ours))),
            Some(crd) if !established(crd) => {
                wrong.push(format!("{} is not established", plural(ours)));
            }
            Some(_) => {}
        }
    }
    let all: Vec<&str> = pairs.iter().map(|(ours, _)| plural(ours)).collect();
    if wrong.is_empty() { C001.ok(all.join(", ")) } else { C001.fail(wrong.join(", ")) }
}

fn established(crd: &Value) -> bool {
    let conditions = crd["status"]["conditions"].as_array();
    conditions.into_iter().flatten().any(|c| c["type"] == "Established" && c["status"] == "True")
}

/// Missing CRDs are reported by C001.
fn equal(pairs: &[(&Value, Option<&Value>)]) -> Finding {
    let mut wrong = Vec::new();
    for (ours, there) in pairs.iter().filter_map(|(ours, there)| Some((ours, (*there)?))) {
        if let Some(path) = difference(&ours["spec"], &there["spec"], "spec") {
            wrong.push(format!("{}: {path} differs", plural(ours)));
        }
    }
    if wrong.is_empty() { C002.ok("") } else { C002.fail(wrong.join("; ")) }
}

/// The path at which `there` differs from `ours`. Inside a schema additions count as well; around
/// it the API server adds defaults.
fn difference(ours: &Value, there: &Value, path: &str) -> Option<String> {
    match (ours, there) {
        (Value::Object(a), Value::Object(b)) => {
            let exact = path.contains(".openAPIV3Schema");
            let added = b.keys().find(|key| exact && !a.contains_key(*key));
            if let Some(key) = added {
                return Some(format!("{path}.{key}"));
            }
            a.iter().find_map(|(key, value)| {
                let other = b.get(key).unwrap_or(&Value::Null);
                difference(value, other, &format!("{path}.{key}"))
            })
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => a
            .iter()
            .zip(b)
            .enumerate()
            .find_map(|(at, (a, b))| difference(a, b, &format!("{path}[{at}]"))),
        // 1 and 1.0 are the same bound.
        (Value::Number(a), Value::Number(b)) if a.as_f64() == b.as_f64() => None,
        (a, b) => (a != b).then(|| path.to_owned()),
    }
}

fn plural(crd: &Value) -> &str {
    crd["spec"]["names"]["plural"].as_str().unwrap_or_default()
}

/// Our names that kinds of another group have too.
async fn names(client: &Client) -> Finding {
    let ours: Vec<(String, Vec<String>)> = api::crds()
        .into_iter()
        .map(|crd| {
            let names = crd.spec.names;
            let all = [Some(names.plural), names.singular].into_iter().flatten();
            (crd.spec.group, all.chain(names.short_names.unwrap_or_default()).collect())
        })
        .collect();
    match others(client).await {
        Err(error) => C003.unasked(&error),
        Ok(others) => {
            let mut taken = Vec::new();
            for (group, names) in &ours {
                for (resource, other, theirs) in
                    others.iter().filter(|(_, other, _)| other != group)
                {
                    let mut both = theirs.iter().filter(|name| names.contains(name));
                    if let Some(name) = both.next() {
                        taken.push(format!("'{name}' is also {resource}.{other}"));
                    }
                }
            }
            if taken.is_empty() { C003.ok("") } else { C003.warn(taken.join("; ")) }
        }
    }
}

/// Every resource of every group except the core group, with all its names.
async fn others(client: &Client) -> Result<Vec<(String, String, Vec<String>)>, Error> {
    let groups = client.read_path("/apis").await?;
    let mut all = Vec::new();
    for group in groups["groups"].as_array().into_iter().flatten() {
        let name = group["name"].as_str().unwrap_or_default();
        let version = group["preferredVersion"]["groupVersion"].as_str().unwrap_or_default();
        // kubectl would find no names in a group whose server is down either.
        let Ok(list) = client.read_path(&format!("/apis/{version}")).await else { continue };
        for resource in list["resources"].as_array().into_iter().flatten() {
            let plural = resource["name"].as_str().unwrap_or_default();
            if plural.contains('/') {
                continue;
            }
            let short = resource["shortNames"].as_array().into_iter().flatten();
            let names = [&resource["name"], &resource["singularName"]].into_iter().chain(short);
            let names = names.filter_map(Value::as_str).map(str::to_owned).collect();
            all.push((plural.to_owned(), name.to_owned(), names));
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn defaults_around_a_schema_are_no_difference_and_any_change_in_it_is() {
        let ours = json!({"names": {"plural": "xs"}, "openAPIV3Schema": {"minimum": 1.0}});
        let same = json!({"names": {"plural": "xs", "listKind": "XList"}, "scope": "Namespaced",
            "openAPIV3Schema": {"minimum": 1}});
        assert_eq!(difference(&ours, &same, "spec"), None);
        let added =
            json!({"names": {"plural": "xs"}, "openAPIV3Schema": {"minimum": 1, "maximum": 2}});
        let path = difference(&ours, &added, "spec").unwrap();
        assert_eq!(path, "spec.openAPIV3Schema.maximum");
        assert!(difference(&ours, &json!({"names": {"plural": "xs"}}), "spec").is_some());
    }
}
