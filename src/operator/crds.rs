//! The CustomResourceDefinitions of this binary.

use std::io::Write;

use super::error::Error;

/// The files in artifacts/crds/, which hack/update-codegen.sh generates from the types in the `api`
/// room; a test compares the two.
pub(super) const CRDS: [&str; 3] = [
    include_str!("../../artifacts/crds/app.example.com_apps.yaml"),
    include_str!("../../artifacts/crds/cache.example.com_memcacheds.yaml"),
    include_str!("../../artifacts/crds/mydomain.com_genericdaemons.yaml"),
];

/// Prints them all, to be piped into `kubectl apply --server-side -f -`.
pub(super) fn print() -> Result<(), Error> {
    std::io::stdout().write_all(CRDS.join("---\n").as_bytes()).map_err(Error::Print)
}
