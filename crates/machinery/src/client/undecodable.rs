//! The readable metadata of an object that does not fit its view.

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::error::{Error, mismatch};
use super::types::InvalidObject;
use crate::object::{ObjectKey, ResourceVersion, Uid};

/// The fields that identify an object. They are plain strings, because the metadata itself can be malformed.
#[derive(Deserialize)]
pub(super) struct Bare {
    metadata: BareMeta,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct BareMeta {
    name: String,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
}

// === impl Bare ===

impl Bare {
    pub(super) fn into_undecodable(self, deleted: bool, why: String) -> InvalidObject {
        let meta = self.metadata;
        InvalidObject {
            key: ObjectKey::new(meta.namespace.unwrap_or_default(), meta.name),
            uid: meta.uid.and_then(|uid| uid.parse().ok()).unwrap_or(Uid::NONE),
            version: ResourceVersion::parse(&meta.resource_version.unwrap_or_default()),
            deleted,
            why,
        }
    }
}

/// Identifies the object in `json`, which is not a `V`.
///
/// # Errors
/// If it is not JSON or has no name. Then it is not an object, and the response cannot be trusted.
pub(super) fn name<V: DeserializeOwned>(
    json: &[u8],
    deleted: bool,
) -> Result<InvalidObject, Error> {
    match serde_json::from_slice::<Bare>(json) {
        Ok(bare) => Ok(bare.into_undecodable(deleted, mismatch::<V>(json))),
        Err(_) => Err(Error::decode::<V>(json)),
    }
}
