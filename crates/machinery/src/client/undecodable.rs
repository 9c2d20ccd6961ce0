//! Readable metadata of an object that does not fit its view.

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::error::{Error, mismatch};
use super::types::Undecodable;
use crate::object::{ObjectKey, ResourceVersion, Uid};

/// Just enough of an object to name it. Strings, not our types: the metadata may be what is wrong.
#[derive(Deserialize)]
pub(super) struct Bare {
    metadata: BareMeta,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct BareMeta {
    name: String,
    #[serde(default)]
    namespace: Option<String>,
    #[serde(default)]
    uid: Option<String>,
    #[serde(default)]
    resource_version: Option<String>,
}

// === impl Bare ===

impl Bare {
    pub(super) fn into_undecodable(self, deleted: bool, why: String) -> Undecodable {
        let meta = self.metadata;
        Undecodable {
            key: ObjectKey::new(meta.namespace.unwrap_or_default(), meta.name),
            uid: meta.uid.and_then(|uid| uid.parse().ok()).unwrap_or(Uid::NONE),
            version: ResourceVersion::parse(&meta.resource_version.unwrap_or_default()),
            deleted,
            why,
        }
    }
}

/// Names the object in `json`, which is no `V`.
///
/// # Errors
/// Anything that is not JSON or has no name is not an object, and its sender cannot be trusted.
pub(super) fn name<V: DeserializeOwned>(json: &[u8], deleted: bool) -> Result<Undecodable, Error> {
    match serde_json::from_slice::<Bare>(json) {
        Ok(bare) => Ok(bare.into_undecodable(deleted, mismatch::<V>(json))),
        Err(_) => Err(Error::decode::<V>(json)),
    }
}
