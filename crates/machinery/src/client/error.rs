//! The errors of calls.

use std::error::Error as StdError;
use std::time::Duration;

use kube::client::AuthError;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::error::Category;

use super::text::one_line;
use crate::identity::Identity;
use crate::object::Kind;

type BoxError = Box<dyn StdError + Send + Sync>;

/// A cause of a refusal (metav1.StatusCause).
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Cause {
    /// metav1.CauseType; empty if none was given.
    #[serde(deserialize_with = "or_empty")]
    pub reason: String,
    /// The refused field, such as `spec.ports[0].name`; empty if none was given.
    #[serde(deserialize_with = "or_empty")]
    pub field: String,
    /// Why it is refused, as a sentence.
    #[serde(deserialize_with = "or_empty")]
    pub message: String,
}

/// The reason why a call failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The API server refused the request.
    #[error("{message}")]
    Api {
        /// HTTP code.
        code: u16,
        /// metav1.StatusReason; empty if none was given.
        reason: String,
        /// The message, for humans.
        message: String,
        /// `details.causes`.
        causes: Vec<Cause>,
        /// Retry-After header or details.retryAfterSeconds.
        retry_after: Option<Duration>,
    },
    /// No response in time. A write may still be applied.
    #[error("the API server did not respond within {0:?}")]
    Deadline(Duration),
    /// This process cannot write now, for example because it is not the leader.
    #[error("not written: {0}")]
    NotPermitted(String),
    /// The connection, TLS or authentication failed; `root` is the innermost cause. A write may still be applied.
    #[error("the request to the API server failed: {root}")]
    Transport {
        /// The message of the innermost cause.
        root: String,
        /// The complete error.
        #[source]
        source: BoxError,
    },
    /// The response broke off in the middle of an object.
    #[error("the connection broke off in the middle of {0}")]
    Cut(&'static str),
    /// A response is larger than the limit.
    #[error("{what} is larger than {limit} bytes")]
    TooLarge {
        /// Name of the part that is too large.
        what: &'static str,
        /// The limit.
        limit: usize,
    },
    /// The response violates the API.
    #[error("cannot decode the response of the API server: {why} in: {excerpt}")]
    Decode {
        /// The place and kind of the mismatch, without values, in about 200 bytes.
        why: String,
        /// The beginning of the response, at most 200 bytes. Of JSON only the size: it can contain secrets.
        excerpt: String,
    },
    /// The request cannot be built.
    #[error("the request cannot be made: {0}")]
    Request(String),
    /// No API server is configured, or the configuration is unusable.
    #[error("{0}")]
    Config(String),
}

// === impl Error ===

impl Error {
    /// Creates an error response of the API server, for tests of error handling.
    pub fn api(code: u16, reason: impl Into<String>, message: impl Into<String>) -> Error {
        Error::Api {
            code,
            reason: reason.into(),
            message: message.into(),
            causes: Vec::new(),
            retry_after: None,
        }
    }

    pub(super) fn transport(source: BoxError) -> Error {
        let source = match source.downcast::<Error>() {
            Ok(error) => return *error,
            Err(source) => source,
        };
        let Some(failed) = auth_error(&*source) else {
            return Error::Transport { root: innermost(&*source), source };
        };
        // The complete error contains the output of the plugin, and so perhaps a token.
        let root = match failed {
            AuthError::AuthExecRun { out, .. } => {
                format!("the credential plugin failed: {}", out.status)
            }
            AuthError::AuthExecParse(_) | AuthError::MalformedTokenExpirationDate(_) => {
                "the credential plugin's output is not understood".to_owned()
            }
            other => other.to_string(),
        };
        Error::Transport { source: root.clone().into(), root }
    }

    /// Adds the address that could not be reached.
    pub(super) fn at(mut self, address: Option<&str>) -> Error {
        if let (Error::Transport { root, .. }, Some(address)) = (&mut self, address) {
            *root = format!("{address}: {root}");
        }
        self
    }

    /// Creates the error for a `text` that is not a `V`.
    pub(super) fn decode<V: DeserializeOwned>(text: &[u8]) -> Error {
        Error::Decode { why: mismatch::<V>(text), excerpt: shape(text) }
    }

    /// Replaces the message for a kind that is not served by one with the remedy. The API server sends only Go's "404
    /// page not found"; any other 404 without a Status comes from a proxy.
    pub(super) fn about(mut self, kind: &Kind, program: &Identity) -> Error {
        let not_served = self.is_not_served() && !kind.plural.is_empty();
        if let Error::Api { message, .. } = &mut self
            && not_served
            && message.trim_end().ends_with(": 404 page not found")
        {
            let (resource, remedy) = (kind.resource(), program.hints().kinds);
            *message = format!("the API server does not serve {resource}: {remedy}");
        }
        self
    }

