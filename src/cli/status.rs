//! `workload-operator status KIND NAME`: the cause that keeps a custom resource from being ready.
//!
//! Guarantees
//! - The first line names the one cause that blocks, as close to the origin as possible: a pod's
//!   image before the rollout that waits for it.
//! - It changes nothing. The permissions of a viewer suffice, and so do the operator's own, which has no
//!   `get` on its kinds. The diagnosis leaves out objects that cannot be read.
//! - Exit codes: 0 ready; 1 not ready; 2 it could not be read, or does not exist.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::io::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use clap::builder::{PossibleValue, StringValueParser, TypedValueParser};
use clap::{Args, ValueEnum};
use serde::Deserialize;
use serde_json::{Value, json};

use super::Error;
use crate::app::App;
use crate::cli::args::ConnectionArgs;
use crate::cli::one_line;
use crate::client::{self, Client, Scope};
use crate::generic_daemon::{self, GenericDaemon};
use crate::memcached::{FINALIZER, Memcached};
use crate::object::{Kind, ObjectKey, Resource};
use crate::workload::{
    Answer, Child, Context, DaemonSet, Deployment, Evidence, Health, PAUSED, PodState, Progress,
    Reason, Time, Workload, diagnostics,
};

/// Diagnoses, prints, and returns the exit code.
pub(crate) async fn run(args: &StatusArgs) -> Result<ExitCode, Error> {
    let named = args.namespace.as_deref();
    let (kind, name) = match named_object(&args.kind, args.name.as_deref()) {
        Ok(object) => object,
        Err(why) => {
            eprintln!("workload-operator: {why}");
            return Ok(ExitCode::from(2));
        }
    };
    let (key, facts) = match args.connection.client_and_namespace().await {
        Ok((client, of_context)) => {
            let key = ObjectKey::new(named.unwrap_or(&of_context), name);
            let facts = gather(&client, kind, &key).await;
            (key, facts)
        }
        Err(error) => (ObjectKey::new(named.unwrap_or_default(), name), Err(error)),
    };
    let facts = facts.map_err(|error| one_line(&error.to_string()));
    let facts = match facts.and_then(|facts| facts.ok_or_else(|| "not found".to_owned())) {
        Ok(facts) => facts,
        Err(why) => {
            eprintln!("workload-operator: {} {key}: {why}", kind.kind().kind);
            return Ok(ExitCode::from(2));
        }
    };
    let diagnosis = diagnose(&facts);
    let text = match args.output {
        Output::Text => as_text(kind, &key, &facts, &diagnosis),
        Output::Json => as_json(kind, &key, &facts, &diagnosis),
    };
    std::io::stdout().write_all(text.as_bytes()).map_err(Error::Print)?;
    Ok(ExitCode::from(u8::from(!diagnosis.is_fine)))
}

/// Returns the kind and the name in these arguments.
fn named_object<'a>(kind: &'a str, name: Option<&'a str>) -> Result<(KindName, &'a str), String> {
    let both = name.map(|name| (kind, name)).or_else(|| kind.split_once('/'));
    let (kind, name) = both.ok_or_else(|| format!("'{kind}' must be KIND NAME or KIND/NAME"))?;
    // `kubectl get -o name` adds the group.
    let word = kind.split('.').next().unwrap_or_default().to_lowercase();
    let kind = <KindName as ValueEnum>::from_str(&word, true)
        .map_err(|_| format!("'{kind}' is not a kind: use memcached, app or genericdaemon"))?;
    Ok((kind, name))
}

/// Whose status.
#[derive(Debug, Clone, Args)]
pub struct StatusArgs {
    /// Kind of the custom resource; or KIND/NAME, as `kubectl get -o name` prints it.
    #[arg(value_parser = KindWords)]
    pub kind: String,

    /// Name of the custom resource.
    pub name: Option<String>,

    /// Namespace of the custom resource. Defaults to the namespace of the context, or of the pod.
    #[arg(short, long, env = "STATUS_NAMESPACE", value_name = "NAME")]
    pub namespace: Option<String>,

    /// Output format.
    #[arg(short, long, env = "STATUS_OUTPUT", value_name = "FORMAT", default_value = "text")]
    pub output: Output,

