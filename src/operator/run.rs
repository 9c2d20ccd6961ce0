//! Running: what is started in which order, and what ends in which.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use super::args::RunArgs;
use super::error::Error;
use super::servers;
use super::tasks::Tasks;
use super::wiring::Parts;
use crate::client::{self, Client, Options};
use crate::events;
use crate::leader_election::{self, Boottime, ConfigError, Elector, Leadership};
use crate::metrics::{Build, Checks, Metrics};
use crate::object::ObjectKey;
use crate::shutdown::Shutdown;

/// The name of the Lease.
const LEASE: &str = "workload-operator";
/// Where the Lease is when nothing says otherwise.
const NAMESPACE: &str = "workload-operator-system";
/// A pod's own namespace, as its ServiceAccount's volume tells it.
const POD_NAMESPACE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";
/// What is left after the workers have drained gets this long each: Events, the lease, informers.
const LAST_STEPS: Duration = Duration::from_secs(3);

/// Everything that runs, in groups that end one after the other.
struct Running {
    /// Controllers first, informers last.
    parts: Parts,
    /// The sink of Events: what the last passes had to say is still sent.
    beside: Tasks,
    stop_beside: Shutdown,
    /// The lease is given up when nothing writes any more.
    election: Tasks,
    stop_election: Shutdown,
    /// The last to go, so that it can be seen how the rest ends.
    servers: Tasks,
    stop_servers: Shutdown,
}

/// Runs the operator until a signal.
///
/// # Errors
/// When it cannot start, and when a task that everything leans on dies.
pub async fn run(args: RunArgs) -> Result<(), Error> {
    let shutdown = Shutdown::from_signals().map_err(Error::Signals)?;
    let mut running = Running::start(args, shutdown.clone()).await?;
    let outcome = tokio::select! {
        // First: an idle controller ends as soon as it is asked to, and has not died then.
        biased;
        () = shutdown.requested() => Ok(()),
        died = running.parts.controllers.died() => Err(died),
        died = running.parts.informers.died() => Err(died),
        died = running.beside.died() => Err(died),
        died = running.election.died() => Err(died),
        died = running.servers.died() => Err(died),
    };
    // Whatever the reason: what is under way ends in the same order.
    shutdown.request();
    running.end().await;
    outcome
}

// === impl Running ===

impl Running {
    async fn start(args: RunArgs, shutdown: Shutdown) -> Result<Running, Error> {
        let config = client::config(args.kubeconfig.as_deref(), args.context.as_deref()).await?;
        let (host, metrics) = (host_name(), metrics(&config));
        let (leadership, elector) = match args.leader_elect {
            true => Some(election(&args, &host, &metrics)?).unzip(),
            false => (None, None),
        };
        // The election has connections of its own: the lease must not wait behind anything.
        let client = Client::new(config.clone(), options(&args, &metrics, leadership.as_ref()))?;
        let ungated = Client::new(config, options(&args, &metrics, None))?;
        let (recorder, sink) = events::new("workload-operator", &host, metrics.clone());
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
        let stop_servers = Shutdown::manual();
        let mut tasks = Tasks::default();
        let shown = (metrics.clone(), ready.clone());
        servers::start(&args, &ungated, shown, &mut tasks, &stop_servers).await?;
        let parts =
            Parts::new(args, client.clone(), recorder, leadership, shutdown, metrics, ready);
        let mut running = Running {
            parts,
            beside: Tasks::default(),
            stop_beside: Shutdown::manual(),
            election: Tasks::default(),
            stop_election: Shutdown::manual(),
            servers: tasks,
            stop_servers,
        };
        let stop = running.stop_beside.requested();
        running.beside.start("the sink of Events", async move {
            sink.run(client, stop).await;
            Ok(())
        });
        if let Some(elector) = elector {
            running.start_election(elector, ungated);
        }
        running.parts.wire();
        tokio::spawn(announce(std::mem::take(&mut running.parts.synced)));
        Ok(running)
    }

    fn start_election(&mut self, elector: Elector, client: Client) {
        let stop = self.stop_election.requested();
        self.election.start("the leader election", async move {
            elector.run(client, stop).await;
            Ok(())
        });
    }

    async fn end(&mut self) {
        self.parts.controllers.ended().await;
        for (stop, tasks) in [
            (&self.stop_beside, &mut self.beside),
            (&self.stop_election, &mut self.election),
            (&self.parts.stop_informers, &mut self.parts.informers),
            (&self.stop_servers, &mut self.servers),
        ] {
            stop.request();
            if timeout(LAST_STEPS, tasks.ended()).await.is_err() {
                tracing::warn!("Not everything ended in {LAST_STEPS:?}");
            }
        }
        tracing::info!("Stopped");
    }
}

/// Says once that all there is to be known is known.
async fn announce(synced: Vec<tokio::task::JoinHandle<()>>) {
    for informer in synced {
        if informer.await.is_err() {
            return;
        }
    }
    tracing::info!("Ready to work: all informers are synced");
}

fn metrics(config: &kube::Config) -> Arc<Metrics> {
    let host = config.cluster_url.authority().map(ToString::to_string).unwrap_or_default();
    let revision = option_env!("REVISION").unwrap_or("unknown");
    Metrics::new(&host, &Build { version: env!("CARGO_PKG_VERSION"), revision })
}

/// With a leadership, every write asks it first.
fn options(args: &RunArgs, metrics: &Arc<Metrics>, leadership: Option<&Leadership>) -> Options {
    let mut options =
        Options { deadline: args.api_deadline, observer: metrics.clone(), ..Options::default() };
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
    let namespace = args.leader_elect_namespace.clone().or_else(|| {
        let own = std::fs::read_to_string(POD_NAMESPACE).ok();
        own.map(|text| text.trim().to_owned()).or_else(|| args.namespaces.first().cloned())
    });
    let lease = ObjectKey::new(namespace.as_deref().unwrap_or(NAMESPACE), LEASE);
    let config = leader_election::Config {
        lease: args.leader_elect_lease_duration,
        renew: args.leader_elect_renew_deadline,
        retry: args.leader_elect_retry_period,
        ..leader_election::Config::default()
    };
    leader_election::new(lease, host, config, Arc::new(Boottime), metrics.clone())
}

/// The pod's name in a cluster, the machine's elsewhere.
fn host_name() -> String {
    std::env::var("POD_NAME")
        .unwrap_or_else(|_| rustix::system::uname().nodename().to_string_lossy().into_owned())
}
