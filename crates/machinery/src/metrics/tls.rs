//! TLS for the metrics.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{self, ServerConfig};
use tokio_rustls::server::TlsStream;

/// Shortest time between two checks of the files. Certificates are renewed weeks before they expire.
const LOOK: Duration = Duration::from_secs(10);

/// A certificate and its key.
pub struct Tls {
    /// Their files, which can be renewed while in use. A self-signed certificate is kept until the process ends.
    files: Option<[PathBuf; 2]>,
    loaded: Mutex<Loaded>,
}

/// Reason why TLS is not possible.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file cannot be read.
    #[error("{path} cannot be read")]
    File {
        /// The file.
        path: PathBuf,
        /// The reason.
        #[source]
        source: io::Error,
    },
    /// A file has the wrong content.
    #[error("{path} holds no {what} in PEM")]
    Pem {
        /// The file.
        path: PathBuf,
        /// The expected content.
        what: &'static str,
    },
    /// The certificate and the key do not match, or have an unsupported type.
    #[error("the certificate and the key cannot be used")]
    Unusable(#[from] rustls::Error),
    /// No certificate could be created.
    #[error("no self-signed certificate could be made")]
    SelfSigned(#[source] Box<dyn std::error::Error + Send + Sync>),
}

struct Loaded {
    acceptor: TlsAcceptor,
    /// Modification times of the files of `acceptor`.
    changed: [Option<SystemTime>; 2],
    looked: Instant,
}

// === impl Tls ===

impl Tls {
    /// Reads a chain of certificates and a private key, both PEM.
    ///
    /// # Errors
    /// If they cannot be read or do not match.
    pub fn load(certificate: &Path, key: &Path) -> Result<Tls, TlsError> {
        let files = [certificate.to_owned(), key.to_owned()];
        let changed = changed(&files);
        Ok(Tls::new(acceptor(&files)?, changed, Some(files)))
    }

    /// Creates a self-signed certificate for `localhost`, as controller-runtime's metrics server does. It encrypts what
    /// a client sends, its token included, but does not authenticate the server.
    ///
    /// # Errors
    /// If no random numbers are available.
    pub fn self_signed() -> Result<Tls, TlsError> {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()])
            .map_err(|error| TlsError::SelfSigned(error.into()))?;
        let key = PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
        Ok(Tls::new(serving(vec![made.cert.der().clone()], key)?, [None; 2], None))
    }

    fn new(
        acceptor: TlsAcceptor,
        changed: [Option<SystemTime>; 2],
        files: Option<[PathBuf; 2]>,
    ) -> Tls {
        Tls { files, loaded: Mutex::new(Loaded { acceptor, changed, looked: Instant::now() }) }
    }

    /// Performs the TLS handshake.
    pub(super) async fn accept(&self, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        self.current().accept(stream).await
    }

    /// Returns the acceptor for the current files. If they are unusable, for example because only one of them was
    /// renewed, returns the previous one.
    fn current(&self) -> TlsAcceptor {
        let mut loaded = self.loaded.lock();
        if let Some(files) = &self.files
            && loaded.looked.elapsed() >= LOOK
        {
            loaded.looked = Instant::now();
            let now = changed(files);
            if now != loaded.changed {
                match acceptor(files) {
                    Ok(acceptor) => {
                        (loaded.acceptor, loaded.changed) = (acceptor, now);
                        tracing::debug!("The certificate of the metrics was renewed");
                    }
                    Err(error) => {
                        tracing::warn!(%error, "Could not load the renewed certificate");
                    }
                }
            }
        }
        loaded.acceptor.clone()
    }
}

opaque!(Tls);

/// Returns the modification times.
fn changed(files: &[PathBuf; 2]) -> [Option<SystemTime>; 2] {
    files.each_ref().map(|path| fs::metadata(path).and_then(|file| file.modified()).ok())
}

fn acceptor([certificate, key]: &[PathBuf; 2]) -> Result<TlsAcceptor, TlsError> {
    let read = |path: &PathBuf| {
        fs::read(path).map_err(|source| TlsError::File { path: path.clone(), source })
    };
    let pem = |path: &PathBuf, what| TlsError::Pem { path: path.clone(), what };
    let chain = CertificateDer::pem_slice_iter(&read(certificate)?)
        .collect::<Result<Vec<_>, _>>()
        .ok()
        .filter(|chain| !chain.is_empty())
        .ok_or_else(|| pem(certificate, "certificate"))?;
    let key = PrivateKeyDer::from_pem_slice(&read(key)?).map_err(|_| pem(key, "private key"))?;
    serving(chain, key)
}

fn serving(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<TlsAcceptor, TlsError> {
    // TLS 1.3 only: every maintained Prometheus supports it.
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CERTIFICATE: &str = include_str!("tls/test-cert.pem");
    const KEY: &str = include_str!("tls/test-key.pem");

    fn files(certificate: &str, key: &str) -> (tempfile::TempDir, PathBuf, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let (a, b) = (folder.path().join("tls.crt"), folder.path().join("tls.key"));
        fs::write(&a, certificate).unwrap();
        fs::write(&b, key).unwrap();
        (folder, a, b)
    }

    fn refusal(certificate: &str, key: &str) -> String {
        let (_folder, certificate, key) = files(certificate, key);
        Tls::load(&certificate, &key).unwrap_err().to_string()
    }

    #[test]
    fn an_invalid_certificate_or_key_is_reported() {
        assert!(refusal("", KEY).ends_with("tls.crt holds no certificate in PEM"));
        assert!(refusal(CERTIFICATE, CERTIFICATE).ends_with("tls.key holds no private key in PEM"));
        let missing = Tls::load(Path::new("/no/such"), Path::new("/no/such")).unwrap_err();
        assert_eq!(missing.to_string(), "/no/such cannot be read");
    }

    #[tokio::test(start_paused = true)]
    async fn a_renewed_certificate_is_used_and_a_broken_one_is_not() {
        let (_folder, certificate, key) = files(CERTIFICATE, KEY);
        let tls = Tls::load(&certificate, &key).unwrap();
        let old = Arc::as_ptr(tls.current().config());
        let modify = |text: &str, hours: u64| {
            fs::write(&certificate, text).unwrap();
            let time = SystemTime::now() + Duration::from_secs(3_600 * hours);
            fs::File::open(&certificate).unwrap().set_modified(time).unwrap();
        };
        modify("broken", 1);
        tokio::time::advance(LOOK).await;
        assert_eq!(Arc::as_ptr(tls.current().config()), old, "a broken file changes nothing");
        modify(CERTIFICATE, 2);
        assert_eq!(Arc::as_ptr(tls.current().config()), old, "not looked at all the time");
        tokio::time::advance(LOOK).await;
        assert_ne!(Arc::as_ptr(tls.current().config()), old);
    }
}
