//! Metrics and health of the manager's parts.

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
    /// Counts requests, lists and watches, queues, reconciles, Events and the lease in `metrics`.
    pub fn metrics(mut self, metrics: Arc<Metrics>) -> Manager {
        self.client.observer = metrics.clone();
        self.observed.metrics = Some(metrics);
        self
    }

    /// Adds readiness checks to `ready`: each informer is live, and the lease is known. A standby is ready, because
    /// it can take over at once.
    pub fn readiness(mut self, ready: Checks) -> Manager {
        self.observed.ready = ready;
        self
    }

    /// Serves `/metrics`, `/healthz` and `/readyz` on this address, without authentication.
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
            None => Arc::new(()),
        }
    }
}

// === impl Observed ===

impl Observed {
    /// Adds the server to `program`, if an address is set.
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

    /// Adds the metrics and the readiness check of a lease.
    pub(super) fn watch_lease(&self, name: &str, leadership: &Leadership) {
        if let Some(metrics) = &self.metrics {
            metrics.watch_lease(name);
        }
        let leadership = leadership.clone();
        self.ready.add("lease", move || {
            let status = leadership.status();
            match (status.phase, status.problem.or(status.waits), status.holder) {
                // Ready while it leads, even after a failed renewal.
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

    /// Adds the metrics and the readiness check of an informer. Once one namespace is live, namespaces that the
    /// account cannot list do not count: the others are served.
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

    /// Returns the options of a controller with the manager's observers.
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
