//! R: the permissions of the account.

use futures::future::join_all;
use serde_json::{Value, json};

use super::installation::{asks_for_scrapers, lease_namespace};
use super::{Finding, R001, R002, R003, Target};
use crate::cli::installation::{Found, Installation, NAME, Setting};
use crate::client::{Client, Error};
use crate::object::Kind;

const fn review(kind: &'static str, plural: &'static str) -> Kind {
    Kind::cluster_scoped("authorization.k8s.io", "v1", kind, plural)
}

const SELF_REVIEW: Kind = review("SelfSubjectAccessReview", "selfsubjectaccessreviews");
const REVIEW: Kind = review("SubjectAccessReview", "subjectaccessreviews");

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

/// An account, of which the API server is asked what it can do.
pub(super) struct Account<'a> {
    pub(super) client: &'a Client,
    /// The name of a ServiceAccount; `None` for the client's own account.
    pub(super) name: Option<String>,
}

pub(super) async fn findings(target: &Target<'_>) -> Vec<Finding> {
    let own = Account { client: target.client, name: None };
    // An administrator can do everything, and asks about the operator.
    let account = match own.may("", &permission("*", "*", &["*"]), "*", NAME).await {
        Err(error) => return [&R001, &R002, &R003].map(|check| check.unasked(&error)).into(),
        Ok(false) => own,
        Ok(true) => match &target.found {
            Ok(Found::One(installed)) => Account { name: Some(installed.account()), ..own },
            Ok(Found::None(why) | Found::Several(why)) => {
                return [&R001, &R002, &R003].map(|check| check.skip(why)).into();
            }
            Err(error) => return [&R001, &R002, &R003].map(|check| check.unasked(error)).into(),
        },
    };
    let Some(namespaces) = &target.namespaces else {
        let why = "the Deployment does not show the operator's namespaces; set --watch-namespace";
        return vec![R001.skip(why), R002.skip(why), metrics(target, &account).await];
    };
    let needed = needed(target, &account, namespaces).await;
    // `-n` can name some of the namespaces that the operator serves.
    let is_of_namespaces = match target.installation() {
        Some(installed) => installed.watched() != Setting::Absent,
        None => !namespaces.is_empty(),
    };
    let further = match beyond(&account, namespaces, is_of_namespaces).await {
        Ok(beyond) if beyond.is_empty() => {
            R002.ok("in the whole cluster, and in the namespaces that it serves")
        }
        Ok(beyond) => R002.fail(format!("can {}", beyond.join("; "))),
        Err(error) => R002.unasked(&error),
    };
    vec![needed, further, metrics(target, &account).await]
}

/// An empty namespace means all namespaces.
const EVERYWHERE: &str = "";

/// Judges the permissions that the operator works with.
async fn needed(target: &Target<'_>, account: &Account<'_>, namespaces: &[String]) -> Finding {
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
        for (what, answer) in account.ask(namespace, permissions, &lease).await {
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

/// Judges the permissions for /metrics, if the Deployment serves it to authorized clients only.
async fn metrics(target: &Target<'_>, account: &Account<'_>) -> Finding {
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
    for (what, answer) in account.ask(EVERYWHERE, METRICS_PERMISSIONS, NAME).await {
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

/// Returns the dangerous permissions of the account in the whole cluster and in `namespaces`. Each is a separate
/// request, because not every authorizer can list permissions.
async fn beyond(
    account: &Account<'_>,
    namespaces: &[String],
    is_of_namespaces: bool,
) -> Result<Vec<String>, Error> {
    // An operator of named namespaces needs to write owned objects only there.
    let children = if is_of_namespaces { CHILDREN } else { &[] };
    let everywhere = [(EVERYWHERE, DANGEROUS), (EVERYWHERE, children)];
    let served = namespaces.iter().map(|namespace| (namespace.as_str(), DANGEROUS));
    let mut found = Vec::new();
    for (namespace, permissions) in everywhere.into_iter().chain(served) {
        for (what, answer) in account.ask(namespace, permissions, NAME).await {
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

// === impl Account ===

impl Account<'_> {
    async fn ask(
        &self,
        namespace: &str,
        permissions: &[Permission],
        lease: &str,
    ) -> Vec<(String, Result<bool, Error>)> {
        let questions = permissions
            .iter()
            .flat_map(|permission| permission.verbs.iter().map(move |verb| (permission, verb)));
        join_all(questions.map(|(permission, verb)| async move {
            let place =
                if namespace.is_empty() { String::new() } else { format!(" in {namespace}") };
            let what = format!("{verb} {}{place}", permission.name());
            (what, self.may(namespace, permission, verb, lease).await)
        }))
        .await
    }

    /// Returns whether this account is allowed `verb` in `namespace`, or in all namespaces if that is empty. `lease` is
    /// the name of the Lease.
    pub(super) async fn may(
        &self,
        namespace: &str,
        permission: &Permission,
        verb: &str,
        lease: &str,
    ) -> Result<bool, Error> {
        let (resource, subresource) =
            permission.resource.split_once('/').unwrap_or((permission.resource, ""));
        let mut attributes = json!({
            "namespace": namespace, "group": permission.group, "resource": resource,
            "subresource": subresource, "verb": verb,
        });
        if *permission == LEASE && verb != "create" {
            attributes["name"] = lease.into();
        }
        let mut spec = json!({ "resourceAttributes": attributes });
        let kind = match &self.name {
            None => SELF_REVIEW,
            Some(name) => {
                let namespace = name.split(':').nth(2).unwrap_or_default();
                let of_namespace = format!("system:serviceaccounts:{namespace}");
                spec["user"] = json!(name);
                spec["groups"] =
                    json!(["system:serviceaccounts", of_namespace, "system:authenticated"]);
                REVIEW
            }
        };
        let status: Value = self.client.review(&kind, &spec).await?;
        Ok(status["allowed"] == Value::Bool(true))
    }
}
