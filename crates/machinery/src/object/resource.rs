//! Where a kind of object lives in the API.

use std::fmt::Debug;

use serde::de::DeserializeOwned;

use super::{Meta, ObjectKey, Owner, Uid};

/// Names of one kind of object, as the API server knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Kind {
    /// API group; empty for the core group.
    pub group: &'static str,
    /// API version, `v1`.
    pub version: &'static str,
    /// Kind, `Deployment`.
    pub kind: &'static str,
    /// Resource, `deployments`.
    pub plural: &'static str,
    /// Whether objects live in a namespace.
    pub namespaced: bool,
}

/// Anything with metadata: what a store can hold.
pub trait Object: Send + Sync + Debug + 'static {
    /// Which labels and annotations its metadata keeps.
    type Keep: 'static;

    /// The metadata.
    fn meta(&self) -> &Meta<Self::Keep>;

    /// Namespace and name.
    fn key(&self) -> &ObjectKey {
        &self.meta().key
    }

    /// Identity.
    fn uid(&self) -> Uid {
        self.meta().uid
    }
}

/// A view of one kind: what can be listed and watched. It decodes from the kind's JSON and skips
/// the fields it does not know.
pub trait Resource: Object + DeserializeOwned {
    /// The kind.
    const KIND: Kind;

    /// The owner reference that makes `self` the controller of a child.
    fn as_owner(&self) -> Owner {
        Owner {
            api_version: Self::KIND.api_version().into(),
            kind: Self::KIND.kind.into(),
            name: self.key().name().clone(),
            uid: self.uid(),
        }
    }
}

/// Makes a struct with a field `metadata: Meta` a view of a kind: [`Object`] and [`Resource`] in
/// one line. A view that keeps labels or annotations, or whose field has another name, says so:
/// `view!(Pod { meta: Meta<Labels> }: Kind::namespaced("", "v1", "Pod", "pods"))`.
///
/// ```
/// use controller_machinery::object::{Kind, Meta, Resource};
///
/// #[derive(Debug, serde::Deserialize)]
/// struct Pod {
///     metadata: Meta,
/// }
/// controller_machinery::view!(Pod: Kind::namespaced("", "v1", "Pod", "pods"));
///
/// assert_eq!(Pod::KIND.path(Some("shop")), "/api/v1/namespaces/shop/pods");
/// ```
#[macro_export]
macro_rules! view {
    ($view:ident: $kind:expr) => {
        $crate::view!($view { metadata: Meta<$crate::object::Nothing> }: $kind);
    };
    ($view:ident { $field:ident: Meta<$keep:ty> }: $kind:expr) => {
        impl $crate::object::Object for $view {
            type Keep = $keep;
            fn meta(&self) -> &$crate::object::Meta<$keep> {
                &self.$field
            }
        }

        impl $crate::object::Resource for $view {
            const KIND: $crate::object::Kind = $kind;
        }
    };
}

impl Kind {
    /// A kind whose objects live in namespaces. An empty group is the core group.
    pub const fn namespaced(
        group: &'static str,
        version: &'static str,
        kind: &'static str,
        plural: &'static str,
    ) -> Kind {
        Kind { group, version, kind, plural, namespaced: true }
    }

    /// Like [`Kind::namespaced`], for a kind whose objects have no namespace.
    pub const fn cluster_scoped(
        group: &'static str,
        version: &'static str,
        kind: &'static str,
        plural: &'static str,
    ) -> Kind {
        Kind { group, version, kind, plural, namespaced: false }
    }

    /// `group/version`, or `version` in the core group: the `apiVersion` field.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_owned()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// `plural.group`, as kubectl and RBAC errors name it: `deployments.apps`.
    pub fn resource(&self) -> String {
        if self.group.is_empty() {
            self.plural.to_owned()
        } else {
            format!("{}.{}", self.plural, self.group)
        }
    }

    /// URL path of the collection, in one namespace or in all.
    pub fn path(&self, namespace: Option<&str>) -> String {
        let root = if self.group.is_empty() { "/api" } else { "/apis" };
        let api_version = self.api_version();
        match namespace {
            Some(namespace) if self.namespaced => {
                format!("{root}/{api_version}/namespaces/{namespace}/{}", self.plural)
            }
            _ => format!("{root}/{api_version}/{}", self.plural),
        }
    }

    /// URL path of one object.
    pub fn object_path(&self, key: &ObjectKey) -> String {
        format!("{}/{}", self.path(Some(key.namespace())), key.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEPLOYMENT: Kind = Kind::namespaced("apps", "v1", "Deployment", "deployments");
    const NODE: Kind = Kind::cluster_scoped("", "v1", "Node", "nodes");

    #[test]
    fn paths_are_those_of_the_api() {
        assert_eq!(DEPLOYMENT.path(None), "/apis/apps/v1/deployments");
        let key = ObjectKey::new("ns", "a");
        assert_eq!(DEPLOYMENT.object_path(&key), "/apis/apps/v1/namespaces/ns/deployments/a");
        assert_eq!(NODE.object_path(&ObjectKey::new("", "n1")), "/api/v1/nodes/n1");
    }

    #[test]
    fn a_kind_is_named_as_kubectl_names_it() {
        assert_eq!(
            (DEPLOYMENT.resource(), NODE.resource()),
            ("deployments.apps".into(), "nodes".into())
        );
    }
}
