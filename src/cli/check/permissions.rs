//! R: the permissions of the account.

use std::collections::BTreeSet;

use futures::future::join_all;
use serde_json::{Value, json};

use super::installation::{asks_for_scrapers, lease_namespace};
use super::{Finding, R001, R002, R003, Target};
use crate::cli::installation::{Found, Installation, NAME};
use crate::client::{Client, Error};
use crate::object::Kind;

const REVIEW: Kind = Kind::cluster_scoped(
    "authorization.k8s.io",
    "v1",
    "SelfSubjectAccessReview",
    "selfsubjectaccessreviews",
);

/// Namespaces, in addition to the operator's own, in which a permission is especially powerful.
const SENSITIVE: [&str; 2] = ["kube-system", "default"];

/// Verbs on one resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Permission {
    /// API group; empty for the core group.
    pub group: &'static str,
    /// Resource, followed by a slash and the subresource if there is one.
    pub resource: &'static str,
    /// The verbs.
    pub verbs: &'static [&'static str],
}

/// Permissions that the operator needs in every namespace where it works.
pub const PERMISSIONS: &[Permission] = &[
    permission("cache.example.com", "memcacheds", &["list", "watch", "patch"]),
    permission("mydomain.com", "genericdaemons", &["list", "watch"]),
    permission("app.example.com", "apps", &["list", "watch"]),
    permission("cache.example.com", "memcacheds/status", &["patch"]),
    permission("mydomain.com", "genericdaemons/status", &["patch"]),
    permission("app.example.com", "apps/status", &["patch"]),
    permission("cache.example.com", "memcacheds/finalizers", &["update"]),
    permission("mydomain.com", "genericdaemons/finalizers", &["update"]),
    permission("app.example.com", "apps/finalizers", &["update"]),
    permission("apps", "deployments", &["get", "list", "watch", "create", "patch", "delete"]),
    permission("apps", "daemonsets", &["get", "list", "watch", "create", "patch", "delete"]),
    permission("", "services", &["get", "list", "watch", "create", "patch", "delete"]),
    permission(
        "policy",
        "poddisruptionbudgets",
        &["get", "list", "watch", "create", "patch", "delete"],
    ),
    permission("", "pods", &["list", "watch"]),
    permission("", "events", &["list"]),
    permission("events.k8s.io", "events", &["create"]),
];

/// Additional permissions of an operator that works in the whole cluster. Without them, it cannot distinguish
/// tainted nodes from nodes without the daemon's label.
pub const CLUSTER_PERMISSIONS: &[Permission] = &[permission("", "nodes", &["list"])];

/// Permissions in the namespace of the Lease: `create` for any Lease, the other verbs for the operator's own only.
pub const LEASE_PERMISSIONS: &[Permission] = &[LEASE];

/// Permissions in the whole cluster that it needs to serve /metrics only to authorized clients.
pub const METRICS_PERMISSIONS: &[Permission] = &[
    permission("authentication.k8s.io", "tokenreviews", &["create"]),
    permission("authorization.k8s.io", "subjectaccessreviews", &["create"]),
];

const LEASE: Permission = permission("coordination.k8s.io", "leases", &["create", "get", "patch"]);

const RBAC: &str = "rbac.authorization.k8s.io";
const ADMISSION: &str = "admissionregistration.k8s.io";

/// Powerful permissions that the operator does not need.
const DANGEROUS: &[Permission] = &[
    permission("*", "*", &["*"]),
    permission("", "secrets", &["get", "list", "watch", "create", "update", "patch"]),
    permission("", "pods", &["create", "update", "patch", "delete"]),
    permission("", "pods/exec", &["create"]),
    permission("", "pods/ephemeralcontainers", &["update", "patch"]),
    permission("", "serviceaccounts/token", &["create"]),
    permission("", "nodes", &["update", "patch", "delete"]),
    permission("", "nodes/proxy", &["get", "create"]),
    permission("", "users", &["impersonate"]),
    permission("", "groups", &["impersonate"]),
    permission("", "serviceaccounts", &["impersonate"]),
    permission(RBAC, "clusterroles", &["escalate", "bind", "create", "update", "patch"]),
    permission(RBAC, "roles", &["escalate", "bind", "create", "update", "patch"]),
    permission(RBAC, "clusterrolebindings", &["create", "update", "patch"]),
    permission(RBAC, "rolebindings", &["create", "update", "patch"]),
    permission(
        "apiextensions.k8s.io",
        "customresourcedefinitions",
        &["create", "update", "patch", "delete"],
    ),
    permission(ADMISSION, "mutatingwebhookconfigurations", &["create", "update", "patch"]),
    permission(ADMISSION, "validatingwebhookconfigurations", &["create", "update", "patch"]),
    permission(ADMISSION, "validatingadmissionpolicies", &["update", "patch", "delete"]),
    permission(ADMISSION, "validatingadmissionpolicybindings", &["update", "patch", "delete"]),
];

