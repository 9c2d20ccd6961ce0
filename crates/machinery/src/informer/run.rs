//! The informer: a store, the reflectors that fill it, and the handlers that they call.

use std::any::Any;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures::FutureExt;
use futures::future::{join_all, select, select_all};
use parking_lot::Mutex;
use tokio::task::JoinSet;

use super::builder::Builder;
use crate::client::Client;
use crate::object::{InternedStr, Resource};
use crate::reflector::{Health, HealthHandle, Reflector, Relist, ResourceVersionRegressed, State};
use crate::shutdown::Shutdown;
use crate::store::{self, Delta, DeltaHandler, Store};

/// The reason why an informer ended before shutdown.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// One of its tasks panicked. Its store goes stale, so the process should exit.
    #[error("the informer of {resource} died: {source}")]
    Died {
        /// `deployments.apps`.
        resource: String,
        /// The panic of the task.
        source: tokio::task::JoinError,
    },
    /// Its objects belong to a history that no longer exists. The process should restart.
    #[error("the informer of {resource} ended: {source}")]
    ResourceVersionRegressed {
        /// `deployments.apps`.
        resource: String,
        /// The conflicting versions.
        source: ResourceVersionRegressed,
    },
    /// It cannot work as built.
    #[error(transparent)]
    Refused(#[from] BuildError),
    /// It can run only once.
    #[error("the informer of {resource} has run already")]
    HasRun {
        /// `deployments.apps`.
        resource: String,
    },
}

/// The reason why an informer cannot work as built, as a sentence.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the informer of {0}")]
pub struct BuildError(pub(super) String);

/// Stores a local copy of one kind and reports changes to handlers. Cheap to clone; all clones are the same
/// informer.
pub struct Informer<V>(Arc<Shared<V>>);

struct Shared<V> {
    store: Store<V>,
    handlers: Arc<Handlers<V>>,
    /// Stored until [`Informer::run`] takes them.
    reflectors: Mutex<Vec<Reflector<V>>>,
    /// The reason why it cannot work as built.
    refused: Option<BuildError>,
    /// By namespace; `None`: all.
    scopes: Vec<(Option<InternedStr>, HealthHandle, Relist)>,
}

impl<V> Clone for Informer<V> {
    fn clone(&self) -> Self {
        Informer(self.0.clone())
    }
}

opaque!(Informer<V>);

// === impl Builder ===

impl<V: Resource> Builder<V> {
    /// Builds the informer, which does nothing until [`Informer::run`].
    pub fn build(self) -> Informer<V> {
        let handlers = Arc::new(Handlers::new());
        let (mut stores, mut scopes, mut reflectors) = (Vec::new(), Vec::new(), Vec::new());
        for scope in self.scopes() {
            let (mut writer, store) = store::new(self.indexes.clone());
            let (notified, namespace) = (handlers.clone(), scope.namespace.clone());
            writer.on_delta(move |delta, initial| notified.notify(delta, initial));
            let reflector = Reflector::new(self.client.clone(), scope, writer);
            stores.push((namespace.clone(), store));
            scopes.push((namespace, reflector.health(), reflector.relist()));
            reflectors.push(reflector);
        }
        Informer(Arc::new(Shared {
            store: Store::of_namespaces(stores),
            handlers,
            reflectors: Mutex::new(reflectors),
            refused: self.refused(),
            scopes,
        }))
    }
}

impl<V: Resource> Informer<V> {
    /// Starts building an informer of `V`.
    pub fn builder(client: Client) -> Builder<V> {
        Builder::new(client)
    }

    /// The store of its objects.
    pub fn store(&self) -> Store<V> {
        self.0.store.clone()
    }

    /// Adds a handler. It is called for each change, in order, before the next change of the store. It must not
    /// block, add handlers, or write to a store. Controllers enqueue keys here. The flag is true for the initial
    /// list, and for objects stored when a handler is added late. Panics are caught and counted.
    pub fn handle(&self, handler: impl FnMut(&Delta<V>, bool) + Send + 'static) {
        self.0.store.with_writes_blocked(|held| {
            let present = held.into_iter().map(Delta::Added);
            self.0.handlers.add(handler, present);
        });
    }

