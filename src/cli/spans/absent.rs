//! A build without spans.

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
const ENDPOINTS: [&str; 2] = ["OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"];

// === impl Traces ===

impl Traces {
    /// Always `None`, or an error if the environment requests spans.
    pub(super) fn from_environment(_: &Program, _: &Handle) -> Result<Option<Traces>, AskedFor> {
        match ENDPOINTS.iter().find(|name| std::env::var(name).is_ok_and(|url| !url.is_empty())) {
            None => Ok(None),
            Some(name) => Err(AskedFor(name)),
        }
    }

    pub(super) fn layer(&self) -> Identity {
        match *self {}
    }

    pub(super) fn of_requests(&self, _: Arc<dyn client::Observer>) -> Arc<dyn client::Observer> {
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
