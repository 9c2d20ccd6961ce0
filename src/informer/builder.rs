//! What an informer is made of.

use std::sync::Arc;
use std::time::Duration;

use super::Informer;
use crate::client::{Client, Scope};
use crate::object::{Resource, Text};
use crate::reflector::{Observer, Unobserved};
use crate::store::Index;

/// Resyncs closer together than this would be a loop; as client-go.
const SHORTEST_RESYNC: Duration = Duration::from_secs(1);

/// Makes an [`Informer`].
pub struct Builder<V> {
    pub(super) client: Client,
    pub(super) namespaces: Vec<Text>,
    pub(super) labels: Option<String>,
    pub(super) fields: Option<String>,
    pub(super) metadata_only: bool,
    pub(super) indexes: Vec<Index<V>>,
    pub(super) resync: Option<Duration>,
    pub(super) observer: Arc<dyn Observer>,
}

impl<V: Resource> Builder<V> {
    pub(super) fn new(client: Client) -> Builder<V> {
        Builder {
            client,
            namespaces: Vec::new(),
            labels: None,
            fields: None,
            metadata_only: false,
            indexes: Vec::new(),
            resync: None,
            observer: Arc::new(Unobserved),
        }
    }

    /// Only these namespaces, each listed and watched by itself: a Role in each is enough. None
    /// (the default) means all, and cluster-scoped objects.
    pub fn namespaces(mut self, namespaces: impl IntoIterator<Item = impl Into<Text>>) -> Self {
        self.namespaces = namespaces.into_iter().map(Into::into).collect();
        self.namespaces.sort();
        self.namespaces.dedup();
        self
    }

    /// Only objects that this label selector takes.
    pub fn labels(mut self, selector: impl Into<String>) -> Self {
        self.labels = Some(selector.into());
        self
    }

    /// Only objects that this field selector takes.
    pub fn fields(mut self, selector: impl Into<String>) -> Self {
        self.fields = Some(selector.into());
        self
    }

    /// Asks the API server for metadata alone, for a view that needs no more.
    pub fn metadata_only(mut self) -> Self {
        self.metadata_only = true;
        self
    }

    /// One more way to find objects.
    pub fn index(mut self, index: Index<V>) -> Self {
        self.indexes.push(index);
        self
    }

    /// Tells the handlers of every object again, as an update from itself to itself, about so
    /// often (at least a second, and up to a tenth later). Off by default: nothing is read from
    /// the server, so it only helps handlers that forget.
    pub fn resync(mut self, every: Duration) -> Self {
        self.resync = Some(every.max(SHORTEST_RESYNC));
        self
    }

    /// Who counts lists, watches and errors.
    pub fn observer(mut self, observer: Arc<dyn Observer>) -> Self {
        self.observer = observer;
        self
    }

    /// The informer, which does nothing before [`Informer::run`].
    pub fn build(self) -> Informer<V> {
        Informer::from(self)
    }

    /// One per namespace, or one for all.
    pub(super) fn scopes(&self) -> Vec<Scope> {
        let scope = |namespace| Scope {
            namespace,
            labels: self.labels.clone(),
            fields: self.fields.clone(),
        };
        if self.namespaces.is_empty() {
            return vec![scope(None)];
        }
        self.namespaces.iter().cloned().map(|namespace| scope(Some(namespace))).collect()
    }
}
