//! The builder of an informer.

use super::BuildError;
#[cfg(doc)]
use super::Informer;
use crate::client::{Client, Scope};
use crate::object::{InternedStr, Resource};
use crate::store::Index;

/// Builds an [`Informer`].
pub struct Builder<V> {
    pub(super) client: Client,
    namespaces: Vec<InternedStr>,
    /// The scope in each namespace.
    scope: Scope,
    pub(super) indexes: Vec<Index<V>>,
}

opaque!(Builder<V>);

impl<V: Resource> Builder<V> {
    pub(super) fn new(client: Client) -> Builder<V> {
        Builder { client, namespaces: Vec::new(), scope: Scope::default(), indexes: Vec::new() }
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
        self.scope.labels = Some(selector.into());
        self
    }

    /// Selects only objects that match this field selector.
    pub fn fields(mut self, selector: impl Into<String>) -> Self {
        self.scope.fields = Some(selector.into());
        self
    }

    /// Requests metadata only, for a view that needs nothing else. Not for [`Typed`](crate::object::Typed), whose types
    /// decode whole objects.
    pub fn metadata_only(mut self) -> Self {
        self.scope.metadata_only = true;
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

    /// Returns why the informer cannot work, if so.
    pub(super) fn refused(&self) -> Option<BuildError> {
        let names: Vec<&InternedStr> = self.indexes.iter().map(Index::name).collect();
        let mut twice = names.iter().enumerate().filter(|(at, name)| names[..*at].contains(name));
        let resource = V::kind().resource();
        let why = if self.scope.metadata_only && V::IS_WHOLE {
            "requests metadata only, but `Typed` decodes whole objects: declare a view, a struct with `metadata: \
             Meta<AllMetadata>`, or remove .metadata_only()"
                .to_owned()
        } else if !V::kind().namespaced && !self.namespaces.is_empty() {
            "is limited to namespaces, but the kind is cluster-scoped: remove .namespaces(…), and select with \
             .labels(…) or .fields(…) if need be"
                .to_owned()
        } else {
            let (_, name) = twice.next()?;
            format!(
                "has two indexes named {:?}, of which only one would be found: give one of them another name, or \
                 remove it",
                name.as_str()
            )
        };
        Some(BuildError(format!("{resource} {why}")))
    }

    /// Returns one scope per namespace, or a single one for all.
    pub(super) fn scopes(&self) -> Vec<Scope> {
        if self.namespaces.is_empty() {
            return vec![self.scope.clone()];
        }
        let namespaces = self.namespaces.iter().cloned().map(Some);
        namespaces.map(|namespace| Scope { namespace, ..self.scope.clone() }).collect()
    }
}
