//! The export of spans.

use std::sync::Arc;
use std::time::Duration;

use opentelemetry::trace::TracerProvider;
use opentelemetry::{Key, KeyValue};
use opentelemetry_otlp::{SpanExporter, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider};
use tokio::runtime::Handle;
use tokio::task::spawn_blocking;
use tracing::Subscriber;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::FilterFn;
use tracing_subscriber::registry::LookupSpan;

use super::Error;
use super::collector::Collector;
use super::observe::{Passes, Requests};
use super::settings::Settings;
use crate::identity::Identity;
use crate::{client, controller};

/// Longest time for sending spans after the end; the rest is lost. Less than a program's last steps get.
const FLUSH: Duration = Duration::from_secs(2);

/// Exports spans. Cheap to clone.
#[derive(Clone)]
pub struct Traces {
    provider: SdkTracerProvider,
    tracer: SdkTracer,
}

// === impl Traces ===

impl Traces {
    /// As the environment says; `None` if it asks for no spans. `program` names the spans' scope, and
    /// the service unless another is configured. Requests to the collector are tasks of `runtime`.
    ///
    /// # Errors
    /// If the environment asks for something impossible. An absent collector is not an error.
    pub fn from_environment(program: &Identity, runtime: &Handle) -> Result<Option<Traces>, Error> {
        let Some(settings) = Settings::read(|name| std::env::var(name).ok())? else {
            return Ok(None);
        };
        let exporter = SpanExporter::builder()
            .with_http()
            .with_http_client(Collector::new(&settings, runtime)?)
            .build()?;
        // In batches, by a dedicated thread, from a bounded queue; sampled as OTEL_TRACES_SAMPLER
        // says.
        let provider = SdkTracerProvider::builder()
            .with_resource(resource(program))
            .with_batch_exporter(exporter)
            .build();
        let tracer = provider.tracer(program.name());
        Ok(Some(Traces { provider, tracer }))
    }

    /// Makes spans of this crate's `tracing` spans: the passes. Their log lines are left out,
    /// because they quote what people and servers wrote.
    pub fn layer<S>(&self) -> impl Layer<S> + Send + Sync + use<S>
    where
        S: Subscriber + for<'span> LookupSpan<'span> + Send + Sync,
    {
        let ours = FilterFn::new(|metadata| {
            metadata.is_span() && metadata.target().starts_with(env!("CARGO_CRATE_NAME"))
        });
        tracing_opentelemetry::layer()
            .with_tracer(self.tracer.clone())
            .with_location(false)
            .with_threads(false)
            .with_tracked_inactivity(false)
            // Requests find their pass by its `tracing` span.
            .with_context_activation(false)
            .with_filter(ours.with_max_level_hint(LevelFilter::INFO))
    }

    /// An observer for a client: it makes spans, and notifies `next`.
    pub fn of_requests(&self, next: Arc<dyn client::Observer>) -> Arc<dyn client::Observer> {
        Arc::new(Requests { next, tracer: self.tracer.clone() })
    }

    /// An observer for a controller: it completes the spans of its passes, and notifies `next`.
    pub fn of_passes(&self, next: Arc<dyn controller::Observer>) -> Arc<dyn controller::Observer> {
        Arc::new(Passes { next })
    }

    /// Sends what is left, for at most two seconds. What comes later is lost.
    pub async fn end(&self) {
        let provider = self.provider.clone();
        let ended = spawn_blocking(move || provider.shutdown_with_timeout(FLUSH)).await;
        if !matches!(ended, Ok(Ok(()))) {
            tracing::warn!("The last spans were not exported within {FLUSH:?}");
        }
    }
}

/// Returns the resource of OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES, with defaults for what they
/// leave out.
fn resource(program: &Identity) -> Resource {
    let version = KeyValue::new("service.version", program.version);
    let asked = Resource::builder().with_attribute(version);
    let name = Resource::builder().build().get(&Key::from_static_str("service.name"));
    // The crate makes up this name if nothing names the service.
    match name.is_none_or(|name| name.as_str().starts_with("unknown_service")) {
        true => asked.with_service_name(program.name()).build(),
        false => asked.build(),
    }
}
