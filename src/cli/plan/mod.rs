//! `workload-operator plan`: what this version would change in the cluster.
//!
//! Guarantees
//! - Nothing is stored: the controllers of `run` reconcile each custom resource once, and every write is
//!   a dry run, which the API server validates and admits like any other.
//! - The operator that runs meanwhile is not disturbed: no Lease is taken, no Event is sent.
//! - Each change is shown with the fields that differ, and each workload whose pods would restart.
//!   Statuses are counted, not shown: they follow from the rest.
//! - A custom resource that could not be reconciled is named; then the plan is incomplete and failed.
//! - Exit codes, as of `terraform plan -detailed-exitcode`: 0 nothing would change; 1 the plan is incomplete;
//!   2 something would change.

mod change;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::Write as _;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, ValueEnum};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::time::timeout;

use super::args::{ConnectionArgs, ControllerName, WorkloadArgs, all_if_empty};
use super::error::Error;
use super::{IDENTITY, one_line};
use crate::app::App;
use crate::client::{self, Client, DryRun, DryWrite, Options, Scope};
use crate::controller::{Class, Observer, Outcome, Program};
use crate::generic_daemon::GenericDaemon;
use crate::memcached::Memcached;
use crate::object::{Kind, ObjectKey, Resource};
use crate::shutdown::Shutdown;
use change::{Change, Effect};

/// Scope of the plan, and form of the output.
#[derive(Debug, Clone, Args)]
pub struct PlanArgs {
    /// Which API server, as whom. The account needs the rights of the operator: a dry run is
    /// authorized like the write.
    #[command(flatten)]
    pub connection: ConnectionArgs,

    /// What is reconciled.
    #[command(flatten)]
    pub workloads: WorkloadArgs,

    /// The longest the plan may take.
    #[arg(long, env = "PLAN_TIMEOUT", value_name = "TIME", default_value = "5m", value_parser = super::args::duration)]
    pub timeout: Duration,

    /// text; json, for machines.
    #[arg(short, long, env = "PLAN_OUTPUT", value_name = "FORMAT", default_value = "text")]
    pub output: Output,
}

/// Form of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "lower")]
pub enum Output {
    /// For people.
    Text,
    /// One JSON object.
    Json,
}

