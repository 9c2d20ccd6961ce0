//! Turns what rooms report to their observers into spans.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use opentelemetry::KeyValue;
use opentelemetry::trace::{Span as _, SpanKind, Status, TraceContextExt, Tracer};
use opentelemetry_sdk::trace::SdkTracer;
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;

use crate::client;
use crate::controller::{self, Outcome};
use crate::object::{Kind, ObjectKey};

/// Makes a span of each request that a pass made, and notifies the next observer.
pub(super) struct Requests {
    pub(super) next: Arc<dyn client::Observer>,
    pub(super) tracer: SdkTracer,
}

/// Adds the outcome of a pass to its span, and notifies the next observer.
pub(super) struct Passes {
    pub(super) next: Arc<dyn controller::Observer>,
}

// === impl Requests ===

impl client::Observer for Requests {
    fn request(&self, verb: &'static str, kind: &Kind, code: u16, took: Duration) {
        self.next.request(verb, kind, code, took);
        let pass = Span::current().context();
        // Outside a pass (watches, Events, the lease), or in one that is not sampled.
        if !pass.span().span_context().is_sampled() {
            return;
        }
        let end = SystemTime::now();
        let mut attributes =
            vec![KeyValue::new("verb", verb), KeyValue::new("resource", kind.resource())];
        if code != 0 {
            attributes.push(KeyValue::new("http.response.status_code", i64::from(code)));
        }
        let mut span = self
            .tracer
            .span_builder(format!("{verb} {}", kind.resource()))
            .with_kind(SpanKind::Client)
            .with_start_time(end.checked_sub(took).unwrap_or(end))
            .with_attributes(attributes)
            .start_with_context(&self.tracer, &pass);
        if code == 0 {
            span.set_status(Status::error("no answer"));
        } else if code >= 400 {
            span.set_status(Status::error(code.to_string()));
        }
        span.end_with_timestamp(end);
    }
}

// === impl Passes ===

impl controller::Observer for Passes {
    fn running(&self, controller: &'static str, workers: usize) {
        self.next.running(controller, workers);
    }

    fn started(&self, controller: &'static str) {
        self.next.started(controller);
    }

    fn finished(
        &self,
        controller: &'static str,
        key: &ObjectKey,
        outcome: Outcome,
        took: Duration,
    ) {
        let pass = Span::current();
        pass.set_attribute("result", outcome.result());
        if let Some(error) = error(outcome) {
            pass.set_attribute("error.type", error);
            pass.set_status(Status::error(error));
        }
        self.next.finished(controller, key, outcome, took);
    }

    fn blocked(&self, controller: &'static str) {
        self.next.blocked(controller);
    }
}

/// The class of the error, if the pass ended in one.
fn error(outcome: Outcome) -> Option<&'static str> {
    match outcome {
        Outcome::Success | Outcome::RequeueAfter => None,
        Outcome::Failed(class) => Some(class.as_str()),
        Outcome::Panicked => Some("Panicked"),
        Outcome::TimedOut => Some("TimedOut"),
        Outcome::Dropped => Some("Dropped"),
    }
}
