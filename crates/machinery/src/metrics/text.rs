//! The text format of metrics. Pure.

use std::fmt::Write;

use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;

/// Returns all metrics of `registry` in Prometheus text 0.0.4.
pub(super) fn write(registry: &Registry) -> String {
    let mut text = String::with_capacity(16 << 10);
    // Writing to a String never fails, but the encoder of a metric can.
    if encode(&mut text, registry).is_err() {
        tracing::error!("A metric could not be encoded; the scrape is cut short");
    }
    to_prometheus(&text)
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
