//! Positions in the history of one kind.

use std::fmt;

use crate::object::ResourceVersion;

/// A resourceVersion of a list or bookmark. It is sent back unchanged, and ordered if it is a number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Position {
    /// A number, as every API server that follows KEP-5504 sends.
    Number(ResourceVersion),
    /// Anything else. Its age cannot be compared.
    Opaque(String),
}

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

impl Position {
    /// Parses a position; `None` for the empty string and `0`, which in a request means "any".
    pub(super) fn parse(text: String) -> Option<Position> {
        match ResourceVersion::parse(&text) {
            number if number.is_known() => Some(Position::Number(number)),
            _ if text.is_empty() || text == "0" => None,
            _ => Some(Position::Opaque(text)),
        }
    }

    /// Returns the number, or [`ResourceVersion::UNKNOWN`].
    pub(super) fn number(&self) -> ResourceVersion {
        match self {
            Position::Number(number) => *number,
            Position::Opaque(_) => ResourceVersion::UNKNOWN,
        }
    }

    /// Returns whether `self` is certainly older than `other`.
    pub(super) fn is_older_than(&self, other: &Position) -> bool {
        self.number().is_older_than(other.number())
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Position::Number(number) => fmt::Display::fmt(number, f),
            Position::Opaque(text) => f.write_str(text),
        }
    }
}
