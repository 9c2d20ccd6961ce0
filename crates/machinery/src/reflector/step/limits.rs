//! Every number of the state machine, and the reason for it.

use std::ops::Range;
use std::time::Duration;

/// Items per page, as client-go and kubectl request.
pub(super) const PAGE: u32 = 500;
/// A streaming list that sends nothing for this long is abandoned.
pub(super) const STREAM_PROGRESS: Duration = Duration::from_secs(15);
/// A streaming list has this long, plus [`STREAM_PER_OBJECT`] for each object, to end: on a busy
/// kind, events may keep it alive although its bookmark never comes.
pub(super) const STREAM_TOTAL: Duration = Duration::from_secs(60);
pub(super) const STREAM_PER_OBJECT: Duration = Duration::from_millis(1);
/// A server without streaming lists is asked for one again after this long; it may have been
/// upgraded.
pub(super) const STREAM_RETRY: Duration = Duration::from_secs(3600);
/// Longest wait for a watch to be accepted. An API server answers at once, with headers.
pub(super) const OPEN: Duration = Duration::from_secs(30);
/// Bookmarks come about once a minute, where there is news. After two and a half minutes without a word the server is
/// asked for its version, and watched anew.
pub(super) const IDLE: Duration = Duration::from_secs(150);
/// Time that a new watch has at least, also after a long outage: it delivers what was missed within a moment.
pub(super) const GRACE: Duration = Duration::from_secs(30);
/// Time after which silent watches are not believed any more, while the server has newer versions. Of a quiet kind, each
/// list is one too many; of a broken watch, nothing else tells.
pub(super) const OVERTAKEN: Duration = Duration::from_secs(1800);
/// `timeoutSeconds` is drawn from this range: below 240 s, where common load balancers cut idle
/// connections, and spread out so that replicas do not move in lockstep.
pub(super) const TIMEOUT: Range<u64> = 120..230;
/// `timeoutSeconds` of a streaming list, whose objects alone may take minutes; the changes after them are no
/// silence (client-go: 300 to 600, tools/cache/reflector.go).
pub(super) const STREAM_TIMEOUT: Range<u64> = 300..600;
/// Pages are tried after this many streaming lists that broke off in the middle before one was
/// whole, as something on the way may not let a response live long enough. The same goes for
/// streaming lists that were not answered in time or with an error: other requests may be.
pub(super) const STREAMS_CUT: u32 = 3;
/// A server that has just come back is asked within this time, by each reflector at a random
/// moment.
pub(super) const RETURNED: Duration = Duration::from_secs(1);
/// A kind that is not served is asked for again after one to two times this: its
/// CustomResourceDefinition may be applied at any moment, and the answer costs the server little.
pub(super) const NOT_SERVED: Duration = Duration::from_secs(2);
/// A watch that ends earlier than this without progress counts as a failure.
pub(super) const SHORT: Duration = Duration::from_secs(1);
/// Number of "too large resource version" answers in a row after which the bound is dropped.
pub(super) const TOO_LARGE: u32 = 5;
/// After this many lists in a row that asked for the newest version and were answered with one
/// older than what is held, there is nothing newer. In principle one is enough: such a list is as
/// fresh as etcd (KEP-2340).
pub(super) const REWOUND: u32 = 3;
/// Number of watches in a row at one version that failed with an internal error, ended at once or were not
/// answered, after which the kind is listed again.
pub(super) const STUCK: u32 = 5;
