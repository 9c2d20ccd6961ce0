//! `workload-operator status`: why custom resources are not ready.
//!
//! Guarantees
//! - For one object, the first line names the one cause that blocks, as close to the origin as possible: a pod's
//!   image before the rollout that waits for it.
//! - Without a name, it lists the objects that are not ready, with the reason and the message of their status.
//! - It changes nothing. The permissions of a viewer suffice, and so do the operator's own, which has no
//!   `get` on its kinds. The diagnosis leaves out objects that cannot be read.
//! - Exit codes: 0 ready; 1 not ready; 2 it could not be read, or does not exist.

use std::ffi::OsStr;
use std::process::ExitCode;
use std::time::Duration;

use clap::builder::{PossibleValue, StringValueParser, TypedValueParser};
use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::Error;
use crate::app::App;
use crate::cli::args::{ConnectionArgs, Output};
use crate::cli::one_line;
use crate::client::{self, Client, Scope};
use crate::generic_daemon::{self, GenericDaemon};
use crate::memcached::{FINALIZER, Memcached};
use crate::object::{Kind, ObjectKey, Resource};
use crate::workload::{
    Answer, Child, Context, Evidence, Health, PAUSED, PodState, Progress, Reason, Time, Workload,
    diagnostics,
};

/// Diagnoses, prints, and returns the exit code.
pub(crate) async fn run(args: &StatusArgs) -> Result<ExitCode, Error> {
    let object = match args.object() {
        Ok(object) => object,
        Err(why) => {
            eprintln!("workload-operator: {why}");
            return Ok(ExitCode::from(2));
        }
    };
    let (client, of_context) = args.connection.client_and_namespace().await?;
    let namespace = args.namespace.as_deref().unwrap_or(&of_context);
    match object {
        Object::One(kind, name) => {
            let key = ObjectKey::new(namespace, name);
            let Some(facts) = gather(&client, kind, &key).await? else {
                eprintln!("workload-operator: {} {key}: not found", kind.kind().kind);
                return Ok(ExitCode::from(2));
            };
            let report = Report::new(kind, &key, &facts);
            super::print(args.output, &json!(report), || report.as_text())?;
            Ok(ExitCode::from(u8::from(!report.diagnosis.ready)))
        }
        Object::All(kinds) => {
            let namespace = (!args.all_namespaces).then_some(namespace);
            let list = List::of(&client, &kinds, namespace).await?;
            let is_wide = args.output == Some(Output::Wide);
            super::print(args.output, &json!(list), || list.as_text(is_wide))?;
            Ok(list.exit_code())
        }
    }
}

/// The objects that the arguments name.
#[derive(Debug, PartialEq, Eq)]
enum Object<'a> {
    One(KindName, &'a str),
    All(Vec<KindName>),
}

/// Whose status.
#[derive(Debug, Clone, Args)]
pub struct StatusArgs {
    /// Kind of the custom resource; or KIND/NAME, as `kubectl get -o name` prints it. Without a name, the command lists
    /// what is not ready.
    #[arg(value_parser = KindWords)]
    pub kind: Option<String>,

    /// Name of the custom resource.
    pub name: Option<String>,

    /// Namespace of the custom resource. Defaults to the namespace of the context, or of the pod.
    #[arg(short, long, value_name = "NAME")]
    pub namespace: Option<String>,

    /// List what is not ready in all namespaces.
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    pub all_namespaces: bool,

    /// Output format.
    #[arg(short, long, value_name = "FORMAT")]
    pub output: Option<Output>,

    /// Which API server, as whom.
    #[command(flatten)]
    pub connection: ConnectionArgs,
}

