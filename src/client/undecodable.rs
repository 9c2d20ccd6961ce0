//! What can be said of an object that does not fit its view.

use serde::Deserialize;

use super::error::{Error, in_short};
use super::types::Undecodable;
use crate::object::{ObjectKey, ResourceVersion, Uid};

/// Just enough of an object to name it. Strings, not our types: what is wrong may be the metadata.
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

/// Names the object in `json`, which did not decode for `why`.
///
/// # Errors
/// What is no JSON, or has no name, is no object: whoever sent it is not to be believed.
pub(super) fn name(
    json: &[u8],
    deleted: bool,
    why: &serde_json::Error,
) -> Result<Undecodable, Error> {
    match serde_json::from_slice::<Bare>(json) {
        Ok(bare) => Ok(bare.into_undecodable(deleted, in_short(why))),
        Err(_) => Err(Error::decode(why, json)),
    }
}
