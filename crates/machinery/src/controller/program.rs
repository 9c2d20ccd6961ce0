//! The program: informers, controllers and other tasks.

use std::collections::HashSet;
use std::convert::Infallible;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, join_all, select_all};
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::worker::Chain;
use super::{Controller, Reconciler};
use crate::client::one_line;
use crate::informer::{Builder, Informer, message};
use crate::object::Resource;
use crate::shutdown::Shutdown;

/// Time limit of each stage of the shutdown after the controllers. The stages stop one after another; tasks that exceed
/// the limit are dropped. It is longer than the release of a Lease, which takes at most 6 s: 2 s for an unanswered
/// write, then two requests of 2 s each.
const LAST_STEPS: Duration = Duration::from_millis(6500);

/// A program of informers, controllers and other tasks.
///
/// - No reconcile of [`Program::controller`] begins before all informers have synced.
/// - Shutdown is ordered: controllers drain ([`Options::drain`](super::Options::drain)); then the tasks stop, one after
///   another in the order they were added; then the informers; then the outer tasks.
/// - If a part ends early, the program shuts down the rest in the same order and returns the error: a restart of the
///   process is better than running without the part.
/// ```no_run
/// # use controller_machinery::{controller::{Controller, Program, Reconciler}, informer::Builder};
/// # use controller_machinery::{object::Resource, shutdown::Shutdown, store::Store};
/// # async fn run<V: Resource, R: Reconciler>(
/// #     builder: Builder<V>, controller_of: impl Fn(Store<V>) -> Controller<R>,
/// # ) -> Result<(), Box<dyn std::error::Error>> {
/// let mut program = Program::new();
/// let things = program.informer(builder);
/// let program = program.controller(controller_of(things.store()));
/// program.run(Shutdown::from_signals()?).await?;
/// # Ok(()) }
/// ```
#[derive(Default)]
#[must_use = "a program does nothing until it runs"]
pub struct Program {
    informers: Vec<Task>,
    tasks: Vec<Task>,
    outer_tasks: Vec<Task>,
    controllers: Vec<Task>,
    /// Names of the controllers.
    names: Vec<&'static str>,
    /// One per informer: synced in all namespaces that it can list.
    synced: Vec<BoxFuture<'static, ()>>,
    /// One per informer: synced in all namespaces.
    synced_everywhere: Vec<BoxFuture<'static, ()>>,
    /// Cancelled when all informers have synced everywhere.
    ready: CancellationToken,
}

/// Reason why a [`Program`] ended before its shutdown.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProgramError {
    /// A task ended before the shutdown.
    #[error("{name} died: {why}")]
    Died {
        /// The task.
        name: String,
        /// Reason for its end.
        why: String,
    },
    /// Two controllers have the same name, so their metrics and Events would be indistinguishable.
    #[error("two controllers are called {0:?}: give each its own name in Controller::new")]
    SameName(&'static str),
}

/// An error that `main` can return. Rust prints its `Debug` form, which here is a sentence with the error and its
/// causes.
///
/// ```no_run
/// # use controller_machinery::{client, controller::ExitError};
/// #[tokio::main]
/// async fn main() -> Result<(), ExitError> {
///     let config = client::config(None, None).await?; // Error: cannot find a cluster: …
///     # drop(config);
///     Ok(())
/// }
/// ```
pub struct ExitError(String);

