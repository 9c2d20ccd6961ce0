//! A fast comparison of an object with a desired state. It runs while the object is serialized and builds no JSON.
//!
//! Guarantees
//! - If [`Shown::of`] returns equal results for two objects and one desired state, both objects show the same fields of
//!   it, with the desired values.
//! - In doubt, the results differ, and [`deviations`](super::compared::deviations) decides.

use std::fmt::{self, Write};

use serde::Serialize;
use serde::ser::{
    Impossible, SerializeMap, SerializeSeq, SerializeStruct, SerializeTuple, SerializeTupleStruct,
    Serializer,
};
use serde_json::Value;

use super::compared::{Place, is_amount, is_atomic_map, is_equal, is_same_amount};

/// The fields of a desired state that an object shows, as a sum of hashes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shown(u64);

/// An error: the object differs from the desired state, or cannot be compared in this way.
#[derive(Debug)]
pub(super) struct Differs;

/// A serializer that compares a value with the desired one at the same path.
struct Comparison<'a> {
    wanted: &'a Value,
    at: Place<'a>,
    /// The hash of the path.
    hash: u64,
}

/// A serializer that compares the fields of a map or struct, or the items of a list.
struct Fields<'a> {
    comparison: Comparison<'a>,
    /// The key of the next value in a map.
    key: String,
    /// The position of the next item in a list.
    next: usize,
    shown: u64,
}

/// The text of a key.
struct Key<'a, K: ?Sized>(&'a K);

impl<K: Serialize + ?Sized> fmt::Display for Key<'_, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.serialize(f)
    }
}

// === impl Shown ===

impl Shown {
    /// Returns the fields of `wanted` that `object` shows, without the metadata.
    pub(super) fn of(object: &impl Serialize, wanted: &Value) -> Result<Shown, Differs> {
        let whole = Comparison { wanted, at: Place::ROOT, hash: 0xcbf2_9ce4_8422_2325 };
        object.serialize(whole).map(Shown)
    }
}

impl fmt::Display for Differs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("it differs")
    }
}

impl std::error::Error for Differs {}

impl serde::ser::Error for Differs {
    fn custom<T: fmt::Display>(_: T) -> Differs {
        Differs
    }
}

// === impl Fields ===

impl<'a> Fields<'a> {
    fn of(comparison: Comparison<'a>) -> Fields<'a> {
        Fields { shown: spread(comparison.hash), comparison, key: String::new(), next: 0 }
    }

    fn field(&mut self, name: &str, value: &(impl Serialize + ?Sized)) -> Result<(), Differs> {
        let Comparison { wanted, at, hash } = &self.comparison;
        if at.is_root() && name == "metadata" {
            return Ok(());
        }
        let Some(wanted) = wanted.get(name) else {
            // An additional entry of an atomic map is a difference.
            return if is_atomic_map(at) { Err(Differs) } else { Ok(()) };
        };
        let hash = mixed(*hash, name.as_bytes());
        let shown = value.serialize(Comparison { wanted, at: at.inner(name), hash })?;
        self.shown = self.shown.wrapping_add(shown);
        Ok(())
    }

    fn item(&mut self, value: &(impl Serialize + ?Sized)) -> Result<(), Differs> {
        let Comparison { wanted, at, hash } = &self.comparison;
        let wanted = wanted.get(self.next).ok_or(Differs)?;
        // The name of the item does not matter: quantities and atomic maps are found by their own names.
        let hash = mixed(*hash, &self.next.to_le_bytes());
        let shown = value.serialize(Comparison { wanted, at: at.inner("0"), hash })?;
        self.shown = self.shown.wrapping_add(shown);
        self.next += 1;
        Ok(())
    }

    fn list(self) -> Result<u64, Differs> {
        let wanted = self.comparison.wanted.as_array().ok_or(Differs)?;
        if wanted.len() == self.next { Ok(self.shown) } else { Err(Differs) }
    }
}

/// Continues a hash (FNV-1a).
fn mixed(hash: u64, bytes: &[u8]) -> u64 {
    let mix = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().chain(&[0xff]).fold(hash, mix)
}

/// Spreads a hash (the finalizer of MurmurHash3). Without this, the hashes of similar names differ little, and
/// different sets of them could have the same sum.
fn spread(hash: u64) -> u64 {
    let hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    let hash = (hash ^ (hash >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ (hash >> 33)
}

// === impl Serializer ===

impl<'a> Comparison<'a> {
    fn equal(self, is_equal: bool) -> Result<u64, Differs> {
        if is_equal { Ok(spread(self.hash)) } else { Err(Differs) }
    }

    fn object(self) -> Result<Fields<'a>, Differs> {
        if self.wanted.is_object() { Ok(Fields::of(self)) } else { Err(Differs) }
    }

    fn array(self) -> Result<Fields<'a>, Differs> {
        if self.wanted.is_array() { Ok(Fields::of(self)) } else { Err(Differs) }
    }
}

macro_rules! numbers {
    ($($method:ident: $number:ty),*) => { $(
        fn $method(self, number: $number) -> Result<u64, Differs> {
            let is_equal = is_equal(self.wanted, &Value::from(number));
            self.equal(is_equal)
        }
    )* };
}

impl<'a> Serializer for Comparison<'a> {
    type Ok = u64;
    type Error = Differs;
    type SerializeSeq = Fields<'a>;
    type SerializeTuple = Fields<'a>;
    type SerializeTupleStruct = Fields<'a>;
    type SerializeTupleVariant = Impossible<u64, Differs>;
    type SerializeMap = Fields<'a>;
    type SerializeStruct = Fields<'a>;
    type SerializeStructVariant = Impossible<u64, Differs>;

