//! The process: its commands, the order of its parts, and the objects that each controller owns and watches.
//!
//! Guarantees
//! - Without a flag, it finds its API server: by a kubeconfig on a workstation, by the ServiceAccount in a pod.
//! - Each kind waits only for its own informers. If listing one is not permitted, or its CRD is missing, the
//!   others work, and the kind recovers later.
//! - Nothing is reconciled before the initial lists are complete, and nothing is written while another process
//!   leads.
//! - SIGTERM and SIGINT shut it down in order: no new reconcile begins, running ones finish (within a time
//!   limit), Events are sent, the lease is released, informers stop. A second signal ends the process at once.
//! - If an essential task dies, the process exits: a restart is better than a process that receives no events.
//!
//! Exit codes of `run`: 0 after an orderly shutdown; 1 if it could not start or a task died (the last line
//! reports the cause); 2 for wrong arguments; 130 and 143 after a second SIGINT or SIGTERM.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};

use crate::app::{self, App};
use crate::cli::args::{Cli, Command, ControllerName, RunArgs, WorkloadArgs, all_if_empty};
use crate::cli::telemetry;
use crate::cli::{Error, IDENTITY, NAMESPACE, check, manifests, one_line, plan, status};
use crate::client::{self, Client};
use crate::controller::{Finished, Program};
use crate::generic_daemon::{self, GenericDaemon};
use crate::leader_election::{self, ConfigError};
use crate::manager::{ControllerBuilder, Lease, Manager};
use crate::memcached::{self, Memcached, Pace, Settings};
use crate::metrics::{Build, Metrics};
use crate::shutdown::Shutdown;
use crate::workload::labels::inherit;
use crate::workload::{
    Custom, DaemonSet, Deployment, Diagnostics, Observer, Pod, PodDisruptionBudget, Service, Type,
    refused,
};

/// File with the pod's namespace, in its ServiceAccount volume.
const POD_NAMESPACE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";
/// Maximum wait for blocked threads when the process terminates.
const LET_GO: Duration = Duration::from_secs(1);

/// Runs the given command.
pub fn main(cli: Cli) -> ExitCode {
    let outcome = match cli.command {
        Some(Command::Crds { memcached_max_size }) => {
            manifests::print_crds(memcached_max_size).map(|()| ExitCode::SUCCESS)
        }
        Some(Command::Manifests(args)) => manifests::print(&args).map(|()| ExitCode::SUCCESS),
        Some(Command::Completions { shell }) => {
            manifests::print_completions(shell).map(|()| ExitCode::SUCCESS)
        }
        Some(Command::Status(args)) => asked(status::run(&args)),
        Some(Command::Check(args)) => asked(check::run(*args)),
        Some(Command::Plan(args)) => asked(plan::run(*args, dry_run)),
        Some(Command::Run(args)) => start(*args).map(|()| ExitCode::SUCCESS),
        None => start(cli.run).map(|()| ExitCode::SUCCESS),
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("workload-operator: {}", one_line(&error.to_string()));
        ExitCode::FAILURE
    })
}

/// Runs a command that prints one result for a user. It logs nothing, so that no log lines are mixed with the
/// result. Its exit code is 2 after an error, because 1 is a result.
fn asked(answer: impl Future<Output = Result<ExitCode, Error>>) -> Result<ExitCode, Error> {
    let runtime = Builder::new_current_thread().enable_all().build();
    to_its_end(runtime.map_err(Error::Runtime)?, answer).or_else(|error| {
        eprintln!("workload-operator: {}", one_line(&error.to_string()));
        Ok(ExitCode::from(2))
    })
}

fn start(args: RunArgs) -> Result<(), Error> {
    let mut runtime = Builder::new_multi_thread();
    if std::env::var_os("TOKIO_WORKER_THREADS").is_none_or(|threads| threads.is_empty()) {
        runtime
            .worker_threads(threads(std::thread::available_parallelism().map_or(1, usize::from)));
    }
    let runtime = runtime.enable_all().build().map_err(Error::Runtime)?;
    telemetry::init(&args.log_level, args.log_format).map_err(Error::Logs)?;
    to_its_end(runtime, run(args))
}

/// Returns the number of threads for this number of cores. On a single thread, a reconcile that blocks it would
/// stop the renewals of the Lease and the responses to probes. More than four would be idle, because the API
/// server is the limit.
fn threads(cores: usize) -> usize {
    cores.clamp(2, 4)
}

/// Completes `work`. A thread that it leaves blocked (for example by a name lookup) is abandoned, because
/// dropping a runtime would wait for it without a limit.
fn to_its_end<T>(runtime: Runtime, work: impl Future<Output = T>) -> T {
    let outcome = runtime.block_on(work);
    runtime.shutdown_timeout(LET_GO);
    outcome
}

