//! UIDs and resource versions.

use std::cmp::Ordering;
use std::fmt;
use std::num::NonZeroU64;
use std::str::FromStr;

use serde::de::{Deserialize, Deserializer};
use serde::ser::{Serialize, Serializer};
use uuid::Uuid;
use uuid::fmt::Hyphenated;

use super::visit_text;

/// The UID of an object: a UUID in 16 bytes instead of a string of 36.
///
/// [`Uid::NONE`], all zero, means "not known yet": an object that was not created.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Uid(Uuid);

/// A UID that is not a UUID. The API server creates every object's UID with `uuid.NewRandom`
/// (k8s.io/apimachinery/pkg/util/uuid), so such an object is not from the API server. Users can write any text as the
/// UID of another object, such as the owner's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a UID must be a UUID of the form 01234567-89ab-cdef-0123-456789abcdef")]
pub struct ParseUidError;

// === impl Uid ===

impl Uid {
    /// No UID: the object has not been created.
    pub const NONE: Uid = Uid(Uuid::nil());

    /// Returns whether this is a UID from the API server.
    pub fn is_some(self) -> bool {
        self != Uid::NONE
    }
}

impl FromStr for Uid {
    type Err = ParseUidError;

    fn from_str(text: &str) -> Result<Uid, ParseUidError> {
        let uuid = text.parse::<Hyphenated>().map_err(|_| ParseUidError)?;
        Ok(Uid(uuid.into_uuid()))
    }
}

impl fmt::Display for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.hyphenated().encode_lower(&mut [0; Hyphenated::LENGTH]))
    }
}

impl fmt::Debug for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Uid {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Uid {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Uid, D::Error> {
        visit_text(deserializer, "a UUID", |text| {
            text.parse().map_err(|error: ParseUidError| error.to_string())
        })
    }
}

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
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_printed_uid_parses_to_the_same_uid(bytes: [u8; 16]) {
            let uid = Uid(Uuid::from_bytes(bytes));
            prop_assert_eq!(uid.to_string().parse(), Ok(uid));
        }

        #[test]
        fn no_string_makes_the_parser_panic(text in ".{0,40}") {
            let _ = text.parse::<Uid>();
        }
    }

    #[test]
    fn a_uid_that_is_not_a_uuid_is_rejected() {
        for bad in [
            "",
            "x",
            "01234567-89ab-cdef-0123-456789abcdeg",
            "0123456789abcdef0123456789abcdef",
            "{01234567-89ab-cdef-0123-456789abcdef}",
        ] {
            assert_eq!(bad.parse::<Uid>(), Err(ParseUidError), "{bad}");
        }
    }

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
