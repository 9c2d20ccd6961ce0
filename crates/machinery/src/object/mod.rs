//! Common parts of all Kubernetes objects, in as few bytes as possible.
//!
//! Guarantees
//! - [`InternedStr`] and [`ObjectKey`] are interned: equal ones share one allocation for as long as one is
//!   in use, so the ten thousandth `app.kubernetes.io/name` costs a pointer, and so does a key, in
//!   however many stores and queues it is.
//! - [`Meta`] decodes `metadata` in one pass and never allocates for a field it does not keep;
//!   `managedFields`, often the largest part of an object, is skipped while parsing.
//! - A type ([`Keep`]) says which labels and annotations are kept, once per view.
//! - [`ResourceVersion`]s are ordered only when both are numbers (KEP-5504) and only within one
//!   resource type; otherwise they compare as "cannot tell", never as a guess.
//! - Nothing here panics on data from the API server: what cannot be represented is a decode error
//!   that names the field.
//!
//! A *view* is a small struct with a [`Meta`] and just the fields its user reads or owns. It
//! implements [`Object`] and, to be listed and watched, [`Resource`].

mod interner;
mod interned_str;
mod uid;
mod version;
mod key;
mod labels;
mod meta;
mod quantity;
mod resource;
#[cfg(test)]
pub(crate) mod fixtures;

pub use interned_str::InternedStr;
pub use key::ObjectKey;
pub use labels::Labels;
pub use meta::{Everything, Keep, Meta, Nothing, Owner};
pub use quantity::Quantity;
pub use resource::{Dynamic, Kind, Object, Resource};
pub use uid::{ParseUidError, Uid};
pub use version::ResourceVersion;