/// Name of a controller and key of one of its objects.
type Reconciled = (&'static str, ObjectKey);

/// Collects what the controllers would write, and which objects they have reconciled.
#[derive(Default)]
struct Recorder {
    writes: Mutex<Vec<DryWrite>>,
    reconciled: Mutex<BTreeSet<Reconciled>>,
    progress: Notify,
}

/// The result.
#[derive(Debug, Default)]
struct Plan {
    /// What would change, by the name of the object.
    changes: BTreeMap<String, Change>,
    /// Statuses that would change.
    statuses: usize,
    /// Objects that were reconciled.
    reconciled: usize,
    /// Why the plan is incomplete.
    problems: Vec<String>,
}

/// Plans, prints, and returns the exit code. `program` makes the controllers of `run` with a client of
/// the given options.
pub(crate) async fn run<P>(
    mut args: PlanArgs,
    program: impl FnOnce(WorkloadArgs, Client, Options, Arc<dyn Observer>) -> P,
) -> Result<ExitCode, Error>
where
    P: Future<Output = Result<Program, Error>>,
{
    all_if_empty(&mut args.workloads.namespaces);
    let client = args.connection.client().await?;
    let mut plan = Plan::default();
    let wanted = wanted(&client, &args.workloads, &mut plan.problems).await?;
    let recorder = Arc::new(Recorder::default());
    let options = Options { dry_run: Some(recorder.clone()), ..Options::new(IDENTITY) };
    let program = program(args.workloads.clone(), client, options, recorder.clone()).await?;
    let shutdown = Shutdown::from_signals().map_err(Error::Signals)?;
    tokio::select! {
        ended = program.run(shutdown.clone()) => ended?,
        done = timeout(args.timeout, recorder.have_been_reconciled(&wanted)) => {
            if done.is_err() {
                plan.problems.extend(recorder.missing(&wanted, args.timeout));
            }
        }
    }
    if shutdown.is_requested() {
        plan.problems.push("interrupted before the plan was complete".to_owned());
    }
    plan.reconciled = wanted.intersection(&recorder.reconciled.lock()).count();
    plan.add(&recorder.writes.lock());
    let text = match args.output {
        Output::Text => plan.as_text(),
        Output::Json => format!("{:#}\n", plan.as_json()),
    };
    std::io::stdout().write_all(text.as_bytes()).map_err(Error::Print)?;
    Ok(plan.exit_code())
}

/// The custom resources to reconcile: those that are not being deleted.
async fn wanted(
    client: &Client,
    args: &WorkloadArgs,
    problems: &mut Vec<String>,
) -> Result<BTreeSet<Reconciled>, Error> {
    let mut wanted = BTreeSet::new();
    let scopes: Vec<Option<_>> = match &args.namespaces[..] {
        [] => vec![None],
        some => some.iter().map(|name| Some(name.as_str().into())).collect(),
    };
    for (name, controller, kind) in [
        (ControllerName::Memcached, "memcached", Memcached::KIND),
        (ControllerName::GenericDaemon, "genericdaemon", GenericDaemon::KIND),
        (ControllerName::App, "app", App::KIND),
    ] {
        if !args.controllers.contains(&name) {
            continue;
        }
        for namespace in &scopes {
            let scope = Scope { namespace: namespace.clone(), ..Scope::default() };
            match client.read_all(&kind, &scope).await {
                Ok(objects) => {
                    let staying = objects.iter().map(|object| &object["metadata"]);
                    let staying = staying.filter(|meta| meta["deletionTimestamp"].is_null());
                    wanted.extend(staying.map(|meta| (controller, key(meta))));
                }
                // Without the CRD, there is nothing to change.
                Err(error) if error.is_not_served() => {}
                Err(error) if error.is_forbidden() => problems.push(cannot_list(&kind, &error)),
                Err(error) => return Err(error.into()),
            }
        }
    }
    Ok(wanted)
}

fn cannot_list(kind: &Kind, error: &client::Error) -> String {
    format!("{} are left out: {error}", kind.plural)
}

fn key(meta: &Value) -> ObjectKey {
    let text = |field: &str| meta[field].as_str().unwrap_or_default();
    ObjectKey::new(text("namespace"), text("name"))
}

// === impl Recorder ===

impl DryRun for Recorder {
    fn answered(&self, write: DryWrite) {
        self.writes.lock().push(write);
    }
}

impl Observer for Recorder {
    fn finished(&self, controller: &'static str, key: &ObjectKey, outcome: Outcome, _: Duration) {
        // After a conflict it runs again soon: the operator that runs was faster.
        if !matches!(outcome, Outcome::Failed(Class::Conflict) | Outcome::Dropped) {
            self.reconciled.lock().insert((controller, key.clone()));
            self.progress.notify_one();
        }
    }
}

impl Recorder {
    async fn have_been_reconciled(&self, wanted: &BTreeSet<Reconciled>) {
        while !wanted.is_subset(&self.reconciled.lock()) {
            self.progress.notified().await;
        }
    }

    /// What has not been reconciled in time, by controller.
    fn missing(&self, wanted: &BTreeSet<Reconciled>, within: Duration) -> Vec<String> {
        let reconciled = self.reconciled.lock();
        let mut missing: BTreeMap<&str, Vec<&ObjectKey>> = BTreeMap::new();
        for (controller, key) in wanted.difference(&reconciled) {
            missing.entry(controller).or_default().push(key);
        }
        let sentence = |(controller, keys): (&str, Vec<&ObjectKey>)| {
            format!(
                "{} of {controller} were not reconciled within {within:?}, among them {}: \
                 `workload-operator check` shows whether this account has the rights of the operator; \
                 --timeout gives them longer",
                keys.len(),
                keys[0]
            )
        };
        missing.into_iter().map(sentence).collect()
    }
}

// === impl Plan ===

impl Plan {
    /// Adds the writes. Of several to the same object, such as one that met a conflict and the next, the
    /// last counts.
    fn add(&mut self, writes: &[DryWrite]) {
        let target = |write: &DryWrite| (write.path.clone(), write.subresource.clone());
        let writes = writes.iter().filter(|write| write.kind.kind != "Event");
        let last: BTreeMap<_, _> = writes.map(|write| (target(write), write)).collect();
        for write in last.into_values() {
            match Change::of(write) {
                Ok(None) => {}
                Ok(Some(_)) if !write.subresource.is_empty() => self.statuses += 1,
                Ok(Some(change)) => drop(self.changes.insert(change.name.clone(), change)),
                Err(problem) => self.problems.push(problem),
            }
        }
    }

    fn count(&self, effect: Effect) -> usize {
        self.changes.values().filter(|change| change.effect == effect).count()
    }

    fn restarts(&self) -> usize {
        self.changes.values().filter(|change| change.restarts).count()
    }

    fn exit_code(&self) -> ExitCode {
        match (self.problems.is_empty(), self.changes.is_empty()) {
            (false, _) => ExitCode::FAILURE,
            (true, true) => ExitCode::SUCCESS,
            (true, false) => ExitCode::from(2),
        }
    }

    fn as_text(&self) -> String {
        let mut text = String::new();
        for change in self.changes.values() {
            text.push_str(&change.as_text());
        }
        for problem in &self.problems {
            writeln!(text, "! {}", one_line(problem)).expect("a String takes all that is written");
        }
        writeln!(
            text,
            "Plan: {} reconciled; {} to create, {} to change, {} to delete; {} workloads would \
             restart their pods; {} statuses to update; {} problems.",
            self.reconciled,
            self.count(Effect::Create),
            self.count(Effect::Change),
            self.count(Effect::Delete),
            self.restarts(),
            self.statuses,
            self.problems.len()
        )
        .expect("a String takes all that is written");
        text
    }

    fn as_json(&self) -> Value {
        json!({
            "changes": self.changes.values().map(Change::as_json).collect::<Vec<_>>(),
            "problems": self.problems,
            "summary": {
                "reconciled": self.reconciled,
                "create": self.count(Effect::Create),
                "change": self.count(Effect::Change),
                "delete": self.count(Effect::Delete),
                "restart": self.restarts(),
                "statuses": self.statuses,
            },
        })
    }
}
