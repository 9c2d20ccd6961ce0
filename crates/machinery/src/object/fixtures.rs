//! An object for tests of rooms that only use metadata.

use super::{Kind, Meta, Nothing};

#[derive(Debug, serde::Deserialize)]
pub(crate) struct Thing {
    #[serde(rename = "metadata")]
    pub(crate) meta: Meta,
}

crate::view!(Thing { meta: Meta<Nothing> }: Kind::namespaced("example.com", "v1", "Thing", "things"));