/// Writes that an operator with watched namespaces needs only there.
const CHILDREN: &[Permission] = &[
    permission("apps", "deployments", &["create", "patch", "delete"]),
    permission("apps", "daemonsets", &["create", "patch", "delete"]),
    permission("", "services", &["create", "patch", "delete"]),
];

const fn permission(
    group: &'static str,
    resource: &'static str,
    verbs: &'static [&'static str],
) -> Permission {
    Permission { group, resource, verbs }
}

pub(super) async fn findings(target: &Target<'_>) -> Vec<Finding> {
    match administrator(target.client).await {
        Err(error) => return [&R001, &R002, &R003].map(|check| check.unasked(&error)).into(),
        Ok(true) => {
            let who = "this account can do everything; run it under the operator's ServiceAccount";
            return [&R001, &R002, &R003].map(|check| check.skip(who)).into();
        }
        Ok(false) => {}
    }
    let Some(namespaces) = &target.namespaces else {
        let why = "the Deployment does not show the operator's namespaces; set --watch-namespace";
        return vec![R001.skip(why), R002.skip(why), metrics(target).await];
    };
    let needed = needed(target, namespaces).await;
    let further = match beyond(target, namespaces).await {
        Ok(beyond) if beyond.is_empty() => R002.ok(looked_at(target, namespaces)),
        Ok(beyond) => R002.fail(format!("can {}", beyond.join("; "))),
        Err(error) => R002.unasked(&error),
    };
    vec![needed, further, metrics(target).await]
}

/// An empty namespace means all namespaces.
const EVERYWHERE: &str = "";

