//! The key of an object.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, LazyLock};

use super::InternedStr;
use super::interner::Interner;

/// All keys in use. An unused key keeps its two strings until it is swept.
static INTERNED: LazyLock<Interner<Arc<Name>>> = LazyLock::new(Interner::new);

/// The key of an object before its metadata is read.
static EMPTY: LazyLock<ObjectKey> = LazyLock::new(|| ObjectKey::new("", ""));

/// `namespace/name`, the key of every store and queue. The namespace of a cluster-scoped object is empty. A key is not
/// an identity: a new object with the same name has another [`Uid`](super::Uid).
///
/// Takes 8 bytes. Cloning costs a reference count. Equality and hashing use the pointer, not the text. With the feature
/// `testing`, hashing uses the text, so that a seed repeats a run.
#[derive(Clone, PartialOrd, Ord)]
pub struct ObjectKey(Arc<Name>);

/// The content of a key, compared in this order.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
#[repr(C)]
struct Name {
    namespace: InternedStr,
    name: InternedStr,
}

// === impl ObjectKey ===

impl ObjectKey {
    /// Returns the key of `name` in `namespace`; an empty namespace means cluster-scoped.
    pub fn new(namespace: impl Into<InternedStr>, name: impl Into<InternedStr>) -> ObjectKey {
        let name = Name { namespace: namespace.into(), name: name.into() };
        ObjectKey(INTERNED.intern(name))
    }

    /// Returns the namespace; empty for a cluster-scoped object.
    pub fn namespace(&self) -> &InternedStr {
        &self.0.namespace
    }

    /// Returns the name.
    pub fn name(&self) -> &InternedStr {
        &self.0.name
    }

    /// Returns the key of another object in the same namespace.
    pub fn sibling(&self, name: impl Into<InternedStr>) -> ObjectKey {
        ObjectKey::new(self.namespace().clone(), name)
    }
}

impl PartialEq for ObjectKey {
    fn eq(&self, other: &ObjectKey) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for ObjectKey {}

impl Hash for ObjectKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        if cfg!(any(test, feature = "testing")) {
            return self.0.hash(state);
        }
        Arc::as_ptr(&self.0).addr().hash(state);
    }
}

impl Default for ObjectKey {
    fn default() -> ObjectKey {
        EMPTY.clone()
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace().is_empty() {
            f.write_str(self.name())
        } else {
            write!(f, "{}/{}", self.namespace(), self.name())
        }
    }
}

impl fmt::Debug for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

// === impl Name ===

impl Hash for Name {
    /// Hashes the addresses, because equal texts share one.
    fn hash<H: Hasher>(&self, state: &mut H) {
        if cfg!(any(test, feature = "testing")) {
            // Addresses differ from process to process, and so would the order of a map: see `KeyHasher`.
            let (namespace, name): (&str, &str) = (&self.namespace, &self.name);
            return (namespace, name).hash(state);
        }
        (self.namespace.address(), self.name.address()).hash(state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_keys_share_one_allocation() {
        let (a, b) =
            (ObjectKey::new("default", "web"), ObjectKey::new("default", "api").sibling("web"));
        assert!(Arc::ptr_eq(&a.0, &b.0));
        assert_eq!(a, b);
        assert_ne!(a, ObjectKey::new("web", "default"));
        assert_eq!(size_of_val(&a), 8);
    }

    #[test]
    fn keys_are_ordered_by_namespace_then_name() {
        let mut keys =
            [("b", "a"), ("a", "z"), ("a", "b")].map(|(space, name)| ObjectKey::new(space, name));
        keys.sort();
        assert_eq!(keys.map(|key| key.to_string()), ["a/b", "a/z", "b/a"]);
    }
}
