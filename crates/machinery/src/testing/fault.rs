//! The faults that the server can show.

use std::time::Duration;

/// One fault. Scripted faults strike the next request that they fit; random ones are drawn per
/// request and per frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// 410 as the HTTP response.
    Gone,
    /// 410 as an ERROR frame.
    GoneInStream,
    /// 410 on a continue token, once.
    GoneOnContinue,
    /// 429, with Retry-After in seconds.
    TooMany(u64),
    /// 429 as an ERROR frame.
    TooManyInStream,
    /// 401.
    Unauthorized,
    /// 403.
    Forbidden,
    /// 404.
    NotServed,
    /// 500.
    Internal,
    /// 500 as an ERROR frame.
    InternalInStream,
    /// 503.
    Unavailable,
    /// 504 "Too large resource version".
    TooLarge,
    /// The connection fails before a response.
    Refused,
    /// The body breaks off within a frame or item.
    Cut,
    /// The watch ends at once, cleanly.
    Close,
    /// From here on nothing is sent, but the connection stays open.
    Silent,
    /// The watch first repeats events from before its version.
    Replay,
    /// One event is sent twice.
    Duplicate,
    /// The end bookmark of a streaming list is never sent.
    NoEndBookmark,
    /// The server does not support streaming lists.
    NoStreaming,
    /// The response is older than the newest state, whatever version was requested.
    Stale,
    /// The response comes late.
    Delay(Duration),
}

impl Fault {
    /// The number of kinds.
    pub const KINDS: usize = 22;
    /// Faults that may strike any request before it is answered.
    pub(super) const BEFORE: [Fault; 11] = [
        Fault::Gone,
        Fault::TooMany(7),
        Fault::Unauthorized,
        Fault::Forbidden,
        Fault::NotServed,
        Fault::Internal,
        Fault::Unavailable,
        Fault::TooLarge,
        Fault::Refused,
        Fault::Delay(Duration::from_secs(2)),
        Fault::Stale,
    ];
    /// Faults that may strike a list.
    pub(super) const LIST: [Fault; 2] = [Fault::GoneOnContinue, Fault::Cut];
    /// Faults that may strike a watch when it begins.
    pub(super) const WATCH: [Fault; 4] =
        [Fault::Replay, Fault::NoEndBookmark, Fault::NoStreaming, Fault::Close];
    /// Faults that may strike a watch before any of its frames.
    pub(super) const FRAME: [Fault; 7] = [
        Fault::GoneInStream,
        Fault::TooManyInStream,
        Fault::InternalInStream,
        Fault::Cut,
        Fault::Close,
        Fault::Silent,
        Fault::Duplicate,
    ];
}
