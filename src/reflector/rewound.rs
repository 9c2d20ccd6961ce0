//! The end of a history.

/// The API server's data went back in time, as etcd's does when it is restored from a backup: what
/// was seen since then has never happened, and its versions are given to other changes. Nothing in
/// memory can be told from what is so, and the process should end and begin anew.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the API server's data went back from version {held} to {at}, as when a backup is restored; \
     what was known does not hold any more, so everything must begin anew"
)]
pub struct Rewound {
    /// The version that was seen.
    pub held: String,
    /// The newest one there is.
    pub at: String,
}
