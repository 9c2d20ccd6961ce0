//! The end of a history.

/// The API server's data went back in time, as when etcd is restored from a backup: what was seen
/// since that backup has never happened, and its versions are reused for other changes. It is not
/// possible to tell which of what is in memory is still true, so the process should restart.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the API server's data went back from version {held} to {at}, as when a backup is restored; \
     what was known does not hold any more, so everything must begin anew"
)]
pub struct ResourceVersionRegressed {
    /// The version that was seen.
    pub held: String,
    /// The newest version that there is now.
    pub at: String,
}
