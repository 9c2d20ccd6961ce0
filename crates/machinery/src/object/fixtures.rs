//! An object for tests of rooms that only use metadata.

use super::{Kind, Meta, NoMetadata};

#[derive(Debug, serde::Deserialize)]
pub(crate) struct Thing {
    #[serde(rename = "metadata")]
    pub(crate) meta: Meta,
}

crate::view!(Thing { meta: Meta<NoMetadata> }: Kind::namespaced("example.com", "v1", "Thing", "things"));