    /// Which API server, as whom.
    #[command(flatten)]
    pub connection: ConnectionArgs,
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

/// Form of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "lower")]
pub enum Output {
    /// Human-readable text.
    Text,
    /// One JSON object.
    Json,
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
    /// The Deployment or DaemonSet, if the object owns it.
    child: Option<Workloads>,
    /// Reason why the owned object cannot be read, if it cannot.
    unreadable: Option<String>,
    /// All of its pods that have not ended.
    pods: Vec<PodState>,
    /// Evidence of the child's pods, Events and nodes.
    evidence: Evidence,
}

/// A workload of either type.
#[derive(Debug)]
enum Workloads {
    Deployment(Deployment),
    DaemonSet(DaemonSet),
}

impl Workloads {
    /// Its health, as the operator computes it.
    fn health(&self, context: &Context<'_>) -> Health {
        match self {
            Workloads::Deployment(child) => Health::of_deployment(child, context),
            Workloads::DaemonSet(child) => Health::of_daemon_set(child, context),
        }
    }
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
        if let Some(child) = child::<DaemonSet>(client, key, &mut facts).await? {
            let spec = serde_json::from_value::<generic_daemon::Spec>(facts.object["spec"].clone());
            let labels = spec.ok().and_then(|spec| spec.node_labels());
            facts.look_at(client, &child, labels.as_deref()).await;
            facts.child = Some(Workloads::DaemonSet(child));
        }
    } else if let Some(child) = child::<Deployment>(client, key, &mut facts).await? {
        facts.look_at(client, &child, None).await;
        facts.child = Some(Workloads::Deployment(child));
    }
    Ok(Some(facts))
}

impl Facts {
    /// Lists evidence of why the owned object is not ready. Leaves out objects that cannot be read.
    async fn look_at<S: Workload>(
        &mut self,
        client: &Client,
        child: &Child<S>,
        labels: Option<&str>,
    ) {
        self.pods = diagnostics::all_pods(client, child).await;
        self.evidence = diagnostics::evidence(client, child, labels).await;
    }
}

