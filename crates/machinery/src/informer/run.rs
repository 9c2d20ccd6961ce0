//! The informer: a store, the reflectors that fill it, and the handlers that they call.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::builder::Builder;
use super::handlers::{Handlers, Subscription};
use crate::client::{Client, Feed, Feeds};
use crate::object::{Kind, Resource, Text};
use crate::reflector::{Health, HealthHandle, Reflector, Rewound, Sink};
use crate::shutdown::Shutdown;
use crate::store::{self, Delta, Index, Origin, Store, Writer};

/// Why an informer ended before the shutdown.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// One of its tasks panicked. What it holds goes stale, so the process should exit.
    #[error("the informer of {resource} died: {source}")]
    Died {
        /// `deployments.apps`.
        resource: String,
        /// How it died.
        source: tokio::task::JoinError,
    },
    /// What it holds is from a history that no longer exists. The process should restart.
    #[error("the informer of {resource} ended: {source}")]
    Rewound {
        /// `deployments.apps`.
        resource: String,
        /// How this was detected.
        source: Rewound,
    },
    /// It can run only once.
    #[error("the informer of {resource} has run already")]
    HasRun {
        /// `deployments.apps`.
        resource: String,
    },
}

/// Keeps a local copy of one kind and tells handlers about changes. Cheap to clone; all clones are
/// the same informer.
pub struct Informer<V>(Arc<Shared<V>>);

struct Shared<V> {
    kind: Kind,
    store: Store<V>,
    /// One per scope. Its reflector locks it from a change to the store until all handlers have
    /// been told about it. All are locked while a handler is added, so it sees each object once.
    writers: Vec<Arc<Mutex<Writer<V>>>>,
    handlers: Arc<Handlers<V>>,
    /// Here until [`Informer::run`] takes them.
    reflectors: Mutex<Vec<Reflector<V, Told<V>>>>,
    health: Vec<(Option<Text>, HealthHandle)>,
    /// How many first lists are still to come.
    unsynced: watch::Receiver<usize>,
    resync: Option<Duration>,
    /// What a program knows of it, and of the client's other informers.
    feed: Arc<Feed>,
    feeds: Arc<Feeds>,
}

/// Tells the handlers what a reflector has changed.
pub(super) struct Told<V> {
    handlers: Arc<Handlers<V>>,
    unsynced: Arc<watch::Sender<usize>>,
}

impl<V: Resource> Sink<V> for Told<V> {
    fn told(&mut self, delta: Delta<V>, initial: bool) {
        self.handlers.tell(&delta, initial);
    }

    fn synced(&mut self) {
        let mut all = false;
        self.unsynced.send_modify(|left| {
            *left -= 1;
            all = *left == 0;
        });
        // Not inside the closure: a handler that is being called may read `unsynced`.
        if all {
            self.handlers.synced();
        }
    }
}

impl<V> Clone for Informer<V> {
    fn clone(&self) -> Self {
        Informer(self.0.clone())
    }
}

impl<V: Resource> From<Builder<V>> for Informer<V> {
    fn from(builder: Builder<V>) -> Informer<V> {
        let handlers = Arc::new(Handlers::new());
        let feeds = builder.client.feeds().clone();
        let kind = builder.client.kind::<V>();
        let feed = feeds.add(kind.resource());
        if builder.detached {
            feed.run();
        }
        let scopes = builder.scopes();
        let (sender, unsynced) = watch::channel(scopes.len());
        let sender = Arc::new(sender);
        let (mut stores, mut writers) = (Vec::new(), Vec::new());
        let (mut reflectors, mut health) = (Vec::new(), Vec::new());
        for scope in scopes {
            let index = |index: &Index<V>| Index { name: index.name, values: index.values };
            let (writer, store) = store::new(builder.indexes.iter().map(index).collect());
            let writer = Arc::new(Mutex::new(writer));
            let namespace = scope.namespace.clone();
            let told = Told { handlers: handlers.clone(), unsynced: sender.clone() };
            let reflector = Reflector::new(
                builder.client.clone(),
                scope,
                builder.metadata_only,
                writer.clone(),
                told,
                builder.observer.clone(),
            );
            writers.push(writer);
            stores.push((namespace.clone(), store));
            health.push((namespace, reflector.health()));
            reflectors.push(reflector);
        }
        let (reflectors, resync) = (Mutex::new(reflectors), builder.resync);
        let store = as_one(stores);
        Informer(Arc::new(Shared {
            kind,
            store,
            writers,
            handlers,
            reflectors,
            health,
            unsynced,
            resync,
            feed,
            feeds,
        }))
    }
}

/// The store of all namespaces, or one made from several.
fn as_one<V: Resource>(stores: Vec<(Option<Text>, Store<V>)>) -> Store<V> {
    match stores.as_slice() {
        [(None, store)] => store.clone(),
        _ => {
            let parts =
                stores.into_iter().filter_map(|(namespace, store)| Some((namespace?, store)));
            Store::of_namespaces(parts).expect("there is at least one scope")
        }
    }
}