    numbers!(serialize_i8: i8, serialize_i16: i16, serialize_i32: i32, serialize_i64: i64, serialize_u8: u8,
        serialize_u16: u16, serialize_u32: u32, serialize_u64: u64, serialize_f32: f32, serialize_f64: f64);

    fn serialize_bool(self, value: bool) -> Result<u64, Differs> {
        let wanted = self.wanted;
        self.equal(*wanted == value)
    }

    fn serialize_char(self, value: char) -> Result<u64, Differs> {
        self.serialize_str(value.encode_utf8(&mut [0; 4]))
    }

    fn serialize_str(self, value: &str) -> Result<u64, Differs> {
        let is_equal = self.wanted == value
            || is_amount(&self.at) && is_same_amount(self.wanted, &Value::from(value));
        self.equal(is_equal)
    }

    fn collect_str<T: fmt::Display + ?Sized>(self, value: &T) -> Result<u64, Differs> {
        self.serialize_str(&value.to_string())
    }

    fn serialize_bytes(self, _: &[u8]) -> Result<u64, Differs> {
        Err(Differs)
    }

    fn serialize_none(self) -> Result<u64, Differs> {
        self.serialize_unit()
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<u64, Differs> {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Result<u64, Differs> {
        let wanted = self.wanted;
        self.equal(wanted.is_null())
    }

    fn serialize_unit_struct(self, _: &'static str) -> Result<u64, Differs> {
        self.serialize_unit()
    }

    fn serialize_unit_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
    ) -> Result<u64, Differs> {
        self.serialize_str(variant)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        value: &T,
    ) -> Result<u64, Differs> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: &T,
    ) -> Result<u64, Differs> {
        Err(Differs)
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Fields<'a>, Differs> {
        self.array()
    }

    fn serialize_tuple(self, _: usize) -> Result<Fields<'a>, Differs> {
        self.array()
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Fields<'a>, Differs> {
        self.array()
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self::SerializeTupleVariant, Differs> {
        Err(Differs)
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Fields<'a>, Differs> {
        self.object()
    }

    fn serialize_struct(self, name: &'static str, _: usize) -> Result<Fields<'a>, Differs> {
        // serde_json serializes raw JSON and numbers of arbitrary precision as such structs.
        if name.starts_with("$serde_json") { Err(Differs) } else { self.object() }
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self::SerializeStructVariant, Differs> {
        Err(Differs)
    }
}

impl SerializeSeq for Fields<'_> {
    type Ok = u64;
    type Error = Differs;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Differs> {
        self.item(value)
    }

    fn end(self) -> Result<u64, Differs> {
        self.list()
    }
}

impl SerializeTuple for Fields<'_> {
    type Ok = u64;
    type Error = Differs;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Differs> {
        self.item(value)
    }

    fn end(self) -> Result<u64, Differs> {
        self.list()
    }
}

impl SerializeTupleStruct for Fields<'_> {
    type Ok = u64;
    type Error = Differs;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Differs> {
        self.item(value)
    }

    fn end(self) -> Result<u64, Differs> {
        self.list()
    }
}

impl SerializeMap for Fields<'_> {
    type Ok = u64;
    type Error = Differs;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), Differs> {
        self.key.clear();
        write!(self.key, "{}", Key(key)).map_err(|_| Differs)
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Differs> {
        let key = std::mem::take(&mut self.key);
        let compared = self.field(&key, value);
        self.key = key;
        compared
    }

    fn end(self) -> Result<u64, Differs> {
        Ok(self.shown)
    }
}