// === Run ===

/// Runs the operator until a signal.
///
/// # Errors
/// If it cannot start, or if an essential task dies.
async fn run(mut args: RunArgs) -> Result<(), Error> {
    all_if_empty(&mut args.workloads.namespaces);
    let shutdown = Shutdown::from_signals().map_err(Error::Signals)?;
    // A credential plugin, for example, can take long.
    tokio::select! {
        program = program(args) => Ok(program?.run(shutdown).await?),
        () = shutdown.requested() => Ok(()),
    }
}

/// Returns all parts of the process, in the order in which they end.
async fn program(args: RunArgs) -> Result<Program, Error> {
    let config = args.connection.config().await?;
    let lease = args.leader_elect.then(|| lease(&args)).transpose()?;
    let (host, metrics) = (host_name(), metrics());
    let options = client::Options {
        deadline: args.api_deadline,
        write_deadline: args.write_deadline,
        ..client::Options::new(IDENTITY)
    };
    let ungated = Client::new(config, options.clone()).await?;
    let namespaces = &args.workloads.namespaces;
    let controllers = args.workloads.controllers();
    let served = if namespaces.is_empty() { "all".to_owned() } else { namespaces.join(",") };
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        ?controllers,
        namespaces = %served,
        leader_election = args.leader_elect,
        "Starting"
    );
    if controllers.contains(&ControllerName::Memcached) {
        warn_of_missing_images(&args.workloads);
    }
    let mut manager = Manager::new(IDENTITY)
        .instance(host)
        .serve(args.serve()?)
        .metrics(metrics)
        .client(|client| *client = options)
        .options(|options| {
            options.workers = args.workers.into();
            options.drain = args.shutdown_grace;
        });
    if let Some(lease) = lease {
        manager = manager.leader_election(lease);
    }
    let connect = |options| ungated.sibling(options);
    let pace = Pace::new(args.max_image_rollouts.unwrap_or_default());
    Ok(add_controllers(manager, &args.workloads, &pace).program(connect).await?)
}

/// Reports default images that are not set.
fn warn_of_missing_images(args: &WorkloadArgs) {
    let is_missing = |image: &Option<String>| image.as_deref().unwrap_or_default().is_empty();
    if is_missing(&args.memcached_image) {
        tracing::warn!(
            "MEMCACHED_IMAGE is not set, so no Memcached without `image` gets a Deployment: set it to an image, such \
             as memcached:1.6.38-alpine"
        );
    }
    if is_missing(&args.memcached_exporter_image) {
        tracing::warn!(
            "MEMCACHED_EXPORTER_IMAGE is not set, so no Memcached with an `exporter` without `image` gets a Deployment"
        );
    }
}

/// Returns the controllers of `run` with a client that sends every write as a dry run. Nothing is elected,
/// served or exported.
async fn dry_run(
    args: WorkloadArgs,
    client: Client,
    options: client::Options,
    finished: Finished,
) -> Result<Program, Error> {
    let manager = Manager::new(IDENTITY)
        .client(|client| *client = options)
        .options(|options| options.finished = Some(finished));
    Ok(add_controllers(manager, &args, &Pace::unlimited())
        .program(|options| client.sibling(options))
        .await?)
}

fn metrics() -> Arc<Metrics> {
    let revision = option_env!("REVISION").unwrap_or("unknown");
    Metrics::new(&IDENTITY, &Build { version: env!("CARGO_PKG_VERSION"), revision })
}

fn lease(args: &RunArgs) -> Result<Lease, ConfigError> {
    let namespace = args.leader_elect_namespace.clone().or_else(|| own_namespace(&args.workloads));
    let default = leader_election::Config::default();
    let config = leader_election::Config {
        lease_duration: args.leader_elect_lease_duration,
        renew_deadline: args.leader_elect_renew_deadline,
        retry_period: args.leader_elect_retry_period,
        // With a short Lease, the default of 2 s would leave no time.
        in_flight: default.in_flight.min(args.leader_elect_lease_duration / 6),
        ..default
    };
    config.validate()?;
    Ok(Lease::named(args.leader_elect_resource_name.as_str())
        .namespace(namespace.as_deref().unwrap_or(NAMESPACE))
        .config(config))
}

/// Returns the pod's namespace in a cluster, otherwise the first watched one.
fn own_namespace(args: &WorkloadArgs) -> Option<String> {
    let own = std::fs::read_to_string(POD_NAMESPACE).ok();
    own.map(|text| text.trim().to_owned()).or_else(|| args.namespaces.first().cloned())
}

