//! Small texts: versions, quantities, selectors.

use std::cmp::Ordering;
use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use parking_lot::Mutex;
use serde::Deserialize;
use tower::service_fn;
use workload_operator::client::{Client, Options, Page, Scope};
use workload_operator::object::Quantity;
use workload_operator::object::{AllMetadata, Kind, Meta, ResourceVersion, Uid};
use workload_operator::view;

/// Two texts, between which is the first newline, as versions, UIDs and quantities: comparing them
/// is an order, or an equality, whatever they are.
pub fn numbers(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let (a, b) = text.split_once('\n').unwrap_or((&text, &text));
    let versions = (ResourceVersion::parse(a), ResourceVersion::parse(b));
    assert_eq!(versions.0.order(versions.1), versions.1.order(versions.0).map(Ordering::reverse));
    assert_eq!(versions.0.is_newer_than(versions.1), versions.1.is_older_than(versions.0));
    if versions.0.is_known() {
        assert_eq!(ResourceVersion::parse(&versions.0.to_string()), versions.0);
        assert_eq!(versions.0.to_string(), a, "a version is sent back as it came");
    }
    if let Ok(uid) = a.parse::<Uid>() {
        assert_eq!(uid.to_string().parse::<Uid>().ok(), Some(uid));
    }
    let quantities = (Quantity::new(a), Quantity::new(b));
    assert!(quantities.0.is_same_as(&quantities.0));
    assert_eq!(quantities.0.is_same_as(&quantities.1), quantities.1.is_same_as(&quantities.0));
}

#[derive(Debug, Deserialize)]
struct Thing {
    metadata: Meta<AllMetadata>,
}

view!(Thing { metadata: Meta<AllMetadata> }:
    Kind::namespaced("test.example.com", "v1", "Thing", "things"));

/// Label selector, field selector and continue token, a line each: the API server reads what was
/// asked for, whatever is in it, and nothing more.
pub fn query(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let mut lines = text.splitn(3, '\n').map(str::to_owned);
    let (labels, fields, token) = (lines.next(), lines.next(), lines.next());
    let asked = Arc::new(Mutex::new(None));
    let seen = asked.clone();
    let service = service_fn(move |request: Request<Bytes>| {
        *seen.lock() = Some(request.uri().clone());
        let list = br#"{"kind":"List","metadata":{"resourceVersion":"1"},"items":[]}"#;
        async { Ok::<_, Infallible>(Response::new(Full::new(Bytes::from_static(list)))) }
    });
    let client = Client::from_service(service, Options::default());
    let scope = Scope { labels: labels.clone(), fields: fields.clone(), ..Scope::default() };
    let page = Page { limit: None, continue_token: token.clone(), not_older_than: None };
    let listed = super::run(client.list::<Thing>(&scope, &page, |_| {}));
    let Some(uri) = asked.lock().take() else {
        // Too long for a URI.
        assert!(listed.is_err(), "it was not asked for");
        return;
    };
    assert_eq!(uri.path(), "/apis/test.example.com/v1/things");
    let wanted = [("fieldSelector", fields), ("labelSelector", labels), ("continue", token)];
    let wanted: Vec<_> =
        wanted.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect();
    assert_eq!(parameters(uri.query().unwrap_or_default()), wanted);
}

fn parameters(query: &str) -> Vec<(String, String)> {
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| {
            let (name, value) = pair.split_once('=').expect("a name and a value");
            (name.to_owned(), decoded(&value.replace('+', " ")))
        })
        .collect()
}

fn decoded(text: &str) -> String {
    let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte == b'%' {
            let (digits, after) = rest.split_at(2);
            let digits = std::str::from_utf8(digits).expect("digits");
            bytes.push(u8::from_str_radix(digits, 16).expect("digits"));
            rest = after;
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).expect("what was text is text")
}