impl StatusArgs {
    /// Returns the objects that the arguments name.
    fn object(&self) -> Result<Object<'_>, String> {
        let Some(kind) = self.kind.as_deref() else {
            return Ok(Object::All(KindName::value_variants().to_vec()));
        };
        let both = self.name.as_deref().map(|name| (kind, name)).or_else(|| kind.split_once('/'));
        let (kind, name) = both.map_or((kind, None), |(kind, name)| (kind, Some(name)));
        // `kubectl get -o name` adds the group.
        let word = kind.split('.').next().unwrap_or_default().to_lowercase();
        let kind = <KindName as ValueEnum>::from_str(&word, true)
            .map_err(|_| format!("'{kind}' is not a kind: use memcached, app or genericdaemon"))?;
        match name {
            Some(name) if self.all_namespaces => {
                Err(format!("{name} is in one namespace: use -n NAMESPACE instead of -A"))
            }
            Some(name) => Ok(Object::One(kind, name)),
            None => Ok(Object::All(vec![kind])),
        }
    }
}

/// Any text, of which shells complete the kinds.
#[derive(Clone)]
struct KindWords;

impl TypedValueParser for KindWords {
    type Value = String;

    fn parse_ref(
        &self,
        command: &clap::Command,
        argument: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<String, clap::Error> {
        StringValueParser::new().parse_ref(command, argument, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(KindName::value_variants().iter().filter_map(ValueEnum::to_possible_value)))
    }
}

/// A kind, as kubectl's users name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "lower")]
pub enum KindName {
    /// Memcached.
    #[value(alias = "memcacheds", alias = "mc")]
    Memcached,
    /// GenericDaemon.
    #[value(alias = "genericdaemons", alias = "gd")]
    GenericDaemon,
    /// App.
    #[value(alias = "apps")]
    App,
}

impl KindName {
    fn kind(self) -> Kind {
        match self {
            KindName::Memcached => Memcached::kind(),
            KindName::GenericDaemon => GenericDaemon::kind(),
            KindName::App => App::kind(),
        }
    }
}

/// A custom resource and its owned objects.
#[derive(Debug, Default)]
struct Facts {
    /// The custom resource, as JSON.
    object: Value,
    /// True if it owns its Deployment or DaemonSet.
    managed: bool,
    /// The current problem of its Deployment or DaemonSet.
    problem: Option<Diagnosis>,
    /// Reason why the owned object cannot be read, if it cannot.
    error: Option<String>,
    /// All of its pods that have not ended.
    pods: Vec<PodState>,
}

/// Reads the object and its owned objects; `None` if it does not exist.
async fn gather(
    client: &Client,
    name: KindName,
    key: &ObjectKey,
) -> Result<Option<Facts>, client::Error> {
    let scope = Scope {
        namespace: Some(key.namespace().clone()),
        fields: Some(format!("metadata.name={}", key.name())),
        ..Scope::default()
    };
    let all = client.read_all(&name.kind(), &scope).await?;
    let mut named = all.into_iter().filter(|one| one["metadata"]["name"] == **key.name());
    let Some(object) = named.next() else { return Ok(None) };
    let mut facts = Facts { object, ..Facts::default() };
    if name == KindName::GenericDaemon {
        let spec = serde_json::from_value::<generic_daemon::Spec>(facts.object["spec"].clone());
        let labels = spec.ok().and_then(|spec| spec.node_labels());
        facts.read_child(client, key, labels.as_deref(), Health::of_daemon_set).await?;
    } else {
        facts.read_child(client, key, None, Health::of_deployment).await?;
    }
    Ok(Some(facts))
}

impl Facts {
    /// Reads the owned object of this name, and evidence of why it is not ready. Leaves out objects that cannot be read.
    async fn read_child<S: Workload>(
        &mut self,
        client: &Client,
        key: &ObjectKey,
        labels: Option<&str>,
        health: fn(&Child<S>, &Context<'_>) -> Health,
    ) -> Result<(), client::Error>
    where
        Child<S>: Resource + for<'de> Deserialize<'de>,
    {
        let child = match client.read(&Child::<S>::kind(), key).await {
            Ok(child) => child,
            Err(error) if error.is_not_found() => return Ok(()),
            Err(error) if error.is_forbidden() => {
                self.error = Some(error.to_string());
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        let owners = child["metadata"]["ownerReferences"].as_array();
        let mut owners = owners.into_iter().flatten();
        if !owners.any(|owner| owner["uid"] == self.object["metadata"]["uid"]) {
            return Ok(());
        }
        if let Ok(child) = serde_json::from_value::<Child<S>>(child) {
            self.managed = true;
            self.pods = diagnostics::all_pods(client, &child).await;
            let evidence = diagnostics::evidence(client, &child, labels).await;
            self.problem = problem(&child, evidence, labels, health);
        }
        Ok(())
    }
}

/// Returns the current problem of an owned object. Unlike the operator, this does not wait for progress before it uses
/// the evidence.
fn problem<S: Workload>(
    child: &Child<S>,
    evidence: Evidence,
    label: Option<&str>,
    health: fn(&Child<S>, &Context<'_>) -> Health,
) -> Option<Diagnosis> {
    let refused = matches!(evidence.refusal, Answer::Found(Some(_)));
    let shown = refused || evidence.of_pods(None).is_some();
    let idle = if shown { Progress::IDLE_MAX } else { Duration::ZERO };
    let health = health(child, &Context { idle, label, evidence, ..Context::default() });
    health.trouble().is_some().then(|| Diagnosis::of(health.reason, health.message))
}

// === What is printed ===

/// The result for one object.
#[derive(Debug, Serialize)]
struct Report<'a> {
    kind: &'static str,
    namespace: &'a str,
    name: &'a str,
    #[serde(flatten)]
    diagnosis: Diagnosis,
    next: Option<&'static str>,
    conditions: Vec<&'a Value>,
    managed: bool,
    error: Option<&'a str>,
    pods: Vec<PodLine<'a>>,
}

/// A pod of the object.
#[derive(Debug, Serialize)]
struct PodLine<'a> {
    name: &'a str,
    node: Option<&'a str>,
    state: String,
}

// === impl Report ===

impl<'a> Report<'a> {
    fn new(kind: KindName, key: &'a ObjectKey, facts: &'a Facts) -> Report<'a> {
        let diagnosis = diagnose(facts);
        let pods = facts.pods.iter();
        Report {
            kind: kind.kind().kind,
            namespace: key.namespace(),
            name: key.name(),
            next: (!diagnosis.ready).then(|| diagnosis.next()),
            diagnosis,
            conditions: conditions(&facts.object).collect(),
            managed: facts.managed,
            error: facts.error.as_deref(),
            pods: pods
                .map(|pod| PodLine {
                    name: pod.name(),
                    node: pod.node(),
                    state: pod.state(Time::now()),
                })
                .collect(),
        }
    }

    fn as_text(&self) -> String {
        let Report { kind, namespace, name, diagnosis: Diagnosis { cause, message, .. }, .. } =
            self;
        let (cause, message) = (one_line(cause), one_line(message));
        let mut lines = vec![format!("{kind} {namespace}/{name}: {cause}: {message}")];
        lines.extend(self.next.map(|next| format!("  next: {next}")));
        for condition in &self.conditions {
            let word = |field: &str| one_line(condition[field].as_str().unwrap_or_default());
            let [kind, status, reason, message] = ["type", "status", "reason", "message"].map(word);
            let line = format!("  {kind:<12} {status:<8} {reason:<18} {message}");
            lines.push(line.trim_end().to_owned());
        }
        if !["Paused", "Deleting"].contains(&&*cause) && !self.managed {
            lines.push(match self.error {
                Some(why) => format!("  Cannot read its managed resources: {}", one_line(why)),
                None => "  It has no managed resources yet.".to_owned(),
            });
        }
        for PodLine { name, node, state } in &self.pods {
            let (name, node) = (one_line(name), one_line(node.unwrap_or("no node")));
            lines.push(format!("  pod {name}  {node}  {}", one_line(state)));
        }
        lines.join("\n") + "\n"
    }
}

/// The result without a name.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct List {
    /// The namespace; `None` for all.
    namespace: Option<String>,
    /// Number of objects.
    objects: usize,
    not_ready: Vec<Entry>,
    /// Reasons why kinds could not be listed.
    errors: Vec<String>,
}

/// An object that is not ready.
#[derive(Debug, Serialize)]
struct Entry {
    kind: &'static str,
    namespace: String,
    name: String,
    #[serde(flatten)]
    diagnosis: Diagnosis,
    next: &'static str,
}

// === impl List ===

impl List {
    /// Lists the objects that are not ready, in a namespace or in all. A kind without a CRD has no objects.
    async fn of(
        client: &Client,
        kinds: &[KindName],
        namespace: Option<&str>,
    ) -> Result<List, client::Error> {
        let scope = Scope { namespace: namespace.map(Into::into), ..Scope::default() };
        let namespace = namespace.map(str::to_owned);
        let mut list = List { namespace, objects: 0, not_ready: Vec::new(), errors: Vec::new() };
        for kind in kinds.iter().map(|name| name.kind()) {
            match client.read_all(&kind, &scope).await {
                Ok(objects) => {
                    list.objects += objects.len();
                    list.not_ready.extend(objects.into_iter().filter_map(|it| Entry::of(kind, it)));
                }
                Err(error) if error.is_not_served() => {}
                Err(error) if error.is_forbidden() => list.errors.push(error.to_string()),
                Err(error) => return Err(error),
            }
        }
        Ok(list)
    }