/// What a new handler is told first, as adds.
fn present<V: Resource>(
    writers: &mut [MutexGuard<'_, Writer<V>>],
) -> impl Iterator<Item = Delta<V>> + use<V> {
    let told: Vec<_> = writers.iter_mut().flat_map(|writer| writer.introduce()).collect();
    told.into_iter().map(|object| Delta::Added(object, Origin::Server))
}

impl<V: Resource> Informer<V> {
    /// Starts building an informer of `V`.
    pub fn builder(client: Client) -> Builder<V> {
        Builder::new(client)
    }

    /// The kind.
    pub fn kind(&self) -> Kind {
        self.0.kind
    }

    /// The store to read what is held from.
    pub fn store(&self) -> Store<V> {
        self.0.feed.read();
        self.0.store.clone()
    }

    /// Adds a handler that is called in the reflector's task, in order, before anything else
    /// happens there: it must neither block nor add handlers. Controllers put keys into their queue
    /// here. The flag is true for what was there before: the initial list, the objects that the
    /// others were told about (for a handler added late), and every resync. If the handler panics,
    /// the panic is caught and counted.
    pub fn handle(&self, handler: impl FnMut(&Delta<V>, bool) + Send + 'static) {
        self.0.feed.read();
        let mut still = self.still();
        self.0.handlers.inline(handler, present(&mut still));
    }

    /// Adds a handler with a task of its own, which may take its time: changes to one object are
    /// merged in the meantime. The flag and panics are as in [`Informer::handle`]. Must be called
    /// within a tokio runtime.
    pub fn subscribe<F, D>(&self, handler: F) -> Subscription<V>
    where
        F: FnMut(Delta<V>, bool) -> D + Send + 'static,
        D: Future<Output = ()> + Send,
    {
        self.0.feed.read();
        let mut still = self.still();
        self.0.handlers.subscribe(handler, present(&mut still))
    }

    /// A program is going to run it. Returns what is known of all informers of its client.
    pub(crate) fn will_run(&self) -> Arc<Feeds> {
        self.0.feed.run();
        self.0.feeds.clone()
    }

    /// Nothing is written or reported while this is held. Writers are always locked in the same
    /// order.
    fn still(&self) -> Vec<MutexGuard<'_, Writer<V>>> {
        self.0.writers.iter().map(|writer| writer.lock()).collect()
    }

    /// Whether every scope has had its first complete list, and every handler added with
    /// [`Informer::handle`] was told all of it. Once true, it stays true.
    pub fn has_synced(&self) -> bool {
        *self.0.unsynced.borrow() == 0
    }

    /// Waits until [`Informer::has_synced`] is true; forever, if the informer ends before.
    pub fn synced(&self) -> impl Future<Output = ()> + Send + use<V> {
        let mut unsynced = self.0.unsynced.clone();
        async move {
            if unsynced.wait_for(|left| *left == 0).await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// The health of its reflectors, by namespace (`None`: all).
    pub fn health(&self) -> Vec<(Option<Text>, Health)> {
        self.0.health.iter().map(|(namespace, handle)| (namespace.clone(), handle.get())).collect()
    }

    /// How often its handlers have panicked so far.
    pub fn handler_panics(&self) -> u64 {
        self.0.handlers.panics()
    }

    /// Lists and watches until the shutdown. Dropping the future stops everything.
    ///
    /// # Errors
    /// If one of its tasks panicked ([`State::Dead`](crate::reflector::State::Dead)), once the
    /// others have stopped; if the API server's data went back in time; if it has run before.
    pub async fn run(&self, shutdown: Shutdown) -> Result<(), Error> {
        self.0.feed.run();
        let resource = || self.kind().resource();
        let reflectors = std::mem::take(&mut *self.0.reflectors.lock());
        if reflectors.is_empty() {
            return Err(Error::HasRun { resource: resource() });
        }
        let stop = shutdown.child();
        let mut tasks = JoinSet::new();
        for reflector in reflectors {
            tasks.spawn(reflector.run(stop.clone()));
        }
        let mut died = Ok(());
        loop {
            tokio::select! {
                ended = tasks.join_next() => match ended {
                    None => return died,
                    Some(Ok(Ok(()))) => {}
                    Some(Ok(Err(source))) => {
                        stop.request();
                        died = Err(Error::Rewound { resource: resource(), source });
                    }
                    Some(Err(source)) => {
                        stop.request();
                        died = Err(Error::Died { resource: resource(), source });
                    }
                },
                () = self.resync() => {}
            }
        }
    }

    /// Waits until a resync is due and does it.
    async fn resync(&self) {
        let Some(every) = self.0.resync else { return std::future::pending().await };
        // The jitter makes replicas and kinds drift apart.
        tokio::time::sleep(every + every.mul_f64(fastrand::f64() / 10.0)).await;
        let still = self.still();
        for object in still.iter().flat_map(|writer| writer.told()) {
            let (old, new) = (object.clone(), object);
            self.0.handlers.tell(&Delta::Updated { old, new, origin: Origin::Server }, true);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;
    use crate::object::fixtures::Thing;
    use crate::object::{Meta, ObjectKey};

    #[test]
    fn a_handler_may_ask_whether_all_is_synced_while_the_last_of_several_lists_ends() {
        let (sender, unsynced) = watch::channel(1);
        let (handlers, (entered, enters)) = (Arc::new(Handlers::new()), mpsc::channel());
        let asks = move |_: &Delta<Thing>, _| {
            entered.send(()).unwrap();
            while *unsynced.borrow() > 0 {
                thread::yield_now();
            }
        };
        handlers.inline(asks, std::iter::empty());
        let mut told = Told { handlers: handlers.clone(), unsynced: Arc::new(sender) };
        let (done, ends) = mpsc::channel();
        let also_done = done.clone();
        thread::spawn(move || {
            let meta = Meta::named(ObjectKey::new("ns", "it"));
            let object = Arc::new(Thing { meta });
            handlers.tell(&Delta::Added(object, Origin::Server), true);
            done.send(()).unwrap();
        });
        enters.recv().unwrap();
        thread::spawn(move || {
            told.synced();
            also_done.send(()).unwrap();
        });
        for _ in 0..2 {
            ends.recv_timeout(Duration::from_secs(20)).expect("neither waits for the other");
        }
    }
}
