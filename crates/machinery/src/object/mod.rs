//! Common parts of all Kubernetes objects, with little memory.
//!
//! Guarantees
//! - [`InternedStr`] and [`ObjectKey`] are interned: equal ones share one allocation while one is in use. So each
//!   further copy of a string or key, in any store or queue, costs one pointer.
//! - [`Meta`] decodes `metadata` in one pass and never allocates for a field that it does not keep. `managedFields`,
//!   often the largest part of an object, is skipped while parsing.
//! - A type ([`MetadataFilter`]) selects the labels and annotations to keep, once per view.
//! - [`ResourceVersion`]s are ordered only when both are numbers (KEP-5504), and only within one resource type.
//!   Otherwise their order is unknown, never guessed.
//! - Data from the API server causes no panic. A value that cannot be represented is a decode error that names the
//!   field.
//!
//! A *view* is a small struct with a [`Meta`] and the fields that its user reads or owns. It implements [`Object`]
//! and, to be listed and watched, [`Resource`]. [`Typed`] makes a view of a whole object of a
//! k8s-openapi type or of kube's derive.

mod interner;
mod interned_str;
mod ids;
mod key;
mod labels;
mod meta;
mod quantity;
mod resource;
mod typed;
#[cfg(test)]
pub(crate) mod fixtures;

pub use ids::{ParseUidError, ResourceVersion, Uid};
pub use interned_str::InternedStr;
pub use key::ObjectKey;
pub use labels::Labels;
pub use meta::{AllMetadata, Meta, MetadataFilter, NoMetadata, Owner};
pub use quantity::Quantity;
pub(crate) use resource::leak;
pub use resource::{IsMeta, Kind, Object, Resource, list_keys};
pub use typed::Typed;

/// The hasher of maps whose order decides which request is sent first. In tests, the order is always the same, so that
/// a seed repeats a run.
#[cfg(any(test, feature = "testing"))]
pub(crate) type KeyHasher = std::hash::BuildHasherDefault<std::hash::DefaultHasher>;
#[cfg(not(any(test, feature = "testing")))]
pub(crate) type KeyHasher = hashbrown::DefaultHashBuilder;

/// Decodes a string without a copy: `parse` reads the parser's buffer. `expected` completes an error: "invalid type: map,
/// expected …".
fn visit_text<'de, D: serde::Deserializer<'de>, T>(
    deserializer: D,
    expected: &'static str,
    parse: fn(&str) -> Result<T, String>,
) -> Result<T, D::Error> {
    struct Text<T>(&'static str, fn(&str) -> Result<T, String>);

    impl<T> serde::de::Visitor<'_> for Text<T> {
        type Value = T;
        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str(self.0)
        }
        fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<T, E> {
            (self.1)(text).map_err(E::custom)
        }
    }
    deserializer.deserialize_str(Text(expected, parse))
}
