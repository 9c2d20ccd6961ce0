//! Settings from the environment that the OpenTelemetry crates do not read themselves.

use std::path::PathBuf;
use std::time::Duration;

use opentelemetry_otlp as otlp;

use super::Error;

/// Variable with the path of the certificates. The crates have no constant for it, because they leave
/// certificates to the HTTP client.
const CERTIFICATE: &str = "OTEL_EXPORTER_OTLP_CERTIFICATE";
const TRACES_CERTIFICATE: &str = "OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE";

/// Transport of spans, and its deadline.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Settings {
    /// True if the endpoint is reached over TLS.
    pub(super) tls: bool,
    /// The certificates to trust instead of the system's, in PEM.
    pub(super) certificate: Option<PathBuf>,
    /// Time after which a request without a response has failed.
    pub(super) timeout: Duration,
}

// === impl Settings ===

impl Settings {
    /// Reads the variables; `None` if no spans are requested. The exporter reports invalid endpoints and
    /// headers.
    pub(super) fn read(
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Option<Settings>, Error> {
        // By OpenTelemetry's specification, an empty variable is the same as an unset one.
        let set = |name: &str| variable(name).filter(|value| !value.trim().is_empty());
        let either = |one: &'static str, other: &'static str| {
            let named = |name: &'static str| set(name).map(|value| (name, value));
            named(one).or_else(|| named(other))
        };
        let switched_off = set("OTEL_SDK_DISABLED")
            .is_some_and(|on| on.eq_ignore_ascii_case("true"))
            || set("OTEL_TRACES_EXPORTER").is_some_and(|exporter| exporter == "none");
        let endpoint =
            either(otlp::OTEL_EXPORTER_OTLP_TRACES_ENDPOINT, otlp::OTEL_EXPORTER_OTLP_ENDPOINT);
        let Some((_, endpoint)) = endpoint.filter(|_| !switched_off) else { return Ok(None) };
        let protocol =
            either(otlp::OTEL_EXPORTER_OTLP_TRACES_PROTOCOL, otlp::OTEL_EXPORTER_OTLP_PROTOCOL);
        if let Some((variable, protocol)) = protocol.filter(|(_, name)| name != "http/protobuf") {
            return Err(Error::Protocol { variable, protocol });
        }
        let timeout =
            either(otlp::OTEL_EXPORTER_OTLP_TRACES_TIMEOUT, otlp::OTEL_EXPORTER_OTLP_TIMEOUT);
        let timeout = timeout.and_then(|(_, millis)| millis.parse().ok());
        Ok(Some(Settings {
            tls: endpoint.starts_with("https:"),
            certificate: either(TRACES_CERTIFICATE, CERTIFICATE).map(|(_, path)| path.into()),
            timeout: timeout
                .map_or(otlp::OTEL_EXPORTER_OTLP_TIMEOUT_DEFAULT, Duration::from_millis),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<Option<Settings>, Error> {
        Settings::read(|name| {
            let found = variables.iter().find(|(variable, _)| *variable == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    const ENDPOINT: (&str, &str) = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318");

    #[test]
    fn without_an_endpoint_nothing_is_exported() {
        assert_eq!(read(&[]).unwrap(), None);
        assert_eq!(read(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "")]).unwrap(), None);
        assert_eq!(read(&[("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")]).unwrap(), None);
    }

    #[test]
    fn an_endpoint_for_everything_or_for_spans_suffices() {
        let plain = Settings { tls: false, certificate: None, timeout: Duration::from_secs(10) };
        assert_eq!(read(&[ENDPOINT]).unwrap(), Some(plain));
        let secure = [
            ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "https://collector/v1/traces"),
            ("OTEL_EXPORTER_OTLP_CERTIFICATE", "/certificates/ca.crt"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "500"),
            ENDPOINT,
        ];
        let certificate = Some(PathBuf::from("/certificates/ca.crt"));
        let expected = Settings { tls: true, certificate, timeout: Duration::from_millis(500) };
        assert_eq!(read(&secure).unwrap(), Some(expected));
    }

    #[test]
    fn the_export_can_be_disabled() {
        for off in [("OTEL_SDK_DISABLED", "true"), ("OTEL_TRACES_EXPORTER", "none")] {
            assert_eq!(read(&[ENDPOINT, off]).unwrap(), None, "{off:?}");
        }
    }

    #[test]
    fn an_unsupported_protocol_is_named_with_a_hint() {
        let error = read(&[ENDPOINT, ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")]).unwrap_err();
        let said = error.to_string();
        assert!(
            said.starts_with("OTEL_EXPORTER_OTLP_PROTOCOL=grpc, and only http/protobuf"),
            "{said}"
        );
        assert!(read(&[ENDPOINT, ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")]).is_ok());
    }
}
