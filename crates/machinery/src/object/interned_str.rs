//! Interned strings.

use std::borrow::Borrow;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::LazyLock;

use arcstr::ArcStr;
use serde::de::{Deserialize, Deserializer};
use serde::ser::{Serialize, Serializer};

use super::interner::Interner;
use super::visit_text;

static INTERNED: LazyLock<Interner<ArcStr>> = LazyLock::new(Interner::new);

/// The value of absent fields.
static EMPTY: LazyLock<InternedStr> = LazyLock::new(|| InternedStr::new(""));

/// A string whose equal copies share one allocation.
///
/// Takes 8 bytes. Cloning costs a reference count, comparing two `InternedStr`s one pointer comparison.
#[derive(Clone, PartialOrd, Ord)]
pub struct InternedStr(ArcStr);

// === impl InternedStr ===

impl InternedStr {
    /// Returns the interned copy of `text`.
    pub fn new(text: &str) -> InternedStr {
        InternedStr(INTERNED.intern(text))
    }

    /// Returns the text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns its address, which is unique to its text while it is in use.
    pub(super) fn address(&self) -> usize {
        self.0.as_ptr().addr()
    }
}

impl Deref for InternedStr {
    type Target = str;
    fn deref(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for InternedStr {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl Default for InternedStr {
    fn default() -> InternedStr {
        EMPTY.clone()
    }
}

impl PartialEq for InternedStr {
    fn eq(&self, other: &InternedStr) -> bool {
        ArcStr::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for InternedStr {}

impl PartialEq<str> for InternedStr {
    fn eq(&self, other: &str) -> bool {
        *self.0 == *other
    }
}

impl PartialEq<&str> for InternedStr {
    fn eq(&self, other: &&str) -> bool {
        *self.0 == **other
    }
}

impl Hash for InternedStr {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // Same as for `str`, as `Borrow<str>` requires.
        self.0.hash(state);
    }
}

impl From<&str> for InternedStr {
    fn from(text: &str) -> InternedStr {
        InternedStr::new(text)
    }
}

impl From<&InternedStr> for InternedStr {
    fn from(text: &InternedStr) -> InternedStr {
        text.clone()
    }
}

impl From<String> for InternedStr {
    fn from(text: String) -> InternedStr {
        InternedStr::new(&text)
    }
}

impl From<&String> for InternedStr {
    fn from(text: &String) -> InternedStr {
        InternedStr::new(text)
    }
}

impl fmt::Display for InternedStr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for InternedStr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

impl Serialize for InternedStr {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for InternedStr {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<InternedStr, D::Error> {
        // A string that is already interned needs no allocation.
        visit_text(deserializer, "a string", |text| Ok(InternedStr::new(text)))
    }
}

/// The schema of any string.
#[cfg(feature = "schemars")]
impl schemars::JsonSchema for InternedStr {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        String::schema_name()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        String::json_schema(generator)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_strings_share_one_allocation() {
        let (a, b) = (
            InternedStr::new("memcached-sample"),
            InternedStr::from(String::from("memcached-sample")),
        );
        assert!(ArcStr::ptr_eq(&a.0, &b.0));
        assert_eq!(a, b);
    }

    #[test]
    fn escaped_json_decodes_to_the_unescaped_text() {
        let text: InternedStr = serde_json::from_str(r#""a\nbé""#).unwrap();
        assert_eq!(text, "a\nb\u{e9}");
    }
}
