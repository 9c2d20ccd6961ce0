//! The informer: a store, the reflectors that fill it, and the handlers that they call.

use std::future::Future;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::task::JoinSet;

use super::builder::Builder;
use super::handlers::Handlers;
use crate::client::Client;
use crate::object::{InternedStr, Kind, Resource};
use crate::reflector::{Health, HealthHandle, Reflector, Refresh, ResourceVersionRegressed, State};
use crate::shutdown::Shutdown;
use crate::store::{self, Delta, Store};

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

/// The reason why an informer cannot work as built.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// It has namespaces, but its kind is cluster-scoped.
    #[error(
        "the informer of {resource} is limited to namespaces, but the kind is cluster-scoped: \
         remove .namespaces(…), and select with .labels(…) or .fields(…) if need be"
    )]
    ClusterScoped {
        /// `nodes`.
        resource: String,
    },
    /// It requests metadata only, and its type decodes whole objects.
    #[error(
        "the informer of {resource} requests metadata only, but `Typed` decodes whole objects: declare a view, a \
         struct with `metadata: Meta<Everything>`, or remove .metadata_only()"
    )]
    MetadataOfWhole {
        /// `nodes`.
        resource: String,
    },
    /// Two of its indexes have the same name.
    #[error(
        "the informer of {resource} has two indexes named {index:?}, of which only one would be \
         found: give one of them another name, or remove it"
    )]
    DuplicateIndex {
        /// `deployments.apps`.
        resource: String,
        /// The name.
        index: String,
    },
}

/// Stores a local copy of one kind and reports changes to handlers. Cheap to clone; all clones are the same
/// informer.
pub struct Informer<V>(Arc<Shared<V>>);

struct Shared<V> {
    kind: Kind,
    store: Store<V>,
    handlers: Arc<Handlers<V>>,
    /// Stored until [`Informer::run`] takes them.
    reflectors: Mutex<Vec<Reflector<V>>>,
    /// The reason why it cannot work as built.
    refused: Option<BuildError>,
    health: Vec<(Option<InternedStr>, HealthHandle)>,
    refreshes: Vec<Refresh>,
}

impl<V> Clone for Informer<V> {
    fn clone(&self) -> Self {
        Informer(self.0.clone())
    }
}

impl<V: Resource> From<Builder<V>> for Informer<V> {
    fn from(builder: Builder<V>) -> Informer<V> {
        let handlers = Arc::new(Handlers::new());
        let kind = V::kind();
        let (refused, scopes) = (builder.refused(), builder.scopes());
        let mut stores = Vec::new();
        let (mut reflectors, mut health) = (Vec::new(), Vec::new());
        let mut refreshes = Vec::new();
        for scope in scopes {
            let (mut writer, store) = store::new(builder.indexes.clone());
            let notified = handlers.clone();
            writer.on_delta(move |delta, initial| notified.notify(delta, initial));
            let namespace = scope.namespace.clone();
            let reflector = Reflector::new(builder.client.clone(), scope, writer);
            stores.push((namespace.clone(), store));
            health.push((namespace, reflector.health()));
            refreshes.push(reflector.refresh());
            reflectors.push(reflector);
        }
        let reflectors = Mutex::new(reflectors);
        let store = as_one(stores);
        Informer(Arc::new(Shared { kind, store, handlers, reflectors, refused, health, refreshes }))
    }
}

