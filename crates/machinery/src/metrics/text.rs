//! The two text formats of metrics. Pure.

use std::fmt::Write;

use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;

/// Text format of metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Format {
    /// Prometheus text 0.0.4, which all clients accept.
    Prometheus,
    /// OpenMetrics 1.0.0.
    OpenMetrics,
}

const OPEN_METRICS: &str = "application/openmetrics-text";

// === impl Format ===

impl Format {
    /// Returns the format that an `Accept` header requests; Prometheus text by default.
    pub fn accepted(accept: &str) -> Format {
        let (mut open, mut plain) = (0.0_f32, 0.0_f32);
        for range in accept.split(',') {
            let mut parts = range.split(';').map(str::trim);
            let kind = parts.next().unwrap_or_default();
            let (mut quality, mut version) = (1.0, "1.0.0");
            for part in parts {
                match part.split_once('=') {
                    Some(("q", q)) => quality = q.parse().unwrap_or(0.0),
                    Some(("version", v)) => version = v,
                    _ => {}
                }
            }
            if kind == OPEN_METRICS && version == "1.0.0" {
                open = open.max(quality);
            } else if kind == "text/plain" || kind == "text/*" {
                plain = plain.max(quality);
            }
        }
        if open > 0.0 && open >= plain { Format::OpenMetrics } else { Format::Prometheus }
    }

    /// Returns the `Content-Type`.
    pub fn content_type(self) -> &'static str {
        match self {
            Format::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// Returns all metrics of `registry` as text.
pub(super) fn write(registry: &Registry, format: Format) -> String {
    let mut text = String::with_capacity(16 << 10);
    // Writing to a String never fails, but the encoder of a metric can.
    if encode(&mut text, registry).is_err() {
        tracing::error!("A metric could not be encoded; the scrape is cut short");
    }
    match format {
        Format::OpenMetrics => text,
        Format::Prometheus => to_prometheus(&text),
    }
}

/// Converts OpenMetrics to Prometheus text, whose parsers refuse a scrape with an unknown element. OpenMetrics omits
/// `_total` and `_info` in HELP and TYPE and has more types, lines and exemplars; the samples are the same.
fn to_prometheus(open: &str) -> String {
    let mut text = String::with_capacity(open.len() + 1024);
    let mut help: Option<(&str, &str)> = None;
    for line in open.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            help = rest.split_once(' ');
        } else if let Some((name, kind)) =
            line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' '))
        {
            let (suffix, kind) = match kind {
                "counter" => ("_total", kind),
                "info" => ("_info", "gauge"),
                "stateset" => ("", "gauge"),
                "unknown" => ("", "untyped"),
                _ => ("", kind),
            };
            if let Some((_, help)) = help.take() {
                let _ = writeln!(text, "# HELP {name}{suffix} {help}");
            }
            let _ = writeln!(text, "# TYPE {name}{suffix} {kind}");
        } else if !line.starts_with("# UNIT ") && line != "# EOF" {
            text.push_str(without_exemplar(line));
            text.push('\n');
        }
    }
    text
}

/// Removes the exemplar of a sample, which begins with ` # {` outside of quoted label values.
fn without_exemplar(line: &str) -> &str {
    let (mut is_quoted, mut is_escaped) = (false, false);
    for (at, byte) in line.bytes().enumerate() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_quoted => is_escaped = true,
            b'"' => is_quoted = !is_quoted,
            b' ' if !is_quoted && line[at..].starts_with(" # {") => return &line[..at],
            _ => {}
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prometheus_gets_open_metrics_and_a_browser_gets_text() {
        // The header that Prometheus 3 sends.
        let prometheus = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,\
            application/openmetrics-text;version=0.0.1;q=0.5,\
            text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
        assert_eq!(Format::accepted(prometheus), Format::OpenMetrics);
        for accept in [
            "",
            "*/*",
            "text/html,text/plain",
            "application/openmetrics-text;version=0.0.1",
            "application/openmetrics-text;q=0.1,text/plain;q=0.9",
            "application/openmetrics-text;q=0",
            "application/openmetrics-text;q=nonsense",
        ] {
            assert_eq!(Format::accepted(accept), Format::Prometheus, "{accept}");
        }
    }

    #[test]
    fn a_counter_is_named_with_total_throughout_in_prometheus_text() {
        let open = "# HELP a Help it.\n# TYPE a counter\na_total 1\n# HELP b B.\n# TYPE b gauge\nb 2\n# EOF\n";
        assert_eq!(
            to_prometheus(open),
            "# HELP a_total Help it.\n# TYPE a_total counter\na_total 1\n\
             # HELP b B.\n# TYPE b gauge\nb 2\n"
        );
    }

    #[test]
    fn prometheus_text_omits_elements_of_open_metrics() {
        let open = "# TYPE b info\nb_info{v=\"1\"} 1\n# TYPE u unknown\nu 2\n# TYPE c counter\n\
            c_total{a=\" # {\\\" # {\"} 1 # {trace=\"x\"} 1.0\n# EOF\n";
        assert_eq!(
            to_prometheus(open),
            "# TYPE b_info gauge\nb_info{v=\"1\"} 1\n# TYPE u untyped\nu 2\n\
             # TYPE c_total counter\nc_total{a=\" # {\\\" # {\"} 1\n"
        );
    }
}