impl SerializeStruct for Fields<'_> {
    type Ok = u64;
    type Error = Differs;

    fn serialize_field<T: Serialize + ?Sized>(
        &mut self,
        name: &'static str,
        value: &T,
    ) -> Result<(), Differs> {
        self.field(name, value)
    }

    fn end(self) -> Result<u64, Differs> {
        Ok(self.shown)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use k8s_openapi::api::core::v1::{ResourceRequirements, Volume};
    use proptest::prelude::*;
    use serde::Deserialize;
    use serde_json::{Map, json};

    use super::*;
    use crate::manager::compared::{deviations, project};

    /// Fields of the forms that views have: omitted, null or zero if absent, maps, lists, types of k8s-openapi.
    #[derive(Debug, Default, Serialize, Deserialize)]
    #[serde(rename_all = "camelCase", default)]
    struct View {
        #[serde(skip_serializing_if = "Option::is_none")]
        replicas: Option<i64>,
        null: Option<i64>,
        paused: bool,
        selector: BTreeMap<String, String>,
        #[serde(skip_serializing_if = "BTreeMap::is_empty")]
        labels: BTreeMap<String, String>,
        containers: Vec<Container>,
        volumes: Option<Vec<Volume>>,
    }

    #[derive(Debug, Default, Serialize, Deserialize)]
    #[serde(default)]
    struct Container {
        name: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        image: Option<String>,
        resources: ResourceRequirements,
        args: Vec<String>,
    }

    /// A field that is often absent.
    fn field(
        name: &'static str,
        values: &'static [&'static str],
    ) -> BoxedStrategy<Map<String, Value>> {
        let present = prop::sample::select(values).prop_map(move |text| {
            let value: Value = serde_json::from_str(text).unwrap();
            Map::from_iter([(name.to_owned(), value)])
        });
        prop_oneof![1 => Just(Map::new()), 2 => present].boxed()
    }

    fn object(fields: Vec<BoxedStrategy<Map<String, Value>>>) -> BoxedStrategy<Value> {
        fields.prop_map(|all| Value::Object(all.into_iter().flatten().collect())).boxed()
    }

    fn spec() -> BoxedStrategy<Value> {
        let container = || {
            object(vec![
                field("name", &[r#""a""#, r#""b""#]),
                field("image", &[r#""one""#]),
                field("args", &["[]", r#"["x"]"#]),
                field(
                    "resources",
                    &[
                        "{}",
                        r#"{"limits": {"cpu": "1"}}"#,
                        r#"{"limits": {"cpu": "1000m"}}"#,
                        r#"{"limits": {"cpu": "1"}, "requests": {"cpu": "1"}}"#,
                    ],
                ),
            ])
        };
        let containers = prop::collection::vec(container(), 0..3);
        let containers =
            containers.prop_map(|all| Map::from_iter([("containers".to_owned(), json!(all))]));
        object(vec![
            field("replicas", &["1", "1.0", "2"]),
            field("null", &["1"]),
            field("paused", &["true", "false"]),
            field("unseen", &["1"]),
            field("selector", &["{}", r#"{"a": "b"}"#, r#"{"a": "b", "c": "d"}"#]),
            field("labels", &["{}", r#"{"a": "b"}"#, r#"{"a": "b", "c": "d"}"#]),
            field("volumes", &["[]", r#"[{"name": "v", "emptyDir": {}}]"#, r#"[{"name": "v"}]"#]),
            prop_oneof![Just(Map::new()), containers].boxed(),
        ])
    }

    fn read(object: &Value) -> Option<View> {
        View::deserialize(object).ok()
    }

    fn is_shown(object: &Value, wanted: &Value) -> bool {
        let shown = |object: &Value| Shown::of(&read(object)?, wanted).ok();
        shown(object).is_some_and(|of_object| Some(of_object) == shown(wanted))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 1 } else { 4_000 }))]

        #[test]
        fn a_shown_state_has_no_deviations(observed in spec(), wanted in spec()) {
            // The API server refuses to apply two items with one key.
            let names = wanted["containers"].as_array().map(|all| all.iter().map(|it| &it["name"]));
            let names: Vec<_> = names.into_iter().flatten().collect();
            prop_assume!(names.len() < 2 || names[0] != names[1]);
            for observed in [observed, wanted.clone()] {
                let (Some(object), Some(desired)) = (read(&observed), read(&wanted)) else { continue };
                if is_shown(&observed, &wanted) {
                    let mut desired = json!(desired);
                    project(&mut desired, &wanted);
                    prop_assert_eq!(deviations(&desired, &json!(object)), []);
                }
            }
        }
    }

    #[test]
    fn defaults_and_other_managers_fields_are_ignored_and_changes_are_found() {
        let container = json!({"name": "a", "image": "one", "resources": {"limits": {"cpu": "1"}}});
        let wanted =
            json!({"replicas": 2, "selector": {"a": "b"}, "containers": [container], "unseen": 1});
        let mut observed = wanted.clone();
        observed["paused"] = json!(true);
        observed["labels"] = json!({"injected": "yes"});
        observed["containers"][0]["args"] = json!(["x"]);
        observed["containers"][0]["resources"]["limits"]["cpu"] = json!("1000m");
        assert!(is_shown(&observed, &wanted));
        for (place, value) in [
            ("/replicas", json!(3)),
            ("/replicas", Value::Null),
            ("/selector/c", json!("d")),
            ("/containers/0/image", json!("two")),
            ("/containers/0/resources/limits", json!({})),
            ("/containers", json!([])),
        ] {
            let mut changed = observed.clone();
            let (outer, name) = place.rsplit_once('/').unwrap();
            let outer = changed.pointer_mut(outer).unwrap().as_object_mut().unwrap();
            if value.is_null() {
                drop(outer.remove(name));
            } else {
                drop(outer.insert(name.to_owned(), value));
            }
            assert!(!is_shown(&changed, &wanted), "{place}");
        }
    }
}
