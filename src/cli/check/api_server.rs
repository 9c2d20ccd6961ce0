//! The API server and its judgements: K, its version; C, the CustomResourceDefinitions; D, objects.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::Target;
use super::permissions::{Account, Permission};
use super::{C001, C002, D001, D002, Finding, K001, K002};
use crate::app::App;
use crate::client::{Client, Error};
use crate::crds;
use crate::generic_daemon::GenericDaemon;
use crate::memcached::Memcached;
use crate::object::{Kind, ObjectKey, Resource};

/// The oldest supported minor version of Kubernetes 1.
const OLDEST: u32 = 35;
/// The newest that the tests run on.
const NEWEST: u32 = 37;

/// The API server's version, as it reports it.
pub(super) struct Version {
    /// For example `v1.36.3`.
    name: String,
    took: Duration,
}

pub(super) async fn version(client: &Client) -> Result<Version, Error> {
    let asked = Instant::now();
    let answer = client.read_path("/version").await?;
    let name = answer["gitVersion"].as_str().unwrap_or_default().to_owned();
    Ok(Version { name, took: asked.elapsed() })
}

pub(super) fn version_findings(version: &Version) -> Vec<Finding> {
    let reached = K001.ok(format!("{}, {} ms", version.name, version.took.as_millis()));
    let supported = match minor(&version.name) {
        Some(minor) if minor > NEWEST => {
            K002.ok(format!("{} is newer than what was tested, 1.{NEWEST}", version.name))
        }
        Some(minor) if minor >= OLDEST => K002.ok(""),
        Some(_) => K002.fail(format!("{} is older", version.name)),
        None => K002.warn(format!("{:?} is not understood", version.name)),
    };
    vec![reached, supported]
}

pub(super) fn unreachable(error: &Error) -> Finding {
    K001.fail(error.to_string())
}

/// Returns the minor version in `v1.36.3-eks-1`. A later major version counts as newer than any.
fn minor(name: &str) -> Option<u32> {
    let mut numbers = name.strip_prefix('v')?.split('.');
    let major: u32 = numbers.next()?.parse().ok()?;
    let digits = numbers.next()?;
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    let minor: u32 = digits.get(..end)?.parse().ok()?;
    Some(if major > 1 { u32::MAX } else { minor })
}

const CRD: Kind = Kind::cluster_scoped(
    "apiextensions.k8s.io",
    "v1",
    "CustomResourceDefinition",
    "customresourcedefinitions",
);

pub(super) async fn crd_findings(client: &Client) -> Vec<Finding> {
    let ours: Vec<Value> =
        crds::crds().iter().map(|crd| serde_json::to_value(crd).expect("a CRD is JSON")).collect();
    let mut there = Vec::new();
    for crd in &ours {
        let name = crd["metadata"]["name"].as_str().unwrap_or_default();
        match client.read(&CRD, &ObjectKey::new("", name)).await {
            Ok(found) => there.push(Some(found)),
            Err(error) if error.is_not_found() => there.push(None),
            Err(error) => {
                return vec![C001.unasked(&error), C002.unasked(&error)];
            }
        }
    }
    let pairs: Vec<(&Value, Option<&Value>)> =
        ours.iter().zip(there.iter().map(Option::as_ref)).collect();
    let none = there.iter().all(Option::is_none);
    let equal = if none { C002.skip("no CRD is installed: C001") } else { equal(&pairs) };
    // The manifests must not lower the size that is allowed now.
    let size = there
        .iter()
        .flatten()
        .filter_map(|crd| crd.pointer(BOUND)?.as_u64())
        .find(|n| LARGEST.contains(n) && *n > 3);
    let crds = size.map_or("crds".to_owned(), |size| format!("crds --memcached-max-size {size}"));
    let with_size = |finding: Finding| {
        let hint = finding.hint.replace("crds |", &format!("{crds} |"));
        finding.with_hint(hint)
    };
    vec![with_size(installed(&pairs)), with_size(equal)]
}

