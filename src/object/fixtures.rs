//! An object for tests of rooms that only use metadata.

use super::{Meta, Nothing, Object};

#[derive(Debug)]
pub(crate) struct Thing(pub(crate) Meta);

impl Object for Thing {
    type Keep = Nothing;
    fn meta(&self) -> &Meta {
        &self.0
    }
}
