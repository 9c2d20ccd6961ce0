//! Log lines: text for people, JSON for machines.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::FmtSpan;

use super::args::LogFormat;

/// Sends log lines to stderr from now on. `level` is `info` or RUST_LOG's syntax; what it means
/// wrongly is an error that quotes it.
///
/// Text from outside (names, messages of the API server) is safe in both formats: JSON escapes
/// it, and the text format prints fields with `Debug`, so no line can be injected.
pub(super) fn init(level: &str, format: LogFormat) -> Result<(), String> {
    let filter = EnvFilter::try_new(level)
        .map_err(|error| format!("--log-level '{level}' is not understood: {error}"))?;
    let terminal = std::io::stderr().is_terminal();
    let json = match format {
        LogFormat::Json => true,
        LogFormat::Text => false,
        LogFormat::Auto => !terminal,
    };
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_span_events(FmtSpan::NONE)
        .with_ansi(terminal)
        .with_target(false);
    if json {
        lines.json().flatten_event(true).with_current_span(true).with_span_list(false).try_init()
    } else {
        lines.try_init()
    }
    .map_err(|error| format!("log lines are already sent somewhere: {error}"))
}