    /// Returns the HTTP code, if there was a response.
    pub fn code(&self) -> Option<u16> {
        let Error::Api { code, .. } = self else { return None };
        Some(*code)
    }

    /// Returns the metav1.StatusReason; empty if there is none.
    pub fn reason(&self) -> &str {
        let Error::Api { reason, .. } = self else { return "" };
        reason
    }

    /// Returns the wait that the server requested (Retry-After).
    pub fn retry_after(&self) -> Option<Duration> {
        let Error::Api { retry_after, .. } = self else { return None };
        *retry_after
    }

    /// Returns whether the object does not exist (on a create: its namespace). The response to that is a Status with
    /// this reason. Any other 404 says nothing about the object: the kind is not served, or a proxy responded.
    pub fn is_not_found(&self) -> bool {
        self.code() == Some(404) && !self.is_not_served()
    }

    /// Returns whether the API server does not serve the kind: its CustomResourceDefinition is missing, or this
    /// version of Kubernetes lacks it.
    pub fn is_not_served(&self) -> bool {
        // Of a group that it serves, the server names no object.
        let is_unknown = matches!(self, Error::Api { message, .. }
            if message.contains("could not find the requested resource"));
        self.code() == Some(404) && (self.reason().is_empty() || is_unknown)
    }

    /// Returns whether a precondition failed or a name is taken.
    pub fn is_conflict(&self) -> bool {
        self.code() == Some(409)
    }

    /// Returns the causes that the API server named.
    pub(crate) fn causes(&self) -> &[Cause] {
        let Error::Api { causes, .. } = self else { return &[] };
        causes
    }

    /// Returns the fields of an apply that other managers own with different values, such as `.spec.replicas`.
    pub fn conflicting_fields(&self) -> Vec<&str> {
        let conflicts = self.causes().iter().filter(|cause| cause.reason == "FieldManagerConflict");
        conflicts.map(|cause| &*cause.field).collect()
    }

    /// Returns whether the name is taken.
    pub fn is_already_exists(&self) -> bool {
        self.is_conflict() && self.reason() == "AlreadyExists"
    }

    /// Returns whether the requested version or continue token was compacted.
    pub fn is_expired(&self) -> bool {
        self.code() == Some(410) || matches!(self.reason(), "Expired" | "Gone")
    }

    /// Returns whether this API server lags behind the requested version (storage.NewTooLargeResourceVersionError).
    pub fn is_too_large_version(&self) -> bool {
        matches!(self, Error::Api { code: 500 | 504, message, causes, .. }
            if causes.iter().any(|cause| cause.reason == "ResourceVersionTooLarge")
                || message.contains("Too large resource version"))
    }

    /// Returns whether RBAC, admission or quota forbids the request.
    pub fn is_forbidden(&self) -> bool {
        self.code() == Some(403)
    }

    /// Returns whether the object is invalid.
    pub fn is_invalid(&self) -> bool {
        self.code() == Some(422)
    }

    /// Returns whether a ResourceQuota is exceeded. The API server has no separate reason for this, only the wording
    /// (k8s.io/apiserver/pkg/admission/plugin/resourcequota).
    pub fn is_quota_exceeded(&self) -> bool {
        matches!(self, Error::Api { code: 403, message, .. } if message.contains("exceeded quota"))
    }

    /// Returns whether an admission policy or webhook denied the request. Both can use the code of an invalid object,
    /// so the message decides (k8s.io/apiserver, pkg/admission/plugin/policy/validating and
    /// pkg/admission/plugin/webhook/errors).
    pub fn is_denied(&self) -> bool {
        matches!(self, Error::Api { code: 400 | 403 | 422, message, .. }
            if message.contains("denied request: ") || message.contains("denied the request"))
    }

    /// Returns whether the API server refuses the request for a cause that usually ends within seconds: admission has
    /// not read what it decides by (its caches, a policy's parameters, the usage of a ResourceQuota, the new kind of an
    /// owner), or an address or port could not be allocated. There is no separate reason for this, only the wording
    /// (k8s.io/apiserver, pkg/admission/plugin; k8s.io/kubernetes, plugin/pkg/admission and
    /// pkg/registry/core/service).
    pub fn is_transient_refusal(&self) -> bool {
        const WORDINGS: [&str; 7] = [
            "not yet ready to handle request",
            "not yet synced to use for admission",
            "status unknown for quota: ",
            "because cannot find RESTMapping for ",
            "at this time because there was an error enforcing limit ranges",
            // For an address that is requested, it follows instead of the colon.
            "failed to allocate IP: ",
            "cannot allocate resources of type ",
        ];
        matches!(self, Error::Api { code: 403 | 422, message, .. }
            if WORDINGS.iter().any(|wording| message.contains(wording)))
    }

