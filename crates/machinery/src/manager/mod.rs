//! 7. The manager: runs controllers, wired from their declarations.
//!
//! Guarantees
//! - Each declared view has one informer, shared by all controllers that declare it. Nothing is listed or stored twice.
//! - A controller starts when all its views have synced. With leader election, it reconciles only while this process
//!   leads. A standby keeps its stores up to date, but reconciles and writes nothing.
//! - [`Manager::run`] refuses a program with wiring faults before anything starts. It reports all faults at once, each
//!   with the line that fixes it ([`WiringError`]).
//! - A reconcile that reads an undeclared view fails. The error contains the line to add.
//! - Shutdown follows the order of a [`Program`]: controllers first, then Events and the lease, then the informers.
//!
//! ```no_run
//! # use controller_machinery::controller::{Action, ReconcileError};
//! # use controller_machinery::identity::Identity;
//! # use controller_machinery::manager::{Context, Manager};
//! # use controller_machinery::object::{Kind, Meta};
//! # use std::{process::ExitCode, sync::Arc};
//! #[derive(Debug, serde::Deserialize)]
//! struct Namespace {
//!     metadata: Meta,
//! }
//! controller_machinery::view!(Namespace: Kind::cluster_scoped("", "v1", "Namespace", "namespaces"));
//!
//! async fn reconcile(namespace: Arc<Namespace>, _: Context<Namespace>) -> Result<Action, ReconcileError> {
//!     println!("{}", namespace.metadata.key);
//!     Ok(Action::Done)
//! }
//!
//! # async fn run() -> ExitCode {
//! let manager = Manager::new(Identity::new("census", "example.com"));
//! manager.controller::<Namespace>().run(reconcile).await
//! # }
//! ```

pub(crate) mod wiring;
mod kinds;
mod handlers;
mod builder;
mod function;
mod context;
mod compared;
mod throttle;
mod conflicts;
mod managed_fields;
mod children;
mod status;
mod writes;
mod conditions;
mod leading;
mod observed;
#[cfg(feature = "metrics")]
mod serve;

pub use builder::ControllerBuilder;
pub use children::EnsureOptions;
pub use conditions::{Condition, ConditionStatus};
pub use context::Context;
pub use kinds::ControllerDeps;
pub use leading::Lease;
#[cfg(feature = "metrics")]
pub use serve::Serve;
pub use wiring::WiringError;

use std::any::TypeId;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use builder::Registration;
use futures::FutureExt;
use futures::future::BoxFuture;
use handlers::Filters;
use kinds::{Declarations, Informers};
use leading::LeaderGate;

use crate::client::{self, Client};
use crate::controller::{Options, Program, ProgramError};
use crate::events::{self, Recorder};
use crate::identity::Identity;
use crate::informer;
use crate::object::{InternedStr, Resource};
use crate::shutdown::Shutdown;

/// A manager, which wires and runs controllers. Create one, add controllers, and run it.
#[must_use = "a manager does nothing until it runs"]
pub struct Manager {
    kubeconfig: Option<PathBuf>,
    client: client::Options,
    namespaces: Vec<InternedStr>,
    /// Options of all controllers.
    defaults: Options,
    tasks: Vec<(String, Task)>,
    declarations: Declarations,
    controllers: Vec<Registration>,
    /// Faults of their declarations.
    faults: Vec<WiringError>,
    instance: Option<String>,
    lease: Option<Lease>,
    observed: observed::Observed,
}

