//! The installed operator, as its Deployment shows it. `check` judges it, and `plan` copies its settings.
//!
//! Guarantees
//! - A Deployment is found by its name, else by its label. All namespaces are searched, unless one is named.
//! - A setting is interpreted as by the operator's command line: the last value of a flag counts, a flag
//!   takes precedence over its variable, repeated flags of a list add up, and an empty value counts as unset.
//! - A value that the Deployment does not show (such as a ConfigMap's) is `Elsewhere`, never absent.

use clap::Args;
use serde_json::Value;

use super::NAMESPACE;
use super::args::POD_NAMESPACE;
use crate::client::{Client, Error, Scope};
use crate::object::{Kind, ObjectKey};

/// The name of the Deployment and of the Lease, and the value of the label.
pub(crate) const NAME: &str = "workload-operator";

const DEPLOYMENT: Kind = Kind::namespaced("apps", "v1", "Deployment", "deployments");

/// Where the operator is installed.
#[derive(Debug, Clone, Args)]
pub struct InstallationArgs {
    /// Namespace of the operator. Defaults to the namespace of the pod, workload-operator-system, or the namespace of
    /// the only Deployment with the label app.kubernetes.io/name=workload-operator.
    #[arg(long, env = POD_NAMESPACE, value_name = "NAME")]
    pub operator_namespace: Option<String>,

    /// Name of the operator's Deployment. Defaults to workload-operator, or to the only Deployment with the label
    /// app.kubernetes.io/name=workload-operator.
    #[arg(long, value_name = "NAME")]
    pub operator_name: Option<String>,
}

/// The result of the search for the operator.
#[derive(Debug)]
pub(crate) enum Found {
    One(Installation),
    /// No Deployment; the searched places.
    None(String),
    /// Several Deployments; their names, and the way to choose one.
    Several(String),
}

/// The operator's Deployment.
#[derive(Debug)]
pub(crate) struct Installation(pub(crate) Value);

/// A setting of the operator.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Setting {
    Absent,
    Text(String),
    /// The value comes from another object.
    Elsewhere,
}

// === impl InstallationArgs ===

impl InstallationArgs {
    /// Finds the operator.
    pub(crate) async fn find(&self, client: &Client) -> Result<Found, Error> {
        let named = self.operator_namespace.as_deref();
        let namespace = named.unwrap_or(NAMESPACE);
        let key = ObjectKey::new(namespace, self.operator_name.as_deref().unwrap_or(NAME));
        let forbidden = match client.read(&DEPLOYMENT, &key).await {
            Ok(deployment) => return Ok(Found::One(Installation(deployment))),
            Err(error) if error.is_not_found() => None,
            // The operator can be in another namespace.
            Err(error) if error.is_forbidden() && named.is_none() => Some(error),
            Err(error) => return Err(error),
        };
        let none = format!("not installed: there is no Deployment {key}");
        let mut all = match deployments(client, named).await {
            // An account with permissions in one namespace cannot read the others.
            Err(error) if error.is_forbidden() && named.is_none() => {
                return forbidden.map_or(Ok(Found::None(none)), Err);
            }
            all => all?,
        };
        all.retain(|one| self.operator_name.is_none() || one["metadata"]["name"] == **key.name());
        let names: Vec<String> = all.iter().map(place).collect();
        Ok(match (all.pop(), names.len()) {
            (None, _) => Found::None(none),
            (Some(one), 1) => Found::One(Installation(one)),
            _ => Found::Several(format!(
                "{}: choose one with --operator-namespace and --operator-name",
                names.join(", ")
            )),
        })
    }
}

/// Returns the operators' Deployments in a namespace, or in all.
async fn deployments(client: &Client, namespace: Option<&str>) -> Result<Vec<Value>, Error> {
    let labels = Some(format!("app.kubernetes.io/name={NAME}"));
    let scope = Scope { namespace: namespace.map(Into::into), labels, ..Scope::default() };
    let mut all = client.read_all(&DEPLOYMENT, &scope).await?;
    // An App can have the name of the operator.
    all.retain(|one| one["metadata"]["labels"]["app.kubernetes.io/managed-by"] != NAME);
    Ok(all)
}

/// Returns whether two lists, of which an empty one means everything, have a name in common.
fn overlap(one: &Setting, other: &Setting) -> Option<bool> {
    let names = |setting: &Setting| match setting {
        Setting::Elsewhere => None,
        Setting::Absent => Some(Vec::new()),
        Setting::Text(text) => {
            let names = text.split(',').map(|name| name.trim().to_owned());
            Some(names.filter(|name| !name.is_empty()).collect())
        }
    };
    let (one, other) = (names(one)?, names(other)?);
    Some(one.is_empty() || other.is_empty() || one.iter().any(|name| other.contains(name)))
}

