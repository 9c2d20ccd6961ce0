//! The builder of an informer.

use super::{BuildError, Informer};
use crate::client::{Client, Scope};
use crate::object::{InternedStr, Resource};
use crate::store::Index;

/// Builds an [`Informer`].
pub struct Builder<V> {
    pub(super) client: Client,
    pub(super) namespaces: Vec<InternedStr>,
    pub(super) labels: Option<String>,
    pub(super) fields: Option<String>,
    pub(super) metadata_only: bool,
    pub(super) indexes: Vec<Index<V>>,
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
        }
    }

    /// Selects only these namespaces. Each is listed and watched separately, so a Role in each is enough. An empty
    /// list (the default) means all namespaces, and cluster-scoped objects. [`Informer::run`] refuses namespaces for
    /// a cluster-scoped kind.
    pub fn namespaces(
        mut self,
        namespaces: impl IntoIterator<Item = impl Into<InternedStr>>,
    ) -> Self {
        self.namespaces = namespaces.into_iter().map(Into::into).collect();
        self.namespaces.sort();
        self.namespaces.dedup();
        self
    }

    /// Selects only objects that match this label selector.
    pub fn labels(mut self, selector: impl Into<String>) -> Self {
        self.labels = Some(selector.into());
        self
    }

    /// Selects only objects that match this field selector.
    pub fn fields(mut self, selector: impl Into<String>) -> Self {
        self.fields = Some(selector.into());
        self
    }

    /// Requests metadata only, for a view that needs nothing else. Not for [`Typed`](crate::object::Typed), whose types
    /// decode whole objects.
    pub fn metadata_only(mut self) -> Self {
        self.metadata_only = true;
        self
    }

    /// Adds an index. [`Informer::run`] refuses two with the same name, except [`Index::by_controller`] of the same
    /// kind, which is added once.
    pub fn index(mut self, index: Index<V>) -> Self {
        if !self.indexes.iter().any(|known| known.is_same(&index)) {
            self.indexes.push(index);
        }
        self
    }

    /// Builds the informer, which does nothing until [`Informer::run`].
    pub fn build(self) -> Informer<V> {
        Informer::from(self)
    }

    /// Returns why the informer cannot work, if so.
    pub(super) fn refused(&self) -> Option<BuildError> {
        let kind = V::kind();
        let resource = || kind.resource();
        if self.metadata_only && V::IS_WHOLE {
            return Some(BuildError::MetadataOfWhole { resource: resource() });
        }
        if !kind.namespaced && !self.namespaces.is_empty() {
            return Some(BuildError::ClusterScoped { resource: resource() });
        }
        let names: Vec<&InternedStr> = self.indexes.iter().map(Index::name).collect();
        let twice = names.iter().enumerate().find(|(at, name)| names[..*at].contains(name));
        twice.map(|(_, name)| BuildError::DuplicateIndex {
            resource: resource(),
            index: name.to_string(),
        })
    }

    /// Returns one scope per namespace, or a single one for all.
    pub(super) fn scopes(&self) -> Vec<Scope> {
        let metadata_only = self.metadata_only;
        let scope = |namespace| Scope {
            metadata_only,
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