/// Reason why a manager did not end in an orderly way.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The program has wiring faults; nothing was started.
    #[error("invalid controller setup; nothing was started: {}", sentences(.0))]
    Wiring(Vec<WiringError>),
    /// The client cannot be configured or built.
    #[error("{0}")]
    Client(#[from] client::Error),
    /// The signal handlers could not be installed.
    #[error("cannot listen to signals: {0}")]
    Signals(#[source] std::io::Error),
    /// The durations of the leader election are inconsistent.
    #[error("the durations of the Lease do not fit together: {0}")]
    Lease(#[from] crate::leader_election::ConfigError),
    /// Cannot listen on an address.
    #[cfg(feature = "metrics")]
    #[error(
        "cannot serve {what} on {address}: {source}: choose another address with `Serve::{what}`"
    )]
    Listen {
        /// `health` or `metrics`.
        what: &'static str,
        /// The address.
        address: std::net::SocketAddr,
        /// The reason.
        source: std::io::Error,
    },
    /// The certificate of metrics cannot be used.
    #[cfg(feature = "metrics")]
    #[error(transparent)]
    Tls(#[from] crate::metrics::TlsError),
    /// The program was refused, or a task that all others depend on ended.
    #[error("{0}")]
    Program(#[from] ProgramError),
}

/// A task of the program.
type Task = Box<dyn FnOnce(Client, Shutdown) -> BoxFuture<'static, ()> + Send>;

/// The parts that all controllers share.
struct Shared {
    client: Client,
    recorder: Recorder,
    namespaces: Vec<InternedStr>,
    /// Options of all controllers.
    options: Options,
    lead: LeaderGate,
    observed: observed::Observed,
}

fn sentences(faults: &[WiringError]) -> String {
    faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

// === impl Manager ===

impl Manager {
    /// Returns a manager without controllers. `identity` names the program in requests, field ownership and Events.
    pub fn new(identity: impl Into<Identity>) -> Manager {
        Manager {
            kubeconfig: None,
            client: client::Options::new(identity.into()),
            namespaces: Vec::new(),
            defaults: Options::default(),
            tasks: Vec::new(),
            declarations: Declarations::default(),
            controllers: Vec::new(),
            faults: Vec::new(),
            instance: None,
            lease: None,
            observed: observed::Observed::default(),
        }
    }

    /// Sets the path of the kubeconfig. Default: KUBECONFIG, else `~/.kube/config`, else the cluster of the pod.
    pub fn kubeconfig(mut self, path: Option<PathBuf>) -> Manager {
        self.kubeconfig = path;
        self
    }

    /// Restricts every namespaced kind to these namespaces; a Role in each is then enough. Default: all namespaces.
    /// An empty name also selects all (`WATCH_NAMESPACE=""`).
    pub fn namespaces(
        mut self,
        namespaces: impl IntoIterator<Item = impl Into<InternedStr>>,
    ) -> Manager {
        let namespaces = namespaces.into_iter().map(Into::into);
        self.namespaces = namespaces.filter(|name: &InternedStr| !name.is_empty()).collect();
        self
    }

    /// Changes the options of the client, such as its `deadline`. With leader election, the lease is its gate.
    pub fn client(mut self, change: impl FnOnce(&mut client::Options)) -> Manager {
        change(&mut self.client);
        self
    }

    /// Changes the options of all controllers. [`ControllerBuilder::options`] overrides them for one controller.
    pub fn options(mut self, change: impl FnOnce(&mut Options)) -> Manager {
        change(&mut self.defaults);
        self
    }

    /// Names this process in Events and as the holder of the lease. Default: the environment variable POD_NAME, else
    /// the host name.
    pub fn instance(mut self, name: impl Into<String>) -> Manager {
        self.instance = Some(name.into());
        self
    }

    /// Enables leader election with this Lease: only one process of the program reconciles at a time.
    ///
    /// ```
    /// # use controller_machinery::manager::{Lease, Manager};
    /// let manager = Manager::new("foo").leader_election(Lease::named("foo"));
    /// # drop(manager);
    /// ```
    pub fn leader_election(mut self, lease: Lease) -> Manager {
        self.lease = Some(lease);
        self
    }

    /// Adds a task that runs with a client until the controllers have ended. The task must end soon after its shutdown
    /// is requested, and not before. With leader election, every process runs it, and the client refuses writes while
    /// another process leads: `client.options().gate.may_write().is_ok()` tells whether this one does. `name` appears in
    /// messages.
    pub fn task<T: Future<Output = ()> + Send + 'static>(
        mut self,
        name: impl Into<String>,
        task: impl FnOnce(Client, Shutdown) -> T + Send + 'static,
    ) -> Manager {
        self.tasks.push((name.into(), Box::new(|client, stop| task(client, stop).boxed())));
        self
    }

    /// Adjusts the informer of `W`, for example with a selector or to metadata only, for all controllers that declare
    /// `W`. If an object stops matching the selector, they consider it deleted. For a controller that is to see all
    /// objects, declare a second view type of the kind.
    pub fn informer<W: Resource>(
        mut self,
        adjust: impl FnOnce(informer::Builder<W>) -> informer::Builder<W> + Send + 'static,
    ) -> Manager {
        self.declarations.adjust::<W>(Box::new(adjust));
        self
    }

    /// Declares a controller of `V`.
    pub fn controller<V: Resource>(self) -> ControllerBuilder<V> {
        ControllerBuilder::new(self)
    }

    /// Runs all controllers until SIGTERM or SIGINT, and prints an error as one line. Return its result from `main`.
    pub async fn run(self) -> ExitCode {
        let name = self.client.identity.name();
        let ended = match Shutdown::from_signals() {
            Ok(shutdown) => self.run_until(shutdown).await,
            Err(error) => Err(Error::Signals(error)),
        };
        match ended {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("{name}: {}", client::one_line(&error.to_string()));
                ExitCode::FAILURE
            }
        }
    }

    /// Runs all controllers until `shutdown` is requested.
    ///
    /// # Errors
    /// [`Error::Wiring`] before anything starts; any other variant if the start failed or a part ended early.
    pub async fn run_until(self, shutdown: Shutdown) -> Result<(), Error> {
        self.check()?;
        let starting = async {
            let config = client::config(self.kubeconfig.as_deref(), None).await?;
            // Clients share credentials and connections.
            let first = Client::new(config, self.client.clone()).await?;
            self.program(|options| first.sibling(options)).await
        };
        // The start can take long, for example with a credential plugin.
        tokio::select! {
            program = starting => Ok(program?.run(shutdown).await?),
            () = shutdown.requested() => Ok(()),
        }
    }

    /// Returns the program that runs all controllers, so that tasks can be added. `connect` creates a client with
    /// the given options, for example over [`Client::from_service`] in a test.
    ///
    /// # Errors
    /// As [`Manager::run_until`].
    pub async fn program(
        self,
        connect: impl Fn(client::Options) -> Client,
    ) -> Result<Program, Error> {
        self.check()?;
        let host = self.instance.clone().unwrap_or_else(host_name);
        let identity = self.client.identity;
        let (election, gated) = self.election(&host, &connect)?;
        let client = connect(gated);
        let (recorder, sink) = events::new(identity, &host);
        let mut program = Program::new();
        #[cfg(feature = "metrics")]
        if let Some(serve) = &self.observed.serve {
            let reviews = || connect(self.client.clone());
            program = serve.add_to(program, reviews, &self.observed).await?;
        }
        let shared = Shared {
            client: client.clone(),
            recorder,
            namespaces: self.namespaces,
            options: self.defaults,
            lead: election.lead(),
            observed: self.observed,
        };
        let (informers, mut faults) = self.declarations.build(&shared, &mut program);
        for controller in self.controllers {
            let added = (controller.add)(&shared, &informers, program);
            program = added.unwrap_or_else(|fault| {
                faults.push(fault);
                Program::new()
            });
        }
        if !faults.is_empty() {
            return Err(Error::Wiring(faults));
        }
        for (name, task) in self.tasks {
            let client = client.clone();
            program = program.task(name, |stop| task(client, stop));
        }
        // The sink sends the last Events before the lease is released, because they require leadership.
        program = program.task("the sink of Events", |stop| async move {
            sink.run(client, stop.requested()).await;
        });
        Ok(election.after(program))
    }

    /// Removes the servers of [`Manager::serve`].
    #[cfg(feature = "testing")]
    #[cfg_attr(not(feature = "metrics"), expect(unused_mut, reason = "there are no servers"))]
    pub(crate) fn serving_nothing(mut self) -> Manager {
        #[cfg(feature = "metrics")]
        {
            self.observed.serve = None;
        }
        self
    }

    /// Returns every wiring fault that can be found without a client.
    fn check(&self) -> Result<(), Error> {
        let names: Vec<_> = self.controllers.iter().map(|controller| controller.name).collect();
        let mut faults = wiring::of_names(&names);
        let group = self.client.identity.group;
        if !group.is_empty() && !wiring::is_dns_name(group) {
            faults.push(WiringError(format!(
                "the program's group {group:?} is no DNS name, so that every Event would be refused: use one such as \
                 `Identity::new(\"website\", \"example.com\")`"
            )));
        }
        faults.extend(self.faults.iter().cloned());
        let read = self.controllers.iter().flat_map(|one| one.views.iter().copied()).collect();
        faults.extend(self.declarations.unread(&read));
        if faults.is_empty() { Ok(()) } else { Err(Error::Wiring(faults)) }
    }
}

impl std::fmt::Debug for Manager {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<_> = self.controllers.iter().map(|controller| controller.name).collect();
        f.debug_struct("Manager").field("controllers", &names).finish_non_exhaustive()
    }
}

// === impl Shared ===

impl Shared {
    fn parts(
        &self,
        controller: &'static str,
        informers: Arc<Informers>,
        declared: Arc<[TypeId]>,
        filters: Filters,
    ) -> ControllerDeps {
        ControllerDeps {
            controller,
            client: self.client.clone(),
            recorder: self.recorder.for_controller(controller),
            handle: Arc::default(),
            informers,
            declared,
            filters,
            lost_children: Arc::default(),
        }
    }
}

/// Returns the pod's name in a cluster, otherwise the machine's host name.
fn host_name() -> String {
    std::env::var("POD_NAME")
        .ok()
        .filter(|name| !name.is_empty())
        .unwrap_or_else(|| rustix::system::uname().nodename().to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests;
