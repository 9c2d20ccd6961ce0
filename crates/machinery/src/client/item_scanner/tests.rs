use proptest::prelude::*;
use serde::de::IgnoredAny;

use super::*;

const LIST: &str = r#" {"kind":"PodList", "apiVersion":"v1","metadata":{"resourceVersion":"7","continue":"x\"}"},
 "extra":[1,{"items":[{"no":1}]},"]}"],"more":-1.5e3 ,"items":[ {"a":"}]\\"},{"b":[{},[]],"c":"é\u00e9\""} ,
{}],"last":null}
"#;

type Items = Vec<Vec<u8>>;

/// Records the items. If `eager`, items are decoded in place.
#[derive(Default)]
struct Notes {
    items: Items,
    eager: bool,
}

impl ItemVisitor for Notes {
    fn item(&mut self, rest: &[u8]) -> Option<usize> {
        if !self.eager {
            return None;
        }
        let mut items = serde_json::Deserializer::from_slice(rest).into_iter::<IgnoredAny>();
        items.next()?.ok()?;
        let length = items.byte_offset();
        self.items.push(rest[..length].to_vec());
        Some(length)
    }

    fn complete(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.items.push(bytes.to_vec());
        Ok(())
    }
}

/// The items and what is around them, found both ways.
fn split(pieces: &[&[u8]]) -> Result<(Items, Envelope), Error> {
    let (items, end) = split_until(pieces);
    end.map(|envelope| (items, envelope))
}

/// The items up to the end, good or bad, found both ways.
fn split_until(pieces: &[&[u8]]) -> (Items, Result<Envelope, Error>) {
    let split = |eager| {
        let (mut scanner, mut notes) =
            (ItemScanner::default(), Notes { eager, ..Notes::default() });
        let mut arrived = pieces.iter().map(|piece| scanner.arrived(piece, &mut notes));
        let end = arrived.find(Result::is_err).unwrap_or(Ok(()));
        let end = end.and_then(|()| scanner.end()).and_then(|bytes| Envelope::decode(&bytes));
        (notes.items, end)
    };
    let (followed, decoded) = (split(false), split(true));
    assert_eq!((&followed.0, followed.1.is_ok()), (&decoded.0, decoded.1.is_ok()));
    followed
}

fn items(list: &str) -> Result<Vec<String>, Error> {
    let (items, _) = split(&[list.as_bytes()])?;
    Ok(items.into_iter().map(|item| String::from_utf8(item).unwrap()).collect())
}

