//! URLs of requests.

use std::borrow::Cow;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::Error;
use super::types::{Page, Scope, WatchFrom};
use crate::object::{Kind, ObjectKey};

/// Bytes that are escaped in a path segment or a parameter: all but RFC 3986's unreserved characters.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// A path and its query.
#[derive(Debug)]
pub(super) struct Url {
    text: String,
    separator: char,
}

// === impl Url ===

impl Url {
    /// Returns the URL of a collection.
    pub(super) fn collection(kind: &Kind, namespace: Option<&str>) -> Result<Url, Error> {
        Ok(Url { text: path(kind, namespace)?, separator: '?' })
    }

    /// Returns the URL of an object or its `subresource`.
    pub(super) fn object(
        kind: &Kind,
        key: &ObjectKey,
        subresource: Option<&str>,
    ) -> Result<Url, Error> {
        let mut text = path(kind, Some(key.namespace()))?;
        text.push('/');
        text.push_str(&segment("name", key.name())?);
        if let Some(subresource) = subresource {
            text.push('/');
            text.push_str(subresource);
        }
        Ok(Url { text, separator: '?' })
    }

    /// Returns the URL of an unchanged path.
    pub(super) fn at(path: &str) -> Url {
        Url { text: path.to_owned(), separator: '?' }
    }

    /// Adds a parameter.
    pub(super) fn with(mut self, name: &str, value: &str) -> Url {
        self.text.push(self.separator);
        self.separator = '&';
        self.text.push_str(name);
        self.text.push('=');
        self.text.extend(utf8_percent_encode(value, ESCAPED));
        self
    }

    fn with_some(self, name: &str, value: Option<&str>) -> Url {
        match value {
            Some(value) => self.with(name, value),
            None => self,
        }
    }

    /// Returns the URL of a list.
    pub(super) fn list(kind: &Kind, scope: &Scope, page: &Page) -> Result<Url, Error> {
        let url = Url::scoped(kind, scope)?;
        let limit = page.limit.map(|limit| limit.to_string());
        if let Some(token) = &page.continue_token {
            return Ok(url.with_some("limit", limit.as_deref()).with("continue", token));
        }
        let Some(version) = &page.not_older_than else {
            return Ok(url.with_some("limit", limit.as_deref()));
        };
        let limit = limit.filter(|_| version != "0");
        Ok(url
            .with_some("limit", limit.as_deref())
            .with("resourceVersion", version)
            .with("resourceVersionMatch", "NotOlderThan"))
    }

    /// Returns the URL of a watch.
    pub(super) fn watch(kind: &Kind, scope: &Scope, from: &WatchFrom) -> Result<Url, Error> {
        let seconds = from.timeout.as_secs().max(1).to_string();
        let mut url = Url::scoped(kind, scope)?
            .with("watch", "true")
            .with("allowWatchBookmarks", "true")
            .with("timeoutSeconds", &seconds)
            .with_some("resourceVersion", from.version.as_deref());
        if from.initial_events {
            url =
                url.with("sendInitialEvents", "true").with("resourceVersionMatch", "NotOlderThan");
        } else if from.version.is_none() {
            // Without a version, the API server would first send all objects as new.
            return Err(Error::Request("a watch without initial events needs a version".into()));
        }
        Ok(url)
    }

    pub(super) fn scoped(kind: &Kind, scope: &Scope) -> Result<Url, Error> {
        Ok(Url::collection(kind, scope.namespace.as_deref())?
            .with_some("labelSelector", scope.labels.as_deref())
            .with_some("fieldSelector", scope.fields.as_deref()))
    }

    pub(super) fn into_string(self) -> String {
        self.text
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

/// Returns the field selector for this name (`EscapeValue` in k8s.io/apimachinery, pkg/fields).
pub(super) fn by_name(name: &str) -> String {
    let mut selector = "metadata.name=".to_owned();
    for character in name.chars() {
        if matches!(character, '\\' | ',' | '=') {
            selector.push('\\');
        }
        selector.push(character);
    }
    selector
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const PODS: Kind = Kind::namespaced("", "v1", "Pod", "pods");

    fn listed(page: &Page) -> String {
        Url::list(&PODS, &Scope::default(), page).unwrap().into_string()
    }

    #[test]
    fn a_continue_token_replaces_the_version_of_a_page() {
        let page = Page {
            limit: Some(500),
            continue_token: Some("a/b=".into()),
            not_older_than: Some("7".into()),
        };
        assert_eq!(listed(&page), "/api/v1/pods?limit=500&continue=a%2Fb%3D");
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
        assert_eq!(listed(&page("0")), format!("/api/v1/pods?resourceVersion=0&{rest}"));
        assert_eq!(listed(&page("7")), format!("/api/v1/pods?limit=500&resourceVersion=7&{rest}"));
        assert_eq!(listed(&Page::default()), "/api/v1/pods");
    }

    #[test]
    fn selectors_are_escaped() {
        let scope = Scope {
            namespace: Some("shop".into()),
            labels: Some("app=web,tier in (a, b)".into()),
            fields: None,
        };
        let from = WatchFrom {
            version: Some("5".into()),
            initial_events: true,
            timeout: Duration::from_millis(10),
            metadata_only: false,
        };
        assert_eq!(
            Url::watch(&PODS, &scope, &from).unwrap().into_string(),
            "/api/v1/namespaces/shop/pods?labelSelector=app%3Dweb%2Ctier%20in%20%28a%2C%20b%29\
             &watch=true&allowWatchBookmarks=true&timeoutSeconds=1&resourceVersion=5\
             &sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
        );
    }

    #[test]
    fn a_watch_without_a_version_is_rejected() {
        let from = WatchFrom {
            version: None,
            initial_events: false,
            timeout: Duration::from_secs(9),
            metadata_only: false,
        };
        assert!(Url::watch(&PODS, &Scope::default(), &from).is_err());
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
        for (name, segment) in escaped {
            let url = Url::object(&PODS, &ObjectKey::new("ns", name), None).unwrap();
            assert_eq!(url.into_string(), format!("/api/v1/namespaces/ns/pods/{segment}"));
        }
    }

    #[test]
    fn a_name_that_would_change_the_path_is_rejected() {
        for name in ["", ".", "..", "a/b", "a%2f"] {
            let key = ObjectKey::new("ns", name);
            assert!(Url::object(&PODS, &key, None).is_err(), "{name:?}");
            let kind = Kind::named("example.com", name, "Thing", "things", true);
            assert!(Url::collection(&kind, None).is_err(), "version {name:?}");
        }
        assert!(Url::object(&PODS, &ObjectKey::new("", "a"), None).is_err(), "no namespace");
        let url = Url::object(&PODS, &ObjectKey::new("ns", "a"), Some("status")).unwrap();
        assert_eq!(url.into_string(), "/api/v1/namespaces/ns/pods/a/status");
    }
}
