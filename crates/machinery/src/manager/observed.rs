//! Metrics and health of the manager's parts.

use std::sync::Arc;

#[cfg(feature = "metrics")]
use super::serve::Serve;
use super::{Manager, Shared};
use crate::informer::Informer;
use crate::leader_election::{Leadership, Phase};
use crate::metrics::{HealthChecks, Metrics};
use crate::object::Resource;
use crate::reflector::State;

/// Metrics and checks of the parts.
#[derive(Default)]
pub(super) struct Observed {
    pub(super) metrics: Option<Arc<Metrics>>,
    pub(super) ready: HealthChecks,
    #[cfg(feature = "metrics")]
    pub(super) serve: Option<Serve>,
}

// === impl Manager ===

impl Manager {
    /// Sets the metrics that `Manager::serve` serves. They also read the queues and the informers of this manager at each
    /// scrape.
    pub fn metrics(mut self, metrics: Arc<Metrics>) -> Manager {
        self.observed.metrics = Some(metrics);
        self
    }

    /// Adds readiness checks to `ready`: each informer is live, and the holder of the lease is known. A standby is
    /// ready, because it can take over at once.
    pub fn readiness(mut self, ready: HealthChecks) -> Manager {
        self.observed.ready = ready;
        self
    }
}

// === impl Observed ===

impl Observed {
    /// Adds the readiness check of a lease.
    pub(super) fn watch_lease(&self, leadership: &Leadership) {
        let leadership = leadership.clone();
        self.ready.add("lease", move || {
            let status = leadership.status();
            match (status.phase, status.problem.or(status.waits), status.holder) {
                // A leader stays ready after a failed renewal, and a standby after a failed request.
                (Phase::Leading, _, _) => Ok("leading".to_owned()),
                (Phase::Standby, Some(_), Some(holder)) if status.is_known => {
                    Ok(format!("standby of {holder}"))
                }
                (_, Some(problem), _) => Err(problem),
                (Phase::Suspended, None, _) => {
                    Err("suspended: the lease was not renewed in time".to_owned())
                }
                (Phase::Standby, None, _) if !status.is_known => {
                    Err("the lease was not read yet".to_owned())
                }
                (Phase::Standby, None, Some(holder)) => Ok(format!("standby of {holder}")),
                (Phase::Standby, None, None) => Ok("standby; no process leads".to_owned()),
            }
        });
    }
}

// === impl Shared ===

impl Shared {
    /// Adds the metrics and the readiness check of an informer. If one namespace is live, namespaces that the account
    /// cannot list do not fail the check, because the others are reconciled.
    pub(super) fn watch_informer<V: Resource>(&self, informer: &Informer<V>) {
        if let Some(metrics) = &self.observed.metrics {
            metrics.watch_informer(informer);
        }
        let informer = informer.clone();
        self.observed.ready.add(format!("informer-{}", V::kind().resource()), move || {
            let scopes = informer.health();
            let one_is_live = scopes.iter().any(|(_, health)| health.state == State::Live);
            let mut without = String::new();
            for (namespace, health) in scopes {
                if health.state == State::Live {
                    continue;
                }
                let here = namespace.map(|name| format!(" in {name}")).unwrap_or_default();
                let why = health.why.map(|why| format!(": {why}")).unwrap_or_default();
                let text = format!("{:?}{here}{why}", health.state);
                if !(one_is_live && health.state == State::Forbidden) {
                    return Err(text);
                }
                without = text;
            }
            Ok(without)
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_ready_once_it_knows_who_leads() {
        let observed = Observed::default();
        let leadership = Leadership::of_tests();
        observed.watch_lease(&leadership);
        let lease = || observed.ready.one("lease").expect("there is such a check");
        assert!(lease().text.contains("the lease was not read yet"), "{}", lease().text);
        for permitted in [false, true] {
            leadership.permit(permitted);
            assert!(lease().ok, "{}", lease().text);
        }
    }
}
