//! Traces of the operator, as spans for an OpenTelemetry collector. Compiled with the cargo feature `otel`.
//! This module exports the spans of `tracing`.
//!
//! Guarantees
//! - Each reconcile is a span, with the fields of its log lines, its result and the class of its error. Each
//!   of its requests to the API server is a child span.
//! - OpenTelemetry's environment variables configure it. Without an endpoint, no spans are exported.
//! - Recording a span never blocks. Spans go into a bounded queue (`OTEL_BSP_MAX_QUEUE_SIZE`, 2,048); when
//!   the queue is full, further spans are lost.
//! - A slow, faulty or unreachable collector delays no reconcile, and delays shutdown by at most two seconds.
//!   The log reports once that spans are not exported, and once that they are again.
//! - No message, body or field of an object's spec is exported: only names, verbs, codes and classes. Log
//!   lines are not part of spans.

mod error;
mod settings;
mod collector;
mod export;

pub(super) use error::Error;
pub(super) use export::Traces;
