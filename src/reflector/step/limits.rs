//! Every number of the state machine, and why it is so.

use std::ops::Range;
use std::time::Duration;

/// Items of a page, as client-go and kubectl ask for.
pub(super) const PAGE: u32 = 500;
/// A streaming list that sends nothing for so long is given up.
pub(super) const STREAM_PROGRESS: Duration = Duration::from_secs(15);
/// A streaming list has this long, plus [`STREAM_PER_OBJECT`], to end: on a busy kind events may
/// keep it alive though its bookmark never comes.
pub(super) const STREAM_TOTAL: Duration = Duration::from_secs(60);
pub(super) const STREAM_PER_OBJECT: Duration = Duration::from_millis(1);
/// A server that has no streaming lists is asked again after this; it may have been upgraded.
pub(super) const STREAM_RETRY: Duration = Duration::from_secs(3600);
/// An API server answers a watch at once, with headers.
pub(super) const OPEN: Duration = Duration::from_secs(30);
/// Bookmarks come about once a minute; a watch silent for two and a half is dead.
pub(super) const IDLE: Duration = Duration::from_secs(150);
/// `timeoutSeconds` is drawn from here: below 240 s, where common load balancers cut idle
/// connections, and spread so that replicas do not move in lockstep.
pub(super) const TIMEOUT: Range<u64> = 120..230;
/// So many streaming lists in a row that break off in the middle, and pages are tried: something
/// on the way may not let a response live long enough. As well if the server fails to answer them:
/// it may be able to answer others.
pub(super) const STREAMS_CUT: u32 = 3;
/// A server that has just come back is asked within this time, by each at a moment of its own.
pub(super) const RETURNED: Duration = Duration::from_secs(1);
/// A watch that ended earlier than this without getting anywhere counts as a failure.
pub(super) const SHORT: Duration = Duration::from_secs(1);
/// So many "too large resource version" in a row are borne before the bound is dropped.
pub(super) const TOO_LARGE: u32 = 5;
/// So many lists in a row that asked for the newest there is and were answered with something older
/// than what is held, and there is nothing newer. One is enough in principle: such a list is as
/// fresh as etcd (KEP-2340).
pub(super) const REWOUND: u32 = 3;
/// So many internal errors in a row at one version are borne before the kind is listed anew.
pub(super) const STUCK: u32 = 5;
