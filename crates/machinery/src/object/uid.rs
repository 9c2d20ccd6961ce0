//! Object UIDs.

use std::fmt;
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

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
}
