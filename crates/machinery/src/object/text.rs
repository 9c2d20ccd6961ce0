//! Interned strings.

use std::borrow::Borrow;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::LazyLock;

use arcstr::ArcStr;
use serde::de::{Deserialize, Deserializer, Error, Visitor};
use serde::ser::{Serialize, Serializer};

use super::interner::Interner;

static INTERNED: LazyLock<Interner<ArcStr>> = LazyLock::new(Interner::new);

/// Value of fields that are left out.
static EMPTY: LazyLock<Text> = LazyLock::new(|| Text::new(""));

/// A string whose equal copies share one allocation.
///
/// Takes 8 bytes. Cloning costs a reference count, comparing two `Text`s one comparison of pointers.
#[derive(Clone, PartialOrd, Ord)]
pub struct Text(ArcStr);

// === impl Text ===

impl Text {
    /// The interned copy of `text`.
    pub fn new(text: &str) -> Text {
        Text(INTERNED.intern(text))
    }

    /// The characters.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns its address, which no other text shares while it is in use.
    pub(super) fn address(&self) -> usize {
        self.0.as_ptr().addr()
    }
}

impl Deref for Text {
    type Target = str;
    fn deref(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for Text {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl AsRef<str> for Text {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl Default for Text {
    fn default() -> Text {
        EMPTY.clone()
    }
}

impl PartialEq for Text {
    fn eq(&self, other: &Text) -> bool {
        ArcStr::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Text {}

impl PartialEq<str> for Text {
    fn eq(&self, other: &str) -> bool {
        *self.0 == *other
    }
}

impl PartialEq<&str> for Text {
    fn eq(&self, other: &&str) -> bool {
        *self.0 == **other
    }
}

impl Hash for Text {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // Same as for `str`, as `Borrow<str>` requires.
        self.0.hash(state);
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Text {
        Text::new(text)
    }
}

impl From<String> for Text {
    fn from(text: String) -> Text {
        Text::new(&text)
    }
}

impl From<&String> for Text {
    fn from(text: &String) -> Text {
        Text::new(text)
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

impl Serialize for Text {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Text, D::Error> {
        struct Interning;

        impl Visitor<'_> for Interning {
            type Value = Text;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }
            // Borrowed or not, this reads the parser's own buffer: nothing is allocated for a
            // string that is already interned.
            fn visit_str<E: Error>(self, text: &str) -> Result<Text, E> {
                Ok(Text::new(text))
            }
        }
        deserializer.deserialize_str(Interning)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_strings_share_one_allocation() {
        let (a, b) = (Text::new("memcached-sample"), Text::from(String::from("memcached-sample")));
        assert!(ArcStr::ptr_eq(&a.0, &b.0));
        assert_eq!(a, b);
    }

    #[test]
    fn escaped_json_decodes_to_the_text_it_means() {
        let text: Text = serde_json::from_str(r#""a\nbé""#).unwrap();
        assert_eq!(text, "a\nb\u{e9}");
    }
}