// === impl Found ===

impl Found {
    pub(crate) fn one(&self) -> Option<&Installation> {
        match self {
            Found::One(installation) => Some(installation),
            Found::None(_) | Found::Several(_) => None,
        }
    }
}

// === impl Installation ===

impl Installation {
    pub(crate) fn name(&self) -> &str {
        text(&self.0["metadata"]["name"])
    }

    pub(crate) fn namespace(&self) -> &str {
        text(&self.0["metadata"]["namespace"])
    }

    /// Returns `NAMESPACE/NAME`.
    pub(crate) fn place(&self) -> String {
        place(&self.0)
    }

    /// Returns the username of the operator's ServiceAccount.
    pub(crate) fn account(&self) -> String {
        let account = self.0["spec"]["template"]["spec"]["serviceAccountName"].as_str();
        format!("system:serviceaccount:{}:{}", self.namespace(), account.unwrap_or("default"))
    }

    /// Returns the watched namespaces, separated by commas; `Absent` means all.
    pub(crate) fn watched(&self) -> Setting {
        self.list(&["watch-namespace", "namespace"], "WATCH_NAMESPACE")
    }

    /// Returns the other running installations that write the same objects or share the Lease for other objects, each
    /// with the reason; `None` if a Deployment does not show its settings.
    pub(crate) async fn rivals(&self, client: &Client) -> Result<Option<Vec<String>>, Error> {
        let mut rivals = Vec::new();
        for other in deployments(client, None).await?.into_iter().map(Installation) {
            match self.rivalry(&other) {
                Some(why) => rivals.extend(why.map(|why| format!("{} {why}", other.place()))),
                None => return Ok(None),
            }
        }
        Ok(Some(rivals))
    }

