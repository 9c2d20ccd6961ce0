//! The servers for health and metrics.
//!
//! Guarantees
//! - Health and metrics have separate addresses, so scrapes cannot block probes.
//! - [`Serve::secure`] serves metrics only to clients that the API server authenticates and authorizes.
//! - The servers respond from the start of the program until everything else has ended.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use rustix::io::Errno;

use super::observed::Observed;
use super::{Error, Manager};
use crate::client::Client;
use crate::controller::Program;
use crate::metrics::{
    Authorizer, Build, DelegatedAuthorizer, HealthChecks, Limits, Metrics, Routes, Server, Tls,
};

/// The servers of a program: `/healthz` and `/readyz`, and `/metrics`.
#[derive(Debug, Clone)]
pub struct Serve {
    health: Option<SocketAddr>,
    metrics: Option<SocketAddr>,
    is_secure: bool,
    certificate: Option<(PathBuf, PathBuf)>,
}

/// All addresses of the host.
const EVERY: IpAddr = IpAddr::V6(Ipv6Addr::UNSPECIFIED);

// === impl Serve ===

impl Serve {
    /// Serves health on port 8081, and metrics over TLS on port 8443. Clients need a token with permission to read
    /// `/metrics` (TokenReview, SubjectAccessReview). The program's account must be able to create these reviews: bind
    /// it to the ClusterRole `system:auth-delegator`. The ports are those of kubebuilder's scaffold.
    pub fn secure() -> Serve {
        let metrics = SocketAddr::new(EVERY, 8443);
        Serve { metrics: Some(metrics), is_secure: true, ..Serve::open() }
    }

    /// Serves health on port 8081, and metrics on port 8080 without authentication.
    pub fn open() -> Serve {
        let [health, metrics] = [8081, 8080].map(|port| Some(SocketAddr::new(EVERY, port)));
        Serve { health, metrics, is_secure: false, certificate: None }
    }

    /// Sets the address for health; `None` disables the server.
    pub fn health(mut self, address: impl Into<Option<SocketAddr>>) -> Serve {
        self.health = address.into();
        self
    }

    /// Sets the address for metrics; `None` disables the server.
    pub fn metrics(mut self, address: impl Into<Option<SocketAddr>>) -> Serve {
        self.metrics = address.into();
        self
    }

    /// Sets the certificate and the key for metrics (PEM), and makes metrics secure. Renewed files are reloaded.
    /// Default of [`Serve::secure`]: a self-signed certificate.
    pub fn certificate(mut self, certificate: PathBuf, key: PathBuf) -> Serve {
        (self.certificate, self.is_secure) = (Some((certificate, key)), true);
        self
    }

    /// Adds the servers to `program`. `connect` creates a client that does not require leadership, because every
    /// process serves metrics.
    pub(super) async fn add_to(
        &self,
        mut program: Program,
        connect: impl Fn() -> Client,
        observed: &Observed,
    ) -> Result<Program, Error> {
        if let Some(address) = self.health {
            let health = HealthChecks::default();
            health.add("ping", || Ok(String::new()));
            let routes =
                Routes { health: Some(health), ready: Some(observed.ready.clone()), metrics: None };
            program = listen(program, "health", address, routes, None).await?;
        }
        if let Some((address, metrics)) = self.metrics.zip(observed.metrics.clone()) {
            let (tls, access) = match (self.is_secure, &self.certificate) {
                (false, _) => (None, Authorizer::Open),
                (true, certificate) => {
                    let tls = match certificate {
                        Some((certificate, key)) => Tls::load(certificate, key)?,
                        None => Tls::self_signed()?,
                    };
                    (
                        Some(tls),
                        Authorizer::Delegated(Arc::new(DelegatedAuthorizer::new(connect()))),
                    )
                }
            };
            let routes = Routes { metrics: Some((metrics, access)), ..Routes::default() };
            program = listen(program, "metrics", address, routes, tls).await?;
        }
        Ok(program)
    }
}

impl Manager {
    /// Serves metrics and health.
    ///
    /// ```
    /// # use controller_machinery::manager::{Manager, Serve};
    /// let manager = Manager::new("foo").serve(Serve::secure());
    /// # drop(manager);
    /// ```
    pub fn serve(mut self, serve: Serve) -> Manager {
        self.observed.serve = Some(serve);
        if self.observed.metrics.is_some() {
            return self;
        }
        let identity = &self.client.identity;
        let version = Some(identity.version).filter(|it| !it.is_empty()).unwrap_or("unknown");
        let metrics = Metrics::new(identity, &Build { version, revision: "unknown" });
        self.metrics(metrics)
    }
}

/// Adds a server to `program`.
async fn listen(
    program: Program,
    what: &'static str,
    address: SocketAddr,
    routes: Routes,
    tls: Option<Tls>,
) -> Result<Program, Error> {
    let refused = |source| Error::Listen { what, address, source };
    let mut server = bound(address, routes).await.map_err(refused)?;
    let scheme = if tls.is_some() { "https" } else { "http" };
    if let Some(tls) = tls {
        server = server.with_tls(tls);
    }
    let address = server.address().map_err(refused)?;
    tracing::info!("Serving {what} on {scheme}://{address}");
    Ok(program.outer_task(format!("the {what} server"), |stop| async move {
        server.run(stop.requested()).await;
    }))
}

async fn bound(address: SocketAddr, routes: Routes) -> io::Result<Server> {
    match Server::bind(address, routes.clone(), Limits::default()).await {
        Err(error) if has_no_ipv6(&error) && address.ip() == EVERY => {
            let every = SocketAddr::from((Ipv4Addr::UNSPECIFIED, address.port()));
            Server::bind(every, routes, Limits::default()).await
        }
        bound => bound,
    }
}

/// Returns whether the host has no IPv6. Without IPv6 in the kernel, the address family is missing; if IPv6 is
/// disabled, the address is.
fn has_no_ipv6(error: &io::Error) -> bool {
    let error = Errno::from_io_error(error);
    matches!(error, Some(Errno::AFNOSUPPORT | Errno::ADDRNOTAVAIL))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_port_without_an_address_accepts_ipv4_and_ipv6() {
        let server = bound(SocketAddr::new(EVERY, 0), Routes::default()).await.unwrap();
        let port = server.address().unwrap().port();
        let mut loopbacks: Vec<IpAddr> = vec![Ipv4Addr::LOCALHOST.into()];
        // Not every machine that runs the tests has IPv6.
        if std::net::TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_ok() {
            loopbacks.push(Ipv6Addr::LOCALHOST.into());
        }
        for loopback in loopbacks {
            let reached = tokio::net::TcpStream::connect((loopback, port)).await;
            assert!(reached.is_ok(), "{loopback}: {reached:?}");
        }
    }

    #[test]
    fn ipv4_alone_is_accepted_only_without_ipv6() {
        for errno in [Errno::AFNOSUPPORT, Errno::ADDRNOTAVAIL] {
            assert!(has_no_ipv6(&errno.into()), "{errno}");
        }
        assert!(!has_no_ipv6(&Errno::ADDRINUSE.into()));
        assert!(!has_no_ipv6(&io::Error::other("x")));
    }
}
