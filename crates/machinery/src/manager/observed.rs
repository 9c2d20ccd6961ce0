//! Metrics and health of everything that the manager runs.

use std::net::SocketAddr;
use std::sync::Arc;

use super::{Error, Manager, Shared};
use crate::controller::{Handle, Options, Program};
use crate::events;
use crate::informer::Informer;
use crate::leader_election::{Leadership, Phase};
use crate::metrics::{Access, Build, Checks, Limits, Metrics, Routes, Server};
use crate::object::Resource;
use crate::reflector::{self, State};

/// Observers of the parts.
#[derive(Clone, Default)]
pub(super) struct Observed {
    pub(super) metrics: Option<Arc<Metrics>>,
    ready: Checks,
    address: Option<SocketAddr>,
}

// === impl Manager ===

impl Manager {
    /// Counts everything in `metrics`: requests, lists and watches, queues, reconciles, Events and the lease.
    pub fn metrics(mut self, metrics: Arc<Metrics>) -> Manager {
        self.client.observer = metrics.clone();
        self.observed.metrics = Some(metrics);
        self
    }

    /// Adds to `ready` what this process has to have before it can work: each informer live, and
    /// the lease known. (A standby is ready: it can take over at once.)
    pub fn readiness(mut self, ready: Checks) -> Manager {
        self.observed.ready = ready;
        self
    }

    /// Serves `/metrics`, `/healthz` and `/readyz` on this address, to everybody who reaches it.
    ///
    /// ```
    /// # use controller_machinery::manager::Manager;
    /// let manager = Manager::new("foo").serve(([0, 0, 0, 0], 8080).into());
    /// # drop(manager);
    /// ```
    pub fn serve(self, address: SocketAddr) -> Manager {
        let metrics = self.observed.metrics.clone().unwrap_or_else(|| {
            let identity = &self.client.identity;
            let version = Some(identity.version).filter(|it| !it.is_empty()).unwrap_or("unknown");
            Metrics::new(identity, "", &Build { version, revision: "unknown" })
        });
        let mut manager = self.metrics(metrics);
        manager.observed.address = Some(address);
        manager
    }

    pub(super) fn events_observer(&self) -> Arc<dyn events::Observer> {
        match &self.observed.metrics {
            Some(metrics) => metrics.clone(),
            None => Arc::new(events::Unobserved),
        }
    }
}

// === impl Observed ===

impl Observed {
    /// Has `program` serve the address, if there is one.
    pub(super) async fn serve(&self, program: Program) -> Result<Program, Error> {
        let Some(address) = self.address else { return Ok(program) };
        let health = Checks::default();
        health.add("ping", || Ok(String::new()));
        let metrics = self.metrics.clone().map(|metrics| (metrics, Access::Open));
        let routes = Routes { metrics, health: Some(health), ready: Some(self.ready.clone()) };
        let refused = |error| Error::Listen(address, error);
        let server = Server::bind(address, routes, Limits::default()).await.map_err(refused)?;
        let address = server.address().map_err(refused)?;
        tracing::info!("Serving metrics and health on http://{address}");
        Ok(program.outer_task("the server of metrics and health", |stop| async move {
            server.run(stop.requested()).await;
        }))
    }

    /// Shows a lease, and reports how this process stands to it.
    pub(super) fn watch_lease(&self, name: &str, leadership: &Leadership) {
        if let Some(metrics) = &self.metrics {
            metrics.watch_lease(name);
        }
        let leadership = leadership.clone();
        self.ready.add("lease", move || {
            let status = leadership.status();
            match (status.phase, status.problem.or(status.waits), status.holder) {
                // It may write for as long as it leads, even if one renewal has failed.
                (Phase::Leading, _, _) => Ok("leading".to_owned()),
                (_, Some(problem), _) => Err(problem),
                (Phase::Suspended, None, _) => {
                    Err("suspended: the lease was not renewed in time".to_owned())
                }
                (Phase::Standby, None, _) if !status.is_known => {
                    Err("the lease was not read yet".to_owned())
                }
                (Phase::Standby, None, Some(holder)) => Ok(format!("standby of {holder}")),
                (Phase::Standby, None, None) => Ok("standby; nobody leads".to_owned()),
            }
        });
    }
}

// === impl Shared ===

impl Shared {
    pub(super) fn reflector_observer(&self) -> Option<Arc<dyn reflector::Observer>> {
        self.observed.metrics.clone().map(|metrics| metrics as Arc<_>)
    }

    /// Shows an informer. Ready once it is live; one that is not is named, with the reason. A namespace that may not
    /// be listed does not count beside one that is live: the others are served.
    pub(super) fn watch_informer<V: Resource>(&self, informer: &Informer<V>) {
        if let Some(metrics) = &self.observed.metrics {
            metrics.watch_informer(informer);
        }
        let informer = informer.clone();
        self.observed.ready.add(format!("informer-{}", V::KIND.resource()), move || {
            let scopes = informer.health();
            let one_is_live = scopes.iter().any(|(_, health)| health.state == State::Live);
            let mut without = String::new();
            for (namespace, health) in scopes {
                if health.state == State::Live {
                    continue;
                }
                let here = namespace.map(|name| format!(" in {name}")).unwrap_or_default();
                let why = health.why.map(|why| format!(": {why}")).unwrap_or_default();
                let text = format!("{}{here}{why}", health.state.as_str());
                if !(one_is_live && health.state == State::Forbidden) {
                    return Err(text);
                }
                without = text;
            }
            Ok(without)
        });
    }

    pub(super) fn watch_queue(&self, name: &'static str, handle: &Handle) {
        if let Some(metrics) = &self.observed.metrics {
            metrics.watch_queue(name, handle.queue());
        }
    }

    /// The options of a controller, with what the manager knows.
    pub(super) fn observed(&self, name: &'static str, mut options: Options) -> Options {
        options.connectivity = Some(self.client.connectivity().clone());
        if let Some(metrics) = &self.observed.metrics {
            options.observer.get_or_insert_with(|| metrics.clone());
            options.queue_observer.get_or_insert_with(|| Arc::new(metrics.queue_observer(name)));
        }
        options
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_ready_once_it_knows_who_leads() {
        let observed = Observed::default();
        let leadership = Leadership::of_tests();
        observed.watch_lease("foo", &leadership);
        let lease = || observed.ready.one("lease").expect("there is such a check");
        assert!(lease().text.contains("the lease was not read yet"), "{}", lease().text);
        for permitted in [false, true] {
            leadership.permit(permitted);
            assert!(lease().ok, "{}", lease().text);
        }
    }
}
