//! Classes of failed lists and watches.

use std::time::Duration;

use crate::client;

/// A failure, reduced to what determines the next step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) class: Class,
    /// True if there was a response.
    pub(super) is_answered: bool,
    /// Wait requested by the server (Retry-After).
    pub(super) retry_after: Option<Duration>,
    /// The cause as one sentence.
    pub(super) why: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    /// The requested version was compacted: list again.
    Expired,
    /// The requested version is newer than the server's newest ("Too large resource version").
    ServerBehind,
    /// A refusal that will repeat: 400, 422 and the rest of 4xx. A server without streaming lists refuses them in
    /// this way.
    Refused,
    /// No permission for this kind.
    Forbidden,
    /// The kind is not served.
    NotServed,
    /// The server failed on this particular request, or its response could not be decoded. If the cause is in the
    /// history after the stored version, this can last indefinitely.
    Internal,
    /// No response by the deadline: the server hangs, or a proxy delays the headers until the body begins. This can
    /// last indefinitely.
    Unanswered,
    /// A temporary failure: connection, 401, 408, 429, 5xx other than 500.
    Transient,
}

impl Failure {
    pub(super) fn transient(why: impl Into<String>) -> Failure {
        let (class, is_answered) = (Class::Transient, true);
        Failure { class, is_answered, retry_after: None, why: why.into() }
    }
}

impl From<&client::Error> for Failure {
    fn from(error: &client::Error) -> Failure {
        let (class, retry_after) = (classify(error), error.retry_after());
        let is_answered = error.code().is_some();
        Failure { class, is_answered, retry_after, why: error.to_string() }
    }
}

fn classify(error: &client::Error) -> Class {
    if error.is_expired() {
        return Class::Expired;
    }
    if error.is_too_large_version() {
        return Class::ServerBehind;
    }
    match error.code() {
        Some(403) => Class::Forbidden,
        Some(404) => Class::NotServed,
        // The client renews an expired token; 408 and 429 come from load on the server.
        Some(401 | 408 | 429) => Class::Transient,
        Some(400..=499) => Class::Refused,
        Some(500) => Class::Internal,
        Some(_) => Class::Transient,
        None => match error {
            client::Error::Decode { .. } | client::Error::TooLarge { .. } => Class::Internal,
            client::Error::Deadline(_) => Class::Unanswered,
            _ => Class::Transient,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(code: u16) -> Class {
        classify(&client::Error::api(code, "", ""))
    }

    #[test]
    fn permanent_refusals_are_distinguished_from_overload() {
        assert_eq!(class(403), Class::Forbidden);
        assert_eq!(class(404), Class::NotServed);
        for code in [401, 429, 502, 503, 504] {
            assert_eq!(class(code), Class::Transient, "{code}");
        }
        assert_eq!(class(422), Class::Refused);
        assert_eq!((class(500), class(410)), (Class::Internal, Class::Expired));
    }

    #[test]
    fn a_lagging_server_is_distinguished_from_a_slow_one() {
        let lags = client::Error::api(504, "Timeout", "Too large resource version: 9, current: 7");
        assert_eq!(classify(&lags), Class::ServerBehind);
    }

    #[test]
    fn an_undecodable_response_is_an_internal_failure() {
        let text = || String::new();
        let error = client::Error::Decode { why: text(), excerpt: text() };
        assert_eq!(classify(&error), Class::Internal);
        assert_eq!(classify(&client::Error::Cut("an event")), Class::Transient);
        let late = client::Error::Deadline(Duration::ZERO);
        assert_eq!(classify(&late), Class::Unanswered);
    }
}