#[test]
fn items_metadata_and_kind_are_found_among_any_other_fields() {
    assert_eq!(items(LIST).unwrap(), [r#"{"a":"}]\\"}"#, r#"{"b":[{},[]],"c":"é\u00e9\""}"#, "{}"]);
    let (_, envelope) = split(&[LIST.as_bytes()]).unwrap();
    assert_eq!(envelope.kind.as_deref(), Some("PodList"));
    let meta = envelope.metadata.unwrap();
    assert_eq!((&*meta.resource_version, meta.r#continue.as_deref()), ("7", Some("x\"}")));
}

#[test]
fn null_items_are_an_empty_list() {
    assert!(items(r#"{"items":null,"metadata":{}}"#).unwrap().is_empty());
    assert!(items(r#"{"items":[]}"#).unwrap().is_empty());
    assert!(items("{}").unwrap().is_empty());
}

#[test]
fn a_list_that_ends_early_is_an_error() {
    let body = LIST.trim_end().as_bytes();
    for end in 0..body.len() {
        let cut = split(&[&body[..end]]);
        assert!(matches!(cut, Err(Error::Cut(_))), "at {end}: {cut:?}");
    }
}

#[test]
fn a_body_that_is_not_a_list_is_rejected() {
    for text in [
        "[]",
        "<html>",
        r#"{"items":{}}"#,
        r#"{"items":[1]}"#,
        r#"{"a":}"#,
        "{}{}",
        "{,}",
        r#"{"it\u0065ms":[{}]}"#,
        r#"{"items":[],"items":[{}]}"#,
    ] {
        assert!(matches!(items(text), Err(Error::Decode { .. })), "{text}");
    }
}

#[test]
fn a_split_body_gives_the_same_items() {
    let body = LIST.as_bytes();
    let complete = split(&[body]).unwrap().0;
    for first in 0..body.len() {
        for second in first..body.len() {
            let pieces = [&body[..first], &body[first..second], &body[second..]];
            assert_eq!(split(&pieces).unwrap().0, complete, "cut at {first} and {second}");
        }
    }
    let bytes: Vec<&[u8]> = body.chunks(1).collect();
    assert_eq!(split(&bytes).unwrap().0, complete);
}

#[test]
fn an_endless_item_is_rejected() {
    let mut scanner = ItemScanner::default();
    let mut none = Notes::default();
    scanner.arrived(br#"{"items":[{"a":""#, &mut none).unwrap();
    let piece = vec![b'x'; 1 << 20];
    let refused = (0..64).find_map(|_| scanner.arrived(&piece, &mut none).err());
    assert!(matches!(refused, Some(Error::TooLarge { .. })));
    assert!(scanner.begun.capacity() <= 2 * MAX_OBJECT);
}

#[test]
fn the_size_of_the_envelope_is_limited() {
    let mut scanner = ItemScanner::default();
    scanner.arrived(br#"{"other":[""#, &mut Notes::default()).unwrap();
    let piece = vec![b'x'; 1 << 20];
    let refused = (0..64).find_map(|_| scanner.arrived(&piece, &mut Notes::default()).err());
    assert!(matches!(refused, Some(Error::TooLarge { .. })));
}

fn json() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(Into::into),
        any::<i64>().prop_map(Into::into),
        ".{0,8}".prop_map(Into::into),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Into::into),
            prop::collection::btree_map(".{0,6}", inner, 0..4)
                .prop_map(|map| serde_json::Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn the_scanner_finds_the_same_items_as_a_json_parser(
        objects in prop::collection::vec(prop::collection::btree_map(".{0,6}", json(), 0..4), 0..5),
        other in json(),
        pretty: bool,
        cut in 1usize..40,
    ) {
        let list = serde_json::json!({ "a": other, "items": objects, "metadata": {}, "z": other });
        let text =
            if pretty { serde_json::to_string_pretty(&list) } else { serde_json::to_string(&list) };
        let text = text.unwrap();
        let pieces: Vec<&[u8]> = text.as_bytes().chunks(cut).collect();
        let (found, _) = split(&pieces).unwrap();
        let found: Vec<serde_json::Value> =
            found.iter().map(|bytes| serde_json::from_slice(bytes).unwrap()).collect();
        prop_assert_eq!(serde_json::Value::from(found), list["items"].clone());
    }

    #[test]
    fn no_bytes_or_splits_make_the_scanner_panic(
        bytes in prop::collection::vec(
            prop_oneof![prop::sample::select(br#"{}[]":,\ items"#.to_vec()), any::<u8>()], 0..120),
        items in prop::collection::vec(
            prop::sample::select(vec!["{}", r#"{"a":"#, "}", "[", "]", "\"", "\\", "1", ","]), 0..12),
        listed: bool,
        cut in 1usize..20,
    ) {
        // Random bytes alone hardly ever get as far as an item.
        let list = format!(r#"{{"items":[{{}},{}]}}"#, items.concat()).into_bytes();
        let bytes = if listed { list } else { bytes };
        let pieces: Vec<&[u8]> = bytes.chunks(cut).collect();
        let (apart, complete) = (split_until(&pieces), split_until(&[&bytes]));
        prop_assert_eq!((apart.0, apart.1.is_ok()), (complete.0, complete.1.is_ok()));
    }
}
