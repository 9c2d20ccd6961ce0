//! Kinds of objects in the API.

use std::fmt::Debug;

use parking_lot::Mutex;
use serde::de::DeserializeOwned;

use super::{Meta, MetadataFilter, ObjectKey, Owner, Uid};

/// The API names of one kind of object.
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

/// An object with metadata, which a store can contain.
pub trait Object: Send + Sync + Debug + 'static {
    /// Selects the labels and annotations that its metadata keeps.
    type MetadataFilter: MetadataFilter;

    /// True if it can be decoded only from complete objects, not from metadata alone.
    #[doc(hidden)]
    const IS_WHOLE: bool = false;

    /// Returns the metadata.
    fn meta(&self) -> &Meta<Self::MetadataFilter>;

    /// Returns the key: namespace and name.
    fn key(&self) -> &ObjectKey {
        &self.meta().key
    }

    /// Returns the UID.
    fn uid(&self) -> Uid {
        self.meta().uid
    }
}

/// A view of one kind, which can be listed and watched. It decodes from the kind's JSON and skips unknown fields.
pub trait Resource: Object + DeserializeOwned {
    /// Returns the kind.
    fn kind() -> Kind;

    /// Returns the owner reference that makes `self` the controller of an object.
    fn as_owner(&self) -> Owner {
        Self::kind().owner(self)
    }
}

/// The metadata of a view that keeps what `K` selects. [`view!`](crate::view) uses it to explain a wrong declaration.
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "the view keeps what `{K}` selects, but its metadata is `{Self}`",
    note = "name the field and its type: `view!(MyView {{ metadata: Meta<K> }}: Kind::…)`"
)]
pub trait IsMeta<K> {
    fn meta(&self) -> &Meta<K>;
}

impl<K> IsMeta<K> for Meta<K> {
    fn meta(&self) -> &Meta<K> {
        self
    }
}

/// Makes a struct with a field `metadata: Meta` a view of a kind: [`Object`] and [`Resource`] in one line. If the view
/// keeps labels or annotations, or the field has another name, declare the field:
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
/// assert_eq!(Pod::kind().path(Some("shop")), "/api/v1/namespaces/shop/pods");
/// ```
#[macro_export]
macro_rules! view {
    ($view:ident: $kind:expr) => {
        $crate::view!($view { metadata: Meta<$crate::object::NoMetadata> }: $kind);
    };
    ($view:ident { $field:ident: Meta<$keep:ty> }: $kind:expr) => {
        impl $crate::object::Object for $view {
            type MetadataFilter = $keep;
            fn meta(&self) -> &$crate::object::Meta<$keep> {
                $crate::object::IsMeta::<$keep>::meta(&self.$field)
            }
        }

        impl $crate::object::Resource for $view {
            fn kind() -> $crate::object::Kind {
                $kind
            }
        }
    };
}

impl Kind {
    /// Returns a kind with names that are known only at run time, such as those from
    /// [`Client::discover`](crate::client::Client::discover). Each distinct name is leaked.
    pub fn named(group: &str, version: &str, kind: &str, plural: &str, namespaced: bool) -> Kind {
        let [group, version, kind, plural] = [group, version, kind, plural].map(leak);
        Kind { group, version, kind, plural, namespaced }
    }

    /// Returns the owner reference that makes `object`, which is of this kind, a controller.
    pub fn owner(&self, object: &(impl Object + ?Sized)) -> Owner {
        Owner {
            api_version: self.api_version().into(),
            kind: self.kind.into(),
            name: object.key().name().clone(),
            uid: object.uid(),
            block_owner_deletion: true,
        }
    }

    /// Returns a namespaced kind. An empty group is the core group.
    pub const fn namespaced(
        group: &'static str,
        version: &'static str,
        kind: &'static str,
        plural: &'static str,
    ) -> Kind {
        Kind { group, version, kind, plural, namespaced: true }
    }

    /// Returns a cluster-scoped kind; otherwise like [`Kind::namespaced`].
    pub const fn cluster_scoped(
        group: &'static str,
        version: &'static str,
        kind: &'static str,
        plural: &'static str,
    ) -> Kind {
        Kind { group, version, kind, plural, namespaced: false }
    }

    /// Returns the `apiVersion`: `group/version`, or `version` in the core group.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_owned()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// Returns `plural.group`, as in kubectl and RBAC errors: `deployments.apps`.
    pub fn resource(&self) -> String {
        if self.group.is_empty() {
            self.plural.to_owned()
        } else {
            format!("{}.{}", self.plural, self.group)
        }
    }

    /// Returns the URL path of the collection, in one namespace or in all.
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
}

/// Returns the only copy of `name`, which is never freed.
pub(crate) fn leak(name: impl AsRef<str>) -> &'static str {
    let name = name.as_ref();
    static NAMES: Mutex<Vec<&str>> = Mutex::new(Vec::new());
    let mut names = NAMES.lock();
    if let Some(known) = names.iter().find(|known| **known == name) {
        return known;
    }
    let name: &'static str = name.to_owned().leak();
    names.push(name);
    name
}

/// Returns the keys of the list in this field of a built-in kind (`x-kubernetes-list-map-keys`), or `None` if its owner
/// sets it as a whole. `has` returns whether the items have a field, because two lists are named `ports`: that of a
/// container, and that of a Service. The first key is required.
pub fn list_keys(field: &str, has: impl Fn(&str) -> bool) -> Option<&'static [&'static str]> {
    Some(match field {
        "containers" | "initContainers" | "env" | "volumes" | "imagePullSecrets" => &["name"],
        "volumeMounts" => &["mountPath"],
        "volumeDevices" => &["devicePath"],
        "hostAliases" => &["ip"],
        "topologySpreadConstraints" => &["topologyKey", "whenUnsatisfiable"],
        "ports" if has("containerPort") => &["containerPort", "protocol"],
        "ports" => &["port", "protocol"],
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEPLOYMENT: Kind = Kind::namespaced("apps", "v1", "Deployment", "deployments");
    const NODE: Kind = Kind::cluster_scoped("", "v1", "Node", "nodes");

    #[test]
    fn paths_match_the_kubernetes_api() {
        assert_eq!(DEPLOYMENT.path(None), "/apis/apps/v1/deployments");
        assert_eq!(DEPLOYMENT.path(Some("ns")), "/apis/apps/v1/namespaces/ns/deployments");
        assert_eq!(NODE.path(Some("")), "/api/v1/nodes");
    }

    #[test]
    fn a_kind_named_at_run_time_equals_the_constant() {
        let read = || "deployments".to_owned();
        let kind = Kind::named("apps", "v1", "Deployment", &read(), true);
        assert_eq!(kind, DEPLOYMENT);
        let again = Kind::named("apps", "v1", "Deployment", &read(), true);
        assert!(std::ptr::eq(kind.plural, again.plural), "it takes memory once");
    }

    #[test]
    fn a_kind_has_the_name_that_kubectl_uses() {
        assert_eq!(
            (DEPLOYMENT.resource(), NODE.resource()),
            ("deployments.apps".into(), "nodes".into())
        );
    }
}
