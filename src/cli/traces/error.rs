//! Why there are no spans.

use std::path::PathBuf;

use opentelemetry_otlp::ExporterBuildError;
use tokio_rustls::rustls::pki_types::pem;

/// Why there are no spans. None of it keeps the operator from working.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// A protocol other than the one spoken here.
    #[error(
        "{variable}={protocol}, and only http/protobuf is spoken here; name the collector's HTTP \
         port (4318 by default) as the endpoint"
    )]
    Protocol {
        /// Which environment variable asks for it.
        variable: &'static str,
        /// Which protocol it asks for.
        protocol: String,
    },
    /// The certificates to trust cannot be read.
    #[error("the certificates in {path} cannot be read: {source}")]
    Certificate {
        /// Path of the file that should hold them.
        path: PathBuf,
        /// Why not.
        source: pem::Error,
    },
    /// TLS cannot be set up.
    #[error("TLS to the collector cannot be set up: {0}")]
    Tls(#[source] Box<kube::Error>),
    /// Something else in the environment that the exporter refuses.
    #[error(transparent)]
    Exporter(#[from] ExporterBuildError),
}
