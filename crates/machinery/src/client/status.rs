//! metav1.Status: error responses of the API server.

use std::time::Duration;

use serde::Deserialize;

use super::error::{Cause, Error, excerpt};

/// metav1.Status. All fields are optional, and `null` is the same as absent.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Status {
    kind: Option<String>,
    code: Option<u16>,
    reason: Option<String>,
    message: Option<String>,
    details: Option<Details>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Details {
    causes: Option<Vec<Cause>>,
    retry_after_seconds: Option<u64>,
}

// === impl Status ===

impl Status {
    /// Converts into an error. `http` is the code of its response, `asked` its Retry-After.
    pub(super) fn into_error(self, http: u16, asked: Option<Duration>) -> Error {
        let details = self.details.unwrap_or_default();
        // In Go, zero means "none".
        let in_body = details.retry_after_seconds.filter(|seconds| *seconds > 0);
        let code = self.code.filter(|code| *code != 0).unwrap_or(http);
        let mut reason = self.reason.unwrap_or_default();
        // As in client-go: old aggregated servers give no reason.
        if reason.is_empty() && code == 404 && self.kind.is_some() {
            "NotFound".clone_into(&mut reason);
        }
        let message = match self.message {
            Some(message) if !message.is_empty() => message,
            _ => format!("the API server responded with {code} {reason}").trim_end().to_owned(),
        };
        Error::Api {
            code,
            reason,
            message,
            causes: details.causes.unwrap_or_default(),
            // Any longer time is a mistake, and could not be added to a clock.
            retry_after: asked.or(in_body.map(|it| Duration::from_secs(it.min(u32::MAX.into())))),
        }
    }
}

/// Returns the error in a body with this `code`. Not every response is from an API server: a proxy sends HTML, or
/// nothing.
pub(super) fn error(code: u16, asked: Option<Duration>, body: &[u8]) -> Error {
    let status = serde_json::from_slice(body).ok();
    let status = status.filter(|status: &Status| status.kind.as_deref() == Some("Status"));
    let status = status.unwrap_or_else(|| {
        let mut message = format!("the API server, or a proxy before it, answered {code}");
        let said = excerpt(body);
        if !said.trim().is_empty() {
            message = format!("{message}: {said}");
        }
        Status { message: Some(message), ..Status::default() }
    });
    status.into_error(code, asked)
}

/// Returns Retry-After, if in seconds. The API server never sends the other form, a date, which would require
/// synchronized clocks.
pub(super) fn retry_after(headers: &http::HeaderMap) -> Option<Duration> {
    let header = headers.get(http::header::RETRY_AFTER)?.to_str().ok()?;
    // In Go, zero means "none".
    let seconds = header.trim().parse::<u32>().ok().filter(|seconds| *seconds > 0)?;
    Some(Duration::from_secs(seconds.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_becomes_an_error_with_all_fields() {
        let body = br#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure",
            "message":"slow down","reason":"TooManyRequests","code":429,
            "details":{"name":"x","causes":[{"reason":"A","message":"m"},{"field":"f"}],"retryAfterSeconds":7}}"#;
        match error(500, None, body) {
            Error::Api { code, reason, message, causes, retry_after } => {
                assert_eq!((code, &*reason, &*message), (429, "TooManyRequests", "slow down"));
                let cause = |reason: &str, field: &str, message: &str| Cause {
                    reason: reason.to_owned(),
                    field: field.to_owned(),
                    message: message.to_owned(),
                };
                assert_eq!(causes, [cause("A", "", "m"), cause("", "f", "")]);
                assert_eq!(retry_after, Some(Duration::from_secs(7)));
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_retry_after_header_takes_precedence_over_the_body() {
        let body = br#"{"kind":"Status","code":429,"details":{"retryAfterSeconds":7}}"#;
        let asked = Some(Duration::from_secs(1));
        assert_eq!(error(429, asked, body).retry_after(), asked);
    }

    #[test]
    fn an_html_response_becomes_a_readable_error() {
        let page = format!("<html>\n<h1>502 Bad Gateway</h1>{}</html>", "x".repeat(9999));
        let error = error(502, None, page.as_bytes());
        assert_eq!(error.code(), Some(502));
        let text = error.to_string();
        assert!(text.contains("502 Bad Gateway") && text.len() < 400, "{text}");
    }

    #[test]
    fn nulls_and_an_empty_body_are_accepted() {
        let body = br#"{"kind":"Status","code":404,"reason":null,"message":null,"details":null}"#;
        assert_eq!(
            error(404, None, body).to_string(),
            "the API server responded with 404 NotFound"
        );
        assert!(error(404, None, body).is_not_found() && !error(404, None, b"").is_not_found());
        assert_eq!(error(503, None, b"").code(), Some(503));
    }

    #[test]
    fn retry_after_is_read_in_seconds_and_a_date_is_ignored() {
        let mut headers = http::HeaderMap::new();
        assert_eq!(retry_after(&headers), None);
        headers.insert("retry-after", "12".parse().unwrap());
        assert_eq!(retry_after(&headers), Some(Duration::from_secs(12)));
        headers.insert("retry-after", "0".parse().unwrap());
        assert_eq!(retry_after(&headers), None, "it requests no wait");
        headers.insert("retry-after", "Wed, 21 Oct 2026 07:28:00 GMT".parse().unwrap());
        assert_eq!(retry_after(&headers), None);
    }
}
