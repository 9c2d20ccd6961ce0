//! Informers, controllers and what they need beside them, run as one.

use std::fmt;
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, Shared, join_all};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::{Controller, Reconciler};
use crate::informer::Informer;
use crate::object::Resource;
use crate::shutdown::Shutdown;

/// What is not a controller gets so long to end, each group after the other.
const LAST_STEPS: Duration = Duration::from_secs(5);

/// Runs informers, controllers and what they need beside them as one.
///
/// - No pass begins before every informer knows its whole first list.
/// - Shutdown ends it in order: controllers drain ([`Options::drain`](super::Options::drain)), what
///   runs beside them ends when it has sent what they had to say, informers last.
/// - None of it may end before: what dies takes the rest with it, in the same order, and is the
///   error. A process that is restarted is better than one that is deaf.
///
/// ```no_run
/// # use workload_operator::{controller::{Controller, Program, Reconciler}, informer::Informer};
/// # use workload_operator::{object::Resource, shutdown::Shutdown};
/// # async fn run<V: Resource, R: Reconciler>(
/// #     things: Informer<V>, controller: Controller<R>,
/// # ) -> Result<(), Box<dyn std::error::Error>> {
/// let program = Program::new().informer(&things).controller(controller);
/// program.run(Shutdown::from_signals()?).await?;
/// # Ok(()) }
/// ```
#[derive(Default)]
#[must_use = "a program does nothing until it runs"]
pub struct Program {
    informers: Vec<Task>,
    beside: Vec<Task>,
    controllers: Vec<(&'static str, Work)>,
    /// One for each of `informers`.
    synced: Vec<BoxFuture<'static, ()>>,
}

/// A task of a [`Program`] ended before the shutdown.
#[derive(Debug, thiserror::Error)]
#[error("{name} died: {why}")]
pub struct Died {
    /// Which task.
    pub name: String,
    /// How.
    pub why: String,
}

/// What runs until it is asked to stop, by name.
type Task = (String, Box<dyn FnOnce(Shutdown) -> BoxFuture<'static, Result<(), String>> + Send>);
/// What works once it is ready, until it is asked to stop.
type Work = Box<dyn FnOnce(Ready, Shutdown) -> BoxFuture<'static, ()> + Send>;
/// All informers are synced.
type Ready = Shared<BoxFuture<'static, ()>>;
/// Tasks that run, and how they end.
type Running = JoinSet<Died>;

// === impl Program ===

impl Program {
    /// Nothing yet.
    pub fn new() -> Program {
        Program::default()
    }

    /// Runs this informer, too.
    pub fn informer<V: Resource>(mut self, informer: &Informer<V>) -> Program {
        let (run, synced) = (informer.clone(), informer.clone());
        self.synced.push(async move { synced.synced().await }.boxed());
        let task = |stop| async move { run.run(stop).await.map_err(|e| e.to_string()) }.boxed();
        let name = format!("the informer of {}", V::KIND.resource());
        self.informers.push((name, Box::new(task)));
        self
    }

    /// Runs this controller, too.
    pub fn controller<R: Reconciler>(mut self, controller: Controller<R>) -> Program {
        let name = controller.name();
        let work = |ready, stop: Shutdown| {
            async move {
                tokio::select! {
                    () = stop.requested() => {}
                    () = ready => drop(controller.run(stop.requested()).await),
                }
            }
            .boxed()
        };
        self.controllers.push((name, Box::new(work)));
        self
    }

    /// Runs `task`, which controllers lean on, too; it must end soon after the shutdown that it is
    /// given, and not before. `name` is for people. The sink of Events is such a task.
    pub fn beside<T>(
        mut self,
        name: impl Into<String>,
        task: impl FnOnce(Shutdown) -> T + Send + 'static,
    ) -> Program
    where
        T: Future<Output = ()> + Send + 'static,
    {
        let task = |stop| task(stop).map(Ok).boxed();
        self.beside.push((name.into(), Box::new(task)));
        self
    }

    /// Runs until `shutdown`, then until everything has ended.
    ///
    /// # Errors
    /// When a task died. `shutdown` is then requested, and everything has ended, too.
    pub async fn run(self, shutdown: Shutdown) -> Result<(), Died> {
        let (stop_informers, stop_beside) = (Shutdown::manual(), Shutdown::manual());
        let synced = join_all(self.synced);
        let ready: Ready = async move {
            synced.await;
            tracing::info!("Ready to work: all informers are synced");
        }
        .boxed()
        .shared();
        let controllers = self.controllers.into_iter().map(|(name, work)| -> Task {
            let ready = ready.clone();
            let task = |stop| work(ready, stop).map(Ok).boxed();
            (format!("the controller of {name}"), Box::new(task))
        });
        let mut informers = start(self.informers, &stop_informers);
        let mut beside = start(self.beside, &stop_beside);
        let mut controllers = start(controllers, &shutdown);
        let outcome = tokio::select! {
            // First: an idle controller ends as soon as it is asked to, and has not died then.
            biased;
            () = shutdown.requested() => Ok(()),
            Some(died) = next(&mut informers) => Err(died),
            Some(died) = next(&mut beside) => Err(died),
            Some(died) = next(&mut controllers) => Err(died),
        };
        shutdown.request();
        while next(&mut controllers).await.is_some() {}
        for (stop, mut tasks) in [(stop_beside, beside), (stop_informers, informers)] {
            stop.request();
            let ended = timeout(LAST_STEPS, async { while next(&mut tasks).await.is_some() {} });
            if ended.await.is_err() {
                tracing::warn!("Not everything ended in {LAST_STEPS:?}");
            }
        }
        tracing::info!("Stopped");
        outcome
    }
}

impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Program").finish_non_exhaustive()
    }
}

