//! Events of the Lease that report the leader, for `kubectl describe lease`.

use crate::client::Client;
use crate::events::{Recorder, Regarding, Type};
use crate::leader_election::{Elector, Leadership, Phase};
use crate::object::{Kind, ObjectKey, Uid};

/// As in client-go's LeaderElector.
const REASON: &str = "LeaderElection";
const ACTION: &str = "Elect";

const LEASE: Kind = Kind::namespaced("coordination.k8s.io", "v1", "Lease", "leases");

/// Publishes the Events, in client-go's words. They need permission like every write. So a leader announces its stop
/// while it still leads; if it lost the lease, only its successor's Event shows this.
pub(super) struct LeaseEvents {
    recorder: Recorder,
    leadership: Leadership,
    lease: ObjectKey,
    identity: String,
    /// Reads the Lease's UID: `kubectl describe` finds Events by it.
    client: Client,
}

// === impl LeaseEvents ===

impl LeaseEvents {
    pub(super) fn new(
        recorder: Recorder,
        leadership: Leadership,
        elector: &Elector,
        client: Client,
    ) -> LeaseEvents {
        let (lease, identity) = (elector.lease().clone(), elector.identity().to_owned());
        LeaseEvents { recorder, leadership, lease, identity, client }
    }

    /// Publishes an Event each time this process becomes the leader, and one at `stop` if it leads then: nothing
    /// else is written by that time, and the lease has not been released yet.
    pub(super) async fn run(&self, stop: impl Future<Output = ()>) {
        let mut uid = Uid::NONE;
        let tell = async {
            let mut changes = self.leadership.changes();
            let mut leads = false;
            // The sender lives in `self`.
            while changes.changed().await.is_ok() {
                let phase = changes.borrow_and_update().phase;
                match phase {
                    Phase::Leading if !leads => {
                        leads = true;
                        uid = self.uid().await;
                        self.publish("became leader", uid);
                    }
                    Phase::Leading | Phase::Suspended => {}
                    Phase::Standby => leads = false,
                }
            }
        };
        tokio::select! {
            biased;
            () = tell => {}
            () = stop => {}
        }
        if self.leadership.is_permitted() {
            self.publish("stopped leading", uid);
        }
    }

    /// The Lease's UID. The Event is published even without it.
    async fn uid(&self) -> Uid {
        let Ok(lease) = self.client.read(&LEASE, &self.lease).await else { return Uid::NONE };
        let uid = lease["metadata"]["uid"].as_str().and_then(|uid| uid.parse().ok());
        uid.unwrap_or(Uid::NONE)
    }

    fn publish(&self, what: &str, uid: Uid) {
        let regarding = Regarding {
            api_version: LEASE.api_version().into(),
            kind: LEASE.kind.into(),
            key: self.lease.clone(),
            uid,
        };
        let note = format!("{} {what}", self.identity);
        self.recorder.publish(&regarding, Type::Normal, REASON, ACTION, &note);
    }
}