fn installed(pairs: &[(&Value, Option<&Value>)]) -> Finding {
    let mut wrong = Vec::new();
    for (ours, there) in pairs {
        match there {
            None => wrong.push(format!("{} is missing", plural(ours))),
            Some(crd) if crd["metadata"]["deletionTimestamp"].is_string() => wrong.push(format!(
                "{} is being deleted with all of its objects, and waits for their finalizers \
                 (docs/INSTALL.md, Uninstall)",
                plural(ours)
            )),
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
        if let Some(path) = difference(&with_size_of(ours, there)["spec"], &there["spec"], "spec") {
            wrong.push(format!("{}: {path} differs", plural(ours)));
        }
    }
    if wrong.is_empty() { C002.ok("") } else { C002.fail(wrong.join("; ")) }
}

/// The largest size of a Memcached that an administrator can set.
const LARGEST: std::ops::RangeInclusive<u64> = 3..=8;
/// The bound on a Memcached's size in its CRD.
const BOUND: &str =
    "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/size/maximum";

/// Returns `ours` with the bound on a Memcached's size in `there`, which an administrator can raise.
fn with_size_of(ours: &Value, there: &Value) -> Value {
    let mut ours = ours.clone();
    let raised =
        there.pointer(BOUND).filter(|bound| bound.as_u64().is_some_and(|n| LARGEST.contains(&n)));
    if let (Some(bound), Some(raised)) = (ours.pointer_mut(BOUND), raised) {
        *bound = raised.clone();
    }
    ours
}

/// Returns the path at which `there` differs from `ours`. Inside a schema, additions count, too. Outside, the
/// API server adds defaults.
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

/// The name of the objects, which are never created.
const NAME: &str = "workload-operator-check";

/// Returns each kind with a valid spec and an invalid one.
fn specs() -> [(Kind, Value, Value); 3] {
    [
        (Memcached::kind(), json!({"size": 1}), json!({"size": -1})),
        (
            GenericDaemon::kind(),
            json!({"image": "example.com/agent:1", "label": "logs"}),
            json!({"image": "example.com/agent:1", "label": "not a label"}),
        ),
        (
            App::kind(),
            json!({"replicas": 1, "image": "example.com/app:1"}),
            json!({"replicas": -1, "image": "example.com/app:1"}),
        ),
    ]
}

pub(super) async fn dry_run_findings(target: &Target<'_>) -> Vec<Finding> {
    let client = target.client;
    let own = Account { client, name: None };
    let namespace = target.namespaces.iter().flatten().next().map_or("default", String::as_str);
    let (mut refused, mut accepted, mut tried) = (Vec::new(), Vec::new(), Vec::new());
    let (mut unknown, mut missing) = (Vec::new(), 0);
    for (kind, valid, invalid) in specs() {
        let permission =
            Permission { group: kind.group, resource: kind.plural, verbs: &["create"] };
        // Objects that the account cannot create show nothing about validity. Neither does a missing kind,
        // which C001 reports.
        match own.may(namespace, &permission, "create", NAME).await {
            Ok(true) => {}
            Ok(false) => continue,
            Err(error) => return vec![D001.unasked(&error), D002.unasked(&error)],
        }
        let object = |spec: Value| {
            json!({"apiVersion": kind.api_version(), "kind": kind.kind,
                "metadata": {"name": NAME}, "spec": spec})
        };
        match client.try_create(&kind, namespace, &object(valid)).await {
            Ok(_) => {}
            Err(error) if error.is_not_served() => {
                missing += 1;
                continue;
            }
            // The operator's own policy requires that the account is allowed to create the workload itself.
            Err(error) if error.to_string().contains("requires permission to create") => continue,
            Err(error) if is_judgement(&error) => refused.push(format!("{}: {error}", kind.plural)),
            Err(error) => unknown.push(format!("{}: {error}", kind.plural)),
        }
        tried.push(kind.plural);
        match client.try_create(&kind, namespace, &object(invalid)).await {
            Ok(_) => accepted.push(kind.plural),
            Err(error) if matches!(error.code(), Some(400 | 422)) && !error.is_denied() => {}
            Err(error) => unknown.push(format!("{}: {error}", kind.plural)),
        }
    }
    if missing == specs().len() {
        let why = "no CRD is installed: C001";
        return vec![D001.skip(why), D002.skip(why)];
    }
    if !unknown.is_empty() {
        let why = unknown.join("; ");
        return vec![D001.unknown(why.clone()), D002.unknown(why)];
    }
    if tried.is_empty() {
        let why = format!("this account cannot create any of them in {namespace}");
        return vec![D001.skip(why.clone()), D002.skip(why)];
    }
    vec![
        if refused.is_empty() { D001.ok(tried.join(", ")) } else { D001.fail(refused.join("; ")) },
        if accepted.is_empty() {
            D002.ok("")
        } else {
            D002.fail(format!("accepted: {}", accepted.join(", ")))
        },
    ]
}

/// Returns whether the error is a judgement of the API server about the object, not a missing response.
fn is_judgement(error: &Error) -> bool {
    matches!(error.code(), Some(400 | 403 | 422)) && !error.is_transient_refusal()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cli::check::Outcome;

    fn judged(name: &str) -> Outcome {
        version_findings(&Version { name: name.to_owned(), took: Duration::ZERO })[1].outcome
    }

    #[test]
    fn a_version_is_judged_by_its_minor_number() {
        for fine in ["v1.35.0", "v1.36.3", "v1.37.2-eks-abc", "v1.36+", "v2.0.0"] {
            assert_eq!(judged(fine), Outcome::Ok, "{fine}");
        }
        assert_eq!(judged("v1.34.9"), Outcome::Fail);
        assert_eq!(judged("v1.9.0"), Outcome::Fail);
        assert_eq!(judged("strange"), Outcome::Warn);
    }

    #[test]
    fn the_title_names_the_oldest_and_the_newest_version() {
        let range = format!("(1.{OLDEST} or newer, tested up to 1.{NEWEST})");
        assert!(K002.title.ends_with(&range), "{} {range}", K002.title);
    }

    #[test]
    fn a_changed_schema_is_a_difference_and_an_added_default_is_not() {
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
