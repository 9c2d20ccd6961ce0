//! `workload-operator plan`: the changes that this version would make in the cluster.
//!
//! Guarantees
//! - Nothing is stored: the controllers of `run` reconcile each custom resource once, and every write is
//!   a dry run, which the API server validates and admits like any other.
//! - It does not disturb a running operator: it acquires no Lease and stores no Event.
//! - Each change is shown with the fields that differ, and each workload whose pods would restart.
//!   Statuses are counted, not shown: they follow from the rest.
//! - Changes that the operator makes to Memcacheds one after another are planned at once.
//! - If a part cannot be planned, the plan names it, is incomplete, and fails.
//! - Objects that are being deleted are left out.
//! - Exit codes, as of `kubectl diff`: 0 nothing would change; 1 something would change; 2 the plan is incomplete, or the
//!   arguments are wrong.

mod change;
mod recorder;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, ValueEnum as _};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::Error;
use super::args::{ConnectionArgs, ControllerName, Output, WorkloadArgs, all_if_empty};
use super::installation::{Found, Installation, InstallationArgs, Setting};
use super::{IDENTITY, one_line};
use crate::app::App;
use crate::client::{self, Client, InvalidObject, Options, Page, Scope};
use crate::controller::{Finished, Program};
use crate::generic_daemon::GenericDaemon;
use crate::memcached::Memcached;
use crate::object::Resource;
use crate::shutdown::Shutdown;
use crate::workload::labels::inheritable;
use change::{Change, Effect};
use recorder::{Reconciled, Recorder};

/// The time without progress after which the objects are listed again.
const AGAIN: Duration = Duration::from_secs(10);

/// Scope of the plan, and form of the output.
#[derive(Debug, Clone, Args)]
pub struct PlanArgs {
    /// The API server and the account. The account needs the permissions of the operator, because a
    /// dry run is authorized like the write.
    #[command(flatten)]
    pub connection: ConnectionArgs,

    /// Kinds and namespaces that are reconciled, and settings of the kinds. Without a flag, the setting of the
    /// installed operator.
    #[command(flatten)]
    pub workloads: WorkloadArgs,

    /// Where the operator is installed.
    #[command(flatten)]
    pub installation: InstallationArgs,

    /// Maximum duration of the plan.
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = super::args::duration)]
    pub timeout: Duration,

    /// Output format.
    #[arg(short, long, value_name = "FORMAT")]
    pub output: Option<Output>,
}

/// The result.
#[derive(Debug, Default)]
struct Plan {
    /// Planned changes, by the name of the object.
    changes: BTreeMap<String, Change>,
    /// Statuses that would change.
    statuses: usize,
    /// Objects that were reconciled.
    reconciled: usize,
    /// Reasons why the plan is incomplete.
    problems: Vec<String>,
}

/// Plans, prints, and returns the exit code. `program` creates the controllers of `run` with a client of the
/// given options.
pub(crate) async fn run<P>(
    mut args: PlanArgs,
    program: impl FnOnce(WorkloadArgs, Client, Options, Finished) -> P,
) -> Result<ExitCode, Error>
where
    P: Future<Output = Result<Program, Error>>,
{
    all_if_empty(&mut args.workloads.namespaces);
    let client = args.connection.client().await?;
    match args.installation.find(&client).await {
        Ok(Found::One(installed)) => args.workloads.take(&installed),
        Ok(Found::None(why)) => eprintln!("workload-operator: no settings are taken over: {why}"),
        Ok(Found::Several(why)) => eprintln!("workload-operator: no settings are taken from {why}"),
        Err(error) => {
            let why = one_line(&error.to_string());
            eprintln!(
                "workload-operator: the settings of the installed operator cannot be read: {why}"
            );
        }
    }
    let deadline = Instant::now() + args.timeout;
    let recorder = Arc::new(Recorder::default());
    let (wanted, left_out) = wanted(&client, &args.workloads, deadline).await?;
    recorder.wants(wanted, left_out);
    let options = Options { dry_run: Some(recorder.clone()), ..Options::new(IDENTITY) };
    let seen = recorder.clone();
    let finished: Finished = Arc::new(move |name, key, outcome| seen.finished(name, key, outcome));
    let program = program(args.workloads.clone(), client.clone(), options, finished).await?;
    let shutdown = Shutdown::from_signals().map_err(Error::Signals)?;
    let planned = timeout_at(deadline, reconciled(&client, &args.workloads, deadline, &recorder));
    let problems = tokio::select! {
        ended = program.run(shutdown) => {
            ended?;
            vec!["interrupted before the plan was complete".to_owned()]
        }
        planned = planned => match planned {
            Ok(()) => Vec::new(),
            Err(_) => recorder.missing(args.timeout),
        },
    };
    let plan = recorder.plan(problems.into_iter());
    super::print(args.output, &plan.as_json(), || plan.as_text())?;
    Ok(plan.exit_code())
}

