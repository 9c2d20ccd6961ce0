//! The process itself, under the names that every Prometheus client library uses.

use std::fmt;
use std::fs;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use rustix::process::{Resource, getrlimit};
use rustix::time::{ClockId, clock_gettime};

/// Queries the system at each scrape. Without /proc, its metrics are missing, which is the truth.
#[derive(Debug)]
pub(super) struct Process {
    /// Unix time in seconds at which this was made: close enough to the start of the process.
    pub(super) started: f64,
}

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let cpu = clock_gettime(ClockId::ProcessCPUTime);
        let cpu = ConstCounter::new(cpu.tv_sec as f64 + cpu.tv_nsec as f64 / 1e9);
        let help = "Total user and system CPU time spent in seconds.";
        let kind = cpu.metric_type();
        cpu.encode(encoder.encode_descriptor("process_cpu_seconds", help, None, kind)?)?;

        let mut gauge = |name: &str, help: &str, value: Option<f64>| {
            let Some(value) = value else { return Ok(()) };
            let value = ConstGauge::new(value);
            value.encode(encoder.encode_descriptor(name, help, None, value.metric_type())?)
        };
        let help = "Start time of the process since unix epoch in seconds.";
        gauge("process_start_time_seconds", help, Some(self.started))?;
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let help = "Resident memory size in bytes.";
        gauge("process_resident_memory_bytes", help, bytes(&status, "VmRSS:"))?;
        let help = "Virtual memory size in bytes.";
        gauge("process_virtual_memory_bytes", help, bytes(&status, "VmSize:"))?;
        let open = fs::read_dir("/proc/self/fd").ok().map(|entries| entries.count() as f64);
        gauge("process_open_fds", "Number of open file descriptors.", open)?;
        let max = getrlimit(Resource::Nofile).current.map(|limit| limit as f64);
        gauge("process_max_fds", "Maximum number of open file descriptors.", max)
    }
}

/// A field of /proc/self/status, which counts in KiB and calls them kB.
fn bytes(status: &str, field: &str) -> Option<f64> {
    let line = status.lines().find_map(|line| line.strip_prefix(field))?;
    let kibibytes: f64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kibibytes * 1024.0)
}