/// Returns the store of all namespaces, or combines several.
fn as_one<V: Resource>(stores: Vec<(Option<InternedStr>, Store<V>)>) -> Store<V> {
    match stores.as_slice() {
        [(None, store)] => store.clone(),
        _ => {
            let parts =
                stores.into_iter().filter_map(|(namespace, store)| Some((namespace?, store)));
            Store::of_namespaces(parts).expect("there is at least one scope")
        }
    }
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

    /// The store of its objects.
    pub fn store(&self) -> Store<V> {
        self.0.store.clone()
    }

    /// Adds a handler. It is called for each change, in order, before the next change of the store. It must not
    /// block, add handlers, or write to a store. Controllers enqueue keys here. The flag is true for the initial
    /// list, and for objects stored when a handler is added late. Panics are caught and counted.
    pub fn handle(&self, handler: impl FnMut(&Delta<V>, bool) + Send + 'static) {
        self.0.store.paused(|held| {
            let present = held.into_iter().map(Delta::Added);
            self.0.handlers.add(handler, present);
        });
    }

    /// Returns whether every scope has completed its first list, and every handler of [`Informer::handle`] has
    /// received it. Once true, it stays true.
    pub fn has_synced(&self) -> bool {
        self.0.health.iter().all(|(_, health)| health.has_synced())
    }

    /// Waits until [`Informer::has_synced`] is true; indefinitely, if the informer ends before.
    pub fn synced(&self) -> impl Future<Output = ()> + Send + use<V> {
        let health: Vec<_> = self.0.health.iter().map(|(_, health)| health.clone()).collect();
        async move {
            for health in health {
                health.reached(|health| health.synced).await;
            }
        }
    }

    /// Returns whether the scope of a namespace has synced: its own scope, if there is one per namespace. Of several
    /// namespaces, one that can no longer be listed counts as not synced. The empty
    /// name means cluster-scoped objects, which concern every namespace that can be listed:
    /// [`Informer::synced_except_forbidden`].
    pub fn has_synced_in(&self, namespace: &str) -> bool {
        if namespace.is_empty() {
            return self.is_synced_except_forbidden();
        }
        let has_several = self.0.health.len() > 1;
        let is_for = |scope: &Option<InternedStr>| scope.as_ref().is_none_or(|it| *it == namespace);
        match self.0.health.iter().find(|(scope, _)| is_for(scope)) {
            Some((_, health)) => {
                let health = health.get();
                // A namespace that can no longer be listed is outdated.
                health.synced && !(has_several && health.state == State::Forbidden)
            }
            None => self.has_synced(),
        }
    }

    /// Waits until every namespace has synced. As soon as one has, namespaces that the account cannot list are not
    /// waited for (for example one that was deleted with its RoleBinding).
    pub fn synced_except_forbidden(&self) -> impl Future<Output = ()> + Send + use<V> {
        let informer = self.clone();
        let mut changes: Vec<_> =
            self.0.health.iter().map(|(_, health)| health.changes()).collect();
        async move {
            while !informer.is_synced_except_forbidden() {
                // `informer` keeps the senders, so this cannot fail.
                let changed = changes.iter_mut().map(|changes| Box::pin(changes.changed()));
                drop(futures::future::select_all(changed).await);
            }
        }
    }

    fn is_synced_except_forbidden(&self) -> bool {
        let states: Vec<Health> = self.0.health.iter().map(|(_, health)| health.get()).collect();
        let one_has = states.iter().any(|health| health.synced);
        let is_synced =
            |health: &Health| health.synced || one_has && health.state == State::Forbidden;
        self.has_synced() || states.iter().all(is_synced)
    }

    /// Lists the current state, and completes when it is stored and reported to the handlers. A new leader needs
    /// this, because its watches can lag behind the last leader's writes. One list serves all calls with the same or
    /// an earlier `term`.
    pub fn refresh(&self, term: u64) -> impl Future<Output = ()> + Send + use<V> {
        self.0.refreshes.iter().for_each(|refresh| refresh.request(term));
        let has_several = self.0.health.len() > 1;
        let listed = self.0.refreshes.iter().zip(&self.0.health).map(|(refresh, (_, health))| {
            let done = refresh.done(term);
            // A namespace that cannot be listed must not delay others. Nothing is reconciled in it
            // ([`Informer::has_synced_in`]).
            let excused =
                health.reached(move |health| has_several && health.state == State::Forbidden);
            async move {
                tokio::select! {
                    biased;
                    () = done => {}
                    () = excused => {}
                }
            }
        });
        let listed: Vec<_> = listed.collect();
        async move { drop(futures::future::join_all(listed).await) }
    }

    /// Returns why it cannot work as built, if so: [`Informer::run`] refuses it.
    pub fn refused(&self) -> Option<&BuildError> {
        self.0.refused.as_ref()
    }

    /// The health of its reflectors, by namespace (`None`: all).
    pub fn health(&self) -> Vec<(Option<InternedStr>, Health)> {
        self.0.health.iter().map(|(namespace, handle)| (namespace.clone(), handle.get())).collect()
    }

    /// Returns the number of panics of its handlers so far.
    pub fn handler_panics(&self) -> u64 {
        self.0.handlers.panics()
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
