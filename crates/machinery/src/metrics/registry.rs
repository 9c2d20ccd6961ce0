//! All metrics of the process, and their text format.

use std::fmt::Write;
use std::sync::Arc;

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

use super::collectors::{Informers, Process, Queues};
use crate::identity::Identity;
use crate::informer::Informer;
use crate::instruments;
use crate::object::Resource;
use crate::workqueue::{Key, WorkQueue};

/// Version of the running build.
#[derive(Debug, Clone)]
pub struct Build {
    /// Version of the package.
    pub version: &'static str,
    /// Revision of the sources; `unknown` if the build did not set it.
    pub revision: &'static str,
}

/// All metrics of the process: those that the modules count, and those that are read at each scrape. All managers of a
/// process count in the same series: controllers and Leases of one name are not distinguished.
pub struct Metrics {
    registry: Registry,
    queues: Arc<Queues>,
    informers: Arc<Informers>,
}

// === impl Metrics ===

impl Metrics {
    /// Creates the metrics of a process of `program`.
    pub fn new(program: &Identity, build: &Build) -> Arc<Metrics> {
        Metrics::with(program, build, |_| {})
    }

    /// Like [`Metrics::new`], with your own metrics, which `register` adds.
    ///
    /// ```
    /// use controller_machinery::metrics::prometheus_client::metrics::counter::Counter;
    /// use controller_machinery::metrics::{Build, Metrics};
    ///
    /// let announced = Counter::<u64>::default();
    /// let build = Build { version: "1.0.0", revision: "unknown" };
    /// let metrics = Metrics::with(&"website".into(), &build, |registry| {
    ///     registry.register("websites_announced", "Websites announced", announced.clone());
    /// });
    /// # drop(metrics);
    /// ```
    pub fn with(
        program: &Identity,
        build: &Build,
        register: impl FnOnce(&mut Registry),
    ) -> Arc<Metrics> {
        let prefix = &program.metrics_prefix();
        let mut registry = Registry::default();
        let (queues, informers) = (Arc::new(Queues::new(prefix)), Arc::new(Informers::new(prefix)));
        registry.register_collector(Box::new(queues.clone()));
        registry.register_collector(Box::new(informers.clone()));
        let started = jiff::Timestamp::now().as_millisecond() as f64 / 1_000.0;
        registry.register_collector(Box::new(Process { started }));
        let info = Info::new([("version", build.version), ("revision", build.revision)]);
        registry.register(format!("{prefix}_build"), "Which build runs", info);
        instruments::register(&mut registry, prefix);
        register(&mut registry);
        Arc::new(Metrics { registry, queues, informers })
    }

    /// Returns all metrics as text.
    pub fn encode(&self) -> String {
        write(&self.registry)
    }

    /// Reads `queue` at each scrape, under the name of its controller.
    pub fn watch_queue<K: Key>(&self, name: &'static str, queue: &WorkQueue<K>) {
        self.queues.watch(name, queue.clone());
    }

    /// Reads the state of `informer` at each scrape.
    pub fn watch_informer<V: Resource>(&self, informer: &Informer<V>) {
        self.informers.watch(informer.clone());
    }
}

opaque!(Metrics);

/// Returns all metrics of `registry` in Prometheus text 0.0.4.
fn write(registry: &Registry) -> String {
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