    /// Returns the reason why the two installations exclude each other, if they do; `None` if it is unknown.
    fn rivalry(&self, other: &Installation) -> Option<Option<&'static str>> {
        if other.place() == self.place() || other.0["spec"]["replicas"] == 0 {
            return Some(None);
        }
        let controllers = |one: &Installation| one.list(&["controllers"], "CONTROLLERS");
        let is_shared = overlap(&self.watched(), &other.watched())?
            && overlap(&controllers(self), &controllers(other))?;
        if self.elects() && other.elects() && self.lease()? == other.lease()? {
            // Of two Deployments with one Lease, one works. The other does nothing, whatever it should serve.
            let are_equal = self.watched() == other.watched();
            let serve_the_same = are_equal && controllers(self) == controllers(other);
            return Some((!serve_the_same).then_some("shares the Lease, but serves other objects"));
        }
        Some(is_shared.then_some("serves the same objects"))
    }

    /// Returns namespace and name of the Lease; `None` if the Deployment does not show them.
    fn lease(&self) -> Option<(String, String)> {
        let namespace = match self.setting("leader-elect-namespace", "LEADER_ELECT_NAMESPACE") {
            Setting::Text(namespace) => namespace,
            Setting::Absent => self.namespace().to_owned(),
            Setting::Elsewhere => return None,
        };
        Some((namespace, self.lease_name()?))
    }

    /// Returns the name of the Lease; `None` if the Deployment does not show it.
    pub(crate) fn lease_name(&self) -> Option<String> {
        match self.setting("leader-elect-resource-name", "LEADER_ELECT_RESOURCE_NAME") {
            Setting::Text(name) => Some(name),
            Setting::Absent => Some(NAME.to_owned()),
            Setting::Elsewhere => None,
        }
    }

    /// Returns whether leader election is on, or could be.
    pub(crate) fn elects(&self) -> bool {
        match self.setting("leader-elect", "LEADER_ELECT") {
            Setting::Text(value) => value == "true",
            Setting::Absent => false,
            // If the Deployment does not show it, the Lease is checked.
            Setting::Elsewhere => true,
        }
    }

    /// Returns whether Operator Lifecycle Manager installed it.
    pub(crate) fn is_of_olm(&self) -> bool {
        self.0["metadata"]["labels"]["olm.owner"].is_string()
    }

    /// Returns the way to update its manifests, as a phrase of a hint.
    pub(crate) fn update(&self) -> String {
        let labels = &self.0["metadata"]["labels"];
        let annotations = &self.0["metadata"]["annotations"];
        if labels["app.kubernetes.io/managed-by"] == "Helm" {
            let word = |key: &str| text(&annotations[format!("meta.helm.sh/{key}")]).to_owned();
            let (name, namespace) = (word("release-name"), word("release-namespace"));
            return format!("upgrade the Helm release {name} in the namespace {namespace}");
        }
        if self.is_of_olm() {
            return "let OLM install the operator's current version: see its InstallPlan"
                .to_owned();
        }
        "apply the same manifests again that installed the operator: your overlay, or those of its release".to_owned()
    }

    /// Returns the value of a flag or, without it, of a variable. A flag without a value is `true`.
    pub(crate) fn setting(&self, flag: &str, variable: &str) -> Setting {
        match self.flags(&[flag]).pop() {
            Some(value) => self.expanded(&value),
            None => self.variable(variable),
        }
    }

    /// Returns the values of a flag that grows, separated by commas; without it, of a variable.
    pub(crate) fn list(&self, flags: &[&str], variable: &str) -> Setting {
        let values = self.flags(flags);
        if values.is_empty() { self.variable(variable) } else { self.expanded(&values.join(",")) }
    }

    /// Returns the values of a flag, in order.
    fn flags(&self, names: &[&str]) -> Vec<String> {
        let mut arguments: Vec<&str> =
            self.values("command").chain(self.values("args")).map(text).collect();
        arguments.push("");
        let of_flag = |pair: &[&str]| {
            let flag = pair[0].strip_prefix("--")?;
            let (name, value) = flag.split_once('=').map_or((flag, None), |(n, v)| (n, Some(v)));
            let next = Some(pair[1]).filter(|next| !next.is_empty() && !next.starts_with('-'));
            names.contains(&name).then(|| value.or(next).unwrap_or("true").to_owned())
        };
        arguments.windows(2).filter_map(of_flag).collect()
    }

    fn variable(&self, name: &str) -> Setting {
        let all: Vec<&Value> = self.values("env").collect();
        let Some(entry) = all.iter().rev().find(|entry| entry["name"] == name) else {
            let is_elsewhere = self.values("envFrom").next().is_some();
            return if is_elsewhere { Setting::Elsewhere } else { Setting::Absent };
        };
        if entry["valueFrom"]["fieldRef"]["fieldPath"] == "metadata.namespace" {
            return Setting::Text(self.namespace().to_owned());
        }
        if entry["valueFrom"].is_object() {
            return Setting::Elsewhere;
        }
        self.expanded(text(&entry["value"]))
    }

    /// Replaces `$(NAME)` by the variable's value, as Kubernetes does. A value that has such a reference itself
    /// is `Elsewhere`.
    fn expanded(&self, value: &str) -> Setting {
        let mut expanded = value.to_owned();
        while let Some((before, rest)) = expanded.split_once("$(") {
            let Some((name, after)) = rest.split_once(')') else { break };
            let is_itself =
                |entry: &Value| entry["name"] == name && text(&entry["value"]).contains("$(");
            if self.values("env").any(is_itself) {
                return Setting::Elsewhere;
            }
            match self.variable(name) {
                Setting::Text(value) => expanded = format!("{before}{value}{after}"),
                Setting::Absent | Setting::Elsewhere => return Setting::Elsewhere,
            }
        }
        if expanded.is_empty() { Setting::Absent } else { Setting::Text(expanded) }
    }

    fn values(&self, field: &str) -> impl Iterator<Item = &Value> {
        let container = &self.0["spec"]["template"]["spec"]["containers"][0];
        container[field].as_array().into_iter().flatten()
    }
}

