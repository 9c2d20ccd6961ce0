//! Running the operator: what starts in which order, and what ends in which.

use std::sync::Arc;

use super::IDENTITY;
use super::args::{RunArgs, all_if_empty};
use super::error::Error;
use super::lease_events::LeaseEvents;
use super::servers;
use super::spans::Spans;
use super::wiring::Wiring;
use crate::client::{self, Client, Options};
use crate::controller::Program;
use crate::events;
use crate::leader_election::{self, Boottime, ConfigError, Elector, Leadership};
use crate::metrics::{Build, Checks, Metrics};
use crate::object::ObjectKey;
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
    Ok(program(args, spans).await?.run(shutdown).await?)
}

/// Everything that runs, in the order in which it ends.
async fn program(args: RunArgs, spans: Spans) -> Result<Program, Error> {
    let config = args.connection.config().await?;
    let (host, metrics) = (host_name(), metrics(&config));
    let told = spans.of_requests(&metrics);
    let (leadership, elector) = match args.leader_elect {
        true => Some(election(&args, &host, &metrics)?).unzip(),
        false => (None, None),
    };
    // The election has its own connections: renewing the lease must not wait behind anything.
    let gated = options(&args, &told, leadership.as_ref());
    // After an outage, whichever client gets an answer first lets the other know.
    let ungated = Options { reach: gated.reach.clone(), ..options(&args, &told, None) };
    let client = Client::new(config, gated)?;
    let ungated = client.sibling(ungated)?;
    client.log_in().await?;
    let (recorder, sink) = events::new(IDENTITY, &host, metrics.clone());
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        controllers = ?args.controllers,
        namespaces = ?args.namespaces,
        leader_election = args.leader_elect,
        "Starting"
    );
    let ready = Checks::default();
    if let Some(leadership) = &leadership {
        metrics.watch_lease(LEASE);
        servers::check_lease(&ready, leadership);
    }
    let mut program = Program::new();
    for (name, server) in servers::bind(&args, &ungated, &metrics, &ready).await? {
        program = program.around(name, |stop| async move { server.run(stop.requested()).await });
    }
    let ending = spans.clone();
    program = program.around("the export of spans", |stop| async move {
        stop.requested().await;
        ending.end().await;
    });
    if let (Some(leadership), Some(elector)) = (&leadership, &elector) {
        let recorder = recorder.for_controller("leader-election");
        let events = LeaseEvents::new(recorder, leadership.clone(), elector, ungated.clone());
        program = program.beside("the Events of the Lease", |stop| async move {
            events.run(stop.requested()).await;
        });
    }
    let passes = spans.of_passes(&metrics);
    let wiring =
        Wiring { args, client: client.clone(), recorder, leadership, metrics, passes, ready };
    // What the last passes reported is still sent, and then the lease is released: nothing writes
    // any more.
    program = wiring.connect(program).beside("the sink of Events", |stop| async move {
        sink.run(client, stop.requested()).await;
    });
    if let Some(elector) = elector {
        program = program.beside("the leader election", |stop| async move {
            elector.run(ungated, stop.requested()).await;
        });
    }
    Ok(program)
}

fn metrics(config: &kube::Config) -> Arc<Metrics> {
    let host = config.cluster_url.authority().map(ToString::to_string).unwrap_or_default();
    let revision = option_env!("REVISION").unwrap_or("unknown");
    Metrics::new(&IDENTITY, &host, &Build { version: env!("CARGO_PKG_VERSION"), revision })
}

/// If there is a leadership, every write checks it first.
fn options(
    args: &RunArgs,
    told: &Arc<dyn client::Observer>,
    leadership: Option<&Leadership>,
) -> Options {
    let mut options =
        Options { deadline: args.api_deadline, observer: told.clone(), ..Options::new(IDENTITY) };
    if let Some(leadership) = leadership {
        options.gate = Arc::new(leadership.clone());
    }
    options
}

fn election(
    args: &RunArgs,
    host: &str,
    metrics: &Arc<Metrics>,
) -> Result<(Leadership, Elector), ConfigError> {
    let namespace = args.leader_elect_namespace.clone().or_else(|| own_namespace(args));
    let lease = ObjectKey::new(namespace.as_deref().unwrap_or(NAMESPACE), LEASE);
    let config = leader_election::Config {
        lease: args.leader_elect_lease_duration,
        renew: args.leader_elect_renew_deadline,
        retry: args.leader_elect_retry_period,
        ..leader_election::Config::default()
    };
    leader_election::new(lease, host, config, Arc::new(Boottime), metrics.clone())
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