/// Waits until all wanted objects are reconciled. An object that is deleted meanwhile is no longer wanted.
async fn reconciled(client: &Client, args: &WorkloadArgs, deadline: Instant, recorder: &Recorder) {
    while !recorder.is_complete() {
        if timeout(AGAIN, recorder.progressed()).await.is_err() {
            match wanted(client, args, deadline).await {
                Ok((wanted, left_out)) => recorder.wants(wanted, left_out),
                Err(error) => tracing::debug!(%error, "Listing again later"),
            }
        }
    }
}

/// The objects to reconcile, and why others are left out.
type Wanted = (BTreeSet<Reconciled>, BTreeSet<String>);

/// Returns the custom resources to reconcile: those that are not being deleted.
async fn wanted(client: &Client, args: &WorkloadArgs, deadline: Instant) -> Result<Wanted, Error> {
    let mut found = Wanted::default();
    let scopes: Vec<Option<_>> = match &args.namespaces[..] {
        [] => vec![None],
        some => some.iter().map(|name| Some(name.as_str().into())).collect(),
    };
    for namespace in scopes {
        let scope = Scope { namespace, ..Scope::default() };
        for name in args.controllers() {
            match name {
                ControllerName::Memcached => {
                    add::<Memcached>(client, &scope, ("memcached", deadline), &mut found).await?;
                }
                ControllerName::GenericDaemon => {
                    add::<GenericDaemon>(client, &scope, ("genericdaemon", deadline), &mut found)
                        .await?;
                }
                ControllerName::App => {
                    add::<App>(client, &scope, ("app", deadline), &mut found).await?;
                }
            }
        }
    }
    Ok(found)
}

