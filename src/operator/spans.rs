//! Spans for an OpenTelemetry collector, where they are compiled in and asked for.

use std::sync::Arc;

use tokio::runtime::Handle;
use tracing_subscriber::{Layer, Registry};

use crate::metrics::Metrics;
#[cfg(feature = "otel")]
use crate::traces::Traces;
use crate::{client, controller};

#[cfg(not(feature = "otel"))]
mod absent;
#[cfg(not(feature = "otel"))]
use absent::Traces;

/// What log lines and spans are made by.
pub(super) type Lines = Box<dyn Layer<Registry> + Send + Sync>;

/// The spans of the process, if there are any.
#[derive(Clone, Default)]
pub(super) struct Spans {
    traces: Option<Traces>,
    /// Why there are none although the environment asks for them.
    problem: Option<String>,
}

// === impl Spans ===

impl Spans {
    /// As the environment says. Whatever is wrong with it, the operator works: see
    /// [`Spans::tell`].
    pub(super) fn from_environment(runtime: &Handle) -> Spans {
        match Traces::from_environment(runtime) {
            Ok(traces) => Spans { traces, problem: None },
            Err(error) => Spans { traces: None, problem: Some(error.to_string()) },
        }
    }

    /// What makes them, beside the log lines.
    pub(super) fn layer(&self) -> Option<Lines> {
        self.traces.as_ref().map(|traces| traces.layer().boxed())
    }

    /// Says why there are none, once there is a log to say it in.
    pub(super) fn tell(&self) {
        if let Some(problem) = &self.problem {
            tracing::warn!(why = %problem, "Spans are not exported");
        }
    }

    /// Who is told of requests to the API server.
    pub(super) fn of_requests(&self, metrics: &Arc<Metrics>) -> Arc<dyn client::Observer> {
        match &self.traces {
            Some(traces) => traces.of_requests(metrics.clone()),
            None => metrics.clone(),
        }
    }

    /// Who is told of passes.
    pub(super) fn of_passes(&self, metrics: &Arc<Metrics>) -> Arc<dyn controller::Observer> {
        match &self.traces {
            Some(traces) => traces.of_passes(metrics.clone()),
            None => metrics.clone(),
        }
    }

    /// Sends what is left, within a bound.
    pub(super) async fn end(&self) {
        if let Some(traces) = &self.traces {
            traces.end().await;
        }
    }
}
