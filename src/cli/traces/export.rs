//! The export of spans.

use std::time::Duration;

use opentelemetry::trace::TracerProvider;
use opentelemetry::{Key, KeyValue};
use opentelemetry_otlp::{SpanExporter, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider};
use tokio::runtime::Handle;
use tokio::task::spawn_blocking;
use tracing::level_filters::LevelFilter;
use tracing::subscriber::Interest;
use tracing::{Level, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::dynamic_filter_fn;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

use super::Error;
use super::collector::Collector;
use super::settings::Settings;
use crate::cli::IDENTITY;

/// Maximum time for sending spans at shutdown; the rest is lost. It is shorter than the time limit of the
/// program's last steps.
const FLUSH: Duration = Duration::from_secs(2);

/// Exports spans. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Traces {
    provider: SdkTracerProvider,
    tracer: SdkTracer,
}

// === impl Traces ===

impl Traces {
    /// Creates an exporter from the environment; `None` if no spans are requested. Requests to the collector
    /// are tasks of `runtime`.
    ///
    /// # Errors
    /// If a setting is invalid. An unreachable collector is not an error.
    pub(crate) fn from_environment(runtime: &Handle) -> Result<Option<Traces>, Error> {
        let Some(settings) = Settings::read(|name| std::env::var(name).ok())? else {
            return Ok(None);
        };
        let exporter = SpanExporter::builder()
            .with_http()
            .with_http_client(Collector::new(&settings, runtime)?)
            .build()?;
        // A dedicated thread exports batches from a bounded queue. OTEL_TRACES_SAMPLER configures the
        // sampling.
        let provider = SdkTracerProvider::builder()
            .with_resource(resource())
            .with_batch_exporter(exporter)
            .build();
        let tracer = provider.tracer(IDENTITY.name());
        Ok(Some(Traces { provider, tracer }))
    }

    /// Returns a layer that exports the `tracing` spans of the library and of the operator. It excludes log
    /// lines, because they quote users and servers, and requests outside a reconcile (watches, Events, the
    /// Lease).
    pub(crate) fn layer<S>(&self) -> impl Layer<S> + Send + Sync + use<S>
    where
        S: Subscriber + for<'span> LookupSpan<'span> + Send + Sync,
    {
        let in_a_reconcile = |metadata: &Metadata<'_>, context: &Context<'_, S>| {
            is_ours(metadata)
                && (metadata.name() != "request" || context.lookup_current().is_some())
        };
        let filter = dynamic_filter_fn(in_a_reconcile).with_max_level_hint(LevelFilter::DEBUG);
        let filter = filter.with_callsite_filter(|metadata| match is_ours(metadata) {
            true => Interest::sometimes(),
            false => Interest::never(),
        });
        tracing_opentelemetry::layer()
            .with_tracer(self.tracer.clone())
            .with_location(false)
            .with_threads(false)
            .with_tracked_inactivity(false)
            // The parent of a span is the current `tracing` span.
            .with_context_activation(false)
            .with_filter(filter)
    }

    /// Sends the remaining spans, for at most two seconds. Later spans are lost.
    pub(crate) async fn end(&self) {
        let provider = self.provider.clone();
        let ended = spawn_blocking(move || provider.shutdown_with_timeout(FLUSH)).await;
        if !matches!(ended, Ok(Ok(()))) {
            tracing::warn!("The last spans were not exported within {FLUSH:?}");
        }
    }
}

/// Returns whether a span belongs to the library or the operator.
fn is_ours(metadata: &Metadata<'_>) -> bool {
    let crates = ["controller_machinery", env!("CARGO_CRATE_NAME")];
    metadata.is_span()
        && *metadata.level() <= Level::DEBUG
        && crates.iter().any(|ours| metadata.target().starts_with(ours))
}

/// Returns the resource of OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES, with defaults for missing
/// attributes.
fn resource() -> Resource {
    let version = KeyValue::new("service.version", env!("CARGO_PKG_VERSION"));
    let asked = Resource::builder().with_attribute(version);
    let name = Resource::builder().build().get(&Key::from_static_str("service.name"));
    // The crate uses this name if no variable names the service.
    match name.is_none_or(|name| name.as_str().starts_with("unknown_service")) {
        true => asked.with_service_name(IDENTITY.name()).build(),
        false => asked.build(),
    }
}