fn start(tasks: impl IntoIterator<Item = Task>, stop: &Shutdown) -> Running {
    let mut running = Running::new();
    for (name, task) in tasks {
        let ended = tokio::spawn(task(stop.clone()));
        running.spawn(async move {
            let why = match ended.await {
                Ok(Ok(())) => "it ended".to_owned(),
                Ok(Err(why)) => why,
                Err(panic) => panic.to_string(),
            };
            Died { name, why }
        });
    }
    running
}

/// The next of the tasks that ends; none if there are none left.
async fn next(running: &mut Running) -> Option<Died> {
    let ended = running.join_next().await?;
    Some(ended.unwrap_or_else(|e| Died { name: "a task".to_owned(), why: e.to_string() }))
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Arc;

    use parking_lot::Mutex;

    use super::*;
    use crate::controller::{Action, Class, Failure, Options};
    use crate::object::ObjectKey;

    /// A pass that takes until the shutdown, and a while after.
    struct Slow(Shutdown, Arc<Mutex<Vec<&'static str>>>);

    impl Failure for Infallible {
        fn class(&self) -> Class {
            match *self {}
        }
    }

    impl Reconciler for Slow {
        type Error = Infallible;
        async fn reconcile(&self, _: &ObjectKey) -> Result<Action, Infallible> {
            self.0.request();
            tokio::time::sleep(Duration::from_secs(1)).await;
            self.1.lock().push("pass");
            Ok(Action::Done)
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_runs_beside_is_asked_to_stop_when_the_last_pass_has_ended() {
        let (shutdown, told) = (Shutdown::manual(), Arc::default());
        let slow = Slow(shutdown.clone(), Arc::clone(&told));
        let controller = Controller::new("slow", slow, Options::default());
        controller.handle().queue().add(ObjectKey::new("ns", "a"));
        let beside = Arc::clone(&told);
        let program = Program::new().controller(controller).beside("a sink", |stop| async move {
            stop.requested().await;
            beside.lock().push("sink");
        });
        program.run(shutdown).await.unwrap();
        assert_eq!(*told.lock(), ["pass", "sink"]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_ends_before_it_may_ends_the_program_and_is_named() {
        let shutdown = Shutdown::manual();
        let program = Program::new()
            .beside("a sink", |_| async {})
            .beside("another", |stop| async move { stop.requested().await });
        let died = program.run(shutdown.clone()).await.unwrap_err();
        assert_eq!(died.to_string(), "a sink died: it ended");
        assert!(shutdown.is_requested());
    }

    #[tokio::test(start_paused = true)]
    async fn what_ends_because_it_was_asked_to_has_not_died() {
        // Whichever of the two were looked at first: often enough to meet both orders.
        for _ in 0..64 {
            let shutdown = Shutdown::manual();
            let (program, stop) = (Program::new(), shutdown.clone());
            let program = program.beside("a sink", |stop| async move { stop.requested().await });
            let slow = Slow(Shutdown::manual(), Arc::default());
            let program = program.controller(Controller::new("idle", slow, Options::default()));
            tokio::spawn(async move { stop.request() });
            program.run(shutdown).await.unwrap();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_does_not_stop_is_not_waited_for_for_ever() {
        let shutdown = Shutdown::manual();
        shutdown.request();
        let program = Program::new().beside("a rock", |_| std::future::pending());
        program.run(shutdown).await.unwrap();
    }
}
