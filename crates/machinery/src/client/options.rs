//! The options of a client, with its gate.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::api_server_health::ApiServerHealth;
use super::dry_run::DryRun;
use crate::identity::Identity;

/// Options of a client.
#[derive(Clone)]
pub struct Options {
    /// Longest duration of a call. Default: 20 s, longer than the 15 s for which API Priority and Fairness queues a
    /// request: cancelling a queued request loses its place and its TLS connection. Does not apply to open watches. In
    /// a list, it counts from the last chunk.
    pub deadline: Duration,
    /// Longest wait for the beginning of a list's response. Default: 65 s, because the API server reads the whole
    /// list first, and gives up after 60 s.
    pub list_deadline: Duration,
    /// Longest wait for the response of a write. Default: 65 s, because an admission webhook can take 30 s, and the API
    /// server gives up after 60 s. With a shorter limit, no write would succeed while webhooks hang.
    pub write_deadline: Duration,
    /// The program; its user agent is sent with every request.
    pub identity: Identity,
    /// `fieldManager` of every write (default: the name of the program).
    pub field_manager: String,
    /// Called before every write, and again when its body is sent. The default permits all.
    pub gate: Arc<dyn WriteGate>,
    /// Makes each write a dry run and reports it here: the API server validates and admits it but stores nothing.
    /// Default: `None`.
    pub dry_run: Option<Arc<dyn DryRun>>,
    /// Reachability of the API server. Every call updates it; the clients of one server share it.
    pub api_server_health: ApiServerHealth,
}

/// Decides whether this process can write now. Implemented by leader election.
pub trait WriteGate: Send + Sync + 'static {
    /// Returns the time within which a write that begins now must end. `Err` contains the reason for a refusal, as a
    /// sentence.
    fn may_write(&self) -> Result<Duration, String>;

    /// Returns the number of the current term, if permissions have terms. A write decided in another term is not sent.
    fn term(&self) -> u64 {
        0
    }

    /// A write got no response. The API server may still apply it.
    fn unanswered(&self) {}
}

/// Permits every write.
struct Always;

impl WriteGate for Always {
    fn may_write(&self) -> Result<Duration, String> {
        Ok(Duration::MAX)
    }
}

impl Default for Options {
    fn default() -> Options {
        Options::new(Identity::default())
    }
}

impl Options {
    /// Returns the defaults for a client of this program.
    pub fn new(identity: Identity) -> Options {
        Options {
            deadline: Duration::from_secs(20),
            list_deadline: Duration::from_secs(65),
            write_deadline: Duration::from_secs(65),
            identity,
            field_manager: identity.name().to_owned(),
            gate: Arc::new(Always),
            dry_run: None,
            api_server_health: ApiServerHealth::default(),
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
