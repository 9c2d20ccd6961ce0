//! Why a call failed.

use std::time::Duration;

use super::proxy::NoTunnel;
use super::text::one_line;
use crate::identity::Identity;
use crate::object::Kind;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The API server said no.
    #[error("{message}")]
    Api {
        /// HTTP code.
        code: u16,
        /// metav1.StatusReason; empty if none was given.
        reason: String,
        /// For humans.
        message: String,
        /// Reasons of `details.causes` (metav1.CauseType).
        causes: Vec<String>,
        /// Retry-After header or details.retryAfterSeconds.
        retry_after: Option<Duration>,
    },
    /// No answer in time. A write may still have been carried out.
    #[error("the API server did not answer within {0:?}")]
    Deadline(Duration),
    /// This process may not write now.
    #[error("not written: {0}")]
    NotPermitted(String),
    /// The connection, TLS or authentication failed; `root` is the innermost cause. A write may
    /// still have been carried out.
    #[error("the request to the API server failed: {root}")]
    Transport {
        /// Why, in the words of the layer that noticed.
        root: String,
        /// The whole error.
        #[source]
        source: BoxError,
    },
    /// The answer broke off in the middle of an object.
    #[error("the connection broke off in the middle of {0}")]
    Cut(&'static str),
    /// An answer larger than the bound.
    #[error("{what} is larger than {limit} bytes")]
    TooLarge {
        /// The part that is too large, in words.
        what: &'static str,
        /// The bound.
        limit: usize,
    },
    /// The answer is not what the API promises.
    #[error("the answer of the API server is not understood: {why} in: {excerpt}")]
    Decode {
        /// Description of the mismatch, in about 200 bytes.
        why: String,
        /// The text at that place, at most 200 bytes.
        excerpt: String,
    },
    /// There are no credentials for the request, which was not sent: a plugin failed, or has not
    /// answered yet.
    #[error("no credentials: {0}")]
    Credentials(String),
    /// The request cannot be built.
    #[error("the request cannot be made: {0}")]
    Request(String),
    /// There is no usable way to reach an API server.
    #[error("{0}")]
    Config(String),
}

// === impl Error ===

impl Error {
    /// An error answer of the API server, for tests of code that handles errors.
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
        let mut innermost: &(dyn std::error::Error + 'static) = &*source;
        while let Some(inner) = innermost.source() {
            innermost = inner;
        }
        if let Some(no_tunnel) = find::<NoTunnel>(&*source) {
            return Error::Transport { root: no_tunnel.to_string(), source };
        }
        // The output of a failed credential plugin may contain the credential, so at most the
        // plugin's name and exit status are kept of such an error.
        let plugin = source.downcast_ref::<kube::client::AuthError>().and_then(plugin_failure);
        match plugin {
            Some(root) => Error::Transport { root: root.clone(), source: root.into() },
            None => Error::Transport { root: innermost.to_string(), source },
        }
    }

    pub(super) fn decode(error: &serde_json::Error, text: &[u8]) -> Error {
        Error::Decode { why: in_short(error), excerpt: excerpt(text) }
    }

    /// If the kind is not served, says so, and what to do: the answer itself names neither.
    pub(super) fn about(mut self, kind: &Kind, program: &Identity) -> Error {
        let not_served = self.is_not_served();
        if let Error::Api { message, .. } = &mut self
            && not_served
        {
            let (resource, remedy) = (kind.resource(), program.remedies().kinds);
            *message = format!("the API server does not serve {resource}: {remedy}");
        }
        self
    }

    /// The HTTP code, if there was an answer.
    pub fn code(&self) -> Option<u16> {
        match self {
            Error::Api { code, .. } => Some(*code),
            _ => None,
        }
    }

    /// metav1.StatusReason; empty if there is none.
    pub fn reason(&self) -> &str {
        match self {
            Error::Api { reason, .. } => reason,
            _ => "",
        }
    }

    /// Returns the wait that the server asked for (Retry-After).
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Error::Api { retry_after, .. } => *retry_after,
            _ => None,
        }
    }

    /// There is no such object, or no such kind ([`Error::is_not_served`]).
    pub fn is_not_found(&self) -> bool {
        self.code() == Some(404)
    }

    /// The API server does not serve the kind: it knows no CustomResourceDefinition of it, or it is
    /// not in this version of Kubernetes. Where the kind is served, a 404 is a Status that names
    /// the object (or, on a create, the namespace) that is missing.
    pub fn is_not_served(&self) -> bool {
        self.is_not_found() && self.reason().is_empty()
    }

    /// Somebody was faster: a precondition did not hold, or a name is taken.
    pub fn is_conflict(&self) -> bool {
        self.code() == Some(409)
    }

    /// The name is taken.
    pub fn is_already_exists(&self) -> bool {
        self.is_conflict() && self.reason() == "AlreadyExists"
    }

    /// The requested version or continue token has been compacted away.
    pub fn is_expired(&self) -> bool {
        self.code() == Some(410) || matches!(self.reason(), "Expired" | "Gone")
    }

    /// This API server has not yet seen the requested version: it lags
    /// (storage.NewTooLargeResourceVersionError).
    pub fn is_too_large_version(&self) -> bool {
        matches!(self, Error::Api { code: 500 | 504, message, causes, .. }
            if causes.iter().any(|cause| cause == "ResourceVersionTooLarge")
                || message.contains("Too large resource version"))
    }

    /// RBAC, admission or quota forbids it.
    pub fn is_forbidden(&self) -> bool {
        self.code() == Some(403)
    }

    /// The credentials are not accepted.
    pub fn is_unauthorized(&self) -> bool {
        self.code() == Some(401)
    }

    /// The object is not valid.
    pub fn is_invalid(&self) -> bool {
        self.code() == Some(422)
    }

    /// A ResourceQuota is used up. The API server has no separate reason for this, only the wording
    /// (k8s.io/apiserver/pkg/admission/plugin/resourcequota).
    pub fn is_quota_exceeded(&self) -> bool {
        matches!(self, Error::Api { code: 403, message, .. } if message.contains("exceeded quota"))
    }

    /// An admission policy or webhook denied the request. Both may use the code of an invalid object; only
    /// the message shows it (k8s.io/apiserver, pkg/admission/plugin/policy/validating and
    /// pkg/admission/plugin/webhook/errors).
    pub fn is_denied(&self) -> bool {
        matches!(self, Error::Api { code: 400 | 403 | 422, message, .. }
            if message.contains("denied request: ") || message.contains("denied the request"))
    }

    /// Nothing can be created, because the namespace is being deleted.
    pub fn is_namespace_terminating(&self) -> bool {
        matches!(self, Error::Api { code: 403, causes, .. }
            if causes.iter().any(|cause| cause == "NamespaceTerminating"))
    }
}

