//! Errors that prevent the export of spans.

use std::path::PathBuf;

use opentelemetry_otlp::ExporterBuildError;
use tokio_rustls::rustls::pki_types::pem;

/// An error that prevents the export of spans. The operator works without them.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// An unsupported protocol.
    #[error(
        "{variable}={protocol}, and only http/protobuf is spoken here; name the collector's HTTP \
         port (4318 by default) as the endpoint"
    )]
    Protocol {
        /// Environment variable that selects it.
        variable: &'static str,
        /// The protocol.
        protocol: String,
    },
    /// The certificates to trust cannot be read.
    #[error("the certificates in {path} cannot be read: {source}")]
    Certificate {
        /// Path of their file.
        path: PathBuf,
        /// Cause.
        source: pem::Error,
    },
    /// TLS cannot be set up.
    #[error("TLS to the collector cannot be set up: {0}")]
    Tls(#[source] Box<kube::Error>),
    /// Another setting that the exporter rejects.
    #[error(transparent)]
    Exporter(#[from] ExporterBuildError),
}
