use proptest::prelude::*;
use serde::Deserialize;

use super::*;
use crate::object::{ObjectKey, ResourceVersion};

#[derive(Debug, Deserialize)]
struct View {
    spec: Spec,
}

#[derive(Debug, Deserialize)]
struct Spec {
    size: u32,
}

const GOOD: &str = r#"{"type":"MODIFIED","object":{"metadata":{"name":"a","managedFields":[{"x":{}}]},"spec":{"size":3,"other":[1,{"a":"\""}]}}}"#;
const BAD: &str = r#"{"type":"DELETED","object":{"metadata":{"name":"a","namespace":"ns","uid":"01234567-89ab-cdef-0123-456789abcdef","resourceVersion":"7"},"spec":{"size":"three"}}}"#;

#[test]
fn an_object_is_decoded_as_its_event_type() {
    assert!(matches!(
        decode(GOOD.as_bytes()),
        Ok(WatchEvent::Modified(View { spec: Spec { size: 3 } }))
    ));
}

#[test]
fn an_object_before_its_event_type_is_decoded() {
    let frame = r#"{"object":{"spec":{"size":1}},"type":"ADDED"}"#;
    assert!(matches!(decode(frame.as_bytes()), Ok(WatchEvent::Added(View { .. }))));
    let frame = r#"{"object":{"metadata":{},"spec":[1]},"type":"ADDED"}"#;
    #[derive(Debug, Deserialize)]
    struct Raw {
        spec: Box<RawValue>,
    }
    let WatchEvent::Added(Raw { spec }) = decode(frame.as_bytes()).unwrap() else {
        panic!("no object with raw JSON")
    };
    assert_eq!(spec.get(), "[1]");
    let frame = r#"{"object":{"kind":"Status","code":410,"reason":"Expired"},"type":"ERROR"}"#;
    assert!(decode::<View>(frame.as_bytes()).unwrap_err().is_expired());
}

#[test]
fn an_undecodable_object_is_identified() {
    match decode::<View>(BAD.as_bytes()) {
        Ok(WatchEvent::InvalidObject(bad)) => {
            assert_eq!(bad.key, ObjectKey::new("ns", "a"));
            assert_eq!(bad.version, ResourceVersion::new(7));
            assert!(bad.uid.is_some() && bad.deleted);
            assert_eq!(bad.why, "spec.size: invalid type: string, expected u32");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_error_frame_becomes_the_error_in_its_status() {
    let frame = r#"{"type":"ERROR","object":{"kind":"Status","code":410,"message":"too old resource version: 1 (9)","reason":"Expired"}}"#;
    let error = decode::<View>(frame.as_bytes()).unwrap_err();
    assert!(error.is_expired());
    assert_eq!(error.to_string(), "too old resource version: 1 (9)");
}

#[test]
fn the_bookmark_after_the_initial_events_is_recognized() {
    let frame = |annotations: &str| {
        format!(
            r#"{{"type":"BOOKMARK","object":{{"kind":"Pod","metadata":{{"resourceVersion":"12","creationTimestamp":null{annotations}}},"spec":{{"containers":null}}}}}}"#
        )
    };
    let is_end = |frame: String| match decode::<View>(frame.as_bytes()) {
        Ok(WatchEvent::Bookmark { version, initial_events_end }) => {
            assert_eq!(version, "12");
            initial_events_end
        }
        other => panic!("{other:?}"),
    };
    assert!(is_end(frame(r#","annotations":{"k8s.io/initial-events-end":"true"}"#)));
    assert!(!is_end(frame(r#","annotations":{"x":"true"}"#)));
    assert!(!is_end(frame("")));
}

#[test]
fn an_invalid_frame_is_an_error_with_an_excerpt() {
    for frame in [
        "",
        "null",
        "[]",
        "{}",
        "<html>",
        r#"{"type":"ADDED"}"#,
        r#"{"object":{}}"#,
        r#"{"type":"RENAMED","object":{"metadata":{"name":"a"}}}"#,
        r#"{"type":"ADDED","object":{"spec":{"size":"x"}}}"#,
        r#"{"type":"BOOKMARK","object":{}}"#,
        r#"{"type":"ADDED","object":{"spec":{"size":1}}} trailing"#,
        r#"{"type":"ADDED","object":{"spec":{"size":1}},"object":{"spec":{"size":1}}}"#,
    ] {
        match decode::<View>(frame.as_bytes()) {
            Err(Error::Decode { excerpt, .. }) => {
                let is_json = frame.starts_with(['{', '[']);
                let size = format!("{} bytes of JSON", frame.len());
                assert_eq!(excerpt, if is_json { size } else { frame.to_owned() });
            }
            other => panic!("{frame}: {other:?}"),
        }
    }
}

proptest! {
    #[test]
    fn no_bytes_make_the_decoder_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = decode::<View>(&bytes);
    }

    #[test]
    fn no_damage_to_a_frame_makes_the_decoder_panic(
        bad: bool, at: prop::sample::Index, byte: u8, cut: prop::sample::Index,
    ) {
        let mut frame = if bad { BAD } else { GOOD }.as_bytes().to_vec();
        let at = at.index(frame.len());
        frame[at] = byte;
        let _ = decode::<View>(&frame);
        frame.truncate(cut.index(frame.len()));
        prop_assert!(decode::<View>(&frame).is_err());
    }
}

#[test]
fn the_reason_for_an_undecodable_object_is_short() {
    let wide = "x".repeat(1 << 20);
    let frame = format!(
        r#"{{"type":"ADDED","object":{{"metadata":{{"name":"a"}},"spec":{{"size":"{wide}"}}}}}}"#
    );
    match decode::<View>(frame.as_bytes()) {
        Ok(WatchEvent::InvalidObject(bad)) => {
            assert!(bad.why.len() < 300, "{} bytes", bad.why.len());
        }
        other => panic!("{other:?}"),
    }
}