    fn exit_code(&self) -> ExitCode {
        match (self.not_ready.is_empty(), self.errors.is_empty()) {
            (false, _) => ExitCode::from(1),
            (true, false) => ExitCode::from(2),
            (true, true) => ExitCode::SUCCESS,
        }
    }

    fn as_text(&self, is_wide: bool) -> String {
        let mut lines = Vec::new();
        for Entry { kind, namespace, name, diagnosis, next } in &self.not_ready {
            let Diagnosis { cause, message, .. } = diagnosis;
            lines.push(one_line(&format!("{kind} {namespace}/{name}: {cause}: {message}")));
            lines.extend(is_wide.then(|| format!("  next: {next}")));
        }
        lines.extend(self.errors.iter().map(|why| one_line(why)));
        let (all, ready) = (self.objects, self.objects - self.not_ready.len());
        lines.push(match &self.namespace {
            Some(name) => {
                format!("Ready: {ready} of {all} in namespace {name} (-A: in all namespaces)")
            }
            None => format!("Ready: {ready} of {all} in all namespaces"),
        });
        lines.join("\n") + "\n"
    }
}

// === impl Entry ===

impl Entry {
    /// Returns the entry of an object, unless it is ready.
    fn of(kind: Kind, object: Value) -> Option<Entry> {
        let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
        let (namespace, name) = (text("namespace"), text("name"));
        let diagnosis = diagnose(&Facts { object, ..Facts::default() });
        let next = diagnosis.next();
        (!diagnosis.ready).then_some(Entry { kind: kind.kind, namespace, name, diagnosis, next })
    }
}

// === Cause ===
//
// The causes are the reasons of the conditions, and the health of the owned object is computed as for the status.

/// The cause, in a word, and a sentence of details.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Diagnosis {
    /// True if the object is Ready.
    ready: bool,
    /// A reason of docs/REASONS.md.
    cause: String,
    message: String,
}

