//! Log lines, as human-readable text or as JSON, and spans for an OpenTelemetry collector, if they are compiled
//! in and requested.

use std::fmt::Write;
use std::io::IsTerminal;

use tokio::runtime::Handle;
use tracing_subscriber::field::MakeExt;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, Registry, fmt, registry};

use super::args::LogFormat;
use super::is_control;
#[cfg(feature = "otel")]
use super::traces::Traces;

#[cfg(not(feature = "otel"))]
use absent::Traces;

/// A layer that writes log lines or exports spans.
pub(crate) type LogLayer = Box<dyn Layer<Registry> + Send + Sync>;

// === Log lines ===

/// Sends log lines to stderr from now on, and spans to `spans`. `level` is `info` or RUST_LOG's
/// syntax; anything else is an error that quotes it.
///
/// Text from outside (names, messages of the API server) is escaped in both formats, so that it can neither
/// inject a line nor control a terminal.
pub(crate) fn init(level: &str, format: LogFormat, spans: Option<LogLayer>) -> Result<(), String> {
    let filter = EnvFilter::try_new(level)
        .map_err(|error| format!("--log-level '{level}' is not understood: {error}"))?;
    let terminal = std::io::stderr().is_terminal();
    let json = match format {
        LogFormat::Json => true,
        LogFormat::Text => false,
        LogFormat::Auto => !terminal,
    };
    // Each layer has its own filter, so that a quiet log does not reduce the spans.
    let mut all = vec![layer(filter, json, terminal, std::io::stderr)];
    all.extend(spans);
    registry()
        .with(all)
        .try_init()
        .map_err(|error| format!("log lines are already sent somewhere: {error}"))
}

fn layer<W>(filter: EnvFilter, json: bool, colours: bool, writer: W) -> LogLayer
where
    W: for<'writer> MakeWriter<'writer> + Send + Sync + 'static,
{
    let lines = fmt::layer().with_writer(writer).with_ansi(colours).with_target(false);
    if json {
        let lines = lines.json().flatten_event(true);
        lines.with_current_span(true).with_span_list(false).with_filter(filter).boxed()
    } else {
        let fields = fmt::format::debug_fn(|writer, field, value| {
            match field.name() {
                "message" => {}
                name => write!(writer, "{name}=")?,
            }
            write!(Escaped(writer), "{value:?}")
        });
        lines.fmt_fields(fields.delimited(" ")).with_filter(filter).boxed()
    }
}

/// Writes control characters as escape sequences.
struct Escaped<'a, W>(&'a mut W);

impl<W: Write> Write for Escaped<'_, W> {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        for part in text.split_inclusive(is_control) {
            let end = part.char_indices().next_back().filter(|(_, last)| is_control(*last));
            let Some((end, control)) = end else { return self.0.write_str(part) };
            self.0.write_str(part.get(..end).unwrap_or_default())?;
            write!(self.0, "{}", control.escape_default())?;
        }
        Ok(())
    }
}

// === Spans ===

/// The spans of the process, if there are any.
#[derive(Clone, Default)]
pub(crate) struct Spans {
    traces: Option<Traces>,
    /// Reason why there are none although the environment requests them.
    problem: Option<String>,
}

// === impl Spans ===

impl Spans {
    /// Reads the environment. The operator works even if the settings are wrong: see [`Spans::log_problem`].
    pub(crate) fn from_environment(runtime: &Handle) -> Spans {
        match Traces::from_environment(runtime) {
            Ok(traces) => Spans { traces, problem: None },
            Err(error) => Spans { traces: None, problem: Some(error.to_string()) },
        }
    }

    /// Returns the layer that exports spans.
    pub(crate) fn layer(&self) -> Option<LogLayer> {
        self.traces.as_ref().map(|traces| traces.layer().boxed())
    }

    /// Logs why there are no spans, once logging has started.
    pub(crate) fn log_problem(&self) {
        if let Some(problem) = &self.problem {
            tracing::warn!(why = %problem, "Spans are not exported");
        }
    }

    /// Sends the remaining spans, within a time limit.
    pub(crate) async fn end(&self) {
        if let Some(traces) = &self.traces {
            traces.end().await;
        }
    }
}

/// A build without spans.
#[cfg(not(feature = "otel"))]
mod absent {
    use tokio::runtime::Handle;
    use tracing_subscriber::layer::Identity;

    /// Replacement of `super::traces::Traces` in this build. It has no values.
    #[derive(Clone)]
    pub(super) enum Traces {}

    /// An environment that requests spans.
    #[derive(Debug, thiserror::Error)]
    #[error("{0} is set, and this binary is built without the feature otel")]
    pub(super) struct AskedFor(&'static str);

    /// The variables that request them.
    const ENDPOINTS: [&str; 2] =
        ["OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"];

    // === impl Traces ===

    impl Traces {
        /// Returns `None`, or an error if the environment requests spans.
        pub(super) fn from_environment(_: &Handle) -> Result<Option<Traces>, AskedFor> {
            match ENDPOINTS.iter().find(|name| std::env::var(name).is_ok_and(|url| !url.is_empty()))
            {
                None => Ok(None),
                Some(name) => Err(AskedFor(name)),
            }
        }

        pub(super) fn layer(&self) -> Identity {
            match *self {}
        }

        pub(super) async fn end(&self) {
            match *self {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Arc;

    use parking_lot::Mutex;

    use super::*;

    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Written {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Log lines of a failing reconcile at level info, with a field from outside.
    fn logged(json: bool) -> String {
        let written = Written::default();
        let writer = written.clone();
        let all = vec![layer(EnvFilter::new("info"), json, false, move || writer.clone())];
        tracing::subscriber::with_default(registry().with(all), || {
            let pass = tracing::info_span!("reconcile", controller = "app", object = "shop");
            pass.in_scope(|| {
                tracing::debug!("not asked for");
                let error = "one\nINFO two\u{1b}[31m\u{9b}0m\u{202e}".to_owned();
                tracing::warn!(%error, "reconcile failed");
            });
        });
        let bytes = written.0.lock().clone();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn a_json_log_line_names_the_reconcile() {
        let text = logged(true);
        let line: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(
            (&line["level"], &line["message"]),
            (&"WARN".into(), &"reconcile failed".into())
        );
        assert_eq!(line["span"]["controller"], "app", "{text}");
        assert_eq!(line["span"]["object"], "shop", "{text}");
        assert_eq!(text.matches('\n').count(), 1, "{text}");
    }

    #[test]
    fn a_text_log_line_names_the_reconcile_and_cannot_be_injected() {
        let text = logged(false);
        assert!(
            text.contains(
                r#"reconcile{controller="app" object="shop"}: reconcile failed error=one\nINFO"#
            ),
            "{text}"
        );
        assert!(text.contains(r"two\u{1b}[31m\u{9b}0m\u{202e}"), "{text}");
        assert_eq!(text.matches('\n').count(), 1, "{text}");
    }
}