/// The first error of this type among an error and its causes.
fn find<'a, E: std::error::Error + 'static>(
    error: &'a (dyn std::error::Error + 'static),
) -> Option<&'a E> {
    let mut all = std::iter::successors(Some(error), |error| error.source());
    all.find_map(|error| error.downcast_ref())
}

/// Describes the failure of a credential plugin, without its output.
fn plugin_failure(error: &kube::client::AuthError) -> Option<String> {
    use kube::client::AuthError;
    match error {
        AuthError::AuthExecRun { cmd, out } => {
            let command = cmd.split(' ').next().unwrap_or_default();
            Some(format!("the credential plugin {command} failed: {}", out.status))
        }
        AuthError::AuthExecParse(_) | AuthError::ParseTokenKey(_) => {
            Some("the output of the credential plugin is not understood".to_owned())
        }
        _ => None,
    }
}

/// The text of a kube error, without what a credential plugin printed.
pub(super) fn config_failure(error: &kube::Error) -> String {
    match error {
        kube::Error::Auth(auth) => plugin_failure(auth).unwrap_or_else(|| auth.to_string()),
        other => other.to_string(),
    }
}

/// serde's message without its middle: it quotes a string that did not fit, however long, and only
/// then says what would have fitted, and where.
pub(super) fn in_short(error: &serde_json::Error) -> String {
    const EACH: usize = 100;
    let why = one_line(&error.to_string());
    let (head, tail) = (why.floor_char_boundary(EACH), why.len().saturating_sub(EACH));
    let tail = why.ceil_char_boundary(tail);
    match (why.get(..head), why.get(tail..)) {
        (Some(head), Some(end)) if head.len() < tail => format!("{head}…{end}"),
        _ => why,
    }
}

/// The beginning of `text`, for humans: at most 200 bytes, printable, on one line.
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
    use super::*;

    #[test]
    fn a_lagging_server_is_known_by_cause_or_by_words() {
        let said = Error::api(504, "Timeout", "Too large resource version: 9, current: 7");
        let mut caused = Error::api(504, "Timeout", "x");
        if let Error::Api { causes, .. } = &mut caused {
            causes.push("ResourceVersionTooLarge".to_owned());
        }
        assert!(said.is_too_large_version() && caused.is_too_large_version());
        assert!(!Error::api(504, "Timeout", "upstream").is_too_large_version());
    }

    #[test]
    fn expiry_is_known_by_code_or_by_reason() {
        assert!(Error::api(410, "", "").is_expired());
        assert!(Error::api(400, "Expired", "").is_expired());
        assert!(!Error::api(404, "NotFound", "").is_expired());
    }

    #[test]
    fn the_cause_of_a_broken_connection_is_in_the_sentence() {
        let refused = std::io::Error::other(std::io::Error::other("connection refused"));
        let error = Error::transport(Box::new(refused));
        assert_eq!(error.to_string(), "the request to the API server failed: connection refused");
    }

    #[test]
    fn an_excerpt_is_short_and_one_line() {
        let text = "é\n".repeat(500);
        let short = excerpt(text.as_bytes());
        assert!(short.len() < 300 && !short.contains('\n'), "{short}");
    }

    /// serde quotes the string that did not fit, and only at the end says what would have.
    #[test]
    fn what_is_said_of_a_decode_error_is_bounded_and_says_what_would_have_fitted() {
        let text = serde_json::to_vec(&"x".repeat(1 << 20)).unwrap();
        let why = serde_json::from_slice::<u32>(&text).unwrap_err();
        let said = Error::decode(&why, &text).to_string();
        assert!(said.len() < 600, "{} bytes", said.len());
        assert!(said.contains("invalid type: string") && said.contains("expected u32"), "{said}");
    }

    #[test]
    fn what_a_credential_plugin_printed_is_never_shown() {
        use std::os::unix::process::ExitStatusExt;
        let out = std::process::Output {
            status: std::process::ExitStatus::from_raw(256),
            stdout: b"hunter2".to_vec(),
            stderr: b"hunter2".to_vec(),
        };
        let auth = kube::client::AuthError::AuthExecRun {
            cmd: "aws eks --password=hunter2".to_owned(),
            out: Box::new(out),
        };
        let error = Error::transport(Box::new(auth));
        let all = format!("{error} {error:?} {:?}", std::error::Error::source(&error));
        assert!(!all.contains("hunter2"), "{all}");
        assert!(all.contains("aws"), "{all}");
    }
}
