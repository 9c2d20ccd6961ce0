//! Place of a kind of object in the API.

use std::fmt::Debug;

use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{Everything, Keep, Meta, ObjectKey, Owner, Uid};

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
    /// True if objects live in a namespace.
    pub namespaced: bool,
}

/// Anything with metadata: what a store can hold.
pub trait Object: Send + Sync + Debug + 'static {
    /// Which labels and annotations its metadata keeps.
    type Keep: Keep;

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
        Self::KIND.owner(self)
    }
}

/// A view of a kind that is known only when the program runs, with all of the object as JSON. Any
/// view whose kind is [`Kind::RUNTIME`] is such a view; one that has only the fields that are read
/// takes less memory.
///
/// Its client says of which kind it is: [`Client::of`](crate::client::Client::of).
#[derive(Debug, Serialize, Deserialize)]
pub struct Dynamic {
    /// The metadata.
    pub metadata: Meta<Everything>,
    /// Everything else, `spec` and `status` among it.
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

crate::view!(Dynamic { metadata: Meta<Everything> }: Kind::RUNTIME);

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
    /// The kind of a view whose kind is known only when the program runs: see [`Dynamic`].
    pub const RUNTIME: Kind = Kind::namespaced("", "", "", "");

    /// A kind from names that are known only when the program runs, such as those that
    /// [`Client::discover`](crate::client::Client::discover) finds. Each distinct name takes memory
    /// for as long as the process runs.
    pub fn named(group: &str, version: &str, kind: &str, plural: &str, namespaced: bool) -> Kind {
        let [group, version, kind, plural] = [group, version, kind, plural].map(forever);
        Kind { group, version, kind, plural, namespaced }
    }

    /// The owner reference that makes `object`, which is of this kind, the controller of a child.
    pub fn owner(&self, object: &(impl Object + ?Sized)) -> Owner {
        Owner {
            api_version: self.api_version().into(),
            kind: self.kind.into(),
            name: object.key().name().clone(),
            uid: object.uid(),
        }
    }

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

/// Returns the one copy of `name` that is never freed.
fn forever(name: &str) -> &'static str {
    static NAMES: Mutex<Vec<&str>> = Mutex::new(Vec::new());
    let mut names = NAMES.lock();
    if let Some(known) = names.iter().find(|known| **known == name) {
        return known;
    }
    let name: &'static str = name.to_owned().leak();
    names.push(name);
    name
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
    fn a_kind_of_names_read_at_run_time_is_the_same_kind() {
        let read = || "deployments".to_owned();
        let kind = Kind::named("apps", "v1", "Deployment", &read(), true);
        assert_eq!(kind, DEPLOYMENT);
        let again = Kind::named("apps", "v1", "Deployment", &read(), true);
        assert!(std::ptr::eq(kind.plural, again.plural), "it takes memory once");
    }

    #[test]
    fn a_kind_is_named_as_kubectl_names_it() {
        assert_eq!(
            (DEPLOYMENT.resource(), NODE.resource()),
            ("deployments.apps".into(), "nodes".into())
        );
    }
}
