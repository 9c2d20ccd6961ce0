//! Authorization of requests for the metrics.

use std::future::Future;
use std::pin::Pin;

/// Decides on each request for the metrics. Health is not guarded: the kubelet has no token.
pub trait Guard: Send + Sync + 'static {
    /// May the bearer of this token do `verb` (`get`) on `path`? `bearer` is what follows
    /// `Authorization: Bearer`.
    fn admit<'a>(
        &'a self,
        bearer: Option<&'a str>,
        verb: &'a str,
        path: &'a str,
    ) -> Pin<Box<dyn Future<Output = Result<(), Refusal>> + Send + 'a>>;
}

/// Why a request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// No token, or an invalid one.
    #[error("Unauthorized")]
    Unauthenticated,
    /// A valid token, but its bearer may not.
    #[error("Forbidden")]
    Forbidden,
    /// The answer cannot be determined now.
    #[error("the API server cannot be asked")]
    Unknown,
}

/// Admits everybody: for loopback, or behind something else that guards.
#[derive(Debug, Clone, Copy)]
pub struct Open;

impl Guard for Open {
    fn admit<'a>(
        &'a self,
        _: Option<&'a str>,
        _: &'a str,
        _: &'a str,
    ) -> Pin<Box<dyn Future<Output = Result<(), Refusal>> + Send + 'a>> {
        Box::pin(std::future::ready(Ok(())))
    }
}
