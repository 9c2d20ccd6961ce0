//! Options of a client, and the gate and the observer that it calls.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::connectivity::Connectivity;
use super::dry_run::DryRun;
use crate::identity::Identity;
use crate::object::Kind;

/// Options of a client.
#[derive(Clone)]
pub struct Options {
    /// An API call that takes longer than this is an error (default 20 s: longer than the 15 s for
    /// which API Priority and Fairness queues a request, because giving up a queued one costs its
    /// place and its TLS connection). Watches have no deadline once they are open; in a list it
    /// counts from the last piece that arrived.
    pub deadline: Duration,
    /// Time for the beginning of a list's answer (default 65 s: the API server first reads the
    /// whole list, and gives up itself after 60 s).
    pub list_deadline: Duration,
    /// Time for the answer to a write (default 65 s: admission webhooks take up to 30 s each, and the API server
    /// gives up itself after 60 s. A write that is given up before is not carried out while they hang).
    pub write_deadline: Duration,
    /// The program that asks; its user agent is that of every request.
    pub identity: Identity,
    /// `fieldManager` of every write (default: the name of the program).
    pub field_manager: String,
    /// Asked before every write, and again when its body is sent. The default permits all.
    pub gate: Arc<dyn WriteGate>,
    /// Notified of every finished request. The default does nothing.
    pub observer: Arc<dyn Observer>,
    /// Makes each write a dry run, which the API server validates, admits and answers but does not
    /// store, and reports it here. Default: `None`.
    pub dry_run: Option<Arc<dyn DryRun>>,
    /// Learns from every call whether the API server answers. Shared by clients of one server.
    pub connectivity: Connectivity,
}

/// Says whether this process may write now; leader election implements it.
pub trait WriteGate: Send + Sync + 'static {
    /// The time within which a write that begins now has to end. `Err` says why none may begin, in a
    /// sentence.
    fn may_write(&self) -> Result<Duration, String>;

    /// The number of the present permission, if it was given more than once: a write that was decided under
    /// another one is not sent.
    fn term(&self) -> u64 {
        0
    }

    /// A write ended without an answer: the API server may carry it out yet.
    fn unanswered(&self) {}
}

/// Observes requests; metrics implement it. Every method has an empty default.
pub trait Observer: Send + Sync + 'static {
    /// A request ended: `verb` as RBAC names it (`list`, `watch`, `patch`, …), `code` 0 when no
    /// complete answer came because of an error, a deadline or a dropped call. A watch is reported
    /// when it has been opened, not when it ends.
    fn request(&self, verb: &'static str, kind: &Kind, code: u16, took: Duration) {
        let _ = (verb, kind, code, took);
    }
}

/// Permits every write.
struct Always;

/// Observes nothing.
struct Nobody;

impl WriteGate for Always {
    fn may_write(&self) -> Result<Duration, String> {
        Ok(Duration::MAX)
    }
}

impl Observer for Nobody {}

impl Default for Options {
    fn default() -> Options {
        Options::new(Identity::default())
    }
}

impl Options {
    /// The defaults, for a client of this program.
    pub fn new(identity: Identity) -> Options {
        Options {
            deadline: Duration::from_secs(20),
            list_deadline: Duration::from_secs(65),
            write_deadline: Duration::from_secs(65),
            identity,
            field_manager: identity.name().to_owned(),
            gate: Arc::new(Always),
            observer: Arc::new(Nobody),
            dry_run: None,
            connectivity: Connectivity::default(),
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("deadline", &self.deadline)
            .field("list_deadline", &self.list_deadline)
            .field("write_deadline", &self.write_deadline)
            .field("field_manager", &self.field_manager)
            .finish_non_exhaustive()
    }
}
