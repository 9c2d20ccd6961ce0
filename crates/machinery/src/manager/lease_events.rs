//! Events of the Lease that report the leader, for `kubectl describe lease`.

use crate::client::Client;
use crate::events::{Recorder, Regarding, Type};
use crate::leader_election::{Elector, Leadership, Phase};
use crate::object::{Kind, ObjectKey, Uid};

/// As in client-go's LeaderElector.
const REASON: &str = "LeaderElection";
const ACTION: &str = "Elect";

const LEASE: Kind = Kind::namespaced("coordination.k8s.io", "v1", "Lease", "leases");

/// The publisher of these Events, with client-go's messages. They require leadership like every write, so a leader
/// publishes its stop while it still leads. If it lost the lease, only its successor's Event shows this.
pub(super) struct LeaseEvents {
    recorder: Recorder,
    leadership: Leadership,
    lease: ObjectKey,
    identity: String,
    /// The client that reads the Lease's UID, by which `kubectl describe` finds Events.
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

    /// Publishes an Event each time this process becomes the leader, and one at `stop` if it leads then. `stop`
    /// completes after the last other write and before the lease is released.
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

    /// Returns the Lease's UID. The Event is published even without it.
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
