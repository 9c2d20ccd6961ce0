//! Log lines, as human-readable text or as JSON.

use std::fmt::Write;
use std::io::IsTerminal;

use tracing_subscriber::field::MakeExt;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, Registry, fmt, registry};

use super::args::LogFormat;
use super::is_control;

/// Sends log lines to stderr from now on. `level` is `info` or RUST_LOG's syntax; anything else is an error that
/// quotes it.
///
/// Text from outside (names, messages of the API server) is escaped in both formats, so that it can neither
/// inject a line nor control a terminal.
pub(crate) fn init(level: &str, format: LogFormat) -> Result<(), String> {
    let filter = EnvFilter::try_new(level)
        .map_err(|error| format!("--log-level '{level}' is not understood: {error}"))?;
    let terminal = std::io::stderr().is_terminal();
    let json = match format {
        LogFormat::Json => true,
        LogFormat::Text => false,
        LogFormat::Auto => !terminal,
    };
    registry()
        .with(layer(filter, json, terminal, std::io::stderr))
        .try_init()
        .map_err(|error| format!("log lines are already sent somewhere: {error}"))
}

fn layer<W>(
    filter: EnvFilter,
    json: bool,
    colours: bool,
    writer: W,
) -> Box<dyn Layer<Registry> + Send + Sync>
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
        let lines = layer(EnvFilter::new("info"), json, false, move || writer.clone());
        tracing::subscriber::with_default(registry().with(lines), || {
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
