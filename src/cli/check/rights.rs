//! R: what the account may do.

use std::collections::BTreeSet;

use futures::future::join_all;
use serde_json::{Value, json};

use super::CheckArgs;
use super::installation::{self, Found};
use super::{Finding, R001, R002, R003};
use crate::client::{Client, Error};
use crate::object::Kind;

const REVIEW: Kind = Kind::cluster_scoped(
    "authorization.k8s.io",
    "v1",
    "SelfSubjectAccessReview",
    "selfsubjectaccessreviews",
);

/// Namespaces beside the operator's own in which a right is worth more than in another.
const SENSITIVE: [&str; 2] = ["kube-system", "default"];

/// Verbs on one resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Right {
    /// API group; empty for the core group.
    pub group: &'static str,
    /// Resource, followed by a slash and the subresource if there is one.
    pub resource: &'static str,
    /// The verbs.
    pub verbs: &'static [&'static str],
}

/// Rights that the operator needs in every namespace where it works.
pub const RIGHTS: &[Right] = &[
    right("cache.example.com", "memcacheds", &["list", "watch", "patch"]),
    right("mydomain.com", "genericdaemons", &["list", "watch"]),
    right("app.example.com", "apps", &["list", "watch"]),
    right("cache.example.com", "memcacheds/status", &["patch"]),
    right("mydomain.com", "genericdaemons/status", &["patch"]),
    right("app.example.com", "apps/status", &["patch"]),
    right("cache.example.com", "memcacheds/finalizers", &["update"]),
    right("mydomain.com", "genericdaemons/finalizers", &["update"]),
    right("app.example.com", "apps/finalizers", &["update"]),
    right("apps", "deployments", &["get", "list", "watch", "create", "patch"]),
    right("apps", "daemonsets", &["get", "list", "watch", "create", "patch"]),
    right("", "services", &["get", "list", "watch", "create", "patch", "delete"]),
    right("policy", "poddisruptionbudgets", &["get", "list", "watch", "create", "patch", "delete"]),
    right("", "pods", &["list", "watch"]),
    right("", "events", &["list"]),
    right("events.k8s.io", "events", &["create", "patch"]),
];

/// Rights that it needs besides if it works in the whole cluster. Without it, nodes that a taint keeps a
/// daemon from are not told from nodes without its label.
pub const CLUSTER_RIGHTS: &[Right] = &[right("", "nodes", &["list"])];

/// Rights that it needs in the namespace of its Lease: `create` for any Lease, the other verbs for its own
/// only; and Events about who leads.
pub const LEASE_RIGHTS: &[Right] = &[LEASE, right("events.k8s.io", "events", &["create", "patch"])];

/// Rights that it needs in the whole cluster to serve /metrics to authorized clients only.
pub const METRICS_RIGHTS: &[Right] = &[
    right("authentication.k8s.io", "tokenreviews", &["create"]),
    right("authorization.k8s.io", "subjectaccessreviews", &["create"]),
];

const LEASE: Right = right("coordination.k8s.io", "leases", &["create", "get", "patch", "watch"]);

const RBAC: &str = "rbac.authorization.k8s.io";
const ADMISSION: &str = "admissionregistration.k8s.io";

/// Rights that give power over a cluster and that the operator does not need.
const DANGEROUS: &[Right] = &[
    right("*", "*", &["*"]),
    right("", "secrets", &["get", "list", "watch", "create", "update", "patch"]),
    right("", "pods", &["create", "update", "patch", "delete"]),
    right("", "pods/exec", &["create"]),
    right("", "pods/ephemeralcontainers", &["update", "patch"]),
    right("", "serviceaccounts/token", &["create"]),
    right("", "nodes", &["update", "patch", "delete"]),
    right("", "nodes/proxy", &["get", "create"]),
    right("", "users", &["impersonate"]),
    right("", "groups", &["impersonate"]),
    right("", "serviceaccounts", &["impersonate"]),
    right("apps", "deployments", &["delete"]),
    right("apps", "daemonsets", &["delete"]),
    right(RBAC, "clusterroles", &["escalate", "bind", "create", "update", "patch"]),
    right(RBAC, "roles", &["escalate", "bind", "create", "update", "patch"]),
    right(RBAC, "clusterrolebindings", &["create", "update", "patch"]),
    right(RBAC, "rolebindings", &["create", "update", "patch"]),
    right(
        "apiextensions.k8s.io",
        "customresourcedefinitions",
        &["create", "update", "patch", "delete"],
    ),
    right(ADMISSION, "mutatingwebhookconfigurations", &["create", "update", "patch"]),
    right(ADMISSION, "validatingwebhookconfigurations", &["create", "update", "patch"]),
    right(ADMISSION, "validatingadmissionpolicies", &["update", "patch", "delete"]),
    right(ADMISSION, "validatingadmissionpolicybindings", &["update", "patch", "delete"]),
];

