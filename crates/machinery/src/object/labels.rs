//! Labels and annotations.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, DeserializeSeed, Deserializer, Error, MapAccess, Visitor};
use serde::ser::{Serialize, Serializer};
use thin_vec::ThinVec;

use super::InternedStr;

/// A small sorted map of strings, such as labels, annotations or a selector. Takes 8 bytes when empty, one
/// allocation otherwise (a `BTreeMap` with one entry takes 544).
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Labels(ThinVec<(InternedStr, InternedStr)>);

impl Labels {
    /// Returns the value under `key`.
    pub fn get(&self, key: &str) -> Option<&InternedStr> {
        let at = self.0.binary_search_by(|(k, _)| k.as_str().cmp(key)).ok()?;
        Some(&self.0[at].1)
    }

    /// Returns all pairs, sorted by key.
    pub fn iter(&self) -> impl Iterator<Item = (&InternedStr, &InternedStr)> {
        self.0.iter().map(|(key, value)| (key, value))
    }

    /// Returns the number of pairs.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<K: Into<InternedStr>, V: Into<InternedStr>> FromIterator<(K, V)> for Labels {
    /// Keeps the last value of a repeated key.
    fn from_iter<I: IntoIterator<Item = (K, V)>>(pairs: I) -> Labels {
        let mut pairs: Vec<(InternedStr, InternedStr)> =
            pairs.into_iter().map(|(key, value)| (key.into(), value.into())).collect();
        pairs.reverse();
        pairs.sort_by(|a, b| a.0.cmp(&b.0));
        pairs.dedup_by(|later, earlier| later.0 == earlier.0);
        // `collect` would reserve space for four.
        let mut exact = ThinVec::with_capacity(pairs.len());
        exact.extend(pairs);
        Labels(exact)
    }
}

impl Serialize for Labels {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

impl<'de> Deserialize<'de> for Labels {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Labels, D::Error> {
        Kept(|_| true).deserialize(deserializer)
    }
}

/// Decodes a map of strings, and interns only keys that this function accepts. `null` is empty.
pub(super) struct Kept(pub(super) fn(&str) -> bool);

#[derive(serde::Deserialize)]
struct Key<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'de> DeserializeSeed<'de> for Kept {
    type Value = Labels;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Labels, D::Error> {
        deserializer.deserialize_option(self)
    }
}

impl<'de> Visitor<'de> for Kept {
    type Value = Labels;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map of strings")
    }

    fn visit_none<E: Error>(self) -> Result<Labels, E> {
        Ok(Labels::default())
    }

    fn visit_unit<E: Error>(self) -> Result<Labels, E> {
        Ok(Labels::default())
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Labels, D::Error> {
        deserializer.deserialize_map(self)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Labels, A::Error> {
        let mut kept: Vec<(InternedStr, InternedStr)> = Vec::new();
        while let Some(Key(key)) = map.next_key()? {
            if (self.0)(&key) {
                kept.push((InternedStr::new(&key), map.next_value()?));
            } else {
                map.next_value::<serde::de::IgnoredAny>()?;
            }
        }
        Ok(kept.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_of_several_equal_keys_is_kept() {
        let labels: Labels = [("a", "1"), ("b", "2"), ("a", "3")].into_iter().collect();
        assert_eq!(labels.get("a").unwrap(), "3");
        assert_eq!(labels.len(), 2);
    }

    #[test]
    fn null_is_an_empty_map() {
        assert!(serde_json::from_str::<Labels>("null").unwrap().is_empty());
    }

    #[test]
    fn labels_survive_a_json_round_trip() {
        let labels: Labels = [("b", "2"), ("a", "1")].into_iter().collect();
        let json = serde_json::to_string(&labels).unwrap();
        assert_eq!(json, r#"{"a":"1","b":"2"}"#);
        assert_eq!(serde_json::from_str::<Labels>(&json).unwrap(), labels);
    }
}