/// Returns the pod's name in a cluster, otherwise the machine's host name.
fn host_name() -> String {
    std::env::var("POD_NAME")
        .ok()
        .filter(|name| !name.is_empty())
        .unwrap_or_else(|| rustix::system::uname().nodename().to_string_lossy().into_owned())
}

// === Controllers ===

/// Adds the controllers for the requested namespaces, whose names must not be empty. The inherited labels of
/// the first call apply to the whole process.
pub fn add_controllers(manager: Manager, args: &WorkloadArgs, pace: &Pace) -> Manager {
    inherit(&args.inherited_labels);
    let mut manager = manager.namespaces(&args.namespaces);
    let diagnostics = Diagnostics::default();
    for name in [ControllerName::Memcached, ControllerName::App, ControllerName::GenericDaemon] {
        if args.controllers().contains(&name) {
            let observer = Observer::new(diagnostics.clone());
            manager = match name {
                ControllerName::Memcached => memcached(manager, args, pace.clone(), observer),
                ControllerName::App => app(manager, args.allow_templates, observer),
                ControllerName::GenericDaemon => {
                    generic_daemon(manager, args.allow_templates, observer)
                }
            };
        }
    }
    manager
}

fn memcached(manager: Manager, args: &WorkloadArgs, pace: Pace, observer: Observer) -> Manager {
    let settings = Settings {
        memcached_image: args.memcached_image.as_deref().map(Into::into),
        exporter_image: args.memcached_exporter_image.as_deref().map(Into::into),
        allow_templates: args.allow_templates,
    };
    let settings = (settings, pace);
    let own_namespace = own_namespace(args);
    let manager = manager.informer::<Pod>(|pods| {
        let scope = Pod::scope(None);
        pods.labels(scope.labels.unwrap_or_default())
            .fields(scope.fields.unwrap_or_default())
            .metadata_only()
            .index(Pod::index())
    });
    custom::<Memcached>(manager)
        .owns::<Deployment>()
        .owns::<Service>()
        .owns::<PodDisruptionBudget>()
        .watches::<Pod>(|pod| pod.memcached().into_iter().collect())
        .cleanup(memcached::FINALIZER, {
            let pace = settings.1.clone();
            move |memcached, cx| memcached::finalize(memcached, cx, pace.clone())
        })
        // If the operator's own namespace is being deleted, the operator removes finalizers as it ends.
        .on_shutdown("the release of Memcacheds", move |parts| {
            let (memcacheds, client) = (parts.store()?, parts.client());
            Ok(async move {
                if let Some(namespace) = own_namespace {
                    memcached::release(memcacheds, client, &namespace).await;
                }
            })
        })
        .reconcile(move |memcached, cx| {
            let (settings, pace) = settings.clone();
            memcached::reconcile(memcached, cx, settings, pace, observer.clone())
        })
}

fn app(manager: Manager, allow_templates: bool, observer: Observer) -> Manager {
    custom::<App>(manager)
        .owns::<Deployment>()
        .owns::<Service>()
        .owns::<PodDisruptionBudget>()
        .reconcile(move |app, cx| app::reconcile(app, cx, allow_templates, observer.clone()))
}

fn generic_daemon(manager: Manager, allow_templates: bool, observer: Observer) -> Manager {
    custom::<GenericDaemon>(manager).owns::<DaemonSet>().reconcile(move |daemon, cx| {
        generic_daemon::reconcile(daemon, cx, allow_templates, observer.clone())
    })
}

/// Returns the builder of a custom resource's controller.
fn custom<V: Custom>(manager: Manager) -> ControllerBuilder<V> {
    manager.controller().conditions(Type::NAMES).publish_writes().on_error(refused)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn there_are_two_to_four_threads() {
        assert_eq!([1, 2, 3, 4, 64].map(threads), [2, 2, 3, 4, 4]);
    }

    #[test]
    fn a_blocked_thread_does_not_prevent_the_exit() {
        let (ended, end) = mpsc::channel();
        let (_blocked, forever) = mpsc::channel::<()>();
        std::thread::spawn(move || {
            let runtime = Builder::new_multi_thread().enable_all().build().unwrap();
            let outcome = to_its_end(runtime, async {
                let (begun, begins) = tokio::sync::oneshot::channel();
                tokio::task::spawn_blocking(move || {
                    begun.send(()).unwrap();
                    forever.recv()
                });
                begins.await
            });
            ended.send(outcome).unwrap();
        });
        assert_eq!(end.recv_timeout(60 * LET_GO), Ok(Ok(())));
    }
}
