//! What the operator does, as spans for an OpenTelemetry collector. Compiled with the cargo feature
//! `otel`.
//!
//! Guarantees
//! - Each pass is a span, with the fields of its log lines, its result and the class of its error;
//!   in it, each request to the API server that the pass made is one.
//! - It is configured by OpenTelemetry's own environment variables. Without an endpoint there are no
//!   spans.
//! - Observing never waits. Spans go into a queue with a bound (`OTEL_BSP_MAX_QUEUE_SIZE`, 2,048);
//!   what finds it full is lost.
//! - A collector that is slow, wrong or away holds up no pass, and shutdown for two seconds at most.
//!   The log says once that spans are not exported, and once that they are again.
//! - No message, no body and no field of an object's spec goes out: names, verbs, codes and classes
//!   alone. Log lines are not part of spans.

mod error;
mod settings;
mod collector;
mod observe;
mod export;

pub use error::Error;
pub use export::Traces;
