//! Running the operator: what starts in which order, and what ends in which.

use std::sync::Arc;

use super::IDENTITY;
use super::args::{ControllerName, RunArgs, all_if_empty};
use super::error::Error;
use super::spans::Spans;
use super::{servers, wiring};
use crate::client::{self, Client};
use crate::controller::Program;
use crate::leader_election::{self, ConfigError};
use crate::manager::{Lease, Manager};
use crate::metrics::{Build, Checks, Metrics};
use crate::shutdown::Shutdown;

/// The name of the Lease.
const LEASE: &str = "workload-operator";
/// The namespace of the Lease if nothing says otherwise.
const NAMESPACE: &str = "workload-operator-system";
/// A pod's own namespace, from its ServiceAccount volume.
const POD_NAMESPACE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";

/// Runs the operator until a signal.
///
/// # Errors
/// If it cannot start, or if a task that everything depends on dies.
pub(super) async fn run(mut args: RunArgs, spans: Spans) -> Result<(), Error> {
    all_if_empty(&mut args.namespaces);
    let shutdown = Shutdown::from_signals().map_err(Error::Signals)?;
    // A credential plugin, for one, may take long.
    tokio::select! {
        program = program(args, spans) => Ok(program?.run(shutdown).await?),
        () = shutdown.requested() => Ok(()),
    }
}

/// Everything that runs, in the order in which it ends.
async fn program(args: RunArgs, spans: Spans) -> Result<Program, Error> {
    let config = args.connection.config().await?;
    let lease = args.leader_elect.then(|| lease(&args)).transpose()?;
    let (host, metrics, ready) = (host_name(), metrics(&config), Checks::default());
    let (observer, passes) = (spans.of_requests(&metrics), spans.of_passes(&metrics));
    let options =
        client::Options { deadline: args.api_deadline, observer, ..client::Options::new(IDENTITY) };
    // Of no leader: reviews are answered whoever leads. The others are made of it: a credential
    // plugin runs once for all.
    let ungated = Client::new(config, options.clone())?;
    ungated.log_in().await?;
    let namespaces =
        if args.namespaces.is_empty() { "all".to_owned() } else { args.namespaces.join(",") };
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        controllers = ?args.controllers,
        namespaces = %namespaces,
        leader_election = args.leader_elect,
        "Starting"
    );
    let image = args.memcached_image.as_deref().unwrap_or_default();
    if image.is_empty() && args.controllers.contains(&ControllerName::Memcached) {
        tracing::warn!(
            "MEMCACHED_IMAGE is not set, so no Memcached gets a Deployment: set it to an image, such \
             as memcached:1.6.38-alpine"
        );
    }
    let servers = servers::bind(&args, &ungated, &metrics, &ready).await?;
    let mut manager = Manager::new(IDENTITY)
        .namespaces(&args.namespaces)
        .instance(host)
        .metrics(metrics)
        .readiness(ready)
        .client(|client| *client = options)
        .options(|options| {
            options.workers = args.workers.into();
            options.drain = args.shutdown_grace;
            options.observer = passes;
        });
    if let Some(lease) = lease {
        manager = manager.leader_election(lease);
    }
    let connect = |options| ungated.sibling(options);
    let mut program = wiring::controllers(manager, &args).program(connect).await?;
    for (name, server) in servers {
        program = program.around(name, |stop| async move { server.run(stop.requested()).await });
    }
    Ok(program.around("the export of spans", |stop| async move {
        stop.requested().await;
        spans.end().await;
    }))
}

fn metrics(config: &kube::Config) -> Arc<Metrics> {
    let host = config.cluster_url.authority().map(ToString::to_string).unwrap_or_default();
    let revision = option_env!("REVISION").unwrap_or("unknown");
    Metrics::new(&IDENTITY, &host, &Build { version: env!("CARGO_PKG_VERSION"), revision })
}

fn lease(args: &RunArgs) -> Result<Lease, ConfigError> {
    let namespace = args.leader_elect_namespace.clone().or_else(|| own_namespace(args));
    let default = leader_election::Config::default();
    let config = leader_election::Config {
        lease: args.leader_elect_lease_duration,
        renew: args.leader_elect_renew_deadline,
        retry: args.leader_elect_retry_period,
        // Of a short Lease, the 2 s of the default would leave nothing.
        in_flight: default.in_flight.min(args.leader_elect_lease_duration / 6),
        ..default
    };
    config.validate()?;
    Ok(Lease::named(LEASE).namespace(namespace.as_deref().unwrap_or(NAMESPACE)).config(config))
}

/// The pod's namespace in a cluster, otherwise the first that is watched.
pub(super) fn own_namespace(args: &RunArgs) -> Option<String> {
    let own = std::fs::read_to_string(POD_NAMESPACE).ok();
    own.map(|text| text.trim().to_owned()).or_else(|| args.namespaces.first().cloned())
}

/// The pod's name in a cluster, otherwise the machine's host name.
fn host_name() -> String {
    std::env::var("POD_NAME")
        .unwrap_or_else(|_| rustix::system::uname().nodename().to_string_lossy().into_owned())
}
