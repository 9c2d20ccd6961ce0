//! Requests, which kube builds. kube escapes parameters, but not the segments of paths.

use std::borrow::Cow;

use bytes::Bytes;
use http::header::{ACCEPT, HeaderValue};
use kube::core::Request;
use kube::core::params::{GetParams, ListParams, VersionMatch, WatchParams};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::Error;
use super::types::{Page, Scope, WatchFrom};
use crate::object::{Kind, ObjectKey};

/// Bytes that are escaped in a path segment: all but RFC 3986's unreserved characters.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// The `Accept` headers of a metadata-only list and watch. An aggregated API server without this format sends whole
/// objects; without the alternative it would return 406 indefinitely.
const METADATA_LIST: &str =
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";
const METADATA: &str =
    "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";

/// A request as kube returns it.
type Built = Result<http::Request<Vec<u8>>, kube::core::request::Error>;

/// Returns the requests for the objects of a kind, in one namespace or in all.
pub(super) fn objects(kind: &Kind, namespace: Option<&str>) -> Result<Request, Error> {
    Ok(Request::new(path(kind, namespace)?))
}

/// Returns the request with a body that can be cloned cheaply.
pub(super) fn built(request: Built) -> Result<http::Request<Bytes>, Error> {
    let request = request.map_err(|error| Error::Request(error.to_string()))?;
    Ok(request.map(Bytes::from))
}

/// Returns the request to read this path.
pub(super) fn at(path: impl Into<String>) -> Result<http::Request<Bytes>, Error> {
    let request = http::Request::get(path.into()).body(Bytes::new());
    request.map_err(|error| Error::Request(error.to_string()))
}

/// Returns the request to read one object.
pub(super) fn object(kind: &Kind, key: &ObjectKey) -> Result<http::Request<Bytes>, Error> {
    let name = segment("name", key.name())?;
    built(objects(kind, Some(key.namespace()))?.get(&name, &GetParams::default()))
}

/// Returns the request for a list.
pub(super) fn list(kind: &Kind, scope: &Scope, page: &Page) -> Result<http::Request<Bytes>, Error> {
    let version = page.not_older_than.as_ref().filter(|_| page.continue_token.is_none());
    let request = objects(kind, scope.namespace.as_deref())?.list(&ListParams {
        limit: page.limit.filter(|_| version.is_none_or(|version| version != "0")),
        continue_token: page.continue_token.clone(),
        version_match: version.map(|_| VersionMatch::NotOlderThan),
        resource_version: version.cloned(),
        ..selectors(scope)
    });
    in_format(request, scope, METADATA_LIST)
}

/// Returns the request for a watch.
pub(super) fn watch(
    kind: &Kind,
    scope: &Scope,
    from: &WatchFrom,
) -> Result<http::Request<Bytes>, Error> {
    let params = WatchParams {
        label_selector: scope.labels.clone(),
        field_selector: scope.fields.clone(),
        timeout: Some(u32::try_from(from.timeout.as_secs()).unwrap_or(u32::MAX).max(1)),
        bookmarks: true,
        send_initial_events: from.initial_events,
    };
    let version = match &from.version {
        Some(version) => version,
        None if from.initial_events => "",
        // Without a version, the API server would first send all objects as new.
        None => {
            return Err(Error::Request("a watch without initial events needs a version".into()));
        }
    };
    let request = objects(kind, scope.namespace.as_deref())?.watch(&params, version);
    in_format(request, scope, METADATA)
}

/// Returns the request with the `Accept` header `metadata` if `scope` wants only metadata.
fn in_format(
    request: Built,
    scope: &Scope,
    metadata: &'static str,
) -> Result<http::Request<Bytes>, Error> {
    let mut request = built(request)?;
    if scope.metadata_only {
        request.headers_mut().insert(ACCEPT, HeaderValue::from_static(metadata));
    }
    Ok(request)
}

/// Returns the parameters for the objects that `scope` selects.
pub(super) fn selectors(scope: &Scope) -> ListParams {
    ListParams {
        label_selector: scope.labels.clone(),
        field_selector: scope.fields.clone(),
        ..ListParams::default()
    }
}

/// Returns the path of a collection.
fn path(kind: &Kind, namespace: Option<&str>) -> Result<String, Error> {
    let named = [("group", kind.group), ("version", kind.version), ("resource", kind.plural)];
    for (what, name) in named.into_iter().filter(|named| *named != ("group", "")) {
        if segment(what, name)? != name {
            return Err(Error::Request(format!("{name:?} is no {what}")));
        }
    }
    let namespace = namespace.filter(|_| kind.namespaced);
    let namespace = namespace.map(|namespace| segment("namespace", namespace)).transpose()?;
    Ok(kind.path(namespace.as_deref()))
}