// === impl Diagnosis ===

impl Diagnosis {
    fn new(cause: impl Into<String>, message: impl Into<String>) -> Diagnosis {
        Diagnosis { ready: false, cause: cause.into(), message: message.into() }
    }

    fn of(reason: Reason, message: impl Into<String>) -> Diagnosis {
        Diagnosis::new(reason.as_str(), message)
    }

    /// Returns a remedy for a user.
    fn next(&self) -> &'static str {
        if self.message.contains("violates PodSecurity") {
            return "Let the namespace enforce a lower level of Pod Security; an App also has `securityProfile: Restricted`.";
        }
        match Reason::named(&self.cause) {
            // Only the operator removes its own finalizer. Without an operator, it remains.
            Some(Reason::Deleting) if self.message.contains(FINALIZER) => {
                "The operator removes its finalizer while it runs (workload-operator check). If it is uninstalled, \
                 remove this one: kubectl edit memcached NAME -n NAMESPACE (docs/INSTALL.md, Uninstall, has a command \
                 for all)."
            }
            Some(Reason::Deleting) => "Check its finalizers, and the objects that it owns.",
            Some(Reason::PodsUnschedulable) => unschedulable(&self.message),
            Some(reason) => reason.next(),
            // Before any operator has seen it.
            None => {
                "Run `workload-operator check`: P001 shows whether the operator runs, and the namespaces that it serves."
            }
        }
    }
}

