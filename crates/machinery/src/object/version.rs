//! Resource versions.

use std::cmp::Ordering;
use std::fmt;
use std::num::NonZeroU64;

use serde::de::{Deserialize, Deserializer};
use serde::ser::{Serialize, Serializer};

use super::visit_text;

/// A resourceVersion as a number, or [`ResourceVersion::UNKNOWN`] if the server's is not one.
///
/// KEP-5504 (stable in Kubernetes 1.35) makes them comparable as integers within one resource type, for built-in
/// kinds and CRDs; before that, etcd did. They must never be compared across types, which have no common order. So
/// this type is not `Ord`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct ResourceVersion(Option<NonZeroU64>);

impl ResourceVersion {
    /// Unknown, or not a number: its age cannot be compared.
    pub const UNKNOWN: ResourceVersion = ResourceVersion(None);

    /// Returns the version with this number; 0 is [`ResourceVersion::UNKNOWN`], because no object has it.
    pub fn new(number: u64) -> ResourceVersion {
        ResourceVersion(NonZeroU64::new(number))
    }

    /// Parses the API server's string. Anything but a positive integer is `UNKNOWN`, not an error, because clients
    /// must treat the string as opaque. So is a number in unusual form (`007`, `+7`), which could not be sent back
    /// unchanged.
    pub fn parse(text: &str) -> ResourceVersion {
        let plain = text.bytes().next().is_some_and(|first| matches!(first, b'1'..=b'9'));
        ResourceVersion(if plain { text.parse().ok() } else { None })
    }

    /// Returns the number, if known.
    pub fn number(self) -> Option<u64> {
        self.0.map(NonZeroU64::get)
    }

    /// Returns whether `self` is certainly newer than `other`. False when either is unknown.
    pub fn is_newer_than(self, other: ResourceVersion) -> bool {
        self.order(other) == Some(Ordering::Greater)
    }

    /// Returns whether `self` is certainly older than `other`. False when either is unknown.
    pub fn is_older_than(self, other: ResourceVersion) -> bool {
        self.order(other) == Some(Ordering::Less)
    }

    /// Returns whether both are known and the same.
    pub fn is_same_as(self, other: ResourceVersion) -> bool {
        self.order(other) == Some(Ordering::Equal)
    }

    /// Returns the order of the two, if both are known.
    pub fn order(self, other: ResourceVersion) -> Option<Ordering> {
        Some(self.0?.cmp(&other.0?))
    }

    /// Returns whether there is a number.
    pub fn is_known(self) -> bool {
        self.0.is_some()
    }
}

impl fmt::Display for ResourceVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(number) => fmt::Display::fmt(&number, f),
            None => f.write_str("unknown"),
        }
    }
}

impl fmt::Debug for ResourceVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for ResourceVersion {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Some(number) => serializer.collect_str(&number),
            None => serializer.serialize_none(),
        }
    }
}

impl<'de> Deserialize<'de> for ResourceVersion {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<ResourceVersion, D::Error> {
        visit_text(deserializer, "a resourceVersion string", |text| {
            Ok(ResourceVersion::parse(text))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_ordered_as_integers_not_as_strings() {
        assert!(ResourceVersion::parse("10").is_newer_than(ResourceVersion::parse("9")));
    }

    #[test]
    fn a_version_that_is_not_a_number_has_no_order() {
        let known = ResourceVersion::new(7);
        for text in ["v1-abc", "007", "+7", "-7", "", "0", "18446744073709551616"] {
            let opaque = ResourceVersion::parse(text);
            for (a, b) in [(opaque, known), (known, opaque), (opaque, opaque)] {
                assert!(!a.is_newer_than(b) && !a.is_older_than(b) && !a.is_same_as(b), "{text}");
            }
        }
    }
}
