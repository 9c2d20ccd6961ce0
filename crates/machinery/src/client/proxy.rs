//! The proxy of the API server: its selection, and the tunnel through it.

use http::Uri;
use hyper_rustls::{HttpsConnector, MaybeHttpsStream};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::proxy::{SocksV5, Tunnel};
use hyper_util::client::proxy::matcher::{Intercept, Matcher};
use hyper_util::rt::TokioIo;
use kube::client::ConfigExt;
use kube::config::AuthInfo;
use tokio::net::TcpStream;
use tower::util::BoxCloneSyncService;
use tower::{BoxError, ServiceExt};

use super::Error;
use super::error::innermost;

/// Environment variables for a proxy, in curl's order.
const VARIABLES: [&str; 2] = ["https_proxy", "HTTPS_PROXY"];
const EXCEPTIONS: [&str; 2] = ["no_proxy", "NO_PROXY"];

/// A service that connects to an API server, directly or through a tunnel.
pub(super) type Connector =
    BoxCloneSyncService<Uri, MaybeHttpsStream<TokioIo<TcpStream>>, BoxError>;

/// Returns the environment's proxy for `server`, by the rules of curl: `HTTPS_PROXY` unless `NO_PROXY` excludes the
/// server, both in either case. Unlike in client-go, the proxy also applies to a server on this machine.
///
/// # Errors
/// [`Error::Config`] if the variable's value is unusable. The message omits the value, which can contain a password.
pub(super) fn of_environment(
    server: &Uri,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<Option<Uri>, Error> {
    let first = |names: [&'static str; 2]| {
        let mut values = names.into_iter().map(|name| (name, variable(name).unwrap_or_default()));
        values.find(|(_, value)| !value.trim().is_empty())
    };
    let Some((name, proxy)) = first(VARIABLES) else { return Ok(None) };
    let excluded = first(EXCEPTIONS).map(|(_, list)| list).unwrap_or_default();
    if server.scheme_str() != Some("https") || excludes(&excluded, server) {
        return Ok(None);
    }
    let proxy = proxy.trim().parse();
    let proxy: Uri = proxy.map_err(|why| Error::Config(format!("{name} is not a URL: {why}")))?;
    intercept(&proxy, name)?;
    Ok(Some(proxy))
}

/// Returns whether `NO_PROXY` excludes `server`. The matcher supports names, addresses and networks. Ports, which
/// client-go supports, are compared here.
fn excludes(list: &str, server: &Uri) -> bool {
    let port = server.port_u16().unwrap_or(443);
    let here = list.split(',').map(str::trim).filter_map(|entry| match entry.rsplit_once(':') {
        Some((host, digits)) if !host.contains(':') || host.ends_with(']') => {
            (digits.parse() == Ok(port)).then(|| host.trim_matches(['[', ']']))
        }
        _ => Some(entry),
    });
    let here: Vec<&str> = here.map(|entry| entry.strip_prefix("*.").unwrap_or(entry)).collect();
    // The matcher's `*` matches every name, but no address.
    if here.contains(&"*") {
        return true;
    }
    let matcher = Matcher::builder().all("http://proxy").no(here.join(",")).build();
    matcher.intercept(server).is_none()
}

/// Returns a proxy's address without credentials, and its credentials.
fn intercept(proxy: &Uri, named: &str) -> Result<Intercept, Error> {
    let any = Uri::from_static("https://any");
    let intercept = Matcher::builder().all(proxy.to_string()).build().intercept(&any);
    let is_supported = |scheme: &str| scheme.starts_with("http") || scheme.starts_with("socks5");
    let intercept = intercept.filter(|it| it.uri().scheme_str().is_some_and(is_supported));
    intercept.ok_or_else(|| {
        let scheme = proxy.scheme_str().unwrap_or_default();
        Error::Config(format!(
            "{named} asks for a proxy that cannot be used ({scheme}://{}): only http://, https:// \
             and socks5:// are supported",
            proxy.host().unwrap_or_default()
        ))
    })
}

/// Returns the connector of `config`, through its proxy if it has one.
///
/// # Errors
/// [`Error::Config`] if the proxy cannot be used.
pub(super) fn connector(config: &kube::Config, tcp: HttpConnector) -> Result<Connector, Error> {
    let Some(proxy) = &config.proxy_url else {
        let direct = tcp.map_response(MaybeHttpsStream::Http).map_err(BoxError::from);
        return Ok(BoxCloneSyncService::new(direct));
    };
    let intercept = intercept(proxy, "proxy-url")?;
    let uri = intercept.uri();
    let (scheme, host) = (uri.scheme_str().unwrap_or_default(), uri.host().unwrap_or_default());
    let port = uri.port().map(|port| format!(":{port}")).unwrap_or_default();
    let name = format!("the proxy {scheme}://{host}{port}");
    let no_tunnel = move |error: &(dyn std::error::Error + 'static)| -> BoxError {
        format!("{name} gives no tunnel: {}", innermost(error)).into()
    };
    // The proxy resolves the server's name, as in client-go. 1080 is the default of curl and client-go.
    if scheme.starts_with("socks5") {
        let address = format!("http://{host}:{}", uri.port_u16().unwrap_or(1080)).parse();
        let address = address.map_err(|why| {
            Error::Config(format!("the address of the proxy is not a URL: {why}"))
        })?;
        let mut tunnel = SocksV5::new(address, tcp);
        if let Some((user, password)) = intercept.raw_auth() {
            tunnel = tunnel.with_auth(user.to_owned(), password.to_owned());
        }
        let tunnel = tunnel.map_response(MaybeHttpsStream::Http);
        return Ok(BoxCloneSyncService::new(tunnel.map_err(move |error| no_tunnel(&error))));
    }
    // As in client-go, a proxy with TLS is verified like the API server, but does not receive the client's
    // certificate.
    let mut config = config.clone();
    config.auth_info = AuthInfo::default();
    config.tls_server_name = None;
    let unusable = |error: kube::Error| Error::Config(error.to_string());
    let inner: HttpsConnector<HttpConnector> =
        config.rustls_https_connector_with_connector(tcp).map_err(unusable)?;
    let mut tunnel = Tunnel::new(intercept.uri().clone(), inner);
    if let Some(credentials) = intercept.basic_auth() {
        tunnel = tunnel.with_auth(credentials.clone());
    }
    Ok(BoxCloneSyncService::new(tunnel.map_err(move |error| no_tunnel(&error))))
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    /// The proxy for `server` in this environment.
    fn proxy(server: &str, environment: &[(&str, &str)]) -> Result<Option<String>, String> {
        let variable = |name: &str| {
            let found = environment.iter().find(|(variable, _)| *variable == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        let proxy = of_environment(&server.parse().unwrap(), variable);
        proxy.map(|proxy| proxy.map(|uri| uri.to_string())).map_err(|error| error.to_string())
    }

    const API: &str = "https://api.example.com:6443";
    const PROXY: (&str, &str) = ("HTTPS_PROXY", "http://proxy:3128");

    #[test]
    fn a_proxy_variable_is_read_in_either_case() {
        let found = Ok(Some("http://proxy:3128/".to_owned()));
        assert_eq!(proxy(API, &[PROXY]), found);
        assert_eq!(proxy(API, &[("HTTPS_PROXY", "http://other"), ("https_proxy", PROXY.1)]), found);
        assert_eq!(proxy(API, &[("https_proxy", ""), PROXY]), found);
        assert_eq!(proxy(API, &[("HTTPS_PROXY", "proxy:3128")]), Ok(Some("proxy:3128".to_owned())));
        assert_eq!(proxy(API, &[("HTTP_PROXY", "http://proxy:3128")]), Ok(None));
        assert_eq!(proxy("http://api.example.com:8080", &[PROXY]), Ok(None));
    }

    #[test]
    fn no_proxy_lists_names_addresses_networks_and_ports() {
        let named = [
            "example.com",
            ".example.com",
            "*.example.com",
            "a, api.example.com",
            "*",
            "api.example.com:6443",
        ];
        for list in named {
            assert_eq!(proxy(API, &[PROXY, ("NO_PROXY", list)]), Ok(None), "{list}");
            assert_eq!(proxy(API, &[PROXY, ("no_proxy", list)]), Ok(None), "{list}");
        }
        for list in ["ample.com", "b.example.com", "api.example.com:443", "10.0.0.0/8", ""] {
            assert!(proxy(API, &[PROXY, ("NO_PROXY", list)]).unwrap().is_some(), "{list}");
        }
        for server in ["https://10.96.0.1", "https://[fd00::1]:6443", "https://localhost"] {
            assert_eq!(proxy(server, &[PROXY, ("NO_PROXY", "a, *")]), Ok(None), "{server}");
        }
        let service = "https://10.96.0.1:443";
        for list in ["10.96.0.0/12", "10.96.0.1", "svc,10.0.0.0/8"] {
            assert_eq!(proxy(service, &[PROXY, ("NO_PROXY", list)]), Ok(None), "{list}");
        }
        assert!(proxy(service, &[PROXY, ("NO_PROXY", "10.97.0.0/16")]).unwrap().is_some());
        assert_eq!(proxy("https://[fd00::1]:6443", &[PROXY, ("NO_PROXY", "fd00::/8")]), Ok(None));
    }

    #[test]
    fn a_proxy_applies_to_a_local_server() {
        for here in ["https://127.0.0.1:6443", "https://localhost:6443", "https://[::1]:6443"] {
            assert!(proxy(here, &[PROXY]).unwrap().is_some(), "{here}");
            let list = ("NO_PROXY", "localhost,127.0.0.0/8,::1");
            assert_eq!(proxy(here, &[PROXY, list]), Ok(None), "{here}");
        }
    }

    #[test]
    fn an_unusable_value_is_an_error_without_the_password() {
        for bad in ["socks4://user:hunter2@proxy:1080", "http://user:hunter2@", "ht tp://hunter2"] {
            let error = proxy(API, &[("https_proxy", bad)]).unwrap_err();
            assert!(error.contains("https_proxy") && !error.contains("hunter2"), "{error}");
            let excluded = proxy(API, &[("https_proxy", bad), ("NO_PROXY", "example.com")]);
            assert_eq!(excluded, Ok(None), "where it is not needed it does no harm");
        }
    }

    #[test]
    fn the_proxy_address_contains_no_credentials() {
        let proxy = "http://user:p%40ss@proxy:3128".parse().unwrap();
        let intercept = intercept(&proxy, "x").unwrap();
        assert_eq!(intercept.uri().to_string(), "http://proxy:3128/");
        assert_eq!(intercept.basic_auth().unwrap(), "Basic dXNlcjpwQHNz");
    }

    #[tokio::test]
    async fn the_error_of_a_socks_proxy_omits_the_password() {
        let error = |proxy: String| async move {
            let mut config = kube::Config::new("https://api.svc.x:6443".parse().unwrap());
            config.proxy_url = Some(proxy.parse().unwrap());
            let mut tcp = HttpConnector::new();
            tcp.enforce_http(false);
            let connected = connector(&config, tcp).unwrap().oneshot(config.cluster_url).await;
            connected.map(drop).unwrap_err().to_string()
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let refusing = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.read_exact(&mut [0; 3]).await.unwrap();
            stream.write_all(&[5, 0xff]).await.unwrap();
        };
        let (text, ()) = tokio::join!(error(format!("socks5://{address}")), refusing);
        assert!(text.contains(&format!("socks5://{address}")), "{text}");
        assert!(text.contains("authentication"), "{text}");
        drop(listener);
        let text = error(format!("socks5://me:hun@ter2@{address}")).await;
        assert!(text.contains(&address.to_string()) && !text.contains("ter2"), "{text}");
    }

    #[tokio::test]
    async fn a_socks_proxy_receives_the_server_name_and_the_credentials() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let asked = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut asked = Vec::new();
            // Greeting, credentials, request: how much is read, and the response.
            let responses: [(usize, &[u8]); 3] =
                [(3, &[5, 2]), (8, &[1, 0]), (16, &[5, 0, 0, 1, 0, 0, 0, 0, 0, 0])];
            for (length, response) in responses {
                let mut request = vec![0; length];
                stream.read_exact(&mut request).await.unwrap();
                stream.write_all(response).await.unwrap();
                asked.push(request);
            }
            asked
        });
        let mut config = kube::Config::new("https://api.svc.x:6443".parse().unwrap());
        config.proxy_url = Some(format!("socks5://me:p%40s@{address}").parse().unwrap());
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        let connector = connector(&config, tcp).unwrap();
        connector.oneshot(config.cluster_url).await.unwrap();
        let asked = asked.await.unwrap();
        assert_eq!(asked[1], b"\x01\x02me\x03p@s");
        assert_eq!(asked[2], b"\x05\x01\x00\x03\x09api.svc.x\x19\x2b");
    }
}