fn place(deployment: &Value) -> String {
    let meta = &deployment["metadata"];
    format!("{}/{}", text(&meta["namespace"]), text(&meta["name"]))
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

// Fixtures read better with values in place.
#[cfg(test)]
#[allow(clippy::needless_pass_by_value)]
pub(crate) mod tests {
    use serde_json::json;

    use super::*;

    pub(crate) fn with(container: Value) -> Installation {
        Installation(json!({
            "metadata": {"name": "o", "namespace": "ops"},
            "spec": {"template": {"spec": {"containers": [container]}}},
        }))
    }

    #[test]
    fn the_last_value_overrides_earlier_values_and_the_variable() {
        let both = with(
            json!({"command": ["x", "--workers=2"], "args": ["--workers", "3", "--leader-elect"],
            "env": [{"name": "WORKERS", "value": "4"}, {"name": "OTHER", "value": ""}]}),
        );
        let text = |value: &str| Setting::Text(value.to_owned());
        assert_eq!(both.setting("workers", "WORKERS"), text("3"));
        assert_eq!(both.setting("leader-elect", "LEADER_ELECT"), text("true"));
        assert_eq!(both.setting("other", "OTHER"), Setting::Absent);
        assert_eq!(both.setting("worker", "WORKERS"), text("4"));
    }

    #[test]
    fn a_rival_writes_the_same_objects_or_shares_the_lease() {
        const SAME: Option<Option<&str>> = Some(Some("serves the same objects"));
        let serving = |namespaces: &str, place: [&str; 2]| {
            let mut one = with(json!({"env": [{"name": "WATCH_NAMESPACE", "value": namespaces}]}));
            one.0["metadata"] = json!({"namespace": place[0], "name": place[1]});
            one
        };
        let set = |one: Installation, field: &str, value: Value| {
            let mut one = one;
            *one.0
                .pointer_mut("/spec/template/spec/containers/0")
                .unwrap()
                .get_mut(field)
                .unwrap() = value;
            one
        };
        let (own, there) = (serving("a, b", ["ops", "o"]), ["else", "o"]);
        for namespaces in ["c,b", "", ","] {
            assert_eq!(own.rivalry(&serving(namespaces, there)), SAME, "{namespaces}");
        }
        assert_eq!(serving("a,", ["ops", "o"]).rivalry(&serving("b,", there)), Some(None));
        assert_eq!(own.rivalry(&own), Some(None), "itself");
        let mut scaled = serving("", there);
        scaled.0["spec"]["replicas"] = json!(0);
        assert_eq!(own.rivalry(&scaled), Some(None), "scaled to 0");
        let hidden = json!([{"name": "WATCH_NAMESPACE", "valueFrom": {"configMapKeyRef": {}}}]);
        assert_eq!(own.rivalry(&set(serving("", there), "env", hidden)), None);
        let of = |kind: &str, place| {
            let flags = json!([{"name": "CONTROLLERS", "value": kind}, {"name": "LEADER_ELECT", "value": "true"}]);
            set(serving("", place), "env", flags)
        };
        assert_eq!(of("app", there).rivalry(&of("memcached", ["ops", "o"])), Some(None));
        assert_eq!(of("app", there).rivalry(&of("app", ["ops", "o"])), SAME);
        let beside = ["else", "p"];
        assert_eq!(of("app", there).rivalry(&of("app", beside)), Some(None), "one of them works");
        let idle = Some(Some("shares the Lease, but serves other objects"));
        assert_eq!(of("app", there).rivalry(&of("memcached", beside)), idle);
        let flags = json!([{"name": "CONTROLLERS", "value": "memcached"}, {"name": "LEADER_ELECT", "value": "true"},
            {"name": "LEADER_ELECT_RESOURCE_NAME", "value": "p"}]);
        let apart = set(serving("", beside), "env", flags);
        assert_eq!(of("app", there).rivalry(&apart), Some(None), "another Lease");
    }

    #[test]
    fn namespaces_come_from_all_flags_or_else_the_variable() {
        let text = |value: &str| Setting::Text(value.to_owned());
        let flags = json!(["--watch-namespace=a,b", "--namespace", "c"]);
        assert_eq!(with(json!({ "args": flags })).watched(), text("a,b,c"));
        let own = json!({"fieldRef": {"fieldPath": "metadata.namespace"}});
        let env = json!([{"name": "WATCH_NAMESPACE", "valueFrom": own}]);
        assert_eq!(with(json!({ "env": env })).watched(), text("ops"));
        let env = json!([{"name": "ME", "valueFrom": own}]);
        let referring = json!({"args": ["--watch-namespace=$(ME),b"], "env": env});
        assert_eq!(with(referring).watched(), text("ops,b"));
        assert_eq!(with(json!({})).watched(), Setting::Absent);
    }

    #[test]
    fn a_value_from_another_object_is_elsewhere() {
        let map = json!({"configMapKeyRef": {"name": "a", "key": "b"}});
        let env = json!([{"name": "A", "valueFrom": map}, {"name": "B", "value": "$(B)"}]);
        for flag in ["--x=$(A)", "--x=$(B)", "--x=$(C)"] {
            let referring = with(json!({"args": [flag], "env": env}));
            assert_eq!(referring.setting("x", "X"), Setting::Elsewhere, "{flag}");
        }
        let from = with(json!({"envFrom": [{"configMapRef": {"name": "settings"}}]}));
        assert_eq!(from.setting("x", "X"), Setting::Elsewhere);
    }

    #[test]
    fn the_update_hint_depends_on_the_installation_method() {
        let update = |meta: Value| Installation(json!({ "metadata": meta })).update();
        let helm =
            update(json!({"labels": {"app.kubernetes.io/managed-by": "Helm"}, "annotations":
            {"meta.helm.sh/release-name": "r", "meta.helm.sh/release-namespace": "ops"}}));
        assert_eq!(helm, "upgrade the Helm release r in the namespace ops");
        assert!(update(json!({"labels": {"olm.owner": "x.v1"}})).contains("OLM"));
        assert!(update(json!({})).contains("your overlay"));
    }
}
