//! The cost at the end of the list and at the end of the changes.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use crate::counting::{Counts, counts};
use crate::recording::{CHANGES, OBJECTS};

/// Counts events, and reads the clocks at the points that matter.
#[derive(Clone, Default)]
pub(crate) struct Meter {
    events: u64,
    began: Reading,
    listed: Reading,
    changed: Reading,
}

#[derive(Clone, Copy, Default)]
struct Reading {
    cpu: Duration,
    counts: Counts,
}

/// What one process has measured; printed as JSON.
#[derive(Serialize, Deserialize, Default)]
pub(crate) struct Found {
    /// Processor time per object and per event, in ns.
    pub(crate) list_ns: f64,
    pub(crate) event_ns: f64,
    /// Allocations and bytes per object and per event; 0 unless they were counted.
    pub(crate) list_allocations: f64,
    pub(crate) event_allocations: f64,
    pub(crate) event_bytes: f64,
    /// Allocated bytes at the end and at the peak; 0 unless they were counted.
    pub(crate) live: u64,
    pub(crate) peak: u64,
    /// Resident bytes of the process at the end and at the peak.
    pub(crate) resident: u64,
    pub(crate) resident_peak: u64,
}

impl Reading {
    fn now() -> Reading {
        let now = clock_gettime(ClockId::ProcessCPUTime);
        let cpu = Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec as u32);
        Reading { cpu, counts: counts() }
    }
}

impl Meter {
    pub(crate) fn begin() -> Meter {
        let now = Reading::now();
        Meter { events: 0, began: now, listed: now, changed: now }
    }

    /// An event has come all the way; returns whether it was the last one.
    pub(crate) fn event(&mut self) -> bool {
        self.events += 1;
        if self.events == OBJECTS {
            self.listed = Reading::now();
        }
        let last = self.events == OBJECTS + CHANGES;
        if last {
            self.changed = Reading::now();
        }
        last
    }

    /// Checks that everything that was listed is still held.
    pub(crate) fn settled(&mut self, held: usize) {
        assert_eq!(held as u64, OBJECTS, "objects are missing");
    }

    /// For the contender that does nothing: splits the total evenly over objects and changes.
    pub(crate) fn all_at_once(&mut self) {
        self.changed = Reading::now();
        let (began, changed) = (self.began, self.changed);
        let share = |from: u64, to: u64| from + (to - from) * OBJECTS / (OBJECTS + CHANGES);
        let cpu = |at: Reading| at.cpu.as_nanos() as u64;
        self.listed = Reading {
            cpu: Duration::from_nanos(share(cpu(began), cpu(changed))),
            counts: Counts {
                allocations: share(began.counts.allocations, changed.counts.allocations),
                bytes: share(began.counts.bytes, changed.counts.bytes),
                ..changed.counts
            },
        };
    }

    pub(crate) fn found(&self) -> Found {
        let each = |from: u64, to: u64, of: u64| (to - from) as f64 / of as f64;
        let (began, listed, changed) = (self.began.counts, self.listed.counts, self.changed.counts);
        Found {
            list_ns: (self.listed.cpu - self.began.cpu).as_nanos() as f64 / OBJECTS as f64,
            event_ns: (self.changed.cpu - self.listed.cpu).as_nanos() as f64 / CHANGES as f64,
            list_allocations: each(began.allocations, listed.allocations, OBJECTS),
            event_allocations: each(listed.allocations, changed.allocations, CHANGES),
            event_bytes: each(listed.bytes, changed.bytes, CHANGES),
            live: changed.live,
            peak: changed.peak,
            resident: status("VmRSS:"),
            resident_peak: status("VmHWM:"),
        }
    }
}

/// The value of a line in /proc/self/status, in bytes.
fn status(name: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let kib: Option<u64> = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse().ok());
    kib.unwrap_or_default() * 1024
}
