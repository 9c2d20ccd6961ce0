//! Spans for an OpenTelemetry collector, if they are compiled in and requested.

use std::sync::Arc;

use tokio::runtime::Handle;
use tracing_subscriber::{Layer, Registry};

use super::IDENTITY;
use crate::metrics::Metrics;
#[cfg(feature = "otel")]
use crate::traces::Traces;
use crate::{client, controller};

#[cfg(not(feature = "otel"))]
use absent::Traces;

/// A layer that makes log lines or spans.
pub(crate) type LogLayer = Box<dyn Layer<Registry> + Send + Sync>;

/// The spans of the process, if there are any.
#[derive(Clone, Default)]
pub(crate) struct Spans {
    traces: Option<Traces>,
    /// Why there are none although the environment requests them.
    problem: Option<String>,
}

// === impl Spans ===

impl Spans {
    /// As the environment says. If its settings are wrong, the operator works all the same: see
    /// [`Spans::log_problem`].
    pub(crate) fn from_environment(runtime: &Handle) -> Spans {
        match Traces::from_environment(&IDENTITY, runtime) {
            Ok(traces) => Spans { traces, problem: None },
            Err(error) => Spans { traces: None, problem: Some(error.to_string()) },
        }
    }

    /// The layer that makes them, next to the one for log lines.
    pub(crate) fn layer(&self) -> Option<LogLayer> {
        self.traces.as_ref().map(|traces| traces.layer().boxed())
    }

    /// Logs why there are none, once there is a log.
    pub(crate) fn log_problem(&self) {
        if let Some(problem) = &self.problem {
            tracing::warn!(why = %problem, "Spans are not exported");
        }
    }

    /// The observer of requests to the API server.
    pub(crate) fn of_requests(&self, metrics: &Arc<Metrics>) -> Arc<dyn client::Observer> {
        match &self.traces {
            Some(traces) => traces.of_requests(metrics.clone()),
            None => metrics.clone(),
        }
    }

    /// The observer of passes.
    pub(crate) fn of_passes(&self, metrics: &Arc<Metrics>) -> Arc<dyn controller::Observer> {
        match &self.traces {
            Some(traces) => traces.of_passes(metrics.clone()),
            None => metrics.clone(),
        }
    }

    /// Sends what is left, within a time limit.
    pub(crate) async fn end(&self) {
        if let Some(traces) = &self.traces {
            traces.end().await;
        }
    }
}

/// A build without spans.
#[cfg(not(feature = "otel"))]
mod absent {
    use std::sync::Arc;

    use tokio::runtime::Handle;
    use tracing_subscriber::layer::Identity;

    use crate::identity::Identity as Program;
    use crate::{client, controller};

    /// Stands in for `crate::traces::Traces`, which other builds have. No value of it exists.
    #[derive(Clone)]
    pub(super) enum Traces {}

    /// The environment requests spans.
    #[derive(Debug, thiserror::Error)]
    #[error("{0} is set, and this binary is built without the feature otel")]
    pub(super) struct AskedFor(&'static str);

    /// The variables that request them.
    const ENDPOINTS: [&str; 2] =
        ["OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"];

    // === impl Traces ===

    impl Traces {
        /// Always `None`, or an error if the environment requests spans.
        pub(super) fn from_environment(
            _: &Program,
            _: &Handle,
        ) -> Result<Option<Traces>, AskedFor> {
            match ENDPOINTS.iter().find(|name| std::env::var(name).is_ok_and(|url| !url.is_empty()))
            {
                None => Ok(None),
                Some(name) => Err(AskedFor(name)),
            }
        }

        pub(super) fn layer(&self) -> Identity {
            match *self {}
        }

        pub(super) fn of_requests(
            &self,
            _: Arc<dyn client::Observer>,
        ) -> Arc<dyn client::Observer> {
            match *self {}
        }

        pub(super) fn of_passes(
            &self,
            _: Arc<dyn controller::Observer>,
        ) -> Arc<dyn controller::Observer> {
            match *self {}
        }

        pub(super) async fn end(&self) {
            match *self {}
        }
    }
}
