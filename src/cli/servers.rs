//! HTTP servers of the operator: metrics, health, readiness.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use rustix::io::Errno;

use super::Error;
use super::args::RunArgs;
use crate::client::Client;
use crate::metrics::{Access, Checks, Limits, Metrics, Reviews, Routes, Server, Tls};

/// Binds the requested servers, each to its address.
pub(crate) async fn bind(
    args: &RunArgs,
    client: &Client,
    metrics: &Arc<Metrics>,
    ready: &Checks,
) -> Result<Vec<(String, Server)>, Error> {
    args.has_two_ports()?;
    let mut servers = Vec::new();
    if let Some(address) = args.health_probe_bind_address.0 {
        let health = Checks::default();
        health.add("ping", || Ok(String::new()));
        let routes = Routes { health: Some(health), ready: Some(ready.clone()), metrics: None };
        servers.push(listen("health", address, routes, None).await?);
    }
    let tls = tls(args)?;
    if let Some(address) = args.metrics_bind_address.0 {
        let access = match &tls {
            Some(_) => Access::Reviews(Arc::new(Reviews::new(client.clone()))),
            None => Access::Open,
        };
        let routes = Routes { metrics: Some((metrics.clone(), access)), ..Routes::default() };
        servers.push(listen("metrics", address, routes, tls).await?);
    }
    Ok(servers)
}

fn tls(args: &RunArgs) -> Result<Option<Tls>, Error> {
    if args.metrics_secure == Some(false) && args.metrics_certificate.is_some() {
        return Err(Error::Metrics(
            "--metrics-secure=false serves plain HTTP and uses no --metrics-certificate: leave out one of them",
        ));
    }
    if args.metrics_bind_address.0.is_none() || !args.serves_metrics_securely() {
        return Ok(None);
    }
    Ok(Some(match (&args.metrics_certificate, &args.metrics_key) {
        (Some(certificate), Some(key)) => Tls::load(certificate, key)?,
        _ => Tls::self_signed()?,
    }))
}

/// The server, and its name for people.
async fn listen(
    what: &'static str,
    address: SocketAddr,
    routes: Routes,
    tls: Option<Tls>,
) -> Result<(String, Server), Error> {
    let refused = |source| Error::Listen { what, address, source };
    let mut server = bound(address, routes).await.map_err(refused)?;
    let scheme = if tls.is_some() { "https" } else { "http" };
    if let Some(tls) = tls {
        server = server.with_tls(tls);
    }
    let address = server.address().map_err(refused)?;
    tracing::info!("Serving {what} on {scheme}://{address}");
    Ok((format!("the {what} server"), server))
}

async fn bound(address: SocketAddr, routes: Routes) -> io::Result<Server> {
    match Server::bind(address, routes.clone(), Limits::default()).await {
        Err(error) if has_no_ipv6(&error) && address.ip() == Ipv6Addr::UNSPECIFIED => {
            let every = SocketAddr::from((Ipv4Addr::UNSPECIFIED, address.port()));
            Server::bind(every, routes, Limits::default()).await
        }
        bound => bound,
    }
}

/// Without IPv6 in the kernel the address family is missing; where IPv6 is disabled, the address
/// is.
fn has_no_ipv6(error: &io::Error) -> bool {
    let error = Errno::from_io_error(error);
    matches!(error, Some(Errno::AFNOSUPPORT | Errno::ADDRNOTAVAIL))
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;
    use crate::cli::args::BindAddress;

    #[tokio::test]
    async fn a_port_without_an_address_is_reached_over_both_families() {
        let BindAddress(address) = ":0".parse().unwrap();
        let server = bound(address.unwrap(), Routes::default()).await.unwrap();
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
    fn only_for_want_of_ipv6_is_ipv4_enough() {
        for errno in [Errno::AFNOSUPPORT, Errno::ADDRNOTAVAIL] {
            assert!(has_no_ipv6(&errno.into()), "{errno}");
        }
        assert!(!has_no_ipv6(&Errno::ADDRINUSE.into()));
        assert!(!has_no_ipv6(&io::Error::other("x")));
    }
}
