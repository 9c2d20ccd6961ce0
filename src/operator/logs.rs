//! Log lines: text for people, JSON for machines.

use std::io::IsTerminal;

use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, fmt, registry};

use super::args::LogFormat;
use super::spans::Lines;

/// Sends log lines to stderr from now on, and spans to where `spans` sends them. `level` is `info` or RUST_LOG's syntax; what it means
/// wrongly is an error that quotes it.
///
/// Text from outside (names, messages of the API server) is safe in both formats: JSON escapes
/// it, and the text format prints fields with `Debug`, so no line can be injected.
pub(super) fn init(level: &str, format: LogFormat, spans: Option<Lines>) -> Result<(), String> {
    let filter = EnvFilter::try_new(level)
        .map_err(|error| format!("--log-level '{level}' is not understood: {error}"))?;
    let terminal = std::io::stderr().is_terminal();
    let json = match format {
        LogFormat::Json => true,
        LogFormat::Text => false,
        LogFormat::Auto => !terminal,
    };
    let lines = fmt::layer().with_writer(std::io::stderr).with_ansi(terminal).with_target(false);
    let lines = match json {
        true => {
            lines.json().flatten_event(true).with_current_span(true).with_span_list(false).boxed()
        }
        false => lines.boxed(),
    };
    // Each has a filter of its own: a quiet log is no reason for fewer spans.
    let mut all: Vec<Lines> = vec![lines.with_filter(filter).boxed()];
    all.extend(spans);
    registry()
        .with(all)
        .try_init()
        .map_err(|error| format!("log lines are already sent somewhere: {error}"))
}