    /// Returns whether every scope has completed its first list, and every handler of [`Informer::handle`] has
    /// received it. Once true, it stays true.
    pub fn has_synced(&self) -> bool {
        self.0.scopes.iter().all(|(_, health, _)| health.has_synced())
    }

    /// Completes when every scope has synced, also those that the account cannot list.
    pub(crate) fn synced_everywhere(&self) -> impl Future<Output = ()> + Send + use<V> {
        let all = self.0.scopes.iter().map(|(_, health, _)| health.reached(|it| it.synced));
        join_all(all).map(drop)
    }

    /// Completes when every scope has synced; never, if the informer ends before. As soon as one has, namespaces that
    /// the account cannot list are not waited for (for example one that was deleted with its RoleBinding).
    pub fn synced(&self) -> impl Future<Output = ()> + Send + use<V> {
        let first =
            self.0.scopes.iter().map(|(_, health, _)| health.reached(|it| it.synced).boxed());
        let first = select_all(first);
        let excused = |health: &Health| health.synced || health.state == State::Forbidden;
        let all = join_all(self.0.scopes.iter().map(|(_, health, _)| health.reached(excused)));
        async move {
            first.await;
            all.await;
        }
    }

    /// Returns whether the scope of a namespace has synced: its own scope, if there is one per namespace. Of several
    /// namespaces, one that can no longer be listed counts as not synced. The empty name means cluster-scoped objects,
    /// which concern every namespace that can be listed: see [`Informer::synced`].
    pub fn has_synced_in(&self, namespace: &str) -> bool {
        let scopes = &self.0.scopes;
        let is_forbidden = |health: &HealthHandle| health.get().state == State::Forbidden;
        if namespace.is_empty() {
            let one_has = scopes.iter().any(|(_, health, _)| health.has_synced());
            let is_ready =
                |health: &HealthHandle| health.has_synced() || one_has && is_forbidden(health);
            return scopes.iter().all(|(_, health, _)| is_ready(health));
        }
        let is_for = |scope: &Option<InternedStr>| scope.as_ref().is_none_or(|it| *it == namespace);
        match scopes.iter().find(|(scope, ..)| is_for(scope)) {
            // A namespace that can no longer be listed is outdated.
            Some((_, health, _)) => {
                health.has_synced() && !(scopes.len() > 1 && is_forbidden(health))
            }
            None => self.has_synced(),
        }
    }

    /// Lists the current state, and completes when it is stored and reported to the handlers. A new leader needs
    /// this, because its watches can lag behind the last leader's writes. One list serves all calls with the same or
    /// an earlier `term`.
    pub fn refresh(&self, term: u64) -> impl Future<Output = ()> + Send + use<V> {
        let has_several = self.0.scopes.len() > 1;
        let listed = self.0.scopes.iter().map(|(_, health, relist)| {
            relist.request(term);
            // A namespace that cannot be listed must not delay others. Nothing is reconciled in it
            // ([`Informer::has_synced_in`]).
            let excused =
                health.reached(move |health| has_several && health.state == State::Forbidden);
            select(relist.done(term).boxed(), excused.boxed())
        });
        join_all(listed).map(drop)
    }

    /// Returns why it cannot work as built, if so: [`Informer::run`] refuses it.
    pub fn refused(&self) -> Option<&BuildError> {
        self.0.refused.as_ref()
    }

    /// The health of its reflectors, by namespace (`None`: all).
    pub fn health(&self) -> Vec<(Option<InternedStr>, Health)> {
        let scopes = self.0.scopes.iter();
        scopes.map(|(namespace, health, _)| (namespace.clone(), health.get())).collect()
    }

    /// Returns the number of panics of its handlers so far.
    pub fn handler_panics(&self) -> u64 {
        self.0.handlers.panics.load(Ordering::Relaxed)
    }

