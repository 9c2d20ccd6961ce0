//! The regression of a history.

/// The regression of an API server's data to an earlier state, as when etcd is restored from a backup. Changes since
/// that backup are undone, and their versions are reused. The stored objects cannot be trusted, so the process should
/// restart.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the API server's data went back from version {held} to {at}, as when a backup is restored: \
     the cached objects are no longer valid, and the process must restart"
)]
pub struct ResourceVersionRegressed {
    /// The newest version seen before.
    pub held: String,
    /// The newest version now.
    pub at: String,
}
