//! Classes of failed lists and watches.

use std::time::Duration;

use crate::client;

/// A failure, reduced to what decides the next step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) class: Class,
    /// Wait that the server asked for (Retry-After).
    pub(super) retry_after: Option<Duration>,
    /// One sentence for humans.
    pub(super) why: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    /// The requested version has been compacted away: list again.
    Expired,
    /// The requested version is newer than any this server has seen ("Too large resource version").
    ServerBehind,
    /// The request was understood and refused: 400, 422 and the rest of 4xx. The same request will
    /// be refused again. This is how a server without streaming lists refuses one.
    Refused,
    /// No permission for this kind.
    Forbidden,
    /// The kind is not served.
    NotServed,
    /// The server failed to answer this particular request, or the answer was not understood. This
    /// may last forever, if the cause is in the history after our version.
    Internal,
    /// No answer by the deadline: the server hangs, or something on the way holds the answer back, as proxies
    /// do that pass on no headers before the body. That may last forever.
    Unanswered,
    /// Connection, 401, 408, 429, 5xx other than 500: it will pass.
    Transient,
}

impl Failure {
    pub(super) fn transient(why: impl Into<String>) -> Failure {
        Failure { class: Class::Transient, retry_after: None, why: why.into() }
    }
}

impl From<&client::Error> for Failure {
    fn from(error: &client::Error) -> Failure {
        let (class, retry_after) = (classify(error), error.retry_after());
        Failure { class, retry_after, why: error.to_string() }
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
    fn rights_and_kinds_are_told_from_load() {
        assert_eq!(class(403), Class::Forbidden);
        assert_eq!(class(404), Class::NotServed);
        for code in [401, 429, 502, 503, 504] {
            assert_eq!(class(code), Class::Transient, "{code}");
        }
        assert_eq!(class(422), Class::Refused);
        assert_eq!((class(500), class(410)), (Class::Internal, Class::Expired));
    }

    #[test]
    fn a_lagging_server_is_not_taken_for_a_slow_one() {
        let lags = client::Error::api(504, "Timeout", "Too large resource version: 9, current: 7");
        assert_eq!(classify(&lags), Class::ServerBehind);
    }

    #[test]
    fn an_answer_that_is_not_understood_is_not_asked_for_for_ever() {
        let text = || String::new();
        let error = client::Error::Decode { why: text(), excerpt: text() };
        assert_eq!(classify(&error), Class::Internal);
        assert_eq!(classify(&client::Error::Cut("an event")), Class::Transient);
        let late = client::Error::Deadline(Duration::ZERO);
        assert_eq!(classify(&late), Class::Unanswered);
    }
}