/// Returns whether an object can have this name in a path. The API server refuses the others, too: they would change
/// the path (k8s.io/apimachinery, pkg/api/validation/path).
pub(crate) fn is_name(name: &str) -> bool {
    !(name.is_empty() || name == "." || name == ".." || name.contains(['/', '%']))
}

/// Returns a name as a path segment.
pub(super) fn segment<'a>(what: &str, name: &'a str) -> Result<Cow<'a, str>, Error> {
    if !is_name(name) {
        return Err(Error::Request(format!("{name:?} is no {what}")));
    }
    Ok(utf8_percent_encode(name, ESCAPED).into())
}

/// Returns the scope with this object only.
pub(super) fn only(key: &ObjectKey) -> Scope {
    let (namespace, fields) = (Some(key.namespace().clone()), Some(by_name(key.name())));
    Scope { namespace, fields, ..Scope::default() }
}

/// Returns the field selector for this name (`EscapeValue` in k8s.io/apimachinery, pkg/fields).
fn by_name(name: &str) -> String {
    let escape = |c| matches!(c, '\\' | ',' | '=').then_some('\\').into_iter().chain([c]);
    "metadata.name=".chars().chain(name.chars().flat_map(escape)).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const PODS: Kind = Kind::namespaced("", "v1", "Pod", "pods");

    fn listed(page: &Page) -> String {
        list(&PODS, &Scope::default(), page).unwrap().uri().to_string()
    }

    #[test]
    fn a_continue_token_replaces_the_version_of_a_page() {
        let page = Page {
            limit: Some(500),
            continue_token: Some("a/b=".into()),
            not_older_than: Some("7".into()),
        };
        assert_eq!(listed(&page), "/api/v1/pods?&limit=500&continue=a%2Fb%3D");
    }

    #[test]
    fn a_name_is_escaped_in_a_field_selector() {
        assert_eq!(by_name("system:node"), "metadata.name=system:node");
        assert_eq!(by_name("a,b=c\\"), r"metadata.name=a\,b\=c\\");
    }

    #[test]
    fn a_list_from_the_cache_has_no_limit() {
        let page = |version: &str| Page {
            limit: Some(500),
            continue_token: None,
            not_older_than: Some(version.into()),
        };
        let rest = "resourceVersionMatch=NotOlderThan";
        assert_eq!(listed(&page("0")), format!("/api/v1/pods?&resourceVersion=0&{rest}"));
        assert_eq!(listed(&page("7")), format!("/api/v1/pods?&limit=500&resourceVersion=7&{rest}"));
        assert_eq!(listed(&Page::default()), "/api/v1/pods?");
    }

    #[test]
    fn selectors_are_escaped() {
        let scope = Scope {
            namespace: Some("shop".into()),
            labels: Some("app=web,tier in (a, b)".into()),
            fields: None,
            ..Scope::default()
        };
        let from = WatchFrom {
            version: Some("5".into()),
            initial_events: true,
            timeout: Duration::from_millis(10),
        };
        assert_eq!(
            watch(&PODS, &scope, &from).unwrap().uri().to_string(),
            "/api/v1/namespaces/shop/pods?&watch=true&timeoutSeconds=1\
             &labelSelector=app%3Dweb%2Ctier+in+%28a%2C+b%29&allowWatchBookmarks=true\
             &sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=5"
        );
    }

    #[test]
    fn a_watch_without_a_version_is_rejected() {
        let from =
            WatchFrom { version: None, initial_events: false, timeout: Duration::from_secs(9) };
        assert!(watch(&PODS, &Scope::default(), &from).is_err());
    }

    /// Names of roles may have any characters but two.
    #[test]
    fn a_legal_name_is_escaped() {
        let escaped = [
            ("system:node", "system%3Anode"),
            ("a b", "a%20b"),
            ("é", "%C3%A9"),
            ("a?x#y", "a%3Fx%23y"),
        ];
        for (name, escaped) in escaped {
            assert_eq!(segment("name", name).unwrap(), escaped);
        }
    }

    #[test]
    fn a_name_that_would_change_the_path_is_rejected() {
        for name in ["", ".", "..", "a/b", "a%2f"] {
            assert!(segment("name", name).is_err(), "{name:?}");
            let kind = Kind::named("example.com", name, "Thing", "things", true);
            assert!(objects(&kind, None).is_err(), "version {name:?}");
        }
        assert!(objects(&PODS, Some("")).is_err(), "no namespace");
    }
}