/// Returns the owned object of this name, if it can be read and `object` owns it.
async fn child<V: Resource + for<'de> Deserialize<'de>>(
    client: &Client,
    key: &ObjectKey,
    facts: &mut Facts,
) -> Result<Option<V>, client::Error> {
    let child = match client.read(&V::kind(), key).await {
        Ok(child) => child,
        Err(error) if error.is_not_found() => return Ok(None),
        Err(error) if error.is_forbidden() => {
            facts.unreadable = Some(error.to_string());
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    let owners = child["metadata"]["ownerReferences"].as_array();
    let mut owners = owners.into_iter().flatten();
    let is_owned = owners.any(|owner| owner["uid"] == facts.object["metadata"]["uid"]);
    Ok(serde_json::from_value(child).ok().filter(|_| is_owned))
}

fn as_text(kind: KindName, key: &ObjectKey, facts: &Facts, diagnosis: &Diagnosis) -> String {
    let Diagnosis { cause, detail, is_fine } = diagnosis;
    let kind = kind.kind().kind;
    let mut text = format!("{kind} {key}: {}: {}\n", one_line(cause), one_line(detail));
    if !is_fine {
        writeln!(text, "  next: {}", diagnosis.next()).expect("a String takes all that is written");
    }
    for condition in conditions(&facts.object) {
        let word = |field: &str| one_line(condition[field].as_str().unwrap_or_default());
        let line = format!(
            "  {:<12} {:<8} {:<18} {}",
            word("type"),
            word("status"),
            word("reason"),
            word("message")
        );
        text.push_str(line.trim_end());
        text.push('\n');
    }
    if !["Paused", "Deleting"].contains(&&**cause) && facts.child.is_none() {
        match &facts.unreadable {
            Some(why) => writeln!(text, "  Cannot read its managed resources: {}", one_line(why))
                .expect("a String takes all that is written"),
            None => text.push_str("  It has no managed resources yet.\n"),
        }
    }
    for pod in &facts.pods {
        let (name, node) = (one_line(pod.name()), one_line(pod.node().unwrap_or("no node")));
        let line = format!("  pod {name}  {node}  {}\n", one_line(&pod.state(Time::now())));
        text.push_str(&line);
    }
    text
}

fn as_json(kind: KindName, key: &ObjectKey, facts: &Facts, diagnosis: &Diagnosis) -> String {
    let Diagnosis { cause, detail, is_fine } = diagnosis;
    let next = (!is_fine).then(|| diagnosis.next());
    let conditions: Vec<&Value> = conditions(&facts.object).collect();
    let pods = facts.pods.iter();
    let pods: Vec<Value> = pods
        .map(|pod| json!({"name": pod.name(), "node": pod.node(), "state": pod.state(Time::now())}))
        .collect();
    let answer = json!({
        "kind": kind.kind().kind, "namespace": &**key.namespace(), "name": &**key.name(),
        "fine": is_fine, "cause": cause, "detail": detail, "next": next,
        "conditions": conditions, "children": facts.child.is_some(),
        "unreadable": facts.unreadable, "pods": pods,
    });
    format!("{answer:#}\n")
}

// === Cause ===
//
// The causes are the reasons of the conditions, and the health of the owned object is computed as for the
// status. Unlike the operator, the command does not wait for progress before it lists evidence.

/// The cause, in a word, and a sentence of details.
#[derive(Debug, PartialEq, Eq)]
struct Diagnosis {
    /// A reason of docs/REASONS.md.
    cause: String,
    detail: String,
    /// True if the object is in its desired state, and has pods.
    is_fine: bool,
}

// === impl Diagnosis ===

impl Diagnosis {
    fn new(cause: impl Into<String>, detail: impl Into<String>) -> Diagnosis {
        Diagnosis { cause: cause.into(), detail: detail.into(), is_fine: false }
    }

    fn of(reason: Reason, detail: impl Into<String>) -> Diagnosis {
        Diagnosis::new(reason.as_str(), detail)
    }

    /// Returns a remedy for a user.
    fn next(&self) -> &'static str {
        if self.detail.contains("violates PodSecurity") {
            return "Let the namespace enforce a lower level of Pod Security; an App also has `securityProfile: Restricted`.";
        }
        match Reason::named(&self.cause) {
            // Only the operator removes its own finalizer. Without an operator, it remains.
            Some(Reason::Deleting) if self.detail.contains(FINALIZER) => {
                "The operator removes its finalizer while it runs (workload-operator check). If it is uninstalled, \
                 remove this one: kubectl edit memcached NAME -n NAMESPACE (docs/INSTALL.md, Uninstall, has a command \
                 for all)."
            }
            Some(Reason::Deleting) => "Check its finalizers, and the objects that it owns.",
            Some(Reason::PodsUnschedulable) => unschedulable(&self.detail),
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
        .or_else(|| of_child(facts))
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
        let detail = "Paused by annotation: the operator updates only the status";
        return Some(Diagnosis::of(Reason::Paused, detail));
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

/// Returns the current problem of the owned object. If there is none, the operator's condition reports the
/// progress.
fn of_child(facts: &Facts) -> Option<Diagnosis> {
    let evidence = facts.evidence.clone();
    let refused = matches!(evidence.refusal, Answer::Found(Some(_)));
    let shown = refused || evidence.of_pods(None).is_some();
    let spec = generic_daemon::Spec::deserialize(&facts.object["spec"]).ok();
    let label = spec.and_then(|spec| spec.node_labels());
    let context = Context {
        idle: if shown { Progress::IDLE_MAX } else { Duration::ZERO },
        label: label.as_deref(),
        evidence,
        ..Context::default()
    };
    let health = facts.child.as_ref()?.health(&context);
    health.trouble().is_some().then(|| Diagnosis::of(health.reason, health.message))
}

/// Returns the operator's condition, for use if nothing closer to the origin is known.
fn summary(object: &Value) -> Diagnosis {
    let Some(ready) = condition(object, "Ready") else {
        return Diagnosis::new("Pending", "No operator has processed this object yet");
    };
    let word = |field: &str| ready[field].as_str().unwrap_or_default();
    let is_fine = word("status") == "True";
    Diagnosis { is_fine, ..Diagnosis::new(word("reason"), word("message")) }
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
