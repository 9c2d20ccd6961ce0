//! The limits of the reflector, with reasons.

use std::ops::Range;
use std::time::Duration;

/// Items per page, as in client-go and kubectl.
pub(super) const PAGE: u32 = 500;
/// Longest silence of a streaming list before it is abandoned.
pub(super) const STREAM_PROGRESS: Duration = Duration::from_secs(15);
/// Longest duration of a streaming list, plus [`STREAM_PER_OBJECT`] for each object. On a busy kind, events can keep
/// the list alive although its final bookmark never arrives.
pub(super) const STREAM_TOTAL: Duration = Duration::from_secs(60);
pub(super) const STREAM_PER_OBJECT: Duration = Duration::from_millis(1);
/// Time before a server without streaming lists is tried again: it could have been upgraded.
pub(super) const STREAM_RETRY: Duration = Duration::from_secs(3600);
/// Longest silence of a watch before the server's version is requested and the watch reopened. Bookmarks arrive about
/// once a minute if there are changes.
pub(super) const IDLE: Duration = Duration::from_secs(150);
/// Shortest life of a new watch, even after a long outage: it delivers missed events within a moment.
pub(super) const GRACE: Duration = Duration::from_secs(30);
/// Range of `timeoutSeconds`: below 240 s, where common load balancers cut idle connections, and spread out so that
/// replicas do not move in lockstep.
pub(super) const TIMEOUT: Range<u64> = 120..230;
/// Range of `timeoutSeconds` of a streaming list, whose objects alone can take minutes (client-go: 300 to 600,
/// tools/cache/reflector.go).
pub(super) const STREAM_TIMEOUT: Range<u64> = 300..600;
/// Number of failed streaming lists before pages are tried: broken off before complete, timed out, or failed with an
/// error. A proxy can cut long responses while other requests work.
pub(super) const STREAMS_CUT: u32 = 3;
/// Range of the random delay of each reflector after a server has come back.
pub(super) const RETURNED: Duration = Duration::from_secs(1);
/// Shortest delay before a kind that is not served is tried again; the longest is twice this. Its
/// CustomResourceDefinition can be applied at any moment, and the request is cheap.
pub(super) const NOT_SERVED: Duration = Duration::from_millis(800);
/// Duration below which a watch that ends without progress counts as a failure.
pub(super) const SHORT: Duration = Duration::from_secs(1);
/// Number of consecutive lists of the newest version that must be older than the stored one before the history counts
/// as regressed. One would be enough: such a list is as fresh as etcd (KEP-2340).
pub(super) const REWOUND: u32 = 3;
/// Number of consecutive requests at one version that failed internally, ended at once, timed out or were too new for
/// the server, before the kind is listed again, and the bound of lists is dropped.
pub(super) const STUCK: u32 = 5;
