//! Traces of the operator, as spans for an OpenTelemetry collector. Compiled with the cargo feature
//! `otel`. The spans are those of `tracing`; here is what sends them.
//!
//! Guarantees
//! - Each reconcile is a span, with the fields of its log lines, its result and the class of its error.
//!   Each request that it made to the API server is a child span.
//! - It is configured by OpenTelemetry's own environment variables. Without an endpoint there are
//!   no spans.
//! - Observing never waits. Spans go into a bounded queue (`OTEL_BSP_MAX_QUEUE_SIZE`, 2,048); when
//!   it is full, further spans are lost.
//! - A collector that is slow, wrong or away holds up no reconcile, and shutdown for at most two
//!   seconds. The log says once that spans are not exported, and once that they are again.
//! - No message, no body and no field of an object's spec is exported: only names, verbs, codes and
//!   classes. Log lines are not part of spans.

mod error;
mod settings;
mod collector;
mod export;

pub(super) use error::Error;
pub(super) use export::Traces;
