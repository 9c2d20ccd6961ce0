//! The table in docs/PERFORMANCE.md, with the medians of several runs.

use crate::measure::Found;

/// All runs of one contender: timed runs, and runs in which allocations were counted.
pub(crate) struct Runs {
    pub(crate) timed: Vec<Found>,
    pub(crate) counted: Vec<Found>,
}

impl Runs {
    fn timed(&self, of: fn(&Found) -> f64) -> f64 {
        median(&self.timed, of)
    }

    fn counted(&self, of: fn(&Found) -> f64) -> f64 {
        median(&self.counted, of)
    }
}

fn median(runs: &[Found], of: fn(&Found) -> f64) -> f64 {
    let mut all: Vec<f64> = runs.iter().map(of).collect();
    all.sort_unstable_by(f64::total_cmp);
    all.get(all.len() / 2).copied().unwrap_or(f64::NAN)
}

pub(crate) fn print(ours: &Runs, peer: &Runs, bytes: &Runs) {
    println!("| work | ours ÷ kube-runtime | ours | kube-runtime | the bytes alone |");
    println!("|---|---|---|---|---|");
    let row = |name: &str, digits: usize, of: &dyn Fn(&Runs) -> f64| {
        let (a, b, c) = (of(ours), of(peer), of(bytes));
        println!("| {name} | **{:.3}** | {a:.digits$} | {b:.digits$} | {c:.digits$} |", a / b);
    };
    row("changes: events per CPU second", 0, &|runs| 1e9 / runs.timed(|found| found.event_ns));
    row("… CPU µs per event", 2, &|runs| runs.timed(|found| found.event_ns) / 1e3);
    row("… allocations per event", 2, &|runs| runs.counted(|found| found.event_allocations));
    row("… bytes allocated per event", 0, &|runs| runs.counted(|found| found.event_bytes));
    row("streaming list: CPU µs per object", 2, &|runs| runs.timed(|found| found.list_ns) / 1e3);
    row("… allocations per object", 2, &|runs| runs.counted(|found| found.list_allocations));
    row("allocated at the end, MB", 1, &|runs| runs.counted(|found| found.live as f64) / 1e6);
    row("… at most, MB", 1, &|runs| runs.counted(|found| found.peak as f64) / 1e6);
    row("resident at the end, MB", 1, &|runs| runs.timed(|found| found.resident as f64) / 1e6);
    row("… at most, MB", 1, &|runs| runs.timed(|found| found.resident_peak as f64) / 1e6);
}
