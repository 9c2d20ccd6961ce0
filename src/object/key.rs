//! The name by which an object is known.

use std::fmt;

use super::Text;

/// `namespace/name`, the key of every store and queue; a cluster-scoped object has an empty
/// namespace. Not the identity: a new object under an old name has another [`Uid`](super::Uid).
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct ObjectKey {
    namespace: Text,
    name: Text,
}

impl ObjectKey {
    /// The key of `name` in `namespace`; an empty namespace means cluster-scoped.
    pub fn new(namespace: impl Into<Text>, name: impl Into<Text>) -> ObjectKey {
        ObjectKey { namespace: namespace.into(), name: name.into() }
    }

    /// The namespace; empty for a cluster-scoped object.
    pub fn namespace(&self) -> &Text {
        &self.namespace
    }

    /// The name.
    pub fn name(&self) -> &Text {
        &self.name
    }

    /// The key of another object in the same namespace.
    pub fn sibling(&self, name: impl Into<Text>) -> ObjectKey {
        ObjectKey { namespace: self.namespace.clone(), name: name.into() }
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() {
            f.write_str(&self.name)
        } else {
            write!(f, "{}/{}", self.namespace, self.name)
        }
    }
}

impl fmt::Debug for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