/// Adds the objects of one kind.
async fn add<V: Resource>(
    client: &Client,
    scope: &Scope,
    (controller, deadline): (&'static str, Instant),
    (wanted, left_out): &mut Wanted,
) -> Result<(), Error> {
    let mut each = |object: Result<V, InvalidObject>| match object {
        Ok(object) if object.meta().is_terminating => {}
        Ok(object) => drop(wanted.insert((controller, object.key().clone()))),
        Err(InvalidObject { key, why, .. }) => {
            left_out.insert(format!("{controller} {key} is left out: {why}"));
        }
    };
    let listed = loop {
        let listed = client.list::<V>(scope, &Page::default(), &mut each).await;
        // An API server that is busy, or has not read the CRD yet, reports when to retry.
        match listed.as_ref().err().and_then(client::Error::retry_after) {
            Some(wait) if Instant::now() + wait < deadline => sleep(wait).await,
            _ => break listed,
        }
    };
    match listed {
        // Without the CRD, there is nothing to change.
        Err(error) if error.is_not_served() => {}
        Err(error) if error.is_forbidden() => {
            left_out.insert(format!("{} are left out: {error}", V::kind().plural));
        }
        listed => drop(listed?),
    }
    Ok(())
}

// === impl WorkloadArgs ===

impl WorkloadArgs {
    /// Copies each setting that no flag and no variable sets from the installed operator. The report goes to
    /// stderr, because stdout is for the plan.
    fn take(&mut self, installed: &Installation) {
        let mut taken = Vec::new();
        let mut text_of = |flag: &str, setting: Setting| match setting {
            Setting::Text(text) => {
                taken.push(format!("--{flag}={text}"));
                Some(text)
            }
            Setting::Elsewhere => {
                eprintln!("workload-operator: {} does not show --{flag}", installed.place());
                None
            }
            Setting::Absent => None,
        };
        let mut list = |flag: &str, setting: Setting| -> Vec<String> {
            let text = text_of(flag, setting).unwrap_or_default();
            let names = text.split(',').map(str::trim).filter(|name| !name.is_empty());
            names.map(str::to_owned).collect()
        };
        if self.namespaces.is_empty() {
            self.namespaces = list("watch-namespace", installed.watched());
        }
        if self.controllers.is_empty() {
            let names = list("controllers", installed.list(&["controllers"], "CONTROLLERS"));
            let known = names.iter().filter_map(|name| ControllerName::from_str(name, false).ok());
            self.controllers = known.collect();
        }
        if self.inherited_labels.is_empty() {
            let labels = installed.list(&["inherited-labels"], "INHERITED_LABELS");
            let entries = list("inherited-labels", labels).into_iter();
            self.inherited_labels = entries.filter(|entry| inheritable(entry).is_ok()).collect();
        }
        for (image, flag, variable) in [
            (&mut self.memcached_image, "memcached-image", "MEMCACHED_IMAGE"),
            (
                &mut self.memcached_exporter_image,
                "memcached-exporter-image",
                "MEMCACHED_EXPORTER_IMAGE",
            ),
        ] {
            if image.is_none() {
                *image = text_of(flag, installed.setting(flag, variable));
            }
        }
        if !self.allow_templates {
            let flag = "allow-templates";
            let text = text_of(flag, installed.setting(flag, "ALLOW_TEMPLATES"));
            self.allow_templates = text.is_some_and(|text| text == "true");
        }
        if !taken.is_empty() {
            eprintln!("workload-operator: as {} has it: {}", installed.place(), taken.join(" "));
        }
    }
}

// === impl Plan ===

impl Plan {
    fn count(&self, effect: Effect) -> usize {
        self.changes.values().filter(|change| change.effect == effect).count()
    }

    fn restarts(&self) -> usize {
        self.changes.values().filter(|change| change.restarts).count()
    }

    fn exit_code(&self) -> ExitCode {
        match (self.problems.is_empty(), self.changes.is_empty()) {
            (false, _) => ExitCode::from(2),
            (true, true) => ExitCode::SUCCESS,
            (true, false) => ExitCode::from(1),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::installation::tests::with;

    #[test]
    fn a_plan_copies_unset_flags_from_the_installed_operator() {
        let installed = with(json!({
            "args": ["--watch-namespace=a", "--controllers=app", "--controllers=memcached"],
            "env": [{"name": "MEMCACHED_IMAGE", "value": "m:1"},
                {"name": "MEMCACHED_EXPORTER_IMAGE", "value": "e:1"},
                {"name": "INHERITED_LABELS", "value": "team, example.com/*,app"}],
        }));
        let parsed = |arguments: &[&str]| {
            let arguments = ["workload-operator", "plan"].iter().chain(arguments);
            match crate::cli::parse_from(arguments).unwrap().command {
                Some(crate::cli::Command::Plan(args)) => args.workloads,
                other => panic!("{other:?}"),
            }
        };
        let mut args = parsed(&[]);
        args.take(&installed);
        assert_eq!(args.namespaces, ["a"]);
        assert_eq!(args.controllers, [ControllerName::App, ControllerName::Memcached]);
        assert_eq!(
            args.inherited_labels,
            ["team", "example.com/*"],
            "with the others it does not run"
        );
        assert_eq!(args.memcached_image.as_deref(), Some("m:1"));
        assert_eq!(args.memcached_exporter_image.as_deref(), Some("e:1"));
        let mut args = parsed(&["--watch-namespace=b", "--memcached-image=m:2"]);
        args.take(&installed);
        assert_eq!(
            (args.namespaces, args.memcached_image.as_deref()),
            (vec!["b".to_owned()], Some("m:2"))
        );
    }
}