    /// Returns whether the applied state can never be merged: a list has two items with one key, or a field is not
    /// in the schema. The API server returns 500 for this (k8s.io/apimachinery,
    /// pkg/util/managedfields/internal/structuredmerge.go).
    pub fn is_unmergeable(&self) -> bool {
        matches!(self, Error::Api { code: 500, message, .. }
            if message.starts_with("failed to create typed patch object")
                || message.starts_with("failed to convert new object"))
    }

    /// Returns whether the namespace is being deleted, so that nothing can be created in it.
    pub fn is_namespace_terminating(&self) -> bool {
        matches!(self, Error::Api { code: 403, causes, .. }
            if causes.iter().any(|cause| cause.reason == "NamespaceTerminating"))
    }
}

/// Returns the failed authentication among an error and its causes.
fn auth_error<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a AuthError> {
    error.downcast_ref().or_else(|| auth_error(error.source()?))
}

/// Returns the message of the innermost cause.
pub(super) fn innermost(error: &(dyn StdError + 'static)) -> String {
    error.source().map_or_else(|| error.to_string(), innermost)
}

/// Reads a text that can be `null`.
fn or_empty<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// Returns why `text` is not a `V`: `spec.size: invalid type: string, expected u32`. The result contains no values: it
/// is logged, and values can be secret.
pub(super) fn mismatch<V: DeserializeOwned>(text: &[u8]) -> String {
    const PLACE: usize = 100;
    let mut json = serde_json::Deserializer::from_slice(text);
    let error = match serde_path_to_error::deserialize::<_, V>(&mut json) {
        Err(error) => error,
        Ok(_) => return "there is more after its end".to_owned(),
    };
    let (place, what) = (one_line(&error.path().to_string()), without_value(error.inner()));
    match place.get(..place.floor_char_boundary(PLACE)) {
        Some(".") | None => what,
        Some(start) if start.len() < place.len() => format!("{start}…: {what}"),
        Some(place) => format!("{place}: {what}"),
    }
}

/// Returns serde's message without the unexpected value (serde::de::Unexpected) and without its position.
fn without_value(error: &serde_json::Error) -> String {
    const MOST: usize = 200;
    let text = one_line(&error.to_string());
    let place = format!(" at line {} column {}", error.line(), error.column());
    let text = text.strip_suffix(&place).unwrap_or(&text);
    let said = match error.classify() {
        Category::Data => of_data(text),
        _ => text.to_owned(),
    };
    said.get(..said.floor_char_boundary(MOST)).unwrap_or_default().to_owned()
}

/// Returns the unexpected and the expected type.
fn of_data(text: &str) -> String {
    let named = ["missing field `", "duplicate field `"];
    if named.iter().any(|start| text.starts_with(start)) {
        return text.to_owned();
    }
    let (how, rest) = text.split_at(text.find([':', '`']).unwrap_or(text.len()));
    let kind = rest.split(['`', '"', ',']).next().unwrap_or_default().trim_end();
    let expected = rest.rsplit_once(", expected ").map(|(_, expected)| expected);
    match (how.trim_end(), expected) {
        (how @ ("invalid type" | "invalid value" | "invalid length"), Some(expected)) => {
            format!("{how}{kind}, expected {expected}")
        }
        (how @ ("unknown variant" | "unknown field"), Some(expected)) => {
            format!("{how}, expected {expected}")
        }
        // The type's own code can quote the value.
        _ => "a value is not accepted".to_owned(),
    }
}

/// Returns the beginning of a text that is not JSON, such as a proxy's page. For JSON, returns only the size.
pub(super) fn shape(text: &[u8]) -> String {
    match text.trim_ascii_start().first() {
        Some(b'{' | b'[' | b'"') => format!("{} bytes of JSON", text.len()),
        _ => excerpt(text),
    }
}

/// Returns the beginning of `text`: at most 200 bytes, printable, on one line.
pub(super) fn excerpt(text: &[u8]) -> String {
    const MOST: usize = 200;
    let start = text.get(..MOST).unwrap_or(text);
    let mut line = one_line(&String::from_utf8_lossy(start));
    if text.len() > MOST {
        line.push('…');
    }
    line
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn a_lagging_server_is_recognized_by_cause_or_message() {
        let said = Error::api(504, "Timeout", "Too large resource version: 9, current: 7");
        let mut caused = Error::api(504, "Timeout", "x");
        if let Error::Api { causes, .. } = &mut caused {
            causes.push(Cause { reason: "ResourceVersionTooLarge".to_owned(), ..Cause::default() });
        }
        assert!(said.is_too_large_version() && caused.is_too_large_version());
        assert!(!Error::api(504, "Timeout", "upstream").is_too_large_version());
    }

    #[test]
    fn expiry_is_recognized_by_code_or_reason() {
        assert!(Error::api(410, "", "").is_expired());
        assert!(Error::api(400, "Expired", "").is_expired());
        assert!(!Error::api(404, "NotFound", "").is_expired());
    }

    #[test]
    fn the_message_contains_the_cause_of_a_broken_connection() {
        let refused = std::io::Error::other(std::io::Error::other("connection refused"));
        let error = Error::transport(Box::new(refused));
        assert_eq!(error.to_string(), "the request to the API server failed: connection refused");
    }

    #[test]
    fn only_an_api_servers_404_means_not_served() {
        let said = |kind: &crate::object::Kind, body: &str| {
            let error = super::super::status::error(404, None, body.as_bytes());
            error.about(kind, &"test".into()).to_string()
        };
        let kind = crate::object::Kind::namespaced("example.com", "v1", "Thing", "things");
        let not_served = "does not serve things.example.com";
        assert!(said(&kind, "404 page not found\n").contains(not_served));
        let other = said(&kind, "default backend - 404");
        assert!(other.contains("default backend - 404") && !other.contains(not_served), "{other}");
        let none = crate::object::Kind::cluster_scoped("", "", "", "");
        assert!(said(&none, "404 page not found\n").contains("404 page not found"));
    }

    #[test]
    fn an_excerpt_is_short_and_one_line() {
        let text = "é\n".repeat(500);
        let short = excerpt(text.as_bytes());
        assert!(short.len() < 300 && !short.contains('\n'), "{short}");
    }

    #[derive(Debug, serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Password {
        #[serde(rename = "password")]
        _password: BTreeMap<String, u32>,
        #[serde(rename = "kind", default)]
        _kind: Kind,
        #[serde(rename = "uid", default)]
        _uid: Option<crate::object::Uid>,
    }

    #[derive(Debug, Default, serde::Deserialize)]
    enum Kind {
        #[default]
        Short,
    }

    #[test]
    fn a_mismatch_names_the_field_and_omits_the_value() {
        let told = [
            (
                r#"{"password":{"a":"hunter2, expected b"}}"#,
                "password.a: invalid type: string, expected u32",
            ),
            (
                r#"{"password":{"a":"hunter2 `x` "}}"#,
                "password.a: invalid type: string, expected u32",
            ),
            (r#"{"password":{"a":47112}, "uid": "hunter2"}"#, "uid: a value is not accepted"),
            (r#"{"password":{"a":-47112}}"#, "password.a: invalid value: integer, expected u32"),
            (r#"{"password":47112}"#, "password: invalid type: integer, expected a map"),
            (r#"{"password":{}, "kind": "hunter2"}"#, "kind: unknown variant, expected `Short`"),
            (
                r#"{"hunter2":{}}"#,
                "hunter2: unknown field, expected one of `password`, `kind`, `uid`",
            ),
            ("{}", "missing field `password`"),
            (r#"{"password":{"#, "password.?: EOF while parsing an object"),
            (r#"{"password":{}} hunter2"#, "there is more after its end"),
        ];
        for (text, expected) in told {
            assert_eq!(mismatch::<Password>(text.as_bytes()), expected, "{text}");
            let said = Error::decode::<Password>(text.as_bytes()).to_string();
            assert!(!said.contains("47112") && said.ends_with("bytes of JSON"), "{said}");
        }
        let page = Error::decode::<Password>(b"<html>Log in first</html>").to_string();
        assert!(page.contains("Log in first"), "{page}");
    }

    #[test]
    fn the_message_of_a_decode_error_is_short() {
        let text = serde_json::to_vec(&"x".repeat(1 << 20)).unwrap();
        let said = Error::decode::<u32>(&text).to_string();
        assert!(said.len() < 300, "{} bytes", said.len());
        assert!(said.contains("invalid type: string, expected u32"), "{said}");
    }
}