const fn right(
    group: &'static str,
    resource: &'static str,
    verbs: &'static [&'static str],
) -> Right {
    Right { group, resource, verbs }
}

pub(super) async fn findings(client: &Client, args: &CheckArgs) -> Vec<Finding> {
    // An empty namespace means all namespaces.
    let everywhere = [String::new()];
    let namespaces =
        if args.namespaces.is_empty() { &everywhere[..] } else { &args.namespaces[..] };
    match administrator(client).await {
        Err(error) => return [&R001, &R002, &R003].map(|check| check.unasked(&error)).into(),
        Ok(true) => {
            let who = "this account may do everything; run it under the operator's ServiceAccount";
            return [&R001, &R002, &R003].map(|check| check.skip(who)).into();
        }
        Ok(false) => {}
    }
    vec![
        needed(client, args, namespaces).await,
        further(client, args, namespaces).await,
        metrics(client, args).await,
    ]
}

/// Judges the rights that the operator works with.
async fn needed(client: &Client, args: &CheckArgs, namespaces: &[String]) -> Finding {
    let everywhere = String::new();
    let (mut missing, mut asked) = (Vec::new(), 0);
    let needed = namespaces.iter().map(|namespace| (namespace, RIGHTS));
    let in_cluster = args.namespaces.is_empty().then_some((&everywhere, CLUSTER_RIGHTS));
    let of_lease = args.leader_elect_namespace.as_ref().unwrap_or(&args.operator_namespace);
    let lease = (of_lease, LEASE_RIGHTS);
    for (namespace, rights) in needed.chain(in_cluster).chain(std::iter::once(lease)) {
        for (what, answer) in ask(client, namespace, rights).await {
            asked += 1;
            match answer {
                Ok(true) => {}
                // The Lease's namespace may be one of these as well.
                Ok(false) if missing.contains(&what) => {}
                Ok(false) => missing.push(what),
                Err(error) => return R001.unasked(&error),
            }
        }
    }
    if missing.is_empty() {
        R001.ok(format!("all {asked}"))
    } else {
        R001.fail(format!("may not {}", missing.join("; ")))
    }
}

/// Judges the dangerous rights that the operator does not need.
async fn further(client: &Client, args: &CheckArgs, namespaces: &[String]) -> Finding {
    match beyond(client, args, namespaces).await {
        Ok(beyond) if beyond.is_empty() => R002.ok(looked_at(args)),
        Ok(beyond) => R002.fail(format!("may {}", beyond.join("; "))),
        Err(error) => R002.unasked(&error),
    }
}

/// The namespaces in which dangerous rights were looked for. A right that is granted in another one alone is
/// not found: nothing lists them for an account that may not read bindings.
fn looked_at(args: &CheckArgs) -> String {
    let everywhere = args.namespaces.is_empty().then(|| "the whole cluster at once".to_owned());
    let single = args.namespaces.iter().map(String::as_str).chain(alone(args));
    let mut places: Vec<String> = everywhere.into_iter().chain(single.map(str::to_owned)).collect();
    let mut known = BTreeSet::new();
    places.retain(|place| known.insert(place.clone()));
    format!("in {}", places.join(", "))
}

/// Namespaces that are looked at by themselves.
fn alone(args: &CheckArgs) -> impl Iterator<Item = &str> {
    SENSITIVE.into_iter().chain([args.operator_namespace.as_str()])
}