/// Judges the permissions that the operator works with.
async fn needed(target: &Target<'_>, namespaces: &[String]) -> Finding {
    let (mut missing, mut asked) = (Vec::new(), 0);
    let mut questions: Vec<(&str, &[Permission])> =
        namespaces.iter().map(|namespace| (namespace.as_str(), PERMISSIONS)).collect();
    if namespaces.is_empty() {
        questions.extend([(EVERYWHERE, PERMISSIONS), (EVERYWHERE, CLUSTER_PERMISSIONS)]);
    }
    let name = target.installation().and_then(Installation::lease_name);
    let lease = name.unwrap_or_else(|| NAME.to_owned());
    let of_lease = lease_namespace(target);
    questions.extend(of_lease.as_deref().map(|namespace| (namespace, LEASE_PERMISSIONS)));
    for (namespace, permissions) in questions {
        for (what, answer) in ask(target.client, namespace, permissions, &lease).await {
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
        R001.fail(format!("cannot {}", missing.join("; ")))
    }
}

/// Returns the namespaces that were searched for dangerous permissions. A permission that is granted only in
/// another namespace is not found: an account that cannot read bindings has no list of them.
fn looked_at(target: &Target<'_>, namespaces: &[String]) -> String {
    let everywhere = namespaces.is_empty().then_some("the whole cluster at once");
    let single = namespaces.iter().map(String::as_str).chain(alone(target));
    let mut known = BTreeSet::new();
    let places: Vec<&str> =
        everywhere.into_iter().chain(single).filter(|place| known.insert(*place)).collect();
    format!("in {}", places.join(", "))
}

/// Returns the namespaces that are checked separately.
fn alone<'a>(target: &'a Target<'_>) -> impl Iterator<Item = &'a str> {
    SENSITIVE.into_iter().chain([target.operator_namespace()])
}

/// Judges the permissions for /metrics, if the Deployment serves it to authorized clients only.
async fn metrics(target: &Target<'_>) -> Finding {
    let installed = match &target.found {
        Ok(Found::One(installed)) => installed,
        Ok(Found::None(why) | Found::Several(why)) => return R003.skip(why),
        Err(error) => return R003.unasked(error),
    };
    match asks_for_scrapers(installed) {
        Some(true) => {}
        Some(false) => {
            return R003.skip("/metrics is off, open to all clients, or on a loopback address");
        }
        None => return R003.skip("the Deployment does not show how /metrics is served"),
    }
    let mut missing = Vec::new();
    for (what, answer) in ask(target.client, EVERYWHERE, METRICS_PERMISSIONS, NAME).await {
        match answer {
            Ok(true) => {}
            Ok(false) => missing.push(what),
            Err(error) => return R003.unasked(&error),
        }
    }
    if missing.is_empty() {
        R003.ok("")
    } else {
        R003.fail(format!("cannot {}", missing.join("; ")))
    }
}

/// Returns the dangerous permissions of the account in `namespaces` or, if it has none, in the operator's own
/// or a sensitive namespace. Each is a separate request, because not every authorizer can list permissions.
async fn beyond(target: &Target<'_>, namespaces: &[String]) -> Result<Vec<String>, Error> {
    let client = target.client;
    if namespaces.is_empty() {
        let beyond = held(client, [EVERYWHERE], DANGEROUS).await?;
        if !beyond.is_empty() {
            return Ok(beyond);
        }
    } else {
        // The operator needs to write owned objects only in the namespaces that it serves.
        let outside = alone(target).filter(|one| !namespaces.iter().any(|served| served == one));
        let beyond = held(client, outside.chain([EVERYWHERE]), CHILDREN).await?;
        if !beyond.is_empty() {
            return Ok(beyond);
        }
    }
    let all = namespaces.iter().map(String::as_str).chain(alone(target));
    held(client, all, DANGEROUS).await
}

/// Returns the permissions of `permissions` that the account has in these namespaces.
async fn held(
    client: &Client,
    namespaces: impl IntoIterator<Item = &str>,
    permissions: &[Permission],
) -> Result<Vec<String>, Error> {
    let mut found = Vec::new();
    for namespace in namespaces.into_iter().collect::<BTreeSet<_>>() {
        for (what, answer) in ask(client, namespace, permissions, NAME).await {
            if answer? {
                found.push(what);
            }
        }
    }
    Ok(found)
}

/// Returns the dangerous permissions as text.
#[cfg(test)]
pub(super) fn dangerous() -> Vec<String> {
    let words =
        |permission: &Permission| format!("{} {}", permission.verbs.join(", "), permission.name());
    DANGEROUS.iter().map(words).collect()
}

impl Permission {
    /// Returns the name, such as `deployments.apps`.
    fn name(&self) -> String {
        let dot = if self.group.is_empty() { "" } else { "." };
        format!("{}{dot}{}", self.resource, self.group)
    }
}

async fn administrator(client: &Client) -> Result<bool, Error> {
    may(client, "", &permission("*", "*", &["*"]), "*", NAME).await
}

async fn ask(
    client: &Client,
    namespace: &str,
    permissions: &[Permission],
    lease: &str,
) -> Vec<(String, Result<bool, Error>)> {
    let questions = permissions
        .iter()
        .flat_map(|permission| permission.verbs.iter().map(move |verb| (permission, verb)));
    join_all(questions.map(|(permission, verb)| async move {
        let place = if namespace.is_empty() { String::new() } else { format!(" in {namespace}") };
        let what = format!("{verb} {}{place}", permission.name());
        (what, may(client, namespace, permission, verb, lease).await)
    }))
    .await
}

/// Returns whether this account is allowed `verb` in `namespace`, or in all namespaces if that is empty. `lease` is the
/// name of the Lease.
pub(super) async fn may(
    client: &Client,
    namespace: &str,
    permission: &Permission,
    verb: &str,
    lease: &str,
) -> Result<bool, Error> {
    let (resource, subresource) =
        permission.resource.split_once('/').unwrap_or((permission.resource, ""));
    let named = *permission == LEASE && verb != "create";
    let mut attributes = json!({
        "namespace": namespace, "group": permission.group, "resource": resource,
        "subresource": subresource, "verb": verb,
    });
    if named {
        attributes["name"] = lease.into();
    }
    let spec = json!({ "resourceAttributes": attributes });
    let status: Value = client.review(&REVIEW, &spec).await?;
    Ok(status["allowed"] == Value::Bool(true))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::check::CheckArgs;
    use crate::client::Options;

    #[test]
    fn each_searched_namespace_is_named_once() {
        use clap::Parser;
        #[derive(Parser)]
        struct Line {
            #[command(flatten)]
            args: CheckArgs,
        }
        let args = Line::parse_from(["check", "--operator-namespace", "default"]).args;
        let service = tower::service_fn(|_| {
            std::future::ready(Ok::<_, std::io::Error>(http::Response::new(String::new())))
        });
        let client = Client::from_service(service, Options::default());
        let found = Ok(Found::None(String::new()));
        let target = Target { client: &client, args: &args, found, namespaces: None };
        let looked_at = |namespaces: &[&str]| {
            let namespaces: Vec<String> =
                namespaces.iter().map(|name| (*name).to_owned()).collect();
            looked_at(&target, &namespaces)
        };
        assert_eq!(looked_at(&[]), "in the whole cluster at once, kube-system, default");
        assert_eq!(looked_at(&["a", "kube-system"]), "in a, kube-system, default");
    }
}