    /// Lists and watches until shutdown. Dropping the future stops everything.
    ///
    /// # Errors
    /// If one of its tasks panicked ([`State::Dead`](crate::reflector::State::Dead)), after the others have stopped;
    /// if the API server's data went back in time; if it cannot work as built; if it has run before.
    pub async fn run(&self, shutdown: Shutdown) -> Result<(), Error> {
        if let Some(refusal) = &self.0.refused {
            return Err(refusal.clone().into());
        }
        let resource = || V::kind().resource();
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
        while let Some(ended) = tasks.join_next().await {
            let error = match ended {
                Ok(Ok(())) => continue,
                Ok(Err(source)) => Error::ResourceVersionRegressed { resource: resource(), source },
                Err(source) => Error::Died { resource: resource(), source },
            };
            stop.request();
            died = Err(error);
        }
        self.0.handlers.clear();
        died
    }
}

/// The handlers of an informer, which can have several stores.
struct Handlers<V> {
    all: Mutex<Vec<DeltaHandler<V>>>,
    panics: AtomicU64,
}

// === impl Handlers ===

impl<V> Handlers<V> {
    fn new() -> Handlers<V> {
        Handlers { all: Mutex::default(), panics: AtomicU64::new(0) }
    }

    /// Removes all handlers. They can hold the store, which holds them.
    fn clear(&self) {
        let all = std::mem::take(&mut *self.all.lock());
        drop(all);
    }

    /// Notifies all handlers.
    fn notify(&self, delta: &Delta<V>, initial: bool) {
        for handler in self.all.lock().iter_mut() {
            self.call(handler, delta, initial);
        }
    }

    /// Adds a handler, and calls it with `present` first.
    fn add(
        &self,
        handler: impl FnMut(&Delta<V>, bool) + Send + 'static,
        present: impl Iterator<Item = Delta<V>>,
    ) {
        let mut handler: DeltaHandler<V> = Box::new(handler);
        for delta in present {
            self.call(&mut handler, &delta, true);
        }
        self.all.lock().push(handler);
    }

    /// Calls a handler even if it has panicked before: its state can be wrong, but no other change must go
    /// unreported.
    fn call(&self, handler: &mut DeltaHandler<V>, delta: &Delta<V>, initial: bool) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| handler(delta, initial))) {
            self.panics.fetch_add(1, Ordering::Relaxed);
            tracing::error!("a handler panicked: {}", message(&*panic));
        }
    }
}

/// Returns the message of a panic.
pub(crate) fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::Options;
    use crate::object::{Kind, Meta};
    use crate::store::Index;

    #[derive(Debug, serde::Deserialize)]
    struct Node {
        metadata: Meta,
    }
    crate::view!(Node: Kind::cluster_scoped("", "v1", "Node", "nodes"));

    /// A client whose API server is never asked.
    fn client() -> Client {
        type Answer = Result<http::Response<String>, std::io::Error>;
        let service = tower::service_fn(|_| std::future::pending::<Answer>());
        Client::from_service(service, Options::default())
    }

    fn builder() -> Builder<Node> {
        Informer::builder(client())
    }

    async fn refusal(builder: Builder<Node>) -> String {
        let informer = builder.build();
        let first = informer.run(Shutdown::manual()).await.expect_err("it is wired wrongly");
        let again = informer.run(Shutdown::manual()).await.expect_err("it still is");
        assert_eq!(first.to_string(), again.to_string());
        first.to_string()
    }

    #[tokio::test]
    async fn namespaces_of_a_cluster_scoped_kind_are_refused_with_what_to_do() {
        let refusal = refusal(builder().namespaces(["a", "b"])).await;
        assert!(refusal.contains("nodes") && refusal.contains(".namespaces("), "{refusal}");
    }

    #[tokio::test]
    async fn two_indexes_of_one_name_are_refused() {
        let index =
            || Index::new("name", |node: &Node, each| each(node.metadata.key.name().clone()));
        let refusal = refusal(builder().index(index()).index(index())).await;
        assert!(refusal.contains("nodes") && refusal.contains("\"name\""), "{refusal}");
    }

    #[test]
    fn an_index_by_controller_is_added_once() {
        let index = Index::by_controller::<Node>;
        assert!(builder().index(index()).index(index()).refused().is_none());
    }
}