/// Returns the remedy for the scheduler's message.
fn unschedulable(message: &str) -> &'static str {
    let has = |words: &str| message.contains(words);
    if has("persistentvolumeclaim") {
        "Create the PersistentVolumeClaim, or correct its name: `kubectl get pvc`."
    } else if has("untolerated taint") && !has("Insufficient") {
        "Remove the taint (`kubectl taint node NODE KEY-`), or tolerate it in `spec.podTemplate.spec.tolerations`."
    } else if has("node affinity") || has("node selector") || has("topology spread") {
        "Correct the node selector or the spread constraints, or label nodes: `kubectl get nodes --show-labels`."
    } else {
        Reason::PodsUnschedulable.next()
    }
}

/// Returns the one cause that blocks.
fn diagnose(facts: &Facts) -> Diagnosis {
    intended(&facts.object)
        .or_else(|| refused(&facts.object))
        .or_else(|| facts.problem.clone())
        .unwrap_or_else(|| summary(&facts.object))
}

/// Returns a state that a user intended, or that no operator has seen yet.
fn intended(object: &Value) -> Option<Diagnosis> {
    let meta = &object["metadata"];
    if meta["deletionTimestamp"].is_string() {
        let held = strings(&meta["finalizers"]).join(", ");
        return Some(Diagnosis::of(
            Reason::Deleting,
            format!("Deletion is waiting for finalizers: {held}"),
        ));
    }
    if meta["annotations"][PAUSED].as_str().is_some_and(|value| value.eq_ignore_ascii_case("true"))
    {
        let message = "Paused by annotation: the operator updates only the status";
        return Some(Diagnosis::of(Reason::Paused, message));
    }
    let (seen, newest) =
        (object["status"]["observedGeneration"].as_i64(), meta["generation"].as_i64());
    (seen < newest).then(|| match seen {
        Some(-1) | None => Diagnosis::new("Pending", "No operator has processed this object yet"),
        Some(_) => Diagnosis::new("Pending", "No operator has processed the latest spec yet"),
    })
}

/// Returns the write that the operator could not carry out, according to its condition.
fn refused(object: &Value) -> Option<Diagnosis> {
    let ready = condition(object, "Ready")?;
    let reason = Reason::named(ready["reason"].as_str()?)?;
    let is_of_a_write = matches!(
        reason,
        Reason::ErrResourceExists
            | Reason::QuotaExceeded
            | Reason::Forbidden
            | Reason::Contested
            | Reason::ImageMissing
            | Reason::TemplateNotAllowed
            | Reason::Invalid
            | Reason::FieldImmutable
            | Reason::ApiError
            | Reason::AwaitingDeletion
    );
    is_of_a_write.then(|| Diagnosis::of(reason, ready["message"].as_str().unwrap_or_default()))
}

/// Returns the operator's condition, for use if nothing closer to the origin is known.
fn summary(object: &Value) -> Diagnosis {
    let Some(ready) = condition(object, "Ready") else {
        return Diagnosis::new("Pending", "No operator has processed this object yet");
    };
    let word = |field: &str| ready[field].as_str().unwrap_or_default();
    let ready = word("status") == "True";
    Diagnosis { ready, ..Diagnosis::new(word("reason"), word("message")) }
}

/// Returns the conditions of any object, unchanged.
fn conditions(object: &Value) -> impl Iterator<Item = &Value> {
    object["status"]["conditions"].as_array().into_iter().flatten()
}

fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    conditions(object).find(|condition| condition["type"] == kind)
}

fn strings(list: &Value) -> Vec<&str> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

#[cfg(test)]
mod tests;