/// A task that runs until its stop is requested, with its name.
type Task = (String, Box<dyn FnOnce(Shutdown) -> BoxFuture<'static, Result<(), String>> + Send>);

/// Running tasks that end together when `stop` is requested.
struct Stage {
    running: JoinSet<(String, Result<(), String>)>,
    stop: Shutdown,
}

// === impl Program ===

impl Program {
    /// Creates an empty program.
    pub fn new() -> Program {
        Program::default()
    }

    /// Builds an informer that the program runs.
    pub fn informer<V: Resource>(&mut self, builder: Builder<V>) -> Informer<V> {
        let informer = builder.build();
        self.run_informer(&informer);
        informer
    }

    /// Adds an informer.
    pub(crate) fn run_informer<V: Resource>(&mut self, informer: &Informer<V>) {
        self.synced.push(informer.synced().boxed());
        self.synced_everywhere.push(informer.synced_everywhere().boxed());
        let name = format!("the informer of {}", V::kind().resource());
        let informer = informer.clone();
        let task = |stop| async move { informer.run(stop).await.map_err(|e| e.to_string()) };
        self.informers.push((name, Box::new(|stop| task(stop).boxed())));
    }

    /// Adds a controller, which starts when all informers have synced.
    pub fn controller<R: Reconciler>(self, controller: Controller<R>) -> Program {
        let ready = self.ready.clone();
        self.controller_run(controller.name(), |stop| async move {
            tokio::select! {
                biased;
                () = stop.requested() => {}
                () = ready.cancelled() => drop(controller.run(stop.requested()).await),
            }
        })
    }

    /// Adds a controller that `run` starts, for example when its own views have synced: it works even if another
    /// controller's kind cannot be listed.
    pub(crate) fn controller_run<T: Future<Output = ()> + Send + 'static>(
        mut self,
        name: &'static str,
        run: impl FnOnce(Shutdown) -> T + Send + 'static,
    ) -> Program {
        self.names.push(name);
        let task = Box::new(|stop| run(stop).map(Ok).boxed());
        self.controllers.push((format!("the controller of {name}"), task));
        self
    }

    /// Adds a task that controllers depend on, such as the sink of Events. It must end soon after its shutdown is
    /// requested, and not before. `name` appears in messages.
    pub fn task<T: Future<Output = ()> + Send + 'static>(
        mut self,
        name: impl Into<String>,
        task: impl FnOnce(Shutdown) -> T + Send + 'static,
    ) -> Program {
        self.tasks.push((name.into(), Box::new(|stop| task(stop).map(Ok).boxed())));
        self
    }

    /// Adds a task that runs until everything else has ended, such as a server of metrics. As with [`Program::task`],
    /// it must not end before its shutdown is requested.
    pub fn outer_task<T: Future<Output = ()> + Send + 'static>(
        mut self,
        name: impl Into<String>,
        task: impl FnOnce(Shutdown) -> T + Send + 'static,
    ) -> Program {
        self.outer_tasks.push((name.into(), Box::new(|stop| task(stop).map(Ok).boxed())));
        self
    }

    /// Runs until `shutdown` is requested and everything has ended or been dropped. Dropping the future drops
    /// everything.
    ///
    /// # Errors
    /// [`ProgramError::SameName`], before anything starts; [`ProgramError::Died`] if a task ended early. The latter
    /// requests `shutdown` and is returned after everything else has ended.
    pub async fn run(self, shutdown: Shutdown) -> Result<(), ProgramError> {
        let mut names = HashSet::new();
        if let Some(name) = self.names.iter().find(|name| !names.insert(**name)) {
            return Err(ProgramError::SameName(name));
        }
        let _pulse = pulse();
        let mut controllers = Stage::start(self.controllers, shutdown.clone());
        let mut others: Vec<Stage> =
            self.tasks.into_iter().map(|task| Stage::start([task], Shutdown::manual())).collect();
        others.push(Stage::start(self.informers, Shutdown::manual()));
        others.push(Stage::start(self.outer_tasks, Shutdown::manual()));

        let announce = async {
            join_all(self.synced).await;
            tracing::info!("Ready to work: all informers are synced, where the account can list");
            // A controller without a manager does not know which namespaces were listed.
            join_all(self.synced_everywhere).await;
            self.ready.cancel();
            std::future::pending::<Infallible>().await
        };
        let outcome = tokio::select! {
            // Checked first: an idle controller that ends because of the shutdown has not died.
            biased;
            () = shutdown.requested() => Ok(()),
            died = controllers.died() => Err(died),
            (died, ..) = select_all(others.iter_mut().map(|stage| stage.died().boxed())) => Err(died),
            never = announce => match never {},
        };
        controllers.end().await;
        for mut stage in others {
            if timeout(LAST_STEPS, stage.end()).await.is_err() {
                tracing::warn!("Not everything ended in {LAST_STEPS:?}: the rest is dropped");
            }
        }
        tracing::info!("Stopped");
        outcome
    }
}

opaque!(Program);

/// Spawns an empty task each second, until the result is dropped. If a reconcile blocks the thread that drives tokio's
/// timers and sockets, no idle thread takes this over: tokio wakes idle threads only for new tasks.
fn pulse() -> Option<Sender<()>> {
    let runtime = Handle::current();
    if runtime.runtime_flavor() == RuntimeFlavor::CurrentThread {
        return None;
    }
    let (alive, ended) = channel();
    std::thread::spawn(move || {
        while ended.recv_timeout(Duration::from_secs(1)) == Err(RecvTimeoutError::Timeout) {
            drop(runtime.spawn(std::future::ready(())));
        }
    });
    Some(alive)
}

// === impl ExitError ===

impl<E: std::error::Error> From<E> for ExitError {
    fn from(error: E) -> ExitError {
        ExitError(one_line(&Chain(&error).to_string()))
    }
}

impl fmt::Debug for ExitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for ExitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

// === impl Stage ===

impl Stage {
    fn start(tasks: impl IntoIterator<Item = Task>, stop: Shutdown) -> Stage {
        let mut running = JoinSet::new();
        for (name, task) in tasks {
            let stop = stop.clone();
            running.spawn(async move {
                // A panic is reported with the name of its task.
                let task = AssertUnwindSafe(async move { task(stop).await });
                let outcome = task
                    .catch_unwind()
                    .await
                    .unwrap_or_else(|panic| Err(format!("it panicked: {}", message(&*panic))));
                (name, outcome)
            });
        }
        Stage { running, stop }
    }

    /// Waits for a task that ends unexpectedly, and returns the reason.
    async fn died(&mut self) -> ProgramError {
        let Some(ended) = self.running.join_next().await else {
            return std::future::pending().await;
        };
        let (name, outcome) = ended.unwrap_or_else(|e| ("a task".to_owned(), Err(e.to_string())));
        ProgramError::Died { name, why: outcome.err().unwrap_or_else(|| "it ended".to_owned()) }
    }

    /// Stops all tasks and waits for their end.
    async fn end(&mut self) {
        self.stop.request();
        while let Some(ended) = self.running.join_next().await {
            if let Ok((name, Err(why))) = ended {
                tracing::warn!(task = name, why, "A task failed");
            }
        }
    }
}

#[cfg(test)]
mod tests;