/// Judges the rights for /metrics, if the Deployment serves it to authorized clients only.
async fn metrics(client: &Client, args: &CheckArgs) -> Finding {
    let deployment = match installation::deployment(client, args).await {
        Ok(Found::One(deployment)) => deployment,
        Ok(Found::None(why) | Found::Several(why)) => return R003.skip(why),
        Err(error) => return R003.unasked(&error),
    };
    match installation::asks_for_scrapers(&deployment) {
        Some(true) => {}
        Some(false) => {
            return R003.skip(
                "the operator's /metrics is off, served to anyone, or on a loopback address",
            );
        }
        None => return R003.skip("the Deployment does not show how /metrics is served"),
    }
    let mut missing = Vec::new();
    for (what, answer) in ask(client, "", METRICS_RIGHTS).await {
        match answer {
            Ok(true) => {}
            Ok(false) => missing.push(what),
            Err(error) => return R003.unasked(&error),
        }
    }
    if missing.is_empty() {
        R003.ok("")
    } else {
        R003.fail(format!("may not {}", missing.join("; ")))
    }
}

/// The dangerous rights that the account has in `namespaces`; if none, those that it has in the operator's own
/// namespace or a sensitive one only. Each right is asked for: not every authorizer can list what it grants.
async fn beyond(
    client: &Client,
    args: &CheckArgs,
    namespaces: &[String],
) -> Result<Vec<String>, Error> {
    let beyond = dangerous_in(client, namespaces.iter().map(String::as_str)).await?;
    if !beyond.is_empty() {
        return Ok(beyond);
    }
    dangerous_in(client, alone(args)).await
}

async fn dangerous_in(
    client: &Client,
    namespaces: impl Iterator<Item = &str>,
) -> Result<Vec<String>, Error> {
    let mut found = Vec::new();
    for namespace in namespaces.collect::<BTreeSet<_>>() {
        for (what, answer) in ask(client, namespace, DANGEROUS).await {
            if answer? {
                found.push(what);
            }
        }
    }
    Ok(found)
}

/// The dangerous rights, in words.
#[cfg(test)]
pub(super) fn dangerous() -> Vec<String> {
    let words = |right: &Right| format!("{} {}", right.verbs.join(", "), right.name());
    DANGEROUS.iter().map(words).collect()
}

impl Right {
    /// `deployments.apps`.
    fn name(&self) -> String {
        let dot = if self.group.is_empty() { "" } else { "." };
        format!("{}{dot}{}", self.resource, self.group)
    }
}

async fn administrator(client: &Client) -> Result<bool, Error> {
    may(client, "", &right("*", "*", &["*"]), "*").await
}

async fn ask(
    client: &Client,
    namespace: &str,
    rights: &[Right],
) -> Vec<(String, Result<bool, Error>)> {
    let questions =
        rights.iter().flat_map(|right| right.verbs.iter().map(move |verb| (right, verb)));
    join_all(questions.map(|(right, verb)| async move {
        let place = if namespace.is_empty() { String::new() } else { format!(" in {namespace}") };
        let what = format!("{verb} {}{place}", right.name());
        (what, may(client, namespace, right, verb).await)
    }))
    .await
}

/// Returns whether this account may do `verb` in `namespace`, or in all namespaces if that is
/// empty.
pub(super) async fn may(
    client: &Client,
    namespace: &str,
    right: &Right,
    verb: &str,
) -> Result<bool, Error> {
    let (resource, subresource) = right.resource.split_once('/').unwrap_or((right.resource, ""));
    let named = *right == LEASE && verb != "create";
    let mut attributes = json!({
        "namespace": namespace, "group": right.group, "resource": resource,
        "subresource": subresource, "verb": verb,
    });
    if named {
        attributes["name"] = "workload-operator".into();
    }
    let spec = json!({ "resourceAttributes": attributes });
    let status: Value = client.review(&REVIEW, &spec).await?;
    Ok(status["allowed"] == Value::Bool(true))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_place_in_which_rights_were_looked_for_is_named_once() {
        use clap::Parser;
        #[derive(Parser)]
        struct Line {
            #[command(flatten)]
            args: CheckArgs,
        }
        let looked_at = |namespaces: &[&str]| {
            let flags = namespaces.iter().flat_map(|name| ["--namespace", name]);
            let own = ["check", "--operator-namespace", "default"];
            looked_at(&Line::parse_from(own.into_iter().chain(flags)).args)
        };
        assert_eq!(looked_at(&[]), "in the whole cluster at once, kube-system, default");
        assert_eq!(looked_at(&["a", "kube-system"]), "in a, kube-system, default");
    }
}
