//! Requests to the API server.

use std::time::Duration;

use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::labels::{Counters, Histograms, Value};
use crate::object::Kind;

/// The buckets of client-go's rest_client_request_duration_seconds (k8s.io/component-base/metrics).
const SECONDS: [f64; 12] = [0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0];

pub(super) struct Requests {
    host: Value,
    total: Counters<3>,
    seconds: Histograms<2>,
    by_resource: Counters<3>,
}

// === impl Requests ===

impl Requests {
    pub(super) fn register(registry: &mut Registry, prefix: &str, host: &str) -> Requests {
        let requests = Requests {
            host: host.to_owned().into(),
            total: Counters::default(),
            seconds: Histograms::new_with_constructor(|| Histogram::new(SECONDS)),
            by_resource: Counters::default(),
        };
        registry.register(
            "rest_client_requests",
            "Number of HTTP requests, partitioned by status code, method, and host",
            requests.total.clone(),
        );
        registry.register(
            "rest_client_request_duration_seconds",
            "Request latency in seconds; a watch counts until it is open",
            requests.seconds.clone(),
        );
        registry.register(
            format!("{prefix}_api_requests"),
            "Requests to the API server by verb and resource as RBAC names them",
            requests.by_resource.clone(),
        );
        requests
    }

    pub(super) fn count(&self, verb: &'static str, kind: &Kind, code: u16, took: Duration) {
        let method = method(verb);
        // As in client-go if no answer came.
        let code: Value = if code == 0 { "<error>".into() } else { code.to_string().into() };
        let host = self.host.clone();
        let labels = [("code", code.clone()), ("method", method.into()), ("host", host.clone())];
        self.total.get_or_create(&labels).inc();
        let labels = [("verb", method.into()), ("host", host)];
        self.seconds.get_or_create(&labels).observe(took.as_secs_f64());
        let resource = kind.resource().into();
        let labels = [("verb", verb.into()), ("resource", resource), ("code", code)];
        self.by_resource.get_or_create(&labels).inc();
    }
}

/// The HTTP method behind an RBAC verb.
fn method(verb: &str) -> &'static str {
    match verb {
        "create" => "POST",
        "update" => "PUT",
        "patch" => "PATCH",
        "delete" | "deletecollection" => "DELETE",
        _ => "GET",
    }
}
